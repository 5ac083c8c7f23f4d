"""Help names values for what they are, and flags take the words that people try."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import tyro
from tests.command import Electra

from electra_trainer.cli.flags import FILE_ONLY, whole_number
from electra_trainer.cli.main import VERBS, main, read
from electra_trainer.errors import ConfigError
from electra_trainer.paper.request import Compare
from electra_trainer.settings import methods
from electra_trainer.settings.methods import RTD, ObjectiveSettings

_HIDDEN, _POSITIONAL = (get_args(mark[str])[1] for mark in (tyro.conf.Suppress, tyro.conf.Positional))


@pytest.mark.parametrize("verb", VERBS)
def test_help_names_values_and_not_types(electra: Electra, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """No usage or option line has a Python type; a default is printed once; the short help has no flag that the long one lacks."""
    monkeypatch.setenv("COLUMNS", "80")
    code, short, _ = electra(verb, "--help")
    all_code, out, _ = electra(verb, "--help-all")
    assert (code, all_code) == (0, 0)
    for text in (short, out):
        assert not re.findall(r"\b(?:STR|INT|FLOAT|BOOL)\b|\{None|None\b[,}|.]|\(default|True,False", text)
        assert re.match(rf"usage: electra {verb} ", text)
    for entry in re.split(r"\n│ (?=-)", out):
        assert entry.count("Default:") <= 1, entry
    assert _flags(short) <= _flags(out) | {"--help-all"}


def _flags(text: str) -> set[str]:
    return {flag for line in re.findall(r"^│ (--.*)", text, re.M) for flag in re.findall(r"--[a-z][\w.-]*", line)}


FLAGS = {
    "demo": 3, "doctor": 1, "tokenizer": 10, "prepare": 13, "merge": 1, "pretrain": 74, "evaluate": 2, "report": 1,
    "track": 1, "replay": 5, "score": 1, "fill": 2, "embed": 7, "playground": 2, "export": 8, "finetune": 41,
    "predict": 6, "glue": 27, "squad": 29, "answer": 6, "compare": 72, "table": 2, "figure": 5, "cloze": 7,
    "minimal-pairs": 5, "show": 1, "flops": 1,
}  # fmt: skip
"""Flags of each verb, one for both spellings of a yes or no, over all objectives and generators; `--import` belongs to
all. Frozen: a new flag takes the place of one."""


def flags_of(kind: type, prefix: str = "") -> Iterator[str]:
    """Dotted names of a request's flags: no positional, hidden or file-only field."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        marks, hint = getattr(hints[field.name], "__metadata__", ()), hints[field.name]
        bare = get_args(hint)[0] if marks else hint
        named = next((mark.name for mark in marks if getattr(mark, "name", None) is not None), field.name)
        members = [*ObjectiveSettings.kinds.values()] if bare is ObjectiveSettings else [bare, *get_args(bare)]
        if groups := [one for one in members if is_dataclass(one)]:
            for one in groups:
                yield from flags_of(one, f"{prefix}{named}." if named else prefix)
        elif not {_HIDDEN, _POSITIONAL} & {*marks} and prefix + field.name not in FILE_ONLY:
            yield prefix + named


def test_flags_are_frozen() -> None:
    """Own objectives of other tests are none of ours."""
    ours = {name: kind for name, kind in ObjectiveSettings.kinds.items() if kind.__module__ == methods.__name__}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectiveSettings, "kinds", ours)
        found = {verb: {*flags_of(one)} for verb, one in VERBS.items()}
    found["compare"] -= {name.removeprefix("--").replace("-", "_") for name in Compare.refused}
    assert {verb: len(names) for verb, names in found.items()} == FLAGS
    assert len(FLAGS) <= 27 and sum(FLAGS.values()) <= 400


@pytest.mark.parametrize("verb", ["pretrain", "compare", "finetune", "glue", "squad"])
def test_short_help_fits_two_screens(electra: Electra, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, short, _ = electra(verb, "--help")
    _, out, _ = electra(verb, "--help-all")
    assert sum(1 + len(line) // 81 for line in short.splitlines()) <= 80
    assert f"electra {verb} --help-all" in short and len(_flags(short)) < 0.8 * len(_flags(out))


def test_settings_of_a_file_are_no_flags(electra: Electra, tmp_path: Path) -> None:
    """Flags that a preset or a recipe decides are refused with what to type, and read from a file."""
    words = {"pretrain": ["data", "--out", "run"], "finetune": ["run", "--train", "a.csv", "--out", "e"]}
    for verb, flag, name in (
        ("pretrain", "--optimizer.beta1", "optimizer.beta1"),
        ("finetune", "--clip-norm", "clip_norm"),
    ):
        code, _, err = electra(verb, *words[verb], flag, "0.5")
        assert code == ConfigError.exit_code and f"{flag}: is no flag. Write {name} into a file, --config FILE." in err
    (tmp_path / "a.toml").write_text("clip_norm = 0.5")
    assert read("finetune", [*words["finetune"], "--config", str(tmp_path / "a.toml")]).given == {"clip_norm": 0.5}
    (tmp_path / "b.toml").write_text("optimizer.beta1 = 0.5")
    assert read("pretrain", [*words["pretrain"], "--config", str(tmp_path / "b.toml")]).settings.optimizer.beta1 == 0.5


def test_tags_without_spans_are_plain() -> None:
    words = ["model", "--task", "tagging", "--train", "a.conll", "--out", "e", "--scheme"]
    schemes = {word: read("finetune", [*words, word]).source().scheme for word in ("plain", "bioes", "detect")}  # type: ignore[attr-defined]
    assert schemes == {"plain": "plain", "bioes": "bioes", "detect": "detect"}


@pytest.mark.parametrize(
    ("text", "value"),
    [("1000", 1000), ("1e5", 100_000), ("-3", -3), ("12345678901234567890", 12345678901234567890)],
)  # fmt: skip
def test_whole_numbers(text: str, value: int) -> None:
    assert whole_number(text) == value


@pytest.mark.parametrize("text", ["1.5", "many", "", "1e400", "nan", "1k"])
def test_what_is_not_a_whole_number(text: str) -> None:
    with pytest.raises(ValueError):
        whole_number(text)


def test_a_bad_number_is_explained(electra: Electra) -> None:
    code, _, err = electra("pretrain", "data", "--out", "run", "--steps", "1.5")
    assert code == ConfigError.exit_code and "a whole number, for example 1000 or 1e3" in " ".join(err.split())


def test_names_that_people_try() -> None:
    flags = ["data", "--out", "run", "--lr", "1e-3", "--batch-size", "32", "--steps", "1e4", "--objective", "rtd"]
    arguments = read("pretrain", [*flags, "--preset", "tiny"])
    settings = arguments.settings
    assert (settings.optimizer.learning_rate, settings.batch.size, arguments.steps) == (1e-3, 32, 10_000)
    assert isinstance(settings.objective, RTD) and settings.preset == "tiny"


@pytest.mark.parametrize("given", ["5000", "0", "three", "1,1", ""])
def test_seeds_are_looked_at_before_the_data(given: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for words in (
        ["finetune", "run", "--train", "none.csv"],
        ["compare", str(tmp_path / "data"), "--arms", "electra", "--steps", "1"],
    ):
        assert main([*words, "--seeds", given, "--out", str(tmp_path / "o")]) == ConfigError.exit_code
        said = capsys.readouterr().err
        assert (
            f"--seeds {given!r}: expected how many seeds, from 1 to 1000, such as 3, or which, such as 1,2,5." in said
        )
        assert said.rstrip().endswith("makes it the seed.")
