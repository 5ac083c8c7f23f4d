"""The native layers against model/encoder.py: in fp64, which is the truth, and in the same precision, which sets the tolerance."""

import contextlib
import copy
import ctypes
import functools
import math
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.kernels.native import layers as native
from electra_trainer.kernels.native import library
from electra_trainer.model.encoder import Layers
from electra_trainer.settings.config import Model

pytestmark = pytest.mark.usefixtures("variant")
Tensors = dict[str, Tensor]
Run = Callable[..., Tensors]
Build = Callable[..., tuple[Any, ...]]

SHAPES = {  # hidden, inner, heads, layers, rows, tokens
    "small": (256, 1024, 4, 1, 2, 128),
    "small's generator": (64, 256, 1, 2, 3, 128),
    "tiny": (128, 512, 2, 3, 5, 32),
    "base": (768, 768, 12, 1, 2, 32),
    "narrow heads, odd length": (96, 160, 3, 2, 4, 45),
    "wide heads": (256, 160, 2, 1, 3, 64),
    "heads of 96": (192, 96, 2, 1, 2, 64),
    "chunks with a rest": (64, 128, 1, 2, 20, 64),
    "long rows": (64, 128, 1, 1, 2, 600),
}


def build(
    hidden: int, inner: int, heads: int, layers: int, rows: int, tokens: int, *, dropout: float = 0.0
) -> tuple[Layers, Tensor, Tensor, Tensor]:
    """Layers with weights of a trained model's size, an input, pieces with padding, and a gradient for the output."""
    random = torch.Generator().manual_seed(3)
    net = Layers(
        Model(
            hidden_size=hidden, intermediate_size=inner, num_attention_heads=heads, num_hidden_layers=layers,
            hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        )
    )  # fmt: skip
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(0.06 * torch.randn(parameter.shape, generator=random) + ("LayerNorm.weight" in name))
    hidden_BTD = torch.randn(rows, tokens, hidden, generator=random).requires_grad_()
    piece_BT = torch.ones(rows, tokens, dtype=torch.int64)
    piece_BT[0, tokens // 3 :] = 2
    piece_BT[1, -tokens // 5 :] = 0
    return net, hidden_BTD, piece_BT, torch.randn(rows, tokens, hidden, generator=random)


def precision() -> torch.autocast:
    """Precision of the variant under test."""
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=library.kernels("bf16") is not None)


def close(ours: float, theirs: float) -> bool:
    """Is an error as small as PyTorch's own in the same precision, but for the ways of rounding?"""
    return ours < 1.5 * theirs + (0.006 if library.kernels("bf16") else 1e-6)


def run(
    net: nn.Module, hidden: Tensor, places: Any, upstream: Tensor, read: Tensor | None = None, *, how: str = "native"
) -> dict[str, Tensor]:
    """Output and gradients by `how`: native; plain, PyTorch in the same precision; or truth, in fp64. `places` is the pieces, or
    the `Places` of modern layers.
    """
    if how == "truth":
        net, upstream = copy.deepcopy(net).double(), upstream.double()
        hidden = hidden.detach().double().requires_grad_()
        if isinstance(places, tuple):
            piece_BT, *angles = places
            places = type(places)(piece_BT, *(one if one is None else one.double() for one in angles))
    with precision() if how != "truth" else contextlib.nullcontext():
        assert how != "native" or native.fits(net, hidden)
        out = (functools.partial(native.run_layers, net) if how == "native" else net)(hidden, places, read)
    wanted = {"input": hidden, **dict(net.named_parameters())}
    found = torch.autograd.grad(out, list(wanted.values()), upstream.to(out.dtype))
    return {"output": out.detach().double(), **dict(zip(wanted, found, strict=True))}


def error(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).norm() / truth.norm())


@functools.cache
def expected(
    run: Run, build: Build, arguments: tuple[tuple[str, int], ...], _: str
) -> tuple[Tensors, dict[str, float]]:
    """The truth, and PyTorch's own errors: they differ between precisions, not between variants of the kernels."""
    truth, theirs = (run(*build(**dict(arguments)), how=how) for how in ("truth", "plain"))
    return truth, {name: error(theirs[name], truth[name]) for name in truth}


def assert_as_exact(run: Run, build: Build, **arguments: int) -> None:
    """Output and gradients of the kernels against the truth."""
    precision = "bf16" if library.kernels("bf16") else "fp32"
    truth, theirs = expected(run, build, tuple(arguments.items()), precision)
    ours = run(*build(**arguments))
    for name in truth:
        if "key.bias" not in name:  # its gradient is zero but for rounding
            assert close(error(ours[name], truth[name]), theirs[name]), name


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_as_exact_as_pytorch(shape: tuple[int, ...]) -> None:
    names = ("hidden", "inner", "heads", "layers", "rows", "tokens")
    assert_as_exact(run, build, **dict(zip(names, shape, strict=True)))


def test_pieces_do_not_see_each_other() -> None:
    net, hidden, piece, upstream = build(64, 128, 2, 2, 2, 64)
    before = run(net, hidden, piece, upstream)["output"]
    other = hidden.detach().clone()
    other[0, piece[0] == 2] += 1
    after = run(net, other.requires_grad_(), piece, upstream)["output"]
    assert torch.equal(before[0, piece[0] == 1], after[0, piece[0] == 1])
    assert not torch.equal(before[0, piece[0] == 2], after[0, piece[0] == 2])


def kept(p: float, key: int, place: int, rows: int, columns: int) -> Tensor:
    """The kernels' dropout decisions, bool [rows, columns]."""
    found = torch.empty(rows, columns, dtype=torch.uint8)
    kernels = library.kernels("bf16") or library.kernels("fp32")
    assert kernels is not None
    kernels.dropout_kept(
        ctypes.c_double(p), ctypes.c_uint64(key), ctypes.c_uint32(place), ctypes.c_int64(rows),
        ctypes.c_int64(columns // 32), ctypes.c_void_p(found.data_ptr()),
    )  # fmt: skip
    return found.bool()


def layer_with_masks(net: Layers, x_BTD: Tensor, p: float, key: int) -> Tensor:
    """One layer with the kernels' dropout decisions, written out."""
    layer = net.layer[0]
    rows, tokens, width = x_BTD.shape
    heads = net.model.num_attention_heads
    scale = 65536 / (65536 - round(p * 65536))
    weights = kept(p, key, 0, rows * heads * tokens, tokens).view(rows, heads, tokens, tokens) * scale
    middle, output = (kept(p, key, place, rows * tokens, width).view(x_BTD.shape) * scale for place in (1, 2))
    of = layer.attention.self
    q, k, v = (part(x_BTD).view(rows, tokens, heads, -1).transpose(1, 2) for part in (of.query, of.key, of.value))
    mixed = ((q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) * weights) @ v
    attention, end = layer.attention.output, layer.output
    summed = attention.dense(mixed.transpose(1, 2).flatten(2)) * middle + x_BTD
    y_BTD = attention.LayerNorm(summed)
    last: Tensor = end.LayerNorm(end.dense(F.gelu(layer.intermediate.dense(y_BTD))) * output + y_BTD)
    return last


@pytest.mark.parametrize("rows", [3, 20], ids=["one chunk", "three chunks"])
def test_dropout_drops_the_same_in_both_passes(rows: int) -> None:
    net, hidden, piece, upstream = build(64, 128, 2, 1, rows, 64, dropout=0.3)
    piece.fill_(1)
    net.train()
    torch.manual_seed(5)
    ours = run(net, hidden, piece, upstream)
    torch.manual_seed(5)
    expected = layer_with_masks(net, hidden, 0.3, int(torch.randint(2**63 - 1, ())))
    limit = 0.012 if library.kernels("bf16") else 1e-5
    assert error(ours["output"], expected.detach()) < limit
    wanted = {"input": hidden, **dict(net.named_parameters())}
    truth = torch.autograd.grad(expected, list(wanted.values()), upstream)
    for name, gradient in zip(wanted, truth, strict=True):
        assert "key.bias" in name or error(ours[name], gradient) < limit, name


def test_dropout_is_fair_and_independent() -> None:
    mask = kept(0.1, 42, 7, 512, 512)
    assert mask.float().mean().item() == pytest.approx(0.9, abs=4 * 0.3 / 512)
    assert mask.float().mean(0).std().item() == pytest.approx(0.3 / math.sqrt(512), rel=0.15)
    assert mask.float().mean(1).std().item() == pytest.approx(0.3 / math.sqrt(512), rel=0.15)
    for other in (kept(0.1, 43, 7, 512, 512), kept(0.1, 42, 8, 512, 512), mask.roll(1, 0), mask.roll(1, 1)):
        agree = (mask == other).float().mean().item()
        assert agree == pytest.approx(0.9**2 + 0.1**2, abs=4 * 0.4 / 512)
    assert torch.equal(mask[:40], kept(0.1, 42, 7, 40, 512))


def test_dropout_follows_the_seed_and_is_off_in_evaluation() -> None:
    net, hidden, piece, upstream = build(64, 128, 2, 1, 2, 32, dropout=0.1)
    outputs = []
    for seed, training in ((1, True), (1, True), (2, True), (1, False), (2, False)):
        torch.manual_seed(seed)
        outputs.append(run(net.train(training), hidden, piece, upstream)["output"])
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    assert torch.equal(outputs[3], outputs[4])


def test_number_of_threads_changes_rounding_only() -> None:
    net, hidden, piece, upstream = build(64, 128, 2, 2, 5, 32, dropout=0.1)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            found.append(run(net.train(), hidden, piece, upstream))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert torch.equal(found[0]["output"], other["output"])
        assert torch.equal(found[0]["input"], other["input"])
        assert all("key.bias" in name or error(other[name], found[0][name]) < 1e-5 for name in other)


def test_without_gradients_the_output_is_the_same() -> None:
    net, hidden, piece, upstream = build(64, 128, 2, 3, 20, 64)
    with_gradients = run(net, hidden, piece, upstream)["output"]
    with torch.no_grad(), precision():
        assert torch.equal(native.run_layers(net, hidden, piece), with_gradients)


@pytest.mark.parametrize("how", ["in place", "fused optimizer", "through .data"])
def test_weights_that_change_are_read_again(how: str) -> None:
    """A fused optimizer does not raise a tensor's version: a cache keyed by it would keep the old ones."""
    net, hidden, piece, upstream = build(64, 128, 2, 1, 2, 32)
    before = run(net, hidden, piece, upstream)["output"]
    weight = net.layer[0].output.dense.weight
    if how == "in place":
        with torch.no_grad():
            weight.mul_(1.5)
    elif how == "through .data":
        weight.data.mul_(1.5)
    else:
        weight.grad = weight.detach().sign()
        torch.optim.AdamW([weight], lr=0.05, fused=True).step()
    after = run(net, hidden, piece, upstream)["output"]
    truth = run(net, hidden, piece, upstream, how="truth")["output"]
    assert error(after, truth) < 0.008 < error(before, truth)


def test_passes_may_be_nested() -> None:
    net, hidden, piece, upstream = build(64, 128, 2, 2, 3, 32)
    other = (hidden.detach() + 1).requires_grad_()
    alone = [run(net, x, piece, upstream) for x in (hidden, other)]
    with precision():
        outputs = [native.run_layers(net, x, piece) for x in (hidden, other)]
    for x, out, expected in zip((hidden, other), outputs, alone, strict=True):
        assert torch.equal(torch.autograd.grad(out, x, upstream)[0], expected["input"])


def test_a_second_backward_pass_is_an_error() -> None:
    net, hidden, piece, _ = build(64, 128, 2, 1, 2, 32)
    with precision():
        total = native.run_layers(net, hidden, piece).sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="second backward pass"):
        total.backward()


def test_not_a_number_stays_one() -> None:
    net, hidden, piece, _ = build(64, 128, 2, 1, 2, 32)
    with torch.no_grad(), precision():
        hidden[0, 3, 5] = float("nan")
        out = native.run_layers(net, hidden, piece)
    assert out[0, 3].isnan().all()
    assert not out[1].isnan().any()


def test_threads_do_not_take_each_other_s_memory() -> None:
    net, hidden, piece, _ = build(64, 128, 2, 2, 3, 32)
    inputs = [hidden.detach() * (1 + number / 7) for number in range(6)]

    def infer(x: Tensor) -> Tensor:
        with torch.no_grad(), precision():
            return native.run_layers(net, x, piece)

    expected = [infer(x) for x in inputs]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as pool:
            for _ in range(20):
                found = list(pool.map(infer, inputs))
                assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
    finally:
        sys.setswitchinterval(before)


def test_training_after_inference_mode() -> None:
    native.forget()
    net, hidden, piece, upstream = build(64, 128, 2, 1, 2, 32)
    with torch.inference_mode(), precision():
        native.run_layers(net, hidden, piece)
    assert run(net, hidden, piece, upstream)["input"].isfinite().all()


def test_the_program_s_default_dtype_does_not_matter() -> None:
    net, hidden, piece, upstream = build(64, 128, 2, 1, 2, 32)
    before = run(net, hidden, piece, upstream)
    torch.set_default_dtype(torch.float64)
    try:
        after = run(net, hidden, piece, upstream)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    "case", ["other precision", "odd width", "switched off", "adapter", "bf16 weight", "p = 1", "empty", "hook"]
)
def test_where_they_do_not_fit_pytorch_computes(case: str) -> None:
    net, hidden, _, _ = build(48 if case == "odd width" else 64, 128, 2, 1, 2, 32, dropout=float(case == "p = 1"))
    before = copy.deepcopy(net), hidden
    if case == "adapter":
        net.layer[0].adapter = torch.nn.Linear(64, 64)
    if case == "bf16 weight":
        net.layer[0].output.LayerNorm.bfloat16()
    if case == "empty":
        hidden = hidden[:, :0]
    if case == "hook":
        net.layer[0].attention.register_forward_hook(lambda *_: None)
    with precision():
        assert native.fits(*before) is (case not in ("odd width", "p = 1"))
        if case == "switched off":
            with mock.patch.object(library, "load", lambda precision: (None, "not in use")):
                assert native.fits(net, hidden) is False
        elif case != "other precision":
            assert native.fits(net, hidden) is False
    if case == "other precision":
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=library.kernels("bf16") is None):
            assert native.fits(net, hidden) is False


def test_few_tokens_without_gradients_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing the weights would cost more than is gained; not so in bf16, and not where a backward pass follows."""
    net, *_ = build(64, 128, 2, 1, 2, 32)
    monkeypatch.setattr(native, "kernels", lambda precision: object())
    few, many = torch.zeros(7, 32, 64), torch.zeros(8, 32, 64)
    assert native.fits(net, few)
    with torch.no_grad():
        assert not native.fits(net, few) and native.fits(net, many)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert native.fits(net, few)
