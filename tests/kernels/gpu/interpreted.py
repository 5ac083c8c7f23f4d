"""The checks of the GPU's fast paths on the CPU: `TRITON_INTERPRET=1 python -m tests.kernels.gpu.interpreted [NAME ...]`.

Prints one JSON object: what each check raised, "" where nothing. Each is a fork, since some change the modules that they check.
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
import torch._dynamo  # here once instead of in every fork

from electra_trainer.kernels import stack
from electra_trainer.kernels.gpu import add_norm, gpu_attention, gpu_softmax, gpu_stack, trust
from electra_trainer.kernels.gpu.trust import close
from electra_trainer.model import encoder, exact_sums
from electra_trainer.objectives import vocabulary_softmax as plain
from electra_trainer.settings.config import Model

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


def vocabulary() -> None:
    """Sizes that fill no tile; several chunks, of several tiles; the objective's own plain way."""
    for dtype in (torch.float32, torch.bfloat16):
        gpu_softmax.check(CPU, gpu_softmax.Shape(dtype, width=40, words=300), slots=9)
    gpu_softmax._BLOCK_K = 8
    gpu_softmax._CHUNK_ELEMENTS = 16 * 384  # 16 slots at a time
    gpu_softmax.check(CPU, gpu_softmax.Shape(torch.bfloat16, width=16, words=257), slots=19)
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
        for mine, theirs in zip(
            torch.autograd.grad(2.5 * found[0], tensors), torch.autograd.grad(2.5 * expected.loss, tensors), strict=True
        ):
            close("a gradient", mine, theirs, 1e-5)
    real, widths = gpu_softmax._product, set()
    gpu_softmax._product = lambda left, right: widths.update((left.shape[1], right.shape[1])) or real(left, right)
    gpu_softmax.check(CPU, gpu_softmax.Shape(torch.bfloat16, width=16, words=257), slots=5)
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
    hidden = torch.zeros(many, 16)
    draws = (torch.arange(many) + 0.5) / many
    found = gpu_softmax.VocabularySoftmax.apply(
        hidden,
        torch.zeros(words, 16),
        logits,
        torch.zeros(many, dtype=torch.int64),
        draws,
        (torch.float32, False, False),
    )
    counts = torch.bincount(found[1], minlength=words)
    assert float((counts - many * logits.softmax(0)).abs().max()) <= 1.0


def norm() -> None:
    """Widths that fill no tile, and the function that the model calls, whose dropout follows its key."""
    add_norm._PROGRAMS = 2  # three rows each, of which the last has two
    for dtype in (torch.float32, torch.bfloat16):
        for drops in (False, True):
            add_norm.check(CPU, add_norm.Shape(dtype, 125, drops=drops, back=True), rows=5)
    inputs = [torch.randn(2, 2, 48, requires_grad=True) for _ in range(2)]
    layer, shift = torch.nn.LayerNorm(48), torch.zeros(48)
    found = []
    for key in ((1, 1), (1, 1), (1, 2)):
        out = add_norm.add_norm(inputs[0], shift, inputs[1], layer, torch.tensor(key), dropout=0.3)
        found.append([out, *torch.autograd.grad(out.square().sum(), [*inputs, layer.weight])])
    for one, two, three in zip(*found, strict=True):
        assert torch.equal(one, two) and not torch.equal(one, three)
    nothing = add_norm.add_norm(inputs[0][:0], layer.bias, inputs[1][:0], layer, torch.tensor([1, 1]), dropout=0.3)
    assert not torch.autograd.grad(nothing.sum(), layer.weight)[0].any()


def attention() -> None:
    """One block and several, neither filled, and one of 128 tokens (bf16); the same on cards before Hopper; without gradients."""
    for dtype, heads, tokens, size in (
        (torch.float32, 2, 24, 32), (torch.float32, 1, 100, 32), (torch.bfloat16, 2, 100, 64), (torch.bfloat16, 1, 100, 128),
    ):  # fmt: skip
        for drops in (False, True):
            shape = gpu_attention.Shape(dtype, heads, tokens, size, drops=drops, back=True)
            gpu_attention.check(CPU, shape, rows=1 + (tokens < 64))
    gpu_attention._wide_products = lambda device: False
    gpu_attention.check(CPU, dataclasses.replace(shape, size=64), rows=1)
    gpu_attention.check(CPU, dataclasses.replace(shape, back=False), rows=1)


def long_rows() -> None:
    """512 tokens with dropout: both kernels of the backward pass, eight blocks each."""
    gpu_attention.check(CPU, gpu_attention.Shape(torch.bfloat16, 1, 512, 64, drops=True, back=True), rows=1)


def operators() -> None:
    """What the compiler is told of the kernels is true, and it takes them in without looking into them."""
    packed, pieces, key = (
        torch.randn((1, 20, 3, 2, 32), requires_grad=True),
        torch.ones((1, 20), dtype=torch.int32),
        torch.tensor([3, 4]),
    )
    inner, residual, layer = (
        torch.randn((4, 48), requires_grad=True),
        torch.randn((4, 48), requires_grad=True),
        torch.nn.LayerNorm(48),
    )
    operators, shared = torch.ops.electra, torch.zeros(48, requires_grad=True)
    bias = torch.zeros(192, requires_grad=True)
    for operator, inputs in (
        (operators.attention.default, (packed, bias, pieces, key, 0.2)),
        (operators.add_norm.default, (inner, shared, residual, layer.weight, layer.bias, key, 1e-12, 0.2)),
    ):
        checks = ("test_schema", "test_autograd_registration", "test_faketensor")
        torch.library.opcheck(operator, inputs, test_utils=checks)


def compiled() -> None:
    """A layer through PyTorch's compiler, in one graph, equals the layer without it, kernels, dropout and gradients included."""
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = Model(vocab_size=20, embedding_size=64, **shape)
    layers, hidden, results = encoder.Layers(model), torch.randn((1, 20, 64), requires_grad=True), []
    pieces, used = torch.ones((1, 20), dtype=torch.int32), gpu_stack.Used(attention=True, norm=True)
    fast = torch.compile(gpu_stack.run_layer, fullgraph=True, dynamic=False, backend="aot_eager")
    for function in (gpu_stack.run_layer, fast):
        torch.manual_seed(1)
        with gpu_stack.layers_run_by(function):
            out = gpu_stack.run_layers(layers, hidden, pieces, used)
        wanted = [hidden, *layers.parameters()]
        results.append((out, *torch.autograd.grad(out.square().sum(), wanted)))
    for plain_one, other in zip(*results, strict=True):
        torch.testing.assert_close(plain_one, other)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1, "each layer was compiled by itself"


def model() -> None:
    """All kernels in a whole objective, one layer in each network, without dropout: losses and gradients of the plain paths."""
    from tests import small

    from electra_trainer.objectives import build
    from electra_trainer.randomness import Rng

    settings = small.config()
    shape = dataclasses.replace(
        settings.model, hidden_size=64, num_hidden_layers=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    settings = dataclasses.replace(settings, model=shape)
    objective = build(settings)
    masked = small.masker(settings)(small.batch(small.rows(2)), Rng(1, 0, 0))
    found, used = [], set()
    for fast in (False, True):

        def trusted(name: str, device: torch.device, shape: object, fast: bool = fast) -> bool:
            used.add(name)
            return fast

        trust.trusted = trusted
        stack.on_a_gpu = exact_sums.on_a_gpu = lambda tensor: True
        losses = objective(masked, Rng(1, 0, 0), diagnose=True)
        total = losses.total({"masked": 9.0, "real": 60.0})
        found.append((losses, torch.autograd.grad(total, list(objective.parameters()))))
    assert used == {gpu_softmax.NAME, gpu_attention.NAME, add_norm.NAME} and trust.interpreted()
    (plain_losses, plain_gradients), (fast_losses, fast_gradients) = found
    for name, term in plain_losses.terms.items():
        close(name, fast_losses.terms[name].sum, term.sum, 1e-5)
    assert torch.equal(plain_losses.diagnostics["corrupted_BT"], fast_losses.diagnostics["corrupted_BT"])
    whole = [
        torch.cat([gradient.flatten() for gradient in gradients]) for gradients in (fast_gradients, plain_gradients)
    ]
    close("the gradient", whole[0], whole[1], 1e-4)


CHECKS = {
    check.__name__: check for check in (vocabulary, frequencies, norm, attention, long_rows, operators, compiled, model)
}


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
