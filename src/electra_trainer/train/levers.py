"""Ways of computing a GPU's step that no card has judged: `ELECTRA_GPU_TRY=flash+stream` asks for some of them.

docs/gpu.md has what each is expected to gain. One that loses on a card is removed, one that wins becomes the default.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from electra_trainer.errors import ConfigError
from electra_trainer.model.encoder import AddAndNorm, Layers
from electra_trainer.model.modern import AnyLayer
from electra_trainer.objectives import Objective
from electra_trainer.train.step import Feed

TRY = "ELECTRA_GPU_TRY"
TUNING = "tuning"
"""The lever of fine-tuning: finetuning/graphs.py."""
OPTIONS: dict[str, dict[str, bool]] = {
    "mix-order": {"triton.mix_order_reduction_non_strict_mode": True},
    "pdl": {"triton.enable_pdl": True},
    "combo": {"combo_kernels": True, "benchmark_combo_kernel": True},
}
"""Options of PyTorch's compiler, by the name of a lever."""
_ROWS = 65_536
"""Rows that are read at a time."""
_HEADS = ("embeddings", "generator_predictions")  # compiled, the discriminator's head in fp32 has more kernels

Way = Callable[[], AbstractContextManager[None]]
"""Context in which a lane is computed."""


def asked() -> list[str]:
    """The levers that the environment asks for, in the order of their names here.

    Raises:
        ConfigError: an unknown name.
    """
    names, known = {*filter(None, os.environ.get(TRY, "").split("+"))}, [*WAYS, "heads", *OPTIONS, TUNING]
    if unknown := names.difference(known):
        raise ConfigError(f"{TRY}: {', '.join(sorted(unknown))} is unknown. Expected {', '.join(known)}, joined by +.")
    return [name for name in known if name in names]


def modules_of(objective: Objective) -> list[nn.Module]:
    """All modules that a step computes: also those of a frozen generator, which is not a part of the objective."""
    networks = [objective, *(exported.network for exported in objective.exported())]
    return [*dict.fromkeys(module for network in networks for module in network.modules())]


def heads_of(objective: Objective) -> list[nn.Module]:
    """Embeddings and token heads: compiled, the tables' gradients are added by atomics instead of sorts."""
    named = {child: name for module in modules_of(objective) for name, child in module.named_children()}
    return [child for child, name in named.items() if name in _HEADS]


def stream(modules: Sequence[nn.Module], feed: Feed) -> Way:
    """Sums and outputs of BERT's layers are bf16, as in the native CPU kernels and under a CPU's autocast; a GPU's
    autocast computes a LayerNorm, and so everything after it, in fp32.
    """
    blocks = [vars(one) for one in modules if isinstance(one, AddAndNorm)]
    _need(feed.precision == "bf16" and bool(blocks), "a run of BERT's block in bf16")
    return partial(_put, [(block, "narrow", True) for block in blocks])


def flash(modules: Sequence[nn.Module], feed: Feed) -> Way:
    """FlashAttention over the pieces of all rows, with dropout; a bias excludes that kernel."""
    _need(feed.precision == "bf16" and not feed.config.deterministic, "a run in bf16 without --deterministic")
    most = most_pieces(feed)
    return partial(_put, [(vars(one), "most_pieces", most) for one in modules if isinstance(one, Layers)])


def most_pieces(feed: Feed) -> int:
    """Pieces of the fullest lane that these rows can make, a run of padding counted as one."""
    rows = feed.rows
    parts = (rows[first : first + _ROWS] for first in range(0, len(rows), _ROWS))
    pieces_N = 1 + np.concatenate([(part == feed.specials.cls).sum(1) for part in parts])
    times = 1 - -feed.config.batch.size // len(rows)  # that a batch may have a row, at the seam of two epochs
    return int(np.sort(np.repeat(pieces_N, times))[-feed.config.lane_size :].sum())


def weights(modules: Sequence[nn.Module], feed: Feed) -> Way:
    """The layers' weights and biases are rounded to bf16, and their gradients made fp32, in one launch each a lane;
    autocast does so for each tensor.
    """
    _need(feed.precision == "bf16", "a run in bf16")
    inside = dict.fromkeys(one for layer in modules if isinstance(layer, AnyLayer) for one in layer.modules())
    linear = [one for one in inside if isinstance(one, nn.Linear)]
    named = [(one._parameters, *item) for one in linear for item in one.named_parameters() if item[1].requires_grad]

    def within() -> AbstractContextManager[None]:
        rounded = _Rounded.apply(*(parameter for _, _, parameter in named))  # type: ignore[no-untyped-call]
        return _put([(where, name, tensor) for (where, name, _), tensor in zip(named, rounded, strict=True)])

    return within


class _Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *exact: Tensor) -> tuple[Tensor, ...]:
        return _copies(exact, torch.bfloat16)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, ...]:
        return _copies(upstream, torch.float32)


def _copies(tensors: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    found = tuple(torch.empty_like(one, dtype=dtype) for one in tensors)
    torch._foreach_copy_(found, tensors)
    return found


@contextmanager
def _put(places: Sequence[tuple[dict[str, Any], str, Any]]) -> Iterator[None]:
    """Within it each of these attributes has this value."""
    before = [(where, name, where.get(name)) for where, name, _ in places]
    for where, name, value in places:
        where[name] = value
    try:
        yield
    finally:
        for where, name, value in before:
            where[name] = value


def _need(there: bool, what: str) -> None:
    if not there:
        raise ValueError(f"it is for {what}")


WAYS: dict[str, Callable[[Sequence[nn.Module], Feed], Way]] = {"flash": flash, "stream": stream, "weights": weights}
