"""The README's commands exist, and its journey runs as it is written, on a smaller scale."""

import json
import re
import shlex
from pathlib import Path

import pytest
from tests.finetuning.own_files import rows, write_csv, write_encoder
from tests.prepared import write_store, write_text
from tests.tasks.glue_samples import write_glue
from tests.test_site import help_of

from electra_trainer.cli.main import VERBS, main
from electra_trainer.presets.models import MODELS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", README, re.S)
COMMANDS = [
    line.split("#")[0].strip()
    for block in BLOCKS
    for line in block.replace("\\\n", "").splitlines()
    if line.startswith("electra ")
]


def test_commands_name_verbs_and_flags() -> None:
    assert len(COMMANDS) >= 9
    for command in COMMANDS:
        words = shlex.split(command)
        assert words[1] in VERBS
        for flag in (word for word in words if word.startswith("--")):
            assert flag in help_of(words[1], "--help"), f"{command}: {flag}"


def test_paths_of_tests_exist() -> None:
    for path in re.findall(r"`pytest ([^`]+)`", README):
        for name in path.split():
            assert (ROOT / name).exists(), name


def test_every_preset_is_in_the_table() -> None:
    for name in MODELS:
        assert f"`{name}`" in README


def test_it_is_read_in_three_minutes() -> None:
    lines = README.splitlines()
    assert len(lines) <= 130
    code = [line for block in re.findall(r"```\w*\n(.*?)```", README, re.S) for line in block.splitlines()]
    assert max(map(len, code)) <= 96
    assert not [line for line in code if re.search(r"\S\s+# ", line)], "a trailing comment"


def test_every_room_is_in_the_layout() -> None:
    layout = README.split("## Project layout")[1]
    for folder in (ROOT / "src" / "electra_trainer").iterdir():
        if folder.is_dir() and folder.name != "__pycache__":
            assert f"- `{folder.name}/` " in layout, folder.name


@pytest.mark.slow
@pytest.mark.usefixtures("quick_measurement")
def test_the_journey_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The block "Train on your text", line by line, with a smaller vocabulary, preset and length."""
    (tmp_path / "corpus").mkdir()
    write_text(tmp_path / "corpus" / "mine.txt")
    monkeypatch.chdir(tmp_path)
    journey = [command for command in block_after("## Train on your text") if "mine" in command or "corpus" in command]
    small = {"16384": "500", "mini": "tiny", "4h": "1s", "--seq-len 128": "--seq-len 32"}
    for command in journey:
        for old, new in small.items():
            command = command.replace(old, new)
        words = shlex.split(command)[1:]
        files = [str(path.relative_to(tmp_path)) for path in (tmp_path / "corpus").glob("*.txt")]
        words = [part for word in words for part in (files if word == "corpus/*.txt" else [word])]
        assert main(words) == 0, f"{command}\n{capsys.readouterr().err}"
    exec(next(block for block in re.findall(r"```python\n(.*?)```", README, re.S) if "AutoModel" in block), {})


def block_after(heading: str, page: str = README) -> list[str]:
    """The commands of the first shell block under a heading, their comments left out."""
    block = page.split(heading)[1].split("```bash\n")[1].split("```")[0].replace("\\\n", "")
    return [line.split("#")[0].strip() for line in block.splitlines() if line.startswith("electra ")]


@pytest.mark.slow
def test_the_fine_tuning_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The block on fine-tuning, line by line, on little data and for one epoch."""
    monkeypatch.chdir(tmp_path)
    write_encoder(tmp_path / "runs/mine")
    write_csv(tmp_path / "messages.csv", rows(120))
    write_csv(tmp_path / "new.csv", [(text,) for text, _ in rows(9)], header=("text",))
    write_glue(tmp_path / "glue")
    write_treebank(tmp_path / "ud")
    for split in ("train", "dev"):
        (tmp_path / "ud" / f"en-ud-{split}.conllu").rename(tmp_path / f"{split}.conllu")
        (tmp_path / f"{split}-v1.1.json").write_text(json.dumps(questions(split)), encoding="utf-8")
    dev = tmp_path / "dev.conllu"
    dev.write_text(
        "# dev\n" + dev.read_text(encoding="utf-8"), encoding="utf-8"
    )  # a copy of the training file would be refused
    (tmp_path / "page.txt").write_text("the red box was left on the table by ada", encoding="utf-8")
    commands = [*block_after("## Classify your texts"), *block_after("## Use it")]
    assert [shlex.split(command)[1] for command in commands] == [
        "finetune", "predict", "finetune", "glue", "squad", "answer",
    ]  # fmt: skip
    for command in commands:
        words = shlex.split(command.replace("--seeds 10", "--seeds 2"))[1:]
        if words[0] in ("finetune", "glue", "squad"):
            words += ["--epochs", "1", "--max-length", "32", "--parallel", "1"]
        assert main(words) == 0, f"{command}\n{capsys.readouterr().err}"
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 10
    assert "CoLA" in (tmp_path / "exp/glue/glue.md").read_text()


def questions(split: str) -> dict[str, object]:
    """A file of SQuAD 1.1 with a few questions."""
    context = "the red box was left on the table by ada and the old shop is in the garden"
    asked = [
        ("who left the box ?", "ada"),
        ("where is the shop ?", "in the garden"),
        ("what was left ?", "the red box"),
    ]
    listed = [
        {"id": f"{split}{n}", "question": question, "answers": [{"text": text, "answer_start": context.index(text)}]}
        for n, (question, text) in enumerate(asked)
    ]
    return {"version": "1.1", "data": [{"title": split, "paragraphs": [{"context": context, "qas": listed}]}]}


FEW = ["--steps", "4", "--batch.size", "16"]
SMALLER = {"pretrain": FEW, "compare": FEW, "cloze": ["--rows", "8"]}


@pytest.mark.slow
def test_the_experiments_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands of docs/analysis.md, line by line, on little text and for few steps."""
    (tmp_path / "data").mkdir()
    write_store(tmp_path / "data" / "wiki")
    write_pairs(tmp_path / "blimp")
    write_treebank(tmp_path / "ud-english-ewt")
    commands = block_after("## All of it, in commands", (ROOT / "docs" / "analysis.md").read_text(encoding="utf-8"))
    assert {shlex.split(command)[1] for command in commands} >= {
        "pretrain", "compare", "table", "figure", "cloze", "minimal-pairs", "flops",
    }  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for command in commands:
        command = command.replace("--flops 1e14 --seeds 3", "--seeds 1")
        words = shlex.split(command)[1:]
        words += SMALLER.get(words[0], [])
        assert main(words) == 0, f"{command}\n{capsys.readouterr().err}"
    assert (tmp_path / "figure1.svg").is_file() and (tmp_path / "exp/objectives/summary.md").is_file()


def write_pairs(folder: Path) -> None:
    """Minimal pairs in BLiMP's layout."""
    folder.mkdir()
    pairs = [
        {"sentence_good": f"the value of {n} is an object", "sentence_bad": f"the value {n} of object an is"}
        for n in "xyz"
    ]
    (folder / "order.jsonl").write_text("\n".join(json.dumps({**pair, "UID": "order"}) for pair in pairs) + "\n")


def write_treebank(folder: Path) -> None:
    """A treebank of one sentence, in CoNLL-U."""
    folder.mkdir()
    words = [("the", "DET"), ("value", "NOUN"), ("is", "AUX"), ("an", "DET"), ("object", "NOUN")]
    lines = [f"{n}\t{form}\t{form}\t{tag}" + "\t_" * 6 for n, (form, tag) in enumerate(words, 1)]
    for part in ("train", "dev"):
        (folder / f"en-ud-{part}.conllu").write_text("\n".join([*lines, "", ""]), encoding="utf-8")
