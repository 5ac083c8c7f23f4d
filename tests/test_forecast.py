"""Measurements, arithmetic and output of `python -m benchmarks.forecast`."""

import dataclasses
import sys
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import forecast as module
from benchmarks.forecast import forecast, rows_to_time, step_bytes, step_seconds
from benchmarks.synthetic import CLS, SEP, WORDS_FROM, made_up_rows, with_rows, zipf_words
from tests import small

from electra_trainer.cost.flops import step_flops
from electra_trainer.cost.parameters import memory_bytes
from electra_trainer.presets import models
from electra_trainer.presets.models import large
from electra_trainer.train.timing import Trial

CPU = torch.device("cpu")
REAL = step_flops(small.config()).real


def test_the_rows_that_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole step if it is quick; fewer rows if it is slow or does not fit; not even one: a sentence says why."""
    config = small.config()
    assert rows_to_time(config, CPU, "fp32", rate=1e13, limit=0.1) == config.batch.size == 12
    assert rows_to_time(config, CPU, "fp32", rate=2 * REAL, limit=2.5) == 3
    assert rows_to_time(config, CPU, "fp32", rate=2 * REAL, limit=0.1) == "a step of one row would take about 0.28 s"
    monkeypatch.setattr(module, "free_bytes", lambda _: 2 << 30)
    skipped = rows_to_time(large(), CPU, "fp32", rate=1e13, limit=0.1)
    assert isinstance(skipped, str) and "needs about" in skipped and "2 GB are free" in skipped
    many = dataclasses.replace(config, batch=dataclasses.replace(config.batch, size=4096))
    monkeypatch.setattr(module, "free_bytes", lambda _: memory_bytes(with_rows(many, 40)) + (1 << 30))
    rows = rows_to_time(many, CPU, "fp32", rate=1e15, limit=0.1)
    assert isinstance(rows, int) and 1 < rows <= 40


@pytest.mark.parametrize(
    ("rate", "copied", "words"),
    [
        (2.2 * REAL, 1e12, "45%      0%  overhead    whole steps"),
        (1.9 * REAL, 1e12, "arithmetic  10 of 12 rows: an upper bound"),
        (8 * REAL, 1e3, "memory      whole steps"),
        (0.6 * REAL, 1e12, "arithmetic  3 of 12 rows: an upper bound"),
    ],
)
def test_the_limit(monkeypatch: pytest.MonkeyPatch, rate: float, copied: float, words: str) -> None:
    monkeypatch.setattr(module, "step_seconds", lambda config, *_, **__: (config.batch.size / 12, ""))
    assert words in forecast(small.config(), CPU, "fp32", rate=rate, copied=copied)


def test_what_a_step_is_made_of_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    made = module.make

    def recorded(*given: Any, **settings: Any) -> Trial:
        trial = made(*given, **settings)
        trial.fast.made_of = {"step": ["a part"], "left_out": {"another": "a reason"}}
        return trial

    monkeypatch.setattr(module, "make", recorded)
    seconds, made_of = step_seconds(small.config(), CPU, "fp32", limit=0.1)
    assert seconds > 0 and made_of == "a step is a part; without another: a reason"


def test_bytes_of_a_step() -> None:
    """Bytes by hand for BERT-Small in bf16: 16,384 tokens through 12 layers, and 13,546,682 parameters."""
    expected = 2 * 16384 * 12 * (58 * 256 + 11 * 1024) + 13_546_682 * (2 * 2 + 32)
    assert step_bytes(models.bert_small(), width=2) == pytest.approx(expected)
    assert step_bytes(models.small(), width=4) > step_bytes(models.small(), width=2) > expected


def test_made_up_rows() -> None:
    rows = made_up_rows(6, 24, vocab_size=97)
    assert np.array_equal(rows, made_up_rows(6, 24, vocab_size=97))
    assert set(rows[:, 0]) == {CLS} and set(rows[:, -1]) == set(rows[:, 12]) == {SEP}
    words = zipf_words(50_000, vocab_size=97)
    assert words.min() == WORDS_FROM and words.max() == 96
    counts = np.bincount(words, minlength=97)
    assert counts[WORDS_FROM] / counts[WORDS_FROM + 10] == pytest.approx(12.7 / 2.7, rel=0.1)


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheap presets come first; a wrong name is an error before anything is measured."""
    best = module._best
    monkeypatch.setattr(module, "_best", lambda work, device, _: best(work, device, 0.0))
    monkeypatch.setattr(sys, "argv", ["forecast", "large", "tiny", "--seconds", "0.2"])
    assert module.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith(("tiny", "large"))] == ["tiny", "large"]
    assert "GFLOP/s" in lines[0] and "limited by" in lines[3]
    monkeypatch.setattr(sys, "argv", ["forecast", "tini"])
    assert module.main() == 78
