"""Every row knows its documents, and a document is found where its place says: the file is read again there."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.data.samples import sentences

from electra_trainer.data.corpus import PrepareSettings
from electra_trainer.data.document import Place
from electra_trainer.data.prepare import prepare
from electra_trainer.data.store import NAMES, SPLITS, RowDocuments, Store, StoreWriter
from electra_trainer.data.tokenizer import as_plain_text
from electra_trainer.errors import DataError

SPECIAL = (0, 2, 3)  # [PAD], [CLS], [SEP]
LIMIT = 1500
"""Characters of a document; longer ones become several."""


def corpus(folder: Path) -> list[Path]:
    """Documents of many kinds: short ones, long ones, some over the limit, empty lines and files, another format."""
    text = folder / "some of it.txt"
    made = ["\n".join(sentences(1 + seed % 9, seed=seed)) for seed in range(90)]
    text.write_text("\n\n\n" + "\n\n".join(made) + "\n\n\u200b\n\n" + " ".join(sentences(60, seed=5)), encoding="utf-8")
    lines = folder / "lines.jsonl"
    records = [{"text": "\n".join(sentences(4, seed=seed))} for seed in range(100, 150)]
    lines.write_text("\n".join(map(json.dumps, [*records[:20], {"text": " "}, *records[20:]])), encoding="utf-8")
    empty = folder / "empty.txt"
    empty.write_text("\n")
    last = folder / "the last.txt"
    last.write_text("\r\n".join(sentences(3, seed=77)), encoding="utf-8")
    return [text, lines, empty, last]


def prepared(folder: Path, tokenizer: Any, *, length: int = 32, **options: Any) -> Store:
    paths = corpus(folder)
    reading = PrepareSettings(**{"workers": 1, "valid_fraction": 0.1, "max_document_chars": LIMIT, **options})
    prepare(paths, tokenizer=tokenizer, sequence_length=length, out=folder / "out", settings=reading)
    return Store.open(folder / "out", verify=True)


@functools.cache
def lines_there(place: Place) -> list[str]:
    """The text of a document, from the lines of the file that its place names, as `sed -n 'LINE,LASTp'` shows them."""
    shown = Path(place.file).read_text(encoding="utf-8").split("\n")[place.line - 1 : place.last]
    if place.file.endswith(".jsonl"):
        return str(json.loads(shown[0])["text"]).split("\n") if len(shown) == 1 else []
    return shown


@functools.cache
def ids_there(place: Place, tokenizer: Any) -> list[int]:
    plain = as_plain_text(tokenizer)
    return [token for line in lines_there(place) for token in plain.encode(line.strip(), add_special_tokens=False).ids]


def text_ids(row: Any) -> list[int]:
    return [int(token) for token in row if token not in SPECIAL]


def within(part: list[int], whole: list[int]) -> bool:
    return np.array(part, "<u2").tobytes() in np.array(whole, "<u2").tobytes()


@pytest.mark.parametrize(("length", "boundary"), [(32, "blank"), (32, "line"), (512, "line"), (64, "file")])
def test_rows_are_of_the_documents_that_are_named(tokenizer: Any, tmp_path: Path, length: int, boundary: str) -> None:
    store = prepared(tmp_path, tokenizer, length=length, boundary=boundary)
    seen: set[Place] = set()
    several = 0
    for split in SPLITS:
        documents, rows = store.documents(split), store.rows(split)
        assert documents is not None
        for number, row in enumerate(rows):
            passages = documents.row(number)
            ends = [0, *(passage.end for passage in passages)]
            assert [passage.begin for passage in passages] == ends[:-1] and ends[-1] == length
            several += len(passages) > 1
            for passage in passages:
                assert row[passage.begin] == store.specials.cls
                part = text_ids(row[passage.begin : passage.end])
                before = text_ids(rows.reshape(-1)[passage.start : number * length + passage.begin])
                whole = ids_there(passage.place, tokenizer)
                if sum(map(len, lines_there(passage.place))) > LIMIT:  # a part of a document, cut perhaps within a word
                    assert within((before + part)[4:-4], whole)
                else:
                    assert part and whole[: len(before + part)] == before + part
                seen.add(passage.place)
    assert several > 2
    found = sum(getattr(store.manifest, split).documents for split in SPLITS)
    assert len(seen) == found  # each document is in some row, and no two have one name
    assert {Path(place.file).name for place in seen} == {"some of it.txt", "lines.jsonl", "the last.txt"}


def encode(entries: list[list[int]]) -> bytes:
    return np.array(entries, "<i8").tobytes()


def write(folder: Path, entries: bytes, *, names: bytes = b'"a"\n"b"\n') -> RowDocuments:
    (folder / "train.documents").write_bytes(entries)
    (folder / NAMES).write_bytes(names)
    return RowDocuments(folder, "train", sequence_length=8, rows=100)


ONE = [[0, 0, 1, 1, 0], [8, 1, 1, 5, 2], [20, 0, 2, 9, 0]]


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    sound = encode(ONE)
    assert [passage.place for passage in write(tmp_path, sound).row(2)] == [Place("b", 1, 5, 7), Place("a", 2, 9, 9)]
    for bad in (b"", sound[:-1], sound + b"x", sound[:3]):
        with pytest.raises(DataError, match="not a list of documents"):
            write(tmp_path, bad)
    for bad in (ONE[1:], [ONE[0], [4, 0, 1, 2, 0], [2, 0, 1, 3, 0]]):  # begins after 0; goes back
        with pytest.raises(DataError, match="documents of row 0 are not in order"):
            write(tmp_path, encode(bad)).row(0)
    for column, value in ((0, -8), (1, -1), (2, -4), (4, -1)):
        odd = [list(entry) for entry in ONE]
        odd[1][column] = value
        with pytest.raises(DataError, match=r"documents of row \d are not in order"):
            [*map(write(tmp_path, encode(odd)).row, range(3))]
    for names, words in ((b'"a"\n', "lacks line 2"), (b'"a"\n{\n', ":2: is not valid JSON")):
        with pytest.raises(DataError, match=words):
            write(tmp_path, sound, names=names).row(1)
    with pytest.raises(DataError, match="lacks line"):
        write(tmp_path, encode([[0, 1 << 60, 1, 1, 0]])).row(0)


whole = st.integers(0, (1 << 62) - 1)


@settings(max_examples=200, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 40) | st.integers(1, 1 << 40), min_size=1, max_size=30),
    files=st.lists(st.sampled_from(["a", "b\n", "ü\udc80", "x" * 300]), min_size=30, max_size=30),
    numbers=st.lists(whole, min_size=30, max_size=30),
)
def test_any_entries_come_back(tmp_path: Path, lengths: list[int], files: list[str], numbers: list[int]) -> None:
    starts = np.concatenate([[0], np.cumsum(lengths)])
    places = [
        Place(files[n], numbers[n], numbers[-n - 1] >> 1, (numbers[-n - 1] >> 1) + n) for n in range(len(lengths))
    ]
    writer = StoreWriter(tmp_path, sequence_length=16, dtype="<u2", vocab_size=9)
    for start, place in zip(starts, places, strict=False):
        writer.add_document("train", int(start), place)
    writer.finish({})
    read = RowDocuments(tmp_path, "train", sequence_length=16, rows=int(starts[-1]) // 16 + 1)
    for number, place in enumerate(places):
        row, column = divmod(int(starts[number]), 16)
        found = next(passage for passage in read.row(row) if passage.begin == column)
        assert (found.place, found.start) == (place, starts[number])
        assert found.end == min(16, starts[number + 1] - row * 16) or number == len(places) - 1
