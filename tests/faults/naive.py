"""The controls of the faults: readers and writers that trust."""

from __future__ import annotations

import io
import json
import os
import pickle
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch


def fails(path: Path) -> bool:
    """Whether a usual reader meets a file with an exception that is not its own."""
    try:
        text = path.read_text(encoding="utf-8")
        for document in text.split("\n") if path.suffix == ".jsonl" else [text]:
            if path.suffix in (".json", ".jsonl"):
                json.loads(document)
    except (ValueError, RecursionError):
        return True
    return False


def unpickle(place: str) -> None:
    """Every file of a place with a usual loader."""
    for path in [Path(place), *Path(place).rglob("*")]:
        with suppress(Exception):
            content = path.read_bytes()
            if content.startswith(b"\x93NUMPY"):
                np.load(path, allow_pickle=True)
            elif content.startswith(b"PK"):
                torch.load(io.BytesIO(content), weights_only=False)  # by its name it would take some for safetensors
            else:
                pickle.loads(content)


def write(place: Path) -> None:
    """To each name, through links."""
    for path in place.rglob("*"):
        if path.is_symlink() and path.is_file():
            path.write_bytes(b"")


def takes(path: Path) -> bool:
    """Whether a reader that believes a header takes the tensors."""
    try:
        content = path.read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        for facts in json.loads(content[8:start]).values():
            first, last = facts["data_offsets"]
            np.frombuffer(content[start:][first:last], dtype="<f4").reshape(facts["shape"])
    except Exception:
        return False
    return True


def whole(place: str) -> int:
    """Bytes of the largest file, read whole before anything is looked at, and parsed where it is JSON."""
    path = max([Path(place), *Path(place).rglob("*")], key=lambda path: os.path.getsize(path) * path.is_file())
    content = path.read_bytes()
    with suppress(ValueError):
        json.loads(content)
    return len(content)
