"""A checkpoint is a folder that appears whole or not at all.

Saving: write into a hidden folder beside it, each file's SHA-256 taken from memory, flush and fsync; the manifest last; rename;
fsync the parent; only then remove old ones. Loading: newest first, everything verified; one that does not verify is set aside
under another name, loudly, and the one before is taken. Tensors are safetensors, the rest JSON; nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from electra_trainer.durable import sync_folder, write_durably
from electra_trainer.errors import CheckpointError, MissingInputError, StorageError, storage_error

FORMAT = 1
_NAME = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What a checkpoint holds."""

    step: int
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]
    """Plain numbers: seconds, tokens, skipped steps."""

    def to_bytes(self) -> bytes:
        """For another process: one safetensors file."""
        tensors = {f"weights/{name}": tensor for name, tensor in self.weights.items()}
        tensors |= {f"optimizer/{name}": tensor for name, tensor in self.optimizer.items()}
        header = {"step": str(self.step), "state": json.dumps(self.state)}
        return safetensors.torch.save(_contiguous(tensors), metadata=header)

    @classmethod
    def from_bytes(cls, content: bytes) -> Saved:
        """What `to_bytes` gave."""
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
        parts: dict[str, dict[str, Tensor]] = {"weights": {}, "optimizer": {}}
        for full, tensor in safetensors.torch.load(content).items():
            kind, name = full.split("/", 1)
            parts[kind][name] = tensor
        return cls(step=int(header["step"]), state=json.loads(header["state"]), **parts)


def save(folder: Path, saved: Saved, *, run_id: str, keep: int) -> Path:
    """Save a checkpoint under `folder`, then remove all but the `keep` newest of this run.

    Raises:
        StorageError: the disk is full, read-only or failing; earlier checkpoints are untouched.
        CheckpointError: this step is there already and does not verify.
    """
    final = folder / f"step-{saved.step:08d}"
    if final.exists():  # a step has one outcome: what is there, if it verifies, is this
        read(final, run_id=run_id)
        return final
    temporary = folder / f".tmp-{saved.step}-{uuid.uuid4().hex[:8]}"
    contents = {
        "weights.safetensors": safetensors.torch.save(_contiguous(saved.weights)),
        "optimizer.safetensors": safetensors.torch.save(_contiguous(saved.optimizer)),
        "state.json": json.dumps(saved.state, indent=1).encode(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        for name, content in contents.items():
            write_durably(temporary / name, content)
        write_durably(temporary / "manifest.json", _manifest(contents, step=saved.step, run_id=run_id))
        sync_folder(temporary)
        temporary.rename(final)
        sync_folder(folder)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise storage_error(error, final) from None
    for _, old in numbered(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def load_newest(folder: Path, *, run_id: str, warn: Callable[[str], None]) -> Saved | None:
    """The newest checkpoint that verifies, or None if none was ever saved.

    Raises:
        CheckpointError: checkpoints are there and none verifies; starting afresh would lose them silently.
    """
    for leftover in folder.glob(".tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    found = numbered(folder)
    for _, path in reversed(found):
        try:
            return read(path, run_id=run_id)
        except CheckpointError as error:
            aside = path.with_name(f".bad-{path.name}-{uuid.uuid4().hex[:6]}")
            path.rename(aside)
            warn(f"{error} Set aside as {aside.name}; trying the checkpoint before it.")
    bad = len(list(folder.glob(".bad-step-*")))
    if bad:
        raise CheckpointError(
            f"{folder}: none of its {bad} checkpoints verifies (set aside as .bad-*). "
            "Restore one from a backup, or start again in another --out."
        )
    return None


def read(path: Path, *, run_id: str | None = None) -> Saved:
    """Read one checkpoint, every byte verified against its manifest."""
    try:
        manifest = _read_manifest(path)
        if run_id is not None and manifest["run_id"] != run_id:
            raise CheckpointError(f"{path}: belongs to another run ({manifest['run_id']}, expected {run_id}).")
        contents = {name: _read_verified(path / name, entry) for name, entry in manifest["files"].items()}
        return Saved(
            step=int(manifest["step"]),
            weights=safetensors.torch.load(contents["weights.safetensors"]),
            optimizer=safetensors.torch.load(contents["optimizer.safetensors"]),
            state=json.loads(contents["state.json"]),
        )
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}.") from None
    except (KeyError, TypeError, ValueError, AttributeError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path}: is not a checkpoint of this program: {error!r}.") from None


def newest(folder: Path, *, run_id: str) -> Saved:
    """The newest checkpoint that verifies, for reading only: nothing is set aside, a bad one is told on standard error.

    Raises:
        MissingInputError: there is none.
        CheckpointError: none verifies.
    """
    found = numbered(folder)
    for _, path in reversed(found):
        try:
            return read(path, run_id=run_id)
        except CheckpointError as error:
            print(f"electra: {error} Trying the checkpoint before it.", file=sys.stderr)
    if found:
        raise CheckpointError(f"{folder}: none of its {len(found)} checkpoints verifies. Restore one from a backup.")
    raise MissingInputError(f"{folder}: no checkpoint is here yet. Wait for the run, or start it again.")


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """Committed checkpoints, oldest first, by number."""
    matches = [(match, path) for path in folder.glob("step-*") if (match := _NAME.fullmatch(path.name))]
    return sorted((int(match[1]), path) for match, path in matches)


def require_space(folder: Path, bytes_needed: int) -> None:
    """Raise StorageError unless the disk has room for `bytes_needed`."""
    free = shutil.disk_usage(folder).free
    if free < bytes_needed:
        raise StorageError(
            f"{folder}: {free / 1e6:,.0f} MB free, a run of this size needs {bytes_needed / 1e6:,.0f} MB for its "
            "checkpoints. Free some space or choose another --out."
        )


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _seal(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _manifest(contents: dict[str, bytes], *, step: int, run_id: str) -> bytes:
    files = {name: {"bytes": len(c), "sha256": hashlib.sha256(c).hexdigest()} for name, c in contents.items()}
    body = {"format": FORMAT, "run_id": run_id, "step": step, "files": files}
    return json.dumps({**body, "sha256": _seal(body)}, indent=1).encode()


def _read_manifest(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((path / "manifest.json").read_bytes())
    seal = manifest.pop("sha256")
    if _seal(manifest) != seal:
        raise CheckpointError(f"{path}: its manifest was changed after it was written.")
    if manifest["format"] != FORMAT:
        raise CheckpointError(f"{path}: format {manifest['format']}, this version reads {FORMAT}.")
    return manifest


def _read_verified(path: Path, entry: dict[str, Any]) -> bytes:
    content = path.read_bytes()
    if len(content) != entry["bytes"] or hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise CheckpointError(f"{path}: its bytes are not those that were saved ({len(content)} of {entry['bytes']}).")
    return content
