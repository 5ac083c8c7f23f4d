"""The transcription of the paper's tables, checked against itself: averages, ratios, rows that two tables share."""

import itertools

import pytest

from electra_trainer.finetuning.glue_table import COLUMNS
from electra_trainer.paper.published import PRINTED, TABLES, PublishedRow

HALF = 0.05 + 1e-9  # rounding of a number with one decimal
GLUE_ROWS = (*TABLES[2].rows, *TABLES[7].rows)


def scores(row: PublishedRow) -> list[float | None]:
    return [row.number(column) for column in COLUMNS.values()]


def printed(row: PublishedRow, column: str) -> float:
    value = row.number(column)
    assert value is not None, (row.model, column)
    return value


@pytest.mark.parametrize("row", GLUE_ROWS, ids=lambda row: f"{row.model}-{row.split}")
def test_averages_are_the_means_of_their_rows(row: PublishedRow) -> None:
    """All printed averages, no exception; where cells are illegible, those that are missing would have to be possible scores."""
    known = [score for score in scores(row) if score is not None]
    average = printed(row, "glue/average")
    if len(known) == 8:
        # the scores' own rounding would allow twice as much; no row needs it
        assert abs(sum(known) / 8 - average) <= HALF
    else:
        rest = (8 * average - sum(known)) / (8 - len(known))
        assert 80 < rest < 92  # MRPC and QQP of every other row of Tables 2 and 7 lie there or a little below


def test_what_is_illegible_is_unknown() -> None:
    columns = PRINTED["table_7"]["columns"]
    for row, cells in zip(TABLES[7].rows, PRINTED["table_7"]["rows"], strict=True):
        unknown = {"glue/mrpc", "glue/qqp", "train_flops"} - row.values.keys()
        assert len(unknown) == (3 if row.model.startswith("ELECTRA") else 0)
        assert unknown == {column for column, cell in zip(columns, cells, strict=True) if cell == "?"} - {"train_ratio"}
    assert not any(cell == "?" for number in (1, 2, 3, 4) for row in PRINTED[f"table_{number}"]["rows"] for cell in row)
    assert sum(score is None for row in GLUE_ROWS for score in scores(row)) == 4


def test_ratios() -> None:
    base = next(row for row in TABLES[1].rows if row.model == "BERT-Base")
    for row in TABLES[1].rows:
        assert ("train_flops" in row.values) == (row.model != "DistilBERT")
        if "train_flops" in row.values:
            ratio = printed(base, "train_flops") / printed(row, "train_flops")
            assert row.values["train_speedup"] == pytest.approx(ratio, rel=0.03)
        ratio = printed(base, "infer_flops") / printed(row, "infer_flops")
        assert row.values["infer_speedup"] == pytest.approx(ratio, rel=0.1)
    assert [TABLES[number].reference_flops for number in TABLES] == [6.4e19, 7.1e20, 7.1e20, 6.4e19, 1.4e18]
    for number, within in ((2, 0.04), (3, 0.04), (7, 0.03)):
        for row in TABLES[number].rows:
            if isinstance(row.values.get("train_flops"), float):
                ratio = printed(row, "train_flops") / TABLES[number].reference_flops
                assert row.values["train_ratio"] == pytest.approx(ratio, rel=within)


def test_parts_of_a_training_halve() -> None:
    trained = [row for row in TABLES[1].rows if row.model.startswith("ELECTRA-Small")]
    glue = [printed(row, "glue/average") for row in trained]
    assert glue == sorted(glue, reverse=True)
    for more, less in itertools.pairwise(trained):
        assert more.values["train_flops"] == pytest.approx(2 * printed(less, "train_flops"), rel=0.03)


def test_rows_that_two_tables_print() -> None:
    seventh, second = (
        {row.model: row for row in TABLES[7].rows},
        {(row.model, row.split): row for row in TABLES[2].rows},
    )
    assert scores(seventh["BERT-Large"]) == scores(second["BERT", "test"])
    squad = {row.model: row.values for row in TABLES[3].rows}
    for name in ("XLNet", "RoBERTa", "BERT (ours)", "ELECTRA"):
        other = second[name, "dev"].values
        assert all(squad[name][column] == other[column] for column in ("train_flops", "parameters"))
    fourth = {row.model: row.values["glue/average"] for row in TABLES[4].rows}
    first = {row.model: row.values["glue/average"] for row in TABLES[1].rows}
    assert fourth["BERT"] == first["BERT-Base"]
    # the one disagreement: ELECTRA-Base is 85.1 in Table 1 and 85.0 in Table 4, both as printed
    assert (first["ELECTRA-Base"], fourth["ELECTRA"]) == (85.1, 85.0)


def test_lower_bounds_are_marked() -> None:
    bounds = {(row.model, row.values.get("train_flops")) for row in TABLES[7].rows if "45x+" in row.values.values()}
    assert bounds == {("TinyBERT", "6.4e19+")}


def test_statements_agree_with_the_tables() -> None:
    said = {name: value for name, _, value, _ in PRINTED["statements"]}
    squad = {row.model: row for row in TABLES[3].rows}
    for name, column in (
        ("ELECTRA over RoBERTa, SQuAD 2.0", "squad2/em"),
        ("ELECTRA over RoBERTa, SQuAD 1.1", "squad1/em"),
    ):
        mine, theirs = printed(squad["ELECTRA"], column), printed(squad["RoBERTa"], column)
        assert said[name] == pytest.approx(mine - theirs, abs=1e-9)
    first = {row.model: printed(row, "glue/average") for row in TABLES[1].rows}
    assert first["ELECTRA-Small"] - first["BERT-Small"] == pytest.approx(
        said["ELECTRA-Small above BERT-Small"], abs=0.5
    )
    assert said["BERT-Large on the GLUE dev set"] == TABLES[2].rows[0].values["glue/average"]
    dev = {row.model: row.values for row in TABLES[2].rows if row.split == "dev"}
    ratio = dev["RoBERTa"]["train_flops"] / dev["ELECTRA"]["train_flops"]  # "less than 1/4 of the compute"
    assert ratio > said["RoBERTa's training compute over ELECTRA-Large's, at equal scores"] > ratio - 1
    assert len(PRINTED["statements"]) == len(said) == 23
