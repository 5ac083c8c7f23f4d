"""`--search`: it chooses on training rows alone, for each arm by itself, and what it chose is what the seeds run with."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.finetuning import plans, toy
from tests.finetuning.own_files import rows, write_csv
from tests.finetuning.test_experiment import SMALL
from tests.finetuning.toy import Toy

from electra_trainer.errors import ConfigError, DataError
from electra_trainer.finetuning import experiment, search
from electra_trainer.finetuning.experiment import Plan
from electra_trainer.tasks.own_files import OwnTask
from electra_trainer.tasks.task import TaskData
from electra_trainer.tasks.texts import Classification

GIVEN = {name: value for name, value in SMALL.items() if name != "learning_rate"}


pytestmark = pytest.mark.usefixtures("one_thread")


def found(asked: Plan, out: Path) -> Plan:
    return search.searched(plans.asked(asked, out=out))


def given(scores: dict[str, float]) -> Any:
    """An experiment that trains nothing: scores of its trials by name, 0.5 for others."""

    def run_plan(asked: Plan) -> Any:
        assert asked.seeds == (1,) and not asked.request.baselines
        return SimpleNamespace(main=lambda name: SimpleNamespace(median=scores.get(name, 0.5)))

    return run_plan


def test_each_row_runs_with_its_own_best(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores are given: of the encoder 2 x the rate without decay is best, for longer; of fresh weights the first trial, for shorter."""
    scores = {
        "toy+learning-rate=0.0006+layer-decay=1": 0.8,
        "toy+learning-rate=0.0006+layer-decay=1+epochs=9": 0.9,
        "toy+untrained+learning-rate=0.0003+layer-decay=0.8": 0.8,
        "toy+untrained+learning-rate=0.0003+layer-decay=0.8+epochs=9": 0.7,
        "toy+untrained+learning-rate=0.0003+layer-decay=0.8+epochs=1": 0.9,
    }
    with monkeypatch.context() as patch:
        patch.setattr("electra_trainer.finetuning.search.run_plan", given(scores))
        asked = found(plans.plan(model, Toy(rows=60), changes=GIVEN, baselines=True), tmp_path)
    assert asked.chosen == {
        "toy": {"learning_rate": 6e-4, "layer_decay": 1.0, "epochs": 9.0},
        "toy+untrained": {"learning_rate": 3e-4, "layer_decay": 0.8, "epochs": 1.0},
    }
    summary = plans.go(asked, tmp_path)
    for row, recipe in (("toy", (6e-4, 1.0, 9.0)), ("toy+untrained", (3e-4, 0.8, 1.0))):
        ran = _config(tmp_path / "cells" / row / "seed-1")["recipe"]
        assert (ran["learning_rate"], ran["layer_decay"], ran["epochs"]) == recipe, row
    assert "learning-rate 0.0006, layer-decay 1, epochs 9" in summary.declared.rows["toy"].notes[-1]


def test_a_small_table_is_searched_around_its_own_epochs(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And another model around the rate and decay of its size."""
    train, dev = (write_csv(tmp_path / f"{name}.csv", rows(count)) for name, count in (("train", 96), ("dev", 20)))

    def longest_is_best(asked: Plan) -> Any:
        return SimpleNamespace(main=lambda name: SimpleNamespace(median=float(name.partition("epochs=")[2] or 0)))

    monkeypatch.setattr("electra_trainer.finetuning.search.run_plan", longest_is_best)
    deep = toy.write_model(tmp_path / "deep", layers=7)
    asked = plans.plan(model, OwnTask(train=train, dev=dev), recipe="auto", against=deep)
    chosen = found(asked, tmp_path / "out").chosen
    assert chosen["classification"]["epochs"] == 3 * 34
    assert [chosen[row]["layer_decay"] for row in ("classification", "classification+against")] == [1.0, 0.8]


def test_trials_of_fresh_weights_begin_with_them(model: str, tmp_path: Path) -> None:
    asked = found(plans.plan(model, Toy(rows=40), changes=SMALL, baselines=True), tmp_path)
    assert set(asked.chosen) == {"toy", "toy+untrained"}
    trials = sorted(path.name for path in (tmp_path / "search/cells").iterdir())
    for row in ("toy", "toy+untrained"):
        mine = [name for name in trials if name.split("+learning-rate")[0].split("+layer-decay")[0] == row]
        decay = f"{asked.chosen[row]['layer_decay']:g}"
        assert {f"{row}+layer-decay=0.8", f"{row}+layer-decay=1", f"{row}+layer-decay={decay}+epochs=9"} <= {*mine}
        assert len(mine) == 4
        run = tmp_path / "search/cells" / f"{row}+layer-decay=1" / "seed-1"
        assert _config(run)["model"].startswith("untrained") == (row != "toy")


def test_baselines_may_come_later(model: str, tmp_path: Path) -> None:
    plan = plans.plan(model, Toy(rows=40), changes=SMALL | {"epochs": 1.0})
    for baselines in (False, True, False):
        asked = found(plans.asked(plan, baselines=baselines), tmp_path)
        summary = plans.go(asked, tmp_path)
    assert "untrained" in summary.baselines("toy")


def test_what_the_experiment_refuses_is_refused_before_the_search(model: str, tmp_path: Path) -> None:
    plan = plans.plan(model, Toy(rows=40), changes=SMALL | {"epochs": 1.0})
    with pytest.raises(DataError, match="no examples with answers"):
        found(replace(plan, tasks=(_NoDev(),)), tmp_path / "no-dev")
    plans.go(plan, tmp_path / "unsearched")
    with pytest.raises(ConfigError, match=r"began without --search\. Choose another --out"):
        found(plan, tmp_path / "unsearched")
    with pytest.raises(DataError, match=r"^--search: .*Or leave --search out"):
        experiment.training_rows(Toy(rows=1))
    assert not list(tmp_path.glob("*/search"))


def _config(run: Path) -> dict[str, Any]:
    table: dict[str, Any] = json.loads((run / "config.json").read_text())
    return table


def test_dev_sets_are_not_looked_at(tmp_path: Path) -> None:
    data = experiment.training_rows(Toy(rows=80))
    texts = {example.text for example in Toy(rows=80).load().train}
    seen = [example.text for example in (*data.train, *data.dev["held-out"])]
    assert list(data.dev) == ["held-out"] and not data.test
    assert set(seen) == texts and not {e.text for e in data.train} & {e.text for e in data.dev["held-out"]}


def test_large_sets_are_searched_in_part_and_at_their_own_epochs(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (experiment, search):
        monkeypatch.setattr(module, "MOST_ROWS", 40)
    asked = found(plans.plan(model, Toy(rows=60), changes=GIVEN), tmp_path)
    assert len(experiment.training_rows(Toy(rows=60)).train) < 40
    assert asked.chosen["toy"].keys() == {"learning_rate", "layer_decay"}


def test_what_is_given_is_not_searched(model: str, tmp_path: Path) -> None:
    asked = found(plans.plan(model, Toy(rows=40), changes=SMALL | {"epochs": 1.0}), tmp_path)
    assert asked.chosen["toy"].keys() == {"layer_decay"}
    with pytest.raises(ConfigError, match="--search: learning rate, layer decay and epochs are all given"):
        found(plans.plan(model, Toy(), changes=SMALL | {"epochs": 1.0, "layer_decay": 1.0}), tmp_path / "all")


def test_one_trial_alone_has_no_answer(model: str, tmp_path: Path) -> None:
    """`auto` has no decay for a shallow encoder, which would be tried twice; rows of training give no answer."""
    own = OwnTask(train=write_csv(tmp_path / "train.csv", rows(40)))
    changes = SMALL | {"layer_decay": 1.0}
    asked = plans.plan(model, own, changes={name: value for name, value in changes.items() if name != "epochs"})
    assert found(asked, tmp_path / "epochs").chosen["classification"].keys() <= {"epochs"}
    asked = plans.plan(model, own, changes=SMALL | {"epochs": 1.0}, recipe="auto")
    assert found(asked, tmp_path / "decay").chosen == {"classification": {"layer_decay": 1.0}}


def test_a_search_that_is_done_is_read(model: str, tmp_path: Path) -> None:
    asked = plans.plan(model, Toy(rows=40), changes=GIVEN | {"epochs": 1.0})
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
    asked = found(plans.plan(model, _Hopeless(rows=40), changes=GIVEN), tmp_path)
    assert asked.chosen.get("toy", {}) == {}
