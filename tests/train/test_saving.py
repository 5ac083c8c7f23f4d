"""Saving beside the steps: no step waits for the disk, a failed save is reported and survived, the last one must succeed."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests import small

from electra_trainer.errors import ConfigError, StorageError
from electra_trainer.files import durable
from electra_trainer.runs import checkpoint
from electra_trainer.runs.checkpoint import FAILURES_IN_A_ROW, Saver, load_newest, numbered
from electra_trainer.runs.metrics import readable_rows
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.runs.verified import Saved
from electra_trainer.settings.records import to_dict


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.open_for_writing()
    run.begin(to_dict(small.config()), {"train_sha256": "0"})
    return run


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(checkpoint, "RETRY_AFTER", 0.0)
    return []


def made(step: int) -> Saved:
    return Saved(step=step, weights={"a": torch.full((3, 2), float(step))}, optimizer={}, state={"seconds": 0.0})


def steps_on_disk(folder: RunFolder) -> list[int]:
    return [step for step, _ in numbered(folder.checkpoints)]


def failing(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int], bool], code: int = errno.ENOSPC) -> None:
    """Let the saves fail for which `fails`, given their number from 1, is true."""
    real, count = checkpoint.save, iter(range(1, 100))

    def save(place: Path, saved: Saved, **more: object) -> Path:
        if fails(next(count)):
            raise StorageError(f"{place}: {os.strerror(code)}.")
        return real(place, saved, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint, "save", save)


def test_training_continues_while_the_disk_is_slow(
    folder: RunFolder, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`begin` returns while the disk still has nothing; what is saved is what was there then, though the weights move on."""
    disk, real = threading.Event(), checkpoint.save

    def slow(*arguments: object, **more: object) -> Path:
        assert disk.wait(30)
        return real(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint, "save", slow)
    saver, moving = Saver(folder=folder, keep=2, say=said.append), made(4)
    saver.begin(moving)
    assert steps_on_disk(folder) == []
    moving.weights["a"].mul_(-1)
    saver.check()
    disk.set()
    saver.begin(made(8))  # waits for the first one
    assert steps_on_disk(folder) in ([4], [4, 8])
    with saver:
        pass
    assert steps_on_disk(folder) == [4, 8] and said == []
    for _, path in numbered(folder.checkpoints)[1:]:
        path.rename(path.with_name("elsewhere"))
    saved = load_newest(folder.checkpoints, origin=folder.origin, warn=said.append)
    assert saved is not None and torch.equal(saved.weights["a"], made(4).weights["a"])


def test_failed_saves_are_told_and_survived(
    folder: RunFolder, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, lambda number: number in (2, 3, 5, 6))
    saver = Saver(folder=folder, keep=9, say=said.append)
    for step in range(1, 8):
        saver.begin(made(step))
    saver.finish(made(8))
    assert steps_on_disk(folder) == [1, 4, 7, 8]
    assert len(said) == 4 and all("Training continues; the newest checkpoint is that of step" in line for line in said)


def test_several_in_a_row_end_the_run(folder: RunFolder, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, lambda number: number > 1)
    saver = Saver(folder=folder, keep=9, say=said.append)
    saver.begin(made(1))
    with pytest.raises(StorageError, match=r"3 saves in a row failed; the newest checkpoint is that of step 1\."):
        for step in range(2, 9):
            saver.begin(made(step))
            while saver._thread is not None:
                saver.check()  # the error comes at the end of a step
    assert step == 1 + FAILURES_IN_A_ROW
    assert steps_on_disk(folder) == [1]


def test_the_last_save_is_tried_twice(folder: RunFolder, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, lambda number: number in (1, 3, 4))
    saver = Saver(folder=folder, keep=9, say=said.append)
    saver.finish(made(1))
    assert steps_on_disk(folder) == [1] and "Trying once more" in said[0]
    with pytest.raises(StorageError):
        saver.finish(made(2))


def test_rows_are_on_the_disk_before_a_checkpoint(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(durable, "sync_file", lambda path: synced.append(path.name))
    monkeypatch.setattr(checkpoint, "save", lambda *_, **__: synced.append("checkpoint"))
    for name in ("metrics.jsonl", "examples.jsonl"):
        folder.append(name, {"step": 1})
    Saver(folder=folder, keep=2, say=print).write(made(1))
    run = folder.path.name
    assert synced == ["metrics.jsonl", run, "examples.jsonl", run, "checkpoint"]


def test_a_failed_save_is_reported_at_the_end(
    folder: RunFolder, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, lambda number: number != 2)
    with Saver(folder=folder, keep=2, say=said.append) as saver:
        saver.begin(made(1))
        saver.finish(made(2))
        saver.begin(made(3))
    assert [line.partition(": ")[0] for line in said] == ["a save failed", "the last save failed"]


def test_an_error_that_is_not_the_disks_is_not_swallowed(
    folder: RunFolder, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(checkpoint, "save", broken)
    saver = Saver(folder=folder, keep=9, say=said.append)
    saver.begin(made(1))
    with pytest.raises(ZeroDivisionError), saver:
        pass


def test_rows_wait_for_a_full_disk(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A row that the disk takes half of leaves none of it; it comes later, in its place; a save says that it is missing."""
    folder.append("metrics.jsonl", {"step": 1})
    real = os.write

    def half(descriptor: int, content: bytes) -> int:
        if len(content) < 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, content[: len(content) // 2])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        folder.append("metrics.jsonl", {"step": 2})
        assert capfd.readouterr().err.count("the disk is full") == 1
        folder.append("metrics.jsonl", {"step": 3})
        with pytest.raises(StorageError, match="full"):
            folder.sync_rows()
    assert (folder.path / "metrics.jsonl").read_text() == '{"step": 1}\n'
    assert capfd.readouterr().err == ""
    folder.sync_rows()
    assert [row["step"] for row in readable_rows(folder.path / "metrics.jsonl")] == [1, 2, 3]


def test_rows_of_a_folder_that_is_gone(folder: RunFolder, capfd: pytest.CaptureFixture[str]) -> None:
    folder.path.rename(folder.path.with_name("elsewhere"))
    folder.append("metrics.jsonl", {"step": 1})
    assert "cannot be created there" in capfd.readouterr().err
    with pytest.raises(StorageError, match="cannot be created there"):
        folder.sync_rows()


@pytest.mark.parametrize("left", [(), ("tokenizer",), ("tokenizer", "environment.json")])
def test_a_folder_in_which_a_run_was_killed_as_it_began_is_taken_again(tmp_path: Path, left: tuple[str, ...]) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".electra-tmp-0123abcd").write_text("{")  # killed while it was being replaced
    for name in left:
        (tmp_path / name).touch()
    folder = RunFolder(tmp_path)
    folder.open_for_writing()
    folder.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([".lock", *left])


@pytest.mark.parametrize("there", [("tokenizer",), (".lock", "tokenizer", "thesis.tex"), ("environment.json",)])
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, there: tuple[str, ...]) -> None:
    for name in there:
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match="and no run"):
        RunFolder(tmp_path).open_for_writing()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(there)
