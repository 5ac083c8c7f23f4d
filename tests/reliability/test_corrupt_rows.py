"""Rows that changed after they were prepared: nobody trains on them; what a memory map of the same files gives is the control."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from tests.prepared import small_config
from tests.reliability.figures import LONG, report
from tests.reliability.test_corruption import cut, flip, lengthen, remove, zero

from electra_trainer.data.store import Store
from electra_trainer.data.tokenizer import tokenizer_files
from electra_trainer.errors import DataError, ElectraError
from electra_trainer.train import loop
from electra_trainer.train.loop import pretrain

KINDS = (flip, flip, flip, cut, zero, lengthen, remove)
MADE_AGAIN = ("vocab.txt", "tokenizer_config.json")
"""These follow from tokenizer.json, and are not read; a template in that one is neither."""
CASES = 2000 if LONG else 300


def test_corrupt_rows(data: Path, tmp_path: Path) -> None:
    names = sorted(
        str(path.relative_to(data)) for path in data.rglob("*") if path.is_file() and path.name not in MADE_AGAIN
    )
    sound, silent, quick = opened(data, verify=True), [], 0
    for case in range(CASES):
        choose, name = random.Random(case), names[case % len(names)]
        changed = shutil.copytree(data, tmp_path / "now")
        KINDS[case // len(names) % len(KINDS)](changed / name, choose)
        quick += opened(changed, verify=False) not in (None, sound)
        if opened(changed, verify=True) not in (None, sound):
            silent.append((case, name))
        shutil.rmtree(changed)
    report("corrupt_rows", corruptions=CASES, files=len(names), control_by_sizes_and_ids_alone=quick)
    assert not silent and quick > CASES // 10


def opened(folder: Path, *, verify: bool) -> list[object] | None:
    """All that a run takes from a store, None where it is refused."""
    try:
        store = Store.open(folder, verify=verify)
    except ElectraError:
        return None
    rows = [(folder / name).read_bytes() for name in ("train.bin", "valid.bin", "train.documents", "documents.jsonl")]
    return [store.manifest, tokenizer_files(store.tokenizer(), max_length=store.sequence_length), rows]


def test_nothing_is_trained_on_them(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word in the middle becomes another one, before the run or between two sessions of it. Who does not want to wait says so."""
    settings, out = small_config(), tmp_path / "run"
    changed = Path(shutil.copytree(data, tmp_path / "changed"))
    flip_a_word(changed / "train.bin")
    with pytest.raises(DataError, match=r"train\.bin: its content has changed \(SHA-256\)"):
        pretrain(settings, changed, out=out, device="cpu", quiet=True)
    assert not out.exists()
    pretrain(settings, data, out=out, device="cpu", quiet=True)
    with pytest.raises(DataError, match=r"train\.bin: its content has changed"):
        pretrain(settings, changed, out=out, device="cpu", quiet=True)
    monkeypatch.setenv(loop.VERIFY, "off")
    pretrain(settings, changed, out=out, device="cpu", quiet=True)


def test_the_tokenizer_of_a_run_follows_from_what_was_verified(data: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(data, tmp_path / "changed"))
    for name in MADE_AGAIN:
        (changed / "tokenizer" / name).write_bytes(b"spoilt")
    out = pretrain(small_config(), changed, out=tmp_path / "run", device="cpu", quiet=True)
    for path in (data / "tokenizer").iterdir():
        assert (out / "tokenizer" / path.name).read_bytes() == path.read_bytes()


def flip_a_word(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 4 * 2] ^= 1
    path.write_bytes(content)
