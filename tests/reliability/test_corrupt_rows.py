"""Rows that changed after they were prepared: nobody trains on them; what a memory map of the same files gives is the control."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from tests.prepared import small_config, write_store
from tests.reliability.figures import LONG, report
from tests.reliability.test_corruption import cut, flip, lengthen, remove, zero

from electra_trainer.data.store import Store
from electra_trainer.errors import DataError, ElectraError
from electra_trainer.train import begin
from electra_trainer.train.loop import pretrain

KINDS = (flip, flip, flip, cut, zero, lengthen, remove)
MADE_AGAIN = ("vocab.txt", "tokenizer_config.json")
"""These follow from tokenizer.json, and are not read."""
CASES = 2000 if LONG else 300


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("rows") / "data")


def test_corrupt_rows(data: Path, tmp_path: Path) -> None:
    names = sorted(
        str(path.relative_to(data)) for path in data.rglob("*") if path.is_file() and path.name not in MADE_AGAIN
    )
    silent, quick = [], 0
    for case in range(CASES):
        choose, name = random.Random(case), names[case % len(names)]
        changed = shutil.copytree(data, tmp_path / "now")
        KINDS[case // len(names) % len(KINDS)](changed / name, choose)
        if not same_content(data / name, changed / name):
            quick += opens(changed, verify=False)
            if opens(changed, verify=True):
                silent.append((case, name))
        shutil.rmtree(changed)
    report(
        "corrupt_rows", corruptions=CASES, files=len(names), opened=len(silent), control_opened_by_size_and_ids=quick
    )
    assert not silent and quick > CASES // 10


def same_content(one: Path, other: Path) -> bool:
    """White space at the end of a JSON file is not its content."""
    return other.exists() and one.read_bytes().rstrip() == other.read_bytes().rstrip()


def opens(folder: Path, *, verify: bool) -> bool:
    try:
        Store.open(folder, verify=verify)
    except ElectraError:
        return False
    return True


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
    monkeypatch.setenv(begin.VERIFY, "off")
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
