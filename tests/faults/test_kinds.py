"""Inputs that people give as text (files/formats.py): each kind of file is read right, or refused with a remedy that works when it is typed; none is taken for prose."""

from __future__ import annotations

import bz2
import csv
import gzip
import importlib.util
import io
import json
import lzma
import os
import pickle
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from electra_trainer.data.corpus import CorpusReport, Reading, documents
from electra_trainer.errors import DataError
from electra_trainer.files import reading

TEXTS = [
    "The first document has one line.",
    'The second one has two.\nThis is the other, with a comma, and "quotes".',
    "Das dritte: naïve Äpfel im Café, Straße um Straße.",
]
ROWS = [{"id": number, "text": text} for number, text in enumerate(TEXTS)]
PROSE = "\n\n".join(TEXTS) + "\n"
LINES = [line for text in TEXTS for line in text.split("\n")]
HAS_EXTRA = all(importlib.util.find_spec(name) for name in ("pyarrow", "warcio"))
needs_arrow = pytest.mark.skipif(not HAS_EXTRA, reason="needs the extra [hub]: pyarrow, warcio")


def json_lines(rows: list[dict[str, Any]] = ROWS) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(separator: str = ",") -> str:
    out = io.StringIO()
    rows = [
        {"id": row["id"], "text": row["text"].replace("\n", " ") if separator == "\t" else row["text"]} for row in ROWS
    ]
    writer = csv.DictWriter(out, ["id", "text"], delimiter=separator, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def wet(kind: str = "conversion") -> bytes:
    def record(kind: str, body: bytes) -> bytes:
        head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: http://example.org/\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body + b"\r\n\r\n"

    info = record("warcinfo", b"Software-Info: made up\r\nFormat: WARC\r\n")
    return info + b"".join(record(kind, text.encode()) for text in TEXTS)


def zipped(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), data)
    return out.getvalue()


def tarred(mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        info = tarfile.TarInfo("corpus/a.txt")
        info.size = len(PROSE.encode())
        archive.addfile(info, io.BytesIO(PROSE.encode()))
    return out.getvalue()


def arrow_file(write: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        import pyarrow as pa
        import pyarrow.feather
        import pyarrow.orc
        import pyarrow.parquet

        rows = pa.Table.from_pylist(ROWS)
        if write == "stream":
            with pa.ipc.new_stream(path, rows.schema) as out:
                out.write_table(rows)
        elif write == "feather":
            pa.feather.write_feather(rows, str(path))
        elif write == "orc":
            pa.orc.write_table(rows, str(path))
        else:
            pa.parquet.write_table(rows, str(path), compression=write, row_group_size=2)

    return make


def zstd(*parts: str, codec: str = "zstd") -> Callable[[Path], None]:
    """A file of that many frames."""

    def make(path: Path) -> None:
        import pyarrow as pa

        path.write_bytes(b"")
        for part in parts:
            with path.open("ab") as file, pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), codec) as stream:
                stream.write(part.encode())

    return make


WIKI = "<mediawiki xml:lang=\"de\">\n<page><title>A</title><text>'''A''' ist ein [[Buchstabe]].</text></page>\n</mediawiki>\n"
CONLLU = "# sent_id = 1\n# text = {0}\n1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_\n\n"
TREEBANK = "".join(CONLLU.format(line) for line in LINES)
SUBTITLES = "".join(f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\n{line}\n\n" for n, line in enumerate(LINES, 1))
NESTED = json.dumps({"version": 1, "data": ROWS}, indent=1)
HTML = "<!-- saved -->\n<!DOCTYPE html>\n<html><body><p>" + "</p><p>".join(LINES) + "</p></body></html>"
TREE = '<?xml version="1.0"?>\n<TEI>' + "".join(f"<p>{line}</p>" for line in LINES) + "</TEI>"
TAGGED = "".join(f'<doc id="{n}" url="u" title="t">\n{text}\n</doc>\n' for n, text in enumerate(TEXTS))

READ: dict[str, tuple[str, bytes | Callable[[Path], None]]] = {
    "text": ("a.txt", PROSE.encode()),
    "text without an ending": ("corpus", PROSE.encode()),
    "Markdown": ("a.md", PROSE.encode()),
    "text with a byte order mark": ("a.txt", b"\xef\xbb\xbf" + PROSE.encode()),
    "text of Windows": ("a.txt", PROSE.replace("\n", "\r\n").encode()),
    "text .gz": ("a.txt.gz", gzip.compress(PROSE.encode())),
    "text .bz2": ("a.txt.bz2", bz2.compress(PROSE.encode())),
    "text .xz": ("a.txt.xz", lzma.compress(PROSE.encode())),
    "JSON lines": ("a.jsonl", json_lines().encode()),
    "JSON lines .ndjson": ("a.ndjson", json_lines().encode()),
    "JSON lines .json": ("a.json", json_lines().encode()),
    "JSON lines .gz": ("a.jsonl.gz", gzip.compress(json_lines().encode())),
    "CSV": ("a.csv", table().encode()),
    "CSV with a byte order mark": ("a.csv", b"\xef\xbb\xbf" + table().encode()),
    "CSV with semicolons": ("a.csv", table(";").encode()),
    "CSV .gz": ("a.csv.gz", gzip.compress(table().encode())),
    "TSV": ("a.tsv", table("\t").encode()),
}  # fmt: skip
READ_BY_EXTRA: dict[str, tuple[str, bytes | Callable[[Path], None]]] = {
    "text .zst": ("a.txt.zst", zstd(PROSE)),
    "text .zst of two frames": ("a.txt.zst", zstd(PROSE[:60], PROSE[60:])),
    "JSON lines .zst": ("a.jsonl.zst", zstd(json_lines())),
    "CSV .zst": ("a.csv.zst", zstd(table())),
    "Parquet": ("a.parquet", arrow_file("zstd")),
    "Parquet .snappy": ("a.parquet", arrow_file("snappy")),
    "Arrow": ("a.arrow", arrow_file("stream")),
    "Feather": ("a.feather", arrow_file("feather")),
    "WET": ("a.warc.wet", wet()),
    "WET .gz, a member a record": ("a.warc.wet.gz", b"".join(gzip.compress(b"WARC/1.0" + part) for part in wet().split(b"WARC/1.0")[1:])),
}  # fmt: skip
REFUSED: dict[str, tuple[str, bytes | Callable[[Path], None], str]] = {
    # name of the case: file, its content, words of the message
    "JSON array": ("a.json", json.dumps(ROWS).encode(), "JSON over several lines, or in one array"),
    "JSON array with an indent": ("a.json", b"\xef\xbb\xbf" + json.dumps(ROWS, indent=2).encode(), "JSON over several lines"),
    "JSON array .jsonl": ("a.jsonl", json.dumps(ROWS).encode(), "JSON over several lines, or in one array"),
    "JSON array .gz": ("a.json.gz", gzip.compress(json.dumps(ROWS).encode()), "JSON over several lines, or in one array"),
    "tar": ("a.tar", tarred(), "is an archive (zip, 7z, rar or tar)"),
    "tar.gz": ("a.tar.gz", tarred("w:gz"), "is an archive (zip, 7z, rar or tar)"),
    "tgz": ("a.tgz", tarred("w:gz"), "compressed, and its name does not say how"),
    "zip": ("a.zip", zipped(corpus__a_txt=PROSE.encode()), "is an archive (zip, 7z, rar or tar)"),
    "gzip without the name": ("a.txt", gzip.compress(PROSE.encode()), "compressed, and its name does not say how"),
    "gzip twice": ("a.txt.gz", gzip.compress(gzip.compress(PROSE.encode())), "compressed, and its name does not say how"),
    "bzip2 without the name": ("a.txt", bz2.compress(PROSE.encode()), "compressed, and its name does not say how"),
    "xz without the name": ("a.txt", lzma.compress(PROSE.encode()), "compressed, and its name does not say how"),
    "lzma": ("a.txt", lzma.compress(PROSE.encode(), lzma.FORMAT_ALONE), "compressed, and its name does not say how"),
    "7z": ("a.7z", b"7z\xbc\xaf\x27\x1c" + bytes(90), "is an archive (zip, 7z, rar or tar)"),
    "rar": ("a.rar", b"Rar!\x1a\x07\x01" + bytes(90), "is an archive (zip, 7z, rar or tar)"),
    "UTF-16": ("a.txt", PROSE.encode("utf-16"), "UTF-16"),
    "UTF-16 without its mark": ("a.txt", PROSE.encode("utf-16-le"), "not text, but a binary file"),
    "UTF-16 .gz": ("a.txt.gz", gzip.compress(PROSE.encode("utf-16")), "UTF-16, compressed"),
    "UTF-32": ("a.txt", PROSE.encode("utf-32"), "UTF-32"),
    "CSV in UTF-16": ("a.csv", table().encode("utf-16"), "UTF-16"),
    "Latin-1": ("a.txt", PROSE.replace("–", "-").encode("latin-1"), "not UTF-8"),
    "Latin-1 all over": ("a.txt", (PROSE.split("\n\n")[2] * 20).replace(".", ".\n").encode("latin-1"), "not UTF-8 in many lines"),
    "CSV in Latin-1": ("a.csv", table().encode("latin-1"), "not UTF-8"),
    "ISO-2022-JP": ("a.txt", "日本語の文です。\n\n次の文です。\n".encode("iso-2022-jp"), "ISO-2022-JP"),
    "TSV named text": ("a.txt", "id\ttext\n" * 1 + "".join(f"{n}\t{line}\n" for n, line in enumerate(LINES * 3)), "a table with tabs"),  # type: ignore[dict-item]
    "JSON lines named text": ("a.txt", json_lines().encode(), "JSON lines"),
    "JSON lines named text .gz": ("a.txt.gz", gzip.compress(json_lines().encode()), "JSON lines"),
    "a JSON line that is longer than the beginning": ("a.txt", json_lines([{"text": "long " * 20_000}, *ROWS]).encode(), "JSON lines"),
    "JSON named text": ("a.txt", NESTED.encode(), "JSON over several lines"),
    "WARC": ("a.warc.gz", gzip.compress(wet("response")), "a WARC file"),
    "HTML": ("a.html", HTML.encode(), "is a page or text with markup"),
    "HTML named text": ("a.txt", HTML.encode(), "is a page or text with markup"),
    "a page instead of the data": ("a.jsonl", b"<!DOCTYPE html><html><title>404</title></html>", "is a page or text with markup"),
    "XML": ("a.xml", TREE.encode(), "is a page or text with markup"),
    "a dump of Wikipedia": ("dewiki.xml.bz2", bz2.compress(WIKI.encode()), "is a page or text with markup"),
    "output of WikiExtractor": ("wiki_00", TAGGED.encode(), "is a page or text with markup"),
    "subtitles": ("a.srt", SUBTITLES.encode(), "is a page or text with markup"),
    "a treebank": ("a.conllu", TREEBANK.encode(), "is a page or text with markup"),
    "PDF": ("a.pdf", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n", "a PDF or RTF document, a book, or a document"),
    "PDF named text": ("a.txt", b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\n", "a PDF or RTF document, a book, or a document"),
    "Word": ("a.docx", zipped(word__document_xml=b"<w:document/>"), "a PDF or RTF document, a book, or a document"),
    "Word of 2003": ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "a PDF or RTF document, a book, or a document"),
    "EPUB": ("a.epub", zipped(mimetype=b"application/epub+zip"), "a PDF or RTF document, a book, or a document"),
    "RTF": ("a.rtf", b"{\\rtf1\\ansi\\deff0 Text.\\par}", "a PDF or RTF document, a book, or a document"),
    "Excel": ("a.xlsx", zipped(xl__workbook_xml=b"<workbook/>"), "a PDF or RTF document, a book, or a document"),
    "a pickle": ("a.pkl", pickle.dumps(TEXTS), "a Python pickle"),
    "a pickle of the first kind": ("a.txt", pickle.dumps(TEXTS, protocol=0), "a Python pickle"),
    "a picture": ("a.png", b"\x89PNG\r\n\x1a\n" + bytes(90), "not text, but a binary file"),
    "random bytes": ("a.txt", bytes(range(256)) * 50, "not text"),
    "a pointer of Git LFS": ("a.parquet", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "a pointer"),
    "Parquet in name only": ("a.parquet", b"text\n", "is damaged, or a batch of its rows"),
    "a notebook": ("a.ipynb", json.dumps({"cells": [{"source": LINES}]}, indent=1).encode(), "is a page or text with markup"),
}  # fmt: skip
REFUSED_OF_ARROW: dict[str, tuple[str, bytes | Callable[[Path], None], str]] = {
    "zstd without the name": ("a.txt", zstd(PROSE), "compressed, and its name does not say how"),
    "lz4": ("a.txt.lz4", zstd(PROSE, codec="lz4"), "compressed, and its name does not say how"),
    "ORC": ("a.orc", arrow_file("orc"), "not text, but a binary file"),
    "Parquet by another name": ("a.txt", arrow_file("snappy"), "a Parquet file. Name it so"),
    "WET by another name": ("a.txt", wet(), "a WARC file"),
    "Parquet .gz": ("a.parquet.gz", lambda path: _packed(path, arrow_file("snappy")), "is compressed as a whole. Unpack it first"),
}  # fmt: skip
NOTHING_TO_TYPE = (
    "Unpack it into a folder",
    "Name it so (.gz",
    "with the right separator",
    "Extract its text into a .txt, .csv or .jsonl file (pandoc",
    "Fetch or write it again",
    "Fetch the file again",
    "git lfs pull",
    "Take the WET file",
    "electra_trainer.prepare(documents=...)",  # test_prepare.py does it
)


def _packed(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    path.write_bytes(gzip.compress(path.read_bytes()))


def put(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    if callable(content):
        content(path)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path | str, **options: Any) -> list[str]:
    return ["\n".join(found) for found in documents([path], report=CorpusReport(), reading=Reading(**options))]


@pytest.mark.parametrize(
    "name", [*READ, *(pytest.param(name, marks=needs_arrow) for name in READ_BY_EXTRA)], ids=lambda name: name
)
def test_read_right(tmp_path: Path, name: str) -> None:
    file, content = {**READ, **READ_BY_EXTRA}[name]
    wanted = [text.replace("\n", " ") for text in TEXTS] if file.endswith(".tsv") else TEXTS
    assert read(put(tmp_path, file, content)) == wanted


@pytest.mark.parametrize(
    "name", [*REFUSED, *(pytest.param(name, marks=needs_arrow) for name in REFUSED_OF_ARROW)], ids=lambda name: name
)
@pytest.mark.parametrize("policy", ["error", "skip"])
def test_refused_and_the_remedy_works(tmp_path: Path, name: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the policy, no document comes of it. What the message says is typed, until something can be read."""
    file, content, words = {**REFUSED, **REFUSED_OF_ARROW}[name]
    monkeypatch.chdir(tmp_path)
    put(tmp_path, file, content)
    if policy != "error" and name == "Latin-1":
        pytest.skip("some lines are sound: here the policy decides")
    with pytest.raises(DataError, match=re.escape(words)) as refused:
        read(file, on_bad_text=policy)
    if policy == "error":
        follow(str(refused.value), tmp_path)


def follow(said: str, folder: Path) -> None:
    """Type the first command of a message; read what it names, or follow its advice."""
    for _ in range(4):
        if any(words in said for words in NOTHING_TO_TYPE):
            return
        command = re.search("`(.*?)`", said)
        assert command, said
        run(command.group(1), folder)
        named = re.search(r"name (?:the folder )?(\S+) instead", said)
        assert named, said
        (name,) = shlex.split(named.group(1))
        try:
            found = "\n".join(read(name))
        except DataError as error:
            said = str(error)
            continue
        words = found.replace("  ", " ").split()
        assert words, said
        known = (
            set(PROSE.split()) | set("日本語の文です。 次の文です。".split()) | {str(number) for number in range(20)}
        )
        assert set(words) <= known or "long" in words, (said, words)
        return
    raise AssertionError(f"no end: {said}")


def run(command: str, folder: Path) -> None:
    tool = command.split()[0]
    if shutil.which(tool) is None:
        pytest.skip(f"needs {tool}")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    words = ["bash", "-c", command]
    done = subprocess.run(words, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stderr}"


BEGINNINGS = (
    "ORCHARD and PARENTS", "PARENTS", "GIF8 is", "RIFF-RAFF", "MZ is a country's code", "BZh9 is a word", "[Illustration: A man]", "[PAD]",
    "{ braces }", "{\"a\": 1} is JSON, and this is prose", "# Title", "<b>bold</b> words", "(lp0) begins", "1 00:00:01", "ID3", "fLaC", "%PD", "WARC is",
    "\x1b[1mbold\x1b[0m", "中文的文章。", "日本語", "Ä", "\ufffd", "RTF", "{rtf", "filed", "version https", "\x0c", "1\tone tab\nno tab", "-----BEGIN",
)  # fmt: skip


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_prose_may_begin_so(tmp_path: Path, beginning: str) -> None:
    text = f"{beginning}\n" + "One line of many.\n" * 20
    assert read(put(tmp_path, "a.txt", text))[0].split() == text.split()


def test_a_few_bad_lines_are_the_policys(tmp_path: Path) -> None:
    path = put(tmp_path, "a.txt", b"A line.\n" * 30 + b"na\xefve\n" + b"A\0B\n")
    with pytest.raises(DataError, match=r"a\.txt:31: bytes that are not UTF-8"):
        read(path)
    assert read(path, on_bad_text="skip", boundary="line") == ["A line."] * 30


@needs_arrow
def test_bad_records_are_the_policys(tmp_path: Path) -> None:
    """Records of WET files, as lines of .jsonl."""
    path = put(tmp_path, "a.wet", wet().replace("naïve".encode(), b"na\xefve_"))
    with pytest.raises(DataError, match=r"a\.wet:\d+: bytes that are not UTF-8"):
        read(path)
    assert read(path, on_bad_text="skip") == TEXTS[:2]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.json", b"[" * 100_000, "nested too deeply"),
        pytest.param("a.wet", wet()[:-30], "cut short", marks=needs_arrow),
        pytest.param("a.wet", b"WARC/1.0\r\nWARC-Type: conversion\r\n\r\n", "record 1 is cut short", marks=needs_arrow),
        ("a.csv", b"id,body\n1,a\n", "has no column 'text'. The columns are: id, body. Choose one with --text-field"),
        ("a.csv", b'text\n"open\n', "the row is not CSV on line 2 (unexpected end of data)"),
        ("a.csv.gz", gzip.compress(table().encode())[:-20], "a.csv.gz: is damaged"),
        ("a.json.gz", gzip.compress(json_lines().encode())[:-20], "a.json.gz: is damaged"),
    ],
)  # fmt: skip
def test_damaged_records(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    with pytest.raises(DataError, match=re.escape(words)):
        read(put(tmp_path, name, data))


@pytest.mark.parametrize(
    "part",
    [b"<!---->", b"<!--", b"# a\n", b'{"a":', b'{"\\\\', b"[", b" ", b"\t", b"1\ta\ta\tA", b"<?xml ", b"\n", b"\0"],
)
def test_looking_is_quick(part: bytes) -> None:
    """Patterns with nothing to take back; a quarter of a second beside other work, some milliseconds without."""
    head = (part * reading.HEAD)[: reading.HEAD]
    start = time.process_time()
    reading.kind_of(head, "a.txt"), reading.unlike_text(head, is_whole=False)
    assert time.process_time() - start < 0.25


@needs_arrow
def test_records_take_little_memory(tmp_path: Path) -> None:
    """80 MB of each format; the limit is on the address space of a child."""
    row = {"text": "word " * 2000}
    with (tmp_path / "a.csv").open("w") as rows, (tmp_path / "a.wet").open("w") as pages:
        rows.write("text\n")
        for _ in range(8000):
            rows.write(row["text"] + "\n")
            pages.write(f"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 10000\r\n\r\n{row['text']}\r\n\r\n")
    code = (
        "import sys; from electra_trainer.data.corpus import *\n"
        "for name in sys.argv[1:]: print(sum(len(l) for d in documents([name], report=CorpusReport()) for l in d))"
    )
    limit = 250 << 20
    done = subprocess.run(
        [sys.executable, "-c", code, *(str(tmp_path / f"a.{ending}") for ending in ("csv", "wet"))],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip
    assert done.stdout.split() == ["79992000"] * 2, done.stderr
