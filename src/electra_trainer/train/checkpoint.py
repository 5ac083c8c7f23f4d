"""A checkpoint is a folder that appears whole or not at all.

Saving: write into a hidden folder beside it, each file's SHA-256 taken from memory, flush and fsync; the manifest last; read back
what the disk has; rename; fsync the parent; only then remove old ones of the same run. Loading: newest first, everything verified;
one that does not verify is set aside under another name, loudly, and the one before is taken. Tensors are safetensors, the rest
JSON; nothing is unpickled.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from electra_trainer import __version__
from electra_trainer.durable import make_folder, sync_folder, write_durably
from electra_trainer.errors import CheckpointError, MissingInputError, StorageError, storage_error

FORMAT = 2
_OLDER = 1
"""Still read; it has the run's id and no hashes of settings and data."""
_NAME = re.compile(r"step-(\d{8,})")
_MANIFEST_BYTES = 1 << 20
_UNFINISHED = ".tmp-"
"""Folders of this prefix are being written or removed."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a checkpoint is of: one run, with its settings and its data."""

    run_id: str
    config_sha256: str
    """Of the settings, as config.json has them."""
    data_sha256: str
    """Of the hashes of vocabulary and rows, as environment.json has them."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What a checkpoint holds."""

    step: int
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]
    """Plain numbers: seconds, tokens, skipped steps."""


def hash_of(value: Any) -> str:
    """SHA-256 of plain values, whatever the order of their names."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def save(folder: Path, saved: Saved, *, origin: Origin, keep: int) -> Path:
    """Save a checkpoint under `folder`, then remove all but the `keep` newest of this run.

    Raises:
        StorageError: the disk is full, read-only or failing; earlier checkpoints are untouched.
    """
    final = folder / f"step-{saved.step:08d}"
    try:
        make_folder(folder)
        _clear_unfinished(folder)
        if final.exists():  # a step has one outcome: what is there, if it verifies, is this
            with suppress(CheckpointError):
                read(final, origin=origin)
                sync_folder(folder)
                return final
            _set_aside(final)
        _write(folder / f"{_UNFINISHED}{saved.step}-{uuid.uuid4().hex[:8]}", final, saved, origin)
    except OSError as error:
        raise storage_error(error, final, writing=True) from None
    _rotate(folder, run_id=origin.run_id, keep=keep)
    return final


def _write(temporary: Path, final: Path, saved: Saved, origin: Origin) -> None:
    """Write, read back, and rename; OSError, after which the temporary folder is gone."""
    contents = {
        "weights.safetensors": safetensors.torch.save(_contiguous(saved.weights)),
        "optimizer.safetensors": safetensors.torch.save(_contiguous(saved.optimizer)),
        "state.json": json.dumps(saved.state, indent=1).encode(),
    }
    contents["manifest.json"] = _manifest(contents, step=saved.step, origin=origin)
    try:
        temporary.mkdir()
        for name, content in contents.items():
            write_durably(temporary / name, content)
        sync_folder(temporary)
        for name, content in contents.items():
            if _read_back(temporary / name) != content:
                raise OSError(errno.EIO, f"{name} reads back otherwise than it was written")
        temporary.rename(final)
        sync_folder(final.parent)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _read_back(path: Path) -> bytes:
    """A file as the disk has it, not as memory remembers it, where the system can tell them apart."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return file.read()


def _rotate(folder: Path, *, run_id: str, keep: int) -> None:
    """Remove old checkpoints of a run; what cannot be read or removed stays, and is no error: the new one stands."""
    mine = [path for _, path in numbered(folder) if _run_of(path) == run_id]
    for old in mine[:-keep]:
        with suppress(OSError):
            aside = old.with_name(f"{_UNFINISHED}{old.name}-{uuid.uuid4().hex[:8]}")
            old.rename(aside)  # so that no half of it ever has a checkpoint's name
            shutil.rmtree(aside, ignore_errors=True)


def _run_of(path: Path) -> str | None:
    try:
        return str(_read_manifest(path)["run_id"])
    except (OSError, KeyError, TypeError, ValueError, AttributeError, CheckpointError):
        return None


def _clear_unfinished(folder: Path) -> None:
    for leftover in folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _set_aside(path: Path) -> Path:
    """Give a checkpoint that does not verify another name; OSError."""
    return path.rename(path.with_name(f".bad-{path.name}-{uuid.uuid4().hex[:6]}"))


def load_newest(folder: Path, *, origin: Origin, warn: Callable[[str], None]) -> Saved | None:
    """The newest checkpoint that verifies, or None if none was ever saved.

    Raises:
        CheckpointError: checkpoints are there and none verifies; starting afresh would lose them silently.
        StorageError: the folder cannot be read, or one that does not verify cannot be set aside.
    """
    _clear_unfinished(folder)
    for _, path in reversed(numbered(folder)):
        try:
            return read(path, origin=origin)
        except CheckpointError as error:
            try:
                aside = _set_aside(path)
            except OSError as failure:
                raise storage_error(failure, path) from None
            warn(f"{error} Set aside as {aside.name}; trying the checkpoint before it.")
    bad = len(list(folder.glob(".bad-step-*")))
    if bad:
        raise CheckpointError(
            f"{folder}: none of its {bad} checkpoints verifies (set aside as .bad-*). "
            "Restore one from a backup, or start again in another --out."
        )
    return None


def read(path: Path, *, origin: Origin | None = None) -> Saved:
    """Read one checkpoint, every byte verified against its manifest.

    Args:
        origin: what it must be of; None: of any run.

    Raises:
        CheckpointError: a byte differs, a file is missing or too many, or it is of something else.
    """
    try:
        manifest = _read_manifest(path)
        _check_origin(path, manifest, origin)
        _check_place(path, manifest)
        contents = {name: _read_verified(path / name, entry) for name, entry in manifest["files"].items()}
        return Saved(
            step=int(manifest["step"]),
            weights=safetensors.torch.load(contents["weights.safetensors"]),
            optimizer=safetensors.torch.load(contents["optimizer.safetensors"]),
            state=json.loads(contents["state.json"]),
        )
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}.") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path}: is not a checkpoint of this program: {error!r}.") from None


def newest(folder: Path, *, origin: Origin) -> Saved:
    """The newest checkpoint that verifies, for reading only: nothing is set aside, a bad one is told on standard error.

    Raises:
        MissingInputError: there is none.
        CheckpointError: none verifies.
    """
    found = numbered(folder)
    for _, path in reversed(found):
        try:
            return read(path, origin=origin)
        except CheckpointError as error:
            print(f"electra: {error} Trying the checkpoint before it.", file=sys.stderr)
    if found:
        raise CheckpointError(f"{folder}: none of its {len(found)} checkpoints verifies. Restore one from a backup.")
    raise MissingInputError(f"{folder}: no checkpoint is here yet. Wait for the run, or start it again.")


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """Committed checkpoints, oldest first, by number.

    Raises:
        StorageError: the folder is there and cannot be read, which is not the same as empty.
    """
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise storage_error(error, folder) from None
    return sorted((int(match[1]), folder / name) for name in names if (match := _NAME.fullmatch(name)))


def require_space(folder: Path, bytes_needed: int) -> None:
    """Raise StorageError unless the disk has room for `bytes_needed`."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise storage_error(error, folder) from None
    if free < bytes_needed:
        raise StorageError(
            f"{folder}: {free / 1e6:,.0f} MB free, a run of this size needs {bytes_needed / 1e6:,.0f} MB for its "
            "checkpoints. Free some space or choose another --out."
        )


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _manifest(contents: dict[str, bytes], *, step: int, origin: Origin) -> bytes:
    files = {name: {"bytes": len(c), "sha256": hashlib.sha256(c).hexdigest()} for name, c in contents.items()}
    versions = {"electra_trainer": __version__, "torch": torch.__version__}
    return _sealed({"format": FORMAT, **asdict(origin), "step": step, "versions": versions, "files": files})


def _sealed(body: dict[str, Any]) -> bytes:
    return json.dumps({**body, "sha256": hash_of(body)}, indent=1).encode()


def _read_manifest(path: Path) -> dict[str, Any]:
    content = _read_regular(path / "manifest.json", most=_MANIFEST_BYTES)
    manifest: dict[str, Any] = json.loads(content)
    del manifest["sha256"]
    if _sealed(manifest) != content:
        raise CheckpointError(f"{path}: its manifest was changed after it was written.")
    if manifest["format"] not in (FORMAT, _OLDER):
        raise CheckpointError(f"{path}: format {manifest['format']}, this version reads {FORMAT} and {_OLDER}.")
    return manifest


def _check_origin(path: Path, manifest: dict[str, Any], origin: Origin | None) -> None:
    """Whether a checkpoint is of this run, and of the settings and data that the run has now."""
    if origin is None:
        return
    if manifest["run_id"] != origin.run_id:
        raise CheckpointError(f"{path}: belongs to another run ({manifest['run_id']}, expected {origin.run_id}).")
    if manifest["format"] == _OLDER:
        return
    for name, what, file in (("config", "settings", "config.json"), ("data", "data", "environment.json")):
        if manifest[f"{name}_sha256"] != getattr(origin, f"{name}_sha256"):
            raise CheckpointError(
                f"{path}: was saved with other {what} than {file} of the run has now. Restore that file."
            )


def _check_place(path: Path, manifest: dict[str, Any]) -> None:
    """Whether the folder's name and its files are those that the manifest says."""
    named = _NAME.fullmatch(path.name)
    if named and int(named[1]) != manifest["step"]:
        raise CheckpointError(f"{path}: its manifest is that of step {manifest['step']}.")
    there = {file.name for file in path.iterdir() if not file.name.startswith(".")}
    if odd := there ^ {"manifest.json", *manifest["files"]}:
        raise CheckpointError(f"{path}: {sorted(odd)[0]!r} is missing or was added after it was saved.")


def _read_regular(path: Path, *, most: int) -> bytes:
    """A file's bytes; of one that is larger than it can be, or is no file, nothing is read."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        raise CheckpointError(f"{path}: is no file of at most {most:,} bytes.")
    return path.read_bytes()


def _read_verified(path: Path, entry: dict[str, Any]) -> bytes:
    content = _read_regular(path, most=entry["bytes"])
    if len(content) != entry["bytes"] or hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise CheckpointError(f"{path}: its bytes are not those that were saved ({len(content)} of {entry['bytes']}).")
    return content
