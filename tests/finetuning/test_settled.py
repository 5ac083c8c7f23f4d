"""Choices that an experiment settles when it begins, and keeps: precision, and the length of its rows."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.finetuning import plans, toy
from tests.finetuning.toy import Toy

from electra_trainer.errors import ConfigError
from electra_trainer.experiments.summary import Summary
from electra_trainer.finetuning import experiment as engine
from electra_trainer.finetuning import run as runs
from electra_trainer.finetuning.run import finetune_run

BRIEF = {"learning_rate": 5e-3, "batch_size": 8, "max_length": 24, "epochs": 1.0}


def go(model: str, out: Path, *tasks: Toy, seeds: tuple[int, ...] = (1,), **changes: Any) -> Summary:
    return plans.go(plans.plan(model, *(tasks or [Toy(rows=16)]), seeds=seeds, changes=BRIEF | changes), out)


def machine_prefers(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(name: str, device: object) -> str:
        return precision if name == "auto" else name

    monkeypatch.setattr(engine, "choose_precision", choose)
    monkeypatch.setattr(runs, "choose_precision", choose)


def noted(out: Path, run: str = "toy/seed-1") -> tuple[str, str]:
    """Precision of the experiment, and of a run."""
    declared = json.loads((out / "experiment.json").read_text())["rows"][run.partition("/")[0]]["settings"]
    return declared["recipe"]["precision"], json.loads((out / "cells" / run / "config.json").read_text())["recipe"][
        "precision"
    ]


@pytest.mark.parametrize(("begun", "later"), [("fp32", "bf16"), ("bf16", "fp32")])
def test_an_experiment_resumes_in_the_precision_that_it_began_in(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: str, later: str
) -> None:
    """On a machine that prefers another one too: more seeds, and tasks, come to the same as all at once."""
    out, at_once = tmp_path / "out", tmp_path / "at once"
    machine_prefers(begun, monkeypatch)
    assert go(model, out).declared.rows["toy"].settings["recipe"]["precision"] == begun
    go(model, at_once, Toy(rows=16), Toy(rows=16, name="more"), seeds=(1, 2))
    machine_prefers(later, monkeypatch)
    go(model, out, Toy(rows=16), Toy(rows=16, name="more"), seeds=(1, 2))
    for run in ("toy/seed-1", "toy/seed-2", "more/seed-1"):
        assert noted(out, run) == (begun, begun)
        for file in ("result.json", "predictions/dev.jsonl"):
            mine, theirs = (at / "cells" / run / file for at in (out, at_once))
            assert toy.without_times(mine) == toy.without_times(theirs)
    before = (out / "experiment.json").read_bytes()
    with pytest.raises(ConfigError, match=f"recipe.precision: '{begun}' -> '{later}' in toy"):
        go(model, out, precision=later)
    assert (out / "experiment.json").read_bytes() == before
    go(model, tmp_path / "other", precision=begun)  # named, against what the machine prefers
    assert noted(tmp_path / "other") == (begun, begun)


def test_a_run_notes_its_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that no experiment began too."""
    machine_prefers("fp32", monkeypatch)
    finetune_run(toy.job(rows=16, precision="auto"), out=tmp_path / "run", device="cpu", quiet=True)
    assert json.loads((tmp_path / "run/config.json").read_text())["recipe"]["precision"] == "fp32"
    machine_prefers("bf16", monkeypatch)
    with pytest.raises(ConfigError, match=r"recipe.precision: 'fp32' -> 'bf16'"):
        finetune_run(toy.job(rows=16, precision="auto"), out=tmp_path / "run", device="cpu", quiet=True)


def test_rows_are_no_longer_than_the_encoder_s_and_a_note_says_so(model: str, tmp_path: Path) -> None:
    """The toy encoder read 40 tokens: what is recorded is what was done, and more rows of it are the same experiment."""
    found = go(model, tmp_path / "out", Toy(rows=16, note="made up"), max_length=512).declared.rows["toy"]
    note = "rows have up to 40 tokens, the longest that the encoder was trained on, and not 512 (--max-length)."
    assert found.settings["recipe"]["max_length"] == 40 and found.notes[:2] == ("made up", note)
    assert json.loads((tmp_path / "out/cells/toy/seed-1/config.json").read_text())["recipe"]["max_length"] == 40
    assert f"- toy: {note}" in (tmp_path / "out/summary.md").read_text()
    go(model, tmp_path / "out", max_length=40, seeds=(1, 2))
    short = go(model, tmp_path / "short", max_length=24).declared.rows["toy"]
    assert short.settings["recipe"]["max_length"] == 24 and not any("rows have" in one for one in short.notes)
