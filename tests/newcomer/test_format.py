"""A newcomer's measure: a format of rows is one place. `format.patch` adds one, FASTA, and every verb reads it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATCH = Path(__file__).with_name("format.patch")
READ = """
import sys
from electra_trainer.cli.embed import read_texts
from electra_trainer.data.corpus import CorpusReport, documents
from electra_trainer.tasks.own_files import OwnTask
folder, file = sys.argv[1:]
for path in (folder, file):
    print([" ".join(one) for one in documents([path], report=CorpusReport())])
print(read_texts(file, column=None)[1])
print(sorted({one.label for one in OwnTask(train=file, dev=file).load().train}))
"""


def test_a_format_is_one_place(tmp_path: Path) -> None:
    lines = PATCH.read_text(encoding="utf-8").splitlines()
    assert [line[:2] for line in lines if line.startswith(("@@", "+++"))] == ["++", "@@"], "one file, one place"
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "apply", PATCH], cwd=tmp_path, check=True)
    (tmp_path / "rows").mkdir()
    file = tmp_path / "rows" / "a.fasta"
    texts = [f"MKVL{'A' * n} GG" for n in range(12)]
    records = [f">{'ab'[n % 2]}\n{text[:6]}\n{text[6:]}\n" for n, text in enumerate(texts)]
    file.write_text("".join(records))
    words = [sys.executable, "-c", READ, str(file.parent), str(file)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(texts)] * 3 + ["['a', 'b']"]
