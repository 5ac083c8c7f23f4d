"""`electra minimal-pairs RUN blimp/`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

if TYPE_CHECKING:
    from electra_trainer.analysis.minimal_pairs import MinimalPairs


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """In how many minimal pairs (BLiMP) the run scores the acceptable sentence above the other one; a tie is wrong.

    Scores: `discriminator`, `appendix-g` and `generator` of an ELECTRA run, `pseudo-likelihood` of an MLM run, `encoder` and
    `generator` of a replace-mlm or all-tokens-mlm run. All but `discriminator` take a forward pass for each token.
    """

    run: tyro.conf.Positional[Path]
    """Run folder or exported folder."""
    folder: tyro.conf.Positional[Path]
    """Folder of BLiMP's .jsonl files, or one of them."""
    json: bool = False
    """Print one JSON object: scores (mean, standard_error, paradigms, fields, terms), pairs, ties."""
    paradigms: str | None = None
    """Only these paradigms, names with commas between."""
    limit: int | None = None
    """Only the first so many pairs of each paradigm."""
    scores: str | None = None
    """Only these scores, names with commas between."""
    p_mask: float | None = None
    """Share of masked tokens in Appendix G's formula, for an exported folder or instead of the run's."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


def run(arguments: Arguments) -> None:
    """Print the accuracies."""
    from electra_trainer.analysis.minimal_pairs import minimal_pairs
    from electra_trainer.score import load
    from electra_trainer.train.device import choose_device, use_threads

    use_threads()
    pretrained = load(arguments.run).to(choose_device(arguments.device))
    found = minimal_pairs(
        pretrained,
        arguments.folder,
        paradigms=_names(arguments.paradigms),
        limit=arguments.limit,
        scores=_names(arguments.scores),
        p_mask=arguments.p_mask,
    )
    if arguments.json:
        print(json.dumps(as_json(found)))
    else:
        _show(found)


def _names(words: str | None) -> list[str] | None:
    return [word.strip() for word in words.split(",") if word.strip()] if words is not None else None


def as_json(found: MinimalPairs) -> dict[str, Any]:
    """The result as one object."""
    kept = ("mean", "standard_error", "paradigms", "fields", "terms")
    return {
        "scores": {name: {key: getattr(score, key) for key in kept} for name, score in found.scores.items()},
        "pairs": found.pairs,
        "ties": {name: score.ties for name, score in found.scores.items()},
        "identical": found.identical,
        "long": found.long,
        "limit": found.limit,
        "notes": list(found.notes),
    }


def _show(found: MinimalPairs) -> None:
    scores = list(found.scores.values())
    lines = [["accuracy, %", *found.scores]]
    for group in ("paradigms", "terms", "fields"):
        tables = [getattr(score, group) for score in scores]
        lines += [[name, *(f"{100 * table[name]:.1f}" for table in tables)] for name in tables[0]] + [[]]
    means = [f"{100 * score.mean:.2f} ± {100 * score.standard_error:.2f}" for score in scores]
    lines += [["mean over paradigms", *means], ["ties, counted wrong", *(f"{score.ties:,}" for score in scores)]]
    width = max(len(line[0]) for line in lines if line)
    for line in lines:
        print("  ".join([line[0].ljust(width), *(cell.rjust(18) for cell in line[1:])]) if line else "")
    part = "" if found.limit is None else f", the first {found.limit:,} or fewer of each paradigm"
    print(f"{found.pairs:,} pairs of {len(scores[0].paradigms)} paradigms{part}; ± is one standard error")
    if found.identical:
        print(f"{found.identical:,} pairs are two times the same tokens: a tie for every score")
    if found.long:
        print(f"{found.long:,} sentences are longer than the rows of training; the positions beyond were not trained")
    for note in found.notes:
        print(f"note: {note}")
