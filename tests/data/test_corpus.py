"""Readers: every policy, and only typed errors whatever the bytes."""

import bz2
import gzip
import json
import lzma
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from electra_trainer.data.corpus import CorpusReport, Reading, documents
from electra_trainer.data.document import Document
from electra_trainer.errors import ConfigError, DataError, MissingInputError, StorageError
from electra_trainer.files.opening import TextFile, read_lines

OPENERS = {"": lambda data: data, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def read(*paths: Path | str, **options: Any) -> tuple[list[Document], CorpusReport]:
    report = CorpusReport()
    return list(documents(list(paths), report=report, reading=Reading(**options))), report


def write(folder: Path, data: bytes, name: str = "a.txt") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("suffix", OPENERS)
def test_txt_and_jsonl_plain_and_compressed(tmp_path: Path, suffix: str) -> None:
    text = write(tmp_path, OPENERS[suffix]("a b\nc\n\n\nd é\n".encode()), f"a.txt{suffix}")
    records = [{"text": "a b\nc"}, {"text": "d é", "id": 1}]
    data = "\n".join(json.dumps(record) for record in records).encode()
    lines = write(tmp_path, OPENERS[suffix](data), f"b.jsonl{suffix}")
    wanted = [("a b", "c"), ("d é",)]
    assert read(text)[0] == read(lines)[0] == wanted
    found, report = read(tmp_path)
    assert found == wanted * 2
    assert (report.files, report.documents, report.lines, report.characters) == (2, 4, 6, 14)
    assert report.disk_bytes == report.disk_total == text.stat().st_size + lines.stat().st_size
    assert "4 documents" in report.summary()[0]


def test_only_lf_ends_a_line(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeffa\u2028b\u0085c\x0cd\r\n\r\ne\x1ff".encode())
    assert read(path)[0] == [("a\u2028b\u0085c\x0cd",), ("e\x1ff",)]


BAD = {
    b"ok\n\xff\xfe bad\nend\n": "not UTF-8",
    b"ok\nlone \xed\xa0\x80 half\nend\n": "not UTF-8",
    b"ok\nnul \x00 here\nend\n": "NUL",
}


@pytest.mark.parametrize("data", BAD)
def test_bad_text_is_an_error_that_says_where(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path, data)
    with pytest.raises(DataError, match=rf"a\.txt:2: .*{BAD[data]}.*--on-bad-text skip"):
        read(path)
    (skipped,), report = read(path, on_bad_text="skip")
    assert skipped == ("ok", "end")
    assert sum(report.bad_text.values()) == 1
    assert any("a.txt:2" in line for line in report.summary())


def test_the_byte_offset_is_exact(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.txt:3: .*at byte 2 of the line\b"):
        read(write(tmp_path, "é\r\nab\nc\xff".encode()[:-2] + b"\xff"))


JSON = {
    b"{": "invalid JSON",
    b"[" * 100_000: "invalid JSON",
    b"1" * 5_000: "invalid JSON",
    b'{"txt": "a"}': "has no column 'text'. The columns are: txt.*--text-field",
    b'{"text": 3}': "not a text: 3",
    b"[1]": "invalid JSON: it is \\[1\\], not an object",
    b'{"text": "\\ud800"}': "surrogate",
    b'{"text": "\\u0000"}': "NUL",
}


@pytest.mark.parametrize("data", JSON, ids=range(len(JSON)))
def test_bad_json(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path, b'{"text": "ok"}\n' + data + b'\n\n{"text": " "}\n', "a.jsonl")
    with pytest.raises(DataError, match=f"a.jsonl:2: .*({JSON[data]})"):
        read(path)
    found, report = read(path, on_bad_text="skip")
    assert found == [("ok",)]
    assert (sum(report.bad_text.values()), report.empty_documents) == (1, 1)


def test_paths(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.txt", "sub/c.txt", "notes.md", ".hidden.txt"):
        write(tmp_path, name.encode(), name)
    found, report = read(tmp_path)
    assert found == [("a.txt",), ("b.txt",), ("sub/c.txt",)]
    assert report.skipped_files == 2
    assert read(tmp_path / "notes.md")[0] == [("notes.md",)]
    found, report = read(str(tmp_path / "*.txt"), tmp_path / "a.txt")
    assert found == [("a.txt",), ("b.txt",)]
    for missing in ("nothing.txt", "*.nothing"):
        with pytest.raises(MissingInputError):
            read(tmp_path / missing)
    with pytest.raises(MissingInputError):
        read("docstring")
    with pytest.raises(ConfigError, match="expected one of blank, line, file"):
        read(tmp_path, boundary="lines")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable(tmp_path: Path) -> None:
    path = write(tmp_path, b"a")
    path.chmod(0)
    with pytest.raises(StorageError, match="permission"):
        read(path)


def test_empty_files_are_counted(tmp_path: Path) -> None:
    for number, data in enumerate([b"", b"\n\n \n", b"\xef\xbb\xbf"]):
        found, report = read(write(tmp_path, data, f"{number}.txt"))
        assert not found
        assert report.empty_documents == 1


def test_giants_are_split_and_nothing_is_lost(tmp_path: Path) -> None:
    text = "é" * 1_500_000 + " " + "ab " * 700_000
    found, _ = read(write(tmp_path, text.encode()), max_document_chars=100_000)
    joined = "".join(line for document in found for line in document)
    assert joined.replace(" ", "") == text.replace(" ", "")
    assert max(sum(map(len, document)) for document in found) <= 100_000


def test_a_giant_line_takes_little_memory(tmp_path: Path) -> None:
    """100 MB without a line end; the limit is on the address space of a child."""
    path = tmp_path / "giant.txt"
    with path.open("wb") as stream:
        for _ in range(100):
            stream.write(b"x" * 1_000_000)
    path.with_suffix(".jsonl").symlink_to(path)
    code = (
        "import sys; from electra_trainer.data.corpus import *\n"
        "r = CorpusReport()\n"
        "print(sum(len(l) for d in documents(sys.argv[1:2], report=r) for l in d))\n"
        "print(sum(1 for _ in documents(sys.argv[2:], report=r, reading=Reading(on_bad_text='skip'))), dict(r.bad_text))"
    )
    limit = 300 << 20
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(path.with_suffix(".jsonl"))],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}, capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip
    assert done.stdout.split("\n")[:2] == ["100000000", "0 {'a line of more than 16 MiB': 1}"], done.stderr


@settings(max_examples=150, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.one_of(st.binary(max_size=300), st.text(max_size=200).map(str.encode)),
    name=st.sampled_from(["a.txt", "a.jsonl", "a.txt.gz", "a.jsonl.xz", "a.txt.bz2"]),
    policy=st.sampled_from(["error", "skip"]),
    wrap=st.booleans(),
)
def test_any_bytes_give_documents_or_a_typed_error(
    tmp_path: Path, data: bytes, name: str, policy: str, wrap: bool
) -> None:
    packed = OPENERS[Path(name).suffix](data) if wrap and Path(name).suffix in OPENERS else data
    try:
        found, report = read(write(tmp_path, packed, name), on_bad_text=policy)
    except DataError as error:
        assert "\n" not in str(error)
        return
    assert report.documents == len(found)
    for document in found:
        assert document
        for line in document:
            assert line.strip() == line != ""
            assert "\x00" not in line
            line.encode()


@settings(max_examples=150, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet="aé中 \n\r", max_size=200), limit=st.integers(4, 30))
def test_lines_of_bytes_against_a_loop(tmp_path: Path, text: str, limit: int) -> None:
    data = text.encode()
    assume(b"\r" * limit not in data)
    path = write(tmp_path, data)
    parts = list(read_lines(TextFile(path, len(data)), limit=limit, on_progress=lambda _: None))
    assert sum(part.length for part in parts) == len(data)
    whole: dict[int, bytes] = {}
    for part in parts:
        assert len(part.data) <= limit
        part.data.decode()
        assert data[part.offset :].startswith(part.data)
        whole[part.number] = whole.get(part.number, b"") + part.data
    wanted = re.split(rb"\r*\n|\r", data)
    wanted = wanted[:-1] if wanted[-1] == b"" else wanted
    assert list(whole.values()) == wanted
