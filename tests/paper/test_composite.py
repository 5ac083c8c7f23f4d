"""Q against a hand-made table, and `--probe quick`, which measures what Q is made of."""

from pathlib import Path

import pytest
from tests.paper.experiments import write_cell, write_experiment

from electra_trainer.errors import ConfigError
from electra_trainer.experiments.statistics import composite
from electra_trainer.experiments.summary import summarize, write_summary
from electra_trainer.paper.paper_tables import build_table, choose_metric
from electra_trainer.paper.probes import parse_probes


def arm(*seeds: tuple[float, float, float, float], grammar: str = "discriminator") -> dict[str, dict[int, float]]:
    """Of each seed tags, similarity, sentiment and pairs; random words have 0.5 for the similarity."""
    names = ("pos/accuracy", "sentences/stsb", "sentences/sst2", f"minimal-pairs/{grammar}")
    columns = {name: {seed: row[index] for seed, row in enumerate(seeds, 1)} for index, name in enumerate(names)}
    return {**columns, "sentences/stsb_random": dict.fromkeys(range(1, len(seeds) + 1), 0.5)}


BASE = arm((0.70, 0.60, 0.60, 0.50), (0.72, 0.62, 0.64, 0.52), (0.74, 0.64, 0.68, 0.54))
"""Standard deviations .02, .02, .04, .02."""


def test_q_is_a_mean_of_distances_in_spreads_of_the_reference() -> None:
    other = arm((0.74, 0.62, 0.64, 0.52), (0.72, 0.62, 0.72, 0.56))
    found = composite({"base": BASE, "other": other}, reference="base")
    assert found["base"] == pytest.approx({1: -1, 2: 0, 3: 1})
    assert found["other"] == pytest.approx({1: (1 + 0 + 0 + 0) / 4, 2: (0 + 0 + 2 + 2) / 4})


def test_similarity_counts_beyond_that_of_random_words() -> None:
    other = arm((0.72, 0.62, 0.64, 0.52)) | {"sentences/stsb_random": {1: 0.52}}
    assert composite({"base": BASE, "other": other}, reference="base")["other"] == pytest.approx({1: -1 / 4})


def test_masked_models_are_judged_by_their_own_score_of_pairs() -> None:
    other = arm((0.72, 0.62, 0.64, 0.56), grammar="pseudo-likelihood")
    assert composite({"base": BASE, "other": other}, reference="base")["other"] == pytest.approx({1: 2 / 4})


def test_without_two_seeds_or_spread_there_is_no_q() -> None:
    one = (0.7, 0.6, 0.6, 0.5)
    assert composite({"base": arm(one), "other": BASE}, reference="base") == {}
    assert composite({"base": arm(one, one), "other": BASE}, reference="base") == {}
    lacking = {name: values for name, values in BASE.items() if name != "sentences/sst2"}
    assert composite({"base": BASE, "other": lacking}, reference="base").keys() == {"base"}


def test_an_arm_without_q_leaves_the_summary_standing(tmp_path: Path) -> None:
    root = write_experiment(tmp_path / "exp", seeds=(1, 2))
    for seed in (1, 2):
        write_cell(root, "electra", seed, {name: values[seed] for name, values in BASE.items()})
        write_cell(root, "mlm", seed, {"pos/accuracy": 0.8})
    summary = write_summary(root)
    assert summary.rows["electra"]["q"].mean == pytest.approx(0) and "q" not in summary.rows["mlm"]


def test_tables_and_figures_have_q(tmp_path: Path) -> None:
    """The summary's, though no result.json has it; and a figure shows it before its parts."""
    root = write_experiment(tmp_path / "exp", seeds=(1, 2, 3))
    other = arm((0.74, 0.62, 0.64, 0.52), (0.72, 0.62, 0.72, 0.56))
    for name, values in (("electra", BASE), ("mlm", other)):
        for seed in values["pos/accuracy"]:
            write_cell(root, name, seed, {metric: by_seed[seed] for metric, by_seed in values.items()})
    found, summary = [summarize(root)], write_summary(root)
    rows = {row.model: row for row in build_table(4, found).rows if row.source != "paper"}
    for model, name in (("ELECTRA", "electra"), ("BERT", "mlm")):
        assert rows[model].values["q"].number == pytest.approx(summary.rows[name]["q"].mean)
    assert rows["BERT"].values["q"].number == pytest.approx(0.625)
    assert choose_metric(found, None) == "q"


def test_a_column_of_another_table_is_shown_where_it_is_asked_for(tmp_path: Path) -> None:
    root = write_experiment(tmp_path / "exp", seeds=(1,))
    write_cell(root, "electra", 1, {"glue/average": 0.8, "glue/rte": 0.6})
    found = [summarize(root)]
    assert "glue/rte" not in [column.key for column in build_table(4, found).columns]
    assert [column.key for column in build_table(4, found, metrics=["glue/*"]).columns] == [
        "glue/average",
        "train_flops",
        "glue/rte",
    ]


def test_tasks_of_glue_are_shown_where_they_have_no_average(tmp_path: Path) -> None:
    """In points under the paper's name, in a table that has only the average; another experiment may have that."""
    some, all_eight = (write_experiment(tmp_path / name, seeds=(1,)) for name in ("some", "all"))
    write_cell(some, "electra", 1, {"glue/rte": 0.6})
    write_cell(all_eight, "electra", 1, {"glue/average": 0.8, "glue/sst": 0.9})
    table = build_table(4, [summarize(some), summarize(all_eight)])
    shown = table.columns[-1]
    assert (shown.key, shown.title, shown.kind) == ("glue/rte", "RTE", "score")
    assert 60.0 in [row.values["glue/rte"].number for row in table.rows if "glue/rte" in row.values]


def test_quick_finds_its_folders(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--probe quick=.*: expected --probe quick=DIR, a folder with glue/, blimp/"):
        parse_probes([f"quick={tmp_path}"])
    (tmp_path / "tagging" / "ud").mkdir(parents=True)
    (tmp_path / "tagging" / "ud" / "en-ud-train.conllu").touch()
    assert parse_probes(["held-out", f"quick={tmp_path}"]) == {
        "held-out": None,
        "pos": tmp_path / "tagging" / "ud",
        "sentences": tmp_path / "glue",
        "minimal-pairs": tmp_path / "blimp",
    }
    with pytest.raises(ConfigError, match="--probe quick: expected"):
        parse_probes(["quick"])
    with pytest.raises(ConfigError, match="Did you mean 'quick'"):
        parse_probes(["quik"])
