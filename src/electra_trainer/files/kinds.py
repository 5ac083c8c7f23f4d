"""Recognise files that are not UTF-8 text by how they begin: what they are, and what turns them into text.

Knowledge about other formats is here and nowhere else. A remedy has a command between backquotes, and names the file or
folder that it makes; a test types each of them and reads what came out. Tools that Python or a Unix brings are
preferred.
"""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from electra_trainer.errors import install

HEAD = 1 << 16
"""Bytes that are looked at: the first of the file, after decompression."""
UNPACKERS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
"""Endings of compressed files, and the tool of each."""
IN_PYTHON = (
    "give its texts to `electra_trainer.prepare(documents=...)` in Python, or write them to a .txt or .jsonl file"
)
_PATTERN = 10
"""Fewest lines that show a pattern."""
_CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b")) + b"\x7f"
_ENDINGS = re.compile(r"(\.tar|\.warc)?(\.\w{1,8})?(\.(gz|bz2|xz|zst))?$")


@dataclass(frozen=True)
class Kind:
    """A format that is not lines of text."""

    what: str
    """Words that follow "is"."""
    remedy: str
    """Sentences. {file} is replaced by the file's name, {base} by one without its ending, {ending} by that and {packed}
    by that of a compressed file; the names are quoted for a shell."""
    is_text: bool = False
    """It is made of characters, so that a file of another format may begin like it."""
    also_packed: bool = False
    """The remedy is for compressed files, too; others are unpacked first."""

    @property
    def _first_unpack(self) -> bool:
        return "{file}" in self.remedy and not self.also_packed

    def refusal(self, path: Path | str) -> str:
        """What is wrong with a file of this kind, and what to do."""
        packed = ", compressed" if Path(path).suffix in UNPACKERS and self._first_unpack else ""
        return f"{path}: is {self.what}{packed}. {self.advice(path)}"

    def advice(self, path: Path | str) -> str:
        """What to do with a file of this kind."""
        name = str(path)
        packed = Path(name).suffix if Path(name).suffix in UNPACKERS else ""
        inside = name.removesuffix(packed)
        if packed and self._first_unpack:
            tool = f"{UNPACKERS[packed]} -dk {shlex.quote(name)}"
            return f"Unpack it first: `{tool}`, and name {shlex.quote(inside)} instead."
        base = inside[: _ENDINGS.search(inside).start()] or inside  # type: ignore[union-attr]
        texts = {"{packed}": packed, "{ending}": Path(inside).suffix or ".txt"}
        remedy = re.sub(r"\{packed\}|\{ending\}", lambda found: texts[found.group()], self.remedy)
        while any(Path(base + made).exists() for made in re.findall(r"\{base\}((?:\.\w+)*)", remedy)):
            base += "-new"
        return remedy.replace("{base}", shlex.quote(base)).replace("{file}", shlex.quote(name))


def _into(command: str, made: str = "{base}.txt", *, first: str = "Convert it") -> str:
    return f"{first}: `{command}`, and name {made} instead."


def _python(code: str) -> str:
    return f'python -c "import sys; {code}" {{file}}'


def recode(encoding: str) -> str:
    """A command that makes UTF-8 of {file}."""
    return f"iconv -f {encoding} -t UTF-8 {{file}} > {{base}}.utf8{{ending}}"


def _encoded(encoding: str) -> Kind:
    return Kind(encoding, _into(recode(encoding), "{base}.utf8{ending}", first="Save it as UTF-8 text"))


def _compressed(tool: str) -> Kind:
    """A compressed file that is not named so, or one within another."""
    command = f"{tool} -dc < {{file}} > {{base}}.{tool}.txt"
    return Kind(f"compressed with {tool}, but not named so", _into(command, f"{{base}}.{tool}.txt", first="Unpack it"))


def _folder(command: str, *, first: str = "Unpack it") -> str:
    return _into(command, "the folder {base}", first=first)


def _table(module: str) -> str:
    code = f"import pyarrow.{module} as p, pyarrow.csv as c; c.write_csv(p.read_table(sys.argv[1]), sys.argv[2])"
    remedy = _into(f"{_python(code)} {{base}}.csv", "{base}.csv", first="Save it as UTF-8 text")
    return f"{remedy} It needs pyarrow; {install('hub')}"


_NO_TEXT = "It holds no text that could be read; leave it out."
_PROGRAM = Kind("a program or a library", _NO_TEXT)
_MEDIA = Kind("a picture, a sound or a film", _NO_TEXT)
_ARRAYS = Kind("a file of arrays or weights", f"Load it with the program that wrote it, and {IN_PYTHON}.")
_PICKLE = Kind(
    "a Python pickle, which can run code and is never loaded here", f"If you trust it, load it, and {IN_PYTHON}."
)
_RECORDS = Kind(
    "a file of records in a format that is not read here", f"Read it with its own program, and {IN_PYTHON}."
)
_DOCUMENT = Kind("a document of a word processor or a book", _into("pandoc -t plain --wrap=none {file} -o {base}.txt"))
_OLD_OFFICE = Kind(
    "an Excel file or another one of Microsoft Office before 2007",
    _folder("soffice --headless --convert-to txt:Text:UTF8 --outdir {base} {file}", first="Save it as UTF-8 text")
    + " A table: --convert-to csv.",
)
_SHEET = Kind(
    "a spreadsheet",
    _into(
        "soffice --headless --convert-to 'csv:Text - txt - csv (StarCalc):44,34,76' --outdir {base} {file}",
        "{base}/*.csv",
        first="Save it as CSV in UTF-8, in its program or so",
    ),
)
_ZIP = Kind("a zip or an Excel file", _folder("python -m zipfile -e {file} {base}", first="Save it as UTF-8 text"))
_TAR = Kind("a tar archive", _folder("mkdir {base} && tar -xf {file} -C {base}"), also_packed=True)
_ORC = _python("import pyarrow.orc as o, pyarrow.parquet as p; p.write_table(o.read_table(sys.argv[1]), sys.argv[2])")
_SQL = "sqlite3 -header -csv {file} 'SELECT text FROM TABLE' > {base}.csv"
_SQLITE = Kind("an SQLite data base", _into(_SQL, "{base}.csv", first="With the names of your column and table, type"))
_PDF = Kind("a PDF", _into("pdftotext -enc UTF-8 {file} {base}.txt"))
_POINTER = Kind("a pointer to a file in Git LFS, not that file", "Fetch it: `git lfs pull`, in its repository.")
PARQUET = Kind("a Parquet file", _table("parquet"))
ARROW = Kind("an Arrow file", _table("feather"))
_STREAM_TABLE = (
    "import pyarrow as p, pyarrow.csv as c; c.write_csv(p.ipc.open_stream(sys.argv[1]).read_all(), sys.argv[2])"
)
ARROW_STREAM = Kind(
    "an Arrow file", _into(_python(_STREAM_TABLE) + " {base}.csv", "{base}.csv", first="Save it as UTF-8 text")
)
WARC = Kind("a WARC file", "Take the WET file of the same crawl, which holds text.")

_BYTES: dict[bytes, Kind] = {
    b"\xff\xfe\0\0": _encoded("UTF-32"), b"\0\0\xfe\xff": _encoded("UTF-32"), b"\xff\xfe": _encoded("UTF-16"), b"\xfe\xff": _encoded("UTF-16"),
    b"\x1f\x8b": _compressed("gzip"), b"\x1f\x9d": _compressed("gzip"), b"\xfd7zXZ\0": _compressed("xz"), b"\x5d\0\0": _compressed("xz"),
    b"\x28\xb5\x2f\xfd": _compressed("zstd"), b"\x04\x22\x4d\x18": _compressed("lz4"),
    b"7z\xbc\xaf\x27\x1c": Kind("a 7z archive", _folder("7z x {file} -o{base}")),
    b"Rar!\x1a\x07": Kind("a rar archive", _folder("unrar x {file} {base}/")),
    b"PAR1": PARQUET, b"ARROW1\0\0": ARROW, b"Obj\x01": _RECORDS, b"SEQ\x06": _RECORDS, b"\x89HDF\r\n\x1a\n": _ARRAYS, b"CDF\x01": _ARRAYS,
    b"\x93NUMPY": _ARRAYS, b"SQLite format 3\0": _SQLITE, b"\xd0\xcf\x11\xe0": _OLD_OFFICE, b"%PDF-": _PDF, b"{\\rtf": _DOCUMENT,
    b"%!PS": Kind("PostScript", _into("ps2ascii {file} {base}.txt")), b"AT&TFORM": Kind("DjVu", _into("djvutxt {file} "
                                                                                                      "{base}.txt")),
    b"\x7fELF": _PROGRAM, b"MZ\x90": _PROGRAM, b"\xca\xfe\xba\xbe": _PROGRAM, b"\xcf\xfa\xed\xfe": _PROGRAM, b"\0asm": _PROGRAM,
    b"\x89PNG": _MEDIA, b"\xff\xd8\xff": _MEDIA, b"II*\0": _MEDIA, b"MM\0*": _MEDIA, b"\x1aE\xdf\xa3": _MEDIA, b"WARC/": WARC,
    b"version https://git-lfs.github.com/spec/": _POINTER,
}  # fmt: skip
"""How files begin."""
_AMONG_BYTES: dict[bytes, Kind] = {
    b"PARE": _RECORDS,
    b"FEA1": _RECORDS,
    b"GGUF": _ARRAYS,
    b"ORC": Kind("an ORC file", _into(_ORC + " {base}.parquet", "{base}.parquet")),
    b"GIF8": _MEDIA,
    b"RIFF": _MEDIA,
    b"OggS": _MEDIA,
    b"ID3": _MEDIA,
    b"fLaC": _MEDIA,
}
"""How files begin that hold NUL soon: a text may begin with these letters, too."""

_HTML = Kind("an HTML page", _into("trafilatura < {file} > {base}.txt", first="Extract its text"), is_text=True)
_WIKI = Kind(
    "a dump of a wiki in XML",
    "Name wikimedia/wikipedia:20231101.en (or the code of another language) instead, the same extracted. Or extract "
    "it: "
    "`python -m wikiextractor.WikiExtractor --json -o - {file} > {base}.jsonl`, and name {base}.jsonl instead.",
    is_text=True,
    also_packed=True,
)
_TEXT_OF_XML = (
    "import xml.etree.ElementTree as t; print(*(s.strip() for s in "
    "t.parse(sys.argv[1]).getroot().itertext()), sep='\\n')"
)
_XML = Kind("XML", _into(_python(_TEXT_OF_XML) + " > {base}.txt", first="Take its text"), is_text=True)
_TAGGED = Kind(
    "an output of WikiExtractor with tags", _into("sed -E 's/^<\\/?doc( .*)?>$//' {file} > {base}.txt"), is_text=True
)
_TIMES = Kind("subtitles", _into("grep -vE '^[0-9]*.?$|-->|^WEBVTT' {file} > {base}.txt"), is_text=True)
_TREEBANK = Kind("a treebank (CoNLL-U)", _into("sed -n 's/^# text = //p' {file} > {base}.txt"), is_text=True)
_ARC = Kind("an ARC file of web pages", "Take the WET file of a crawl, which holds text.", is_text=True)
_NOTEBOOK = Kind("a notebook", _into("jupyter nbconvert --to markdown {file} --output {base}.md", "{base}.md"))


def _named(what: str, ending: str, more: str = "") -> Kind:
    remedy = _into(f"mv {{file}} {{base}}{ending}{{packed}}", f"{{base}}{ending}{{packed}}", first="Name it so")
    return Kind(what, remedy + more, is_text=True, also_packed=True)


ARRAY, _JSON, _JSON_LINES = _named("a JSON array", ".json"), _named("JSON", ".json"), _named("JSON lines", ".jsonl")
_TABS = _named(
    "a table with tabs between its columns",
    ".tsv",
    " Its first line has the columns' names. If the tabs are part of a text: `tr '\\t' ' ' < {file} > {base}.txt`.",
)
_PATTERNS: dict[re.Pattern[bytes], Kind] = {
    re.compile(rb"(?>\s*(?:<!--(?>.*?-->)\s*)*)" + pattern, re.DOTALL): kind
    for pattern, kind in {
        rb"(?i:(?:<\?xml[^>]*>\s*)?(?:<!doctype\s+html|<html|<head\b|<body\b))": _HTML,
        rb"(?:<\?xml[^>]*>\s*)?<mediawiki": _WIKI,
        rb"<\?xml|<!DOCTYPE\s|<TEI\b|<rss\b": _XML,
        rb"<doc id=": _TAGGED,
        rb"\[\s*\{\s*\"": ARRAY,
        rb"WEBVTT\b|\d+\r?\n\d\d:\d\d:\d\d[,.]\d{3} --> ": _TIMES,
        rb"(?:#[^\n]*\n)*+\d[\d-]*\t[^\t\n]+\t[^\t\n]+\t[A-Z_]+\t": _TREEBANK,
        rb"filedesc://": _ARC,
    }.items()
}
_NAMES = {
    ".html": _HTML,
    ".htm": _HTML,
    ".xhtml": _HTML,
    ".xml": _XML,
    ".ipynb": _NOTEBOOK,
    ".xlsx": _SHEET,
    ".ods": _SHEET,
}
"""Endings of names, where the beginning of the file does not say it."""
_BINARY = Kind(
    "not text: it holds control characters all over", f"Read it with the program that wrote it, and {IN_PYTHON}."
)
OTHER = Kind(
    "not UTF-8 in many lines",
    _into(recode("CP1252"), "{base}.utf8{ending}", first="Save it as UTF-8 text")
    + " CP1252 is for the languages of Western Europe; others: CP1250, CP1251, KOI8-R, GB18030, BIG5, SHIFT_JIS, "
    "EUC-KR.",
)


def rows_in(field: str, path: Path | str) -> str:
    """How to take the list out of a field of a JSON file."""
    rows = _python(f"import json; [print(json.dumps(row)) for row in json.load(open(sys.argv[1]))[{field!r}]]")
    return Kind("", _into(rows + " > {base}.jsonl", "{base}.jsonl", first="Take its rows out")).advice(path)


def kind_of(head: bytes, name: str = "") -> Kind | None:
    """What a file that begins so is; None if it may be lines of UTF-8 text, JSON lines or a table.

    Args:
        head: its first bytes, decompressed; `HEAD` of them show all kinds.
        name: of the file, for what bytes do not show.
    """
    kind = next((kind for magic, kind in _BYTES.items() if head.startswith(magic)), None)
    if kind is not None:
        return kind
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip(head, name)
    if b"\0" in head and (kind := _with_nul(head)):
        return kind
    if re.match(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", head):
        return _compressed("bzip2")
    if re.match(rb"\x80[\x02-\x05]|[(\]}]?[(ld]p0\n|ccopy_reg\n", head):
        return _PICKLE
    if re.search(rb"\x1b\$[@AB]", head):  # seven bits, so that it looks like UTF-8
        return _encoded("ISO-2022-JP")
    text = head.removeprefix(b"\xef\xbb\xbf")
    kind = next((kind for pattern, kind in _PATTERNS.items() if pattern.match(text)), None)
    return kind or _NAMES.get(Path(name.lower()).suffix)


def lines_kind(head: bytes, *, is_whole: bool) -> Kind | None:
    """What lines of text are that are not prose: JSON, or columns with tabs between them."""
    lines = [line for line in head.split(b"\n")[: None if is_whole else -1] if line.strip()]
    if re.match(rb"\s*\{\s*\"(?:[^\"\\\n]|\\.){0,200}\"\s*:", head.removeprefix(b"\xef\xbb\xbf")):
        return _json_kind(head.decode("utf-8-sig", "replace"), is_whole=is_whole)
    tabs = {line.count(b"\t") for line in lines}
    return _TABS if len(lines) >= _PATTERN and len(tabs) == 1 and tabs != {0} else None


def _json_kind(text: str, *, is_whole: bool) -> Kind | None:
    text = text.lstrip()
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):  # longer than the head, or not JSON
        return _JSON_LINES if not is_whole else None
    rest = text[end:].lstrip()
    if rest and not rest.startswith("{"):
        return None
    return _JSON if "\n" in text[:end] else _JSON_LINES


def unlike_text(head: bytes) -> Kind | None:
    """Why neither leaving out nor repairing bad lines makes text of a file: it is binary, or most lines have another
    encoding.
    """
    if len(head) >= 32 and len(head.translate(None, _CONTROL)) < 0.9 * len(head):
        return _BINARY
    lines = [line for line in head.split(b"\n")[:-1] if line.strip()]
    bad = sum(b"\xef\xbf\xbd" not in line and "\ufffd" in line.decode("utf-8", "replace") for line in lines)
    return OTHER if len(lines) >= _PATTERN and bad > 0.2 * len(lines) else None


def _with_nul(head: bytes) -> Kind | None:
    """What a file is that is binary."""
    kinds = {**_AMONG_BYTES, head[:4] + b"ftyp": _MEDIA}
    kind = next((kind for magic, kind in kinds.items() if head.startswith(magic)), None)
    kind = kind or (_DOCUMENT if head[60:68] == b"BOOKMOBI" else None)
    return kind or next((kind for look in _LOOKS if (kind := look(head)) is not None), None)


def _zip(head: bytes, name: str) -> Kind:
    """What a zip holds, from the names of its first files."""
    holds = {
        _SHEET: (b"xl/", b"opendocument.spreadsheet"),
        _DOCUMENT: (b"word/", b"opendocument.text", b"epub+zip"),
        _ARRAYS: (b".npy", b"data.pkl"),
    }
    return next(
        (kind for kind, names in holds.items() if any(one in head for one in names)),
        _NAMES.get(Path(name.lower()).suffix, _ZIP),
    )


def _archive(head: bytes) -> Kind | None:
    """A tar, by the sum of its first header, which every kind of tar has."""
    header = head[:512]
    written = header[148:156].strip(b"\0 ")
    if len(header) < 512 or not re.fullmatch(rb"[0-7]{1,7}", written):
        return None
    return _TAR if int(written, 8) == sum(header[:148]) + 8 * 32 + sum(header[156:]) else None


def _stream(head: bytes) -> Kind | None:
    is_stream = head.startswith(b"\xff\xff\xff\xff") and 0 < int.from_bytes(head[4:8], "little") < 1 << 28
    return ARROW_STREAM if is_stream else None


def _safetensors(head: bytes) -> Kind | None:
    return _ARRAYS if head[8:10] == b'{"' else None


def _unmarked_utf16(head: bytes) -> Kind | None:
    """UTF-16 without its mark: every other byte is often 0, and the others are not."""
    sample = head[:4096]
    odd, even = sample[1::2].count(0), sample[::2].count(0)
    if len(sample) < 8 or max(odd, even) < 0.2 * len(sample) or min(odd, even) > 0.05 * max(odd, even):
        return None
    return _encoded("UTF-16LE" if odd > even else "UTF-16BE")


_LOOKS = (_archive, _stream, _safetensors, _unmarked_utf16)
