"""The Triton kernel against PyTorch's softmax, through Triton's interpreter on the CPU; and how a child proves it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from electra_trainer.kernels.gpu import gpu_softmax
from electra_trainer.kernels.gpu.gpu_softmax import Shape
from electra_trainer.train import kernel_proof

ROOT = Path(__file__).resolve().parents[3]
BESIDE = Path(sys.prefix) / "triton-3.7"
"""Where `make` puts Triton on machines whose PyTorch brings none."""
HERE = find_spec("triton") is not None
needs_triton = pytest.mark.skipif(
    not HERE and not BESIDE.exists(), reason="Triton is not installed (make test installs it)"
)


def with_triton(**more: str) -> dict[str, str]:
    places = [str(ROOT / "src"), str(ROOT), *([] if HERE else [str(BESIDE)]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places), **more}


@pytest.fixture(scope="module")
def interpreted() -> dict[str, str]:
    """Checks of tests/kernels/gpu/interpreted.py -> what they raised."""
    command = [sys.executable, "-m", "tests.kernels.gpu.interpreted"]
    environment = with_triton(TRITON_INTERPRET="1", ELECTRA_NATIVE="off")
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    raised: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return raised


@needs_triton
@pytest.mark.parametrize("name", ["vocabulary", "frequencies", "wrong", "model"])
def test_the_kernel_equals_its_plain_twin(name: str, interpreted: dict[str, str]) -> None:
    assert not interpreted[name], interpreted[name]


@pytest.mark.slow
@needs_triton
def test_the_kernel_fits_the_cards() -> None:
    """Registers and shared memory of the machine code: what compiled.py lists."""
    environment = with_triton()
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-m", "tests.kernels.gpu.compiled"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_no_kernel_is_used_outside_a_proved_step() -> None:
    hidden, words = torch.zeros(5, 8), torch.zeros(20, 8)
    shape = Shape("bfloat16", slots=5, width=8, words=20)
    assert not gpu_softmax.usable(hidden, words, torch.bfloat16)
    with gpu_softmax.proved({shape}) as asked:
        assert gpu_softmax.usable(hidden, words, torch.bfloat16)
        assert not gpu_softmax.usable(hidden, words, torch.float32) and not gpu_softmax.usable(
            hidden[:4], words, torch.bfloat16
        )
    assert len(asked) == 3 and not gpu_softmax.usable(hidden, words, torch.bfloat16)


@pytest.mark.parametrize(
    ("deed", "verdict"),
    [
        ("print('noise'); print('verdict: ')", ""),
        ("print('verdict: it is slow')", "it is slow"),
        ("import os; os.abort()", "its proof ended with -6: no message"),
        ("raise RuntimeError('CUDA error: an illegal memory access')",
         "its proof ended with 1: RuntimeError: CUDA error: an illegal memory access"),
        ("print('verdict: '); import os; os.abort()", "its proof ended with -6: no message"),
        ("pass", "its proof ended with 0: no message"),
        ("import time; time.sleep(60)", "its proof hung for 2 s"),
    ],
)  # fmt: skip
def test_a_child_that_ends_in_any_way_is_a_verdict(deed: str, verdict: str) -> None:
    limit = 2 if "sleep" in deed else 60
    assert kernel_proof.ask_child([sys.executable, "-c", deed], limit=limit) == verdict


def test_verdicts_are_kept_by_card_and_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Shape] = []
    verdicts = ["", "", "it ran out of memory", "it is slow"]

    def child(command: list[str]) -> str:
        assert command[:4] == [sys.executable, "-m", "electra_trainer.train.kernel_proof", "cuda:0"]
        asked.append(Shape(**json.loads(command[4])))
        return verdicts[len(asked) - 1]

    monkeypatch.setattr(kernel_proof, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(kernel_proof, "ask_child", child)
    monkeypatch.setattr(kernel_proof, "find_spec", lambda name: object.__new__(Spec))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")
    card, shape = torch.device("cuda:0"), Shape("bfloat16", 5, 8, 20)
    for _ in range(2):
        kernel_proof.prove(card, {shape})
    assert asked == [shape]
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "another card")
    kernel_proof.prove(card, {shape})
    other = Shape("bfloat16", 6, 8, 20)
    for verdict in ("it ran out of memory", "it is slow", "it is slow"):  # memory may be there next time
        with pytest.raises(kernel_proof.Unproved, match=verdict):
            kernel_proof.prove(card, {other})
    assert asked == [shape, shape, other, other]
    with pytest.raises(kernel_proof.Unproved, match="not written for float16"):
        kernel_proof.prove(card, {Shape("float16", 5, 8, 20)})
    with pytest.raises(kernel_proof.Unproved, match="no softmax over the vocabulary"):
        kernel_proof.prove(card, set())


class Spec:
    origin = "triton 3.7"
