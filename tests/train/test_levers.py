"""Levers that wait for a card, on the CPU: the same step up to rounding, traced whole, and nothing asked of the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests import as_on_a_gpu
from tests.small import config, feed
from tests.train.test_static import Operators, weights
from torch import Tensor

from electra_trainer.model.attention import Pieces
from electra_trainer.model.encoder import Layer
from electra_trainer.objectives import build
from electra_trainer.settings.config import BatchShape, Config, changed
from electra_trainer.train import fast_step, levers
from electra_trainer.train.optim import build_optimizer

LANES = BatchShape(size=12, sequence_length=24, lanes=3)


def weights_of(query: Tensor, key: Tensor, ends: Tensor, reach: int | None) -> Tensor:
    """Attention weights over pieces, [H, N, N], from [N, H, S]."""
    place_N = torch.arange(len(query))
    piece_N = torch.bucketize(place_N, ends, right=True)
    near_NN = (place_N[:, None] - place_N).abs() <= (len(query) if reach is None else reach)
    score_HNN = torch.einsum("ihs,jhs->hij", query, key) / query.shape[2] ** 0.5
    return score_HNN.masked_fill(~near_NN | (piece_N[:, None] != piece_N), float("-inf")).softmax(-1)


@pytest.fixture(autouse=True)
def shares(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[float]]:
    """The CPU as a GPU that has FlashAttention's operator; the shares that were to be dropped, which is not done here."""
    as_on_a_gpu.use(monkeypatch)
    monkeypatch.setattr(fast_step, "_BACKEND", "aot_eager")
    found = set[float]()

    def forward(*given: Any, window_size_left: int | None = None, **_: Any) -> Any:
        query, key, value, ends, also, longest, _, share, *_ = given
        assert torch.equal(ends, also) and ends[-1] == len(query) and ends.diff().max() <= longest
        found.add(share)
        weights_HNN = weights_of(query.float(), key.float(), ends, window_size_left)
        mixed = torch.einsum("hij,jhs->ihs", weights_HNN, value.float()).to(query.dtype).contiguous()
        return mixed, torch.zeros(query.shape[1], len(query)), *(torch.zeros(2),) * 3

    def backward(*given: Any, window_size_left: int | None = None, **_: Any) -> Any:
        upstream, query, key, value = (one.float() for one in given[:4])
        weights_HNN = weights_of(query, key, given[6], window_size_left)
        d_weights = torch.einsum("ihs,jhs->hij", upstream, value)
        d_scores = torch._softmax_backward_data(d_weights, weights_HNN, -1, torch.float32) / query.shape[2] ** 0.5
        inputs = (
            ("hij,jhs->ihs", d_scores, key),
            ("hij,ihs->jhs", d_scores, query),
            ("hij,ihs->jhs", weights_HNN, upstream),
        )
        return tuple(torch.einsum(*one).to(given[0].dtype).contiguous() for one in inputs)

    library = torch.library.Library("aten", "IMPL")
    library.impl("_flash_attention_forward", forward, "CPU")
    library.impl("_flash_attention_backward", backward, "CPU")
    yield found
    library._destroy()


def of(block: str = "bert", attention: float = 0.0, **changes: Any) -> Config:
    """Without dropout of attention weights, which each kernel does in its own way."""
    shape = {"block": block, "attention_probs_dropout_prob": attention, "local_attention": 8 * (block == "modern")}
    return changed(dataclasses.replace(config(), **changes), model=shape)


def steps(given: Config, *tried: str, compiled: bool = False) -> tuple[list[float], dict[str, Tensor]]:
    """Norms of gradients, and the weights afterwards; the rehearsals of `take` move nothing."""
    objective = build(given)
    source = dataclasses.replace(feed(given), precision="bf16")
    step = fast_step.GraphStep(objective, build_optimizer(objective, given.optimizer), source)
    for name in tried:
        step.take(name)
    if compiled:
        step.compile()
    found = [step(number).gradient_norm for number in range(2)], weights(objective)
    step.compiled = {}  # the mode and the compiler do not go together
    with Operators() as watched:
        step.lane()
    assert not watched.found
    return found


@pytest.mark.parametrize("block", ["bert", "modern"])
def test_flash_attends_over_pieces(block: str, shares: set[float]) -> None:
    (norms, plain), (found, flash) = steps(of(block)), steps(of(block), "flash")
    assert shares == {0.0} and found == pytest.approx(norms, rel=2e-2)
    for name, value in flash.items():
        assert (value - plain[name]).norm() <= 2e-2 * plain[name].norm() + 2e-3, name


def test_no_lane_has_more_pieces_than_the_most() -> None:
    """Batches over several epochs: the bound holds, and the fullest lane is not far from it."""
    given = feed(of(batch=LANES), train=15)
    lanes = [masked.batch.piece_BT for number in range(40) for masked, _ in given.lanes(number)]
    counts = [int((Pieces.of(piece_BT, piece_BT.numel()).ends_P.diff() > 0).sum()) for piece_BT in lanes]
    assert max(counts) <= levers.most_pieces(given) <= 2 * max(counts)


def test_the_stream_is_what_a_cpu_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With LayerNorm in fp32, as a GPU's autocast has it; a CPU's leaves it, and the stream, in bf16."""
    expected, forward, found = steps(of())[0], torch.nn.LayerNorm.forward, list[torch.dtype]()
    monkeypatch.setattr(torch.nn.LayerNorm, "forward", lambda norm, x: forward(norm, x.float()))
    real = Layer.forward
    monkeypatch.setattr(Layer, "forward", lambda *given: (found.append((out := real(*given)).dtype), out)[1])
    assert steps(of(), "stream")[0] == pytest.approx(expected, rel=1e-2) and {*found} == {torch.bfloat16}
    found.clear()
    assert steps(of())[0] != expected and {*found} == {torch.float32}


@pytest.mark.parametrize("given", [of(), of("modern"), of(batch=LANES)])
def test_rounding_weights_at_once_changes_no_bit(given: Config) -> None:
    (norms, plain), (found, rounded) = steps(given), steps(given, "weights")
    assert found == norms and all(torch.equal(value, plain[name]) for name, value in rounded.items())


def test_all_of_them_are_compiled(shares: set[float]) -> None:
    """One graph a layer. FlashAttention keeps floor(255 (1 - share)) + 1 of 256 numbers, and divides by 1 - share."""
    given = changed(of(attention=0.1), model={"num_hidden_layers": 1})
    expected, found = (steps(given, *levers.WAYS, compiled=compiled)[0] for compiled in (False, True))
    assert found == pytest.approx(expected, rel=2e-2) and shares == {26 / 256}


@pytest.mark.parametrize(("tried", "given"), [("flash", of(deterministic=True)), ("stream", of("modern"))])
def test_a_lever_says_what_it_is_for(tried: str, given: Config) -> None:
    with pytest.raises(ValueError, match=r"it is for a run (in bf16 without --deterministic|of BERT's block in bf16)"):
        steps(given, tried)
