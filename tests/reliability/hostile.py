"""Artefacts that try to run code, to write elsewhere, or to fill the memory; and what a usual loader does with the same."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.reliability.bad_inputs import COMMANDS
from tests.reliability.spoiling import Make, fields, spoilt

from electra_trainer.runs.verified import sealed

CANARY = "canary"
"""Made in the working folder by code that runs."""


class Runs:
    """An object whose unpickling touches the canary."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (CANARY,)


def payload() -> bytes:
    return pickle.dumps({"a": Runs()})


def torch_file() -> bytes:
    """A .pt file as torch writes it, its pickle replaced."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("archive/data.pkl", payload())
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return made.getvalue()


def object_array() -> bytes:
    made = io.BytesIO()
    np.save(made, np.array([Runs()], dtype=object), allow_pickle=True)
    return made.getvalue()


PICKLES: dict[str, Callable[[], bytes]] = {"pickle": payload, "torch": torch_file, "numpy": object_array}
PLACES = (
    ("export", "export/discriminator", "model.safetensors"), ("export", "export/discriminator", "config.json"),
    ("export", "export/discriminator", "tokenizer.json"), ("export", "export/discriminator", "tokenizer_config.json"),
    ("run", "run", "config.json"), ("run", "run", "environment.json"), ("run", "run", "tokenizer/tokenizer.json"),
    ("run", "run", "checkpoints/step-00000004/manifest.json"), ("run", "run", "checkpoints/step-00000004/state.json"),
    ("run", "run", "checkpoints/step-00000004/weights.safetensors"), ("run", "run", "checkpoints/step-00000004/.metadata"),
    ("run", "run", "rng_state.pth"), ("rows", "data", "manifest.json"), ("rows", "data", "train.bin"),
    ("tuned", "tuned", "electra_task.json"), ("tuned", "tuned", "model.safetensors"), ("tuned", "tuned", "labels.pkl"),
    ("glue", "glue", "CoLA/train.tsv"), ("pairs", "pairs", "p.jsonl"), ("report", "run", "metrics.jsonl"), ("report", "run", "examples.jsonl"),
)  # fmt: skip
"""(command, sound folder, file in it that is replaced or added)."""
FILES = (("corpus", "text.npy"), ("corpus", "text.txt"), ("tokenizer", "vocab.txt"), ("tokenizer", "tokenizer.json"), ("config", "c.json"),
         ("squad", "s.json"), ("tags", "t.conllu"), ("table", "t.csv"), ("table", "t.pkl"), ("predict", "new.jsonl"), ("context", "page.pt"))  # fmt: skip


HOLE = 700 << 20
"""Bytes of a file that takes no room on the disk."""


def reseal(checkpoint: Path, name: str) -> None:
    """Make a manifest say the size of a file, with a seal that fits."""
    place = checkpoint / "manifest.json"
    body = json.loads(place.read_bytes())
    del body["sha256"]
    body["files"][name]["bytes"] = (checkpoint / name).stat().st_size
    place.write_bytes(sealed(body))


def without_safetensors(place: Path, good: Path) -> None:
    """Only a pickle of weights, under the name that transformers looks for next."""
    spoilt("export/discriminator", "pytorch_model.bin", torch_file())(place, good)
    (place / "model.safetensors").unlink()


def linked(name: str, inner: str) -> Make:
    """A sound folder in which one file is a link to a file outside, `../outside/kept`."""
    return spoilt(
        name, inner, lambda place, _: place.symlink_to(place.parents[len(Path(inner).parts)] / "outside" / "kept")
    )


OVERWRITE = "prepare {good}/text.txt --tokenizer {good}/run/tokenizer --seq-len 32 --workers 1 --overwrite --out {bad}"
AGAIN = "pretrain {good}/data --config {good}/config.json --device cpu --quiet --out {bad}"
GO_ON = "pretrain {good}/data --config {good}/longer.json --device cpu --quiet --out {bad}"
ELSEWHERE: dict[str, tuple[str, Make]] = {
    **{f"row file links: {name}": (OVERWRITE, linked("data", name)) for name in ("train.bin", "valid.bin", "train.documents", "documents.jsonl", "manifest.json", "tokenizer/tokenizer.json", "tokenizer/vocab.txt")},
    **{f"run links: {name}": (GO_ON, linked("run", name)) for name in ("metrics.jsonl", "examples.jsonl", "log.txt", ".lock", "report.html")},
    "report links: pictures": ("report {bad}", lambda place, good: (spoilt("run", "x", b"")(place, good), _folder_link(place / "figures"))[0]),
    "files of an export": (COMMANDS["tuned"], spoilt("tuned", "electra_task.json", fields(files={"model.safetensors": "0", "../../outside/kept": "0", "/etc/hostname": "0"}))),
    "tokenizer links": ("export {bad} --out out", linked("run", "tokenizer/more.txt")),
}  # fmt: skip


def _folder_link(place: Path) -> None:
    if place.is_dir():
        import shutil

        shutil.rmtree(place)
    place.symlink_to(place.parents[1] / "outside")


def header(table: Any, *, data: bytes = b"", length: int | None = None) -> bytes:
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _tensor(**changes: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


TENSORS = {
    "length beyond the file": header(_tensor(), data=b"\0" * 8, length=2**63 - 1),
    "length of all bits": header(_tensor(), data=b"\0" * 8, length=2**64 - 1),
    "header of 100 MB": header(b" " * (100 << 20)),
    "shape of 2**62": header(_tensor(shape=[2**31, 2**31])),
    "negative offsets": header(_tensor(data_offsets=[-8, 0]), data=b"\0" * 8),
    "offsets beyond": header(_tensor(data_offsets=[0, 2**40]), data=b"\0" * 8),
    "overlap": header({**_tensor(), "b": _tensor()["a"]}, data=b"\0" * 8),
    "hole": header(_tensor(), data=b"\0" * 64),
    "unknown type": header(_tensor(dtype="O"), data=b"\0" * 8),
    "name twice": header(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', data=b"\0" * 8),
    "deep": header(b"[" * 100_000),
    "no table": header([1]),
    "not UTF-8": header(b'{"\xff": 0}'),
}  # fmt: skip
