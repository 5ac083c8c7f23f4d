"""The Triton kernels against their plain twins, through Triton's interpreter on the CPU; and when they are trusted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from electra_trainer.kernels.gpu import trust

ROOT = Path(__file__).resolve().parents[3]
BESIDE = Path(sys.prefix) / "triton-3.6"
"""Where `make` puts Triton on machines whose PyTorch brings none."""
needs_triton = pytest.mark.skipif(
    not trust.has_triton() and not BESIDE.exists(), reason="Triton is not installed (make test installs it)"
)


def with_triton(**more: str) -> dict[str, str]:
    places = [
        str(ROOT / "src"),
        str(ROOT),
        *([] if trust.has_triton() else [str(BESIDE)]),
        os.environ.get("PYTHONPATH", ""),
    ]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places), **more}


@pytest.fixture(scope="module")
def interpreted() -> dict[str, str]:
    """Checks of tests/kernels/gpu/interpreted.py -> what they raised."""
    command = [sys.executable, "-m", "tests.kernels.gpu.interpreted"]
    environment = with_triton(TRITON_INTERPRET="1")
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    raised: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return raised


@needs_triton
@pytest.mark.parametrize("name", ["vocabulary", "frequencies", "norm", "attention", "operators", "model"])
def test_kernels_equal_their_plain_twins(name: str, interpreted: dict[str, str]) -> None:
    assert not interpreted[name], interpreted[name]


@pytest.mark.slow
@needs_triton
def test_kernels_compile_for_an_h200() -> None:
    environment = with_triton()
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-m", "tests.kernels.gpu.compiled", "bf16"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def agrees(device: torch.device) -> None:
    trust.close("a number", torch.ones(3), torch.ones(3) + 1e-6, 1e-5)


def differs(device: torch.device) -> None:
    torch.manual_seed(1)
    trust.close("a number", torch.ones(3), torch.ones(3) + 1e-3, 1e-5)


def nothing(device: torch.device) -> None:
    trust.close("a number", torch.full((3,), float("nan")), torch.ones(3), 1e-5)


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Pretends that Triton is there, and a GPU that computes on the CPU."""
    monkeypatch.setattr(trust, "has_triton", lambda: True)
    monkeypatch.setattr(trust, "_found", {})
    monkeypatch.setattr(trust, "_checks", {"agrees": agrees, "differs": differs, "nothing": nothing})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    real = trust._check
    monkeypatch.setattr(trust, "_check", lambda name, device: real(name, torch.device("cpu")))
    monkeypatch.delenv(trust.SWITCH, raising=False)
    return torch.device("cuda", 0)


def test_a_path_that_agrees_is_used(on_a_gpu: torch.device) -> None:
    assert trust.trusted("agrees", on_a_gpu)
    assert not trust.trusted("agrees", torch.device("cpu"))


@pytest.mark.parametrize("name", ["differs", "nothing"])
def test_a_path_that_differs_is_left_with_one_line(name: str, on_a_gpu: torch.device) -> None:
    before = torch.get_rng_state()
    with pytest.warns(
        UserWarning, match=f"{name}: the plain path is used on cuda:0, because Mismatch: a number differs"
    ) as said:
        assert not trust.trusted(name, on_a_gpu)
        assert not trust.trusted(name, on_a_gpu)
    assert len(said) == 1
    assert torch.equal(torch.get_rng_state(), before)
    assert trust._found[name, "cuda:0"].startswith("Mismatch")


def test_the_switch(on_a_gpu: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(trust.SWITCH, "off")
    assert not trust.trusted("agrees", on_a_gpu)
    assert dict(trust.report(on_a_gpu))["agrees"] == "plain path: ELECTRA_GPU_KERNELS=off"
    monkeypatch.setenv(trust.SWITCH, "differs, agree")
    assert trust.trusted("agrees", on_a_gpu) and not trust.wanted("nothing")
