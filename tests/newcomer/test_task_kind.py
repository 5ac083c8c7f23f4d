"""A newcomer's measure: a kind of task is one file, that of docs/extending.md."""

import csv
import json
from pathlib import Path

import pytest
from tests.finetuning.toy import write_model
from tests.test_extending import KIND, ROOT, run

from electra_trainer import load_finetuned
from electra_trainer.errors import DataError

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
def test_a_kind_of_task_is_one_file(tmp_path: Path) -> None:
    """Fine-tuned from the command line, its folder predicts; the same file works from Python."""
    write_model(tmp_path / "RUN", layers=2)
    (tmp_path / "ratings.py").write_text(KIND)
    texts = [(f"w{n + 20} w{n % 5} w{n % 5}", str(n % 5)) for n in range(10)]
    with (tmp_path / "stars.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "stars"), *texts])

    def electra(words: str) -> str:
        given = f"{words} --device cpu --import=@ratings.py".replace("@", f"{tmp_path}/").split()
        return run(ROOT / "src", "-m", "electra_trainer", *given)

    quick = "--seeds 1 --epochs 40 --learning-rate 5e-3 --parallel 1 --quiet"
    said = electra(f"finetune @RUN --task ratings --train @stars.csv --dev @stars.csv --out @out {quick}")
    assert "Next: electra predict" in said
    scores = json.loads((tmp_path / "out/cells/ratings/seed-1/result.json").read_text())["scores"]
    assert scores["dev/closeness"] > 0.7
    rows = list(csv.DictReader(electra("predict @out/model @stars.csv").splitlines()))
    away = [abs(int(row["prediction"]) - int(row["stars"])) for row in rows]
    assert 1 - sum(away) / 40 == pytest.approx(scores["dev/closeness"])
    with pytest.raises(
        DataError, match=r"'Ratings'.* made with ratings\.py \(sha256:\w{64}\)\. Add --import ratings\.py"
    ):
        load_finetuned(tmp_path / "out")
    assert run(ROOT / "src", "-c", OUTSIDE, str(tmp_path)).endswith("('0', '1', '2', '3', '4')\n")
