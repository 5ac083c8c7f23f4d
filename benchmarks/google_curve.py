"""Train with the hyperparameters, rows and batch of a run of Google's own code, and write the same curve.

    python -m benchmarks.google_curve REFERENCE --seed 1 --out FOLDER/curve.csv [--steps 1000] [--precision fp32]
    python -m benchmarks.google_curve REFERENCE --check FOLDER

REFERENCE is a folder with `train_examples.npz` and `heldout_examples.npz` (input_ids, length, second_start).
The schedule always spans 1,000 steps; `--steps` stops earlier. Resumable it is not: a seed takes some minutes. How a curve was made, and
from which code, is in FOLDER/made.json (curve_record.py).

`--check` asks whether the curves of a folder are still those of this tree: it computes the first 120 steps of one seed of each arithmetic
again, in fresh processes, and where they are the recorded ones it writes the tree's code into made.json. Exit code 1: some are not.
It wants the kind of processor, the threads and the PyTorch of the record: rounding alone separates two runs within some steps.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import curve_record
from electra_trainer.batch import Batch, Masked
from electra_trainer.data.batches import batch_rows
from electra_trainer.data.masking import MaskTokens
from electra_trainer.objectives import Objective, build
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import BatchShape, Config, Masking, Model, Optimizer, Schedule
from electra_trainer.settings.methods import RTD, Learned
from electra_trainer.train.device import arithmetic, autocast
from electra_trainer.train.measures import keep_measured, measure
from electra_trainer.train.optim import build_optimizer, learning_rate

PAD, UNK, CLS, SEP, MASK = 0, 100, 101, 102, 103
COLUMNS = (
    "step",
    "loss",
    "generator_loss",
    "discriminator_loss",
    "generator_accuracy",
    "fake_rate",
    "discriminator_auc",
)
CHECKED = 120
"""Steps that `--check` computes again: those of the warm-up, and some of the decay."""
AGREE = 1e-4
"""Relative difference of a step's losses up to which it is the same. On the machine of the record it is that of six decimals; another
processor, or number of threads, sums in another order, and in bf16 the seventh step may differ by more: check where the record was made."""


def config(seed: int) -> Config:
    """The run that made the reference curve (dropout 0.1, positions drawn with replacement)."""
    return Config(
        preset="google_curve",
        seed=seed,
        model=Model(
            vocab_size=30522, embedding_size=64, hidden_size=128, num_hidden_layers=4, num_attention_heads=2,
            intermediate_size=512,
        ),
        generator=Learned(width=0.25),
        objective=RTD(weight=50.0),
        masking=Masking(fraction=0.15, mask_share=0.85, draw="with-replacement"),
        optimizer=Optimizer(learning_rate=1e-3),
        schedule=Schedule(steps=1000, warmup_steps=100),
        batch=BatchShape(size=32, sequence_length=128),
        last_layer="all",
    )  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """Rows in the released code's layout: one example each, padded."""

    ids_NT: NDArray[np.integer]
    length_N: NDArray[np.integer]
    second_N: NDArray[np.integer]

    @classmethod
    def read(cls, path: Path) -> Rows:
        """Read one of the two .npz files."""
        with np.load(path) as file:
            return cls(file["input_ids"], file["length"], file["second_start"])

    def batch(self, picked: NDArray[np.int64]) -> Batch:
        """Some rows as a batch."""
        ids_BT = torch.from_numpy(self.ids_NT[picked].astype(np.int64))
        columns_T = torch.arange(ids_BT.shape[1])
        length_B1 = torch.from_numpy(self.length_N[picked].astype(np.int64))[:, None]
        second_B1 = torch.from_numpy(self.second_N[picked].astype(np.int64))[:, None]
        real_BT = columns_T < length_B1
        return Batch(
            ids_BT=ids_BT,
            segment_BT=((columns_T >= second_B1) & (second_B1 > 0) & real_BT).long(),
            position_BT=columns_T.expand_as(ids_BT),
            piece_BT=real_BT.long(),
        )


def masker(settings: Config) -> MaskTokens:
    """The released code's masking for BERT's vocabulary."""
    return MaskTokens(masking=settings.masking, vocab_size=30522, mask_id=MASK, never=(PAD, CLS, SEP, MASK))


def step(objective: Objective, masked: Masked, rng: Rng, precision: str, *, diagnose: bool) -> dict[str, float]:
    """Forward and backward; returns the metrics of the step, only its losses without `diagnose`."""
    counts = {name: float(value) for name, value in objective.counts(masked).items()}
    rng.seed_dropout()
    with autocast(precision, torch.device("cpu")):
        losses = objective(masked, rng, diagnose=diagnose)
    losses.total(counts).backward()  # type: ignore[no-untyped-call]
    return measure([keep_measured(losses)], counts)


@torch.no_grad()
def held_out(objective: Objective, rows: Rows, mask: MaskTokens, precision: str) -> dict[str, float]:
    """Metrics over all held-out rows, dropout off."""
    objective.eval()
    seen, totals = [], {"masked": 0.0, "real": 0.0}
    for number, first in enumerate(range(0, len(rows.ids_NT), 64)):
        rng = Rng(0, 0, number)
        masked = mask(rows.batch(np.arange(first, min(first + 64, len(rows.ids_NT)))), rng)
        with autocast(precision, torch.device("cpu")):
            seen.append(keep_measured(objective(masked, rng, diagnose=True)))
        for name, value in objective.counts(masked).items():
            totals[name] += float(value)
    objective.train()
    return measure(seen, totals)


def run(reference: Path, *, seed: int, steps: int, precision: str, diagnose: bool = True) -> list[dict[str, float]]:
    """The first `steps` steps; the last row, step -1, is the held-out evaluation where the run was complete.

    Without `diagnose`, which takes a tenth of the time, the rows have the losses alone: for fewer than 100 steps.
    """
    settings = config(seed)
    rows, mask = Rows.read(reference / "train_examples.npz"), masker(settings)
    objective = build(settings)
    optimizer = build_optimizer(objective, settings.optimizer)
    curve, start = [], time.monotonic()
    for number in range(steps):
        rng = Rng(seed, number, 0)
        picked = batch_rows(number, rows=len(rows.ids_NT), size=settings.batch.size, seed=seed)
        metrics = step(objective, mask(rows.batch(picked), rng), rng, precision, diagnose=diagnose)
        torch.nn.utils.clip_grad_norm_(objective.parameters(), settings.optimizer.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(number, peak=settings.optimizer.learning_rate, schedule=settings.schedule)
        optimizer.step()
        optimizer.zero_grad()
        curve.append({"step": number + 1, **metrics})
        if (number + 1) % 100 == 0:
            print(f"step {number + 1}  {time.monotonic() - start:.0f} s  " + show(metrics), flush=True)
    if steps == settings.schedule.steps:
        final = held_out(objective, Rows.read(reference / "heldout_examples.npz"), mask, precision)
        print("held-out  " + show(final), flush=True)
        curve.append({"step": -1, **final})
    return curve


def show(metrics: dict[str, float]) -> str:
    """The columns that are compared, on one line."""
    return "  ".join(f"{name} {metrics[name]:.4f}" for name in COLUMNS[2:])


def losses(path: Path) -> NDArray[np.float64]:
    """Both losses of a curve's steps, [steps, 2]."""
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["step"]) > 0]
    return np.array([[float(row["generator_loss"]), float(row["discriminator_loss"])] for row in rows])


def compute_again(reference: Path, curve: Path, fact: dict[str, Any], steps: int, beside: str | None = None) -> str:
    """Compute a curve's first steps with this tree; empty where they are the recorded ones, else what differs.

    Args:
        beside: a revision whose tree computes them here, too, instead of the record, by the kernels of this processor: they have to be
            equal to the bit.
    """
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / curve.name
        words = ["--seed", str(fact["seed"]), "--precision", fact["precision"], "--steps", str(steps), "--out", again]
        words = [sys.executable, "-m", "benchmarks.google_curve", reference.resolve(), *words]
        kernels = re.search(r"native kernels \((\w+)\)", fact["arithmetic"])  # another processor may prefer others
        native = fact["native"] or (kernels[1] if kernels and not beside else "")
        environment = os.environ | {"ELECTRA_NATIVE": native, "OMP_NUM_THREADS": str(fact["threads"])}
        subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=True)
        here = curve_record.read(again.parent)[again.name]["arithmetic"]
        if here != fact["arithmetic"] and not beside:
            return f"it was made in {fact['arithmetic']}, and this machine computes in {here}"
        mine, recorded = losses(again), losses(curve)[:steps]
        if beside:
            old = Path(folder) / "old"
            subprocess.run(
                ["git", "worktree", "add", "--quiet", "--detach", old, beside], cwd=curve_record.ROOT, check=True
            )
            environment["PYTHONPATH"] = f"{old}/src"
            subprocess.run(words, env=environment, cwd=old, stdout=subprocess.DEVNULL, check=True)
            subprocess.run(["git", "worktree", "remove", "--force", old], cwd=curve_record.ROOT, check=True)
            recorded = losses(again)
        off_S = np.abs(mine / recorded - 1).max(1)
    wrong = np.flatnonzero(off_S > (0 if beside else AGREE))
    return f"step {wrong[0] + 1} differs by {off_S[wrong[0]]:.1e}" if len(wrong) else ""


def check(reference: Path, folder: Path, steps: int = CHECKED, beside: str | None = None) -> bool:
    """Whether all curves of a folder are this tree's; those that are get its code. `beside`: see compute_again."""
    made, right = curve_record.read(folder), True
    for arithmetic_of in sorted({fact["arithmetic"] for fact in made.values()}):
        names = sorted(name for name, fact in made.items() if fact["arithmetic"] == arithmetic_of)
        said = compute_again(reference, folder / names[0], made[names[0]], steps, beside)
        right = right and not said
        print(
            f"{arithmetic_of}: {said or f'{names[0]} has the same {steps} steps' + (f' as by {beside}' if beside else '')}",
            flush=True,
        )
        for name in [] if said else names:
            made[name] |= {
                "settings": curve_record.values(config(made[name]["seed"])),
                "code": curve_record.code_hash(),
            }
            made[name]["checked"] = {"steps": steps, "git": curve_record.git_revision()}
            made[name]["checked"] |= {"beside": beside} if beside else {}
    curve_record.write(folder, made)
    return right


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--out", type=Path, metavar="FILE")
    todo.add_argument("--check", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--beside", metavar="REV", help="with --check on another processor: compare with this revision, computed here"
    )
    asked = parser.parse_args()
    if asked.check:
        return 0 if check(asked.reference, asked.check, min(asked.steps, CHECKED), asked.beside) else 1
    curve = run(asked.reference, seed=asked.seed, steps=asked.steps, precision=asked.precision)
    with asked.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows({name: round(value, 6) for name, value in row.items()} for row in curve)
    fact = curve_record.facts(
        config(asked.seed),
        precision=asked.precision,
        arithmetic=arithmetic(asked.precision, torch.device("cpu")),
        threads=torch.get_num_threads(),
    )
    made = curve_record.read(asked.out.parent)
    curve_record.write(asked.out.parent, made | {asked.out.name: fact})
    return 0


if __name__ == "__main__":
    sys.exit(main())
