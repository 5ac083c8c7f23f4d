"""The health line says what the numbers say; each alarm sounds for its own failure and for no other."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.prepared import small_config

from electra_trainer.cli.pretrain import Pretrain
from electra_trainer.inspection.report import health, read_run
from electra_trainer.presets.arms import ARMS
from electra_trainer.settings.config import Model, changed
from electra_trainer.train.health import BEGINNING, GUESSING, LEARNING, alarms, chance, health_line
from electra_trainer.train.measures import _auc

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
    """Easy fakes of a run's own, as in its first steps, do not count (records/2026-11-23-demo-recipe)."""
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


FLAT = math.log(VOCAB)
BLIND = {"discriminator_constant_loss": 0.42, "discriminator_auc": 0.5, "fake_rate": 0.13}
WORSE: list[tuple[dict[str, float], str]] = [
    ({"generator_loss": 8210.0}, "generator_loss 8210, in training 8210, a guess 6.91"),
    ({"generator_loss": math.nan}, "generator_loss –"),
    ({"encoder_loss": FLAT + 0.1, "encoder_accuracy": 0.0}, "encoder_loss 7.01"),
    (BLIND | {"discriminator_loss": 0.64}, "discriminator_loss 0.640, in training 0.640, a guess 0.420"),
    ({"sentence_loss": 1.1}, "sentence_loss 1.10"),
    ({"guess_loss": 1e6}, "guess_loss 1M"),
    ({"policy_loss": 0.0, "baseline_loss": 40.0}, "baseline_loss 40"),
    ({"policy_loss": 0.0, "generator_loss": 6 * FLAT}, "generator_loss 41.4"),
]


@pytest.mark.parametrize(("bad", "words"), WORSE)
@pytest.mark.parametrize(("step", "steps", "warmup"), [(60, 60, 6), (100, 2000, 100), (1500, 2000, 100), (80, 80, 80)])
def test_a_loss_above_that_of_a_guess_is_an_alarm(
    bad: dict[str, float], words: str, step: int, steps: int, warmup: int
) -> None:
    """After the warm-up and at the end of a run, however short."""
    (line,) = alarms(GOOD | bad, model=MODEL, step=step, steps=steps, warmup=warmup)
    assert words in line and "diverged" in line and "--optimizer.muon-learning-rate" in line
    assert alarms(GOOD | bad, model=MODEL, step=warmup - 1, steps=10_000, warmup=warmup) == []


@pytest.mark.parametrize(
    "fresh",
    [
        {"generator_loss": 1.07 * FLAT, "encoder_loss": 1.07 * FLAT, "encoder_accuracy": 0.0},
        BLIND | {"discriminator_loss": 0.76, "sentence_loss": 0.79},
        BLIND | {"discriminator_loss": 0.65, "discriminator_constant_loss": 0.0},
    ],
)
def test_new_weights_are_no_alarm(fresh: dict[str, float]) -> None:
    """They guess, a little worse than a guess: the highest losses of all arms after one step (of `demo`, `small` and `base`)."""
    assert alarms(GOOD | fresh, model=MODEL, step=1, steps=1, warmup=1) == []
    assert alarms(GOOD | fresh, model=MODEL, step=60, steps=60, warmup=6)


@pytest.mark.parametrize(
    "healthy",
    [
        {"discriminator_loss": 0.04, "discriminator_constant_loss": 0.02},  # over the masked tokens, all of them fakes
        {"policy_loss": 0.0, "generator_loss": 2.6 * FLAT, "baseline_loss": 0.8},
        {"policy_loss": -3.0, "discriminator_loss": 1.13, "discriminator_constant_loss": 0.69},
        {"guess_loss": 3.0},
    ],
)
def test_losses_that_look_high_and_are_not(healthy: dict[str, float]) -> None:
    assert alarms(GOOD | healthy, model=MODEL, step=60, steps=60, warmup=6) == []


def test_one_bad_batch_is_no_divergence_and_rows_by_heart_are_named() -> None:
    bad = GOOD | {"generator_loss": 12.1}
    assert alarms(GOOD, bad, model=MODEL, step=60, steps=60) == []
    (line,) = alarms(bad, GOOD | {"generator_loss": 0.3}, model=MODEL, step=60, steps=60)
    assert "generator_loss 12.1, in training 0.300" in line and "by heart" in line and "diverged" not in line


@pytest.mark.parametrize(
    ("words", "auc", "expected"),
    [
        (2202, 0.52, GUESSING), (2202, 0.54, GUESSING), (2202, 0.56, BEGINNING), (2202, 0.6, LEARNING),
        (15_015, 0.53, BEGINNING), (15_015, 0.56, LEARNING), (10, 0.9, GUESSING), (0, 1.0, GUESSING),
    ],
)  # fmt: skip
def test_a_verdict_is_what_the_held_out_words_can_tell(words: int, auc: float, expected: str) -> None:
    line = health_line(GOOD | {"discriminator_standard_auc": auc, "standard_words": words}, vocab_size=VOCAB)
    assert f": {expected}" in line and (not words or f"(of {words:,} words, chance reaches " in line)


def test_chance_is_what_guessing_reaches() -> None:
    """Three standard errors: random logits, a fifth of the words fakes."""
    random = np.random.default_rng(0)
    fakes = torch.from_numpy(random.random(2202) < 0.2)
    aucs = [_auc(fakes, torch.from_numpy(random.normal(size=2202))) for _ in range(200)]
    assert chance(2202) - 0.5 == pytest.approx(3 * np.std(aucs), rel=0.1)


@pytest.mark.parametrize(("arm", "rows"), [("electra", 0), ("two-stage", 64)])
def test_a_run_that_diverged_ends_with_that(
    arm: str, rows: int, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where nothing is evaluated: last in the log, in status.json and on the page, and not "done" alone."""
    wild = {"optimizer": {"learning_rate": 5.0}, "evaluation": {"rows": rows}}
    config = changed(ARMS[arm](small_config(steps=4, layers=1)), **wild)
    shown = Pretrain(data=data, out=tmp_path / "run", settings=config, device="cpu").run()
    assert shown is not None and "ALARM: losses are worse" in shown.text()
    last = (tmp_path / "run" / "log.txt").read_text().splitlines()[-1]
    assert "ALARM: losses are worse" in last and "the run diverged" in capsys.readouterr().err
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["state"], status["exit_code"]) == ("done", 0) and "the run diverged" in status["message"]
    kind, sentence = health(read_run(tmp_path / "run"))
    assert kind == "bad" and sentence.startswith("ALARM: losses are worse")
