"""How long a run will be, measured."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.prepared import small_config, write_store

from electra_trainer.cost.parameters import memory_bytes, parameters
from electra_trainer.data.store import Store
from electra_trainer.errors import ConfigError
from electra_trainer.objectives.two_stage import GeneratorStage
from electra_trainer.presets import models
from electra_trainer.settings.config import Evaluation, changed
from electra_trainer.settings.methods import Learned, RtdMLM, TwoStage
from electra_trainer.train import fast_step, timing
from electra_trainer.train.plan import Timing, describe, does_not_fit, fit_to_data
from electra_trainer.train.timing import measure_time


def test_one_row_has_no_neighbour() -> None:
    config = dataclasses.replace(small_config(), objective=RtdMLM(neighbour_weight=1.0))
    store = SimpleNamespace(rows=lambda split: [[0]], sequence_length=8, vocab_size=64)
    with pytest.raises(ConfigError, match="the text has one training row"):
        fit_to_data(config, store)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [None, 0.25])
def test_a_step_is_the_mean_over_the_stages(
    share: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joint steps of 5 s; stage 1 takes 1 s and stage 2 3 s a step: over a quarter and three quarters of them 2.5 s."""
    config = small_config(steps=8)
    if share is not None:
        config = dataclasses.replace(config, phases=TwoStage(share=share), sharing="none", generator=Learned(width=1.0))
    clock = {"now": 0.0}

    def step(objective: Any, *_: Any, **__: Any) -> None:
        clock["now"] += 5.0 if share is None else 1.0 if isinstance(objective, GeneratorStage) else 3.0

    def timed(work: Callable[[], object], device: torch.device) -> float:
        before = clock["now"]
        work()
        return clock["now"] - before

    monkeypatch.setattr(fast_step, "train_step", step)
    monkeypatch.setattr(timing, "timed", timed)
    store = Store.open(write_store(tmp_path / "data"))
    measured = measure_time(config, store, device=torch.device("cpu"), precision="fp32")
    assert measured.step == pytest.approx(5.0 if share is None else 2.5)


def test_an_evaluation_is_timed_on_a_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3 s a row; standard fakes are made before the clock starts."""
    monkeypatch.setattr(fast_step, "train_step", lambda *_, **__: None)
    monkeypatch.setattr(timing, "evaluate", lambda _, feed: 3.0 * len(feed.valid))
    monkeypatch.setattr(timing, "timed", lambda work, _: work() or 10.0)
    store = Store.open(write_store(tmp_path / "data"))
    for rows in (2, 0):
        config = dataclasses.replace(small_config(steps=8), evaluation=Evaluation(rows=rows))
        found = measure_time(config, store, device=torch.device("cpu"), precision="fp32")
        assert (found.step, found.evaluation) == (10.0, 3.0 * rows)


def test_what_to_do_where_a_run_does_not_fit() -> None:
    config = small_config()
    least = changed(config, batch={"lanes": config.batch.size})
    four = changed(config, batch={"lanes": 4})
    assert does_not_fit(config, memory_bytes(config)) is None
    for free, words in (
        (memory_bytes(config) - 1, "Set --batch.lanes 4: the same step in 4 parts"),
        (memory_bytes(four) - 1, "Set --batch.lanes 8"),
        (memory_bytes(least) - 1, "Take a smaller model"),
    ):
        assert words in str(does_not_fit(config, free))


def test_what_to_do_where_a_gpu_is_too_small() -> None:
    """Base in bf16 with a 24 GB card: the first number of lanes that fits, and how much is missing."""
    said = does_not_fit(models.base(), 24 * 10**9, gpu=2)
    assert said == "it needs about 66.2 GB, and 24.0 GB are free here. Set --batch.lanes 4: the same step in 4 parts"
    assert memory_bytes(changed(models.base(), batch={"lanes": 4}), gpu=2) <= 24 * 10**9
    assert round(memory_bytes(models.large(), gpu=2) / 1e9) == 49  # of the 80 GB of a card, with its context
    wide = {"hidden_size": 1536, "num_hidden_layers": 36, "num_attention_heads": 24, "embedding_size": 1536}
    largest = changed(models.large(), model=wide | {"intermediate_size": 6144}, batch={"lanes": 64})  # docs/gpu.md
    assert memory_bytes(largest, gpu=2) < 75e9 and round(parameters(largest).joint / 1e9, 1) == 1.1


@pytest.mark.parametrize(
    ("name", "step", "expected"),
    [
        ("small", 0.0141, "2 GPUs: 76%, 4 GPUs: 51%, 8 GPUs: 31%; it does not scale: give each GPU a seed"),
        ("base", 0.504, "2 GPUs: 99%, 4 GPUs: 96%, 8 GPUs: 92%"),
    ],
)
def test_a_dry_run_on_a_gpu_says_whether_more_of_them_help(name: str, step: float, expected: str) -> None:
    """Small: 4.1 ms of launches, 10 ms for its rows, 0.3 ms for 57 MB; Base has more rows than launches."""
    config = models.preset(name)
    timing = Timing(step=step, evaluation=0.0)
    (line,) = [value for line, value in describe(config, timing=timing, gpu=2) if line == "efficiency, estimate"]
    assert line.startswith(expected) and ("seed" in line) == ("seed" in expected)
    assert not [line for line, _ in describe(config, timing=timing) if "efficiency" in line]
