"""Save and load checkpoints: folders that appear whole or not at all.

Saving: write into a hidden folder next to it, each file's SHA-256 taken from memory, flush and fsync; the manifest
last; read back
what the disk has; rename; fsync the parent; only then remove old ones of the same run. Loading: newest first,
everything verified (verified.py); a damaged one is renamed, with a warning, and the one before is taken; nothing is
renamed because of a failing disk or a changed config.json. Tensors are safetensors, the rest JSON; nothing is
unpickled.

`Saver` saves in a thread next to the steps: a step waits for a copy of the tensors, never for the disk. One checkpoint
is written at a time; the next save, a stop and the end wait for it. A failed save is reported, the checkpoint before it
stays and training continues; several in a row end the run. The last save must succeed.
"""

import errno
import hashlib
import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from electra_trainer import errors, version
from electra_trainer.files.durable import Content, make_folder, pieces, sync_folder, write_durably
from electra_trainer.runs import run_folder, verified
from electra_trainer.runs.verified import FORMAT, NAME, PIECE, Builds, Origin, Saved, TensorFile, Unfit, read, sealed

UNFINISHED = ".tmp-"
"""Prefix of folders that are being written or removed."""
_BAD = ".bad-"
"""Prefix of folders that did not verify."""
_OTHER = ".other-"
"""Prefix for intact checkpoints of another run that had to be moved aside."""


def save(folder: Path, saved: Saved, *, origin: Origin, keep: int, always: frozenset[int] = frozenset()) -> Path:
    """Save a checkpoint under `folder`, then remove all of this run but the `keep` newest and those of the steps in
    `always`.

    Raises:
        StorageError: the disk is full, read-only or failing; earlier checkpoints are untouched.
    """
    final = folder / f"step-{saved.step:08d}"
    try:
        make_folder(folder)
        _clear_unfinished(folder)
        if final.exists():  # a step has one outcome: if this one verifies, it is the same
            try:
                read(final, origin=origin)
                sync_folder(folder)
                return final
            except Unfit:
                _set_aside(final, _OTHER)
            except errors.CheckpointError:
                _set_aside(final)
        _write(folder / f"{UNFINISHED}{saved.step}-{uuid.uuid4().hex[:8]}", final, saved, origin)
    except OSError as error:
        raise errors.storage_error(error, final, writing=True) from None
    _rotate(folder, run_id=origin.run_id, step=saved.step, keep=keep, always=always)
    return final


def _write(temporary: Path, final: Path, saved: Saved, origin: Origin) -> None:
    """Write, read back, and rename. Raises OSError, after which the temporary folder is gone."""
    contents: dict[str, Content] = {
        "weights.safetensors": TensorFile(saved.weights),
        "optimizer.safetensors": TensorFile(saved.optimizer),
        "state.json": json.dumps(saved.state, indent=1).encode(),
    }
    facts = {name: _facts(content) for name, content in contents.items()}
    contents["manifest.json"] = _manifest(facts, step=saved.step, origin=origin)
    facts["manifest.json"] = _facts(contents["manifest.json"])
    try:
        temporary.mkdir()
        for name, content in contents.items():
            write_durably(temporary / name, content)
        sync_folder(temporary)
        for name in contents:
            if _read_back(temporary / name) != facts[name]:
                raise OSError(errno.EIO, f"{name} differs from what was written when it is read back")
        temporary.rename(final)
        sync_folder(final.parent)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _read_back(path: Path) -> dict[str, Any]:
    """The facts of a file on the disk, not in the page cache, where the system can tell them apart."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return _facts(iter(lambda: file.read(PIECE), b""))


def _rotate(folder: Path, *, run_id: str, step: int, keep: int, always: frozenset[int]) -> None:
    """Remove older checkpoints of a run than that of `step`. What cannot be read or removed stays, without an error:
    the new one is saved.

    Checkpoints of later steps did not fit this run when it resumed; they are kept and not counted.
    """
    mine = [(number, path) for number, path in numbered(folder) if number <= step and _run_of(path) == run_id]
    for old in [path for number, path in mine[:-keep] if number not in always]:
        with suppress(OSError):
            aside = old.with_name(f"{UNFINISHED}{old.name}-{uuid.uuid4().hex[:8]}")
            old.rename(aside)  # so that a half-removed one never has a checkpoint's name
            shutil.rmtree(aside, ignore_errors=True)


def _run_of(path: Path) -> str | None:
    try:
        return str(verified.read_manifest(path)["run_id"])
    except (OSError, errors.CheckpointError):
        return None


def _clear_unfinished(folder: Path) -> None:
    for leftover in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _set_aside(path: Path, prefix: str = _BAD) -> Path:
    """Rename a checkpoint. Raises OSError."""
    return path.rename(path.with_name(f"{prefix}{path.name}-{uuid.uuid4().hex[:6]}"))


def load_newest(
    folder: Path, *, origin: Origin, warn: Callable[[str], None], network: Builds | None = None
) -> Saved | None:
    """The newest checkpoint that verifies, or None if there is none.

    A damaged one is set aside. A whole one of something else stays as it is, so that a run with a wrong config.json
    resumes once that is corrected.

    Args:
        network: builds the network of its tensors: see `read`.

    Raises:
        CheckpointError: none of the checkpoints can be used; starting afresh would lose them silently.
        StorageError: the disk cannot read the folder or a checkpoint now; nothing is changed. Or a damaged one cannot
            be set aside.
    """
    _clear_unfinished(folder)
    unfit: list[Unfit] = []
    why = ""
    for _, path in reversed(numbered(folder)):
        try:
            saved = read(path, origin=origin, network=network, timed=True)
        except Unfit as error:
            unfit.append(error)
        except errors.CheckpointError as error:
            try:
                aside = _set_aside(path)
            except OSError as failure:
                raise errors.storage_error(failure, path) from None
            why = why or f"{error} "
            warn(f"{error} Set aside as {aside.name}; trying the checkpoint before it.")
        else:
            for other in unfit:
                warn(f"{other} It stays where it is; step {saved.step:,} is taken.")
            return saved
    if unfit:
        raise unfit[0]
    if bad := len(list(folder.glob(f"{_BAD}step-*"))):
        raise errors.CheckpointError(
            f"{folder}: none of its {bad} checkpoints verifies (set aside as {_BAD}*). {why}Restore one from a backup, "
            "or start again in another --out."
        )
    return None


def of_step(
    folder: Path, step: int | None = None, *, origin: Origin, network: Builds | None = None, timed: bool = False
) -> Saved:
    """The checkpoint of a step, by default the newest that verifies, for reading only: nothing is set aside, a damaged
    one is reported on standard error.

    Args:
        network, timed: see `read`.

    Raises:
        MissingInputError: there is none. CheckpointError: none can be used. StorageError: the disk cannot read the
            folder or a checkpoint now.
    """
    kept, why = dict(numbered(folder)), ""
    if not kept:
        raise errors.MissingInputError(f"{folder}: no checkpoint is here yet. Wait for the run, or start it again.")
    if step is not None and step not in kept:
        raise errors.MissingInputError(
            f"{folder}: no checkpoint of step {step} is there. Give one of {', '.join(map(str, kept))}; "
            "--checkpoint.keep says how many stay."
        )
    if step is not None:
        return read(kept[step], origin=origin, network=network, timed=timed)
    for path in reversed(kept.values()):
        try:
            return read(path, origin=origin, network=network, timed=timed)
        except errors.CheckpointError as error:
            errors.tell(f"{error} Trying the checkpoint before it.")
            why = why or (str(error) if isinstance(error, Unfit) else "Restore one from a backup.")
    raise errors.CheckpointError(f"{folder}: none of its {len(kept)} checkpoints can be used. {why}")


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """Committed checkpoints by step, oldest first.

    Raises:
        StorageError: the folder exists and cannot be read, which is not the same as empty.
    """
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise errors.storage_error(error, folder) from None
    return sorted((int(match[1]), folder / name) for name in names if (match := NAME.fullmatch(name)))


def require_space(folder: Path, bytes_needed: int) -> None:
    """Raise StorageError unless the disk has room for `bytes_needed`."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise errors.storage_error(error, folder) from None
    if free < bytes_needed:
        raise errors.StorageError(
            f"{folder}: {free / 1e6:,.0f} MB free, a run of this size needs {bytes_needed / 1e6:,.0f} MB for its "
            "checkpoints. Free some space or choose another --out."
        )


def _facts(content: Content) -> dict[str, Any]:
    """A file's entry in the manifest, from memory."""
    digest, size = hashlib.sha256(), 0
    for piece in pieces(content):
        digest.update(piece)
        size += len(piece)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _manifest(files: dict[str, dict[str, Any]], *, step: int, origin: Origin) -> bytes:
    versions = {"electra_trainer": version.__version__, "torch": torch.__version__}
    return sealed({"format": FORMAT, **asdict(origin), "step": step, "versions": versions, "files": files})


FAILURES_IN_A_ROW = 3
"""Saves that may fail one after another before the run ends."""
RETRY_AFTER = 1.0
"""Seconds before a save that must succeed is repeated."""


@dataclass(kw_only=True)
class Saver:
    """Saves a run. A context manager, which waits at its end for the save in progress."""

    folder: run_folder.RunFolder
    """The run, which has begun."""
    keep: int
    """Newest checkpoints that stay."""
    say: Callable[[str], None]
    """Shows a person one line."""
    always: frozenset[int] = frozenset()
    """Steps whose checkpoints stay too."""
    _thread: threading.Thread | None = None
    _error: BaseException | None = None
    _failures: int = 0

    def __post_init__(self) -> None:
        self._origin = self.folder.origin

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, *_: object) -> None:
        if failure := self._outcome():
            self.say(f"the last save failed: {failure}")

    def write(self, saved: Saved) -> None:
        """Save now, metrics.jsonl and examples.jsonl first, and wait for it; StorageError."""
        self.folder.sync_rows()
        save(self.folder.checkpoints, saved, origin=self._origin, keep=self.keep, always=self.always)

    def begin(self, saved: Saved) -> None:
        """Copy the tensors and write them while training continues; waits only for the save before.

        Raises:
            StorageError: see `check`.
        """
        self._settle()
        copied = replace(saved, weights=_copied(saved.weights), optimizer=_copied(saved.optimizer))
        self._thread = threading.Thread(target=self._write_aside, args=(copied,), name="electra-save")
        self._thread.start()

    def check(self) -> None:
        """At the end of a step: report a save that has failed since.

        Raises:
            StorageError: it was the last of several in a row.
        """
        if self._thread is not None and not self._thread.is_alive():
            self._settle()

    def finish(self, saved: Saved) -> None:
        """The last save: it waits, and is tried twice. Raises StorageError."""
        if failure := self._outcome():
            self.say(f"a save failed: {failure}")
        surely(lambda: self.write(saved), say=self.say)

    def _write_aside(self, saved: Saved) -> None:
        try:
            self.write(saved)
        except BaseException as error:  # raised again in the thread of the steps
            self._error = error

    def _outcome(self) -> errors.StorageError | None:
        """Wait for the save in progress. Returns its error if the disk is to blame; any other error is raised."""
        if self._thread is None:
            return None
        self._thread.join()
        error, self._thread, self._error = self._error, None, None
        if error is not None and not isinstance(error, errors.StorageError):
            raise error
        self._failures = self._failures + 1 if error else 0
        return error

    def _settle(self) -> None:
        if (failure := self._outcome()) is None:
            return
        kept = numbered(self.folder.checkpoints)
        newest = f"that of step {kept[-1][0]:,}" if kept else "none"
        if self._failures >= FAILURES_IN_A_ROW:
            raise errors.StorageError(
                f"{self._failures} saves in a row failed; the newest checkpoint is {newest}. {failure}"
            )
        self.say(
            f"SAVING FAILED ({self._failures} of {FAILURES_IN_A_ROW} before the run stops): {failure} Training "
            f"continues; the newest checkpoint is {newest}."
        )


def surely(write: Callable[[], object], *, say: Callable[[str], None]) -> None:
    """Call `write`, and once more if the disk failed. Raises StorageError."""
    try:
        write()
    except errors.StorageError as error:
        say(f"{error} Trying once more.")
        time.sleep(RETRY_AFTER)
        write()


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the tensors in separate memory, on the CPU."""
    layout = torch.contiguous_format
    return {name: tensor.detach().to("cpu", copy=True, memory_format=layout) for name, tensor in tensors.items()}
