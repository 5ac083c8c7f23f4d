"""benchmarks/gpu.sh, rehearsed: whatever a stage does, a call ends in time, names every stage and leaves one archive."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from tests.gpu.pretend import FOLDER, ROOT, environment, needs_card
from tests.prepared import write_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1700)]
BUDGET = 6000
"""Seconds: calls take what they need, here far less; a busy machine is no fault of theirs."""
PROVE = "environment tests parity resume warm-tiny attention ways-tiny speed finetune finetune-tuning profile".split()
TRAIN = ["train", "pack", "held-out"]
STAGES = {"prove": PROVE, "train": TRAIN, "quarter": [*PROVE, *TRAIN]}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared rows, packed as they travel."""
    folder = write_store(tmp_path_factory.mktemp("rows") / "data")
    packed = folder.with_suffix(".txz")
    with tarfile.open(packed, "w:xz") as archive:
        archive.add(folder, "data")
    return packed


def called(
    *words: str, folder: Path, data: Path, device: str = "cpu", budget: int = BUDGET, **more: str
) -> dict[str, str]:
    """Result of each stage; everything that comes back is checked against the limits of such a machine."""
    python = str(Path(FOLDER).resolve() / "bin" / "python") if device == "cuda" else sys.executable
    given = environment() if device == "cuda" else dict(os.environ)
    places = {"OUT": folder / "out", "SCRATCH": folder / "scratch", "CARRY": folder / "carry", "DATA": data}
    given |= {name: str(place) for name, place in places.items()} | {"BUDGET": str(budget), "DEVICE": device}
    given |= {"PRESETS": "tiny", "PYTHON": python, "REVISION": "a-revision", **more}
    began = time.monotonic()
    done = subprocess.run(
        [ROOT / "benchmarks" / "gpu.sh", *words], env=given, capture_output=True, text=True, timeout=budget + 60
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began <= budget + 10
    files = [*(folder / "out").iterdir()]
    assert len(files) <= 8 and all(path.is_file() and re.fullmatch(r"[\w.-]+", path.name) for path in files), files
    assert (
        all(path.stat().st_size <= 16 << 20 for path in files)
        and sum(path.stat().st_size for path in files) <= 64 << 20
    )
    with tarfile.open(folder / "out" / "record.tgz") as archive:
        archive.extractall(folder, filter="data")
    lines = (folder / "record" / words[0] / "stages.txt").read_text().splitlines()
    print(*lines, sep="\n")
    return dict(line.split(": ", 1) for line in lines)


def output(folder: Path, call: str, stage: str, kind: str = "txt") -> str:
    return (folder / "record" / call / f"{stage}.{kind}").read_text()


def test_a_quarter_of_an_hour(data: Path, tmp_path: Path) -> None:
    """All of it, and the run that it leaves is continued by a second call."""
    found = called("quarter", folder=tmp_path, data=data, STEPS="20")
    assert {*found} == {*STAGES["quarter"]} and all(line.startswith("done") for line in found.values()), found
    assert '"revision": "a-revision"' in output(tmp_path, "quarter", "environment")
    assert '"ok": true' in output(tmp_path, "quarter", "parity")
    assert "resuming at step" in output(tmp_path, "quarter", "resume")
    shutil.copytree(tmp_path / "out", tmp_path / "carry")
    found = called("train", folder=tmp_path, data=data, STEPS="30")
    assert {*found} == {"unpack", *TRAIN} and all(line.startswith("done") for line in found.values()), found
    assert "step 30/30" in output(tmp_path, "train", "train", "log")


def test_what_runs_over_is_named(data: Path, tmp_path: Path) -> None:
    """Five seconds for what takes a minute: something is cut or left out, and still every stage has its line."""
    found = called("quarter", folder=tmp_path, data=data, budget=20)
    assert {*found} == {*STAGES["quarter"]} and {*found.values()} != {"done"}, found
    assert any(line.startswith(("CUT", "left out")) for line in found.values())


@needs_card
@pytest.mark.parametrize("call", ["prove", "train"])
def test_on_the_pretended_card(call: str, data: Path, tmp_path: Path) -> None:
    """There numbers are wrong, so stages that compare them fail: they are named, and the next ones begin."""
    found = called(call, folder=tmp_path, data=data, device="cuda", budget=60)
    assert {*found} >= {*STAGES[call]}
    assert not any("ModuleNotFoundError" in line or "unrecognized" in line for line in found.values()), found
