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

from electra_trainer.kernels.gpu import add_norm, gpu_attention, gpu_softmax, keyed_dropout, shared_sums, trust
from electra_trainer.kernels.gpu.trust import close
from electra_trainer.model import encoder
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
    layer = torch.nn.LayerNorm(48)
    found = []
    for key in ((1, 1), (1, 1), (1, 2)):
        out = add_norm.add_norm(inputs[0], None, inputs[1], layer, torch.tensor(key), dropout=0.3)
        found.append([out, *torch.autograd.grad(out.square().sum(), [*inputs, layer.weight])])
    for one, two, three in zip(*found, strict=True):
        assert torch.equal(one, two) and not torch.equal(one, three)
    nothing = add_norm.add_norm(inputs[0][:0], layer.bias, inputs[1][:0], layer, torch.tensor([1, 1]), dropout=0.3)
    assert not torch.autograd.grad(nothing.sum(), layer.weight)[0].any()


def sums() -> None:
    """Of three operators at once; of one alone, of which nobody asks, nothing is launched; the same to the bit each time."""
    shared_sums.check(CPU, shared_sums.Shape(torch.bfloat16, 40))
    shared_sums.check(CPU, shared_sums.Shape(torch.float32, 33))
    weights = [torch.ones(size, requires_grad=True) for size in (8, 8, 24)]
    places = shared_sums.places([[None, *weights[:2]], weights[2:], [None, *weights[:2]]], [5, 2, 3])
    assert [place.shape for place in places] == [(5, 3, 8), (2, 3, 8), (3, 3, 8)]
    given = torch.arange(5.0).view(5, 1, 1).expand(5, 3, 8)
    found = torch.autograd.grad(places[0], weights, given, allow_unused=True)
    assert found[2] is None and all(torch.equal(one, torch.full((8,), 10.0)) for one in found[:2])


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
    """512 tokens with dropout: both kernels of the backward pass, eight blocks each. The faster of two ways is taken, once for a shape."""
    gpu_attention.check(CPU, gpu_attention.Shape(torch.bfloat16, 1, 512, 64, drops=True, back=True), rows=1)
    trust.trusted = lambda name, device, shape: True
    real, times = gpu_attention._made, []
    gpu_attention._made = lambda device, shape, rows: real(device, shape, rows=1)
    gpu_attention._milliseconds = lambda run: run() or times.pop(0)
    for tokens, ours, theirs, wanted in (
        (192, 1.0, 0.9, True),
        (160, 1.0, 0.7, False),
        (144, 1.0, float("inf"), True),
        (128, 9.0, 1.0, True),
    ):
        shape = gpu_attention.Shape(torch.bfloat16, 1, tokens, 32, drops=False, back=tokens == 160)
        times[:] = [ours, theirs]
        for _ in range(2):
            assert gpu_attention.usable(CPU, shape, instead=encoder.by_pytorch) is wanted
        assert times == ([] if tokens > 128 else [9.0, 1.0])
    torch.use_deterministic_algorithms(True)
    slow = gpu_attention.Shape(torch.bfloat16, 1, 160, 32, drops=False, back=True)
    assert gpu_attention.usable(CPU, slow, instead=encoder.by_pytorch), "timed where the result must not depend on it"


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
    operators, shared = torch.ops.electra, layer.bias.detach()
    places = [torch.zeros((1, 3, 64), requires_grad=True), torch.zeros((4, 3, 48), requires_grad=True)]
    for operator, inputs in (
        (operators.attention.default, (packed, places[0], pieces, key, 0.2)),
        (operators.add_norm.default, (inner, shared, residual, shared, shared, places[1], key, 1e-12, 0.2)),
    ):
        checks = ("test_schema", "test_autograd_registration", "test_faketensor")
        torch.library.opcheck(operator, inputs, test_utils=checks)


def compiled() -> None:
    """A layer through PyTorch's compiler, in one graph, equals the layer without it, kernels, dropout and gradients included.

    Its sums are finished together, which equals one operator after the other.
    """
    model = Model(
        vocab_size=20,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        embedding_size=64,
    )
    layers, hidden = encoder.Layers(model), torch.randn((1, 20, 64), requires_grad=True)
    pieces, keys, results = torch.ones((1, 20), dtype=torch.int32), keyed_dropout.draw_keys(CPU, 2, 3), []
    packed = encoder._all_packed(layers)
    places = encoder._all_places(layers, [bias for _, bias in packed], (1, 20, 20))
    for compiled, together in ((False, False), (False, True), (True, True)):
        for layer in layers.layer if compiled else ():
            layer.compile(fullgraph=True, dynamic=False, backend="aot_eager")
        out = layers(hidden, encoder.OnGpu(None, pieces, True, keys, packed, places if together else []))
        wanted = [hidden, *layers.parameters()]
        results.append((out, *torch.autograd.grad(out.square().sum(), wanted, retain_graph=True)))
    for plain_one, *others in zip(*results, strict=True):
        for other in others:
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
        encoder.on_a_gpu = lambda tensor: True
        losses = objective(masked, Rng(1, 0, 0), diagnose=True)
        total = losses.total({"masked": 9.0, "real": 60.0})
        found.append((losses, torch.autograd.grad(total, list(objective.parameters()))))
    assert used == {gpu_softmax.NAME, gpu_attention.NAME, add_norm.NAME, shared_sums.NAME} and trust.interpreted()
    (plain_losses, plain_gradients), (fast_losses, fast_gradients) = found
    for name, term in plain_losses.terms.items():
        close(name, fast_losses.terms[name].sum, term.sum, 1e-5)
    assert torch.equal(plain_losses.diagnostics["corrupted_BT"], fast_losses.diagnostics["corrupted_BT"])
    whole = [
        torch.cat([gradient.flatten() for gradient in gradients]) for gradients in (fast_gradients, plain_gradients)
    ]
    close("the gradient", whole[0], whole[1], 1e-4)


CHECKS = {
    check.__name__: check
    for check in (vocabulary, frequencies, norm, sums, attention, long_rows, operators, compiled, model)
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
