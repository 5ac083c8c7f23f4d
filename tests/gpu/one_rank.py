"""A rank of a run on pretended cards: `python -m tests.gpu.one_rank DATA OUT OPTIONS`, started as torchrun starts one.

OPTIONS is JSON: `steps`, `deterministic`, `pause` (seconds after each step, so that a test can end a rank between two).
"""

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from tests.gpu.rehearse import without_values
from tests.prepared import small_config

from electra_trainer.errors import ElectraError
from electra_trainer.settings.config import changed
from electra_trainer.train import health, loop, step
from electra_trainer.train.fast_step import FastStep


def main(data: str, out: str, options: dict[str, Any]) -> None:
    config = changed(small_config(steps=options.get("steps", 6), lanes=2), model={"hidden_size": 64})
    config = dataclasses.replace(config, precision="auto", deterministic=options.get("deterministic", False))
    computed = FastStep.step

    def slowly(*given: Any, **named: Any) -> step.StepResult:
        time.sleep(options.get("pause", 0.0))
        return computed(*given, **named)

    with (
        without_values(),
        mock.patch.object(health, "health_line", lambda *_, **__: "values are not pretended"),
        mock.patch.object(health, "alarms", lambda *_, **__: []),
        mock.patch.object(step, "example_rows", lambda *_: []),
        mock.patch.object(FastStep, "step", slowly),
        mock.patch.object(torch, "isfinite", lambda _: torch.ones(1, dtype=torch.bool)),
    ):
        loop.pretrain(config, Path(data), out=Path(out), device="cuda", quiet=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
    except ElectraError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
