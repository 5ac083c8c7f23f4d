"""docs/extending.md, word for word: one file makes a new objective, and a kind of task."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.prepared import small_config, write_store

from electra_trainer.model import encoder
from electra_trainer.settings.records import to_dict

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
FILE, KIND = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(TRACKER,) = re.findall(r"```diff\n((?:(?!```).)*?CsvFile.*?)```", PAGE, re.DOTALL)
(VERB,) = re.findall(r"```diff\n((?:(?!```).)*?cli/pieces.*?)```", PAGE, re.DOTALL)
(LAYER,) = re.findall(r"```diff\n((?:(?!```).)*?model/encoder.py.*?)```", PAGE, re.DOTALL)
COMMANDS = re.search(r"```bash\n(.*?)```", PAGE, re.DOTALL)


def copied(to: Path) -> None:
    """The source with what Python has compiled of it, but for files that another process is about to rename."""
    shutil.copytree(ROOT / "src", to, ignore=shutil.ignore_patterns("*.pyc.*"))


def applied(diff: str, folder: Path) -> Path:
    """A copy of the source with a commit of the page."""
    copied(folder / "src")
    subprocess.run(["git", "apply", "-"], input=diff, text=True, check=True, cwd=folder)
    return folder / "src"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source with the commits of the tracker and the verb."""
    return applied(TRACKER + VERB, tmp_path_factory.mktemp("extended"))


def run(source: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=False, cwd=source
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PROGRAM = """
import contextlib, dataclasses, io, json, shutil, sys
from pathlib import Path
from electra_trainer.cli.main import main
from electra_trainer.inspection import report

report.rendered = lambda *_: b"<svg />"  # the report's figures would take most of the time
asked, found = json.loads(sys.argv[1]), {}
with contextlib.redirect_stdout(sys.stderr):
    found["page"] = [main(words) for words in asked["page"]]

    run = Path(asked["run"])
    found["tracker"] = [main(asked["tracker"])]
    shutil.rmtree(sorted((run / "checkpoints").glob("step-*"))[-1])
    found["tracker"].append(main(asked["tracker"]))

with contextlib.redirect_stdout(io.StringIO()) as said:
    main(["pieces", asked["tokenizer"], "the value"])
    main([])
found["verb"] = said.getvalue()

sys.path.insert(0, asked["root"])
from tests import small
from tests.methods.every import without_dropout
from tests.methods.test_every_method import ROWS, gradient, masks
import exchanged
from electra_trainer.objectives import build

config = without_dropout(dataclasses.replace(small.config(), objective=exchanged.ExchangedWords()))
def apart():
    made, whole = build(config), masks(config)
    expected = gradient(made, whole, [ROWS])
    return max(float((gradient(made, whole, sizes) - expected).norm() / expected.norm()) for sizes in ([6, 6], [1, 3, 8]))
found["apart"] = [apart()]
exchanged.next_in_row = lambda masked: masked.labels_K.roll(-1)
found["apart"].append(apart())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/, the page's file, and what the program writes."""
    folder = tmp_path_factory.mktemp("extending")
    write_store(folder / "data")
    (folder / "exchanged.py").write_text(FILE, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def found(source: Path, folder: Path) -> dict[str, Any]:
    """Results of the page's commands, tracker, verb and promises: in one process, since each imports PyTorch."""
    assert COMMANDS
    names = {"DATA": "data", "RUN": "run", "EXPORT": "export", "EXP": "exp", "exchanged.py": "exchanged.py"}
    places = {name: str(folder / place) for name, place in names.items()}
    commands = [[places.get(word, word) for word in line.split()] for line in COMMANDS[1].strip().splitlines()]
    assert all(words[0] == "electra" for words in commands)
    assert commands[0][1] == "pretrain"
    commands[0] += ["--batch.size", "32", "--masking.fraction", "0.2", "--objective.weight", "20"]
    commands[3] += ["--device", "cpu", "--parallel", "2"]
    config, tracked = folder / "config.json", folder / "tracked"
    config.write_text(json.dumps(to_dict(small_config())))
    asked = {
        "root": str(ROOT),
        "page": [words[1:] for words in commands],
        "run": str(tracked),
        "tracker": [
            "pretrain", str(folder / "data"), "--config", str(config), "--out", str(tracked), "--device", "cpu", "--quiet", "--track", "csv",
        ],
        "tokenizer": str(folder / "data" / "tokenizer"),
    }  # fmt: skip
    made: dict[str, Any] = json.loads(run(source, "-c", PROGRAM, json.dumps(asked)))
    return made


@pytest.mark.slow
def test_the_page_runs(found: dict[str, Any], folder: Path) -> None:
    """The commands of the page: trained, evaluated, exported, compared in two processes, reported; with the file noted."""
    assert COMMANDS and found["page"] == [0] * len(COMMANDS[1].strip().splitlines())
    config = json.loads((folder / "run" / "config.json").read_text())
    assert config["objective"] == {"kind": "exchanged-words", "weight": 20.0}
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    held_out = [row for row in rows if row.get("split") == "valid"]
    assert (
        0.05 < held_out[-1]["fake_rate"] < 0.25
        and held_out[-1]["discriminator_loss"] < held_out[0]["discriminator_loss"]
    )
    assert held_out[-1]["flops"] > 0 and held_out[-1]["flops_real"] > 0
    assert (folder / "export" / "discriminator" / "model.safetensors").is_file()
    assert '"exchanged.py": "sha256:' in (folder / "run" / "environment.json").read_text()
    summary = json.loads((folder / "exp" / "summary.json").read_text())
    assert [one["row"] for one in summary["contrasts"]] == ["heavy"] and not summary["unmeasured"]


@pytest.mark.slow
def test_it_keeps_the_promises(found: dict[str, Any]) -> None:
    """Uneven micro-batches give the same gradient, and the page's warning is true: a plain roll does not."""
    right, wrong = found["apart"]
    assert right < 2e-5 < 1e-2 < wrong


@pytest.mark.slow
def test_a_tracker(found: dict[str, Any], folder: Path) -> None:
    """The page's commit: a run that resumes sends every number once."""
    assert found["tracker"] == [0, 0]
    with (folder / "tracked/tracked/metrics.csv").open() as file:
        sent = [(step, name) for step, name, _ in csv.reader(file)]
    rows = [json.loads(line) for line in (folder / "tracked/metrics.jsonl").read_text().splitlines()]
    expected = [
        (str(row["step"]), f"{'eval' if 'split' in row else 'train'}/{name}")
        for row in rows
        for name, value in row.items()
        if name not in ("step", "split") and value is not None
    ]
    assert sorted(sent) == sorted(expected) and len(set(sent)) == len(sent)


@pytest.mark.slow
def test_a_verb(found: dict[str, Any]) -> None:
    """The page's commit: one new file, an import and a name in the table; the verb runs and is listed."""
    changed = [line for line in VERB.split("cli/main.py\n@@")[1].splitlines() if line.startswith(("+", "-"))]
    assert [line[0] for line in changed] == ["+", "-", "+"]
    assert found["verb"].splitlines()[0].split()[0] == "[CLS]" and "Print the word pieces of a text" in found["verb"]


def test_a_layer_with_another_arithmetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's commit: the kernels and the export refuse what they do not compute; a forward changed alone is noticed."""
    source = applied(LAYER, tmp_path)
    program = """
import torch
from electra_trainer.errors import ConfigError
from electra_trainer.kernels.declared import other_class
from electra_trainer.model.encoder import Layers
from electra_trainer.pretrained.export import shape_table
from electra_trainer.settings.config import Model

print(other_class(Layers(Model(num_hidden_layers=1)), "bert"))
try:
    shape_table(Model(), pad_id=0)
except ConfigError as error:
    print(error)
"""
    said = run(source, "-c", program).splitlines()
    assert said[0] == "Intermediate"
    assert said[1].startswith("export: Intermediate does not declare to be a part of BERT's block")
    removed, added = (re.findall(rf"^{re.escape(sign)}    +(.*)$", LAYER, re.MULTILINE) for sign in "-+")
    forward = (ROOT / "src/electra_trainer/model/encoder.py").read_text().replace(removed[-1], added[-1])
    assert "square()" in forward
    from tests.model import test_transformers

    changed = ModuleType("changed_encoder")
    exec(compile(forward, "encoder.py", "exec"), vars(changed))
    monkeypatch.setattr(encoder.Intermediate, "forward", changed.Intermediate.forward)
    for test in (test_transformers.test_discriminator, test_transformers.test_token_predictor):
        with pytest.raises(AssertionError):
            test("equal-widths")
