"""Going on with a run whose folder is not as it was: nothing is begun again in silence, nothing hangs, no row goes without a word."""

from __future__ import annotations

import errno
import json
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.prepared import small_config
from tests.reliability.forking import listing
from tests.train.test_resume import assert_same_end, curve

from electra_trainer.errors import CheckpointError, DataError, StorageError
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.runs.checkpoint import numbered, save
from electra_trainer.runs.metrics import readable_rows, truncated
from electra_trainer.runs.progress import Display
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.runs.verified import read, sealed
from electra_trainer.settings.records import overlay, to_dict
from electra_trainer.train import loop
from electra_trainer.train.loop import pretrain


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return go_on(data, tmp_path_factory.mktemp("refused") / "whole")


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A run that was killed after step 8 of 12, some rows beyond it written."""
    shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-00000012")
    return tmp_path / "run"


def go_on(data: Path, out: Path, **changes: Any) -> Path:
    return pretrain(small_config(layers=1, **changes), data, out=out, device="cpu", quiet=True)


def kept(run: Path) -> dict[str, Any]:
    """Files of a run, except the time of its lock and its messages."""
    return {name: facts for name, facts in listing(run).items() if name not in (".lock", "log.txt", "status.json")}


def test_a_disk_that_does_not_answer_and_then_does(
    data: Path, whole: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real = kept(run), os.open

    def ill(path: Any, *arguments: Any, **more: Any) -> int:
        if str(path).endswith("manifest.json") and "step-" in str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", ill)
        with pytest.raises((StorageError, CheckpointError)) as refused:
            go_on(data, run)
    assert isinstance(refused.value, StorageError) and "cannot be read now" in str(refused.value)
    assert kept(run) == before
    assert_same_end(whole, go_on(data, run))


def test_changed_settings_are_named_and_going_on_waits_for_the_old_ones(data: Path, whole: Path, run: Path) -> None:
    """Somebody who would have the run longer changes config.json and the command alike."""
    config = run / "config.json"
    old = config.read_text()
    settings = json.loads(old)
    settings["schedule"]["steps"] = 20
    config.write_text(json.dumps(settings, indent=1))
    before = kept(run)
    longer = overlay(small_config(layers=1), config)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"schedule\.steps: 12 -> 20\)\. Put config\.json back as it was"):
            pretrain(longer, data, out=run, device="cpu", quiet=True)
        assert kept(run) == before
    config.write_text(old)
    assert_same_end(whole, go_on(data, run))


@pytest.mark.parametrize("left", ["nothing", "an empty folder"])
def test_checkpoints_that_are_gone_are_asked_for(left: str, data: Path, whole: Path, run: Path, tmp_path: Path) -> None:
    (run / "checkpoints").rename(tmp_path / "unmounted")
    if left == "an empty folder":
        (run / "checkpoints").mkdir()
    before = kept(run)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"metrics\.jsonl says that the run had one.*put the folder back"):
            go_on(data, run)
        assert kept(run) == before
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    (tmp_path / "unmounted").rename(run / "checkpoints")
    assert_same_end(whole, go_on(data, run))


def test_a_start_that_ended_before_its_first_save_begins_by_itself(
    data: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop.Pretraining, "save", dies)
        with pytest.raises(KeyboardInterrupt):
            go_on(data, tmp_path / "run")
    assert (tmp_path / "run" / "config.json").exists() and not numbered(tmp_path / "run" / "checkpoints")
    assert_same_end(whole, go_on(data, tmp_path / "run"))


@pytest.mark.parametrize("name", ["metrics.jsonl", "examples.jsonl"])
def test_a_pipe_in_place_of_the_rows_is_refused(name: str, data: Path, run: Path) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(DataError, match=f"{name}: is not a regular file"):
        go_on(data, run)


@pytest.mark.parametrize("name", ["log.txt", ".lock"])
def test_a_pipe_that_would_be_written_to_is_not_waited_for(name: str, data: Path, run: Path) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    try:
        go_on(data, run)
    except StorageError as error:
        assert name == ".lock", error


def test_rows_over_a_gigabyte_are_refused(data: Path, run: Path) -> None:
    with (run / "metrics.jsonl").open("r+b") as sparse:
        sparse.truncate(2 << 30)
    with pytest.raises(DataError, match=r"metrics\.jsonl: is over 1,024 MiB"):
        go_on(data, run)


DAMAGE = {
    "cut": b'{"step": 3, "lo\n',
    "no step": b'{"loss": 1.0}\n',
    "noise": b"\x00\xff\n",
    "empty": b"\n",
    "deep": b"[" * 9999 + b"\n",
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_row_that_cannot_be_read_stays_and_is_reported(kind: str, data: Path, whole: Path, run: Path) -> None:
    for name in ("metrics.jsonl", "examples.jsonl"):
        path = run / name
        lines = path.read_bytes().splitlines(keepends=True)
        lines[0] = DAMAGE[kind]
        path.write_bytes(b"".join(lines))
    go_on(data, run)
    sound = curve(whole)
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    assert lines[0] == DAMAGE[kind] and len(lines) == len(sound)
    assert [row["step"] for row in readable_rows(run / "metrics.jsonl")] == [row["step"] for row in sound][1:]
    said = (run / "log.txt").read_text()
    assert "metrics.jsonl: DAMAGED. Of the lines up to step 8, 1 cannot be read and stay as they are" in said
    assert "examples.jsonl: DAMAGED" in said


def test_what_stays_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [b'{"step": %d}\n' % step for step in (1, 2, 3, 4, 5)]
    for damaged, left, unreadable, lost in (
        (rows, rows[:3], 0, 0),
        ([*rows, b'{"st'], rows[:3], 0, 0),  # what a kill leaves
        ([*rows[:2], b'{"step": 3}'], rows[:3], 0, 0),
        ([rows[0], b"x\n", b"y\n", *rows[2:]], [rows[0], b"x\n", b"y\n", rows[2]], 2, 0),
        ([*rows[:3], b"x\n", rows[4]], rows[:3], 0, 1),
        ([rows[4], b"x\n", *rows[:3]], [b"x\n", *rows[:3]], 1, 0),
        ([b"x" * (17 << 20) + b"\n", *rows], [b"x" * (17 << 20) + b"\n", *rows[:3]], 1, 0),
        ([b'{"step": NaN}\n', rows[2]], [b'{"step": NaN}\n', rows[2]], 1, 0),
        ([], [], 0, 0),
    ):
        path.write_bytes(b"".join(damaged))
        assert truncated(path, 3) == (b"".join(left), unreadable, lost)


def test_export_of_weights_that_are_no_numbers_says_that(run: Path, tmp_path: Path) -> None:
    import safetensors.torch
    from tests.train.test_checkpoint import reseal_files

    for _, path in numbered(run / "checkpoints"):
        weights = safetensors.torch.load_file(path / "weights.safetensors")
        next(iter(weights.values()))[0] = float("nan")
        (path / "weights.safetensors").write_bytes(safetensors.torch.save(weights))
        reseal_files(path)
    with pytest.raises(CheckpointError, match="holds NaN or infinite values") as refused:
        export_run(run, tmp_path / "out")
    assert "Check the disk" not in str(refused.value) and not (tmp_path / "out").exists()


def test_a_run_that_resumes_before_what_it_passed_by(data: Path, run: Path) -> None:
    """Checkpoints of later steps that are of something else do not push out those that the run makes now."""
    path = run / "checkpoints" / "step-00000011"
    shutil.copytree(run / "checkpoints" / "step-00000008", path)
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["sha256"]
    (path / "manifest.json").write_bytes(sealed({**manifest, "step": 11, "data_sha256": "0" * 64}))
    made = small_config(layers=1)
    few = replace(made, checkpoint=replace(made.checkpoint, keep=1))
    (run / "config.json").write_text(json.dumps(to_dict(few)))
    origin = RunFolder(run).origin
    saved = read(run / "checkpoints" / "step-00000008")
    save(run / "checkpoints", replace(saved, step=10), origin=origin, keep=1)
    assert [step for step, _ in numbered(run / "checkpoints")] == [10, 11]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_what_cannot_be_said_is_no_reason_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal is gone, or messages go to the disk that is full."""
    folder = RunFolder(tmp_path / "run")
    folder.open_for_writing()
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr("sys.stderr", full)
        Display(total=1, quiet=True).warn("SAVING FAILED")
        Display(total=1).warn("SAVING FAILED")
        monkeypatch.setattr(folder, "_write_waiting", lambda name: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        folder.append("metrics.jsonl", {"step": 1})
        monkeypatch.undo()
        with suppress(OSError):  # what stands in its buffer
            full.close()
