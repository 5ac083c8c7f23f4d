"""One training step on the CPU in fp32 and on a device in every way it can be computed: `python -m benchmarks.parity --device cuda`.

Prints one JSON line a way: relative differences of both losses and of the whole gradient, and what was in use. Samples are fixed and dropout is
off. The gradient is read off Adam's first moment after one step without clipping, (1 - beta1) g, so that it is there for a
CUDA graph too.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from unittest import mock

import torch
from torch import Tensor

from benchmarks.synthetic import make, sized
from electra_trainer.batch import Corrupted, Masked
from electra_trainer.objectives.generation import corrupt
from electra_trainer.presets import arms
from electra_trainer.settings.config import Config, changed
from electra_trainer.settings.methods import TwoStage
from electra_trainer.train.fast_step import COMPILE, GRAPH
from electra_trainer.train.optim import optimizer_tensors
from electra_trainer.train.timing import Trial

LIMITS = {"fp32": 1e-3, "bf16": 0.15}
"""Relative, of the gradient; a tenth of it of the losses."""
WAYS = {"plain": (), "compiled": (COMPILE,), "graph": (GRAPH,), "graph, compiled": (GRAPH, COMPILE)}
"""What is on; all else is off."""
WAYS_OF_ARMS = ("plain", "graph")
LOSSES = ("generator_loss", "discriminator_loss", "encoder_loss", "sentence_loss")


def switches(on: tuple[str, ...]) -> dict[str, str]:
    """The environment in which only `on` is used."""
    return {name: "on" if name in on else "off" for name in (GRAPH, COMPILE)}


def settings(preset: str, layers: int) -> Config:
    """A preset of a few layers, without dropout and clipping."""
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return changed(
        sized(preset, batch=16),
        model={"num_hidden_layers": layers, **none},
        optimizer={"name": "adam", "clip_norm": 0.0},
    )


def by_place(masked: Masked, _: Tensor) -> Corrupted:
    """In place of sampling, which rounding may tip over: a word that follows from the original and from what stands there."""
    words = 7 * masked.labels_K.clamp(min=0) + masked.input_BT.flatten()[masked.slots_K]
    return corrupt(masked, words % 997 + 5)


def one_step(made: Trial) -> tuple[dict[str, float], Tensor]:
    """Mean losses, and the gradient as one vector on the CPU."""
    with mock.patch("electra_trainer.objectives.generation.corrupt", by_place):
        result = made.fast.step(made.objective, 0, diagnose=True)
    moments = optimizer_tensors(made.objective, made.optimizer)
    means = [value.flatten().cpu() for name, value in sorted(moments.items()) if name.endswith("/exp_avg")]
    losses = {name: value for name, value in result.metrics.items() if name in LOSSES}
    return losses, torch.cat(means) / (1 - made.objective.config.optimizer.beta1)


def compare(
    config: Config,
    device: torch.device,
    precision: str,
    way: str,
    expected: tuple[dict[str, float], Tensor],
    arm: str = "electra",
) -> bool:
    """Print one line; True where the differences are within the limits."""
    line: dict[str, object] = {"device": str(device), "arm": arm, "precision": precision, "way": way}
    with mock.patch.dict(os.environ, switches(WAYS[way])), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with (made := make(config, device, precision=precision)).fast:
                losses, gradient = one_step(made)
                line["in use"] = made.fast.made_of and made.fast.made_of["step"]
        except Exception as error:
            print(json.dumps({**line, "ok": False, "error": f"{type(error).__name__}: {error}"[:300]}), flush=True)
            return False
    different = {name: abs(value / expected[0][name] - 1) for name, value in losses.items()}
    distance = float((gradient - expected[1]).norm() / expected[1].norm())
    limit = LIMITS[precision]
    ok = distance <= limit and all(value <= limit / 10 for value in different.values())
    notes = [str(warning.message)[:300] for warning in said if warning.category is UserWarning]
    print(json.dumps({**line, **different, "gradient": distance, "ok": ok, "said": notes}), flush=True)
    return ok


def main() -> None:
    """Print the differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--arms", action="store_true", help="every arm of the paper's experiments in fp32 too")
    given = parser.parse_args()
    device, config = torch.device(given.device), settings(given.preset, given.layers)
    expected = one_step(make(config, torch.device("cpu"), precision="fp32"))
    good = [compare(config, device, precision, way, expected) for precision in LIMITS for way in WAYS]
    for name in arms.ARMS if given.arms else ():
        changed = arms.arm(name, config)
        if isinstance(changed.phases, TwoStage):
            continue  # the networks and losses of sharing-none
        expected = one_step(make(changed, torch.device("cpu"), precision="fp32"))
        good += [compare(changed, device, "fp32", way, expected, name) for way in WAYS_OF_ARMS]
    raise SystemExit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
