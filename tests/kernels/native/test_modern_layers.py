"""The native modern layers against model/modern.py: in fp64, the truth, and in the same precision, which sets the tolerance."""

import math

import pytest
import torch
import torch.nn.functional as F
from tests.kernels.native import test_layers as bert
from tests.kernels.native.test_layers import assert_as_exact, error, kept, precision, run
from torch import Tensor, nn

from electra_trainer.kernels import stack
from electra_trainer.kernels.native import layers as native
from electra_trainer.kernels.native import library
from electra_trainer.model.attention import at
from electra_trainer.model.modern import ModernLayers, Places
from electra_trainer.settings.config import Model

pytestmark = pytest.mark.usefixtures("variant")

SHAPES = {  # hidden, heads, layers, rows, tokens; of BERT's inner width, two thirds
    "mini": (256, 8, 2, 2, 128),
    "a generator": (64, 2, 2, 3, 128),
    "base": (768, 12, 1, 2, 32),
    "odd length": (96, 3, 2, 4, 45),
    "wide heads": (256, 2, 1, 3, 64),
    "heads of 96": (192, 2, 1, 2, 64),
    "chunks with a rest": (64, 1, 2, 20, 64),
    "long rows": (64, 1, 1, 2, 600),
}


def build(
    hidden: int, heads: int, layers: int, rows: int, tokens: int, *, dropout: float = 0.0, window: int = 0
) -> tuple[ModernLayers, Tensor, Places, Tensor]:
    """Layers with weights of a trained model's size, an input, pieces that begin at position 0, and a gradient."""
    random = torch.Generator().manual_seed(3)
    net = ModernLayers(
        Model(
            block="modern", hidden_size=hidden, intermediate_size=2 * hidden, num_attention_heads=heads, num_hidden_layers=layers,
            hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, local_attention=window,
        )
    )  # fmt: skip
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(0.06 * torch.randn(parameter.shape, generator=random) + ("norm" in name))
    piece_BT = torch.ones(rows, tokens, dtype=torch.int64)
    piece_BT[0, tokens // 3 :] = 2
    piece_BT[1, -tokens // 5 :] = 0
    position_BT = torch.arange(tokens).repeat(rows, 1)
    position_BT[0, tokens // 3 :] -= tokens // 3
    size = hidden // heads
    angle_BTF = position_BT[..., None] / 10_000 ** (torch.arange(0, size, 2) / size)
    places = Places(piece_BT, angle_BTF, 0.7 * angle_BTF if window else None)
    hidden_BTD = torch.randn(rows, tokens, hidden, generator=random).requires_grad_()
    return net, hidden_BTD, places, torch.randn(rows, tokens, hidden, generator=random)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_as_exact_as_pytorch(shape: tuple[int, ...]) -> None:
    assert_as_exact(run, build, **dict(zip(("hidden", "heads", "layers", "rows", "tokens"), shape, strict=True)))


@pytest.mark.parametrize(("tokens", "window"), [(64, 2), (45, 9), (130, 64), (32, 500)])
def test_windows(tokens: int, window: int) -> None:
    """Layers 1 and 2 of 4 see a window, and are turned by other angles; in pieces and in a whole row."""
    assert_as_exact(run, build, hidden=64, heads=2, layers=4, rows=3, tokens=tokens, window=window)


def test_one_row_of_positions_serves_all_rows() -> None:
    net, hidden, places, upstream = build(64, 2, 2, 3, 64)
    places = Places(torch.ones_like(places.piece_BT), places.angle_BTF[1:2])
    once = run(net, hidden, places, upstream)
    each = run(net, hidden, places._replace(angle_BTF=places.angle_BTF.expand(3, -1, -1)), upstream)
    assert all(torch.equal(once[name], each[name]) for name in once)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("block", ["bert", "modern", "windows"])
@pytest.mark.parametrize("how", ["native", "plain"])
def test_the_last_layer_where_it_is_read(how: str, block: str, layers: int) -> None:
    """Output and dropout to the bit, gradients to rounding, as of all; rows without a slot, slots twice, or not used."""
    net: nn.Module
    places: Places | Tensor
    if block == "bert":
        net, hidden, places, upstream = bert.build(64, 128, 2, layers, 7, 45, dropout=0.1)
    else:
        net, hidden, places, upstream = build(64, 2, layers, 7, 45, dropout=0.1, window=9 * (block == "windows"))
    slots = torch.cat([torch.arange(1, 90, 3), torch.arange(180, 225), torch.tensor([230, 230, 301, -1, -1])])
    given = at(upstream, slots) * (slots >= 0)[:, None]
    placed = torch.zeros_like(upstream).flatten(0, 1).index_add(0, slots.clamp(min=0), given).view_as(upstream)
    found = []
    for arguments in ((placed,), (given, slots)):
        torch.manual_seed(5)
        found.append(run(net.train(), hidden, places, *arguments, how=how))
    whole, part = found
    assert torch.equal(at(whole["output"], slots), part["output"])
    limit = 2e-3 if library.kernels("bf16") else 2e-6
    worst = {n: error(part[n], whole[n]) for n in part if n != "output" and "key.bias" not in n}
    assert max(worst.values()) < limit, worst


def layers_with_masks(net: ModernLayers, x_BTD: Tensor, places: Places, p: float, key: int) -> Tensor:
    """The stack with the kernels' dropout decisions, written out; one piece a row."""
    rows, tokens, width = x_BTD.shape
    heads, inner = net.model.num_attention_heads, net.model.inner_size
    scale = 65536 / (65536 - round(p * 65536))
    cos, sin = places.angle_BTF[:, :, None].cos(), places.angle_BTF[:, :, None].sin()
    for number, layer in enumerate(net.layer):
        weights = kept(p, key, 3 * number, rows * heads * tokens, tokens).view(rows, heads, tokens, tokens) * scale
        after = kept(p, key, 3 * number + 1, rows * tokens, width).view(x_BTD.shape) * scale
        inside = kept(p, key, 3 * number + 2, rows * tokens, inner).view(rows, tokens, inner) * scale
        q, k, v = layer.attn.Wqkv(layer.attn_norm(x_BTD)).view(rows, tokens, 3, heads, -1).unbind(2)
        halves = [part.chunk(2, -1) for part in (q, k)]
        q, k = (torch.cat([one * cos - two * sin, two * cos + one * sin], -1) for one, two in halves)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        mixed = ((q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) * weights) @ v
        x_BTD = x_BTD + layer.attn.Wo(mixed.transpose(1, 2).flatten(2)) * after
        first, gate = layer.mlp.Wi(layer.mlp_norm(x_BTD)).chunk(2, -1)
        x_BTD = x_BTD + layer.mlp.Wo(F.gelu(first) * gate * inside)
    last: Tensor = net.final_norm(x_BTD)
    return last


@pytest.mark.parametrize("rows", [3, 20], ids=["one chunk", "three chunks"])
def test_dropout_drops_the_same_in_both_passes(rows: int) -> None:
    net, hidden, places, upstream = build(64, 2, 2, rows, 64, dropout=0.3)
    places.piece_BT.fill_(1)
    net.train()
    torch.manual_seed(5)
    ours = run(net, hidden, places, upstream)
    torch.manual_seed(5)
    expected = layers_with_masks(net, hidden, places, 0.3, int(torch.randint(2**63 - 1, ())))
    limit = 0.012 if library.kernels("bf16") else 1e-5
    assert error(ours["output"], expected.detach()) < limit
    wanted = {"input": hidden, **dict(net.named_parameters())}
    truth = torch.autograd.grad(expected, list(wanted.values()), upstream)
    for name, gradient in zip(wanted, truth, strict=True):
        assert error(ours[name], gradient) < limit, name


def test_pieces_threads_and_passes_without_gradients() -> None:
    """Another piece changes nothing, threads change rounding only, and the output needs no gradients."""
    net, hidden, places, upstream = build(64, 2, 2, 20, 64)
    before = run(net, hidden, places, upstream)
    second = places.piece_BT[0] == 2
    other = hidden.detach().clone()
    other[0, second] += 1
    after = run(net, other.requires_grad_(), places, upstream)["output"]
    assert torch.equal(before["output"][0, ~second], after[0, ~second])
    assert not torch.equal(before["output"][0, second], after[0, second])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        shared = run(net, hidden, places, upstream)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(shared["output"], before["output"]) and torch.equal(shared["input"], before["input"])
    assert all(error(shared[name], before[name]) < 1e-5 for name in before)
    with torch.no_grad(), precision():
        assert torch.equal(stack.run_layers(net, hidden, places).double(), before["output"])


def test_a_gain_of_zero_has_a_gradient() -> None:
    """Gains are multiplied into the weights, and nothing is divided by them."""
    net, hidden, places, upstream = build(64, 2, 2, 2, 32)
    with torch.no_grad():
        for norm in (net.layer[1].attn_norm, net.layer[0].mlp_norm, net.final_norm):
            norm.weight[::3] = 0
    truth, ours = (run(net, hidden, places, upstream, how=how) for how in ("truth", "native"))
    assert all(error(ours[name], truth[name]) < 0.02 for name in truth)


def test_layers_that_the_kernels_do_not_compute() -> None:
    net, hidden, _, _ = build(64, 2, 1, 2, 32)
    with precision():
        assert native.fits(net, hidden)
        net.layer[0].mlp.register_forward_hook(lambda *_: None)
        assert "hooks" in native.why_not(net, hidden)
    narrow = build(96, 4, 1, 2, 32)
    with precision():
        assert "multiple of 32" in native.why_not(narrow[0], narrow[1])
