"""`electra flops small`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass

import tyro

from electra_trainer.cost.published import PUBLISHED, Cost, cost_of
from electra_trainer.presets_published import PRESETS


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Operations of training and inference (Appendix E): as the paper counts them, and the matrix products that are needed.

    The paper counts backward = forward, look-ups as products with one-hot vectors, and pointwise operations.
    """

    name: tyro.conf.Positional[str]
    """A preset, a row of the paper's script (elmo, xlnet, gpt, bert_small, bert_base, bert_large, electra_small, electra_base,
    electra_400k, electra_1.75M, roberta, albert, t5_11b), or `all` of both. `bert_large` is the original; the paper's own: bert_large_ours."""
    json: bool = False
    """Print one JSON object: name, then train_paper, train_real and infer_paper."""
    mend_norm: bool = False
    """Count the LayerNorm after attention at every channel; the paper's script counts it once a token (up to 0.05 % less)."""


def run(arguments: Arguments) -> None:
    """Print one line a name."""
    names = list(dict.fromkeys([*PUBLISHED, *PRESETS])) if arguments.name == "all" else [arguments.name]
    costs = {name: cost_of(name, norm_slip=not arguments.mend_norm) for name in names}
    if arguments.json:
        print(json.dumps({name: asdict(cost) for name, cost in costs.items()}))
        return
    width = max(map(len, names))
    print(f"{'':<{width}}  {'train, paper':>12}  {'train, real':>11}  {'infer, paper':>12}")
    for name, cost in costs.items():
        print(_line(name, width, cost))
    if "bert_large" in names:
        print(
            "bert_large: the original, 1M steps of 256 rows. The preset of that name: bert_large_ours.", file=sys.stderr
        )


def _line(name: str, width: int, cost: Cost) -> str:
    return f"{name:<{width}}  {cost.train_paper:>12.4g}  {cost.train_real:>11.4g}  {cost.infer_paper:>12.4g}"
