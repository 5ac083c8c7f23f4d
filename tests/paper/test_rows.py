"""The paper's five tables and three figures, end to end: from runs that these tests make, by the commands alone (paper/paper_tables.py, figures.py).

Networks of one layer stand in for the published sizes, with the published ratios of steps, so that each run belongs in its row.
"""

import json
import statistics
import subprocess
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.command import Electra
from tests.prepared import VOCAB_SIZE, small_config, write_store
from tests.tasks.glue_samples import write_glue
from tests.tasks.test_question_answering import squad_file

from electra_trainer.cli.main import main
from electra_trainer.cost.flops import run_flops
from electra_trainer.experiments.summary import summarize
from electra_trainer.paper.paper_tables import Value, build_table
from electra_trainer.presets import models
from electra_trainer.settings.config import Config, Model
from electra_trainer.settings.methods import MLM
from electra_trainer.tasks.glue_tasks import PAPER

STEPS = {"small": 16, "small_50": 8, "small_25": 4, "small_12_5": 2, "small_6_25": 1, "base": 6, "large": 4}
WIDTHS = {"small": 16, "base": 32, "large": 64}
DOCS = Path(__file__).resolve().parents[2] / "docs/analysis.md"


def stand_in(name: str) -> Config:
    """One layer and a few steps in the place of a preset; a BERT has the steps that its size's compute allows."""
    width, bert = WIDTHS[models.SIZES[name]], "bert" in name
    model = Model(
        vocab_size=VOCAB_SIZE, embedding_size=16, hidden_size=width, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=2 * width,
    )  # fmt: skip
    plain = small_config(steps=STEPS.get(name, STEPS[models.SIZES[name]]))
    made = replace(plain, preset=name, model=model, objective=MLM() if bert else plain.objective)
    if bert:
        steps = round(plain.schedule.steps * run_flops(stand_in(models.SIZES[name])).paper / run_flops(made).paper)
        made = replace(made, schedule=replace(made.schedule, steps=steps))
    return replace(made, schedule=replace(made.schedule, warmup_steps=1))


@pytest.fixture(scope="module", autouse=True)
def stand_ins() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in (*STEPS, "bert_small", "bert_base", "bert_large", "bert_large_ours"):
            patch.setitem(models.PRESETS, name, lambda name=name: stand_in(name))
        yield


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/, glue/, squad/, and runs/small with a checkpoint of every step."""
    folder = tmp_path_factory.mktemp("rows")
    write_store(folder / "data")
    write_glue(folder / "glue")
    (folder / "squad").mkdir()
    for version in ("1.1", "2.0"):
        squad_file(folder / "squad", f"train-v{version}.json", 3)
        squad_file(folder / "squad", f"dev-v{version}.json", 2, start=20)
    pretrain(folder, "small", "--checkpoint.every", "1", "--checkpoint.keep", "20")
    return folder


def run(*words: object) -> None:
    assert main([*map(str, words)]) == 0, words


def pretrain(at: Path, preset: str, *words: object) -> Path:
    out = at / "runs" / preset
    run("pretrain", at / "data", "--preset", preset, "--out", out, "--device", "cpu", "--quiet", *words)
    return out


def compare(at: Path, preset: str, out: str, *words: object) -> Path:
    amount = ["--flops", run_flops(stand_in(preset)).paper]
    run(
        "compare", at / "data", "--preset", preset, "--out", at / out, "--device", "cpu", "--quiet", *words,
        *([] if "--steps" in words else amount),
    )  # fmt: skip
    return at / out


def fine_tune(at: Path, model: object, out: Path, *words: str) -> Path:
    run("glue", model, "--data", at / "glue", "--out", out, "--seeds", 1, "--parallel", 1, "--quiet", *words)
    return out


def table(electra: Electra, number: int, *paths: Path) -> list[dict[str, str]]:
    """The rows of a table that the command prints; NA where a number is missing."""
    code, _, err = electra("table", number, *paths)
    assert code == 0, err
    made = build_table(number, [*map(summarize, paths)])
    return [
        {"model": one.model, "from": one.source, "set": one.split, "seeds": str(len(one.seeds))}
        | {column.key: exact(one.values.get(column.key, Value())) for column in made.columns}
        for one in made.rows
    ]


def exact(value: Value) -> str:
    return value.words or ("NA" if value.number is None else f"{value.number:.10g}")


def row(rows: Sequence[dict[str, str]], model: str, *, part: str = "") -> dict[str, str]:
    """Our only row under the paper's of that name."""
    (found,) = [
        one for one in rows if one["model"] == model and one["from"].startswith("ours (") and one.get("set", "") == part
    ]
    return found


def numbers(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """All but the experiments' names."""
    return [{**one, "from": one["from"].partition(",")[0]} for one in rows]


def record(out: Path, copy: Path) -> Path:
    """Copy an experiment by the documented command."""
    recipe = DOCS.read_text().partition("mkdir -p records/NAME\n")[2].partition("electra table")[0]
    copy.mkdir(parents=True)
    subprocess.run(["bash", "-ec", recipe.replace("records/NAME", str(copy)).replace("EXP", str(out))], check=True)
    return copy


def test_table_1_and_figure_1(at: Path, electra: Electra, tmp_path: Path) -> None:
    """ELECTRA-Small and BERT-Small from one comparison, 50 % from its preset, the others from checkpoints of one run."""
    probe = ("--probe", f"glue={at / 'glue'}")
    more = ("--probe-seeds", "2", "--probe-pooling", "pair")
    whole = compare(at, "small", "small", "--arms", "electra,mlm", "--seeds", "1", *more, *probe)
    tuned = [json.loads(path.read_text()) for path in whole.glob("cells/electra/seed-1/glue/rte*/config.json")]
    assert sorted((one["seed"], one["recipe"]["pooling"]) for one in tuned) == [(1, "pair"), (1001, "pair")]
    half = compare(at, "small_50", "half", "--arms", "preset", "--seeds", "2", "--steps", "8", *probe)
    along = [fine_tune(at, f"{at / 'runs/small'}@{step}", at / f"along/{step}") for step in (4, 2, 1)]
    rows = table(electra, 1, whole, half, *along)
    trained = {"50%": 8, "25%": 4, "12.5%": 2, "6.25%": 1}
    full = run_flops(stand_in("small")).paper
    for share, step in trained.items():
        found = row(rows, f"ELECTRA-Small, {share} trained")
        assert float(found["train_flops"]) == pytest.approx(full * step / 16)
        assert ("step" in found["from"]) == (step < 8)
        assert found["glue/average"] != "NA" and found["seeds"] == ("2" if step == 8 else "1")
        assert "threads: 1" in found["time_and_hardware"]
    assert "step 4 of 16" in row(rows, "ELECTRA-Small, 25% trained")["from"]
    for model in ("ELECTRA-Small", "BERT-Small"):
        assert float(row(rows, model)["train_flops"]) == pytest.approx(full, rel=0.15)
        assert row(rows, model)["glue/average"] != "NA"
    score = [
        json.loads(path.read_text())["scores"] for path in whole.glob("cells/electra/seed-1/glue/rte*/result.json")
    ]
    cell = json.loads((whole / "cells/electra/seed-1/result.json").read_text())
    assert len(score) == 2
    assert cell["scores"]["glue/rte"] == statistics.median(one["dev/accuracy"] for one in score)
    figure = tmp_path / "figure.svg"
    code, _, err = electra("figure", 1, whole, half, *along, "--metric", "glue/average", "--out", figure)
    assert code == 0, err
    for shown in ("electra (small)", "mlm (small)", "electra (half)"):
        assert shown in figure.read_text(), shown
    ran = json.loads((along[0] / "cells/rte/seed-1/result.json").read_text())["environment"]
    assert ran.keys() >= {"git", "torch", "cpu", "gpu"} and "command" not in ran
    mine, again = (whole, half, *along), [record(path, tmp_path / path.name) for path in (whole, half, *along)]
    assert numbers(table(electra, 1, *again)) == numbers(table(electra, 1, *mine))


def test_table_2_with_test_sets_and_figure_4(at: Path, electra: Electra, tmp_path: Path) -> None:
    """BERT (ours) from its preset; the test row from what the server said of the archive, marked as such."""
    probe = ("--probe", f"glue={at / 'glue'}")
    steps = stand_in("bert_large_ours").schedule.steps
    bert = compare(at, "bert_large_ours", "bert", "--arms", "preset", "--seeds", "1", "--steps", steps, *probe)
    out = fine_tune(at, pretrain(at, "large"), at / "large-glue")
    (out / "test-scores.json").write_text(json.dumps({"cola": 68.2, "sst2": 96.9}))
    rows = table(electra, 2, bert, out)
    assert row(rows, "BERT (ours)", part="dev")["glue/rte"] != "NA"
    dev, test = row(rows, "ELECTRA", part="dev"), row(rows, "ELECTRA", part="test")
    assert dev["glue/cola"] != "NA" and dev["glue/average"] != "NA"
    assert (float(test["glue/cola"]), float(test["glue/sst"]), test["glue/average"]) == (68.2, 96.9, "NA")
    assert "as the server of GLUE scored the archive" in electra("table", 2, out)[1]
    small = compare(at, "small", "small-figure-4", "--arms", "electra,mlm", "--seeds", "1")
    figure = tmp_path / "figure.svg"
    code, _, err = electra("figure", 4, small, "--metric", "held-out/generator_loss", "--out", figure)
    assert code == 0 and "BERT (mlm)" in figure.read_text(), err


def test_table_3(at: Path, electra: Electra) -> None:
    """SQuAD as a probe, both versions, medians of fine-tuning seeds; and `electra squad` of a checkpoint."""
    probes = [word for version in (1, 2) for word in ("--probe", f"squad{version}={at / 'squad'}")]
    probed = compare(at, "large", "squad-probe", "--arms", "electra", "--seeds", "1", "--probe-seeds", "3", *probes)
    found = row(table(electra, 3, probed), "ELECTRA")
    for version, name, column in ((1, "f1", "squad1/f1"), (2, "best_exact_match", "squad2/em")):
        files = list(probed.glob(f"cells/electra/seed-1/squad{version}/*/result.json"))
        scores = [json.loads(path.read_text())["scores"][f"dev/{name}"] for path in files]
        assert len(scores) == 3 and float(found[column]) == pytest.approx(100 * statistics.median(scores))
    run(
        "squad", f"{at / 'runs/small'}@8", "--train", at / "squad/train-v1.1.json", "--dev", at / "squad/dev-v1.1.json", "--version", 1,
        "--seeds", 2, "--parallel", 1, "--out", at / "squad-half", "--quiet",
    )  # fmt: skip
    mine = [one for one in table(electra, 3, at / "squad-half") if one["from"].startswith("ours (small, step 8 of 16")]
    assert [one["model"] for one in mine] == ["small (ours): electra, 50% trained"]
    assert mine[0]["squad1/em"] != "NA" and mine[0]["squad2/em"] == "NA"


def test_table_4_and_figure_3(at: Path, electra: Electra, tmp_path: Path) -> None:
    names = {
        "electra": "ELECTRA", "all-tokens-mlm": "All-Tokens MLM", "replace-mlm": "Replace MLM", "electra-15": "ELECTRA 15%",
        "mlm": "BERT",
    }  # fmt: skip
    out = compare(
        at, "small", "objectives", "--arms", ",".join(names), "--seeds", "1", "--steps", 2, "--probe", f"glue={at / 'glue'}",
        "--probe", "held-out",
    )  # fmt: skip
    rows = table(electra, 4, out)
    assert {name: float(row(rows, name)["glue/average"]) for name in names.values()} == pytest.approx(
        {
            name: 100 * json.loads((out / f"cells/{arm}/seed-1/result.json").read_text())["scores"]["glue/average"]
            for arm, name in names.items()
        }
    )
    copy = record(out, tmp_path / "record")
    assert numbers(table(electra, 4, copy)) == numbers(rows)
    for path in (out, copy):
        code, _, err = electra("figure", 3, path, "--metric", "glue/average", "--out", tmp_path / "figure.svg")
        assert code == 0, err


def test_table_7(at: Path, electra: Electra) -> None:
    """Dev scores until the archive was scored; then those of the test sets."""
    out = fine_tune(at, at / "runs/small", at / "table-7", "--predict")
    assert "CoLA.tsv" in zipfile.ZipFile(out / "submission.zip").namelist()
    assert row(table(electra, 7, out), "ELECTRA-Small", part="dev")["glue/average"] != "NA"
    points = dict(zip(PAPER, (54.6, 89.1, 83.7, 80.3, 88.0, 79.7, 87.7, 60.8), strict=True))
    (out / "test-scores.json").write_text(json.dumps(points))
    found = row(table(electra, 7, out), "ELECTRA-Small", part="test")
    assert float(found["glue/average"]) == pytest.approx(statistics.fmean(points.values()))
    (out / "test-scores.json").write_text(json.dumps({"stsb": "high"}))
    code, _, err = electra("table", 7, out)
    assert code == 78 and "test-scores.json: stsb = 'high': expected" in err


def test_a_checkpoint_is_read_by_every_verb(at: Path, electra: Electra, tmp_path: Path) -> None:
    """RUN@STEP for export and evaluate (glue and squad: above); a step that is not there is named, with those that are."""
    mine = f"{at / 'runs/small'}@8"
    code, out, err = electra("evaluate", mine, at / "data", "--json")
    assert code == 0 and json.loads(out)["step"] == 8, err
    newest = json.loads(electra("evaluate", at / "runs/small", at / "data", "--json")[1])
    assert newest["step"] == 16 and newest["generator_loss"] != json.loads(out)["generator_loss"]
    for name, run_ in (("eight", mine), ("newest", at / "runs/small")):
        assert electra("export", run_, "--out", tmp_path / name)[0] == 0
    weights = [(tmp_path / name / "discriminator/model.safetensors").read_bytes() for name in ("eight", "newest")]
    assert weights[0] != weights[1]
    for words in (
        ("glue", f"{at / 'runs/small'}@99", "--data", at / "glue"), ("export", f"{at / 'runs/small'}@99"),
        ("evaluate", f"{at / 'runs/small'}@99", at / "data"),
        ("squad", f"{at / 'runs/small'}@99", "--train", at / "squad/train-v1.1.json", "--split", 0.5, "--version", 1),
    ):  # fmt: skip
        more = () if words[0] == "evaluate" else ("--out", tmp_path / "none")
        code, _, err = electra(*words, *more)
        assert code == 66 and "no checkpoint of step 99" in err and "15, 16" in err, words
