"""The Triton kernels against their plain twins, through Triton's interpreter on the CPU; and when they are trusted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from electra_trainer.errors import ElectraError, Interrupted
from electra_trainer.kernels.gpu import gpu_attention, trust

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
@pytest.mark.parametrize(
    "name", ["vocabulary", "frequencies", "norm", "attention", "long_rows", "operators", "compiled", "model"]
)
def test_kernels_equal_their_plain_twins(name: str, interpreted: dict[str, str]) -> None:
    assert not interpreted[name], interpreted[name]


@pytest.mark.slow
@needs_triton
def test_kernels_fit_the_cards() -> None:
    """Registers, shared memory and instructions of the machine code for A100, RTX 40 and H100: what compiled.py lists."""
    environment = with_triton()
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-m", "tests.kernels.gpu.compiled"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def agrees(device: torch.device, shape: int) -> None:
    trust.close("a number", torch.ones(3), torch.ones(3) + 1e-6, 1e-5)


def differs(device: torch.device, shape: int) -> None:
    torch.manual_seed(1)
    trust.close("a number", torch.ones(3), torch.ones(3) + 1e-3, 1e-5)


def nothing(device: torch.device, shape: int) -> None:
    trust.close("a number", torch.full((3,), float("nan")), torch.ones(3), 1e-5)


def small_only(device: torch.device, shape: int) -> None:
    if shape > 128:
        raise RuntimeError(f"out of resource: shared memory, Required: {shape}, Hardware limit: 128")


def stopped(device: torch.device, shape: int) -> None:
    raise Interrupted("SIGTERM: stopped")


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Pretends that Triton is there, and a GPU that computes on the CPU."""
    monkeypatch.setattr(trust, "has_triton", lambda: True)
    monkeypatch.setattr(trust, "_found", {})
    monkeypatch.setattr(
        trust, "_checks", {f.__name__: (f, 64) for f in (agrees, differs, nothing, small_only, stopped)}
    )
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    real = trust._check
    monkeypatch.setattr(trust, "_check", lambda name, device, shape: real(name, torch.device("cpu"), shape))
    monkeypatch.delenv(trust.SWITCH, raising=False)
    return torch.device("cuda", 0)


def test_a_path_that_agrees_is_used(on_a_gpu: torch.device) -> None:
    assert trust.trusted("agrees", on_a_gpu, 64)
    assert not trust.trusted("agrees", torch.device("cpu"), 64)


@pytest.mark.parametrize("name", ["differs", "nothing"])
def test_a_path_that_differs_is_left_with_one_line(name: str, on_a_gpu: torch.device) -> None:
    before = torch.get_rng_state()
    with pytest.warns(
        UserWarning, match=f"{name}: the plain path is used on cuda:0 for 64, because Mismatch: a number differs"
    ) as said:
        assert not trust.trusted(name, on_a_gpu, 64)
        assert not trust.trusted(name, on_a_gpu, 64)
    assert len(said) == 1
    assert torch.equal(torch.get_rng_state(), before)
    assert trust._found[name, "cuda:0", 64].startswith("Mismatch")


def test_the_switch(on_a_gpu: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(trust.SWITCH, "off")
    assert not trust.trusted("agrees", on_a_gpu, 64)
    assert dict(trust.report(on_a_gpu))["agrees"] == "plain path: ELECTRA_GPU_KERNELS=off"
    monkeypatch.setenv(trust.SWITCH, "differs, agree")
    assert trust.trusted("agrees", on_a_gpu, 64) and not trust.wanted("nothing")


def test_a_kernel_that_does_not_fit_is_left_out_for_that_shape_alone(
    on_a_gpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trust.trusted("small_only", on_a_gpu, 128)
    with pytest.warns(
        UserWarning, match="small_only: the plain path is used on cuda:0 for 512, because RuntimeError: out of resource"
    ):
        assert not trust.trusted("small_only", on_a_gpu, 512)
    assert trust.trusted("small_only", on_a_gpu, 128)
    monkeypatch.setattr(trust, "_checks", {"small_only": (small_only, 64)})
    assert dict(trust.report(on_a_gpu))["small_only"].startswith(
        "plain path for some shapes: RuntimeError: out of resource"
    )


def test_a_signal_during_a_check_stops_the_run(on_a_gpu: torch.device) -> None:
    with pytest.raises(Interrupted):
        trust.trusted("stopped", on_a_gpu, 64)
    assert not trust._found


def test_a_check_that_left_the_device_unusable_says_what_to_type(
    on_a_gpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.undo()
    monkeypatch.setattr(trust, "_checks", {"agrees": (dead, 64)})
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: torch.zeros(1))
    monkeypatch.setattr(torch.cuda, "set_rng_state", dead)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    with pytest.raises(ElectraError, match=r"illegal memory access.*ELECTRA_GPU_KERNELS=off"):
        trust._check("agrees", on_a_gpu, 64)


def test_twins_multiply_exactly_where_the_run_does_not(on_a_gpu: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    def exact(device: torch.device, shape: int) -> None:
        assert torch.get_float32_matmul_precision() == "highest"

    monkeypatch.setitem(trust._checks, "agrees", (exact, 64))
    torch.set_float32_matmul_precision("high")
    try:
        assert trust.trusted("agrees", on_a_gpu, 64)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


class Launches:
    """In place of the module of kernels: which were launched, and over how many programs."""

    def __init__(self) -> None:
        self.grids: dict[str, tuple[int, ...]] = {}

    def __getattr__(self, name: str) -> Launches:
        self.name = name
        return self

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        self.grids[self.name] = grid
        return lambda *_, **__: None


def test_heads_and_rows_are_on_the_grid_s_first_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    """There 2^31 fit, on the others 65,535: 12 heads of 6,000 rows are more."""
    seen = Launches()
    monkeypatch.setattr(trust, "kernels", lambda: seen)
    packed = torch.empty((6000, 512, 3, 12, 64), device="meta", dtype=torch.bfloat16)
    gpu_attention._run(packed, 0.1, back=False)
    gpu_attention._run(packed, 0.1, back=True)
    assert seen.grids == dict.fromkeys(
        ("attention_forward", "attention_backward", "attention_backward_queries"), (6000 * 12 * 8,)
    )
