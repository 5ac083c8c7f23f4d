"""The scripts of examples/: what engines prepare is, byte for byte, what `prepare --shard` and `merge` make by hand, also after a SIGKILL."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from tests.command import Electra
from tests.data.test_prepare import contents

from electra_trainer.data.prepare import train_tokenizer_from
from electra_trainer.data.store import Store
from electra_trainer.data.tokenizer import save_tokenizer

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
TASKS = 2
ROWS = ("--seq-len", "64", "--valid-fraction", "0.1")


@pytest.fixture(autouse=True)
def found_by_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """corpus/, files of English prose with copies and fragments, and tok/."""
    folder = tmp_path_factory.mktemp("engines")
    texts = [" ".join(topics[name].split()) for name in sorted(topics)[:40]]
    (folder / "corpus").mkdir()
    for number in range(5):
        documents = [*texts[number::5], "too short", *texts[:2]]  # the same two in every file
        lines = "".join(json.dumps({"text": text, "id": f"{number}-{at}"}) + "\n" for at, text in enumerate(documents))
        (folder / f"corpus/part-{number}.jsonl").write_text(lines)
    tokenizer, _ = train_tokenizer_from([folder / "corpus"], vocab_size=400)
    save_tokenizer(tokenizer, folder / "tok", max_length=64)
    return folder


def by_hand(electra: Electra, text: Path, work: Path, out: Path) -> dict[str, bytes]:
    for number in range(TASKS, 0, -1):
        words = ("prepare", text, "--tokenizer", work / "tok", *ROWS, "--out", out / "shards")
        assert electra(*words, "--shard", f"{number}/{TASKS}", "--workers", 2)[0] == 0
    assert electra("merge", out / "shards", "--out", out / "data")[0] == 0
    return rows(out / "data")


def rows(folder: Path) -> dict[str, bytes]:
    """All that was made, but for the paths of the inputs, which are written down."""
    Store.open(folder, verify=True)
    return {name: content for name, content in contents(folder).items() if name.endswith((".bin", ".documents"))}


def killed_in_the_middle(command: list[str], sign: Path) -> None:
    """The whole group, once `sign` is there."""
    run = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 100
    while not sign.exists():
        assert run.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL


def test_an_engine_is_prepare_by_hand(electra: Electra, work: Path, tmp_path: Path) -> None:
    """Killed when a part of the shards was made, and started again."""
    out = tmp_path / "work"
    words = (work / "corpus", "--tokenizer", work / "tok", *ROWS, "--tasks", TASKS, "--out", out)
    command = [sys.executable, *map(str, (EXAMPLES / "datatrove_prepare.py", *words))]
    killed_in_the_middle(command, out / "shards/shard-00001-of-00002")
    assert not (out / "data").exists()
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert rows(out / "data") == by_hand(electra, out / "text", work, tmp_path / "hand")
    made = Store.open(out / "data", verify=True).manifest
    assert made.train.documents + made.valid.documents == 40  # no copy and no fragment


def test_a_slurm_array_is_prepare_by_hand(electra: Electra, work: Path, tmp_path: Path) -> None:
    job = EXAMPLES / "slurm_array.sbatch"
    subprocess.run(["bash", "-n", str(job)], check=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/electra").write_text(f'#!/bin/sh\nexec {sys.executable} -m electra_trainer "$@"\n')
    (tmp_path / "bin/electra").chmod(0o755)
    given = {"CORPUS": work / "corpus", "TOKENIZER": work / "tok", "SHARDS": tmp_path / "shards"}
    for number in (2, 1):
        slurm = {"SLURM_ARRAY_TASK_ID": number, "SLURM_ARRAY_TASK_COUNT": TASKS}
        variables = {name: str(value) for name, value in {**given, **slurm}.items()}
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        subprocess.run(
            ["bash", str(job), *ROWS], check=True, env={**os.environ, **variables, "PATH": path}, capture_output=True
        )
    assert electra("merge", tmp_path / "shards", "--out", tmp_path / "data")[0] == 0
    assert rows(tmp_path / "data") == by_hand(electra, work / "corpus", work, tmp_path / "hand")
