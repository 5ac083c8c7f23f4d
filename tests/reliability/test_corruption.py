"""Bytes that changed after they were saved: none is loaded silently; what common formats do with the same is the control."""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from tests.reliability.figures import LONG, report
from tests.reliability.tiny_checkpoints import RUN, made, naive, pickled, same, same_tensors, write

from electra_trainer.runs.checkpoint import load_newest, save
from electra_trainer.runs.verified import sealed

FILES = ("weights.safetensors", "optimizer.safetensors", "state.json", "manifest.json")
CASES = 4000 if LONG else 600
OTHER = replace(RUN, run_id="another run")


def flip(path: Path, choose: random.Random) -> None:
    path.write_bytes(flipped(path.read_bytes(), choose))


def flipped(content: bytes, choose: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(choose.choice((1, 1, 1, 2, 8))):
        changed[choose.randrange(len(changed))] ^= 1 << choose.randrange(8)
    return bytes(changed)


def cut(path: Path, choose: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: choose.randrange(path.stat().st_size)])


def zero(path: Path, choose: random.Random) -> None:
    """A block of zeros, as a file system gives where it lost one."""
    content = path.read_bytes()
    first = choose.randrange(len(content) - 1)
    path.write_bytes(content[:first] + bytes(len(content[first : first + 512])) + content[first + 512 :])


def lengthen(path: Path, choose: random.Random) -> None:
    path.write_bytes(path.read_bytes() + choose.randbytes(choose.randrange(1, 64)))


def remove(path: Path, choose: random.Random) -> None:
    path.unlink()


def duplicate(path: Path, choose: random.Random) -> None:
    shutil.copy(path, path.with_name(f"{path.stem} (1){path.suffix}"))


def of_another_file(path: Path, choose: random.Random) -> None:
    path.write_bytes((path.parent / choose.choice([name for name in FILES if name != path.name])).read_bytes())


def of_another_step(path: Path, choose: random.Random) -> None:
    path.write_bytes((path.parents[1] / "step-00000001" / path.name).read_bytes())


def of_another_run(path: Path, choose: random.Random) -> None:
    """Its manifest only, or all of it."""
    other = path.parents[2] / "other" / "step-00000002"
    for name in choose.choice((("manifest.json",), FILES)):
        (path.parent / name).write_bytes((other / name).read_bytes())


def edited(path: Path, choose: random.Random) -> None:
    """A manifest that somebody changed: with the seal as it was, or with one that fits."""
    place = path.parent / "manifest.json"
    body = json.loads(place.read_bytes())
    seal = body.pop("sha256")
    entry = body["files"][choose.choice(FILES[:3])]
    change = choose.randrange(7)
    if change == 0:
        entry["sha256"] = entry["sha256"][::-1]
    elif change == 1:
        entry["bytes"] += 1
    elif change == 2:
        body["step"] += choose.choice((-1, 1, 10))
    elif change == 3:
        del body["files"][choose.choice(FILES[:3])]
    elif change == 4:
        body["files"]["../step-00000001/state.json"] = entry
    elif change == 5:
        body[choose.choice(("run_id", "config_sha256", "data_sha256"))] = "0" * 64
    else:
        body["format"] = choose.choice((0, 3, None, "2", []))
    whole = sealed(body) if choose.random() < 0.5 else json.dumps({**body, "sha256": seal}, indent=1).encode()
    place.write_bytes(whole)


def renamed(path: Path, choose: random.Random) -> None:
    path.parent.rename(path.parents[1] / f"step-{choose.randrange(3, 100_000):08d}")


KINDS: tuple[Callable[[Path, random.Random], None], ...] = (
    flip, flip, flip, flip, cut, zero, lengthen, remove, duplicate, of_another_file, of_another_step, of_another_run, edited,
    edited, renamed,
)  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints of a run, and one of another run at the same step."""
    folder = tmp_path_factory.mktemp("good")
    for step in (1, 2):
        write(folder / "mine", step, keep=2)
    save(folder / "other", made(2), origin=OTHER, keep=1)
    return folder


def test_corruption(good: Path, tmp_path: Path) -> None:
    """The newest of two checkpoints is damaged: the one before is taken, with a message."""
    outcome: dict[str, list[bool]] = {}
    for case in range(CASES):
        choose = random.Random(case)
        kind = KINDS[case % len(KINDS)]
        shutil.copytree(good, tmp_path / "now")
        kind(tmp_path / "now" / "mine" / "step-00000002" / choose.choice(FILES), choose)
        warnings: list[str] = []
        found = load_newest(tmp_path / "now" / "mine", origin=RUN, warn=warnings.append)
        refused = same(found, made(1)) and len(warnings) == 1
        outcome.setdefault(kind.__name__, []).append(refused)
        shutil.rmtree(tmp_path / "now")
    silent = {name: results.count(False) for name, results in outcome.items() if not all(results)}
    torch_silent, safetensors_silent, tried = control()
    controls = {
        "control_torch_loaded_silently": torch_silent,
        "control_safetensors_loaded_silently": safetensors_silent,
    }
    report("corruption", corruptions=CASES, kinds=len(outcome), control_corruptions=tried, **controls)
    assert not silent
    assert torch_silent > 0 and safetensors_silent > 0


def control() -> tuple[int, int, int]:
    """Flipped bits in a file of torch.save and in one of safetensors: how many were loaded with other numbers and no word."""
    tried = CASES // 4
    silent = []
    loaders = (lambda content: torch.load(io.BytesIO(content), weights_only=True), safetensors.torch.load)
    for whole, load in zip((pickled(2), safetensors.torch.save(naive(2))), loaders, strict=True):
        count = 0
        for case in range(tried):
            try:
                found = load(flipped(whole, random.Random(case)))
            except Exception:
                continue
            count += not same_tensors(found, naive(2))
        silent.append(count)
    return silent[0], silent[1], tried
