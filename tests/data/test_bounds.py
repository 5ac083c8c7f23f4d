"""Files that claim or unpack to far more than they should are refused, in bounded memory; repetitive files are read."""

import gzip
import importlib.util
import json
import lzma
import re
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from electra_trainer.data.corpus import CorpusReport, documents
from electra_trainer.errors import DataError
from electra_trainer.files import formats, opening

needs_arrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs the extra [hub]: pyarrow")


def count(path: Path) -> int:
    return sum(1 for _ in documents([path], report=CorpusReport()))


def same_text(path: Path, text: str, rows: int, **options: Any) -> Path:
    """A Parquet file of one text in many rows: a dictionary of one entry and a run of zeros, in 2 kB."""
    import pyarrow as pa
    import pyarrow.parquet

    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))
    settings = {"compression": "zstd", "dictionary_pagesize_limit": 1 << 30, **options}
    pa.parquet.write_table(pa.table({"text": column}), path, row_group_size=rows, **settings)
    assert path.stat().st_size < 20_000
    return path


@needs_arrow
def test_parquet_of_one_long_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a dictionary and as texts: 1.2 kB that are 1.1 GB in one batch of rows."""
    monkeypatch.setattr(opening, "FREE", 1 << 25)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # of other tests' processes
    resident = (
        int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024
    )  # a child begins with it
    path = same_text(tmp_path / "a.parquet", "a" * 4_000_000, 300)
    with pytest.raises(DataError, match=r"a\.parquet: has [\d,]+ bytes on disk and unpacks to over \d+ MiB, "):
        count(path)
    path = same_text(tmp_path / "b.parquet", "a" * 12_000_000, 100, store_schema=False)
    with pytest.raises(DataError, match=r"b\.parquet: is damaged, or a batch of its rows takes over 600 MiB"):
        count(path)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= max(before, resident + 700_000)


@needs_arrow
def test_parquet_of_endless_rows(tmp_path: Path) -> None:
    path = same_text(tmp_path / "a.parquet", "a", 5_000_000)
    with pytest.raises(DataError, match=r"a\.parquet: .* unpacks to over "):
        count(path)
    assert count(same_text(tmp_path / "b.parquet", "A sentence of some words.", 20_000)) == 20_000


@needs_arrow
def test_parquet_of_long_texts(tmp_path: Path) -> None:
    """A batch has the fewer rows, the longer they are."""
    import pyarrow as pa
    import pyarrow.parquet

    texts = [f"{number} " + "word " * 100_000 for number in range(60)]
    pa.parquet.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", use_dictionary=False)
    found = documents([tmp_path / "a.parquet"], report=CorpusReport())
    assert ["\n".join(one) for one in found] == [text.strip() for text in texts]


def test_repetitive_text_is_read_and_endless_text_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines, JSON lines, arrays and tables; what the message says helps."""
    line = "One and the same line of a text.\n"
    record = json.dumps({"text": line})
    contents = {"a.txt": line * 12_000, "a.jsonl": (record + "\n") * 6_000, "a.csv": "text\n" + line * 6_000}
    for name, text in contents.items():
        for ending, pack in ((".gz", gzip.compress), (".xz", lzma.compress)):
            path = tmp_path / (name + ending)
            path.write_bytes(pack(text.encode()))
            assert path.stat().st_size < len(text) / 40
            assert count(path) >= 1
    monkeypatch.setattr(opening, "FREE", 1 << 16)
    monkeypatch.setattr(opening, "RATIO", 10)
    for name, text in contents.items():
        with pytest.raises(
            DataError, match=re.escape(f"{name}.gz: has") + r".*too much for its size.*not compressed"
        ) as refused:
            count(tmp_path / f"{name}.gz")
        assert "unpacks to over" in str(refused.value)
        (tmp_path / name).write_text(text)
        if name == "a.txt":
            assert count(tmp_path / name) == 1


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.json", b'{"text": "a", "x": [' + b"{}," * 5_000_000 + b"{}]}", "more than 1,000,000 values"),
        (
            "a.wet",
            b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 2000000\r\n\r\n" + b"a" * 2_000_000,
            "record 1 is cut short, or over 1 MiB",
        ),
        (
            "a.wet",
            b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: " + b"9" * 6000 + b"\r\n\r\na\n",
            "the length of a record is wrong",
        ),
        ("a.csv", b"text\n" + b"a" * (17 << 20) + b"\n", "a line of more than 16 MiB"),
    ],
)
def test_one_value_is_bounded(
    tmp_path: Path, name: str, data: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "_LONGEST", 1 << 20)  # bytes of a record, of which 64 MiB are read in a minute
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=re.escape(words)):
        count(tmp_path / name)


@pytest.mark.parametrize("length", [2**63 - 1, 2**63, 2**64, 10**30, -5])
def test_a_length_that_cannot_be(tmp_path: Path, length: int) -> None:
    (tmp_path / "a.wet").write_bytes(b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: %d\r\n\r\na\n" % length)
    with pytest.raises(DataError, match=r"a.wet: is damaged \(.*\)\. Fetch it again\."):
        count(tmp_path / "a.wet")


def test_a_page_of_line_ends_takes_no_list(tmp_path: Path) -> None:
    body = b"A page.\n" + b"\n" * 200_000
    path = tmp_path / "a.wet"
    path.write_bytes(b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n" % (len(body), body))
    assert [*documents([path], report=CorpusReport())] == [("A page.",)]
