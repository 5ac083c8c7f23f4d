"""`electra show small`: a preset, its parameters and its FLOPs; `electra flops small`: operations of training and inference."""

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

import tyro

from electra_trainer.cost import flops
from electra_trainer.cost.parameters import parameters
from electra_trainer.presets.paper_rows import PRESETS, SUMMARIES, preset
from electra_trainer.settings.config import Config
from electra_trainer.settings.records import flat, to_dict


@dataclass(frozen=True, kw_only=True)
class ShowArguments:
    """Show a preset: its whole configuration, its parameters and its FLOPs."""

    preset: tyro.conf.Positional[str]
    """tiny, small, small_plus_plus, base, large, bert_small, bert_base, bert_large; or `all`, which lists these and a preset for
    every other published row, one line each."""
    json: bool = False
    """Print one JSON object."""


def run_show(arguments: ShowArguments) -> None:
    """Print it."""
    if arguments.preset == "all":
        lines = (
            [json.dumps(SUMMARIES)] if arguments.json else [f"{name:<24} {what}" for name, what in SUMMARIES.items()]
        )
        print(*lines, sep="\n")
        return
    config = preset(arguments.preset)
    facts = _facts(config)
    if arguments.json:
        print(json.dumps(facts))
        return
    for title, table in facts.items():
        print(title)
        for name, value in flat(table).items():
            print(f"  {name:<38} {value:,}" if isinstance(value, int) and value > 9999 else f"  {name:<38} {value}")


def _facts(config: Config) -> dict[str, Any]:
    count, cost = parameters(config), flops.run_flops(config)
    return {
        "config": to_dict(config),
        "parameters": {"joint": count.joint, "kept": count.kept, **asdict(count)},
        "flops": {"train_paper": cost.paper, "train_real": cost.real, "infer_paper": flops.infer_flops(config).paper},
    }


@dataclass(frozen=True, kw_only=True)
class FlopsArguments:
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


def run_flops(arguments: FlopsArguments) -> None:
    """Print one line a name."""
    from electra_trainer.paper.published import PUBLISHED, cost_of

    names = list(dict.fromkeys([*PUBLISHED, *PRESETS])) if arguments.name == "all" else [arguments.name]
    costs = {name: cost_of(name, norm_slip=not arguments.mend_norm) for name in names}
    if arguments.json:
        print(json.dumps({name: asdict(cost) for name, cost in costs.items()}))
        return
    width = max(map(len, names))
    print(f"{'':<{width}}  {'train, paper':>12}  {'train, real':>11}  {'infer, paper':>12}")
    for name, cost in costs.items():
        print(f"{name:<{width}}  {cost.train_paper:>12.4g}  {cost.train_real:>11.4g}  {cost.infer_paper:>12.4g}")
    if "bert_large" in names:
        print(
            "bert_large: the original, 1M steps of 256 rows. The preset of that name: bert_large_ours.", file=sys.stderr
        )
