"""Experiments of several tasks and seeds: extended, refused, failing, stopped; and killed anywhere, they come to the same bytes."""

import fcntl
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.context import ForkProcess as Command
from pathlib import Path
from typing import Any

import pytest
from tests.finetuning import plans, run_toy, toy
from tests.finetuning.own_files import rows, write_csv
from tests.finetuning.toy import Toy
from tests.reliability.children import copy_workers

from electra_trainer.errors import ConfigError, DataError, Diverged, ElectraError, Interrupted, MissingInputError
from electra_trainer.experiments import cell as folder
from electra_trainer.experiments import engine as rounds
from electra_trainer.experiments.cell import Cell, read_result
from electra_trainer.experiments.engine import Board
from electra_trainer.experiments.summary import Summary, summarize
from electra_trainer.files.wording import duration
from electra_trainer.finetuning import experiment as engine
from electra_trainer.finetuning import run as runs
from electra_trainer.finetuning.experiment import Plan
from electra_trainer.tasks.own_files import OwnTask
from electra_trainer.tasks.task import TaskData

REPOSITORY = Path(__file__).resolve().parents[2]
FORK = get_context("fork")
SMALL = {"learning_rate": 5e-3, "batch_size": 8, "max_length": 24}


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("electra_trainer.finetuning.run.SAVE_EVERY", 60.0)  # put back: loading a task may set it


def plan(model: str, *tasks: Toy, **more: Any) -> Plan:
    return plans.plan(model, *(tasks or [Toy(rows=16)]), **{"seeds": (1, 2), "changes": SMALL, **more})


def go(asked: Plan, out: Path, *, parallel: int | None = 1) -> Summary:
    return plans.go(asked, out, parallel=parallel)


def contents(out: Path) -> dict[str, bytes]:
    """All that is a result: the same bytes whatever happened on the way."""
    names = ("experiment.json", "summary.json", "summary.md")
    results = [*out.rglob("result.json"), *out.rglob("predictions/*.jsonl")]
    files = [*(out / name for name in names), *results]
    return {str(path.relative_to(out)): toy.without_times(path) for path in files}


def assert_same(one: Path, two: Path) -> None:
    first, second = contents(one), contents(two)
    assert first.keys() == second.keys()
    for name, content in first.items():
        assert content == second[name], name


def kept(out: Path) -> list[str]:
    return sorted(path.parent.name for path in out.glob("cells/*/*/weights"))


# What an experiment is


def test_a_plan_with_floors_leaves_what_it_says(model: str, tmp_path: Path) -> None:
    found = go(plan(model, Toy(rows=16, note="made up"), baselines=True), tmp_path / "out")
    cells = {str(path.relative_to(tmp_path / "out/cells")) for path in (tmp_path / "out/cells").glob("*/*")}
    assert cells == {
        "toy/seed-1", "toy/seed-2", "toy+untrained/seed-1", "toy+untrained/seed-2", "toy+majority/seed-0",
        "toy+tf_idf/seed-0",
    }  # fmt: skip
    for seed in (1, 2):
        result = read_result(tmp_path / "out" / "cells" / "toy" / f"seed-{seed}")
        assert found.rows["toy"]["dev/accuracy"].by_seed[seed] == result.scores["dev/accuracy"]
        assert result.facts["steps"] == 16 // 8 * 3 and result.facts["seconds"] > 0
    scores = {"dev/accuracy", "dev/matthews", "other/accuracy", "other/matthews"}
    assert {name for name in found.rows["toy"] if "/" in name} == scores
    assert found.rows["toy+untrained"]["dev/accuracy"].n == 2
    assert set(found.baselines("toy")) == {"untrained", "majority", "tf_idf"}
    assert found.declared.rows["toy"].notes[0] == "made up" and not found.missing("toy") and not found.failed
    assert "seconds" not in (tmp_path / "out" / "summary.json").read_text()


def test_the_baselines_of_pairs_stand_beside_them(model: str, tmp_path: Path) -> None:
    """One text has no baseline of overlap, and `--pooling pair` is the mean; in the tables by their names."""
    tasks = (Toy(rows=16, epochs=1.0), Toy(name="pairs", rows=16, epochs=1.0, paired=True))
    found = go(plan(model, *tasks, seeds=(1,), baselines=True, changes={**SMALL, "pooling": "pair"}), tmp_path / "out")
    pooling = {name: found.declared.rows[name].settings["recipe"]["pooling"] for name in ("toy", "pairs")}
    assert pooling == {"toy": "mean", "pairs": "pair"}
    assert set(found.baselines("toy")) == {"untrained", "majority", "tf_idf"}
    assert set(found.baselines("pairs")) == {*found.baselines("toy"), "word_overlap"}
    page = (tmp_path / "out" / "summary.md").read_text()
    assert "the word overlap" in page


def test_seeds_and_tasks_are_added_to_what_is_there(model: str, tmp_path: Path) -> None:
    one, two = Toy(rows=24, epochs=1.0), Toy(name="pairs", rows=24, epochs=1.0, paired=True)
    go(plan(model, one, two, seeds=(1, 5), baselines=True), tmp_path / "at once")
    go(plan(model, one, seeds=(5,)), tmp_path / "grown")
    first = (tmp_path / "grown" / "cells" / "toy" / "seed-5" / "result.json").stat().st_mtime_ns
    go(plan(model, one, two, seeds=(1,)), tmp_path / "grown")
    grown = summarize(tmp_path / "grown")
    assert (grown.missing("toy"), grown.missing("pairs")) == ([], [5])
    go(plan(model, one, two, seeds=(5, 1), baselines=True), tmp_path / "grown")
    assert (tmp_path / "grown" / "cells" / "toy" / "seed-5" / "result.json").stat().st_mtime_ns == first
    assert_same(tmp_path / "at once", tmp_path / "grown")


def test_recipe_epochs_are_the_task_s_unless_given(model: str, tmp_path: Path) -> None:
    tasks = (Toy(rows=16, epochs=2.0), Toy(name="long", rows=16, epochs=5.0))
    for name, more, epochs in (("own", {}, [2.0, 5.0]), ("given", {"epochs": 1.0}, [1.0, 1.0])):
        found = go(plan(model, *tasks, seeds=(1,), changes=SMALL | more), tmp_path / name)
        assert [row.settings["recipe"]["epochs"] for row in found.declared.rows.values()] == epochs
    assert read_result(tmp_path / "given" / "cells" / "long" / "seed-1").facts["steps"] == 2


def test_changes_of_a_recipe_are_reported(model: str, tmp_path: Path) -> None:
    """And a task that is added may have another one; [CLS] is the same whether it was asked for or not."""
    out = tmp_path / "out"
    changes = {**SMALL, "epochs": 1.0, "max_length": 24, "pooling": "mean", "precision": "fp32"}
    go(plan(model, Toy(rows=16), seeds=(1,), changes=changes), out)
    said = "epochs 1, batch-size 8, max-length 24, pooling mean"
    line = f"- toy: Recipe `paper` with learning-rate 0.005, {said}."
    assert line in (out / "summary.md").read_text()
    go(plan(model, Toy(name="two", rows=16, epochs=1.0), seeds=(1,), changes={"pooling": "cls"}), out)
    page = (out / "summary.md").read_text()
    assert line in page and "two: Recipe" not in page
    go(plan(model, Toy(name="two", rows=16, epochs=1.0), seeds=(1,), changes={}), out)
    with pytest.raises(ConfigError, match=r"\(task.pooling: 'mean' -> 'cls' in toy\)"):
        go(plan(model, Toy(rows=16), seeds=(1,), changes={**changes, "pooling": None}), out)


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"changes": {**SMALL, "learning_rate": 1e-3}}, r"recipe.learning_rate: 0.005 -> 0.001 in toy"),
    ({"recipe": "released"}, r"recipe: 'paper' -> 'released'"),
    ({"task": Toy(rows=56)}, r"began with other rows or columns than toy: "),
    ({"task": Toy(rows=48, kind="regression")}, r"task.kind: 'Classification' -> 'Regression'"),
]


def test_another_experiment_in_the_folder_is_refused(model: str, tmp_path: Path) -> None:
    go(plan(model, Toy(rows=48), seeds=(1,)), tmp_path / "out")
    before = contents(tmp_path / "out")
    for change, named in CHANGES:
        change = dict(change)
        with pytest.raises(ConfigError, match=named):
            go(plan(model, change.pop("task", Toy(rows=48)), seeds=(1,), **change), tmp_path / "out")
        assert contents(tmp_path / "out") == before


def test_another_encoder_or_folder_is_refused(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go(plan(model, seeds=(1,)), tmp_path / "out")
    other = toy.write_model(tmp_path / "other", seed=6)
    with pytest.raises(ConfigError, match="model_sha256"):
        go(plan(other, seeds=(1,)), tmp_path / "out")
    moved = toy.write_model(tmp_path / "moved")
    go(plan(moved, seeds=(1, 2)), tmp_path / "out")  # the same weights elsewhere are the same encoder
    with pytest.raises(ConfigError, match="and no experiment"):
        go(plan(model), Path(model))
    monkeypatch.setattr(folder, "PATIENCE", 0.1)
    with (tmp_path / "out" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another command is at work there"):
            go(plan(model), tmp_path / "out")
    (tmp_path / "out" / "experiment.json").write_text('{"version": 2}')
    with pytest.raises(DataError, match="expected version 5"):
        go(plan(model), tmp_path / "out")


def test_faults_are_reported_before_anything_is_trained(model: str, tmp_path: Path) -> None:
    for tasks, said in (((Toy(name="../x"),), r"'\.\./x'"), ((Toy(), Toy(name="a+b")), r"'a\+b'")):
        with pytest.raises(ConfigError, match=f"{said}: expected a name of letters"):
            plan(model, *tasks)
    with pytest.raises(DataError, match=r"second.tsv:3: expected a number of rows"):
        go(plan(model, Toy(), Toy(name="second", rows=-1)), tmp_path / "out")
    with pytest.raises(MissingInputError, match="no such folder"):
        go(plan(str(tmp_path / "nothing")), tmp_path / "out")
    with pytest.raises(ConfigError, match="--parallel 0"):
        go(plan(model), tmp_path / "out", parallel=0)
    with pytest.raises(ConfigError, match=r"learning_rate"):
        go(plan(model, changes={"learning_rate": -1.0}), tmp_path / "out")
    assert not (tmp_path / "out" / "cells").exists()
    go(plan(model, Toy(rows=16), seeds=(1,)), tmp_path / "out")  # and leaves nothing in the way


def test_threads_stay_what_they_were(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert go(plan(model, Toy(rows=16), seeds=(1,)), tmp_path / "out").declared.facts["threads"] == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert go(plan(model, Toy(rows=16), seeds=(1, 2)), tmp_path / "out").declared.facts["threads"] == 1


# Another model


def test_another_model_is_compared_seed_by_seed(model: str, tmp_path: Path) -> None:
    """Its rows have the scores of an experiment with that model alone, and only the encoder's own weights stay."""
    other = toy.write_model(tmp_path / "other", seed=9)
    asked = plan(model, Toy(rows=16), against=other, keep_weights=True)
    both, alone = go(asked, tmp_path / "both"), go(plan(other, Toy(rows=16)), tmp_path / "alone")
    row = "toy+against"
    assert both.values[row]["dev/accuracy"] == alone.values["toy"]["dev/accuracy"]
    rival, own, same = (
        (tmp_path / place / "seed-2" / "predictions" / "dev.jsonl").read_bytes()
        for place in (f"both/cells/{row}", "both/cells/toy", "alone/cells/toy")
    )
    assert rival == same != own
    (contrast,) = both.contrasts
    assert (contrast.row, contrast.reference, contrast.found.n) == (row, "toy", 2)
    assert set(kept(tmp_path / "both")) == {"seed-1", "seed-2"} and not list(tmp_path.glob("both/cells/*+*/*/weights"))
    assert other in both.text()
    toy.write_model(tmp_path / "other", seed=10)
    with pytest.raises(ConfigError, match=r"began with other settings.*rival"):
        go(replace(asked, seeds=(1, 2, 3)), tmp_path / "both")


# Whose weights stay


def test_the_best_run_s_weights_stay(model: str, tmp_path: Path) -> None:
    """From the export on, whose repetition finds them; more seeds may be better."""
    out, task = tmp_path / "out", Toy(rows=24, epochs=2.0)
    asked = plan(model, task, seeds=(1, 2, 3), keep_weights=True)
    for seeds in ((1, 2), (1, 2, 3), (1, 2, 3)):
        summary = go(replace(asked, seeds=seeds), out)
        found = summary.rows["toy"]["dev/accuracy"]
        engine.export_best(task, task.load(), summary=summary, model=model)
        best = [seed for seed, score in found.by_seed.items() if score == max(found.by_seed.values())]
        assert found.best_seed == min(best) and kept(out) == [f"seed-{found.best_seed}"]
        assert summarize(out).best("toy").folder == out / "cells" / "toy" / kept(out)[0]
    straight = tmp_path / "straight"
    go(asked, straight)
    assert kept(straight) == ["seed-1", "seed-2", "seed-3"]
    assert_same(straight, out)


def test_no_best_run_of_what_is_not_there(model: str, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="no experiment is here"):
        summarize(tmp_path).best("toy")
    with pytest.raises(ElectraError, match="7: label"):
        go(plan(model, Toy(breaks_from=1)), tmp_path / "out")
    with pytest.raises(MissingInputError, match="no run of toy is done"):
        summarize(tmp_path / "out").best("toy")
    with pytest.raises(ConfigError, match="Did you mean 'toy'"):
        summarize(tmp_path / "out").best("toys")


# What goes wrong


def test_a_run_that_diverges_is_a_result(model: str, tmp_path: Path) -> None:
    asked = plan(model, Toy(rows=96), changes={**SMALL, "learning_rate": 1e38})
    found = go(asked, tmp_path / "out")
    assert set(found.failed["toy"]) == {1, 2} and "not a finite number for 10 steps" in found.failed["toy"][1]
    assert found.main("toy") is None and not found.missing("toy")
    with pytest.raises(Diverged, match="No run of toy is left: try a lower --learning-rate"):
        found.best("toy")
    assert "FAILED: seed 1" in (tmp_path / "out" / "summary.md").read_text()
    before = contents(tmp_path / "out")
    written = (tmp_path / "out" / "cells" / "toy" / "seed-1" / "result.json").stat().st_mtime_ns
    go(asked, tmp_path / "out")
    assert contents(tmp_path / "out") == before
    assert (tmp_path / "out" / "cells" / "toy" / "seed-1" / "result.json").stat().st_mtime_ns == written


@pytest.mark.slow
def test_an_error_of_a_worker_comes_back_and_other_runs_stay(
    model: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs at a time, for the two cores that it is given."""
    copy_workers(monkeypatch)
    monkeypatch.setattr(rounds, "cores", lambda: 2)
    asked = plan(model, Toy(rows=48), Toy(name="broken", breaks_from=1), seeds=(1, 2))
    with pytest.raises(DataError, match=r"broken, seed [12]: toy\.tsv:7: label 'ugly': expected one of bad, good"):
        go(asked, tmp_path / "out", parallel=None)
    found = summarize(tmp_path / "out")
    main = found.main("toy")
    assert main is not None and main.n >= 1
    assert found.missing("broken") == [1, 2]
    assert "Traceback" not in capfd.readouterr().err


@dataclass(frozen=True, kw_only=True)
class Deadly(Toy):
    """Ends any process but the one that declares it."""

    parent: int

    def load(self) -> TaskData:
        if os.getpid() != self.parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().load()


@pytest.mark.slow
def test_a_worker_that_dies_is_reported(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_workers(monkeypatch)
    monkeypatch.setattr(Deadly, "__module__", "tests.finetuning.test_experiment")
    with pytest.raises(ElectraError, match=r"toy, seed [12]: A worker process died \(exit status -9\).*--parallel"):
        go(plan(model, Deadly(rows=16, parent=os.getpid())), tmp_path / "out", parallel=2)


def test_a_class_that_no_other_process_can_import_runs_here(model: str, tmp_path: Path) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Local(Toy):
        pass

    assert go(plan(model, Local(rows=16)), tmp_path / "out", parallel=2).main("toy") is not None


def test_a_signal_while_files_are_read_stops_at_once(model: str, tmp_path: Path) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Slow(Toy):
        def load(self) -> TaskData:
            signal.raise_signal(signal.SIGTERM)
            raise AssertionError("not reached")

    with pytest.raises(Interrupted, match="SIGTERM: stopped"):
        go(plan(model, Slow()), tmp_path / "out")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


# Killed anywhere


SEEDS = tuple(range(1, 5))
TASK = Toy(rows=64, dev=24, epochs=2.0, save_every=0.02)


@pytest.fixture(scope="module")
def whole(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four seeds, floors and best weights, never interrupted, one run at a time."""
    out = tmp_path_factory.mktemp("whole") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr("electra_trainer.finetuning.run.SAVE_EVERY", 60.0)
        go(plan(model, replace(TASK, save_every=None), seeds=SEEDS, baselines=True, keep_weights=True), out)
    return out


def command(model: str, out: Path, settings: Path, *, copied: bool) -> Command:
    """The experiment in a separate process with two workers; what it says goes to a file next to `settings`.

    Args:
        copied: its workers are copies of it. Otherwise each is a new process, as for a user.
    """
    asked = {"model": model, "seeds": SEEDS, "baselines": True, "keep_weights": True, "changes": SMALL}
    tasks = [{"rows": TASK.rows, "dev": TASK.dev, "epochs": TASK.epochs, "save_every": TASK.save_every}]
    settings.write_text(json.dumps({"plan": asked, "tasks": tasks, "out": str(out), "parallel": 2}))

    def work() -> None:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
        sys.argv = ["run_toy", str(settings)]
        if copied:
            copy_workers(pytest.MonkeyPatch())
        with said_by(settings).open("w", buffering=1) as sys.stderr:
            os.dup2(sys.stderr.fileno(), 2)
            sys.exit(run_toy.main())

    process = FORK.Process(target=work)
    process.start()
    return process


def said_by(settings: Path) -> Path:
    return settings.with_suffix(".said")


def wait_until(happens: Callable[[], bool], process: Command, settings: Path) -> None:
    deadline = time.monotonic() + 120
    while not happens():
        assert process.is_alive(), said_by(settings).read_text()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def done(out: Path) -> int:
    """Runs that have ended, baselines without training apart."""
    trained = {"toy", "toy+untrained"}
    return sum(path.parents[1].name in trained for path in out.glob("cells/*/*/result.json"))


def under_way(out: Path) -> int:
    return len(list(out.glob("cells/*/*/checkpoints/step-*")))


@pytest.mark.slow
def test_killed_and_stopped_with_workers(model: str, whole: Path, tmp_path: Path) -> None:
    """A command with two workers: SIGKILL to it alone, then SIGTERM, and the rest of the runs one at a time in this process."""
    out, settings = tmp_path / "out", tmp_path / "settings.json"
    first = command(model, out, settings, copied=False)
    wait_until(lambda: done(out) >= 2 and under_way(out) > 0, first, settings)
    first.kill()
    first.join(60)
    ended = time.monotonic()
    with (out / ".lock").open("w") as lock:  # free when the last worker has ended
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert time.monotonic() - ended < 5
    assert not (out / "summary.json").exists()
    before = done(out)
    begun = {path.parents[1] for path in out.glob("cells/*/*/checkpoints/step-*")}
    halfway = [cell for cell in begun if not (cell / "result.json").exists()]

    elsewhere = toy.write_model(tmp_path / "elsewhere")  # the same encoder
    called = time.monotonic()
    second = command(elsewhere, out, settings, copied=True)
    wait_until(lambda: done(out) >= before + 2 and under_way(out) > 0, second, settings)
    asked = time.monotonic()
    second.terminate()
    second.join(60)
    said = said_by(settings).read_text()
    assert second.exitcode == 75, said
    assert time.monotonic() - asked < max(10, asked - called)  # on a crowded machine its start took longer, too
    assert "SIGTERM: all runs are saved" in said and "Traceback" not in said
    assert f"/{2 * len(SEEDS) + 2}] toy" in said
    partial = summarize(out)
    assert any(partial.missing(row) for row in partial.rows) and partial.results["toy"]
    assert json.loads((out / "summary.json").read_text())["rows"]["toy"]

    go(plan(model, TASK, seeds=SEEDS, baselines=True, keep_weights=True), out)
    continued = re.compile("resuming at step|steps are done already")  # it may have been killed while it was scored
    assert all(continued.search((cell / "log.txt").read_text()) for cell in halfway)
    assert kept(out) == kept(whole)
    assert_same(whole, out)


# What a person sees


def test_lines_of_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(float(second) for second in range(0, 10_000, 10))
    monkeypatch.setattr("electra_trainer.experiments.engine.time.monotonic", lambda: next(clock))
    cells = [Cell(root=Path("x"), key="cola", seed=seed) for seed in (1, 2, 3, 4)]
    board = Board(dict.fromkeys(cells, 100.0), done={cells[0]})
    board.begin(cells[1])
    board.progress(cells[1], 0.0)
    for share in range(10):
        board.progress(cells[1], share / 10)
    board.done(cells[1], score=("matthews", 0.25))
    for cell, score in ((cells[2], 0.75), (cells[3], 0.5)):
        board.begin(cell)
        board.done(cell, score=("matthews", score))
    lines = capsys.readouterr().err.splitlines()
    shown = [line for line in lines if "matthews" in line]
    assert shown[0].startswith("[2/4] cola, seed 2: matthews 0.25, ") and " left" in shown[0]
    assert shown[1].startswith("[3/4] cola, seed 3: matthews 0.75")
    assert shown[2].startswith("[4/4] cola, seed 4: matthews 0.5") and " left" not in shown[2]
    assert any("cola, seed 2 " in line for line in lines if "matthews" not in line)


def test_time_left_counts_only_what_this_command_did(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that resumes at 80 % and takes 100 s to 90 % leaves 100 s of that run and 1,000 s of another like it."""
    now = [0.0]
    monkeypatch.setattr("electra_trainer.experiments.engine.time.monotonic", lambda: now[0])
    cells = [Cell(root=Path("x"), key="rte", seed=seed) for seed in (1, 2)]
    board = Board(dict.fromkeys(cells, 50.0), done=set())
    board.begin(cells[0])
    board.progress(cells[0], 0.8)
    now[0] = 100.0
    board.progress(cells[0], 0.9)
    assert capsys.readouterr().err == "[0/2] rte, seed 1 90 %; about 18 min left\n"
    assert [duration(seconds) for seconds in (0.4, 99, 3000, 7200)] == ["0 s", "99 s", "50 min", "2.0 h"]


def test_time_left_counts_all_that_learns(model: str, tmp_path: Path) -> None:
    """Folds and the model of all rows, for two seeds, and TF-IDF; scoring the folds together takes no time."""
    made = plan(model, OwnTask(train=write_csv(tmp_path / "train.csv", rows(40))), baselines=False)
    declared = made.declare(None)
    found = Counter(made.units(one, declared) for one in declared.cells(tmp_path))
    assert found == {40 * 3.0: 6 * 2, 40 * 2.0: 1, 0: 2}


# What is settled when it begins: precision, and the length of rows


BRIEF = {"learning_rate": 5e-3, "batch_size": 8, "max_length": 24, "epochs": 1.0}


def brief(model: str, out: Path, *tasks: Toy, seeds: tuple[int, ...] = (1,), **changes: Any) -> Summary:
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
    assert brief(model, out).declared.rows["toy"].settings["recipe"]["precision"] == begun
    brief(model, at_once, Toy(rows=16), Toy(rows=16, name="more"), seeds=(1, 2))
    machine_prefers(later, monkeypatch)
    brief(model, out, Toy(rows=16), Toy(rows=16, name="more"), seeds=(1, 2))
    for run in ("toy/seed-1", "toy/seed-2", "more/seed-1"):
        assert noted(out, run) == (begun, begun)
        for file in ("result.json", "predictions/dev.jsonl"):
            mine, theirs = (at / "cells" / run / file for at in (out, at_once))
            assert toy.without_times(mine) == toy.without_times(theirs)
    before = (out / "experiment.json").read_bytes()
    with pytest.raises(ConfigError, match=f"recipe.precision: '{begun}' -> '{later}' in toy"):
        brief(model, out, precision=later)
    assert (out / "experiment.json").read_bytes() == before
    brief(model, tmp_path / "other", precision=begun)  # named, against what the machine prefers
    assert noted(tmp_path / "other") == (begun, begun)


def test_rows_are_no_longer_than_the_encoder_s_and_a_note_says_so(model: str, tmp_path: Path) -> None:
    """The toy encoder read 40 tokens: what is recorded is what was done, and more rows of it are the same experiment."""
    found = brief(model, tmp_path / "out", Toy(rows=16, note="made up"), max_length=512).declared.rows["toy"]
    note = "rows have up to 40 tokens, the longest that the encoder was trained on, and not 512 (--max-length)."
    assert found.settings["recipe"]["max_length"] == 40 and found.notes[:2] == ("made up", note)
    assert json.loads((tmp_path / "out/cells/toy/seed-1/config.json").read_text())["recipe"]["max_length"] == 40
    assert f"- toy: {note}" in (tmp_path / "out/summary.md").read_text()
    brief(model, tmp_path / "out", max_length=40, seeds=(1, 2))
    short = brief(model, tmp_path / "short", max_length=24).declared.rows["toy"]
    assert short.settings["recipe"]["max_length"] == 24 and not any("rows have" in one for one in short.notes)
