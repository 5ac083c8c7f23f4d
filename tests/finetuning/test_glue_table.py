"""GLUE's scores as the paper prints them, and the notes below."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.finetuning.summaries import Task, summary, task_summary

from electra_trainer.files.wording import Table
from electra_trainer.finetuning import glue_table
from electra_trainer.tasks.glue_tasks import PAPER, ROWS


def scores(task: str, by_seed: dict[int, float], **more: Any) -> Task:
    """One number in every split and metric, but 0.1 less beside the main one."""
    found = {
        f"{split}/{metric}": {seed: value - 0.1 * bool(index + place) for seed, value in by_seed.items()}
        for index, split in enumerate(ROWS[task].dev)
        for place, metric in enumerate(ROWS[task].metrics)
    }
    return task_summary(task, found, **more)


def eight(**changed: Task) -> list[Task]:
    """Task k of the paper has 0.5 + 0.01 k, 0.01 more and 0.04 more in three seeds."""
    given = {
        name: scores(name, {1: 0.5 + 0.01 * k, 2: 0.51 + 0.01 * k, 3: 0.54 + 0.01 * k}) for k, name in enumerate(PAPER)
    }
    return list((given | changed).values())


def table(tasks: Sequence[Task]) -> Table:
    return glue_table.glue_scores(summary(*tasks))


def glue_metrics(tasks: Sequence[Task]) -> dict[str, float]:
    return glue_table.glue_metrics(glue_table.medians(summary(*tasks)))


def glue_notes(tasks: Sequence[Task]) -> tuple[str, ...]:
    """Without those on seeds that some tasks lack here."""
    return tuple(note for note in glue_table.glue_notes(summary(*tasks)) if ": missing: seed" not in note)


def text(tasks: Sequence[Task]) -> str:
    return glue_table.GlueScores(summary=summary(*tasks)).text()


def markdown(tasks: Sequence[Task]) -> str:
    return glue_table.markdown(summary(*tasks))


def rows(table: Table) -> dict[str, dict[str, str]]:
    return {str(row[0]): dict(zip(table.head[1:], map(str, row[1:]), strict=True)) for row in table.rows}


def test_the_papers_columns() -> None:
    paper = table(eight())
    assert paper.head == ("", "CoLA", "SST", "MRPC", "STS", "QQP", "MNLI", "QNLI", "RTE", "Avg.")
    found = rows(paper)
    assert list(found) == ["median of 3", "mean", "SD", "best"]
    assert found["median of 3"] == {
        "CoLA": "51.0", "SST": "52.0", "MRPC": "53.0", "STS": "54.0", "QQP": "55.0", "MNLI": "56.0", "QNLI": "57.0", "RTE": "58.0",
        "Avg.": "54.5",
    }  # fmt: skip
    assert found["mean"]["CoLA"] == "51.7" and found["best"]["RTE"] == "61.0" and found["best"]["Avg."] == "57.5"
    assert found["SD"]["CoLA"] == f"{100 * statistics.stdev([0.5, 0.51, 0.54]):.1f}"
    assert found["SD"]["Avg."] == "—"


def test_tasks_outside_the_papers_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """WNLI, and a row of one's own: in no column and no average, but with their notes and their main score."""
    poems = replace(ROWS["mnli"], name="poems", folder="Poems", metrics=("f1", "accuracy"), dev={"dev": 9, "old": 9})
    monkeypatch.setitem(ROWS, "poems", poems)
    beaten = {"majority": (0.5, "the majority class")}
    own = [scores("wnli", {1: 0.563}), scores("poems", {1: 0.45, 2: 0.5}, baselines=beaten)]
    assert glue_metrics(own) == pytest.approx({"glue/wnli": 0.563, "glue/poems": 0.475})
    assert "Poems DOES NOT BEAT the majority class: 47.5 against 50.0." in glue_notes(own)
    both = [*eight(), *own]
    assert table(both).head == table(eight()).head
    assert rows(table(both))["mean"] == rows(table(eight()))["mean"]
    assert glue_metrics(both)["glue/average"] == glue_metrics(eight())["glue/average"]


def test_what_is_missing_is_shown_and_has_no_average() -> None:
    tasks = [one for one in eight() if one.task not in ("qqp", "mnli")]
    tasks.append(task_summary("mnli", {}))  # every seed of it failed
    found = rows(table(tasks))["median of 3"]
    assert (found["QQP"], found["MNLI"], found["Avg."], found["CoLA"]) == ("—", "—", "—", "51.0")
    assert "—: missing. No average is given without QQP, MNLI." in glue_notes(tasks)
    assert glue_metrics(tasks) == pytest.approx({
        "glue/cola": 0.51, "glue/sst": 0.52, "glue/mrpc": 0.53, "glue/sts": 0.54, "glue/qnli": 0.57, "glue/rte": 0.58,
    })  # fmt: skip


def test_metrics_have_the_names_of_the_papers_tables() -> None:
    """Shares, as paper/paper_tables.py reads them."""
    found = glue_metrics(eight())
    assert list(found) == [*glue_table.COLUMNS.values(), "glue/average"]
    assert found["glue/average"] == pytest.approx(0.545) and found["glue/sst"] == pytest.approx(0.52)


def test_baselines_stand_below_and_are_compared() -> None:
    """Each that is not beaten, or not for certain."""

    def baseline(value: float, title: str = "the majority class") -> tuple[float, str]:
        return (value, title)

    tasks = [
        scores(
            "cola", {1: 0.0, 2: 0.0, 3: 0.0},
            baselines={"majority": baseline(0.0), "untrained": baseline(0.03, "the untrained encoder")},
        ),
        scores("rte", {1: 0.50, 2: 0.56, 3: 0.58}, baselines={"majority": baseline(0.527)}),
        scores("sst2", {1: 0.80, 2: 0.81, 3: 0.82}, baselines={"majority": baseline(0.509), "untrained": baseline(0.6)}),
        scores("qqp", {1: 0.80}),  # its baselines are missing: nothing is said
        task_summary("mrpc", {}, baselines={"majority": (0.68, "majority")}),
    ]  # fmt: skip
    below = rows(table(tasks))
    assert below["the majority class"] == {
        "CoLA": "0.0", "SST": "50.9", "MRPC": "68.0", "STS": "—", "QQP": "—", "MNLI": "—", "QNLI": "—", "RTE": "52.7", "Avg.": "—",
    }  # fmt: skip
    assert below["the untrained encoder"]["CoLA"] == "3.0" and "TF-IDF" not in below
    assert glue_notes(tasks)[1:] == (
        "CoLA DOES NOT BEAT the majority class: 0.0 against 0.0.",
        "CoLA DOES NOT BEAT the untrained encoder: 0.0 against 3.0.",
        "RTE is above the majority class, but not for certain: 56.0 against 52.7.",
    )
    whole = eight(
        **{
            name: scores(name, {1: 0.7}, baselines={"tf_idf": baseline(0.5 + 0.01 * k, "TF-IDF")})
            for k, name in enumerate(PAPER)
        }
    )
    assert rows(table(whole))["TF-IDF"]["Avg."] == "53.5"
    assert not glue_notes(eight())


def test_pages() -> None:
    """The table with its notes once each, as Markdown and for a terminal."""
    note = "MNLI: 22,664 of 392,702 training rows."
    tasks = eight(mnli=scores("mnli", {1: 0.5}, notes=("22,664 of 392,702 training rows.",) * 2))
    page = markdown(tasks)
    assert page.count(note) == 1
    assert "|  | CoLA | SST | MRPC | STS | QQP | MNLI | QNLI | RTE | Avg. |\n| --- | --: |" in page
    assert "| median | 51.0 | 52.0 |" in page and "| SD | 2.1 | 2.1 | 2.1 | 2.1 | 2.1 | — |" in page
    lines = text(tasks).splitlines()
    assert lines[1].split() == list(table(tasks).head[1:]) and lines[2].startswith("median  51.0  52.0")
    assert lines[1].index("SST") + 3 == lines[2].index("52.0") + 4 and note in lines
