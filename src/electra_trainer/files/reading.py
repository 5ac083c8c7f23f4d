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
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
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


def _encoded(encoding: str, what: str = "", more: str = "") -> Kind:
    command = f"iconv -f {encoding} -t UTF-8 {{file}} > {{new}}{{ending}}"
    return Kind(what or encoding, _typed("Save it as UTF-8 text", command) + more)


def _compressed(tool: str) -> Kind:
    unpacked = _typed("Unpack it", f"{tool} -dc < {{file}} > {{new}}{{ending}}")
    return Kind(f"compressed with {tool}, but not named so", unpacked)


def _archive(what: str, command: str) -> Kind:
    return Kind(what, _typed("Unpack it", command, "the folder {new}"))


def _document(what: str, *, is_text: bool = True) -> Kind:
    tools = "pandoc for documents, books and notebooks, pdftotext for PDF, trafilatura for HTML, soffice for tables"
    return Kind(what, f"Extract its text into a .txt, .csv or .jsonl file ({tools}), and name that.", is_text=is_text)


def _records(what: str) -> Kind:
    python = "give them to `electra_trainer.prepare(documents=...)` in Python"
    return Kind(what, f"Write the texts of {{file}} to a .csv or .jsonl file with its own program, or {python}.")


def _renamed(what: str, ending: str, more: str = "") -> Kind:
    return Kind(what, _typed("Name it so", f"mv {{file}} {{new}}{ending}", f"{{new}}{ending}") + more, is_text=True)


_ROWS = (
    "import json, sys; found = json.load(open(sys.argv[1], encoding='utf-8-sig')); rows = found if isinstance(found, "
    "list) else next(value for value in found.values() if isinstance(value, list)); [print(json.dumps(row)) for row in "
    "rows]"
)
_AN_OBJECT_A_LINE = _typed("Write an object a line", f'python -c "{_ROWS}" {{file}} > {{new}}.jsonl', "{new}.jsonl")
_JSON = Kind("JSON over several lines, or in one array", _AN_OBJECT_A_LINE, is_text=True)
_JSON_LINES = _renamed("JSON lines", ".jsonl")
_TABS = _renamed("a table with tabs between its columns", ".tsv", " Its first line has the columns' names.")
PARQUET, ARROW, ARROW_STREAM = _records("a Parquet file"), _records("an Arrow file"), _records("an Arrow file")
WARC = Kind("a WARC file of web pages, not of their text", "Take the WET file of the same crawl, which holds text.")
_REPAIR = (
    "import codecs, sys; codecs.register_error('old', lambda bad: (bad.object[bad.start:bad.end].decode('cp1252', "
    "'replace'), bad.end)); [sys.stdout.buffer.write(line.decode('utf-8', 'old').encode()) for line in "
    "open(sys.argv[1], 'rb')]"
)
_OTHERS = " CP1252 is for Western Europe; others: CP1250, CP1251, KOI8-R, GB18030, BIG5, SHIFT_JIS, EUC-KR."
OTHER = _encoded("CP1252", "not UTF-8 in many lines", _OTHERS)
_REPAIRED = _typed("Convert only the bytes that are not", f'python -c "{_REPAIR}" {{file}} > {{new}}{{ending}}')
MIXED = Kind("UTF-8 in some lines and another encoding in many others", _REPAIRED + _OTHERS)
_NO_TEXT = "It holds no text; leave it out."
_OFFICE = "a document or table of an office program, or a book"
_EXTRACTED = "Name wikimedia/wikipedia:20231101.en (or the code of another language) instead, the same extracted."
_NUL = rb"(?=.*\0)"
"""After what a text may begin with too."""
_STARTS: dict[bytes, Kind] = {
    rb"\xff\xfe\0\0|\0\0\xfe\xff": _encoded("UTF-32"),
    rb"\xff\xfe|\xfe\xff": _encoded("UTF-16"),
    rb"\x1f[\x8b\x9d]": _compressed("gzip"),
    rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)": _compressed("bzip2"),
    rb"\xfd7zXZ\0|\x5d\0\0": _compressed("xz"),
    rb"\x28\xb5\x2f\xfd": _compressed("zstd"),
    rb"\x04\x22\x4d\x18": _compressed("lz4"),
    rb"7z\xbc\xaf\x27\x1c|Rar!\x1a\x07": _archive("a 7z or rar archive", "7z x {file} -o{new}"),
    rb"PK\x03\x04.*?(?:xl/|word/|ppt/|opendocument\.|epub\+zip)|.{60}BOOKMOBI": _document(_OFFICE, is_text=False),
    rb"\xd0\xcf\x11\xe0": _document("a file of Microsoft Office before 2007", is_text=False),
    rb"PK\x03\x04.*?(?:\.npy|data\.pkl)|\x93NUMPY|\x89HDF\r\n|CDF\x01|GGUF" + _NUL + rb'|.{7}\0\{"': _records(
        "a file of arrays or weights"
    ),
    rb"PK(?:\x03\x04|\x05\x06)": _archive("a zip or an Excel file", "python -m zipfile -e {file} {new}"),
    rb"PAR1": PARQUET,
    rb"ARROW1\0\0": ARROW,
    rb"\xff{4}...[\0-\x0f]": ARROW_STREAM,
    rb"WARC/": WARC,
    rb"Obj\x01|SEQ\x06|(?:ORC|PARE|FEA1)" + _NUL: _records("a file of records in a format that is not read here"),
    rb"SQLite format 3\0": _records("an SQLite data base"),
    rb"\x80[\2-\5]|[(\]}]?[(ld]p0\n|ccopy_reg\n": _records("a Python pickle, which can run code and is never loaded"),
    rb"%PDF-|%!PS|AT&TFORM|\{\\rtf": _document("a PDF, PostScript, DjVu or RTF document", is_text=False),
    rb"\x7fELF|MZ\x90|\xca\xfe\xba\xbe|\xcf\xfa\xed\xfe|\0asm": Kind("a program or a library", _NO_TEXT),
    rb"\x89PNG|\xff\xd8\xff|II\*\0|MM\0\*|\x1aE\xdf\xa3|(?:GIF8|RIFF|OggS|ID3|fLaC|.{4}ftyp)" + _NUL: Kind(
        "a picture, a sound or a film", _NO_TEXT
    ),
    rb"version https://git-lfs\.github\.com/spec/": Kind(
        "a pointer to a file in Git LFS, not that file", "Fetch it: `git lfs pull`, in its repository."
    ),
    rb".*?\x1b\$[@AB]": _encoded("ISO-2022-JP"),  # seven bits, so that it looks like UTF-8
}
_MARKUP: dict[bytes, Kind] = {
    rb"(?i:(?:<\?xml[^>]*>\s*)?(?:<!doctype\s+html|<html|<head\b|<body\b))": _document("an HTML page"),
    rb"(?:<\?xml[^>]*>\s*)?<mediawiki": Kind("a dump of a wiki in XML", _EXTRACTED, is_text=True),
    rb"<\?xml|<!DOCTYPE\s|<TEI\b|<rss\b": _document("XML"),
    rb"<doc id=": _document("an output of WikiExtractor with tags"),
    rb"\[\s*\{\s*\"": _JSON,
    rb"WEBVTT\b|\d+\r?\n\d\d:\d\d:\d\d[,.]\d{3} --> ": _document("subtitles"),
    rb"(?:#[^\n]*\n)*+\d[\d-]*\t[^\t\n]+\t[^\t\n]+\t[A-Z_]+\t": _document("a treebank (CoNLL-U)"),
    rb"filedesc://": WARC,
}
_PATTERNS = [(re.compile(pattern, re.DOTALL), kind) for pattern, kind in _STARTS.items()] + [
    (re.compile(rb"(?>\s*(?:<!--(?>.*?-->)\s*)*)" + pattern, re.DOTALL), kind) for pattern, kind in _MARKUP.items()
]
_NAMES = {
    **dict.fromkeys((".html", ".htm", ".xhtml"), _document("an HTML page")),
    **dict.fromkeys((".xlsx", ".ods"), _document(_OFFICE)),
    ".xml": _document("XML"),
    ".ipynb": _document("a notebook"),
}
"""Endings of names, where the beginning of the file does not say it."""


def kind_of(head: bytes, name: str = "") -> Kind | None:
    """Recognise a file by its beginning; None if it may be lines of UTF-8 text, JSON lines or a table.

    Args:
        head: its first bytes, decompressed; `HEAD` of them show all kinds.
        name: of the file, for what bytes do not show.
    """
    head = head.removeprefix(b"\xef\xbb\xbf")
    found = next((kind for pattern, kind in _PATTERNS if pattern.match(head)), None)
    return found or _archived(head) or _unmarked_utf16(head) or _NAMES.get(Path(name.lower()).suffix)


def unlike_text(head: bytes, *, is_whole: bool, is_json: bool = False) -> Kind | None:
    """Why the lines of a file are not prose: binary, mostly in another encoding, JSON, or columns between tabs.

    Args:
        head: its first bytes, decompressed.
        is_whole: they are all of it.
        is_json: it is named as JSON lines.
    """
    if len(head) >= 32 and len(head.translate(None, _CONTROL)) < 0.9 * len(head):
        return _records("not text: it holds control characters all over")
    lines = [line for line in re.split(rb"[\r\n]", head)[: None if is_whole else -1] if line.strip()]
    bad, wide = _beyond_ascii(lines)
    if len(lines) >= _PATTERN and bad > 0.2 * len(lines):
        return MIXED if wide > 0.05 * bad else OTHER  # by chance a few lines of another encoding are UTF-8 too
    if re.match(rb"\s*\{\s*\"(?:[^\"\\\n]|\\.){0,200}\"\s*:", head.removeprefix(b"\xef\xbb\xbf")):
        kind = _json_kind(head.decode("utf-8-sig", "replace").lstrip(), is_whole=is_whole)
        return None if is_json and kind is _JSON_LINES else kind
    tabs = {line.count(b"\t") for line in lines}
    return _TABS if not is_json and len(lines) >= _PATTERN and len(tabs) == 1 and tabs != {0} else None


def _beyond_ascii(lines: list[bytes]) -> tuple[int, int]:
    """Count the lines beyond ASCII that are not UTF-8, and those that are."""
    others = [line for line in lines if not line.isascii()]
    bad = sum(b"\xef\xbf\xbd" not in line and "\ufffd" in line.decode("utf-8", "replace") for line in others)
    return bad, len(others) - bad


def _json_kind(text: str, *, is_whole: bool) -> Kind | None:
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):  # longer than the head, or not JSON
        return None if is_whole else _JSON if "\n" in text else _JSON_LINES
    rest = text[end:].lstrip()
    if rest and not rest.startswith("{"):
        return None
    return _JSON if "\n" in text[:end] else _JSON_LINES


def _archived(head: bytes) -> Kind | None:
    """A tar, by the sum of its first header."""
    try:
        tarfile.TarInfo.frombuf(head[:512], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return None
    return _archive("a tar archive", "mkdir {new} && tar -xf {file} -C {new}")


def _unmarked_utf16(head: bytes) -> Kind | None:
    """UTF-16 without its mark: every other byte is often 0, and the others are not."""
    sample = head[:4096]
    odd, even = sample[1::2].count(0), sample[::2].count(0)
    if len(sample) < 8 or max(odd, even) < 0.2 * len(sample) or min(odd, even) > 0.05 * max(odd, even):
        return None
    return _encoded("UTF-16LE" if odd > even else "UTF-16BE")


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
    descriptor = open_regular(path, limit=limit, error=error)
    content = bytearray()
    try:  # a file may grow, and those of /proc say nothing of their size
        while len(content) <= limit and (part := os.read(descriptor, _CHUNK)):
            content += part
    except OSError as refused:
        raise storage_error(refused, path) from None
    finally:
        os.close(descriptor)
    if len(content) > limit:
        raise error(f"{path}: {_too_large(limit)}")
    return bytes(content)


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
    """Remedy for a file with a line that is not UTF-8, by the first `MOST_LINE` bytes of the file."""
    bad = wide = 0
    with suppress(OSError), Path(path).open("rb") as file:
        bad, wide = _beyond_ascii(re.split(rb"[\r\n]", file.read(MOST_LINE)))
    if not wide or unpack_first(path):
        return unpack_first(path) or OTHER.advice(path)
    count = f"{max(bad, 1):,} {'lines are' if bad > 1 else 'line is'} not UTF-8"
    more = f" in the first {MOST_LINE >> 20} MiB" * (Path(path).stat().st_size > MOST_LINE)
    return f"{count}{more}, and others hold UTF-8 beyond ASCII, which conversion would damage. {MIXED.advice(path)}"


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
    """Why a document is not JSON, in words that follow "is", and its line in the document, from 1."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(why)
        self.line = line


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
        raise NotJson(f"not UTF-8 at byte {error.start:,}", error.object.count(b"\n", 0, error.start) + 1) from None
    except json.JSONDecodeError as error:
        raise NotJson(f"not valid JSON ({error.msg}, column {error.colno})", error.lineno) from None
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
        has_line = bad.line is None or where.rpartition(":")[2].isdecimal()
        raise error(f"{where if has_line else f'{where}:{bad.line}'}: is {bad}. {remedy}") from None


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
    """Refuse a table where texts are expected, since its items are the names of its columns, and what has no items."""
    if not hasattr(given, "__iter__") and not hasattr(given, "__getitem__"):
        raise error(f"{where}: is {short(given)}. Give a list of texts.")
    if isinstance(given, Mapping) or hasattr(given, "columns"):
        splits = isinstance(given, Mapping) and any(hasattr(one, "column_names") for one in given.values())
        texts = 'splits["train"]["text"]' if splits else 'df["text"]'
        raise error(f"{where}: is a {type(given).__name__}. Give its texts, for example {texts}.")
