"""Tables and figures from encoders that were fine-tuned: `electra glue` and `squad` on a little real data, then the paper's tables."""

import csv
import io
import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from tests.command import Electra
from tests.paper.experiments import full_flops
from tests.prepared import small_config, write_store

from electra_trainer.experiments.cell import Declared, DeclaredRow, Result, write_declared, write_result
from electra_trainer.experiments.summary import summarize
from electra_trainer.finetuning.glue_table import COLUMNS
from electra_trainer.paper.paper_tables import build_table, entries
from electra_trainer.paper.published import TABLES
from electra_trainer.presets.arms import arm
from electra_trainer.presets.models import preset
from electra_trainer.settings.records import to_dict
from electra_trainer.train.loop import pretrain

RECORDS = Path(__file__).parents[2] / "records"
QUICK = ("--seeds", "3", "--epochs", "1", "--max-length", "24", "--parallel", "1", "--device", "cpu", "--quiet")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    write_store(folder / "data")
    return pretrain(small_config(steps=3), folder / "data", out=folder / "run", device="cpu", quiet=True)


def head(source: Path, target: Path, lines: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open(encoding="utf-8") as file:
        target.write_text("".join(line for line, _ in zip(file, range(lines), strict=False)), encoding="utf-8")


def first_questions(paragraph: dict[str, Any]) -> dict[str, Any]:
    """Its first sentences, with two of the questions that they answer and, in version 2, one that nothing answers."""
    context = paragraph["context"][:400]
    fits = [
        {**qa, "answers": kept}
        for qa in paragraph["qas"]
        if (kept := [one for one in qa["answers"] if one["answer_start"] + len(one["text"]) <= len(context)])
    ]
    impossible = [qa for qa in paragraph["qas"] if qa.get("is_impossible")]
    assert len(fits) >= 2
    return {"context": context, "qas": fits[:2] + impossible[:1]}


def table(electra: Electra, number: int, *experiments: Path) -> list[dict[str, str]]:
    code, out, err = electra("table", str(number), *experiments, "--out", experiments[0] / "table.csv")
    assert code == 0, err
    text = Path(out.strip()).read_text()
    return [row for row in csv.DictReader(io.StringIO(text)) if row["from"].startswith("ours (")]


def medians(out: Path, task: str, metric: str) -> float:
    """From the files of the runs, by another way."""
    results = [json.loads(path.read_text()) for path in out.glob(f"cells/{task}/seed-*/result.json")]
    assert len(results) == 3
    return 100 * statistics.median(
        next(value for name, value in result["scores"].items() if name.endswith(f"/{metric}")) for result in results
    )


def tell_apart(out: Path) -> None:
    """Another number for each seed and metric: an encoder of three steps answers nothing, and zeros look alike."""
    for seed, path in enumerate(sorted(out.glob("cells/*/seed-*/result.json")), start=1):
        result = json.loads(path.read_text())
        scores = result["scores"]
        scores |= {name: 0.2 * seed + 0.01 * place for place, name in enumerate(sorted(scores))}
        path.write_text(json.dumps(result))


def place(out: Path, name: str, share: float = 1.0) -> None:
    """As if the encoder were of that preset, trained for so much of its length."""
    declared = json.loads((out / "experiment.json").read_text())
    config, flops = arm("electra", preset(name)), share * full_flops(name)
    steps = round(share * config.schedule.steps)
    declared["about"]["encoder"] |= {"config": to_dict(config), "flops_paper": flops, "steps": steps}
    (out / "experiment.json").write_text(json.dumps(declared))


def test_glue_fills_tables_1_2_and_7(run: Path, shared: Path, electra: Electra, tmp_path: Path) -> None:
    """The eight tasks: medians of the seeds, their mean as the average; dev scores where the paper has the test set's."""
    for path in (shared / "data/glue").glob("*/*.tsv"):
        if not path.name.startswith("test"):
            head(path, tmp_path / "glue" / path.parent.name / path.name, 25 if path.name == "train.tsv" else 13)
    words = ("glue", run, "--data", tmp_path / "glue", "--out", tmp_path / "exp", *QUICK)
    code, _said, err = electra(*words)
    assert code == 0, err
    out, scores = tmp_path / "exp", {}
    for task, column in COLUMNS.items():
        metric = {"cola": "matthews", "stsb": "spearman"}.get(task, "accuracy")
        scores[column] = medians(out, task, metric)
    average = statistics.fmean(scores.values())
    (mine,) = table(electra, 1, out)
    assert mine["model"] == "test (ours): electra"
    assert float(mine["glue/average"]) == pytest.approx(average) and mine["seeds"] == "3"
    for number in (2, 7):
        (mine,) = table(electra, number, out)
        assert mine["set"] == "dev"
        assert {column: float(mine[column]) for column in scores} == pytest.approx(scores)
        assert float(mine["glue/average"]) == pytest.approx(average)
    place(out, "small")
    for number, model in ((1, "ELECTRA-Small"), (7, "ELECTRA-Small")):
        rows = build_table(number, [summarize(out)]).rows
        (at,) = [index for index, row in enumerate(rows) if row.source == "ours (small)"]
        assert rows[at - 1].source == "paper" and rows[at - 1].model == rows[at].model == model
    code, _, err = electra("figure", "1", out, "--metric", "glue/average", "--out", tmp_path / "figure.svg")
    assert code == 0 and (tmp_path / "figure.svg").stat().st_size > 1000, err


def test_squad_fills_table_3(run: Path, shared: Path, electra: Electra, tmp_path: Path) -> None:
    for version in (1, 2):
        dev = json.loads((shared / f"data/squad/dev-v{version}.{2 - version}.json").read_text())
        pages = [{**article, "paragraphs": [first_questions(article["paragraphs"][0])]} for article in dev["data"][:4]]
        for name, part in (("train", pages[:2]), ("dev", pages[2:])):
            (tmp_path / f"{name}-{version}.json").write_text(json.dumps({**dev, "data": part}))
        code, _, err = electra(
            "squad", run, "--train", tmp_path / f"train-{version}.json", "--dev", tmp_path / f"dev-{version}.json", "--version",
            str(version), "--out", tmp_path / f"squad-{version}", *QUICK,
        )  # fmt: skip
        assert code == 0, err
    one, two = tmp_path / "squad-1", tmp_path / "squad-2"
    tell_apart(one)
    tell_apart(two)
    place(two, "base")
    first, second = table(electra, 3, one, two)
    if first["model"] == "ELECTRA-Base":
        first, second = second, first
    assert second["model"] == "ELECTRA-Base"
    for row, out, key, names in (
        (first, one, "squad-1.1", {"squad1/em": "exact_match", "squad1/f1": "f1"}),
        (second, two, "squad-2.0", {"squad2/em": "best_exact_match", "squad2/f1": "best_f1"}),
    ):
        assert {name: float(row[name]) for name in names} == pytest.approx(
            {name: medians(out, key, metric) for name, metric in names.items()}
        )
    assert first["squad2/em"] == "NA" and second["squad1/em"] == "NA"


def test_the_documented_record_fills_its_tables() -> None:
    """Tables 1, 2, 3 and 7: a run and a checkpoint of it, with scores, FLOPs and the hardware, though neither is there."""
    folders = sorted(path.parent for path in (RECORDS / "2026-11-24-rows-from-commands").glob("*/experiment.json"))
    experiments = [summarize(path) for path in folders]
    for number, column, scores in (
        (1, "glue/average", 2),
        (2, "glue/rte", 2),
        (3, "squad1/f1", 1),
        (7, "glue/mnli", 2),
    ):
        rows = [row for row in build_table(number, experiments).rows if row.source.startswith("ours (tiny")]
        assert len(rows) == 3 and sum(column in row.values for row in rows) == scores, number
        assert len({row.values["train_flops"].number for row in rows}) == 2, number
    hardware = [row.values["time_and_hardware"].words for row in build_table(1, experiments).rows if row.runs]
    assert all("(threads: 1)" in str(words) for words in hardware)
    ran = json.loads((folders[0] / "cells/rte/seed-1/result.json").read_text())["environment"]
    assert len(ran["git"]) >= 40


@pytest.mark.parametrize("path", sorted(RECORDS.rglob("experiment.json")), ids=lambda path: path.parent.name)
def test_experiments_of_the_records_are_read(path: Path) -> None:
    found = summarize(path.parent)
    assert [build_table(number, [found]).number for number in TABLES] == [*TABLES]
    assert None not in [entry.config for entry in entries([found])]


def tuned(out: Path, *tasks: str, about: dict[str, Any]) -> None:
    """A fine-tuning experiment of one seed, where every score is a half."""
    rows = {
        task: DeclaredRow(settings={}, metrics=("dev/matthews" if task == "cola" else "dev/accuracy",))
        for task in tasks
    }
    write_declared(out, Declared(verb="finetune", facts={"recipe": "paper"}, rows=rows, seeds=(1,), about=about))
    for task, row in rows.items():
        (folder := out / f"cells/{task}/seed-1").mkdir(parents=True)
        write_result(folder, Result(key=task, seed=1, scores={row.metrics[0]: 0.5}))


def test_an_encoder_without_a_run(tmp_path: Path) -> None:
    """Its pre-training is not known: no FLOPs; a task of one's own is a column by its name."""
    tuned(tmp_path, "cola", "mine", about={"model": "runs/old"})
    (entry,) = entries([summarize(tmp_path)])
    assert (entry.preset, entry.arm, entry.config) == ("old", "fine-tuned", None)
    assert [one.scores for one in entry.results] == [{"glue/cola": 0.5, "mine/accuracy": 0.5}]
    (row_,) = [row for row in build_table(2, [summarize(tmp_path)]).rows if row.source == "ours (old)"]
    assert row_.values["glue/cola"].number == 50.0 and "train_flops" not in row_.values


def test_an_encoder_of_another_version(tmp_path: Path) -> None:
    """Its scores are shown; what follows from its configuration is left out, as it is of an arm."""
    tuned(tmp_path, "cola", about={"model": "runs/new", "encoder": {"config": {"knob": 1}, "flops_paper": 1e12}})
    found = summarize(tmp_path)
    (entry,) = entries([found])
    assert (entry.config, entry.preset, entry.results[0].scores) == (None, "new", {"glue/cola": 0.5})
