"""Read files, text lines and JSON that anybody may have written: nothing hangs, nothing fills the memory, every fault
is a sentence.
"""

import errno
import io
import itertools
import json
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from electra_trainer.errors import DataError, ElectraError, MissingInputError, Refusal, storage_error

HEAD = 1 << 16
"""Bytes that are looked at: the first of the file, after decompression."""
UNPACKERS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
"""Endings of compressed files, and the tool of each."""
_PATTERN = 10
"""Fewest lines that show a pattern."""
_CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b")) + b"\x7f"


@dataclass(frozen=True, eq=False)
class Kind:
    """A format that is not lines of text."""

    what: str
    """Words that follow "is"."""
    remedy: str
    """Sentences. {file} is replaced by the file's name, {ending} by its ending, {new} by a name for what a command
    makes, all quoted for a shell."""
    is_text: bool = False
    """Whether the format is made of characters, so that a file of another format may begin like it."""
    endings: tuple[str, ...] = ()
    """Endings of names of files in which it is read."""

    def refusal(self, path: Path | str) -> str:
        """Sentences on what is wrong with a file of this kind, and what to do."""
        if (unpacking := unpack_first(path)) and "{file}" in self.remedy:
            return f"{path}: is {self.what}, compressed. {unpacking}"
        return f"{path}: is {self.what}. {self.advice(path)}"

    def advice(self, path: Path | str) -> str:
        """Remedy for a file of this kind."""
        base, ending = str(Path(path).with_suffix("")), Path(path).suffix or ".txt"
        names = {"{file}": str(path), "{new}": f"{base}-new", "{ending}": ending}
        return re.sub(r"\{\w+\}", lambda found: shlex.quote(names[found.group()]), self.remedy)


def unpack_first(path: Path | str) -> str:
    """Remedy for a file with the ending of a compressed one; empty for others."""
    old, new, tool = str(path), str(Path(path).with_suffix("")), UNPACKERS.get(Path(path).suffix)
    return f"Unpack it first: `{tool} -dk {shlex.quote(old)}`, and name {shlex.quote(new)} instead." if tool else ""


def _typed(first: str, command: str, made: str = "{new}{ending}") -> str:
    return f"{first}: `{command}`, and name {made} instead."


def _encoded(encoding: str) -> Kind:
    return Kind(encoding, _typed("Save it as UTF-8", f"iconv -f {encoding} -t UTF-8 {{file}} > {{new}}{{ending}}"))


def _document(what: str, *, is_text: bool = False) -> Kind:
    tools = "pandoc for documents, books and notebooks, pdftotext for PDF, trafilatura for HTML, soffice for tables"
    return Kind(what, f"Extract its text into a .txt, .csv or .jsonl file ({tools}), and name that.", is_text=is_text)


def _renamed(what: str, *endings: str, is_text: bool = False) -> Kind:
    remedy = _typed("Name it so", f"mv {{file}} {{new}}{endings[0]}", f"{{new}}{endings[0]}")
    return Kind(what, remedy, is_text=is_text, endings=endings)


_JSON = Kind(
    "JSON over several lines, or in one array",
    _typed("Write an object a line", "jq -c '[.. | arrays][0][]' {file} > {new}.jsonl", "{new}.jsonl"),
    is_text=True,
)
_JSON_LINES = _renamed("JSON lines", ".jsonl", ".ndjson", ".json", is_text=True)
_TABS = _renamed("a table with tabs between its columns", ".tsv", ".csv", is_text=True)
_PAGES = _document("a PDF or RTF document, a book, or a document or table of an office program")
_MARKUP = _document("a page or text with markup (HTML, XML, subtitles, a treebank, a notebook)", is_text=True)
_REPAIR = (
    "import codecs, sys; codecs.register_error('old', lambda e: (e.object[e.start:e.end].decode('cp1252', 'replace'), "
    "e.end)); [sys.stdout.buffer.write(b.decode('utf-8', 'old').encode()) for b in open(sys.argv[1], 'rb')]"
)
OTHER = Kind(
    "not UTF-8 in many lines",
    _typed(
        "Save it as CSV UTF-8 in the spreadsheet, or convert CP1252 within it",
        f'python -c "{_REPAIR}" {{file}} > {{new}}{{ending}}',
    )
    + " Whole files in CP1251, GB18030, SHIFT_JIS and others: iconv -f CP1251 -t UTF-8.",
)
_BINARY = Kind(
    "not text, but a binary file",
    "Write the texts of {file} to a .csv or .jsonl file with its own program, or give them to "
    "`electra_trainer.prepare(documents=...)` in Python.",
)
_STARTS: dict[bytes, Kind] = {
    rb"\xff\xfe\0\0|\0\0\xfe\xff": _encoded("UTF-32"),
    rb"\xff\xfe|\xfe\xff": _encoded("UTF-16"),
    rb".*?\x1b\$[@AB]": _encoded("ISO-2022-JP"),  # seven bits, so that it looks like UTF-8
    rb"\x1f[\x8b\x9d]|BZh[1-9](?:1AY|\x17rE)|\xfd7zXZ\0|\x5d\0\0|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18": Kind(
        "compressed, and its name does not say how", "Name it so (.gz, .bz2, .xz, .zst), or unpack it."
    ),
    rb"PK\x03\x04.*?(?:xl/|word/|ppt/|opendocument\.|epub\+zip)|.{60}BOOKMOBI|\xd0\xcf\x11\xe0": _PAGES,
    rb"%PDF-|%!PS|AT&TFORM|\{\\rtf": _PAGES,
    rb"PK(?:\x03\x04|\x05\x06)|7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|.{257}ustar": Kind(
        "an archive (zip, 7z, rar or tar)", "Unpack it into a folder, and name the folder."
    ),
    rb"PAR1": _renamed("a Parquet file", ".parquet"),
    rb"ARROW1\0\0|\xff{4}...[\0-\x0f]": _renamed("an Arrow file", ".arrow", ".feather"),
    rb"WARC/|filedesc://": _renamed("a WARC file, of which those with texts are read (WET)", ".wet"),
    rb"\x80[\2-\5]|[(\]}]?[(ld]p0\n|ccopy_reg\n": replace(_BINARY, what="a Python pickle, which can run code"),
    rb"version https://git-lfs\.github\.com/spec/": Kind(
        "a pointer to a file in Git LFS, not that file", "Fetch it: `git lfs pull`, in its repository."
    ),
}
_MARKED: dict[bytes, Kind] = {
    rb"<\?xml|<mediawiki|<TEI\b|<rss\b|<doc id=|(?i:<!doctype\s|<html|<head\b|<body\b)": _MARKUP,
    rb"WEBVTT\b|\d+\r?\n\d\d:\d\d:\d\d[,.]\d{3} --> ": _MARKUP,
    rb"(?:#[^\n]*\n)*+\d[\d-]*\t[^\t\n]+\t[^\t\n]+\t[A-Z_]+\t": _MARKUP,
    rb"\[\s*\{\s*\"": _JSON,
}
_PATTERNS = [(re.compile(pattern, re.DOTALL), kind) for pattern, kind in _STARTS.items()] + [
    (re.compile(rb"(?>\s*(?:<!--(?>.*?-->)\s*)*)(?:" + pattern + rb")", re.DOTALL), kind)
    for pattern, kind in _MARKED.items()
]


def kind_of(head: bytes, name: str = "") -> Kind | None:
    """Recognise a file by its beginning; None if it may be lines of UTF-8 text, JSON lines or a table.

    Args:
        head: its first bytes, decompressed; `HEAD` of them show all kinds.
        name: of the file, for what bytes do not show.
    """
    head = head.removeprefix(b"\xef\xbb\xbf")
    found = next((kind for pattern, kind in _PATTERNS if pattern.match(head)), None)
    is_marked = Path(name.lower()).suffix in (".html", ".htm", ".xhtml", ".xml", ".ipynb")
    return found or (_MARKUP if is_marked else None)


def unlike_text(head: bytes, *, is_whole: bool) -> Kind | None:
    """Why the lines of a file are not prose: binary, mostly in another encoding, JSON, or columns between tabs.

    Args:
        head: its first bytes, decompressed.
        is_whole: they are all of it.
    """
    if len(head) >= 32 and len(head.translate(None, _CONTROL)) < 0.9 * len(head):
        return _BINARY
    lines = [line for line in re.split(rb"[\r\n]", head)[: None if is_whole else -1] if line.strip()]
    bad = sum("\ufffd" in line.decode("utf-8", "replace") for line in lines if b"\xef\xbf\xbd" not in line)
    if len(lines) >= _PATTERN and bad > 0.2 * len(lines):
        return OTHER
    if re.match(rb"\s*\{\s*\"(?:[^\"\\\n]|\\.){0,200}\"\s*:", head.removeprefix(b"\xef\xbb\xbf")):
        return _json_kind(head.decode("utf-8-sig", "replace").lstrip(), is_whole=is_whole)
    tabs = {line.count(b"\t") for line in lines}
    return _TABS if len(lines) >= _PATTERN and len(tabs) == 1 and tabs != {0} else None


def _json_kind(text: str, *, is_whole: bool) -> Kind | None:
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):  # longer than the head, or not JSON
        return None if is_whole else _JSON if "\n" in text else _JSON_LINES
    rest = text[end:].lstrip()
    if rest and not rest.startswith("{"):
        return None
    return _JSON if "\n" in text[:end] else _JSON_LINES


MOST_SETTINGS = 1 << 24
"""Bytes of a file of settings, a manifest, a result."""
MOST_TEXT = 1 << 30
"""Bytes of a text or a data set that is read whole."""
MOST_VALUES = 1_000_000
"""Values of one JSON document that holds settings or a text: a short one of brackets takes fifty times its size in
memory.
"""
MOST_LINE = 1 << 24
"""Bytes of one line of text."""
BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 20
IRREGULAR = "is not a regular file (a pipe, socket or device). Write its content to a file first."


def read_file(path: Path, *, limit: int = MOST_SETTINGS, error: Refusal = DataError) -> bytes:
    """A regular file's bytes. Pipes and devices are refused without waiting for them; a link to a file is followed.

    Args:
        path: the file.
        limit: most bytes.
        error: raised if it is not a regular file, or too large.

    Raises:
        MissingInputError: nothing is there. StorageError: cannot be read. DataError: a folder. `error`: see above.
    """
    with os.fdopen(open_regular(path, limit=limit, error=error), "rb") as stream:
        try:
            content = read_all(stream, limit)
        except OSError as refused:
            raise storage_error(refused, path) from None
    if len(content) > limit:
        raise error(f"{path}: {_too_large(limit)}")
    return content


def read_all(stream: IO[bytes], limit: int) -> bytes:
    """All bytes of a stream, of which nobody says how many there are; a few more than `limit` if there are more."""
    content = io.BytesIO()  # gives its bytes without a copy
    while content.tell() <= limit and (part := stream.read(_CHUNK)):
        content.write(part)
    return content.getvalue()


def regular(path: Path, *, limit: int) -> os.stat_result:
    """The status of a regular file; errors as for `read_file`."""
    with os.fdopen(open_regular(path, limit=limit), "rb") as stream:
        return os.fstat(stream.fileno())


def open_regular(path: Path, *, limit: int, error: Refusal = DataError) -> int:
    """Open a regular file for reading; returns a descriptor, which the caller closes. Errors as for `read_file`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
    except ValueError:  # NUL in a name
        raise MissingInputError(f"{str(path)!r}: is not a file name. Check the path.") from None
    except OSError as refused:
        if refused.errno == errno.ENXIO:  # a socket
            raise error(f"{path}: {IRREGULAR}") from None
        if refused.errno == errno.ENOTDIR:
            raise MissingInputError(f"{path}: no such file; part of its path is a file. Check the path.") from None
        raise storage_error(refused, path) from None
    status = os.fstat(descriptor)
    faults = {
        "is a folder, a file was expected. Name a file in it.": stat.S_ISDIR(status.st_mode),
        IRREGULAR: not stat.S_ISREG(status.st_mode),
        _too_large(limit): status.st_size > limit,
    }
    for fault, found in faults.items():
        if found:
            os.close(descriptor)
            raise error(f"{path}: {fault}")
    return descriptor


def _too_large(limit: int) -> str:
    return f"is over {limit >> 20:,} MiB, too large for such a file. Check the path."


def lines(text: bytes | IO[bytes], where: object, *, ends: bool = False) -> Iterator[tuple[int, str]]:
    r"""Numbered lines of UTF-8 text, split at "\n" only: U+2028, U+0085 and the like are ordinary characters.

    Args:
        text: all of it, or a file opened for reading bytes.
        where: name of the text in messages.
        ends: keep the line ends. Otherwise lines lose "\n" and a "\r" before it. The byte order mark is always removed.

    Raises:
        DataError: another kind of file, a line of more than `MOST_LINE` bytes, NUL, or not UTF-8; says the line.
            OSError: from reading.
    """
    stream = io.BytesIO(text) if isinstance(text, bytes) else text
    for number in itertools.count(1):
        if not (raw := stream.readline(MOST_LINE + 1)):
            return
        if number == 1:
            if (kind := kind_of(raw[:HEAD])) and not kind.is_text:
                raise DataError(kind.refusal(str(where)))
            raw = raw.removeprefix(BOM)
        if len(raw) > MOST_LINE:
            raise DataError(f"{where}:{number}: a line of more than {MOST_LINE >> 20} MiB. Expected lines of text.")
        if b"\0" in raw:
            found = f"NUL at byte {raw.index(0) + 1} of the line: UTF-16, or not text at all"
            raise DataError(f"{where}:{number}: {found}. Save it as UTF-8 text.")
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            found = f"not UTF-8 at byte {error.start + 1} of the line (0x{raw[error.start]:02x})"
            raise DataError(f"{where}:{number}: {found}. {not_utf8(str(where))}") from None
        yield number, line if ends else line.removesuffix("\n").removesuffix("\r")


def not_utf8(path: str) -> str:
    """Remedy for a file with a line that is not UTF-8."""
    return unpack_first(path) or OTHER.advice(path)


def half_character(text: str) -> int | None:
    r"""Index of the first half of a surrogate pair, which UTF-8 cannot hold (JSON's "\ud800"); None in sound text."""
    if text.isascii():  # known at no cost
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def encodable(text: str, where: str) -> str:
    """Return a text. Raises DataError if UTF-8 cannot hold it."""
    if (at := half_character(text)) is not None:
        raise DataError(f"{where} holds half of a surrogate pair at character {at + 1:,}. Repair the text.")
    return text


def here(path: str, flags: int) -> int:
    """An opener for `open`: a file that is written in its folder, and not where a link in a folder of somebody's leads;
    a pipe is an error.
    """
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)


class NotJson(ValueError):
    """Why a document is not JSON, in words that follow "is"."""


def json_value(document: bytes | str, *, most: int = MOST_VALUES) -> Any:
    """The value of a JSON document, in UTF-8 with or without a byte order mark.

    Args:
        document: its bytes, or its text.
        most: values in it.

    Raises:
        NotJson: something else, nested too deeply, more than `most` values, or a number too long.
    """
    marks = ",[{" if isinstance(document, str) else (b",", b"[", b"{")  # about one a value; commas in texts count too
    if len(document) > most < sum(map(document.count, marks)):  # type: ignore[arg-type]
        raise NotJson(f"of more than {most:,} values")
    try:
        text = document if isinstance(document, str) else document.removeprefix(BOM).decode()
        return json.loads(text.removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start:,}") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"not valid JSON ({error})") from None
    except RecursionError:
        raise NotJson("not valid JSON (nested too deeply)") from None
    except ValueError:  # what int() takes has a limit
        raise NotJson("not valid JSON (a number of thousands of digits)") from None


def parse_json(
    document: bytes | str, *, where: str, remedy: str, error: Refusal = DataError, most: int = MOST_VALUES
) -> Any:
    """`json_value` with an error that begins with `where` (a file, or file:line) and ends with `remedy`, a sentence or
    two.
    """
    try:
        return json_value(document, most=most)
    except NotJson as bad:
        raise error(f"{where}: is {bad}. {remedy}") from None


def json_object(document: bytes | str, *, where: str, remedy: str, error: Refusal = DataError) -> dict[str, Any]:
    """`parse_json` of a document that has to hold an object."""
    value = parse_json(document, where=where, remedy=remedy, error=error)
    if not isinstance(value, dict):
        raise error(f"{where}: is {short(value)}, expected a JSON object. {remedy}")
    return value


def short(value: object) -> str:
    """A value in at most 60 characters, for a message: it may be a megabyte, or nested to the brim."""
    try:
        words = repr(value)
    except (RecursionError, ValueError):  # too deep; a number of thousands of digits
        return f"a {type(value).__name__}"
    return words if len(words) <= 60 else words[:57] + "..."


def refuse_columns(given: object, *, where: str, error: type[ElectraError] = DataError) -> None:
    """Refuse one text where several are expected, a table, whose items are the names of its columns, and what has no
    items.
    """
    if isinstance(given, str):
        raise error(f"{where}: expected a list of texts, found one text. Put it in brackets.")
    if not hasattr(given, "__iter__") and not hasattr(given, "__getitem__"):
        raise error(f"{where}: is {short(given)}. Give a list of texts.")
    if isinstance(given, Mapping) or hasattr(given, "columns"):
        splits = isinstance(given, Mapping) and any(hasattr(one, "column_names") for one in given.values())
        texts = 'splits["train"]["text"]' if splits else 'df["text"]'
        raise error(f"{where}: is a {type(given).__name__}. Give its texts, for example {texts}.")
