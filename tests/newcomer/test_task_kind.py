"""A newcomer's measure: a kind of task is its file and one table. The commit of docs/extending.md adds one."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from tests.finetuning.toy import write_model
from tests.test_extending import PAGE, ROOT, applied, run

(KIND,) = re.findall(r"```diff\n((?:(?!```).)*?tasks/ratings.*?)```", PAGE, re.DOTALL)
OUTSIDE = """
import os, sys
from pathlib import Path
os.chdir(sys.argv[1])
sys.path.insert(0, "")
from ratings import Ratings, RatingsTask
from electra_trainer import finetune, load_finetuned
task = RatingsTask(train=Path("stars.csv"), dev=Path("stars.csv"))
finetune("RUN", task, out="mine", seeds=1, epochs=1, device="cpu", parallel=1, quiet=True)
print(load_finetuned("mine", own=[Ratings]).task.labels)
"""


@pytest.mark.slow
def test_a_kind_of_task_is_two_places(tmp_path: Path) -> None:
    """Fine-tuned from the command line, its folder predicts; the same file works outside of the package."""
    assert re.findall(r"^\+\+\+ b/.*/(\w+\.py)$", KIND, re.M) == ["kinds.py", "ratings.py"]
    table = KIND.partition("diff --git a/src/electra_trainer/tasks/ratings.py")[0].splitlines()
    assert sum(line[:1] == "+" and line[:3] != "+++" for line in table) == 2, "its import and its line"
    source, work = applied(KIND, tmp_path), tmp_path / "work"
    write_model(work / "RUN", layers=2)
    texts = [(f"w{n + 20} w{n % 5} w{n % 5}", str(n % 5)) for n in range(10)]
    with (work / "stars.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "stars"), *texts])

    def electra(words: str) -> str:
        return run(source, "-m", "electra_trainer", *words.replace("@", f"{work}/").split(), "--device", "cpu")

    quick = "--seeds 1 --epochs 40 --learning-rate 5e-3 --parallel 1 --quiet"
    said = electra(f"finetune @RUN --task ratings --train @stars.csv --dev @stars.csv --out @out {quick}")
    assert "transformers has no class for its head" in said
    scores = json.loads((work / "out/cells/ratings/seed-1/result.json").read_text())["scores"]
    assert scores["dev/closeness"] > 0.7
    rows = list(csv.DictReader(electra("predict @out/model @stars.csv").splitlines()))
    away = [abs(int(row["prediction"]) - int(row["stars"])) for row in rows]
    assert 1 - sum(away) / 40 == pytest.approx(scores["dev/closeness"])
    shutil.copy(source / "electra_trainer/tasks/ratings.py", work)
    assert run(ROOT / "src", "-c", OUTSIDE, str(work)).endswith("('0', '1', '2', '3', '4')\n")
