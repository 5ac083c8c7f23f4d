"""How long a run will be, measured."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import small
from tests.prepared import small_config, write_store

from electra_trainer.cost.parameters import memory_bytes, parameters
from electra_trainer.data.store import Store
from electra_trainer.errors import Interrupted
from electra_trainer.objectives import build
from electra_trainer.objectives.two_stage import GeneratorStage
from electra_trainer.presets import models
from electra_trainer.settings.config import Evaluation, changed
from electra_trainer.settings.methods import Learned, TwoStage
from electra_trainer.train import fast_step, timing
from electra_trainer.train.loop import pretrain
from electra_trainer.train.plan import does_not_fit
from electra_trainer.train.timing import measure_time


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


def test_an_evaluation_takes_the_time_of_both_of_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 s a row with the run's own fakes, of which there are 200 or 700, and 1 s a row with standard fakes, of which there are 512."""
    seconds = {
        "evaluate": lambda feed: 3.0 * len(feed.valid) + len(feed.fakes_BT),
        "on_standard_fakes": lambda feed: 1.0 * len(feed.fakes_BT),
    }
    for name, taken in seconds.items():
        monkeypatch.setattr(timing, name, lambda _, feed, taken=taken: taken(feed))
    monkeypatch.setattr(timing, "timed", lambda work, _: work())
    for rows, expected in ((200, 3 * 200 + 512), (10_000, 3 * 700 + 512), (0, 0)):
        config = dataclasses.replace(small.config(), evaluation=Evaluation(rows=rows))
        found = timing._evaluation_seconds(build(config), small.feed(config, valid=700))
        assert found == pytest.approx(expected)


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
    largest = changed(models.large(), model=wide | {"intermediate_size": 6144}, batch={"lanes": 64})  # docs/cluster.md
    assert memory_bytes(largest, gpu=2) < 75e9 and round(parameters(largest).joint / 1e9, 1) == 1.1


def test_many_passes_over_the_same_text_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Passes of a run of more than ten."""
    data = write_store(tmp_path / "data")
    rows = len(Store.open(data).rows("train"))
    for times, said in ((9, False), (12, True)):
        config = small_config(steps=-(-times * rows // small_config().batch.size))
        with pytest.raises(Interrupted):
            pretrain(config, data, out=tmp_path / f"run-{times}", device="cpu", pause=lambda run: True)
        line = f"The run reads its text {times} times over: more text helps more than more steps."
        assert (line in capsys.readouterr().err) == said
