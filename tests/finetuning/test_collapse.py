"""A run that says the same of everything gets a warning with what to try."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.finetuning import toy

from electra_trainer.experiments.cell import Result
from electra_trainer.finetuning import run as engine
from electra_trainer.finetuning.run import finetune_run
from electra_trainer.tasks.tagging import Tagging
from electra_trainer.tasks.texts import Classification


def go(out: Path, **changes: Any) -> Result:
    """Half the texts of the toy task are good. A head that hardly moved says one thing of all of them."""
    job = toy.job(dropout=0.0, attention_dropout=0.0, **changes)
    weights = {name: tensor * 1e-3 for name, tensor in job.source.weights.items()}  # all rows look the same
    return finetune_run(replace(job, source=replace(job.source, weights=weights)), out=out, device="cpu", quiet=True)


def test_more_epochs_or_another_rate_are_advised(tmp_path: Path) -> None:
    found = go(tmp_path / "run", learning_rate=1e-7)
    collapsed = [doubt for doubt in found.doubts if "collapsed: " in doubt and doubt.endswith("for every example.")]
    advice = "after 12 steps: try more epochs, another learning rate or other seeds."
    assert collapsed and found.doubts == (*collapsed, advice)
    assert f"WARNING: {advice}" in (tmp_path / "run" / "log.txt").read_text()


def test_no_advice_without_need(tmp_path: Path) -> None:
    assert finetune_run(toy.job(epochs=12.0), out=tmp_path / "run", device="cpu", quiet=True).doubts == ()


def test_tasks_only_say_what_they_see() -> None:
    same = [{"label": "a", "tags": ["a"]}] * 3
    for task in (Classification(labels=("a", "b")), Tagging(labels=("a", "b"))):
        (doubt,) = task.doubts([], same)
        assert doubt.startswith(engine.COLLAPSED) and "try" not in doubt.lower()
        assert task.doubts([], same[:1]) == task.doubts([], [*same, {"label": "b", "tags": ["b"]}]) == []
