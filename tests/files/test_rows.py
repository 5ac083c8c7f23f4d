"""Inputs of both halves: each format that `prepare` reads gives the same rows to every verb that reads rows."""

import bz2
import csv
import gzip
import importlib.util
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command import Electra
from tests.finetuning.own_files import write_encoder

from electra_trainer.cli.embed import read_texts
from electra_trainer.data.corpus import CorpusReport, Reading, documents
from electra_trainer.errors import DataError
from electra_trainer.files import opening, rows
from electra_trainer.files.rows import read_rows
from electra_trainer.tasks.tagged_files import read_tagged

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
    for ending, packed in [*((one, "") for one in (*PLAIN, *BINARY)), (".csv", ".gz"), (".jsonl", ".zst")]
]
SHORT = ("--seeds", 1, "--epochs", 1, "--parallel", 1, "--device", "cpu")


def written(path: Path, found: list[dict[str, Any]]) -> Path:
    packed = path.suffix if path.suffix in COMPRESSED else ""
    ending = (path.with_suffix("") if packed else path).suffix
    data = arrow(found, ending) if ending in BINARY else PLAIN[ending](found)
    path.write_bytes(COMPRESSED[packed](data))
    return path


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("rows") / "encoder", hidden_size=16, layers=1)


@pytest.mark.parametrize("ending", FORMATS)
def test_every_verb_reads_each_format(tmp_path: Path, ending: str, encoder: Path, electra: Electra) -> None:
    """Pre-training; training, development and predicted rows of `finetune`, `predict`, `embed`; and tagging."""
    path, texts = written(tmp_path / f"a{ending}", LABELLED), [row["text"] for row in LABELLED]
    assert ["\n".join(one) for one in documents([path], report=CorpusReport(), reading=Reading())] == texts
    out = tmp_path / "texts"
    assert electra("finetune", encoder, "--train", path, "--dev", path, "--predict", path, "--out", out, *SHORT)[0] == 0
    assert electra("predict", out / "model", path, "--out", tmp_path / "again.csv")[0] == 0
    predicted = (tmp_path / "again.csv").read_text()
    assert (out / "predictions.csv").read_text() == predicted
    assert [row[:2] for row in csv.reader(predicted.splitlines())][1:] == [[*row.values()] for row in LABELLED]
    assert electra("embed", encoder, path, "--out", tmp_path / "v.npy")[0] == 0
    assert np.load(tmp_path / "v.npy").shape == (len(texts), 16)
    if not ending.startswith((".csv", ".tsv")):  # there words are in columns, a word a line
        path, out = written(path, TAGGED), tmp_path / "tags"
        words = ("--task", "tagging", "--train", path, "--dev", path, "--predict", path, "--out", out, *SHORT)
        assert sentences(path) == [TAGGED[0]] * 3 and electra("finetune", encoder, *words)[0] == 0
        assert electra("predict", out / "model", path, "--out", tmp_path / "tags.txt")[0] == 0


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
    assert opening.is_url("file:///a") and not rows.has_named_columns(tmp_path / "a.csv")
