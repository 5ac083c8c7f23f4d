"""The GPU's kernel on the CPU: `TRITON_INTERPRET=1 python -m tests.kernels.gpu.interpreted [NAME ...]`.

Prints one JSON object: what each check raised, "" where nothing. Each is a fork, since some change the module that they check.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable

import torch

from electra_trainer.kernels.gpu import gpu_softmax
from electra_trainer.kernels.gpu.gpu_softmax import Shape
from electra_trainer.objectives import vocabulary_softmax as plain
from electra_trainer.train import kernel_proof

CPU = torch.device("cpu")


def patch_once() -> None:
    """Triton's interpreter looks through all of its language whenever a kernel calls a function: a third of the time.

    A launch has done so already for the kernel's own module, and what a call changes for another module is never undone.
    """
    from triton.runtime.interpreter import InterpretedFunction

    real, modules = InterpretedFunction.__call__, set()

    def call(self: InterpretedFunction, *words: object, **more: object) -> object:
        if self.fn.__module__ in modules:
            return self.rewrite()(*words, **more)
        modules.add(self.fn.__module__)
        return real(self, *words, **more)

    InterpretedFunction.__call__ = call


def right(shape: Shape) -> None:
    """The child's own judgement, without the speed."""
    verdict = kernel_proof.judge(CPU, shape, repeats=2, faster=0.0)
    assert not verdict, (shape, verdict)


def vocabulary() -> None:
    """Sizes that fill no tile; several chunks, of several tiles; the objective's own plain way."""
    for dtype in ("float32", "bfloat16"):
        right(Shape(dtype, slots=9, width=40, words=300))
    gpu_softmax._BLOCK_K = 8
    gpu_softmax._CHUNK_ELEMENTS = 16 * 384  # 16 slots at a time
    right(Shape("bfloat16", slots=19, width=16, words=257))
    random = torch.Generator().manual_seed(3)
    tensors = [torch.randn(shape, generator=random).requires_grad_() for shape in ((19, 24), (140, 24), (140,))]
    labels, draws = torch.randint(140, (19,), generator=random), torch.rand(19, generator=random)
    labels[::5] = -100
    used = labels >= 0
    for diagnose in (False, True):
        expected = plain.token_softmax(*tensors, labels_K=labels, draws_K=draws, diagnose=diagnose)
        found = gpu_softmax.VocabularySoftmax.apply(*tensors, labels, draws, (torch.float32, True, diagnose))
        torch.testing.assert_close(found[0], expected.loss, rtol=1e-6, atol=0)
        assert torch.equal(found[1][used], expected.sampled_K[used])
        assert torch.equal(found[2], expected.correct_K)
        torch.testing.assert_close(found[3], expected.entropy_K, rtol=1e-4, atol=1e-5)
        ours, theirs = (torch.autograd.grad(2.5 * loss, tensors) for loss in (found[0], expected.loss))
        for mine, other in zip(ours, theirs, strict=True):
            assert (mine - other).norm() <= 1e-5 * other.norm()
    real, widths = gpu_softmax._product, set()
    gpu_softmax._product = lambda left, right: widths.update((left.shape[1], right.shape[1])) or real(left, right)
    right(Shape("bfloat16", slots=5, width=16, words=257))
    assert 384 in widths and 257 not in widths, "products along the vocabulary are not of a multiple of 128"
    nothing = gpu_softmax.VocabularySoftmax.apply(
        tensors[0][:0], *tensors[1:], labels[:0], draws[:0], (torch.float32, True, True)
    )
    assert float(nothing[0]) == 0.0 and not torch.autograd.grad(nothing[0], tensors[1])[0].any()
    quiet = gpu_softmax.VocabularySoftmax.apply(
        tensors[0][:9], *tensors[1:], labels[:9], None, (torch.bfloat16, False, False)
    )
    assert not quiet[1].any()


def frequencies() -> None:
    """Many draws from one distribution: each word as often as it should be."""
    gpu_softmax._BLOCK_V = 16
    words, many = 40, 60
    logits = torch.randn(words, generator=torch.Generator().manual_seed(1))
    draws, labels = (torch.arange(many) + 0.5) / many, torch.zeros(many, dtype=torch.int64)
    inputs = (torch.zeros(many, 16), torch.zeros(words, 16), logits, labels, draws)
    found = gpu_softmax.VocabularySoftmax.apply(*inputs, (torch.float32, False, False))
    counts = torch.bincount(found[1], minlength=words)
    assert float((counts - many * logits.softmax(0)).abs().max()) <= 1.0


def wrong() -> None:
    """A kernel that is slow, that differs from the plain softmax, or from one time to the next, is not proved."""
    shape = Shape("float32", slots=9, width=24, words=140)
    slow = kernel_proof.judge(CPU, shape, repeats=2, faster=1000.0)
    assert slow.startswith("it is 0.") and slow.endswith("times as fast as PyTorch's, less than 1000"), slow
    real, added = gpu_softmax._product, [0.0]
    gpu_softmax._product = lambda left, right: real(left, right) * (1 + added[0])
    added[0] = 0.01
    assert kernel_proof.judge(CPU, shape, repeats=2).startswith("its gradient of hidden states differs by 0.01")

    def drifting(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        added[0] += 1e-6
        return real(left, right) * (1 + added[0])

    gpu_softmax._product = drifting
    assert kernel_proof.judge(CPU, shape, repeats=2) == "its results differ from one time to the next"


def model() -> None:
    """The kernel in a whole objective, one layer in each network: losses, samples and gradients of PyTorch's softmax."""
    from tests import small

    from electra_trainer.objectives import build
    from electra_trainer.randomness import Rng

    settings = small.config()
    shape = dataclasses.replace(settings.model, num_hidden_layers=1, hidden_dropout_prob=0.0)
    settings = dataclasses.replace(settings, model=dataclasses.replace(shape, attention_probs_dropout_prob=0.0))
    objective = build(settings)
    masked = small.masker(settings)(small.batch(small.rows(2)), Rng(1, 0, 0))
    found, shapes = [], set()
    for _ in range(2):
        with gpu_softmax.proved(shapes) as asked:
            losses = objective(masked, Rng(1, 0, 0), diagnose=True)
        shapes = asked
        total = losses.total({"masked": 9.0, "real": 60.0})
        found.append((losses, torch.autograd.grad(total, list(objective.parameters()))))
    assert len(shapes) == 1
    (plain_losses, plain_gradients), (fast_losses, fast_gradients) = found
    for name, term in plain_losses.terms.items():
        torch.testing.assert_close(fast_losses.terms[name].sum, term.sum, rtol=1e-5, atol=0)
    assert torch.equal(plain_losses.diagnostics["corrupted_BT"], fast_losses.diagnostics["corrupted_BT"])
    fast, other = (torch.cat([one.flatten() for one in gradients]) for gradients in (fast_gradients, plain_gradients))
    assert (fast - other).norm() <= 1e-4 * other.norm()


CHECKS = {check.__name__: check for check in (vocabulary, frequencies, wrong, model)}


def raised(check: Callable[[], None]) -> str:
    """What a check raises, in a process of its own; and that it was ended, where something ended it."""
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if not child:
            try:
                check()
            except BaseException:
                said.write(traceback.format_exc().encode())
                said.flush()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return said.read().decode() or f"ended with {os.waitstatus_to_exitcode(status)}" * (status != 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    patch_once()
    print(json.dumps({name: raised(CHECKS[name]) for name in sys.argv[1:] or CHECKS}))
