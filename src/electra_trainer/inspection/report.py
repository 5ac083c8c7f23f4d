"""Run folders -> one self-contained page with pictures: curves, health, real sentences, settings.

    RUN/metrics.jsonl      curves, headline numbers, health     needed
    RUN/examples.jsonl     sentences                            optional
    RUN/config.json        table of settings                    optional
    RUN/environment.json   table of the machine and versions    optional

The page is HTML without scripts or outside resources. Half a line, left by a run that was killed while writing, is skipped and noted.
"""

import base64
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from electra_trainer.errors import MissingInputError, StorageError, storage_error
from electra_trainer.files.durable import replace_durably
from electra_trainer.files.wording import duration, number, power, render
from electra_trainer.inspection.run_read import Run, finite, read_run
from electra_trainer.train import measures

THRESHOLD = 0.5
"""Probability from which a token counts as called replaced."""
ROWS, TOKENS = 12, 192
"""Most sentences on the page, and most tokens of each."""


def write_report(runs: Sequence[Path], *, out: Path | None = None) -> Path:
    """Write the page of one run, or of several overlaid, and its pictures.

    Args:
        runs: run folders, in the order of legends and tables.
        out: the page (`.html`) or a folder for it; None: the first run's folder. PNGs go to `figures/` next to the page.

    Returns:
        The page.

    Raises:
        MissingInputError: a run or its metrics.jsonl does not exist.
        DataError: a metrics.jsonl has no usable line.
        StorageError: a file cannot be read or written.
    """
    from electra_trainer.inspection.report_figures import draw

    if not runs:
        raise MissingInputError("No run was named. Type: electra report RUN")
    names = [path.resolve().name for path in runs]
    read = [
        read_run(path, name=name if names.count(name) == 1 else str(path))
        for path, name in zip(runs, names, strict=True)
    ]
    target = runs[0] / "report.html" if out is None else out if out.suffix == ".html" else out / "report.html"
    figures, pictures = target.parent / "figures", draw(read)
    try:
        figures.mkdir(parents=True, exist_ok=True)
        if figures.is_symlink():
            raise StorageError(
                f"{figures}: is a link, and pictures are written there. Remove it, or choose another --out."
            )
    except OSError as error:
        raise storage_error(error, target) from error
    for name, png in pictures.items():
        replace_durably(figures / f"{name}.png", png)
    replace_durably(target, _page(read, pictures).encode("utf-8", "replace"))  # a name may hold bytes that are not text
    return target


def _page(runs: Sequence[Run], pictures: Mapping[str, bytes]) -> str:
    """The whole document."""
    return render(
        "report.html",
        title=" · ".join(run.name for run in runs),
        runs=runs,
        compared=_by_name([_values(run) for run in runs]),
        held_out=all(run.valid for run in runs),
        health=[health(run) for run in runs],
        notes=[note for run in runs for note in run.notes],
        pictures={name: base64.b64encode(png).decode() for name, png in pictures.items()},
        sentences=[_sentences(run) for run in runs if run.examples],
        threshold=THRESHOLD,
        tables=[
            _settings("Settings", [run.config for run in runs]),
            _settings("Environment", [run.environment for run in runs]),
        ],
    )


def health(run: Run) -> tuple[str, str]:
    """("good" | "bad" | "", a sentence): is the run learning? With the verdict of the log (train/measures.py)."""
    entropy, uniform = run.last("generator_entropy"), run.vocabulary_entropy
    loss, constant, auc = (run.last(f"discriminator_{name}") for name in ("loss", "constant_loss", "auc"))
    if math.isnan(loss):
        text = f"Masked language model at a loss of {number(run.last('generator_loss'))} nats"
        if math.isnan(uniform):
            return "", f"{text}."
        learning = run.last("generator_loss") < 0.9 * uniform
        verdict = "learning" if learning else "no better than guessing yet"
        return "good" if learning else "bad", f"{text} against {uniform:.2f} for a uniform guess: {verdict}."
    if math.isnan(constant):
        rate = run.last("fake_rate")
        constant = measures.binary_entropy(rate) if 0 < rate < 1 else math.nan
    text = f"Discriminator {number(loss)} against {number(constant)} for the constant guess, AUC {number(auc)}: "
    if entropy > 0.9 * uniform:
        return "bad", f"{text}the generator is still close to a uniform guess ({entropy:.2f} of {uniform:.2f} nats)."
    words = measures.verdict(loss, constant=constant, auc=auc)
    return {measures.LEARNING: "good", measures.BEGINNING: ""}.get(words, "bad"), f"{text}{words}."


def _values(run: Run) -> dict[str, str]:
    """Headline numbers that the run has; held out wherever it was evaluated."""
    newest = {
        name: max((value for _, value in finite(run.train + run.valid, name)), default=math.nan)
        for name in ("step", "tokens", "flops", "seconds")
    }
    speeds = [speed for _, speed in finite(run.train, "tokens_per_second")]
    numbers = {
        "discriminator AUC": run.last("discriminator_auc"),
        "discriminator loss": run.last("discriminator_loss"),
        "loss of the constant guess": run.last("discriminator_constant_loss"),
        "fake rate": run.last("fake_rate"),
        "generator loss": run.last("generator_loss"),
        "generator accuracy": run.last("generator_accuracy"),
        "steps": newest["step"],
        "tokens": newest["tokens"],
        "FLOPs": newest["flops"],
        "time": newest["seconds"],
        "tokens per second": statistics.median_high(speeds) if speeds else math.nan,
    }
    worded = {"FLOPs": power, "time": duration}
    return {name: worded.get(name, number)(value) for name, value in numbers.items() if math.isfinite(value)}


def _by_name(tables: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Name -> its value in each table; a dash where a table lacks it."""
    return {name: [table.get(name, "–") for table in tables] for table in tables for name in table}


def _settings(title: str, tables: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Settings by name, one column per run; those that differ are tinted and come first."""
    rows = [
        {"name": name, "cells": cells, "differs": len({table.get(name) for table in tables}) > 1}
        for name, cells in _by_name(tables).items()
    ]
    rows.sort(key=lambda row: not row["differs"])
    return {"title": title, "rows": rows, "differing": sum(bool(row["differs"]) for row in rows)}


def _sentences(run: Run) -> dict[str, Any]:
    """Held-out text as the discriminator read it, and how many of its guesses were right."""
    rows = run.examples[:ROWS]
    judged = all(row.get("probability") is not None for row in rows)
    pairs = [pair for row in rows for pair in zip(_replaced(row), row["probability"], strict=True)] if judged else []
    called = [replaced for replaced, probability in pairs if probability >= THRESHOLD]
    fakes = sum(replaced for replaced, _ in pairs)
    return {
        "run": run.name,
        "step": run.examples_step,
        "judged": judged,
        "hits": sum(called),
        "fakes": fakes,
        "alarms": len(called) - sum(called),
        "originals": len(pairs) - fakes,
        "sentences": [tokens_of(row) for row in rows],
    }


def _replaced(row: Mapping[str, Any]) -> list[bool]:
    """Which tokens were replaced; none in a run without a discriminator."""
    return row.get("replaced") or [False] * len(row["original"])


def tokens_of(row: Mapping[str, Any]) -> list[dict[str, str]]:
    """What sentence.html.j2 shows of each token: kind, text before and after, the probability of "replaced", a space before it."""
    chances = row.get("probability") or [math.nan] * len(row["original"])
    columns = zip(row["original"], row["input"], row["masked"], _replaced(row), chances, strict=True)
    tokens: list[dict[str, str]] = []
    for index, (original, read, masked, replaced, chance) in enumerate(columns):
        if original == "[PAD]":
            continue
        if index == TOKENS:
            return [*tokens, {"kind": "", "original": "…", "read": "…", "chance": "", "space": " "}]
        called = chance >= THRESHOLD
        kinds = {"hit": replaced and called, "miss": replaced, "alarm": called, "masked": masked}
        special = "special" if original in ("[CLS]", "[SEP]") else ""
        token = {
            "kind": next((kind for kind, holds in kinds.items() if holds), special),
            "original": original.removeprefix("##"),
            "read": read.removeprefix("##"),
            "chance": "" if math.isnan(chance) else f"{chance:.0%}",
            "space": "" if not tokens or read.startswith("##") else " ",
        }
        tokens.append(token)
    return tokens
