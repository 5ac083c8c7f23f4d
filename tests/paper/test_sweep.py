"""`electra compare --sweep`: combinations as arms, with their own cells."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.command import Electra
from tests.experiments.test_compare import write_treebank
from tests.prepared import small_config

from electra_trainer import api
from electra_trainer.cli.main import read
from electra_trainer.errors import ConfigError
from electra_trainer.experiments.summary import Summary, summarize
from electra_trainer.experiments.sweep import parse_axes, require_fields, swept
from electra_trainer.paper import figures, paper_tables, probes
from electra_trainer.paper.compare import Comparing
from electra_trainer.presets.arms import arm
from electra_trainer.settings.config import changed
from electra_trainer.settings.methods import Learned
from electra_trainer.settings.records import to_dict
from electra_trainer.train import fast_step

STEPS = 4


def axes_of(words: list[str]) -> Any:
    return parse_axes(words, flag="--sweep", example="masking.fraction=0.15,0.3")


SWEEP = ("generator.width=0.5,1", "masking.fraction=0.15,0.3")


def test_combinations_are_arms() -> None:
    """All crossed; the arm's own first, under its own name; fields that an arm does not have, or use, are not crossed."""
    axes = axes_of(["generator.width=1,0.5", "optimizer.learning-rate=1e-4,2e-3", "objective.weight=10,50"])
    electra = arm("electra", small_config())
    electra = replace(electra, generator=Learned(width=0.5), optimizer=replace(electra.optimizer, learning_rate=1e-4))
    found = swept("electra", electra, axes)
    assert len(found) == 8 and next(iter(found.items())) == ("electra", electra)
    one = found["electra+generator.width=1+optimizer.learning-rate=0.002+objective.weight=10"]
    assert isinstance(one.generator, Learned)
    assert (one.generator.width, one.optimizer.learning_rate, one.objective.weight) == (1.0, 2e-3, 10.0)  # type: ignore[attr-defined]
    assert list(swept("mlm", arm("mlm", electra), axes)) == ["mlm", "mlm+optimizer.learning-rate=0.002"]
    assert len(swept("unigram", arm("unigram", electra), axes)) == 4
    idle = axes_of(
        ["schedule.decay-share=0.2,0.4", "optimizer.muon-learning-rate=1e-2,2e-2", "sharing=none,embeddings"]
    )
    unigram = arm("unigram", replace(electra, optimizer=replace(electra.optimizer, name="adamw")))
    assert list(swept("unigram", unigram, idle)) == ["unigram"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["optimizer.learning-rate"], "expected FIELD=VALUE,VALUE"),
        (["masking.fraction=0.1,0.10"], "VALUE,VALUE, each once"),
        (["masking.fraction=0.1", "masking.fraction=0.2"], "VALUE,VALUE, each once"),
        (["schedule.steps=10,20"], "no arm can vary this field"),
        (["optimizer.learningrate=1"], "no arm can vary this field"),
        (["objective.weight=high"], r"objective: weight = 'high': expected float"),
        (["generator.width=1.1"], r"generator\.width = 1\.1"),
    ],
)
def test_what_cannot_be_swept(words: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        axes = axes_of(words)
        require_fields(axes, [small_config()])
        swept("electra", small_config(), axes)


Run = Callable[..., Summary]


@pytest.fixture
def run(data: Path, tmp_path: Path) -> Run:
    treebank = write_treebank(tmp_path / "treebank")

    def made(**changes: Any) -> Summary:
        asked: dict[str, Any] = {
            "arms": ("electra", "mlm"), "seeds": 2, "steps": STEPS, "sweep": SWEEP, "probe": (f"pos={treebank}",),
            **changes,
        }  # fmt: skip
        return api.compare(data, out=tmp_path / "exp", preset=small_config(lanes=1), device="cpu", quiet=True, **asked)

    return made


def test_a_sweep_is_an_experiment(run: Run, tmp_path: Path, electra: Electra, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six combinations with two seeds are twelve cells that are not done twice; more values extend it."""
    values = iter(
        [0.1, 0.9, 0.2, 0.3, 0.5, 0.1] * 2
    )  # of the cells in their order: all rows of a seed before the next seed
    patched = probes.PROBES["pos"]._replace(measure=lambda _: {"accuracy": next(values)})
    monkeypatch.setitem(probes.PROBES, "pos", patched)
    summary = run()
    rows = ["electra", "electra+generator.width=0.5+masking.fraction=0.3", "electra+generator.width=1+masking.fraction=0.15",
            "electra+generator.width=1+masking.fraction=0.3", "mlm", "mlm+masking.fraction=0.3"]  # fmt: skip
    assert list(summary.rows) == rows and summary.declared.rows["mlm"].reference == "electra"
    ran = json.loads((tmp_path / f"exp/cells/{rows[3]}/seed-2/run/config.json").read_text())
    assert (ran["generator"]["width"], ran["masking"]["fraction"], ran["seed"]) == (1.0, 0.3, 2)
    assert summary.rows[rows[1]]["pos/accuracy"].mean == pytest.approx(0.9)
    with monkeypatch.context() as patch:
        patch.setattr(fast_step, "train_step", None)
        assert run().results == summary.results
    values = iter([0.95] * 2)
    more = run(arms=("mlm",), sweep=("masking.fraction=0.2",))
    assert more.rows["mlm+masking.fraction=0.2"]["pos/accuracy"].mean == 0.95


def test_an_extension_has_the_settings_of_the_experiment(run: Run, data: Path, tmp_path: Path) -> None:
    """Also where it names no arm of it; swept values are kept."""
    begun = run(arms=("electra",), sweep=("schedule.warmup-steps=2,4",), probe=("held-out",))
    assert [row.settings["schedule"]["warmup_steps"] for row in begun.declared.rows.values()] == [2, 4]
    with pytest.raises(
        ConfigError, match=r"began with other settings \(masking\.fraction: 0.15 -> 0\.4 in electra\+sch"
    ):
        api.compare(
            data, out=tmp_path / "exp", arms=("disentangled",), seeds=2, steps=STEPS, device="cpu",
            preset=changed(small_config(lanes=1), masking={"fraction": 0.4}), probe=("held-out",),
        )  # fmt: skip
    more = run(arms=("disentangled",), sweep=(), probe=("pos=" + str(tmp_path / "treebank"),))
    assert more.metrics == ("held-out/discriminator_standard_auc", "pos/accuracy")


@pytest.mark.parametrize("flag", [(), ("--log-every", "10")])
def test_a_flag_is_kept_even_with_the_preset_s_value(data: Path, flag: tuple[str, ...]) -> None:
    words = [str(data), "--out", "exp", "--arms", "electra", "--steps", "400", "--preset", "tiny", *flag]
    declared = Comparing(read("compare", words)).declare(None)
    assert declared.rows["electra"].settings["log_every"] == (10 if flag else 2)


def test_nothing_is_declared_on_a_run_s_own_fakes(run: Run, tmp_path: Path) -> None:
    """A worse generator makes easier fakes; and every row of the tables has its values, the arm's own too."""
    own = small_config().optimizer.learning_rate
    summary = run(arms=("electra",), sweep=(f"optimizer.learning-rate={own},4e-3",), probe=("held-out",))
    assert summary.metrics == ("held-out/discriminator_standard_auc",)
    assert {one.metric for one in summary.contrasts} == set(summary.metrics)
    assert list(summary.rows) == ["electra", "electra+optimizer.learning-rate=0.004"]
    for shown in (summary.text(), (tmp_path / "exp/summary.md").read_text()):
        assert f"electra+optimizer.learning-rate={own}" in shown and "electra+optimizer.learning-rate=0.004" in shown
        assert "| electra |" not in shown


def test_generator_widths_fill_figure_3(data: Path, tmp_path: Path, electra: Electra) -> None:
    """Each width is a place on the left of Figure 3, the unigram generator first."""
    out, settings = tmp_path / "exp", tmp_path / "settings.json"
    settings.write_text(json.dumps(to_dict(small_config(lanes=1))))
    code, _, err = electra(
        "compare", data, "--config", settings, "--arms", "electra,unigram", "--seeds", "1,", "--steps", STEPS, "--out", out, "--device",
        "cpu", "--quiet", "--sweep", "generator.width=0.25,0.5,1",
    )  # fmt: skip
    assert code == 0, err
    metric = "held-out/discriminator_standard_auc"
    sizes = [figures.generator_size(entry.config) for entry in paper_tables.entries([summarize(out)], metric=metric)]
    places = sorted(size for size in sizes if size is not None)
    hidden = small_config().model.hidden_size
    assert [place[0] for place in places] == [-1.0, hidden / 4, hidden / 2, hidden]
    code, _, err = electra("figure", "3", out, "--metric", metric, "--out", tmp_path / "figure.svg")
    assert code == 0, err
