"""Facts that a run folder notes, and the remedy that it gives."""

import subprocess
import sys
from pathlib import Path

import pytest

from electra_trainer.errors import CheckpointError
from electra_trainer.runs import run_folder
from electra_trainer.runs.run_folder import RunFolder, environment_facts, git_revision, remedy


def test_the_revision_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes in the package count, others do not."""
    package = tmp_path / "package"
    (package / "runs").mkdir(parents=True)
    monkeypatch.setattr(run_folder, "__file__", str(package / "runs" / "run_folder.py"))
    assert git_revision() is None
    names = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (("init",), (*names, "commit", "--allow-empty", "-m", "x")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tmp_path, capture_output=True, text=True).stdout.strip()
    (tmp_path / "page.md").touch()
    assert git_revision() == head
    (package / "new.py").touch()
    assert git_revision() == f"{head}+changes"


def test_rows_without_a_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "metrics.jsonl").touch()
    folder.require_unsaved()
    (tmp_path / "metrics.jsonl").write_text("\n")
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl says that the run had one"):
        folder.require_unsaved()


def test_the_command_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["a/path", "pretrain", "data"])
    assert environment_facts()["command"] == ["electra", "pretrain", "data"]


REPEAT = "Repeat the command that it began with to resume, or choose another --out."


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (None, REPEAT),
        (["electra"], REPEAT),
        (["python", "own.py"], REPEAT),
        ("electra pretrain", REPEAT),
        (["electra", "pretrain", "a b"], "To resume, repeat what it began with: electra pretrain 'a b'  Otherwise choose another --out."),
        (["electra", "squad", "here"], "To resume: this  Otherwise choose another --out."),
    ],
)  # fmt: skip
def test_the_remedy_of_other_settings(words: object, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["electra", "squad", "here"])
    assert remedy({"command": words}, again="this") == said
    monkeypatch.setattr(sys, "argv", ["electra", "finetune"])
    assert remedy({"command": ["electra", "finetune"]}) == "Choose another --out."
