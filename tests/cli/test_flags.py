"""Help names values for what they are, and flags take the words that people try."""

import re

import pytest
from tests.command import Electra

from electra_trainer.cli.flags import whole_number
from electra_trainer.cli.main import VERBS, read
from electra_trainer.errors import ConfigError
from electra_trainer.settings.methods import RTD


@pytest.mark.parametrize("verb", VERBS)
def test_help_names_values_and_not_types(electra: Electra, verb: str) -> None:
    code, out, _ = electra(verb, "--help")
    assert code == 0
    assert not re.findall(r"\b(?:STR|INT|FLOAT|PATH|BOOL)\b|\{None|\(default", out)
    assert re.match(rf"usage: electra {verb} ", out)


def test_every_verb_is_in_the_overview_once(electra: Electra) -> None:
    _, out, _ = electra("--help")
    assert sorted(re.findall(r"^  (\S+)", out, re.M)) == sorted(VERBS)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1000", 1000), ("1e5", 100_000), ("100k", 100_000), ("0.5M", 500_000), ("-3", -3), ("12345678901234567890", 12345678901234567890)],
)  # fmt: skip
def test_whole_numbers(text: str, value: int) -> None:
    assert whole_number(text) == value


@pytest.mark.parametrize("text", ["1.5", "many", "", "k", "1e400", "nan", "1kk"])
def test_what_is_not_a_whole_number(text: str) -> None:
    with pytest.raises(ValueError):
        whole_number(text)


def test_a_bad_number_is_explained(electra: Electra) -> None:
    code, _, err = electra("pretrain", "data", "--out", "run", "--steps", "1.5")
    assert code == ConfigError.exit_code and "a whole number, for example 1000, 1e3 or 1k" in " ".join(err.split())


def test_names_that_people_try() -> None:
    flags = ["data", "--out", "run", "--lr", "1e-3", "--batch-size", "32", "--steps", "10k", "--objective", "electra"]
    arguments = read("pretrain", [*flags, "--preset", "tiny"])
    settings = arguments.settings
    assert (settings.optimizer.learning_rate, settings.batch.size, arguments.steps) == (1e-3, 32, 10_000)
    assert isinstance(settings.objective, RTD) and settings.preset == "tiny"
