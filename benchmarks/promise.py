"""What detection gains over prediction, each encoder read by its own best recipe: README's sentence, from prepared data.

    python -m benchmarks.promise DATA GLUE --out OUT [--arms rtd,mlm-80-10-10,fresh] [--seeds 1,2] [--flops 3e14]

Pre-trains each arm with each seed, at equal matrix products. Then for each encoder and task: every recipe is trained on nine tenths of the
training rows and scored on the tenth; the best one is trained on all of them with two seeds, and dev is read once. Prints every arm's
scores, and the first arm minus the others: by task with 95 % of a bootstrap of dev rows, and the mean of the tasks with Student's interval
over pre-trainings. OUT/scores.jsonl has every score; the same command goes on where it stopped.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from electra_trainer.errors import Diverged
from electra_trainer.experiments.statistics import compare_paired
from electra_trainer.finetuning.run import Job, finetune_run
from electra_trainer.pretrained.source import Source, load_source
from electra_trainer.randomness import drawn
from electra_trainer.tasks.glue_tasks import GlueTask
from electra_trainer.tasks.recipe import Recipe
from electra_trainer.tasks.texts import classification_scores, regression_scores

_MLM = "--objective mlm --phases joint --masking.fraction 0.15"
_RTD = "--objective rtd --objective.weight 50 --phases joint --sharing disentangled --generator.width 0.25 --masking.fraction 0.15"
ARMS = {
    "rtd": _RTD,
    "mlm": _MLM,
    "mlm-80-10-10": f"{_MLM} --masking.mask-share 0.8 --masking.random-share 0.1",
    "preset": "",
    "fresh": f"{_RTD} --learning-rate 1e-6 --optimizer.muon-learning-rate 1e-6",
}
"""Flags of `electra pretrain`; `fresh` takes one step at a rate that moves nothing."""
EPOCHS = {"cola": 9.0, "stsb": 10.0, "rte": 10 / 3}
LONG = {"qnli": 10.0}
MOST = 10_000
"""Training rows of a task, at most."""
VARIANTS: dict[str, dict[str, Any]] = {"released": {}, "corrected": {"bias_correction": True, "zero_head": True}}


def recipes(task: str, pair: bool) -> dict[str, Recipe | None]:
    """All but the long one; None: a linear model on frozen means."""
    epochs, found = EPOCHS.get(task, 3.0), dict[str, Recipe | None](frozen=None)
    for variant, fields in VARIANTS.items():
        for rate in (3e-4, 1e-3, 3e-3):
            found[f"mean {rate:g} {variant}"] = Recipe(pooling="mean", learning_rate=rate, epochs=epochs, **fields)
        if pair:
            found[f"pair {variant}"] = Recipe(pooling="pair", epochs=epochs, **fields)
    return found


def frozen(source: Source, train: Sequence[Any], scored: Sequence[Any]) -> list[Any]:
    """Predictions of a linear model on the means u of the text, or u·v and |u − v| of two texts."""
    rows, embedder = [*train, *scored], source.embedder()
    x = u = embedder.embed([one.text for one in rows])
    if rows[0].pair is not None:
        v = embedder.embed([one.pair for one in rows])
        x = np.concatenate([u * v, abs(u - v)], axis=1)
    known, asked = x[: len(train)], x[len(train) :]
    if train[0].label is None:
        model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(0, 6, 13)))
        return list(model.fit(known, [one.value for one in train]).predict(asked).clip(0, 5))
    found = GridSearchCV(LogisticRegression(max_iter=300), {"C": np.logspace(-5, 0, 6)}, cv=3)
    model = make_pipeline(StandardScaler(), found)
    return list(model.fit(known, [one.label for one in train]).predict(asked))


def score(task: str, truth: Any, given: Any) -> float:
    """Spearman, Matthews or accuracy."""
    if isinstance(truth[0], float):
        return regression_scores(truth, given, metrics=["spearman"])["spearman"]
    metric = "matthews" if task == "cola" else "accuracy"
    return classification_scores(truth, given, metrics=[metric])[metric]


class Scores:
    """OUT/scores.jsonl: what has been computed is not computed again."""

    def __init__(self, out: Path, device: str) -> None:
        self.path, self.scratch, self.device = out / "scores.jsonl", out / "tuning", device
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.lines = {tuple(line["key"]): line for line in map(json.loads, lines)}

    def read(
        self, key: tuple[str, ...], source: Source, data: Any, rows: Any, scored: Any, recipe: Recipe | None
    ) -> float:
        """Score of `scored` after training on `rows`; `key` is encoder, task, phase, recipe and seed."""
        if key not in self.lines:
            truth = [one.value if one.label is None else one.label for one in scored]
            given = (
                frozen(source, rows, scored) if recipe is None else self.tuned(key, source, data, rows, scored, recipe)
            )
            given = given or [truth[0]] * len(truth)  # it diverged, so that it has one answer
            line = {"key": key, "score": round(score(key[1], truth, given), 5)}
            if key[2] == "dev":
                line |= {
                    "truth": truth,
                    "given": [round(float(x), 3) if isinstance(truth[0], float) else str(x) for x in given],
                }
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            self.lines[key] = json.loads(json.dumps(line))
            print(*key, line["score"], flush=True)
        return float(self.lines[key]["score"])

    def tuned(self, key: Sequence[str], source: Source, data: Any, rows: Any, scored: Any, recipe: Recipe) -> list[Any]:
        """Predictions after fine-tuning; none where it diverged."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        held = replace(data, train=rows, dev={"dev": scored}, tested={}, test={})
        job = Job(source=source, data=held, recipe=recipe.fitted(source.length), seed=int(key[4]))
        try:
            finetune_run(job, out=self.scratch, device=self.device, quiet=True)
        except Diverged:
            return []
        text = (self.scratch / "predictions" / "dev.jsonl").read_text()
        found = [json.loads(line) for line in text.splitlines()]
        return [row["value"] if row.get("label") is None else row["label"] for row in found]

    def best(self, encoder: str, source: Source, task: str, glue: str) -> list[dict[str, Any]]:
        """Lines of dev by the recipe that was best on a tenth of the training rows."""
        data = GlueTask(task=task, folder=glue).load()
        rows = [
            data.train[index]
            for index in drawn(f"order/{task}", count=min(MOST, len(data.train)), total=len(data.train))
        ]
        tenth, rest, dev = rows[: len(rows) // 10], rows[len(rows) // 10 :], next(iter(data.dev.values()))
        todo = recipes(task, rows[0].pair is not None)
        found = {
            name: self.read((encoder, task, "tenth", name, "1"), source, data, rest, tenth, one)
            for name, one in todo.items()
        }
        base = max(("mean 0.001 released", "mean 0.001 corrected"), key=lambda name: found[name])
        kept, long = todo[base], f"{base} long"
        assert kept is not None
        todo[long] = replace(kept, epochs=LONG.get(task, 30.0))
        found[long] = self.read((encoder, task, "tenth", long, "1"), source, data, rest, tenth, todo[long])
        name = max(found, key=lambda one: found[one])
        keys = [(encoder, task, "dev", name, str(seed)) for seed in ((1,) if todo[name] is None else (1, 2))]
        for key in keys:
            self.read(key, source, data, rows, dev, todo[name])
        return [self.lines[key] for key in keys]


def over_rows(
    task: str, lines: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]
) -> tuple[float, float, float]:
    """Difference of two encoders' scores, means over fine-tuning seeds, and 95 % of a bootstrap of dev rows, × 100."""
    truth = np.array(lines[0]["truth"])
    sides = [[np.array(line["given"]) for line in side] for side in (lines, others)]

    def gap(rows: Any) -> float:
        first, second = (np.mean([score(task, truth[rows], given[rows]) for given in side]) for side in sides)
        return 100 * float(first - second)

    draws = np.random.default_rng(1).integers(0, len(truth), (2000, len(truth)))
    low, high = np.quantile([gap(rows) for rows in draws], [0.025, 0.975])
    return gap(np.arange(len(truth))), float(low), float(high)


def main(words: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("glue")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arms", default="rtd,mlm-80-10-10,fresh", help=", ".join(ARMS))
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--flops", default="3e14", help="matrix products of each pre-training")
    parser.add_argument("--tasks", default="stsb,qnli,mrpc,rte,cola,sst2")
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args(words)
    arms, seeds, tasks = asked.arms.split(","), asked.seeds.split(","), asked.tasks.split(",")
    usual = f"--preset {asked.preset} --learning-rate 7e-4 --optimizer.muon-learning-rate 0.01 --model.block modern"
    asked.out.mkdir(parents=True, exist_ok=True)
    fixed = {name: getattr(asked, name) for name in ("data", "glue", "flops", "preset")}
    if (kept := asked.out / "asked.json").exists() and json.loads(kept.read_text()) != fixed:
        parser.error(f"--out {asked.out}: it has scores of {kept.read_text()}. Take another folder.")
    kept.write_text(json.dumps(fixed))
    scores, found = Scores(asked.out, asked.device), dict[tuple[str, str, str], list[dict[str, Any]]]()
    for seed in seeds:
        for arm in arms:
            run = asked.out / f"{arm}-s{seed}"
            length = "--steps 1" if arm == "fresh" else f"--flops-real {asked.flops}"
            flags = f"{usual} {ARMS[arm]} {length} --seed {seed} --out {run} --device {asked.device}".split()
            subprocess.run([sys.executable, "-m", "electra_trainer", "pretrain", asked.data, *flags], check=True)
            source = load_source(run)
            for task in tasks:
                found[arm, seed, task] = scores.best(run.name, source, task, asked.glue)
    means = {key: 100 * float(np.mean([line["score"] for line in lines])) for key, lines in found.items()}
    for task in tasks:
        for seed in seeds:
            print(
                f"{task}, seed {seed}:",
                ", ".join(
                    f"{arm} {means[arm, seed, task]:.1f} ({found[arm, seed, task][0]['key'][3]})" for arm in arms
                ),
            )
            for other in arms[1:]:
                gap, low, high = over_rows(task, found[arms[0], seed, task], found[other, seed, task])
                print(f"  {arms[0]} − {other}: {gap:.1f} (95 % over rows: {low:.1f} to {high:.1f})")
    whole = {
        arm: {int(seed): float(np.mean([means[arm, seed, task] for task in tasks])) for seed in seeds} for arm in arms
    }
    for other in arms[1:]:
        pair = compare_paired(whole[arms[0]], whole[other])
        assert pair is not None
        interval = (
            ""
            if pair.t_interval is None
            else f" (95 % over pre-trainings: {pair.t_interval[0]:.1f} to {pair.t_interval[1]:.1f})"
        )
        print(f"mean of {len(tasks)} tasks, {arms[0]} − {other}: {pair.mean:.1f}, n = {pair.n}{interval}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
