"""`--search`: it chooses on training rows alone, for each arm by itself, and what it chose is what the seeds run with."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.finetuning.test_experiment import SMALL
from tests.finetuning.toy import Toy

from electra_trainer.errors import ConfigError, DataError
from electra_trainer.finetuning import search
from electra_trainer.finetuning.experiment import Plan, run_plan
from electra_trainer.finetuning.task import TaskData
from electra_trainer.finetuning.texts.tasks import Classification

GIVEN = {name: value for name, value in SMALL.items() if name != "learning_rate"}


pytestmark = pytest.mark.usefixtures("one_thread")


def found(asked: Plan, out: Path) -> Plan:
    return search.searched(asked, out=out, device="cpu", parallel=1, quiet=True)


def test_each_arm_runs_with_its_own_best(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores are given: of the encoder 2 x the rate without decay is best, for longer; of fresh weights the first trial, for shorter."""
    given = (
        {"learning-rate-0.0006-layer-decay-1": 0.8, "longer": 0.9},
        {"learning-rate-0.0003-layer-decay-0.8": 0.8, "longer": 0.7, "shorter": 0.9},
    )

    def run_trial(asked: Plan, *, out: Path, **_: Any) -> Any:
        assert asked.seeds == (1,) and not asked.floors and asked.fresh == (out.parent.name == "untrained")
        main = SimpleNamespace(median=given[asked.fresh].get(out.name, 0.5))
        return SimpleNamespace(task=lambda name: SimpleNamespace(main=main))

    with monkeypatch.context() as patch:
        patch.setattr("electra_trainer.finetuning.experiment.run_plan", run_trial)
        asked = found(Plan(model=model, tasks=(Toy(rows=60),), changes=GIVEN, floors=True), tmp_path)
    assert asked.chosen == {"toy": {"learning_rate": 6e-4, "layer_decay": 1.0, "epochs": 9.0}}
    assert asked.chosen_untrained == {"toy": {"learning_rate": 3e-4, "layer_decay": 0.8, "epochs": 1.0}}
    summary = run_plan(asked, out=tmp_path, device="cpu", parallel=1, quiet=True)
    for kind, recipe in (("seed-1", (6e-4, 1.0, 9.0)), ("untrained-1", (3e-4, 0.8, 1.0))):
        ran = _config(tmp_path / "cells/toy" / kind)["recipe"]
        assert (ran["learning_rate"], ran["layer_decay"], ran["epochs"]) == recipe, kind
    assert "toy: searched on training rows: learning-rate 0.0006, layer-decay 1, epochs 9." in summary.task("toy").notes


def test_trials_of_fresh_weights_begin_with_them(model: str, tmp_path: Path) -> None:
    asked = found(Plan(model=model, tasks=(Toy(rows=40),), changes=SMALL, floors=True), tmp_path)
    for arm, fresh in (("encoder", False), ("untrained", True)):
        trials = sorted(path.name for path in (tmp_path / "search" / arm).iterdir())
        assert trials == ["layer-decay-0.8", "layer-decay-1", "longer", "shorter"]
        run = tmp_path / "search" / arm / "layer-decay-1" / "cells/toy/seed-1"
        assert _config(run)["model"].startswith("untrained") == fresh
        page = (tmp_path / "search" / arm / "longer/summary.md").read_text()
        assert ("fresh weights, not those of the model" in page) == fresh
    assert asked.chosen_untrained


def test_baselines_may_come_later(model: str, tmp_path: Path) -> None:
    plan = Plan(model=model, tasks=(Toy(rows=40),), changes=SMALL | {"epochs": 1.0})
    for floors in (False, True, False):
        asked = found(replace(plan, floors=floors), tmp_path)
        summary = run_plan(asked, out=tmp_path, device="cpu", parallel=1, quiet=True)
    assert summary.task("toy").untrained


def test_what_the_experiment_refuses_is_refused_before_the_search(model: str, tmp_path: Path) -> None:
    plan = Plan(model=model, tasks=(Toy(rows=40),), changes=SMALL | {"epochs": 1.0})
    with pytest.raises(DataError, match="no examples with answers"):
        found(replace(plan, tasks=(_NoDev(),)), tmp_path / "no-dev")
    run_plan(plan, out=tmp_path / "unsearched", device="cpu", parallel=1, quiet=True)
    with pytest.raises(ConfigError, match=r"began without --search\. Choose another --out"):
        found(plan, tmp_path / "unsearched")
    with pytest.raises(DataError, match=r"^--search: .*Or leave --search out"):
        search.TrainingRows(source=Toy(rows=1)).load()
    assert not list(tmp_path.glob("*/search"))


def _config(run: Path) -> dict[str, Any]:
    table: dict[str, Any] = json.loads((run / "config.json").read_text())
    return table


def test_dev_sets_are_not_looked_at(tmp_path: Path) -> None:
    data = search.TrainingRows(source=Toy(rows=80)).load()
    texts = {example.text for example in Toy(rows=80).load().train}
    seen = [example.text for example in (*data.train, *data.dev["held-out"])]
    assert list(data.dev) == ["held-out"] and not data.test
    assert set(seen) == texts and not {e.text for e in data.train} & {e.text for e in data.dev["held-out"]}


def test_large_sets_are_searched_in_part_and_at_their_own_epochs(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_ROWS", 40)
    asked = found(Plan(model=model, tasks=(Toy(rows=60),), changes=GIVEN), tmp_path)
    assert len(search.TrainingRows(source=Toy(rows=60)).load().train) < 40
    assert asked.chosen["toy"].keys() == {"learning_rate", "layer_decay"}


def test_what_is_given_is_not_searched(model: str, tmp_path: Path) -> None:
    asked = found(Plan(model=model, tasks=(Toy(rows=40),), changes=SMALL | {"epochs": 1.0}), tmp_path)
    assert asked.chosen["toy"].keys() == {"layer_decay"}
    with pytest.raises(ConfigError, match="--search: learning rate, layer decay and epochs are all given"):
        found(replace(asked, changes=SMALL | {"epochs": 1.0, "layer_decay": 1.0}), tmp_path / "all")


def test_the_papers_grid_and_ones_own(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rate with every decay of the grid, then the other epochs with the best; what the grid does not name is not searched."""
    tried: list[dict[str, float]] = []

    def run_trial(asked: Plan, *, out: Path, **_: Any) -> Any:
        tried.append(dict(asked.chosen["toy"]))
        main = SimpleNamespace(median=1 - abs(tried[-1].get("learning_rate", 0) - 5e-5) + tried[-1].get("epochs", 0))
        return SimpleNamespace(task=lambda name: SimpleNamespace(main=main))

    monkeypatch.setattr("electra_trainer.finetuning.experiment.run_plan", run_trial)
    plan = Plan(model=model, tasks=(Toy(rows=60),), grid=search.parse_grid(["paper-base"]))
    assert found(plan, tmp_path / "base").chosen == {"toy": {"learning_rate": 5e-5, "layer_decay": 0.9}}
    assert [(one["learning_rate"], one["layer_decay"]) for one in tried] == [
        (rate, decay) for rate in (3e-5, 5e-5, 1e-4, 1.5e-4) for decay in (0.9, 0.8, 0.7)
    ]  # Appendix B
    assert search.PAPER_GRIDS["paper-small"] == {"learning_rate": (1e-4, 2e-4, 3e-4, 5e-3)}
    tried.clear()
    own = replace(plan, grid=search.parse_grid(["learning-rate=1e-4,5e-5", "epochs=3,10"]))
    assert found(own, tmp_path / "own").chosen == {"toy": {"learning_rate": 5e-5, "epochs": 10.0}}
    assert len(tried) == 3  # of the epochs the toy's own, 3, were tried first
    with pytest.raises(ConfigError, match="--grid learning-rate and --learning-rate"):
        found(replace(own, changes={"learning_rate": 1e-4}), tmp_path / "both")
    for words in (["paper"], ["batch-size=1"], ["epochs=3,3"], ["epochs=many"], ["epochs"], ["layer-decay=2"]):
        with pytest.raises(ConfigError, match=r"--grid|layer_decay"):
            search.parse_grid(words)


def test_a_search_that_is_done_is_read(model: str, tmp_path: Path) -> None:
    asked = Plan(model=model, tasks=(Toy(rows=40),), changes=GIVEN | {"epochs": 1.0})
    first = found(asked, tmp_path)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    assert found(asked, tmp_path) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")} == written


@dataclass(frozen=True, kw_only=True)
class _NoDev(Toy):
    def load(self) -> TaskData:
        return replace(super().load(), dev={})


@dataclass(frozen=True, kw_only=True)
class _Hopeless(Toy):
    def load(self) -> TaskData:
        data = super().load()
        return replace(data, task=Diverging(labels=("bad", "good"), name=self.name))


class Diverging(Classification):
    def loss(self, *arguments: Any, **more: Any) -> Any:
        loss, count = super().loss(*arguments, **more)
        return loss * float("nan"), count


def test_where_every_trial_diverges_the_recipe_stays(model: str, tmp_path: Path) -> None:
    asked = found(Plan(model=model, tasks=(_Hopeless(rows=40),), changes=GIVEN), tmp_path)
    assert asked.chosen.get("toy", {}) == {}
