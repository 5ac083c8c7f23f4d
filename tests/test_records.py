"""Records: each names the code that it ran, and README's scores are those of its raw runs, with n, head and budget."""

import functools
import json
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import pytest
from benchmarks import promise as command
from tests.prepared import write_store
from tests.tasks.glue_samples import write_glue

from electra_trainer.tasks.recipe import Recipe

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "records"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted(RECORDS.glob("*/README.md"))
COMMIT = re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{7,40}\b")
SIX = ("cola", "sst2", "mrpc", "stsb", "rte", "qnli")
METRICS = ("matthews", "spearman", "accuracy")


def git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)


@functools.cache
def in_history(commit: str) -> bool:
    return git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0  # and not only among the objects


def code_is_named(page: str, exists: Callable[[str], bool]) -> bool:
    """A commit that exists, and none that does not, or the words that there is none."""
    commits = {one for one in COMMIT.findall(page) if not one.isdecimal()}
    if not all(map(exists, commits)):
        return "was rebased" in page
    return bool(commits) or "be repeated from a commit" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_a_record_names_its_code(page: Path) -> None:
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("needs the repository's history")
    for record in page.read_text(encoding="utf-8").split("\n---\n"):  # a folder may have several runs of one question
        assert code_is_named(record, in_history), record[:80]


def test_a_record_without_code_is_found() -> None:
    assert not code_is_named("2026-11-28, torch 2.13.0, 12345678 tokens.", lambda commit: True)
    assert not code_is_named("Code at 0011e99f.", lambda commit: False)
    assert code_is_named("Code at 0011e99f.", lambda commit: True)


def test_every_record_is_in_the_index() -> None:
    index = (RECORDS / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in RECORDS.iterdir() if path.is_dir() and f"]({path.name})" not in index] == []


def scores(record: str) -> list[Mapping[str, object]]:
    return [json.loads(line) for line in (RECORDS / record / "glue.jsonl").read_text(encoding="utf-8").splitlines()]


def by_task(record: str, runs: str, head: str) -> dict[str, float]:
    """Means over the fine-tunings of a pre-training, then over pre-trainings, of the main metric x 100. A task of one
    text has the plain head alone.
    """
    found: dict[str, dict[object, list[float]]] = {task: {} for task in SIX}
    for one in scores(record):
        own_head = one.get("pooling", "mean") == ("mean" if one["task"] in ("cola", "sst2") else head)
        used = own_head and not (head == "pair" and one["task"] == "stsb" and one["epochs"] != 3)
        if re.fullmatch(runs, str(one["run"])) and used and one["task"] in SIX:
            value = next(100 * float(str(one[name])) for name in METRICS if name in one)
            found[str(one["task"])].setdefault(one["run"], []).append(value)
    return {task: mean(mean(values) for values in runs.values()) for task, runs in found.items()}


@dataclass(frozen=True)
class Sentence:
    start: str
    record: str
    words: tuple[str, ...]
    """Head, n and budget, as the sentence says them."""
    figures: Callable[[], Mapping[str, float]]
    """Recomputed figures, by how README shows them."""


def promise() -> dict[str, float]:
    rtd, mlm = (by_task("2026-11-25-promise", rf"e2-{arm}-15-2\.3e15-s\d", "mean") for arm in ("rtd", "mlm"))
    apart = {task: (rtd[task] - mlm[task]) / len(SIX) for task in SIX}
    means = {"**63.3**": mean(rtd.values()), "MLM 47.0": mean(mlm.values())}
    return means | {"13.3": apart["stsb"] + apart["qnli"], "16.3": sum(apart.values())}


def a_day() -> dict[str, float]:
    heads = {head: mean(by_task("2026-11-27-a-day", "day", head).values()) for head in ("mean", "pair")}
    return {"70.4": heads["mean"], "70.7": heads["pair"]}


SENTENCES = [
    Sentence("- **`mini` (4 × 256)** has", "2026-11-27-a-day",
             ("plain head", "n = 1", "733M tokens", "2.3e16 FLOPs", "rebuild"), a_day),
    Sentence("With 15 % of the words masked", "2026-11-25-promise",
             ("plain mean head", "n = 2", "2.3e15", "85 % [MASK], 15 % kept", "80/10/10", "promise-heads"), promise),
]  # fmt: skip


@pytest.mark.parametrize("sentence", SENTENCES, ids=lambda sentence: sentence.start[:20])
def test_scores_of_the_readme_are_those_of_the_runs(sentence: Sentence) -> None:
    said = next(block for block in re.split(r"\n\n|\n(?=\|)", README) if block.startswith(sentence.start))
    assert [words for words in sentence.words if words not in " ".join(said.split())] == []
    for shown, value in sentence.figures().items():
        assert shown in " ".join(said.split())
        assert abs(float(re.findall(r"[\d.]+", shown)[-1]) - value) <= 0.0501, (shown, value)
    assert COMMIT.search((RECORDS / sentence.record / "README.md").read_text(encoding="utf-8"))


def test_the_promise_has_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """README's, scaled down: both arms are pre-trained and read by all recipes; once more, it computes no score again."""
    few = {f"mean 0.001 {name}": Recipe(pooling="mean", epochs=1.0) for name in command.VARIANTS}
    monkeypatch.setattr(command, "recipes", lambda *_: {"frozen": None, **few})
    given, scores = [write_store(tmp_path / "data"), write_glue(tmp_path / "glue", ["cola", "stsb"], train=40)], []
    for _ in range(2):
        short = f"--out {tmp_path} --preset tiny --flops 1e11 --seeds 1 --tasks cola,stsb --arms rtd,fresh"
        assert command.main([*map(str, given), *short.split()]) == 0
        scores.append((tmp_path / "scores.jsonl").read_text())
    assert scores[0] == scores[1] and scores[0].count('"tenth"') == 2 * 2 * 4  # the better mean for longer, too
