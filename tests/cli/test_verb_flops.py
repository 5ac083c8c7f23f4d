"""`electra flops` and `electra show` as a person meets them; how long a run is by its FLOPs; what a plan and a card say."""

from __future__ import annotations

import dataclasses
import json

import pytest

from electra_trainer.cli.main import main
from electra_trainer.cost.flops import run_flops
from electra_trainer.errors import ConfigError
from electra_trainer.paper.published import PUBLISHED
from electra_trainer.presets.arms import objective_title
from electra_trainer.presets.models import PRESETS, preset
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import MLM, ObjectiveSettings
from electra_trainer.train.plan import Length, describe, steps_for

Capture = pytest.CaptureFixture[str]


def output(capsys: Capture, *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


def test_flops_of_all(capsys: Capture) -> None:
    table = json.loads(output(capsys, "flops", "all", "--json"))
    assert list(table)[: len(PUBLISHED)] == list(PUBLISHED)
    assert table.keys() == PUBLISHED.keys() | PRESETS.keys()
    assert all(set(row) == {"train_paper", "train_real", "infer_paper"} for row in table.values())
    assert table["bert_large"]["train_paper"] == pytest.approx(1.91720905883648e20)
    assert table["bert_large_ours"]["train_paper"] == run_flops(preset("bert_large")).paper
    assert table["small"] == table["electra_small"] and table["base"] == table["electra_base"]


@pytest.mark.parametrize("name", ["small", "electra_1.75M", "base_two_stage"])
def test_flops_of_one(capsys: Capture, name: str) -> None:
    table = json.loads(output(capsys, "flops", name, "--json"))
    assert list(table) == [name]
    line = output(capsys, "flops", name).splitlines()[-1].split()
    assert line[0] == name and float(line[1]) == pytest.approx(table[name]["train_paper"], rel=1e-3)


def test_flops_of_a_wrong_name(capsys: Capture) -> None:
    assert main(["flops", "smal"]) == ConfigError.exit_code
    assert "Did you mean 'small'?" in capsys.readouterr().err


def test_show_lists_all(capsys: Capture) -> None:
    lines = output(capsys, "show", "all").splitlines()
    assert [line.split()[0] for line in lines] == list(PRESETS)
    assert json.loads(output(capsys, "show", "all", "--json")).keys() == PRESETS.keys()


@pytest.mark.parametrize("name", PRESETS)
def test_show_any(capsys: Capture, name: str) -> None:
    facts = json.loads(output(capsys, "show", name, "--json"))
    config = preset(name)
    assert facts["flops"]["train_paper"] == run_flops(config).paper
    kept = facts["parameters"]["kept"]
    assert kept == facts["parameters"]["embeddings"] + facts["parameters"]["encoder"] + facts["parameters"]["head"]


@pytest.mark.parametrize("name", ["small", "base_two_stage", "base_adversarial"])
def test_steps_by_flops(name: str) -> None:
    """A tenth of a run's FLOPs, in either count, is a tenth of its steps."""
    config = preset(name)
    tenth, whole = config.schedule.steps // 10, run_flops(config)
    by_paper = steps_for(Length(flops=whole.paper / 10), config, None)
    by_real = steps_for(Length(flops_real=whole.real / 10), config, None)
    for found in (by_paper, by_real):
        assert abs(found.schedule.steps - tenth) <= 1
    assert run_flops(by_real).real <= whole.real / 10


@pytest.mark.parametrize("wrong", [{"flops": float("inf")}, {"flops_real": float("nan")}, {"flops_real": -1.0}])
def test_flops_that_are_no_amount(wrong: dict[str, float]) -> None:
    flag = "--" + next(iter(wrong)).replace("_", "-")
    with pytest.raises(ConfigError, match=f"{flag} .*expected a number above 0"):
        Length(**wrong)


def test_two_lengths_are_refused() -> None:
    with pytest.raises(ConfigError, match="--steps and --flops-real both"):
        Length(steps=5, flops_real=1e15)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("small", "replaced token detection"),
        ("bert_small", "masked language modelling"),
        ("base_electra_15", "replaced token detection (loss_over = masked)"),
        ("base_electra_15_other", "replaced token detection (loss_over = other)"),
        ("base_two_stage", "replaced token detection in two stages"),
        ("base_replace_mlm", "replace MLM"),
        ("base_all_tokens_mlm", "all-tokens MLM"),
        ("base_adversarial", "adversarial replaced token detection"),
        ("base_sentence_contrast", "replaced token detection with sentence contrast"),
    ],
)
def test_a_plan_says_what_is_trained(name: str, title: str) -> None:
    config = preset(name)
    plan = dict(describe(config))
    assert plan["objective"] == title
    assert plan["FLOPs, as the paper counts"] == f"{run_flops(config).paper:.3g}"
    assert (f"parameters, {config.objective.keeps}" in plan) != isinstance(config.objective, MLM)


def test_an_objective_of_ones_own_goes_by_its_kind() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class GuessTheWeather(ObjectiveSettings):
        uses_generator = False

    try:
        assert objective_title(Config(objective=GuessTheWeather())) == "guess-the-weather"
    finally:
        del ObjectiveSettings.kinds["guess-the-weather"]
