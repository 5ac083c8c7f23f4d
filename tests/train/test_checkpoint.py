"""A checkpoint is whole or it is not there; a damaged one is refused, set aside, and the one before is taken."""

from __future__ import annotations

import errno
import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from electra_trainer.errors import CheckpointError, MissingInputError, StorageError
from electra_trainer.files import durable
from electra_trainer.files.durable import Content, pieces, replace_durably
from electra_trainer.runs import checkpoint
from electra_trainer.runs.checkpoint import load_newest, numbered, of_step, save
from electra_trainer.runs.verified import Origin, Saved, read, sealed

RUN = Origin(run_id="run-1", config_sha256="1" * 64, data_sha256="2" * 64)
FILES = ("weights.safetensors", "optimizer.safetensors", "state.json", "manifest.json")


def made(step: int) -> Saved:
    random = torch.Generator().manual_seed(step)
    weight = torch.randn(4, 3, generator=random)
    return Saved(
        step=step,
        weights={"a.weight": weight, "b.bias": torch.tensor(float(step))},
        optimizer={"a.weight/exp_avg": weight.T, "a.weight/step": torch.tensor(3.0)},  # a view, not contiguous
        state={"seconds": step + 0.25},
    )


def save_steps(folder: Path, *steps: int, keep: int = 10) -> list[Path]:
    return [save(folder, made(step), origin=RUN, keep=keep) for step in steps]


def load(folder: Path, warnings: list[str] | None = None, origin: Origin = RUN) -> Saved | None:
    return load_newest(folder, origin=origin, warn=(warnings if warnings is not None else []).append)


def assert_same(found: Saved | None, expected: Saved) -> None:
    assert found is not None
    assert found.step == expected.step and found.state == expected.state
    for mine, theirs in ((found.weights, expected.weights), (found.optimizer, expected.optimizer)):
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_comes_back_bit_for_bit(tmp_path: Path) -> None:
    (path,) = save_steps(tmp_path / "checkpoints", 12)
    assert path.name == "step-00000012"
    assert sorted(file.name for file in path.iterdir()) == sorted(FILES)
    assert_same(load(tmp_path / "checkpoints"), made(12))
    assert_same(of_step(tmp_path / "checkpoints", origin=RUN), made(12))
    assert_same(read(path), made(12))


def test_nothing_saved_yet(tmp_path: Path) -> None:
    assert load(tmp_path / "not there") is None
    with pytest.raises(MissingInputError):
        of_step(tmp_path / "not there", origin=RUN)


def test_keeps_the_newest_by_number(tmp_path: Path) -> None:
    save_steps(tmp_path, 1, 2, 3, keep=2)
    assert [step for step, _ in numbered(tmp_path)] == [2, 3]
    save_steps(tmp_path, 99_999_999, 123_456_789, keep=3)
    assert [step for step, _ in numbered(tmp_path)] == [3, 99_999_999, 123_456_789]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(bytes(content))


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" x")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "truncated": truncate, "empty": empty, "bit-flipped": flip, "lengthened": lengthen, "missing": Path.unlink,
}  # fmt: skip


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_the_one_before_taken(
    file: str, damage: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    old, new = save_steps(tmp_path, 1, 2)
    DAMAGE[damage](new / file)
    assert_same(of_step(tmp_path, origin=RUN), made(1))
    assert "Trying the checkpoint before it" in capfd.readouterr().err
    assert new.is_dir()  # looking sets nothing aside
    warnings: list[str] = []
    assert_same(load(tmp_path, warnings), made(1))
    assert old.is_dir() and not new.exists()
    (aside,) = [path for path in tmp_path.iterdir() if path != old]
    assert aside.name.startswith(".bad-step-00000002")
    assert len(warnings) == 1 and new.name in warnings[0] and aside.name in warnings[0]
    save_steps(tmp_path, 2)  # and the run goes on over the same step
    assert_same(load(tmp_path), made(2))


def test_every_byte_is_watched(tmp_path: Path) -> None:
    """One bit flipped at each place of each file."""
    (path,) = save_steps(tmp_path, 1)
    for file in FILES:
        whole = (path / file).read_bytes()
        for place in range(0, len(whole), max(1, len(whole) // 40)):
            changed = bytearray(whole)
            changed[place] ^= 1
            (path / file).write_bytes(bytes(changed))
            with pytest.raises(CheckpointError):
                read(path, origin=RUN)
        (path / file).write_bytes(whole)
    assert_same(read(path, origin=RUN), made(1))


def test_never_silently_from_the_beginning(tmp_path: Path) -> None:
    """All damaged: an error, and again an error when the same command is repeated."""
    for path in save_steps(tmp_path, 1, 2):
        flip(path / "weights.safetensors")
    for _ in range(2):
        with pytest.raises(CheckpointError):
            load(tmp_path)
    assert len([path for path in tmp_path.iterdir() if path.name.startswith(".bad-")]) == 2


def test_another_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    save_steps(tmp_path, 1)
    with pytest.raises(CheckpointError, match="none of its 1"):
        of_step(tmp_path, origin=replace(RUN, run_id="run-2"))
    with pytest.raises(CheckpointError):
        load(tmp_path, origin=replace(RUN, run_id="run-2"))


@pytest.mark.parametrize("field, file", [("config_sha256", "config.json"), ("data_sha256", "environment.json")])
def test_other_settings_or_data_are_told_apart(field: str, file: str, tmp_path: Path) -> None:
    """A run whose settings or data were exchanged under it."""
    (path,) = save_steps(tmp_path, 1)
    with pytest.raises(CheckpointError, match=f"than {file} of the run has now"):
        read(path, origin=replace(RUN, **{field: "3" * 64}))


def test_another_format_is_refused(tmp_path: Path) -> None:
    (path,) = save_steps(tmp_path, 1)
    body = json.loads((path / "manifest.json").read_text())
    del body["sha256"]
    (path / "manifest.json").write_bytes(sealed({**body, "format": 1}))
    with pytest.raises(CheckpointError, match="format 1, this version reads 2"):
        read(path, origin=RUN)


def test_a_renamed_or_added_to_checkpoint_is_refused(tmp_path: Path) -> None:
    (path,) = save_steps(tmp_path, 1)
    renamed = path.rename(tmp_path / "step-00000009")
    with pytest.raises(CheckpointError, match="that of step 1"):
        read(renamed, origin=RUN)
    renamed.rename(path)
    (path / "weights (copy).safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="was added"):
        read(path, origin=RUN)


def test_only_the_runs_own_old_ones_go(tmp_path: Path) -> None:
    """Others with higher and lower numbers stay and push nothing out."""
    for step in (3, 900):
        save(tmp_path, made(step), origin=replace(RUN, run_id="run-2"), keep=9)
    (tmp_path / "step-00000005").mkdir()
    save_steps(tmp_path, 10, 20, 30, keep=2)
    assert [step for step, _ in numbered(tmp_path)] == [3, 5, 20, 30, 900]


def test_a_step_that_is_there_and_damaged_is_saved_again(tmp_path: Path) -> None:
    (path,) = save_steps(tmp_path, 1)
    flip(path / "state.json")
    save_steps(tmp_path, 1)
    assert_same(load(tmp_path), made(1))
    assert [found.name[:5] for found in sorted(tmp_path.iterdir())] == [".bad-", "step-"]


def test_a_disk_that_keeps_something_else_is_found_out_before_old_ones_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (old,) = save_steps(tmp_path, 1, keep=1)
    real = checkpoint.write_durably

    def write(path: Path, content: Content) -> None:
        real(path, content)
        if path.name == "optimizer.safetensors":
            flip(path)

    monkeypatch.setattr(checkpoint, "write_durably", write)
    with pytest.raises(StorageError, match="differs from what was written"):
        save_steps(tmp_path, 2, keep=1)
    assert list(tmp_path.iterdir()) == [old]


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_steps(tmp_path, 1)

    def fail(path: Path) -> object:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "iterdir", fail)
    with pytest.raises(StorageError):
        load(tmp_path)


def test_a_pipe_or_a_huge_file_is_not_read(tmp_path: Path) -> None:
    (path,) = save_steps(tmp_path, 1)
    for file in FILES:
        whole = (path / file).read_bytes()
        (path / file).unlink()
        os.mkfifo(path / file)
        with pytest.raises(CheckpointError, match="is not a file of at most"):
            read(path)
        (path / file).unlink()
        with (path / file).open("wb") as sparse:
            sparse.truncate(1 << 40)
        with pytest.raises(CheckpointError, match="is not a file of at most"):
            read(path)
        (path / file).write_bytes(whole)
    assert_same(read(path), made(1))


def reseal(path: Path, **changes: object) -> None:
    """Rewrite a manifest with other contents and a seal that fits."""
    body = json.loads((path / "manifest.json").read_text())
    body.pop("sha256")
    body |= changes
    (path / "manifest.json").write_bytes(sealed(body))


def reseal_files(path: Path) -> None:
    """Make a manifest fit the files that are there."""
    reseal(path, files={name: checkpoint._facts((path / name).read_bytes()) for name in FILES[:3]})


@pytest.mark.parametrize(
    "changes", [{"format": 3}, {"files": {}}, {"files": []}, {"step": "x"}, {"files": {"state.json": 3}}]
)
def test_a_strange_manifest_is_refused(changes: dict[str, object], tmp_path: Path) -> None:
    (path,) = save_steps(tmp_path, 1)
    reseal(path, **changes)
    with pytest.raises(CheckpointError):
        read(path)


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("exploded",)


def test_a_pickle_is_not_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even one with a manifest that fits."""
    monkeypatch.chdir(tmp_path)
    (path,) = save_steps(tmp_path / "checkpoints", 1)
    (path / "weights.safetensors").write_bytes(pickle.dumps(Bomb()))
    reseal_files(path)
    with pytest.raises(CheckpointError):
        read(path, origin=RUN)
    assert not (tmp_path / "exploded").exists()


def test_old_ones_go_only_after_the_new_one_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_steps(tmp_path, 1, keep=1)
    seen: list[list[int]] = []
    real = Path.rename

    def rename(path: Path, target: Path) -> Path:
        seen.append([step for step, _ in numbered(tmp_path)])
        return real(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    save_steps(tmp_path, 2, keep=1)
    assert seen == [[1], [1, 2]]  # into place, then the old one out of it
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "step-best").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("mine")
    save_steps(tmp_path, 1, 2, 3, keep=1)
    assert (tmp_path / "step-best").is_dir() and (tmp_path / "notes.txt").read_text() == "mine"


def test_replacing_a_file_leaves_the_old_one_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    replace_durably(path, b"old")

    def half(path: Path, content: Content) -> None:
        path.write_bytes(b"".join(pieces(content))[:5])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(StorageError, match="full"):
        patch.setattr(durable, "write_durably", half)
        replace_durably(path, b"a new and longer one")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
    replace_durably(path, b"new")
    assert path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]


def test_too_little_space_is_reported_before_work_begins(tmp_path: Path) -> None:
    checkpoint.require_space(tmp_path, 1)
    with pytest.raises(StorageError, match="free"):
        checkpoint.require_space(tmp_path, 1 << 60)
