"""Every verb that makes a folder, killed before changes of files: the same call ends as if it had not been disturbed, with nothing left."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.reliability.figures import LONG
from tests.reliability.killed import killed_at_each, untimed
from tests.reliability.works import Work, longer_works, works


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Work, Work]]:
    return works(tmp_path_factory.mktemp("works"))


@pytest.mark.parametrize(
    ("kind", "every", "least"),
    [("tokenizer", 1, 10), ("prepare", 1, 30), ("a shard", 1, 30), ("merge", 1, 30), ("export", 1 if LONG else 4, 12)],
)
def test_each_operation(kind: str, every: int, least: int, made: dict[str, tuple[Work, Work]], tmp_path: Path) -> None:
    assert killed_at_each(made[kind][0], tmp_path, every=every) > least


def test_finetune(tmp_path: Path) -> None:
    """Every file of the cell, the summary, the exported model and its predictions."""
    work, _ = longer_works(tmp_path)["finetune"]
    assert killed_at_each(work, tmp_path / "kills", every=1 if LONG else 11, same=untimed) >= 11
