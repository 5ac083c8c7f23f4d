"""`electra finetune` and `electra predict`, and the same from Python: a two-column file becomes a model, its scores and predictions."""

import csv
import json
import re
import shlex
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from tests.command import Electra
from tests.finetuning.own_files import FRUIT, TOOLS, rows, write_csv, write_encoder

import electra_trainer
import electra_trainer.inspection.report
import electra_trainer.tasks.recipe
from electra_trainer import load_finetuned
from electra_trainer.cli.flags import FILE_ONLY
from electra_trainer.cli.main import main, read
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.experiments.by_class import confusion_of, confusion_table
from electra_trainer.files.tables import Table
from electra_trainer.finetuning.model_folder import learned_from
from electra_trainer.finetuning.request import Finetune
from electra_trainer.pretrained.source import load_source
from electra_trainer.tasks.examples import predicted_csv, predicted_jsonl, tagged_text
from electra_trainer.tasks.recipe import Recipe, recipe

SHORT = "--seeds 2 --epochs 2 --parallel 1 --device cpu".split()


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """encoder/, train.csv, dev.csv, new.csv, pairs.jsonl, words.conll; exp/, what the first command makes of them."""
    work = tmp_path_factory.mktemp("own")
    write_encoder(work / "encoder")
    write_csv(work / "train.csv", rows(80))
    write_csv(work / "dev.csv", rows(100)[79:])
    write_csv(work / "test.csv", rows(131)[110:])
    write_csv(work / "new.csv", [(str(n), text) for n, (text, _) in enumerate(rows(110)[100:])], ("id", "text"))
    lines = [
        {"premise": a, "hypothesis": b, "score": len(a) - len(b)}
        for (a, _), (b, _) in zip(rows(50), rows(60)[10:], strict=True)
    ]
    (work / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tag = {**dict.fromkeys(FRUIT, "FRUIT"), **dict.fromkeys(TOOLS, "TOOL")}
    for name, some in (("words.conll", rows(60)), ("dev.conll", rows(80)[60:])):
        sentences = ["".join(f"{word}\t{tag.get(word, 'O')}\n" for word in text.split()) for text, _ in some]
        (work / name).write_text("\n".join(sentences) + "\n")
    return work


@pytest.fixture
def electra(work: Path, electra: Electra, monkeypatch: pytest.MonkeyPatch) -> Electra:
    """In the folder of the files."""
    monkeypatch.chdir(work)
    return electra


TRAIN = "finetune encoder --train train.csv"
FIRST = (*f"{TRAIN} --test test.csv --predict new.csv --out exp --pooling cls".split(), *SHORT)


@pytest.fixture
def first(electra: Electra) -> tuple[int, str, str]:
    """Made once; then it is the same command again."""
    return electra(*FIRST)


def test_one_command_from_two_columns(work: Path, first: tuple[int, str, str]) -> None:
    code, out, _ = first
    assert code == 0
    for words in (
        "columns: text = 'text', label = 'label'.",
        "8 of 80 rows were held out",
        "2 classes in 72 training rows: fruit 36, tool 36.",
        "Predictions written to exp/predictions.csv.",
        "All figures: exp/summary.md\nAs a service: docs/classify.md#as-a-service",
    ):
        assert words in out
    assert "without --epochs" not in out  # they were given
    with (work / "exp" / "predictions.csv").open(newline="") as file:
        said = list(csv.DictReader(file))
    assert [row["id"] for row in said] == [str(n) for n in range(10)]
    assert list(said[0]) == ["id", "text", "prediction", "probability", "probability_fruit", "probability_tool"]
    for row in said:
        assert float(row["probability"]) == max(float(row["probability_fruit"]), float(row["probability_tool"]))
        assert row["probability"] == row[f"probability_{row['prediction']}"]


def test_the_same_command_again_is_the_same(work: Path, electra: Electra, first: tuple[int, str, str]) -> None:
    kept = [*(work / "exp" / "model").iterdir(), work / "exp" / "predictions.csv"]
    before = [path.read_bytes() for path in kept]
    code, out, _ = electra(*FIRST)
    assert code == 0 and "exp/model: the best run" not in out
    assert "exp/model: the best run. README.md there" in electra(*FIRST, "--verbose")[1]
    assert [path.read_bytes() for path in kept] == before
    code, out, _ = electra(*FIRST, "--json")
    said = json.loads(out)
    assert code == 0 and said["model"] == "exp/model" and said["predictions"] == "exp/predictions.csv"
    confusion = said["summary"]["classes"]["classification"]["dev"]["confusion"]
    assert sum(sum(row.values()) for row in confusion.values()) == 8
    assert said["notes"][0].startswith("columns: ") and said["summary"]


def test_the_conclusion_is_of_the_test_file_and_the_same_everywhere(
    work: Path, electra: Electra, first: tuple[int, str, str]
) -> None:
    """Also the last lines, without a word of statistics; and no note is printed twice."""
    _, out, err = first
    results = [json.loads((work / f"exp/cells/classification/seed-{n}/result.json").read_text()) for n in (1, 2)]
    right = [round(21 * one["scores"]["test/accuracy"]) for one in results]
    assert [sum(one["samples"]["test/accuracy"]["values"]) for one in results] == right
    blank, *lines, too_few, following = out.splitlines()[-9:-4]
    best = right[load_finetuned(work / "exp").table["seed"] - 1]
    assert not blank and lines[0].startswith(f"Right in {best} of 21 rows kept apart ({best / 0.21:.1f} %, ")
    assert "TF-IDF" in lines[1] and too_few.startswith("21 are too few for a number")
    assert following.startswith("Predictions written to ")
    words = "seed dev median SD matthews macro_f1 Student Holm hash fresh untrained recipe CLS"
    assert not re.search(rf"\b({words.replace(' ', '|')})\b", (out + err).replace("--seeds", ""))
    said = " ".join(lines)
    assert json.loads((work / "exp" / "summary.json").read_text())["conclusion"] == said
    assert load_finetuned(work / "exp").table["conclusion"] == said
    for page in ("exp/summary.md", "exp/model/README.md"):
        first_part, details, _ = (work / page).read_text().partition("## Details")
        assert said in first_part and "class by class" in first_part and details
        assert not re.search("Holm|matthews|temperature|Student|head|SD", first_part)
    for note in load_finetuned(work / "exp").table["notes"]:
        assert (out + err).count(note) == 1, note


@pytest.mark.parametrize(
    ("task", "files", "said"),
    [
(("--task", "regression"), ("pairs.jsonl", "pairs.jsonl"), ("Rank correlation ", " on 50 rows kept apart", "word overlap")),
        (("--label-separator", ";"), ("test.csv", "test.csv"), ("F1 of all labels: ", "on 21 rows kept apart", "TF-IDF")),
        (("--task", "tagging"), ("words.conll", "dev.conll"), ("Words with the right tag: ", " on 20 sentences kept apart", "most frequent tag of each word")),
    ],
    ids=["numbers", "labels", "tags"],
)  # fmt: skip
def test_every_task_has_its_conclusion(
    electra: Electra, tmp_path: Path, task: tuple[str, ...], files: tuple[str, str], said: tuple[str, ...]
) -> None:
    train, test = files
    code, out, err = electra(
        "finetune", "encoder", "--train", train, "--test", test, *task, "--baselines", "--out", str(tmp_path / "exp"), "--seeds", "1", "--epochs", "1", "--parallel", "1", "--device", "cpu",
    )  # fmt: skip
    assert code == 0, err
    last = out.split("\n\n")[-1]
    assert last.startswith(said[0]) and all(words in last for words in said) and "untrained encoder" in last
    assert "All figures: " in last and "As a service" not in last, "the page's service is of one class a text"


def test_more_rows_and_a_new_class(work: Path, electra: Electra, tmp_path: Path) -> None:
    """The refusal names what is new, and a command that learns from all rows; so does what is printed at the end. Of a
    model that began with a fine-tuned one only the baseline has a score.
    """
    train, out = str(write_csv(tmp_path / "texts.csv", rows(30))), str(tmp_path / "exp")
    words = ["finetune", "encoder", "--train", train, f"--out={out}", "--seeds=1", "--epochs", "1", "--device", "cpu"]
    _, said, _ = electra(*words)
    write_csv(tmp_path / "texts.csv", [*rows(40), *((f"{text} now", "plant") for text, _ in rows(12))])
    code, _, err = electra(*words, "--baselines")
    assert code == 78
    assert f"{out} began with other rows or columns than {train}: 52 training rows (then 30), new: 'plant'." in err
    for text, before, after in ((err, "beside it: electra ", "  For"), (said, "rows: electra ", "\n")):
        typed = shlex.split(re.search(f"{before}(.*?){after}", text)[1])  # type: ignore[index]
        assert typed[1] == "encoder" and typed[-1] == f"{out}-2"
    code, again, err = electra(*typed)
    assert code == 0 and "Right in " in again and f"--out {out}-3" in again, err
    assert "Fewer than 20 rows, so hard to learn and to score: plant 12." in again
    assert load_finetuned(f"{out}-2").task.labels == ("fruit", "plant", "tool")
    code, again, err = electra("finetune", f"{out}/model", *typed[2:-1], f"{out}-3")
    assert code == 0 and f"{out}/model may have learned from rows that are scored here" in err
    _, answer = again.split("\n\n")
    assert answer.startswith(f"No honest score: {out}/model may have learned") and answer.count(" of 52 rows") == 1
    assert answer.splitlines()[1].startswith("TF-IDF: Right in ")
    assert "rows: electra finetune encoder --train " in answer
    assert "class by class" not in (tmp_path / "exp-3/summary.md").read_text()
    with pytest.raises(ConfigError, match="keeps no probabilities of held-out rows"):
        load_finetuned(f"{out}-3").sure_from(0.9)


def test_rows_that_a_model_learned_from_are_known(electra: Electra, tmp_path: Path) -> None:
    """To `predict`, and to a run that begins with the model: only rows that it knows are no honest score, and no
    temperature is fitted to them.
    """
    old, new, both = (tmp_path / f"{name}.csv" for name in ("old", "new", "both"))
    for path, table in ((old, rows(30)), (new, rows(60)[30:]), (both, rows(60))):
        write_csv(path, table)
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    short = ("--seeds", "1", "--epochs", "1", "--device", "cpu")
    assert electra("finetune", "encoder", "--train", old, "--out", one, *short)[0] == 0
    _, _, err = electra("predict", one / "model", both, "--device", "cpu")
    assert "warning: 30 of 60 rows were learned from: their score says nothing. Scored: the other 30." in err
    assert " of 30 rows of " in err and load_finetuned(one).sure_from(0.1)
    table = json.loads((one / "model/electra_task.json").read_text())
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved/electra_task.json").write_text(
        json.dumps(table | {"source": {"model": str(tmp_path / "moved")}})
    )
    words = ("finetune", str(tmp_path / "moved"), "--train", "x.csv")
    moved = Finetune(model=words[1], train=Path("x.csv"), out=tmp_path / "x", typed=words[1:])
    assert str(tmp_path / "moved") in moved.beside(), "it names itself"
    bare = load_source(one / "model/encoder")
    assert bare.length == load_source("encoder").length
    assert learned_from(bare.folder) == load_finetuned(one).learned != set()
    _, _, err = electra("predict", one / "model", old, "--device", "cpu")
    assert "30 of 30 rows" in err and "Give it other rows." in err and "Right in" not in err
    code, out, err = electra("finetune", one / "model", "--train", new, "--out", two, *short)
    assert code == 0 and "Right in " in out and "may have learned" not in out + err
    assert len((two / "model/learned.txt").read_text().split()) == 60, "of both"
    other = write_csv(tmp_path / "other.csv", rows(90)[60:])
    code, out, err = electra("finetune", two / "model", "--train", old, "--test", other, "--out", three, *short)
    assert code == 0 and "Right in " in out and "so they stay as sure as training made them" in err
    assert load_finetuned(three).table["reports"]["dev"]["temperature"] is None
    with pytest.raises(ConfigError, match="keeps no probabilities of held-out rows"):
        load_finetuned(three).sure_from(0.9)
    against = ("--against", one / "model", "--out", tmp_path / "four")
    code, out, _ = electra("finetune", "encoder", "--train", both, *against, *short)
    assert code == 0 and f"{one / 'model'}: no honest score, since it may have learned from these rows." in out
    (two / "model/learned.txt").unlink()  # so that it is not published
    assert load_finetuned(two).learned is None
    _, _, err = electra("predict", two / "model", old, "--device", "cpu")
    assert "does not say which rows it learned from (learned.txt)" in err and "Right in " in err


def test_predict_says_what_was_said(work: Path, electra: Electra, first: tuple[int, str, str]) -> None:
    code, out, _ = electra("predict", "exp/model", "new.csv", "--out", "again.csv", "--device", "cpu")
    assert code == 0 and out == "again.csv\n"
    assert (work / "again.csv").read_bytes() == (work / "exp" / "predictions.csv").read_bytes()
    code, out, _ = electra("predict", "exp", "new.csv", "--device", "cpu")
    assert code == 0 and out.encode() == (work / "again.csv").read_bytes()
    code, out, _ = electra("predict", "exp/model", "new.csv", "--json", "--device", "cpu")
    said = [json.loads(line) for line in out.splitlines()]
    assert said[3]["id"] == "3" and set(said[3]["probabilities"]) == {"fruit", "tool"}
    code, out, _ = electra("predict", "exp/model", "new.csv", "--out", "again.jsonl", "--text", "id", "--device", "cpu")
    first_line = (work / "again.jsonl").read_text().splitlines()[0]
    assert code == 0 and json.loads(first_line)["prediction"] in {"fruit", "tool"}
    Path("sheet.csv").write_text("id;Text\n1;an apple\n2; \n3;a saw\n", encoding="utf-8-sig")
    code, out, err = electra("predict", "exp/model", "sheet.csv", "--device", "cpu")
    assert code == 0 and "1 of 3 rows have no text: their prediction is left empty." in err
    head, first_row, blank, _ = out.splitlines()
    assert head == "\ufeffid;Text;prediction;probability;probability_fruit;probability_tool"
    assert first_row.startswith("1;an apple;") and blank == "2; ;;;;"


def test_the_test_file_chooses_nothing_and_is_scored_again_by_predict(
    work: Path, electra: Electra, first: tuple[int, str, str]
) -> None:
    """Every seed is scored on it, the seed is chosen by dev, and the card has the score of the exported weights."""
    results = [json.loads((work / f"exp/cells/classification/seed-{n}/result.json").read_text()) for n in (1, 2)]
    dev, test = ([one["scores"][f"{split}/accuracy"] for one in results] for split in ("dev", "test"))
    own = test[dev.index(max(dev))]
    table, card = load_finetuned(work / "exp").table, (work / "exp/model/README.md").read_text()
    assert table["tested"] == ["test"] and table["scores"]["dev"]["accuracy"] == {"1": dev[0], "2": dev[1]}
    assert f"| test, accuracy | {100 * own:.1f} | 2 | {50 * sum(test):.1f} |" in card
    assert f"| dev, accuracy | 2 | {50 * sum(dev):.1f} |" in card
    page = (work / "exp" / "summary.md").read_text()
    assert "## Test" in page and "test/" not in page.partition("## All metrics")[2]
    assert json.loads((work / "exp" / "summary.json").read_text())["tested"]["classification"][0] == "test/accuracy"
    by_class = json.loads((work / "exp" / "summary.json").read_text())["classes"]["classification"]
    assert set(by_class) == {"dev", "test"} and sum(by_class["test"]["support"]) == 21
    best = results[dev.index(max(dev))]["reports"]["test"]
    assert by_class["test"] == best and "## classification, test: class by class" in page
    right = best["confusion"]
    assert sum(right.get(one, {}).get(one, 0) for one in ("fruit", "tool")) == round(21 * own)
    assert "test, class by class, these weights (x 100):" in card
    code, _, err = electra("predict", "exp/model", "test.csv", "--device", "cpu", "--out", "said.csv")
    right_in = f"Right in {round(21 * own)} of 21 rows of test.csv by column 'label' ({100 * own:.1f} %"
    assert code == 0 and right_in in err
    assert "calibration" not in err and "macro" not in err
    scores = Path("said-scores.md").read_text()
    assert f"accuracy: {100 * own:.1f}, macro_f1: " in scores and "| class | rows | precision | recall |" in scores
    text, label = zip(*rows(131)[110:], strict=True)
    write_csv(work / "odd.csv", list(zip(text, ("-1", *label[1:]), strict=True)))
    _, _, err = electra("predict", "exp/model", "odd.csv", "--device", "cpu")
    assert "not scored: odd.csv:2: label '-1' in column 'label' never occurs in the training file" in err


def test_no_function_has_the_name_of_a_room() -> None:
    """`electra_trainer.finetune` and `report` are functions before and after the rooms that they use are imported."""
    for name in ("finetune", "report"):
        assert f"electra_trainer.{name}" not in sys.modules
        with pytest.raises(ConfigError, match=f"{name}: missing a required argument"):
            getattr(electra_trainer, name)()
    assert electra_trainer.tasks.recipe.paper


def test_the_report_of_a_fine_tuning_experiment(electra: Electra, first: tuple[int, str, str]) -> None:
    code, out, err = electra("report", "exp")
    assert code == 0, err
    page = Path(out.strip()).read_text()
    assert out.strip() == "exp/report.html" and "classification seed 1" in page and "classification seed 2" in page
    assert "Training loss" in page and "generator" not in page


def test_pairs_and_numbers(electra: Electra) -> None:
    words = "finetune encoder --task regression --train pairs.jsonl --out numbers"
    code, out, _ = electra(*words.split(), *SHORT)
    assert code == 0
    assert "columns: text = 'premise', text pair = 'hypothesis', label = 'score'." in out
    assert "Next: electra predict numbers/model FILE --out predictions.csv" in out
    code, out, _ = electra("predict", "numbers/model", "pairs.jsonl", "--device", "cpu")
    said = list(csv.DictReader(out.splitlines()))
    assert code == 0 and len(said) == 50 and all(-100 < float(row["prediction"]) < 100 for row in said)


def test_tagging(work: Path, electra: Electra) -> None:
    words = "finetune encoder --task tagging --train words.conll --dev dev.conll --predict dev.conll --out tags".split()
    code, out, _ = electra(*words, *SHORT)
    assert code == 0 and "Predictions written to tags/predictions.conll." in out
    lines = (work / "tags" / "predictions.conll").read_text().splitlines()
    asked = (work / "dev.conll").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines if line] == [line.split("\t")[0] for line in asked if line]
    code, out, _ = electra("predict", "tags/model", "dev.conll", "--device", "cpu")
    assert code == 0 and out.splitlines() == lines


def test_the_words_are_where_they_were_in_training(work: Path, electra: Electra) -> None:
    """Label before word, and labels that look like spans and are none: the next command can be typed, and reads column 2 of
    a file; running text is split into words, with a note.
    """
    rows = {
        name: [line.split("\t")[::-1] for line in (work / name).read_text().splitlines()]
        for name in ("words.conll", "dev.conll")
    }
    for name, to, outside in (("words.conll", "turned.conll", "I-X\t"), ("dev.conll", "turned.dev", "O\t")):
        (work / to).write_text("".join("\t".join(one).replace("O\t", outside) + "\n" for one in rows[name]))
    words = "finetune encoder --task tagging --train turned.conll --out turned --label 1 --words 2 --scheme plain"
    code, out, _ = electra(*words.split(), *SHORT)
    assert code == 0 and "6 of 60 sentences were held out" in out
    table = json.loads((work / "turned/model/electra_task.json").read_text())
    assert table["task"]["scheme"] == "none" and table["task"]["labels"] == ["FRUIT", "I-X", "TOOL"]
    assert table["columns"]["words"] == "2" and table["columns"]["label"] == "1"
    (following,) = [line for line in out.splitlines() if line.startswith("Next: electra ")]
    following = following.removeprefix("Next: electra ")
    assert following.endswith("--out predictions.conll")
    code, _, err = electra(*following.replace("FILE", "dev.conll").split())
    assert code == 65 and "dev.conll: column 2 holds numbers or labels. Name the column of the words: --words N." in err
    assert not (work / "predictions.conll").exists()
    found = [one[-1] for one in rows["dev.conll"]]
    code, out, err = electra("predict", "turned/model", "turned.dev", "--device", "cpu")
    assert code == 0 and err == "electra: not scored: turned.dev:1: 134 of 160 labels are not in training.\n"
    assert [line.split("\t")[0] for line in out.splitlines()] == found
    assert electra("predict", "turned/model", "dev.conll", "--words", "1", "--device", "cpu") == (0, out, "")
    (work / "raw.txt").write_text(" ".join(word for word in found if word) + ".\n")
    code, out, err = electra("predict", "turned/model", "raw.txt", "--json", "--device", "cpu")
    assert code == 0 and json.loads(out)["words"] == [*(word for word in found if word), "."]
    assert "raw.txt: running text, a sentence a line, split into words like the training data (punctuation)" in err


def test_warnings_are_told(work: Path, electra: Electra) -> None:
    code, out, _ = electra(*f"{TRAIN} --dev dev.csv --out overlap".split(), *SHORT)
    assert code == 0
    assert (
        "warning: 1 of 21 development rows (4.76 %) are in the training file too, so the scores are too good: dev.csv:2 is train.csv:81."
        in out
    )
    assert electra(*f"{TRAIN} --dev dev.csv --out overlap --quiet".split(), *SHORT)[1].count("warning: 1 of 21") == 1
    assert "- warning: 1 of 21" in (work / "overlap" / "model" / "README.md").read_text()


WRONG: list[tuple[str, int, str]] = [
    ("finetune encoder --train trian.csv --out o", 66, "trian.csv: no such file or folder"),
    ("finetune encoder --train encoder --out o", 65, "encoder: is a folder, a file was expected"),
    (f"{TRAIN} --out o --seeds x", 78, "--seeds"),
    ("finetune encoder --train words.conll --dev dev.conll --task tagging --text text --out o", 78, "--text: --task tagging has no such flag. Leave it out"),
    ("finetune encoder --train words.conll --dev dev.conll --task tagging --pooling mean --out o", 78, "--pooling mean: tagging has no such representation of a text"),
    (f"{TRAIN} --task taging --out o", 78, "Known: classification, regression, multi-label, tagging"),
    (f"{TRAIN} --task regression --label-separator ; --out o", 78, "--label-separator: --task regression has no such flag. Leave it out"),
    (f"{TRAIN} --label-separator ; --class-weights balanced --out o", 78, "--class-weights: --task multi-label has no such flag. Leave it out"),
    (f"{TRAIN} --words 2 --out o", 78, "--words: --task classification has no such flag. Leave it out"),
    ("finetune encodre --train train.csv --out o", 66, "encodre: no such folder. Expected a run folder"),
    ("predict none new.csv", 66, "none: no such folder. Expected a fine-tuned model"),
    ("predict encoder new.csv", 66, "encoder: holds no electra_task.json"),
    ("predict exp/model news.csv", 66, "news.csv: no such file"),
    ("predict exp/model pairs.jsonl", 65, "pairs.jsonl: has no column 'text', which the training file has. Its columns: 'premise', 'hypothesis', 'score'. Rename it; in a file to predict it can be named: --text COLUMN"),
    ("predict exp/model new.csv --out ./new.csv", 78, "--out new.csv: is the file to predict"),
    ("predict exp/model new.csv --out said.tsv", 78, "--out said.tsv: expected a name that ends in .csv or .jsonl or .txt."),
    ("predict exp/model new.csv --out encoder", 78, "--out encoder: is a folder, expected a file"),
    ("predict exp/model new.csv --out no/where.csv", 74, "--out no/where.csv: the folder no does not exist. Make it, or choose another --out"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "expected", "said"), WRONG)
def test_faults_are_reported(
    work: Path, electra: Electra, first: tuple[int, str, str], words: str, expected: int, said: str
) -> None:
    code, _, err = electra(*words.split())
    assert code == expected and err.startswith("electra: ") and said in err
    assert not (work / "o").exists() or not list((work / "o").glob("cells/*/*"))


def changes(*words: str) -> dict[str, object]:
    given: dict[str, object] = read("finetune", ["M", "--train", "t.csv", "--out", "o", *words]).given
    return given


def test_flags_of_a_recipe() -> None:
    assert changes() == {}
    assert changes("--epochs", "2", "--dropout=0") == {"epochs": 2, "dropout": 0.0, "attention_dropout": 0.0}
    assert changes("--max-length", "128") == {"max_length": 128}, "given, though it is the default"


def test_the_help_of_a_recipe_s_flag_has_both_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("paper", "released"):
        assert main(["finetune", "--recipe", name, "--help-all"]) == 0
        shown = " ".join(
            capsys.readouterr().out.split("--weight-decay")[1].split("--dropout")[0].replace("│", "").split()
        )
        assert "Default: paper 0.0, released 0.01." in shown
    with pytest.raises(SystemExit):
        changes("--recipe", "relased")
    assert "invalid choice 'relased'" in capsys.readouterr().err


def test_every_field_of_a_recipe_is_a_flag_or_a_key(tmp_path: Path) -> None:
    """All of them reach the recipe, and none is left at its default."""
    given: dict[str, Any] = {
        "learning_rate": 1.0, "layer_decay": 0.5, "top_layer_power": 3, "epochs": 2.0, "batch_size": 7, "micro_batch": 3,
        "max_length": 9, "warmup_fraction": 0.3, "schedule": "released", "weight_decay": 0.2, "dropout": 0.4,
        "attention_dropout": 0.6, "head_dropout": "texts", "reduction": "sum", "clip_norm": 2.0, "double_unordered": True, "precision": "bf16",
        "pooling": "mean", "batches": "random",
        "keep": "best", "windows": True, "bias_correction": True, "zero_head": True,
    }  # fmt: skip
    assert given.keys() == {field.name for field in fields(Recipe)}
    (tmp_path / "all.json").write_text(json.dumps(given))
    made = changes("--config", str(tmp_path / "all.json"))
    assert made == given and vars(recipe("paper", hidden_size=256, **made)) == given  # type: ignore[arg-type]
    filed = given.keys() & FILE_ONLY
    words = (f"--{name.replace('_', '-')}={value}" for name, value in given.items() if name not in {*filed, "windows"})
    assert changes(*words, "--windows") == {name: one for name, one in given.items() if name not in filed} | {
        "attention_dropout": given["dropout"]
    }


def table(columns: tuple[str, ...], *values: tuple[Any, ...]) -> Table:
    return Table(path=Path("f.csv"), columns=columns, rows=values, lines=range(2, 2 + len(values)), sha256="")


def test_predictions_beside_any_columns() -> None:
    said = [{"label": "b", "probabilities": {"a": 0.25, "b": 0.75}}]
    assert predicted_csv(table(("prediction", "n"), ("x,y", 1)), said) == (
        'prediction,n,prediction_,probability,probability_a,probability_b\n"x,y",1,b,0.750000,0.250000,0.750000\n'
    )
    assert json.loads(predicted_jsonl(table(("prediction", "n"), ("x",)), said)) == {
        "prediction": "x", "prediction_": "b", "probabilities": {"a": 0.25, "b": 0.75},
    }  # fmt: skip
    for own, decimal in (("3,5", ","), ("3.5", "."), ("x", ",")):
        german = replace(table(("n",), (own,)), semicolons=True)
        assert predicted_csv(german, [{"value": 2.25}]) == f"n;prediction\n{own};2{decimal}25\n", "as Excel reads it"
    written = predicted_csv(table(("a", "b", "c"), (None, [1])), [{"value": 1700482048.0}])
    assert written == "a,b,c,prediction\n,[1],,1.70048205e+09\n"
    many = {f"c{n}": 1 / 30 for n in range(30)}
    written = predicted_csv(table(("t",), ("x",)), [{"label": "c3", "probabilities": many}])
    assert written == "t,prediction,probability\nx,c3,0.033333\n"
    head = predicted_csv(table(("t",), ("x",)), [{"labels": ["c3"], "probabilities": many}]).splitlines()[0]
    assert head == "t,prediction," + ",".join(f"probability_{name}" for name in many)
    written = tagged_text([{"words": ["a", "b"], "tags": ["X", "Y"]}, {"words": ["c"], "tags": ["X"]}])
    assert written == "a\tX\nb\tY\n\nc\tX\n\n"


def test_confusion() -> None:
    found = confusion_of(zip("aabbc", "abbbb", strict=True))
    assert found == {"a": {"a": 1, "b": 1}, "b": {"b": 2}, "c": {"b": 1}}
    assert confusion_table(found, ["a", "b", "c"]).text().splitlines()[1:] == [
        "a                 1  1  0",
        "b                 0  2  0",
        "c                 0  1  0",
    ]
    wide = [f"label {n}" for n in range(11)]
    assert confusion_table(found, wide).text().splitlines()[1:] == ["a     b             1", "c     b             1"]


def test_an_empty_list_is_predicted(work: Path, first: tuple[int, str, str]) -> None:
    model = load_finetuned(work / "exp" / "model")
    assert repr(model) == "<Finetuned: classification, from encoder>"
    assert model.predict([], device="cpu") == []
    assert model.predict(iter(["a", "b"]), device="cpu") == model.predict(["a", "b"], device="cpu")
    with pytest.raises(DataError, match="expected a list of texts"):
        model.predict("a text")
