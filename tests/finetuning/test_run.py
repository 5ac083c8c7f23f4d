"""A fine-tuning run that was stopped, wherever it was, ends where the uninterrupted one ends, to the bit; bad gradients move nothing."""

import signal
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.finetuning import toy
from tests.reliability.killed import killed_at_each, untimed
from tests.reliability.runs import curve

from electra_trainer.errors import ConfigError, DataError, Diverged, Interrupted
from electra_trainer.experiments.cell import Result, read_result
from electra_trainer.finetuning import run as engine
from electra_trainer.finetuning.run import Job, finetune_run, is_finished
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.verified import Saved, read
from electra_trainer.tasks.tagging import Tagging
from electra_trainer.tasks.texts import Classification
from electra_trainer.train import step as stepping

STEPS = 12
LEFT = {"result.json", "config.json", "environment.json", "predictions", "metrics.jsonl", "weights"}
"""Files of a finished run, apart from its log."""


def go(job: Job, out: Path, **more: Any) -> Result:
    return finetune_run(job, out=out, device="cpu", quiet=True, keep_weights=True, **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    go(toy.job(), out)
    return out


def weights(run: Path) -> Saved:
    return read(numbered(run / "weights")[-1][1])


def assert_same_end(one: Path, two: Path) -> None:
    for name in ("result.json", *(f"predictions/{split}.jsonl" for split in ("dev", "other", "test"))):
        assert toy.without_times(one / name) == toy.without_times(two / name), name
    first, second = weights(one), weights(two)
    assert first.step == second.step and first.weights.keys() == second.weights.keys()
    for name, tensor in first.weights.items():
        assert torch.equal(tensor, second.weights[name]), name
    assert curve(one) == curve(two)
    for run in (one, two):
        assert {path.name for path in run.iterdir() if not path.name.startswith(".")} - {"log.txt"} == LEFT


def after(calls: int) -> Callable[[], str | None]:
    """A stop that is asked for at the `calls`-th time that the engine looks: once a step, once a batch of an evaluation."""
    looks = iter(range(1, 1000))
    return lambda: "SIGTERM" if next(looks) >= calls else None


def test_steps_differ_and_the_seed_decides(whole: Path, tmp_path: Path) -> None:
    """The other tests compare something: the weights move, and another seed moves them elsewhere."""
    go(toy.job(seed=2), tmp_path / "other")
    one, other = weights(whole).weights, weights(tmp_path / "other").weights
    assert all(not torch.equal(one[name], other[name]) for name in one if "key.bias" not in name)
    facts = read_result(whole).facts
    assert facts["steps"] == STEPS and 0 < facts["seconds"] < 60


def test_stopped_at_each_step_in_turn(whole: Path, tmp_path: Path) -> None:
    """Twelve sessions of one step, then those that stop before each split is predicted, then one that ends it."""
    for session in range(STEPS + 1):
        with pytest.raises(Interrupted):
            go(toy.job(), tmp_path / "run", stop=after(1))
        assert numbered(tmp_path / "run" / "checkpoints")[-1][0] == min(session + 1, STEPS)
    go(toy.job(), tmp_path / "run")
    assert_same_end(whole, tmp_path / "run")


@pytest.mark.parametrize("split", [1, 2, 3])
def test_stopped_while_predicting_trains_no_step_again(
    whole: Path, tmp_path: Path, split: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Interrupted, match="while predicting"):
        go(toy.job(), tmp_path / "run", stop=after(STEPS + split))
    assert numbered(tmp_path / "run" / "checkpoints")[-1][0] == STEPS
    monkeypatch.setattr(stepping.optim, "set_rate", None)  # a step would fail
    go(toy.job(), tmp_path / "run")
    assert_same_end(whole, tmp_path / "run")


def test_micro_batches_resume_as_well(tmp_path: Path) -> None:
    job = toy.job(micro_batch=3, windows=True, max_length=8)
    go(job, tmp_path / "whole")
    with pytest.raises(Interrupted):
        go(job, tmp_path / "run", stop=after(7))
    go(job, tmp_path / "run")
    assert_same_end(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_same_call_resumes(
    whole: Path, tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, steps = stepping.optim.set_rate, iter(range(1, 100))

    def interrupted(*arguments: Any) -> None:
        if next(steps) == 5:
            signal.raise_signal(number)
        real(*arguments)

    monkeypatch.setattr(stepping.optim, "set_rate", interrupted)
    with pytest.raises(Interrupted, match=f"{number.name}: saved at step 5 of {STEPS}"):
        go(toy.job(), tmp_path / "run")
    monkeypatch.undo()
    go(toy.job(), tmp_path / "run")
    assert_same_end(whole, tmp_path / "run")


@pytest.mark.slow
def test_killed_at_file_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each second change of files of a run of six steps, with a checkpoint now and then; the same call ends it."""
    job, clock = toy.job(rows=48), iter(range(100_000))
    monkeypatch.setattr(engine.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(engine, "SAVE_EVERY", 3.5)
    monkeypatch.setattr("electra_trainer.runs.run_folder.environment_facts", dict)

    def work(out: Path) -> None:
        go(job, out)

    assert killed_at_each(work, tmp_path / "kills", every=2, same=untimed) > 15


def test_another_job_is_refused_by_the_name_of_what_differs(whole: Path) -> None:
    job = toy.job()
    labels = replace(job.data.task, labels=("bad", "good", "?"))  # type: ignore[type-var]
    for field, other in (
        ("seed: 1 -> 2", replace(job, seed=2)),
        ("recipe.max_length: 24 -> 16", toy.job(max_length=16)),
        ("model_sha256", toy.job(source_seed=6)),
        ("data_sha256", toy.job(rows=88)),
        ("task.labels", replace(job, data=replace(job.data, task=labels))),
    ):
        with pytest.raises(ConfigError, match=field):
            go(other, whole)


def test_an_encoder_that_was_moved_is_the_same(whole: Path) -> None:
    job = toy.job()
    before = (whole / "result.json").stat().st_mtime_ns
    assert go(replace(job, source=replace(job.source, name="elsewhere/toy")), whole) == read_result(whole)
    assert (whole / "result.json").stat().st_mtime_ns == before


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match=r"holds 'thesis.txt' and no run"):
        go(toy.job(), tmp_path)


def test_weights_that_were_not_kept_are_trained_again(whole: Path, tmp_path: Path) -> None:
    finetune_run(toy.job(), out=tmp_path / "run", device="cpu", quiet=True)
    assert is_finished(tmp_path / "run") and not is_finished(tmp_path / "run", keep_weights=True)
    (tmp_path / "run" / "weights").mkdir()  # as a kill leaves it while they are written
    go(toy.job(), tmp_path / "run")
    assert_same_end(whole, tmp_path / "run")


def test_one_at_a_time(tmp_path: Path) -> None:
    said: list[str] = []

    def second() -> str | None:
        if not said:
            said.append("asked")
            with pytest.raises(ConfigError, match="another process is training there"):
                go(toy.job(), tmp_path / "run")
        return None

    go(toy.job(), tmp_path / "run", stop=second)
    assert said


def with_bad_gradients(monkeypatch: pytest.MonkeyPatch, bad: range) -> list[list[torch.Tensor]]:
    """At these steps, counted from 0, a gradient is NaN; returns the weights at the beginning of each step."""
    real, seen = torch.nn.utils.clip_grad_norm_, []  # type: ignore[var-annotated]

    def clip(parameters: Iterable[torch.nn.Parameter], most: float) -> torch.Tensor:
        own = list(parameters)
        if len(seen) in bad:
            assert own[0].grad is not None
            own[0].grad[0, 0] = float("nan")
        seen.append([tensor.detach().clone() for tensor in own])
        return real(own, most)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", clip)
    return seen


def test_a_step_without_a_finite_gradient_moves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nine in a row do not end the run."""
    seen = with_bad_gradients(monkeypatch, range(1, 10))
    assert go(toy.job(), tmp_path / "run").facts["steps"] == STEPS
    same = [all(map(torch.equal, before, after)) for before, after in pairwise(seen)]
    assert len(seen) == STEPS and [step for step, unmoved in enumerate(same) if unmoved] == [*range(1, 10)]
    assert "step 2: the gradient is not a finite number" in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.parametrize("stop_at", [None, 6])
def test_ten_in_a_row_diverge_at_the_same_step_however_often_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int | None
) -> None:
    with_bad_gradients(monkeypatch, range(1, 11))
    if stop_at is not None:
        with pytest.raises(Interrupted):
            go(toy.job(), tmp_path / "run", stop=after(stop_at))
    with pytest.raises(Diverged, match=r"for 10 steps, up to step 11\. Lower --learning-rate"):
        go(toy.job(), tmp_path / "run")
    assert not is_finished(tmp_path / "run")


def test_no_rows(tmp_path: Path) -> None:
    job = toy.job()
    with pytest.raises(DataError, match="toy: there are no training rows"):
        go(replace(job, data=replace(job.data, train=[])), tmp_path / "run")


KEEPS = {"epochs": 5.0, "keep": "best", "learning_rate": 2e-3}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kept") / "run"
    go(toy.job(**KEEPS), out)
    return out


def test_the_best_epoch_is_kept_and_scored(kept: Path) -> None:
    """Its weights, its scores and its step; the row of each epoch has what `predict` gives."""
    scored = [row for row in curve(kept) if row.get("split") == "dev"]
    assert [row["epoch"] for row in scored] == list(range(1, len(scored) + 1))
    accuracy = [row["accuracy"] for row in scored]
    best = accuracy.index(max(accuracy))
    result, facts = read_result(kept), read_result(kept).facts
    assert result.scores["dev/accuracy"] == accuracy[best] > min(accuracy)
    assert facts["kept_epoch"] == best + 1 and weights(kept).step == STEPS * (best + 1)
    assert best + 1 < facts["epochs"] == len(scored) == 5 and facts["steps"] == STEPS * len(scored)


def test_a_run_that_keeps_the_best_resumes_to_the_bit(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped again and again, in steps and in evaluations; then once killed after an epoch without a checkpoint."""
    for _ in range(40):
        try:
            go(toy.job(**KEEPS), tmp_path / "run", stop=after(5))
            break
        except Interrupted:
            continue
    assert_same_end(kept, tmp_path / "run")

    def killed(*given: Any, step: int, **more: Any) -> Any:
        if step == STEPS + 3:
            raise KeyboardInterrupt
        return tuning_step(*given, step=step, **more)

    tuning_step = engine.tuning_step
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(engine, "tuning_step", killed)
        go(toy.job(**KEEPS), tmp_path / "killed")
    assert numbered(tmp_path / "killed" / "best") and not numbered(tmp_path / "killed" / "checkpoints")
    go(toy.job(**KEEPS), tmp_path / "killed")
    assert_same_end(kept, tmp_path / "killed")


def test_scoring_epochs_changes_nothing_else(whole: Path, tmp_path: Path) -> None:
    go(toy.job(keep="best"), tmp_path / "run")
    one, two = weights(whole).weights, weights(tmp_path / "run").weights
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert sum(row.get("split") == "dev" for row in curve(tmp_path / "run")) == 1


def test_more_epochs_or_another_rate_are_advised(tmp_path: Path) -> None:
    """Half the texts of the toy task are good. A head that hardly moved says one thing of all of them."""
    job = toy.job(dropout=0.0, attention_dropout=0.0, learning_rate=1e-7)
    weights = {name: tensor * 1e-3 for name, tensor in job.source.weights.items()}  # all rows look the same
    found = go(replace(job, source=replace(job.source, weights=weights)), tmp_path / "run")
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
