"""Points of `mini` compared with their records, and answers about a text and a run."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from statistics import mean

import pytest

from electra_trainer.cost.returns import BASELINE, PASSES, POINTS, SCORED, Point, about, ahead, enough, score

RECORDS = Path(__file__).resolve().parents[2] / "records"
DAY = (RECORDS / "2026-11-27-a-day" / "README.md").read_text(encoding="utf-8")
NAMES = {9.6e6: "9.6M tokens", 60.6e6: "two hours", 181.7e6: "six hours", 366.7e6: "twelve hours", 733e6: "a day"}


def column(table: str, name: str, index: int) -> float:
    """Mean of a column over the rows of a run, by the beginning of a table's head; rows with less data left out."""
    rows = DAY.partition(table)[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip(" *") for cell in row.split("|")] for row in rows if "10,000 rows too" not in row]
    return mean(float(one[index]) for one in cells if one[1].startswith(name))


@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point.tokens:g}")
def test_a_point_is_its_records(point: Point) -> None:
    if point.record.endswith("en-mini"):
        with (RECORDS / point.record / "held-out.csv").open() as file:
            near = min(csv.DictReader(file), key=lambda row: abs(float(row["tokens"]) - point.tokens))
        found = [float(near[name]) for name in ("tokens", "flops_real", "discriminator_standard_auc")]
        assert [point.tokens, point.products, point.auc] == pytest.approx(found, rel=0.005) and math.isnan(point.score)
        return
    amounts = f"{point.tokens / 1e6:g}M", f"{point.products:.3g}".replace("+", "")
    assert any(all(one in line for one in amounts) for line in DAY.splitlines())
    assert round(column("| plain head (`--pooling mean`)", NAMES[point.tokens], -2), 1) == point.score
    if not math.isnan(point.auc):
        assert round(column("| | BLiMP: discriminator", NAMES[point.tokens], 6), 3) == point.auc


def test_the_rest_is_the_records() -> None:
    assert PASSES == 5 and "five times the text" in DAY
    line = next(one for one in DAY.splitlines() if one.startswith("| the best baseline of each task"))
    assert f" {BASELINE} |" in line


def test_nothing_is_extrapolated() -> None:
    between = math.sqrt(SCORED[1].products * SCORED[2].products)
    assert score(between, of="products") == pytest.approx((SCORED[1].score + SCORED[2].score) / 2)
    assert math.isnan(score(9e6, of="tokens")) and math.isnan(score(3e16, of="products"))
    assert about(0).startswith("less than any run that was scored; 9.6M tokens gave 62.9")
    assert about(1e9).startswith("more than any run that was scored; 733M tokens gave 70.4")


def test_answers_about_a_text_and_a_run() -> None:
    few, many = enough(2_700_000), enough(100_000_000)
    assert few.startswith("2.7M tokens of text are few. 5 passes") and "13.5M: about 63.3 in GLUE" in few
    assert "--init" in few and "are enough" in many and "--init" not in many
    assert ahead(9e5, 8700.0).endswith("They are 17 min away at this speed.")
    assert "about 65.1" in ahead(60.58e6, 1e4) and "182M gave 66.6: 3.4 h away" in ahead(60.58e6, 1e4)
    assert ahead(733e6, 1e4).count("70.4") == 1
