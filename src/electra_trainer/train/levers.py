"""Ways of computing a GPU's step that no card has judged: `ELECTRA_GPU_TRY=heads+pdl` asks for some of them.

docs/gpu.md has what each is expected to gain. One that loses on a card is removed, one that wins becomes the default.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from torch import nn

from electra_trainer.errors import ConfigError
from electra_trainer.objectives import Objective
from electra_trainer.train.step import Feed

TRY = "ELECTRA_GPU_TRY"
OPTIONS: dict[str, dict[str, bool]] = {
    "mix-order": {"triton.mix_order_reduction_non_strict_mode": True},
    "pdl": {"triton.enable_pdl": True},
    "combo": {"combo_kernels": True, "benchmark_combo_kernel": True},
}
"""Options of PyTorch's compiler, by the name of a lever."""
_HEADS = ("embeddings", "generator_predictions", "discriminator_predictions")

Way = Callable[[], AbstractContextManager[None]]
"""What a lane is computed within."""


def asked() -> list[str]:
    """The levers that the environment asks for, in the order of their names here.

    Raises:
        ConfigError: an unknown name.
    """
    names, known = {*filter(None, os.environ.get(TRY, "").split("+"))}, [*WAYS, "heads", *OPTIONS]
    if unknown := names.difference(known):
        raise ConfigError(f"{TRY}: {', '.join(sorted(unknown))} is unknown. Expected {', '.join(known)}, joined by +.")
    return [name for name in known if name in names]


def modules_of(objective: Objective) -> list[nn.Module]:
    """All modules that a step computes: also those of a frozen generator, which is not a part of the objective."""
    networks = [objective, *(exported.network for exported in objective.exported())]
    return [*dict.fromkeys(module for network in networks for module in network.modules())]


def heads_of(objective: Objective) -> list[nn.Module]:
    """Embeddings and heads: compiled, the tables' gradients are added by atomics instead of sorts."""
    named = {child: name for module in modules_of(objective) for name, child in module.named_children()}
    return [child for child, name in named.items() if name in _HEADS]


WAYS: dict[str, Callable[[Sequence[nn.Module], Feed], Way]] = {}
