"""What `electra doctor --bench` measures, works out and says."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from tests import small

from electra_trainer.cli import show
from electra_trainer.cli.main import VERBS, main
from electra_trainer.cost.flops import step_flops
from electra_trainer.cost.parameters import memory_bytes, step_bytes
from electra_trainer.presets.models import large
from electra_trainer.presets.models import tiny as tiny_preset
from electra_trainer.settings.config import Config
from electra_trainer.supervise.launcher import trains
from electra_trainer.train import timing as module
from electra_trainer.train.timing import (
    CLS,
    SEP,
    WORDS_FROM,
    Forecast,
    Machine,
    copy_rate,
    forecast,
    free_bytes,
    made_up_rows,
    matrix_rate,
    with_rows,
    zipf_words,
)

CPU = torch.device("cpu")


def machine(*, flops: float = 1e11, free: int | None = None) -> Machine:
    rates = {"fp32": flops, "bf16": flops}
    return Machine(device=CPU, precision="fp32", matrix_flops=rates, copy_bytes=1e10, free_bytes=free)


def test_whole_steps_where_they_are_quick() -> None:
    config = small.config()
    found = forecast(config, machine(), limit=0.1)
    assert isinstance(found, Forecast) and not found.extrapolated
    assert found.tokens_per_second == pytest.approx(config.tokens_per_step / found.seconds_per_step)
    assert found.run_seconds == pytest.approx(20 * found.seconds_per_step)
    assert found.arithmetic_seconds == pytest.approx(step_flops(config).real / 1e11)
    assert found.memory_seconds == pytest.approx(step_bytes(config, width=4) / 1e10)


def test_fewer_rows_where_they_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is that of the timed rows, scaled; where not even one row fits, the sentence says so."""
    monkeypatch.setattr(module, "_step_seconds", lambda config, *_, **__: (0.1 * config.batch.size + 1.0, ""))
    config, slow = small.config(), machine(flops=2 * step_flops(small.config()).real)
    found = forecast(config, slow, limit=2.5)
    assert isinstance(found, Forecast) and found.extrapolated and (found.rows_timed, found.rows) == (3, 12)
    assert found.seconds_per_step == pytest.approx(4 * 1.3)
    assert forecast(config, slow, limit=0.1) == "a step of one row would take about 0.28 s"


def test_what_does_not_fit_is_skipped_in_words() -> None:
    found = forecast(large(), machine(free=2 << 30))
    assert isinstance(found, str) and "GB" in found and "2 GB are free" in found


def test_rows_are_cut_to_the_memory() -> None:
    config = dataclasses.replace(small.config(), batch=dataclasses.replace(small.config().batch, size=4096))
    free = memory_bytes(with_rows(config, 40)) + (1 << 30)
    found = forecast(config, machine(flops=1e13, free=free), limit=0.1)
    assert isinstance(found, Forecast) and 1 < found.rows_timed <= 40


def test_out_of_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*_: object, **__: object) -> tuple[float, str]:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(module, "_step_seconds", greedy)
    assert forecast(small.config(), machine(), limit=0.1) == "ran out of memory at 12 rows"


def test_lanes_are_no_larger_than_the_presets() -> None:
    assert with_rows(large(), 2048) == large()
    for rows in (1, 2, 96, 128, 129, 250, 256):
        config = with_rows(large(), rows)
        assert config.batch.size == rows and config.lane_size <= large().lane_size


@pytest.mark.parametrize(
    ("arithmetic", "memory", "limit"), [(0.6, 0.1, "arithmetic"), (0.6, 0.7, "memory"), (0.4, 0.4, "overhead")]
)
def test_the_limit(arithmetic: float, memory: float, limit: str) -> None:
    found = Forecast(
        preset="p", seconds_per_step=1.0, tokens_per_step=1, run_steps=1, rows=1, rows_timed=1,
        arithmetic_seconds=arithmetic, memory_seconds=memory,
    )  # fmt: skip
    assert found.limit == limit


def test_what_a_step_is_made_of_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = [{"step": ["a part"], "left_out": {"another": "a reason"}, "kernels": {}}]
    monkeypatch.setattr(module, "news", lambda: reports.pop() if reports else None)
    found = forecast(small.config(), machine(), limit=0.1)
    assert isinstance(found, Forecast) and found.step == "a step is a part; without another: a reason"
    assert found.step in show._forecast_line("test", found)


def test_rates_of_this_machine() -> None:
    assert matrix_rate(CPU, torch.float32, limit=0.0) > 1e8
    assert copy_rate(CPU, limit=0.0) > 1e8
    free = free_bytes(CPU)
    assert free is None or free > 0


def test_made_up_rows() -> None:
    rows = made_up_rows(6, 24, vocab_size=97)
    assert np.array_equal(rows, made_up_rows(6, 24, vocab_size=97))
    assert set(rows[:, 0]) == {CLS} and set(rows[:, -1]) == set(rows[:, 12]) == {SEP}
    words = zipf_words(50_000, vocab_size=97)
    assert words.min() == WORDS_FROM and words.max() == 96
    counts = np.bincount(words, minlength=97)
    assert counts[WORDS_FROM] / counts[WORDS_FROM + 10] == pytest.approx(12.7 / 2.7, rel=0.1)


def test_doctor_bench(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is, but for how long it may measure."""
    real, best = module.forecast, module._best

    def soon(config: Config, found: Machine, *, limit: float) -> Forecast | str:
        assert 2.0 <= limit <= 8.0
        return real(config, found, limit=0.5)

    monkeypatch.setattr(module, "forecast", soon)
    monkeypatch.setattr(module, "_best", lambda work, device, _: best(work, device, 0.0))
    assert main(["doctor", "--bench", "--json", "--presets", "tiny"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert set(facts["presets"]) == {"tiny"} and facts["matrix_flops_per_second"]["fp32"] > 1e8
    tiny = facts["presets"]["tiny"]
    assert tiny["tokens_per_second"] > 100 and tiny["limit"] in ("arithmetic", "memory", "overhead")
    assert tiny["run_seconds"] == pytest.approx(tiny_preset().schedule.steps * tiny["seconds_per_step"])
    assert main(["doctor", "--bench", "--presets", "tini"]) == 78


def test_doctor_tells_in_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from electra_trainer.train import timing as machines

    monkeypatch.setattr(machines, "measure_machine", lambda _: machine(flops=1e10, free=2 << 30))
    assert main(["doctor", "--bench", "--presets", "tiny", "large"]) == 0
    lines = capsys.readouterr().out.splitlines()
    order = [line.split()[0] for line in lines if line.startswith(("tiny", "large"))]
    assert order == ["tiny", "large"]  # the cheap ones first
    assert any(line.startswith("large") and "skipped: needs about" in line for line in lines)
    assert any("limited by:" in line for line in lines)


def test_doctor_restarts_tuned_only_to_measure() -> None:
    assert trains(["doctor", "--bench"]) and trains(["pretrain", "D"]) and not trains([])
    assert not trains(["doctor"]) and not trains(["doctor", "--bench", "--help"]) and not trains(["show", "small"])
    assert {"demo", "pretrain", "finetune", "glue", "squad", "compare"} == {verb for verb in VERBS if trains([verb])}
