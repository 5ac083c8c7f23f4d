"""The health line says what the numbers say; each alarm sounds for its own failure and for no other."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from electra_trainer.settings.config import Model
from electra_trainer.train.measures import alarms, health_line

VOCAB = 1000
MODEL = Model(vocab_size=VOCAB)
GOOD = {
    "discriminator_loss": 0.21, "discriminator_constant_loss": 0.25, "discriminator_auc": 0.81, "discriminator_standard_auc": 0.63,
    "fake_rate": 0.07,
    "generator_loss": 3.1, "generator_accuracy": 0.42, "generator_entropy": 0.5 * math.log(VOCAB),
}  # fmt: skip
FAILURES = {
    "uniform": {"generator_entropy": 0.95 * math.log(VOCAB)},
    "AUC": {"discriminator_standard_auc": 0.53},
    "right so often": {"fake_rate": 0.02},
    "diverged": {"discriminator_loss": 0.5},
}


def test_a_healthy_line() -> None:
    line = health_line(GOOD, vocab_size=VOCAB)
    assert (
        "discriminator 0.210 vs 0.250 for the constant guess, AUC 0.81; AUC on standard fakes 0.630: learning" in line
    )
    assert "generator 3.10 nats, right 42 % of the time, entropy 50 % of the most" in line


@pytest.mark.parametrize(
    ("auc", "words"), [(0.51, "not better than chance"), (0.53, "beginning to learn"), (0.58, "learning")]
)
def test_a_discriminator_is_judged_on_standard_fakes(auc: float, words: str) -> None:
    """Easy fakes of a run's own, as in its first steps, do not count (records/2026-11-24-word-learning)."""
    for own in (
        {},
        {"discriminator_loss": 0.3, "discriminator_auc": 0.5},
        {"discriminator_loss": 0.1, "discriminator_auc": 0.95},
    ):
        assert f": {words};" in health_line(GOOD | own | {"discriminator_standard_auc": auc}, vocab_size=VOCAB)
    unknown = {name: value for name, value in GOOD.items() if name != "discriminator_standard_auc"}
    assert "learn" not in health_line(unknown, vocab_size=VOCAB)


def test_a_masked_lm_has_no_discriminator() -> None:
    mlm = {name: value for name, value in GOOD.items() if name.startswith("generator")}
    assert "discriminator" not in health_line(mlm, vocab_size=VOCAB)
    assert alarms(mlm, model=MODEL, step=900, steps=1000) == []


def test_no_alarm_for_a_healthy_run() -> None:
    assert alarms(GOOD, model=MODEL, step=900, steps=1000) == []
    own = {"discriminator_auc": 0.5}  # a strong generator's fakes are hard to tell
    assert alarms(GOOD | own, model=MODEL, step=900, steps=1000) == []


@pytest.mark.parametrize("word", FAILURES)
def test_each_failure_has_its_alarm(word: str) -> None:
    (line,) = alarms(GOOD | FAILURES[word], model=MODEL, step=900, steps=1000)
    assert word in line


def test_a_remedy_is_not_what_the_run_has() -> None:
    bad = GOOD | FAILURES["AUC"]
    (line,) = alarms(bad, model=MODEL, step=900, steps=1000)
    (own,) = alarms(bad, model=replace(MODEL, initializer="fan-in"), step=900, steps=1000)
    assert "--model.initializer fan-in" in line and "fan-in" not in own


def test_several_failures_give_several_alarms() -> None:
    everything = GOOD | {name: value for change in FAILURES.values() for name, value in change.items()}
    assert len(alarms(everything, model=MODEL, step=900, steps=1000)) == 4


@pytest.mark.parametrize(
    ("step", "steps", "silent"), [(499, 1000, True), (500, 1000, False), (999, 4000, True), (1000, 4000, False)]
)
def test_alarms_wait_until_a_run_had_its_chance(step: int, steps: int, silent: bool) -> None:
    bad = GOOD | FAILURES["AUC"]
    assert (alarms(bad, model=MODEL, step=step, steps=steps) == []) == silent
