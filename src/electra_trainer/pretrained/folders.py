"""An exported folder appears whole, read back and on the disk, or not at all."""

import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from electra_trainer.errors import CheckpointError, ConfigError, storage_error
from electra_trainer.files.durable import make_folder, sync_folder, write_durably


def publish(
    out: Path, files: Iterable[tuple[str, bytes]], check: Callable[[Path], None], *, replaces: str | None = None
) -> None:
    """Write files into a temporary folder, check them there, and rename it to `out`.

    Args:
        out: a new or empty folder, or an earlier export.
        files: (path in the folder, content), taken one at a time.
        check: reads the temporary folder back, and raises where it differs from what was to be written.
        replaces: the file that an earlier export holds; it is replaced once the new one is complete. None: nothing is replaced.

    Raises:
        ConfigError: `out` holds something else.
        StorageError: the disk is full or read-only; an earlier export is untouched and nothing is left behind.
    """
    earlier = replaces is not None and (out / replaces).is_file()
    if out.exists() and not earlier and (not out.is_dir() or any(out.iterdir())):
        other = "" if replaces is None else f" and holds no {replaces}"
        raise ConfigError(f"--out {out}: is not an empty folder{other}. Choose another one.")
    unique = uuid.uuid4().hex[:8]
    temporary, aside = out.with_name(f".{out.name}.{unique}"), out.with_name(f".{out.name}.old-{unique}")
    try:
        for name, content in files:
            path = temporary / name
            make_folder(path.parent)
            write_durably(path, content)
            sync_folder(path.parent)
        check(temporary)
        if earlier:
            out.rename(aside)
        elif out.exists():
            out.rmdir()
        temporary.rename(out)
        sync_folder(out.parent)
        shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise storage_error(error, out, writing=True) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def safetensors_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """A model.safetensors as transformers reads it."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(plain, metadata={"format": "pt"})


def check_equal(folder: Path, found: Mapping[str, Tensor], written: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError unless every tensor that was read back from `folder` has the bits that were written."""
    for name, tensor in found.items():
        if name not in written or not torch.equal(tensor, written[name].cpu()):
            raise CheckpointError(f"{folder}: {name} does not read back as it was written. Check the disk.")
