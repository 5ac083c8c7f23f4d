"""Proof that the GPU kernel of kernels/gpu is right and faster on this card, made in a child process.

`ELECTRA_GPU_KERNELS=on` asks for it. The child (`python -m electra_trainer.train.kernel_proof DEVICE SHAPE`) computes
the softmax of one lane of the run's own shape twenty times: equal bits each time, within bounds of the plain softmax,
and 10 % faster. A child that aborts, hangs or breaks its context is a verdict too, never the end of the run. Verdicts
are kept by GPU, driver, PyTorch, Triton, source and shape.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from electra_trainer.files.durable import replace_durably
from electra_trainer.kernels.gpu import gpu_softmax
from electra_trainer.kernels.gpu.gpu_softmax import Shape
from electra_trainer.kernels.native.library import cache_folder
from electra_trainer.objectives.vocabulary_softmax import log_probabilities, token_softmax
from electra_trainer.train.device import driver

SWITCH = "ELECTRA_GPU_KERNELS"
_LIMIT = 300.0
"""Seconds until a child counts as hanging."""
_REPEATS = 20
_FASTER = 1.1
_BOUNDS = {"float32": 2e-5, "bfloat16": 2e-2}
"""Relative error of loss and gradients against the plain softmax in fp32, as norms over a whole tensor."""
_SLACK = {"float32": 1e-5, "bfloat16": 1e-3}
"""Probability by which a sample may be off the place where its draw falls."""


class Unproved(Exception):
    """Why the kernel is not used, in a sentence."""


def wanted() -> bool:
    """True where `ELECTRA_GPU_KERNELS=on` asks for the kernel."""
    return os.environ.get(SWITCH, "").lower() in ("on", "1")


def prove(device: torch.device, shapes: set[Shape]) -> None:
    """Raise Unproved unless the kernel is proved on `device` for each shape, now or before."""
    if not shapes:
        raise Unproved("the objective has no softmax over the vocabulary")
    if find_spec("triton") is None:
        raise Unproved("Triton is not installed; PyTorch's builds for GPUs bring it")
    for shape in shapes:
        if shape.dtype not in _BOUNDS:
            raise Unproved(f"it is not written for {shape.dtype}")
        if verdict := _kept(device, shape):
            raise Unproved(verdict)


def _kept(device: torch.device, shape: Shape) -> str:
    """The verdict on a shape, empty where it is proved: the kept one, or that of a child."""
    source = [path.read_text() for path in (Path(__file__), *sorted(Path(gpu_softmax.__file__).parent.glob("*.py")))]
    triton = find_spec("triton")
    machine = [torch.cuda.get_device_name(device), driver(), torch.__version__, str(triton and triton.origin)]
    name = hashlib.sha256("\n".join([*machine, *source, str(shape)]).encode()).hexdigest()[:16]
    path = cache_folder() / f"proof-{name}.txt"
    if path.exists():
        return path.read_text()
    verdict = ask_child([sys.executable, "-m", __name__, str(device), json.dumps(asdict(shape))])
    if "memory" not in verdict:  # another run may leave more
        replace_durably(path, verdict.encode())
    return verdict


def ask_child(command: list[str], *, limit: float = _LIMIT) -> str:
    """The verdict that a child prints last; how it ended, where it printed none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return f"its proof hung for {limit:.0f} s"
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines and lines[-1].startswith("verdict:"):
        return lines[-1].removeprefix("verdict:").strip()
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return f"its proof ended with {done.returncode}: {last}"


def judge(device: torch.device, shape: Shape, *, repeats: int = _REPEATS, faster: float = _FASTER) -> str:
    """Why the kernel is not to be used on `device` for `shape`; empty where it is right and fast."""
    inputs, labels, draws = _made(device, shape)
    dtype = getattr(torch, shape.dtype)

    def compute(kernel: bool) -> tuple[Tensor, ...]:
        with (
            gpu_softmax.proved({shape} if kernel else set()),
            torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16),
        ):
            found = token_softmax(*inputs, labels_K=labels, draws_K=draws, diagnose=True)
        return *found, *torch.autograd.grad(found.loss, inputs)

    first = compute(True)
    for _ in range(repeats - 1):
        if not all(torch.equal(one, other) for one, other in zip(first, compute(True), strict=True)):
            return "its results differ from one time to the next"
    if reason := _disagreement(first, inputs, labels, draws, shape.dtype):
        return reason
    gain = _seconds(lambda: compute(False), device, repeats) / _seconds(lambda: compute(True), device, repeats)
    return "" if gain >= faster else f"it is {gain:.2f} times as fast as PyTorch's, less than {faster:g}"


def _made(device: torch.device, shape: Shape) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
    """Hidden states, words and bias, rounded to the type of the products, labels, and draws."""
    random = torch.Generator().manual_seed(5)
    sizes = ((shape.slots, shape.width), (shape.words, shape.width), (shape.words,))
    made = [torch.randn(size, generator=random) for size in sizes]
    made[0] *= 3 / shape.width**0.5  # logits between about -10 and 10
    rounded = (one.to(getattr(torch, shape.dtype)).float().to(device).requires_grad_() for one in made)
    labels = torch.randint(shape.words, (shape.slots,), generator=random)
    labels[::7] = -100
    return tuple(rounded), labels.to(device), torch.rand(shape.slots, generator=random).to(device)


def _disagreement(
    found: tuple[Tensor, ...], inputs: tuple[Tensor, ...], labels: Tensor, draws: Tensor, dtype: str
) -> str:
    """The first result that differs from the plain softmax in fp32 by more than its bound; empty if none."""
    plain = token_softmax(*inputs, labels_K=labels, draws_K=draws, diagnose=True)
    exact = (*plain, *torch.autograd.grad(plain.loss, inputs))
    names = ("loss", "samples", "most probable words", "entropy", "gradient of hidden states", "gradient of words",
             "gradient of the bias")  # fmt: skip
    for name, mine, theirs in zip(names, found, exact, strict=True):
        if name == "most probable words":
            if not torch.equal(mine[labels >= 0], theirs[labels >= 0]):
                return f"its {name} are others"
        elif name != "samples":
            distance, size = (float(one.detach().float().norm()) for one in (mine - theirs, theirs))
            if not distance <= _BOUNDS[dtype] * size + 1e-30:
                return f"its {name} differs by {distance / max(size, 1e-30):.2g} (relative)"
    for part, log_p_kV in log_probabilities(*(one.detach() for one in inputs)):
        sampled, p_kV = found[1][part, None], log_p_kV.exp()
        up_to = p_kV.cumsum(1).gather(1, sampled)
        low, high = up_to - p_kV.gather(1, sampled) - _SLACK[dtype], up_to + _SLACK[dtype]
        if not bool(((low <= draws[part, None]) & (draws[part, None] <= high)).all()):
            return "a sample is not where its draw falls"
    return ""


def _seconds(compute: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Seconds of the fastest of `repeats` calls."""
    times = []
    for _ in range(repeats):
        _wait(device)
        began = time.perf_counter()
        compute()
        _wait(device)
        times.append(time.perf_counter() - began)
    return min(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    torch.set_float32_matmul_precision("highest")
    print("verdict:", judge(torch.device(sys.argv[1]), Shape(**json.loads(sys.argv[2]))))
