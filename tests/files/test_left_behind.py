"""Leftovers of a killed process go with the next write there; what a living process holds, and what is the user's, stays."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.reliability.children import in_a_child
from tests.reliability.operations import Operations, killing

from electra_trainer.files.durable import new_folder, replace_durably, scratch, sweep


def left_by(work: Callable[[], None], folder: Path, *, kill: int) -> list[str]:
    """Names in a folder after a process was killed in it before its n-th operation."""

    def doomed() -> None:
        with Operations(folder, killing(kill), sync=False):
            work()

    assert in_a_child(doomed) < 0
    return sorted(path.name for path in folder.iterdir())


def replaced(out: Path, content: bytes) -> None:
    with new_folder(out) as new:
        new.mkdir()
        (new / "file").write_bytes(content)


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("kill", [2, 3, 4, 5])
def test_a_file(tmp_path: Path, kill: int) -> None:
    replace_durably(tmp_path / "a", b"old")
    left = left_by(lambda: replace_durably(tmp_path / "a", b"new"), tmp_path, kill=kill)
    assert len(left) == 2 and left[0].startswith(".electra-tmp-")
    replace_durably(tmp_path / "b", b"another")
    assert names(tmp_path) == ["a", "b"] and (tmp_path / "a").read_bytes() == b"old"


def test_a_folder_is_there_whatever_the_moment(tmp_path: Path) -> None:
    """Between the two renames of a replacement it has no name: the next sweep gives it back."""
    moments = []
    for kill in range(1, 20):
        replaced(tmp_path / "out", b"old")
        try:
            left_by(lambda: replaced(tmp_path / "out", b"new"), tmp_path, kill=kill)
        except AssertionError:
            break
        moments.append((tmp_path / "out").is_dir())
        sweep(tmp_path)
        assert names(tmp_path) == ["out", "out/file"] and (tmp_path / "out/file").read_bytes() in (b"old", b"new")
    assert len(moments) > 5 and False in moments


def test_a_failed_rename_gives_the_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(tmp_path / "out", b"old")
    real = os.rename

    def failing(path: Path, target: Path) -> None:
        if str(path).endswith(".new"):
            raise OSError(5, "Input/output error")
        real(path, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="Input/output"):
        replaced(tmp_path / "out", b"new")
    assert names(tmp_path) == ["out", "out/file"] and (tmp_path / "out/file").read_bytes() == b"old"


def test_what_a_living_process_holds_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    mine = (".electra-tmp-note", ".a.0123abcd", "electra-tmp-0123abcd", ".electra-tmp-0123abcd.txt")
    for name in mine:
        (tmp_path / name).write_text("mine")
    with new_folder(tmp_path / "out") as new, scratch(tmp_path) as held:
        new.mkdir()

        def other() -> int:
            sweep(tmp_path)
            return int(not (new.is_dir() and held.is_dir()))

        assert in_a_child(other) == 0
        replace_durably(tmp_path / "a", b"text")
        assert new.is_dir() and held.is_dir()
    assert names(tmp_path) == sorted([*mine, "a", "out"])


def test_below_a_folder(tmp_path: Path) -> None:
    inner = tmp_path / "cells" / "cola"
    inner.mkdir(parents=True)
    left_by(lambda: replace_durably(inner / "a", b"new"), inner, kill=3)
    (inner / ".electra-tmp-0123abcd.new").mkdir()  # its file is gone already
    sweep(tmp_path)
    assert len(names(inner)) == 2
    sweep(tmp_path, deep=True)
    assert not names(inner)
