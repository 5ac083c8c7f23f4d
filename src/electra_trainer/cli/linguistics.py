"""The verbs `electra cloze RUN DATA` and `electra minimal-pairs RUN blimp/`."""

import json
from dataclasses import asdict, dataclass, is_dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from electra_trainer.files.table_writer import Table

if TYPE_CHECKING:
    from electra_trainer.experiments.statistics import Estimate
    from electra_trainer.paper.cloze import Cloze
    from electra_trainer.paper.minimal_pairs import MinimalPairs


@dataclass(frozen=True, kw_only=True)
class ClozeArguments:
    """ELECTRA as a masked language model (Appendix G): how often is a held-out word predicted, one masked word at a
    time.

    The generator alone, and generator and discriminator together, by argmax of D·p_G / (a(1-D) + p_G) over the
    generator's top words.
    """

    run: tyro.conf.Positional[Path]
    """Run folder, or exported folder with --p-mask. An MLM run gives its own accuracy."""
    data: tyro.conf.Positional[Path]
    """Prepared folder, with the tokenizer of the run; its held-out rows are read."""
    json: bool = False
    """Print one JSON object."""
    against: Path | None = None
    """Another run, such as an MLM run, that predicts the very same words."""
    rows: int = 256
    """Number of held-out rows, drawn at random."""
    per_row: int = 4
    """Words of each row, drawn at random, never special tokens."""
    top: int = 100
    """The generator's words that Appendix G chooses among."""
    seed: int = 0
    """Of rows and words."""
    p_mask: float | None = None
    """Share of masked tokens in the formula, a = (1 - p_mask) / p_mask; by default the run's."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


def run_cloze(arguments: ClozeArguments) -> None:
    """Print the accuracies."""
    from electra_trainer.paper.cloze import cloze
    from electra_trainer.pretrained.pretrained import load
    from electra_trainer.train.device import choose_device, use_threads

    use_threads()
    device = choose_device(arguments.device)
    found = cloze(
        load(arguments.run).to(device),
        arguments.data,
        against=load(arguments.against).to(device) if arguments.against is not None else None,
        rows=arguments.rows,
        per_row=arguments.per_row,
        top=arguments.top,
        seed=arguments.seed,
        p_mask=arguments.p_mask,
    )
    if arguments.json:
        print(json.dumps(as_json(found)))
    else:
        _show(found)


def _plain(value: Any) -> Any:
    """A value as JSON has it: an estimate is an object, and NaN (the standard error of a single row) is null."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, float) and not isfinite(value):
        return None
    return _plain(asdict(value)) if is_dataclass(value) and not isinstance(value, type) else value


def as_json(found: "Cloze") -> dict[str, Any]:
    """The result as one object, without the words themselves."""
    shown = ("accuracy", "difference", "among_top", "top", "positions", "rows", "per_row", "p_mask", "notes")
    return {name: _plain(getattr(found, name)) for name in shown}


def _show(found: "Cloze") -> None:
    print(
        f"{found.positions:,} held-out words in {found.rows:,} rows, at most {found.per_row} a row, each masked alone"
    )
    lines = {**found.accuracy, **found.difference}
    if found.among_top is not None:
        lines[f"in the generator's top {found.top:,}"] = found.among_top
    for name, estimate in lines.items():
        print(f"  {name:<26} {_percent(estimate)}")
    if found.p_mask is not None:
        print(f"appendix-g: p_mask = {found.p_mask:g}, a = {(1 - found.p_mask) / found.p_mask:.4g}")
    for note in found.notes:
        print(f"note: {note}")


def _percent(estimate: "Estimate") -> str:
    value, error, low, high = (
        100 * number for number in (estimate.value, estimate.standard_error, estimate.low, estimate.high)
    )
    return f"{value:6.2f} % ± {error:.2f}   95 %: {low:.2f} to {high:.2f}"


@dataclass(frozen=True, kw_only=True)
class MinimalPairsArguments:
    """In how many minimal pairs (BLiMP) the run scores the acceptable sentence above the other one; a tie is wrong.

    Scores: `discriminator`, `appendix-g` and `generator` of an ELECTRA run, `pseudo-likelihood` of an MLM run,
    `encoder` and `generator` of a replace-mlm or all-tokens-mlm run. All but `discriminator` take a forward pass for
    each token.
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
    """Only the first N pairs of each paradigm."""
    scores: str | None = None
    """Only these scores, names with commas between."""
    p_mask: float | None = None
    """Share of masked tokens in Appendix G's formula, for an exported folder or instead of the run's."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


def run_minimal_pairs(arguments: MinimalPairsArguments) -> None:
    """Print the accuracies."""
    from electra_trainer.paper.minimal_pairs import minimal_pairs
    from electra_trainer.pretrained.pretrained import load
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
        print(json.dumps(pairs_as_json(found)))
    else:
        _show_pairs(found)


def _names(words: str | None) -> list[str] | None:
    return [word.strip() for word in words.split(",") if word.strip()] if words is not None else None


def pairs_as_json(found: "MinimalPairs") -> dict[str, Any]:
    """The result as one object."""
    kept = ("mean", "standard_error", "paradigms", "fields", "terms")
    return {
        "scores": {name: {key: getattr(score, key) for key in kept} for name, score in found.scores.items()},
        "pairs": found.pairs,
        "ties": {name: score.ties for name, score in found.scores.items()},
        "identical": found.identical,
        "long": found.long,
        "limit": found.limit,
        "notes": found.notes,
    }


def _show_pairs(found: "MinimalPairs") -> None:
    scores = list(found.scores.values())
    rows: list[list[str]] = []
    for group in ("paradigms", "terms", "fields"):
        tables = [getattr(score, group) for score in scores]
        rows += [[name, *(f"{100 * table[name]:.1f}" for table in tables)] for name in tables[0]] + [[]]
    means = [f"{100 * score.mean:.2f} ± {100 * score.standard_error:.2f}" for score in scores]
    rows += [["mean over paradigms", *means], ["ties, counted wrong", *(f"{score.ties:,}" for score in scores)]]
    print(Table(head=["accuracy, %", *found.scores], rows=rows, words=1).text(least=18))
    part = "" if found.limit is None else f", the first {found.limit:,} or fewer of each paradigm"
    print(f"{found.pairs:,} pairs of {len(scores[0].paradigms)} paradigms{part}; ± is one standard error")
    if found.identical:
        print(f"{found.identical:,} pairs are two times the same tokens: a tie for every score")
    if found.long:
        print(f"{found.long:,} sentences are longer than the rows of training; the positions beyond were not trained")
    for note in found.notes:
        print(f"note: {note}")
