"""Shared fixtures: the folder of reference numbers, and a configuration small enough for a second a test."""

import functools
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from tests import small
from tests.command import Electra
from tests.pixels.sitecustomize import replace_pictures, see_one_core
from tests.prepared import write_store

from electra_trainer.cli.main import main
from electra_trainer.errors import as_command
from electra_trainer.inspection import report
from electra_trainer.settings.config import Config
from electra_trainer.train import timing
from electra_trainer.train.begin import settle

TESTS = Path(__file__).resolve().parent
SHARED = TESTS.parents[1] / "shared"
MEMORY = Path("/dev/shm")
PIXELS = TESTS / "pixels"
"""Where `sitecustomize.py` does in other processes what `pytest_configure` does here."""
DRAW = getattr(report.draw, "__wrapped__", report.draw)  # workers of xdist have PIXELS on their path, too
SHOWN = as_command()
"""Lines go to standard error, as the command shows them, although pytest gives `logging` a handler."""
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup, where a run does not stop for it
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a script

SLOWEST = (
    "pretrained/test_onnx.py",
    "methods/test_every_method.py",
    "gpu/test_gpu_calls.py",
    "test_site.py",
    "reliability/test_supervisor.py",
    "experiments/test_compare.py",
    "test_extending.py",
    "finetuning/test_finetuned_onnx.py",
    "faults/test_faults.py",
    "examples/test_pretrain_job.py",
    "google/test_curve.py",
    "finetuning/test_experiment.py",
    "test_readme.py",
    "pretrained/test_transformers_4.py",
    "inspection/test_track.py",
    "playground/test_playground.py",
    "paper/test_rows.py",
    "pretrained/test_export.py",
    "kernels/native/test_layers.py",
    "train/test_fast_step.py",
    "test_speed_benchmark.py",
    "data/test_words.py",
    "data/test_prepare.py",
    "finetuning/test_run.py",
    "data/test_remote.py",
)
"""Files that take longest, in this order: with several workers none of them may be begun last."""


def room_in_memory() -> float:
    """Bytes that temporary files may take in memory; 0 where there is no such file system."""
    try:
        available = Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]
        return min(shutil.disk_usage(MEMORY).free, 1024 * int(available))
    except (OSError, IndexError):
        return 0


def pytest_configure() -> None:
    if room_in_memory() > 6e9:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))  # else a third of the time is waiting for the disk
    report.draw = DRAW
    replace_pictures(report)  # every `pretrain` ends with a report: a second or two of drawing
    others = filter(None, [str(PIXELS), os.environ.get("PYTHONPATH")])
    os.environ["PYTHONPATH"] = os.pathsep.join(others)  # for the processes that tests start
    SHOWN.__enter__()
    torch.set_num_threads(1)  # tiny tensors: more threads cost more than they bring
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the same for `pretrain` here and for the commands that tests start
    see_one_core()


def pytest_unconfigure() -> None:
    SHOWN.__exit__(None, None, None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest files first; apart from that, and within a file, the order stays."""
    places = {TESTS / name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared` beside the repository."""
    if not SHARED.is_dir() and os.environ.get("ELECTRA_REQUIRE_REFERENCE"):
        pytest.fail("the folder `shared` is not beside the repository, and ELECTRA_REQUIRE_REFERENCE is set")
    if not SHARED.is_dir():
        pytest.skip("needs the folder `shared` beside the repository (reference numbers of the released code)")
    return SHARED


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of a small text, for tests that only read them."""
    return write_store(tmp_path_factory.mktemp("prepared") / "data")


@pytest.fixture(autouse=True)
def pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ones for tests that are marked `draws`; see `pytest_configure`."""
    if request.node.get_closest_marker("draws") is not None:
        monkeypatch.setattr(report, "draw", DRAW)
        others = [
            place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place not in ("", str(PIXELS))
        ]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(others))


@pytest.fixture
def quick_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second of steps tells commands in this process how long one takes, instead of six."""
    measure = functools.partial(timing.measure_time, limit=0.5)
    for module in (timing, settle):
        monkeypatch.setattr(module, "measure_time", measure)


@pytest.fixture
def electra(capfd: pytest.CaptureFixture[str]) -> Electra:
    """The command in this process: words -> exit code, standard output, standard error."""

    def run(*words: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


@pytest.fixture
def tiny_config() -> Config:
    """See `tests/small.py`."""
    return small.config()
