"""A folder of rows is whole, or it says in one sentence what is wrong with it."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.data.samples import SPECIALS, sentences

from electra_trainer.data.corpus import PrepareSettings
from electra_trainer.data.prepare import prepare
from electra_trainer.data.store import NAMES, Manifest, Store, StoreWriter, claimed
from electra_trainer.data.tokenizer import save_tokenizer, tokenizer_sha256
from electra_trainer.data.vocabulary import train_tokenizer
from electra_trainer.errors import ConfigError, DataError, MissingInputError


@pytest.fixture
def folder(text_file: Path, tokenizer: Any, tmp_path: Path) -> Path:
    out = tmp_path / "store"
    prepare([text_file], tokenizer=tokenizer, sequence_length=32, out=out, settings=PrepareSettings(workers=1))
    return out


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_open(folder: Path, tokenizer: Any) -> None:
    store = Store.open(folder, verify=True)
    assert (store.sequence_length, store.vocab_size, store.specials) == (32, 256, SPECIALS)
    assert tokenizer_sha256(store.tokenizer()) == tokenizer_sha256(tokenizer)
    for split in ("train", "valid"):
        rows, info = store.rows(split), getattr(store.manifest, split)
        assert rows.shape == (info.rows, 32)
        assert rows.dtype == np.uint16
        assert info.tokens == (rows != 0).sum()
        assert info.text_tokens == ((rows != 0) & (rows != 2) & (rows != 3)).sum()
        assert info.padding == pytest.approx((rows == 0).mean())
        with pytest.raises(ValueError, match="read-only"):
            rows[0, 0] = 1


def test_missing_and_unfinished(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="electra prepare"):
        Store.open(tmp_path / "nothing")
    with pytest.raises(MissingInputError, match="is not a folder of prepared rows"):
        Store.open(tmp_path)
    (folder / "manifest.json").rename(folder / "preparing.json")
    with pytest.raises(DataError, match=r"did not finish\. Run the same prepare command again"):
        Store.open(folder)


@pytest.mark.parametrize("name", ["train.bin", "train.documents", "valid.documents", NAMES])
def test_damage(folder: Path, name: str) -> None:
    path, data = folder / name, (folder / name).read_bytes()
    for size in (data[:-2], data + b"\0"):
        path.write_bytes(size)
        with pytest.raises(DataError, match=rf"{name}: has .* bytes, expected"):
            Store.open(folder)
    path.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
    Store.open(folder)
    with pytest.raises(DataError, match=rf"{name}: its content has changed"):
        Store.open(folder, verify=True)
    path.unlink()
    with pytest.raises(MissingInputError):
        Store.open(folder)


def test_another_tokenizer(folder: Path) -> None:
    save_tokenizer(train_tokenizer(sentences(800, seed=1), vocab_size=256), folder / "tokenizer", max_length=32)
    with pytest.raises(DataError, match="is not the tokenizer that made these rows"):
        Store.open(folder)
    shutil.rmtree(folder / "tokenizer")
    with pytest.raises(MissingInputError):
        Store.open(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 3}, "version is 3, this program reads 4"),
        ({"settings": {"seed": 1}}, r"is not as it was written \(SHA-256\)"),
        ({"version": True}, "version is True"),
        ({"sequence_length": "32"}, "sequence_length = '32': expected int"),
        ({"sequence_length": 0}, r"is not as it was written \(SHA-256\)"),
        ({"specials": {"pad": 0}}, "specials: field unk is missing"),
        ({"train": 3}, "train"),
        ({"extra": 3}, "unknown field 'extra'"),
        ({"corpus": None}, "corpus"),
    ],
)
def test_damaged_manifest(folder: Path, changes: dict[str, Any], words: str) -> None:
    edit(folder, **changes)
    with pytest.raises(DataError, match=words):
        Store.open(folder)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=200, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    name=st.sampled_from([field.name for field in dataclasses.fields(Manifest)]),
    inner=st.sampled_from(["", "rows", "bytes", "sha256", "pad"]),
)
def test_any_value_gives_a_manifest_or_a_typed_error(folder: Path, data: st.DataObject, name: str, inner: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    value = data.draw(values)
    if inner and isinstance(manifest[name], dict):
        manifest[name][inner] = value
    else:
        manifest[name] = value
    try:
        Manifest.from_json(json.dumps(manifest).encode(), where="m")
    except DataError as error:
        assert str(error).startswith("m:")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"[" * 100_000, b"\xff", b"null"])
def test_manifest_that_is_no_json(data: bytes) -> None:
    with pytest.raises(DataError, match="delete the folder"):
        Manifest.from_json(data, where="m")


def test_round_trip_of_the_manifest(folder: Path) -> None:
    manifest = Store.open(folder).manifest
    assert Manifest.from_json(manifest.to_json().encode(), where="m") == manifest


def test_ids_outside_of_the_vocabulary_are_not_written(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, sequence_length=8, dtype="<u2", vocab_size=70000)
    with pytest.raises(DataError, match="outside of the vocabulary"):
        writer.write("train", np.full((1, 8), 70000, dtype=np.uint32))
    writer.close()


def claim(folder: Path) -> None:
    with claimed(folder):
        pass


def test_claiming(folder: Path, tmp_path: Path) -> None:
    for damaged in (False, True):
        if damaged:
            (folder / "manifest.json").write_text("{")
        with pytest.raises(ConfigError, match="holds prepared rows already"):
            claim(folder)
    (folder / "preparing.json").write_text("{}")
    claim(folder)  # unfinished: go on
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.bin").write_text("somebody's")
    with pytest.raises(ConfigError, match="holds other things"):
        claim(other)
    assert (other / "train.bin").read_text() == "somebody's"
    with pytest.raises(ConfigError, match="is a file"):
        claim(other / "train.bin")
