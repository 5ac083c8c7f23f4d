"""The README's commands exist, and its journey runs as it is written, on a smaller scale."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.prepared import write_text

from electra_trainer.cli import VERBS
from electra_trainer.presets import PRESETS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", README, re.S)
COMMANDS = [
    line.split("#")[0].strip() for block in BLOCKS for line in block.splitlines() if line.startswith("electra ")
]


def test_commands_name_verbs_and_flags() -> None:
    assert len(COMMANDS) >= 9
    for command in COMMANDS:
        words = shlex.split(command)
        assert words[1] in VERBS
        page = subprocess.run(
            [sys.executable, "-m", "electra_trainer", words[1], "--help"], capture_output=True, text=True, check=True
        )
        for flag in (word for word in words if word.startswith("--")):
            assert flag in page.stdout, f"{command}: {flag}"


def test_links_and_paths_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
    for path in re.findall(r"`pytest ([^`]+)`", README):
        for name in path.split():
            assert (ROOT / name).exists(), name


def test_every_preset_is_in_the_table() -> None:
    for name in PRESETS:
        assert f"`{name}`" in README


def test_map_names_every_file() -> None:
    """Each module of the package stands in the map of the rooms."""
    page = README.split("## The map of the rooms")[1]
    package = ROOT / "src" / "electra_trainer"
    for path in package.rglob("*.py"):
        if path.stem not in ("__init__", "__main__") and path.parent.name != "verbs":
            assert path.name in page, path.relative_to(package)


@pytest.mark.slow
def test_the_journey_runs(tmp_path: Path) -> None:
    """The second block, line by line, with a smaller vocabulary, preset and length."""
    (tmp_path / "corpus").mkdir()
    write_text(tmp_path / "corpus" / "mine.txt")
    journey = [command for command in COMMANDS if "mine" in command or "corpus" in command]
    small = {"30522": "500", "small": "tiny", "4h": "8s", "--seq-len 128": "--seq-len 32"}
    for command in journey:
        for old, new in small.items():
            command = command.replace(old, new)
        words = shlex.split(command)[1:]
        files = [str(path.relative_to(tmp_path)) for path in (tmp_path / "corpus").glob("*.txt")]
        words = [part for word in words for part in (files if word == "corpus/*.txt" else [word])]
        done = subprocess.run(
            [sys.executable, "-m", "electra_trainer", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    code = next(block for block in re.findall(r"```python\n(.*?)```", README, re.S) if "AutoModel" in block)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
