"""The transcription of the paper's tables, checked against itself: averages, ratios, rows that two tables share."""

from __future__ import annotations

import itertools

import pytest

from electra_trainer.cost.flops import infer_flops, step_flops
from electra_trainer.cost.parameters import parameters
from electra_trainer.paper.published import (
    ILLEGIBLE,
    STATEMENTS,
    TABLE_1,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    TABLE_7,
    GlueModel,
    SquadModel,
)
from electra_trainer.presets.paper_rows import preset

HALF = 0.05 + 1e-9  # rounding of a number with one decimal


@pytest.mark.parametrize("row", [*TABLE_2, *TABLE_7], ids=lambda row: f"{row.model}-{row.split}")
def test_averages_are_the_means_of_their_rows(row: GlueModel) -> None:
    """All printed averages, no exception; where cells are illegible, those that are missing would have to be possible scores."""
    known = [score for score in row.scores if score is not None]
    if len(known) == 8:
        # the scores' own rounding would allow twice as much; no row needs it
        assert abs(sum(known) / 8 - row.average) <= HALF
    else:
        rest = (8 * row.average - sum(known)) / (8 - len(known))
        assert 80 < rest < 92  # MRPC and QQP of every other row of Tables 2 and 7 lie there or a little below


def test_what_is_illegible_is_unknown() -> None:
    for row in TABLE_7:
        unknown = row.scores[2] is None and row.scores[4] is None and row.train_flops is None
        assert unknown == any(f"Table 7, {row.model}," in name for name in ILLEGIBLE)
    assert sum(score is None for row in (*TABLE_2, *TABLE_7) for score in row.scores) == 4


def test_ratios() -> None:
    base = next(row for row in TABLE_1 if row.model == "BERT-Base")
    for row in TABLE_1:
        if row.train_flops is not None:
            assert row.train_speedup == pytest.approx(base.train_flops / row.train_flops, rel=0.03)  # type: ignore[operator]
        assert row.infer_speedup == pytest.approx(base.infer_flops / row.infer_flops, rel=0.1)
    large = [(row.train_flops, row.train_ratio) for row in (*TABLE_2, *TABLE_3)]
    for flops, ratio in large:
        assert ratio == pytest.approx(flops / 7.1e20, rel=0.04)  # type: ignore[operator]
    for row7 in TABLE_7:
        if row7.train_flops is not None:
            assert row7.train_ratio == pytest.approx(row7.train_flops / 1.4e18, rel=0.03)


def test_parts_of_a_training_halve() -> None:
    trained = [row for row in TABLE_1 if row.model.startswith("ELECTRA-Small")]
    assert [row.glue for row in trained] == sorted((row.glue for row in trained), reverse=True)
    for more, less in itertools.pairwise(trained):
        assert more.train_flops == pytest.approx(2 * less.train_flops, rel=0.03)  # type: ignore[operator]


def test_rows_that_two_tables_print() -> None:
    seventh, second = {row.model: row for row in TABLE_7}, {(row.model, row.split): row for row in TABLE_2}
    assert seventh["BERT-Large"].scores == second["BERT", "test"].scores
    squad = {row.model: row for row in TABLE_3}
    for name in ("XLNet", "RoBERTa", "BERT (ours)", "ELECTRA"):
        other = second[name, "dev"]
        assert (squad[name].train_flops, squad[name].parameters) == (other.train_flops, other.parameters)
    fourth = {row.model: row.glue for row in TABLE_4}
    first = {row.model: row.glue for row in TABLE_1}
    assert fourth["BERT"] == first["BERT-Base"]
    # the one disagreement: ELECTRA-Base is 85.1 in Table 1 and 85.0 in Table 4, both as printed
    assert (first["ELECTRA-Base"], fourth["ELECTRA"]) == (85.1, 85.0)


def test_statements_agree_with_the_tables() -> None:
    said = {statement.name: statement.value for statement in STATEMENTS}
    squad: dict[str, SquadModel] = {row.model: row for row in TABLE_3}
    for name, column in (("ELECTRA over RoBERTa, SQuAD 2.0", 2), ("ELECTRA over RoBERTa, SQuAD 1.1", 0)):
        mine, theirs = squad["ELECTRA"].scores[column], squad["RoBERTa"].scores[column]
        assert mine is not None and theirs is not None
        assert said[name] == pytest.approx(mine - theirs, abs=1e-9)
    first = {row.model: row for row in TABLE_1}
    assert first["ELECTRA-Small"].glue - first["BERT-Small"].glue == pytest.approx(
        said["ELECTRA-Small above BERT-Small"], abs=0.5
    )
    assert said["BERT-Large on the GLUE dev set"] == TABLE_2[0].average
    assert len(STATEMENTS) == len(said)


@pytest.mark.parametrize(
    ("model", "name", "flops_within"),
    # the released counter prints 1.29e18 for ELECTRA-Small, the table 1.4e18: a known disagreement of 8 %
    [("BERT-Small", "bert_small", 0.03), ("BERT-Base", "bert_base", 0.03), ("ELECTRA-Small", "small", 0.1), ("ELECTRA-Base", "base", 0.03)],
)  # fmt: skip
def test_our_counters_give_the_papers_columns(model: str, name: str, flops_within: float) -> None:
    row = next(row for row in TABLE_1 if row.model == model)
    config = preset(name)
    assert config.schedule.steps * step_flops(config).paper == pytest.approx(row.train_flops, rel=flops_within)
    assert infer_flops(config).paper == pytest.approx(row.infer_flops, rel=0.02)
    assert parameters(config).kept == pytest.approx(row.parameters, rel=0.04)
