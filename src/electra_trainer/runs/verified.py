"""Read one checkpoint, and the bytes of its tensors to write: every byte and every field is verified before anything is
made of it.

Loading can fail in three ways, each with its own error: its bytes are damaged (CheckpointError); it is whole but of
something else (Unfit);
the disk cannot read it now (StorageError).

`TensorFile` is a safetensors file in pieces, without a second copy of the tensors and without a pause. For tensors of
one type these are the bytes of `safetensors.torch.save`. But the library makes one block of everything while it holds
Python's lock, so a thread that saves stops all others. Here only the header is built, and a tensor's bytes are yielded
from where they are, a few megabytes at a time: hashing and writing release the lock.
"""

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from electra_trainer.errors import CheckpointError, StorageError
from electra_trainer.files.reading import json_object, short
from electra_trainer.settings.records import differences, hash_of

FORMAT = 2
NAME = re.compile(r"step-(\d{8,})")
TENSORS = ("weights.safetensors", "optimizer.safetensors")
FILES = (*TENSORS, "state.json")
_SMALL = 1 << 20
"""Most bytes of manifest.json and of state.json."""
_HEADER = 2048
"""Most bytes of a safetensors header for a tensor, its moments and their step counts."""
_DAMAGED = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO}
"""Errors that say that the file is missing; all others say that it cannot be read now."""
_RESTORE = "Restore it from a backup."
_SHOWN = 3
"""Differences in a message."""
Builds = Callable[[], nn.Module]
"""Builds the networks. A config.json may ask for any size, so they are not built before the checkpoint is known to be
the run's.
"""


class Unfit(CheckpointError):
    """A checkpoint of something else, or one that cannot be resumed; the bytes checked so far are those that were
    saved.
    """


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The run that a checkpoint belongs to, with its settings and data."""

    run_id: str
    config_sha256: str
    """Hash of the settings, as config.json has them."""
    data_sha256: str
    """Hash of the hashes of vocabulary and rows, as environment.json has them."""
    config: dict[str, Any] = field(default_factory=dict, compare=False)
    data: dict[str, Any] = field(default_factory=dict, compare=False)
    """The settings and data themselves, so that a message can name the difference."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """The content of a checkpoint."""

    step: int
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]
    """Plain numbers: seconds, tokens, skipped steps."""


def read(path: Path, *, origin: Origin | None = None, network: Builds | None = None, timed: bool = False) -> Saved:
    """Read one checkpoint, every byte verified against its manifest.

    Args:
        origin: the run that it must belong to; None: any.
        network: builds the network of its tensors, called when the origin fits; larger files than that can need are not
            read. None: they are, whatever their size.
        timed: whether its state must say how long it trained, which a run needs to resume; the kept weights of a
            fine-tuned run need not.

    Raises:
        CheckpointError: a byte differs, a file is missing or superfluous, or a field is invalid. Unfit: see there.
        StorageError: the disk cannot read it now, which says nothing about its bytes.
    """
    try:
        manifest = read_manifest(path)
        _check_origin(path, manifest, origin)
        _check_place(path, manifest)
        most = {"state.json": _SMALL, **(_most(network()) if network is not None else {})}
        for name, allowed in most.items():
            if (size := manifest["files"][name]["bytes"]) > allowed:
                raise Unfit(
                    f"{path / name}: has {size:,} bytes, these settings allow at most {allowed:,}. It was not read."
                )
        state = _state(path / "state.json", manifest["files"]["state.json"], timed=timed)
        weights, optimizer = (_tensors(path / name, manifest["files"][name]) for name in TENSORS)
        return Saved(step=manifest["step"], weights=weights, optimizer=optimizer, state=state)
    except OSError as error:
        if error.errno in _DAMAGED:
            raise CheckpointError(f"{error.filename or path}: is missing, or not a file.") from None
        raise StorageError(
            f"{error.filename or path}: cannot be read now ({error.strerror}). Nothing was changed: repeat the command "
            f"when it can be read again; to do without this checkpoint, move {path} elsewhere."
        ) from None


def sealed(body: dict[str, Any]) -> bytes:
    """A manifest with its own hash."""
    return json.dumps({**body, "sha256": hash_of(body)}, indent=1).encode()


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint. Raises CheckpointError, or OSError."""
    place = path / "manifest.json"
    content = _read_regular(place, most=_SMALL)
    manifest = json_object(content, where=str(place), remedy=_RESTORE, error=CheckpointError)
    manifest.pop("sha256", None)
    try:
        if sealed(manifest) != content:
            raise CheckpointError(f"{path}: its manifest was changed after it was written.")
    except RecursionError:
        raise CheckpointError(f"{place}: is nested too deeply for a manifest.") from None
    if manifest.get("format") != FORMAT:
        found = short(manifest.get("format"))
        raise Unfit(f"{path}: format {found}, this version reads {FORMAT}. Use the version that wrote it.")
    _check_fields(place, manifest)
    return manifest


def _check_fields(place: Path, manifest: dict[str, Any]) -> None:
    for name in ("run_id", "config_sha256", "data_sha256"):
        _require(place, name, manifest.get(name), isinstance(manifest.get(name), str), "a text")
    _require(place, "step", manifest.get("step"), _whole(manifest.get("step")), "a whole number from 0")
    files = manifest.get("files")
    named = isinstance(files, dict) and files.keys() == set(FILES)
    _require(place, "files", files, named, f"one entry each of {', '.join(FILES)}")
    assert isinstance(files, dict)
    for name, entry in files.items():
        known = isinstance(entry, dict) and _whole(entry.get("bytes")) and isinstance(entry.get("sha256"), str)
        _require(place, f"files.{name}", entry, known, "bytes, a whole number from 0, and sha256, a text")


def _whole(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _require(place: Path, name: str, value: object, good: bool, expected: str) -> None:
    if not good:
        raise CheckpointError(f"{place}: {name} is {short(value)}, expected {expected}.")


def _check_origin(path: Path, manifest: dict[str, Any], origin: Origin | None) -> None:
    """Refuse a checkpoint of another run, or of other settings or data than the run has now."""
    if origin is None:
        return
    if manifest["run_id"] != origin.run_id:
        remedy = "Put environment.json of the run back, or the checkpoint where it belongs."
        other = f"{short(manifest['run_id'])}, expected {origin.run_id}"
        raise Unfit(f"{path}: belongs to another run ({other}). {remedy}")
    for name, what, file in (("config", "settings", "config.json"), ("data", "data", "environment.json")):
        if manifest[f"{name}_sha256"] != getattr(origin, f"{name}_sha256"):
            raise Unfit(
                f"{path}: was saved with other {what} than {file} of the run has "
                f"now{_changes(manifest.get(name), getattr(origin, name))}. Put {file} back as it was and repeat the "
                f"command that the run began with; other {what} are another run, with a separate --out (--init takes "
                "the weights along)."
            )


def _changes(before: object, now: object) -> str:
    """` (schedule.steps: 12 -> 14)`, or nothing where the old values are not known."""
    reported = differences(before, now, show=short) if isinstance(before, dict) else []
    more = [f"{len(reported) - _SHOWN} more"] if len(reported) > _SHOWN else []
    return f" ({'; '.join(reported[:_SHOWN] + more)})" if reported else ""


def _check_place(path: Path, manifest: dict[str, Any]) -> None:
    """Refuse a folder whose name or files differ from the manifest."""
    named = NAME.fullmatch(path.name)
    if named and int(named[1]) != manifest["step"]:
        raise CheckpointError(f"{path}: its manifest is that of step {manifest['step']}.")
    there = {file.name for file in path.iterdir() if not file.name.startswith(".")}
    if odd := there ^ {"manifest.json", *manifest["files"]}:
        raise CheckpointError(f"{path}: {sorted(odd)[0]!r} is missing or was added after it was saved.")


def _most(network: nn.Module) -> dict[str, int]:
    """Most bytes of the files of a network's tensors, and of two moments and a step count for each."""
    tensors = [*network.parameters(), *network.buffers()]
    body, header = sum(tensor.nbytes for tensor in tensors), _HEADER * (len(tensors) + 1)
    return dict(zip(TENSORS, (body + header, 2 * body + header), strict=True))


def _read_regular(path: Path, *, most: int) -> bytes:
    """A file's bytes. A file that is too large, or not a regular one, is refused without reading or waiting."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            raise CheckpointError(f"{path}: is not a file of at most {most:,} bytes.")
        return file.readall()


def _read_verified(path: Path, entry: dict[str, Any]) -> bytes:
    content = _read_regular(path, most=entry["bytes"])
    if len(content) != entry["bytes"] or hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise CheckpointError(f"{path}: its bytes are not those that were saved ({len(content)} of {entry['bytes']}).")
    return content


def _state(place: Path, entry: dict[str, Any], *, timed: bool) -> dict[str, Any]:
    state = json_object(_read_verified(place, entry), where=str(place), remedy=_RESTORE, error=CheckpointError)
    seconds, bad = state.get("seconds", None if timed else 0), state.get("bad_steps", 0)
    known = type(seconds) in (int, float) and 0 <= seconds < 1e12  # type: ignore[operator]  # false for NaN
    _require(place, "seconds", seconds, known, "seconds of training, a number from 0")
    _require(place, "bad_steps", bad, _whole(bad), "a whole number from 0")
    return state


def _tensors(place: Path, entry: dict[str, Any]) -> dict[str, Tensor]:
    content = _read_verified(place, entry)
    try:
        tensors = safetensors.torch.load(content)
    except (KeyError, TypeError, ValueError, OverflowError, RuntimeError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{place}: is not a safetensors file: {short(str(error))}.") from None
    for name, tensor in tensors.items():
        if tensor.dtype not in TYPES:
            raise CheckpointError(
                f"{place}: {short(name)} holds {tensor.dtype}, which no checkpoint of this program holds."
            )
        if not bool(torch.isfinite(tensor).all()):
            why = "holds NaN or infinite values. This program neither saves such weights nor resumes with them"
            raise Unfit(f"{place}: {short(name)} {why}: take an earlier checkpoint.")
    return tensors


TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Number types that a checkpoint may hold, by their safetensors names."""
PIECE = 1 << 22
"""Approximate bytes of a piece."""


class TensorFile:
    """The bytes of a file of these tensors, as often as it is iterated; the tensors must not change before it is
    written.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        # the widest numbers first, so that each tensor lies at a multiple of its element's size
        order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
        self._tensors = [tensors[name].detach().cpu().contiguous() for name in order]
        table, at = {}, 0
        for name, tensor in zip(order, self._tensors, strict=True):
            begins, at = at, at + tensor.nbytes
            table[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begins, at]}
        header = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
        header += b" " * (-len(header) % 8)
        self._header = len(header).to_bytes(8, "little") + header

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """The bytes; small tensors together, large ones in pieces."""
        small: list[bytes | memoryview] = [self._header]
        waiting = len(self._header)
        for tensor in self._tensors:
            view = tensor.reshape(-1).view(torch.uint8).numpy().data
            if waiting + len(view) <= PIECE:
                small.append(view)
                waiting += len(view)
                continue
            yield b"".join(small)
            small, waiting = [], 0
            for at in range(0, len(view), PIECE):
                yield view[at : at + PIECE]
        yield b"".join(small)
