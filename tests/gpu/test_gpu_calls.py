"""benchmarks/gpu.sh, rehearsed: whatever a stage does, a call ends in time, names every stage and leaves one archive."""

import os
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from tests.gpu.pretend import FOLDER, ROOT, environment, needs_card
from tests.prepared import write_store

pytestmark = pytest.mark.slow
BUDGET = 600
"""Seconds: calls take what they need, here far less; a busy machine is no fault of theirs."""
STAGES = {
    "0": ["environment", "doctor", "first"],
    "1": ["environment", "parity", "tests"],
    "2": ["ways-tiny", "profile-tiny", "batches", "deterministic"],
    "3": ["run-1", "run-2"],
    "4": ["parity"],
}


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
        [ROOT / "benchmarks" / "gpu.sh", *words], env=given, capture_output=True, text=True, timeout=300
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


def output(folder: Path, call: str, stage: str) -> str:
    return (folder / "record" / call / f"{stage}.txt").read_text()


def test_is_it_right(data: Path, tmp_path: Path) -> None:
    found = called("1", folder=tmp_path, data=data)
    assert [*found][:3] == STAGES["1"] and all(line.startswith("done") for line in found.values()), found
    assert '"revision": "a-revision"' in output(tmp_path, "1", "environment") and '"ok": true' in output(
        tmp_path, "1", "parity"
    )


def test_what_runs_over_is_named(data: Path, tmp_path: Path) -> None:
    """Nine seconds for what takes a minute: something is cut or left out, and still every stage has its line."""
    found = called("1", folder=tmp_path, data=data, budget=20)
    assert [*found][:3] == STAGES["1"] and any(line.startswith(("CUT", "left out")) for line in found.values()), found


@needs_card
@pytest.mark.parametrize("device, call", [*(("cpu", call) for call in "0234"), *(("cuda", call) for call in "01234")])
def test_every_call(device: str, call: str, data: Path, tmp_path: Path) -> None:
    """On the pretended card numbers are wrong, so stages that compare them fail: they are named, and the next ones begin."""
    found = called(call, folder=tmp_path, data=data, device=device, budget=BUDGET if device == "cpu" else 60)
    assert [name for name in found if name in STAGES[call]] == STAGES[call]
    if device == "cpu":
        assert all(line.startswith("done") for line in found.values()), found
    else:
        assert not any("ModuleNotFoundError" in line or "unrecognized" in line for line in found.values()), found
