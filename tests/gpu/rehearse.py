"""Training steps on the pretended card: `python -m tests.gpu.rehearse CASES`, a JSON list; one JSON line a case.

A case names `arm`, and may name `preset`, `batch`, `layers`, `lanes`, `block`, `precision`, `compile`, `device`, `deterministic`. The card
computes nothing, so what depends on values is left out: what a step reports of its rows.
"""

import ctypes
import dataclasses
import gc
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from unittest import mock

import torch
from benchmarks.synthetic import make, sized

from electra_trainer.batch import Losses
from electra_trainer.cost.parameters import memory_bytes
from electra_trainer.presets import arms
from electra_trainer.settings.config import Config, changed
from electra_trainer.train import fast_step, measures, step
from electra_trainer.train.optim import Phases, optimizer_tensors

STEPS = 7
DIAGNOSED = 1
_CARD = ctypes.CDLL("libcuda.so.1")


def mark(text: str) -> None:
    _CARD.card_mark(text.encode())


def config_of(case: dict[str, Any]) -> Config:
    config = sized(case.get("preset", "small"), batch=case.get("batch", 16), lanes=case.get("lanes", 1))
    if layers := case.get("layers", 1):
        config = changed(config, model={"num_hidden_layers": layers})
    config = changed(config, model={"block": case.get("block", "bert")})
    config = changed(config, schedule={"steps": STEPS, "warmup_steps": 1})
    config = dataclasses.replace(config, deterministic=case.get("deterministic", False))
    return arms.arm(case.get("arm", "preset"), config)


@contextmanager
def without_values() -> Iterator[None]:
    """Leave out what depends on values: no slot is picked out to be measured."""

    def nothing(losses: Losses) -> Losses:
        return Losses(terms=losses.terms, diagnostics={})

    with (
        mock.patch.object(measures, "keep_measured", nothing),
        mock.patch.object(step, "on_standard_fakes", lambda *_: {}),
    ):
        yield


def steps(case: dict[str, Any], line: dict[str, Any]) -> None:
    """All that a run does with the step."""
    config, device = config_of(case), torch.device(case.get("device", "cuda"))
    made = make(config, device, precision=case.get("precision", "bf16"))
    phases, times = Phases(config, made.objective), []
    with closing(made.fast) as fast:
        for number in range(STEPS):
            mark(f"step {number}")
            began = time.perf_counter()
            fast.step(phases.at(number), number, diagnose=number == DIAGNOSED)
            times.append(time.perf_counter() - began)
            mark(f"after step {number}")
        assert fast.made_of is not None
        line |= {"left out": fast.made_of["left_out"], "in use": fast.made_of["step"]}
        line |= {"seconds": [round(one, 5) for one in times]}
        line |= {"reserved": torch.cuda.memory_reserved(device), "estimated": memory_bytes(config, gpu=2)}
        mark("evaluate")
        line["evaluated"] = len(step.evaluate(made.objective, made.feed, limit=64))
        mark("state")
        line["moments"] = len(optimizer_tensors(made.objective, made.optimizer))
        mark("again")
        fast.step(phases.at(STEPS - 1), STEPS - 1)
        mark("end")


def rehearse(case: dict[str, Any]) -> dict[str, Any]:
    """Print the result of a case."""
    line: dict[str, Any] = {"case": case, "in use": []}
    device = torch.device(case.get("device", "cuda"))
    switches = {fast_step.GRAPH: "on", fast_step.COMPILE: "on" if case.get("compile") else "off"}
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    with mock.patch.dict(os.environ, switches), without_values(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            steps(case, line)
        except Exception as error:
            line["error"] = f"{type(error).__name__}: {error}"[:700]
    gc.collect()
    line["peak"] = torch.cuda.max_memory_reserved(device)
    line["left"] = torch.cuda.memory_allocated(device) - before
    line["said"] = sorted({str(one.message)[:300] for one in said if one.category is UserWarning})
    return line


def main() -> None:
    torch.cuda.init()
    for number, case in enumerate(json.loads(sys.argv[1])):
        mark(f"case {number}")
        print(json.dumps(rehearse(case)), flush=True)


if __name__ == "__main__":
    main()
