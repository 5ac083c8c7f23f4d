"""Inputs of both halves: each format that `prepare` reads gives the same rows for labels, vectors and tags."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from electra_trainer.cli.embed import read_texts
from electra_trainer.data.corpus import CorpusReport, Reading, documents
from electra_trainer.errors import DataError
from electra_trainer.files import rows, sources
from electra_trainer.files.rows import read_rows
from electra_trainer.tasks.own_files import OwnTask
from electra_trainer.tasks.tagged_files import read_tagged
from electra_trainer.tasks.task import TaskData
from electra_trainer.tasks.texts import Classification

LABELLED = [{"text": f"the {word} number {n}", "label": word} for n in range(12) for word in ("apple", "saw")]
TAGGED = [{"words": ["Ada", "lives", "here"], "labels": ["B-PER", "O", "O"]}] * 3
needs_arrow = pytest.mark.skipif(not importlib.util.find_spec("pyarrow"), reason="needs the extra [hub]: pyarrow")


def json_lines(found: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in found).encode()


def separated(found: list[dict[str, Any]], sign: str) -> bytes:
    return "".join(sign.join(row) + "\n" for row in [[*found[0]], *(row.values() for row in found)]).encode()


def arrow(found: list[dict[str, Any]], ending: str) -> bytes:
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    table, out = pa.Table.from_pylist(found), pa.BufferOutputStream()
    if ending == ".parquet":
        pa.parquet.write_table(table, out)
    elif ending == ".feather":
        pa.feather.write_feather(table, out)
    else:
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
    return out.getvalue().to_pybytes()


def zstd(data: bytes) -> bytes:
    import pyarrow as pa

    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return out.getvalue().to_pybytes()


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}
PLAIN: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    ".csv": lambda found: separated(found, ","),
    ".tsv": lambda found: separated(found, "\t"),
    ".jsonl": json_lines,
    ".ndjson": json_lines,
    ".json": json_lines,
}
BINARY = (".parquet", ".arrow", ".feather")
FORMATS = [
    pytest.param(ending + packed, marks=[needs_arrow] if packed == ".zst" or ending in BINARY else [])
    for ending, packed in [*((one, two) for one in PLAIN for two in COMPRESSED), *((one, "") for one in BINARY)]
]


def written(path: Path, found: list[dict[str, Any]]) -> Path:
    packed = path.suffix if path.suffix in COMPRESSED else ""
    ending = (path.with_suffix("") if packed else path).suffix
    data = arrow(found, ending) if ending in BINARY else PLAIN[ending](found)
    path.write_bytes(COMPRESSED[packed](data))
    return path


@pytest.mark.parametrize("ending", FORMATS)
def test_each_format_is_read_by_both_halves(tmp_path: Path, ending: str) -> None:
    """Training, development, test and predicted rows, vectors, tags of words, and pre-training."""
    path, plain = written(tmp_path / f"a{ending}", LABELLED), written(tmp_path / "plain.jsonl", LABELLED)
    texts = [row["text"] for row in LABELLED]
    assert ["\n".join(one) for one in documents([path], report=CorpusReport(), reading=Reading())] == texts
    table, vectors = read_texts(path, column=None)
    assert vectors == texts and table.columns == ("text", "label") and table.where(0).startswith(f"{path}:")
    found, known = (OwnTask(train=one, dev=one, test=one, predict=one).load() for one in (path, plain))
    assert isinstance(found.task, Classification) and found.task.labels == ("apple", "saw")
    assert examples(found) == examples(known)
    assert ending.startswith((".csv", ".tsv")) or sentences(written(path, TAGGED)) == [TAGGED[0]] * 3


def examples(data: TaskData) -> list[list[tuple[str, str | None]]]:
    parts = [data.train, *data.dev.values(), *data.tested.values(), *data.test.values()]
    return [[(one.text, one.label) for one in part] for part in parts]


def sentences(path: Path) -> list[dict[str, Any]]:
    return [{"words": [*one.words], "labels": [*one.labels]} for one in read_tagged(path).sentences]


@pytest.mark.parametrize("packed", [pytest.param(one, marks=[needs_arrow] * (one == ".zst")) for one in COMPRESSED])
def test_lines(tmp_path: Path, packed: str) -> None:
    """A text a line, for vectors; and words with their tags, a word a line."""
    path = tmp_path / f"a.txt{packed}"
    path.write_bytes(COMPRESSED[packed](b"one text\n\nanother\n"))
    assert read_texts(path, column=None)[1] == ["one text", "another"]
    path.write_bytes(COMPRESSED[packed](b"Ada B-PER\nlives O\nhere O\n\n" * 3))
    assert sentences(path) == [TAGGED[0]] * 3


def test_rows_in_memory_and_at_a_url(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    expected = [("a", 0), ("b", 1)]
    given = [{"text": text, "label": label} for text, label in expected]
    for one in (given, iter(given), pandas.DataFrame(given)):
        assert read_rows(one).rows == expected
    assert read_rows(["a", "b"]).column("text") == ["a", "b"]
    path = written(tmp_path / "a.jsonl.gz", given)
    if importlib.util.find_spec("fsspec"):
        for url in (f"file://{path}", Path(f"file://{path}")):
            assert read_rows(url).rows == expected


@needs_arrow
def test_a_damaged_column_is_a_sentence(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", LABELLED)
    path.write_bytes(path.read_bytes()[:-20] + b"x" * 12 + path.read_bytes()[-8:])
    with pytest.raises(DataError, match=r"a\.parquet: is damaged"):
        read_rows(path)


def test_a_file_at_a_url_is_one(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    for name in ("a.csv", "b.csv"):
        written(tmp_path / name, LABELLED)
    with pytest.raises(DataError, match=r"names 2 files\. Name one"):
        read_rows(f"file://{tmp_path}/*.csv")
    assert sources.is_url("file:///a") and not rows.has_named_columns(tmp_path / "a.csv")
