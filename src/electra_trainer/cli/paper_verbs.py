"""The verbs `electra table 4 EXP [EXP …]`, `electra figure 1|3|4 EXP [EXP …]` and `electra figure 2 RUN`.

The verbs `electra cloze RUN DATA` and `electra minimal-pairs RUN blimp/`.
"""

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from electra_trainer.errors import ConfigError
from electra_trainer.files import durable, table_writer
from electra_trainer.settings.records import run_and_step

if TYPE_CHECKING:
    from electra_trainer.experiments import results, statistics
    from electra_trainer.paper.cloze import Cloze
    from electra_trainer.paper.minimal_pairs import MinimalPairs
    from electra_trainer.pretrained.pretrained import Pretrained


@dataclass(frozen=True, kw_only=True)
class TableArguments:
    """A table of the paper with the cells of your experiments under the paper's."""

    number: tyro.conf.Positional[int]
    """1, 2, 3, 4 or 7."""
    experiments: tyro.conf.Positional[tuple[Path, ...]]
    """Experiment folders of electra compare, glue, squad or finetune, records of them, or run folders of electra
    pretrain.
    """
    format: Literal["md", "tex", "csv"] | None = None
    """Markdown, LaTeX (booktabs) or CSV; default: as the ending of --out says, else md."""
    metrics: tuple[str, ...] = ()
    """Metrics in further columns, for example pos/accuracy "held-out/*"; default: all of at most two levels."""
    out: Path | None = None
    """File to write; links are relative to its folder. Default: the terminal, links relative to this folder."""


def run_table(arguments: TableArguments) -> None:
    """Write the table and print where, or print the table."""
    from electra_trainer.paper.paper_tables import build_table, write

    if not arguments.experiments:
        raise ConfigError("table: give at least one experiment folder, for example: electra table 4 experiments/tiny")
    table = build_table(arguments.number, _read(arguments.experiments), metrics=arguments.metrics)
    out = arguments.out
    endings: dict[str, Literal["md", "tex", "csv"]] = {".md": "md", ".tex": "tex", ".csv": "csv"}
    if out is not None and arguments.format is None and out.suffix not in endings:
        raise ConfigError(f"--out {out}: expected a name that ends in {', '.join(endings)}, or --format.")
    form = arguments.format or endings.get(out.suffix if out else "", "md")
    text = write(table, form, base=out.parent if out else Path())
    if out is None:
        print(text, end="")
        return
    durable.write_output(out, text.encode())
    print(out)


def _read(paths: Sequence[Path]) -> "list[results.Findings]":
    from electra_trainer.experiments.results import read_experiment

    return [read_experiment(path) for path in dict.fromkeys(paths)]


@dataclass(frozen=True, kw_only=True)
class FigureArguments:
    """A figure of the paper: 1, 3 and 4 from experiments, 2 (the worked example) from one run."""

    number: tyro.conf.Positional[int]
    """1: score against compute; 2: the worked example; 3: generators and training algorithms; 4: model sizes."""
    paths: tyro.conf.Positional[tuple[Path, ...]]
    """Experiment folders, records or run folders; for figure 2 one run folder or exported folder."""
    metric: str | None = None
    """Figures 1, 3, 4: the metric, for example pos/accuracy; default: the first usual one that all arms share."""
    text: str | None = None
    """Figure 2: a sentence; default: the paper's, "the chef cooked the meal"."""
    mask: str | None = None
    """Figure 2: words to mask, from 1, for example 1,3; default: the paper's for its sentence, else one in seven."""
    seed: int = 1
    """Figure 2: seed of the generator's samples (and of the words to mask)."""
    out: Path | None = None
    """.svg, .png or .pdf; default: figure-N.svg in the first folder."""


def run_figure(arguments: FigureArguments) -> None:
    """Draw the figure and print where; figure 2 is printed as well."""
    if not arguments.paths:
        raise ConfigError(
            "figure: give experiment folders (figure 2: a run), for example: electra figure 1 experiments/tiny"
        )
    out = arguments.out or run_and_step(arguments.paths[0])[0] / f"figure-{arguments.number}.svg"
    form = out.suffix.lower().removeprefix(".")
    content = _worked_example(arguments, form) if arguments.number == 2 else _from_experiments(arguments, form)
    durable.write_output(out, content)
    print(out)


def _from_experiments(arguments: FigureArguments, form: str) -> bytes:
    from electra_trainer.paper.figures import draw_figure

    if arguments.text is not None or arguments.mask is not None:
        raise ConfigError(f"--text and --mask belong to figure 2, not to figure {arguments.number}.")
    return draw_figure(arguments.number, _read(arguments.paths), metric=arguments.metric, form=form)


def _worked_example(arguments: FigureArguments, form: str) -> bytes:
    from electra_trainer.files.terminal import Terminal
    from electra_trainer.paper import worked_example as figure
    from electra_trainer.pretrained.pretrained import load

    if len(arguments.paths) != 1:
        raise ConfigError(f"figure 2: expected one run, found {len(arguments.paths)}.")
    if arguments.metric is not None:
        raise ConfigError("--metric belongs to figures 1, 3 and 4.")
    text = figure.PAPER_TEXT if arguments.text is None else arguments.text
    mask = figure.PAPER_MASK if text == figure.PAPER_TEXT and arguments.mask is None else _mask(arguments, text)
    example = figure.worked_example(load(arguments.paths[0]), text, mask=mask, seed=arguments.seed)
    parts = arguments.paths[0].resolve().parts
    name = "/".join(parts[-3:]) if parts[-1] == "run" else parts[-1]  # a cell of an experiment: ARM/seed-N/run
    content = figure.draw_example(example, name=name, form=form)
    Terminal(highlight=False, soft_wrap=True).print(figure.terminal_table(example))
    return content


def _mask(arguments: FigureArguments, text: str) -> tuple[int, ...]:
    """The words to mask, counted from 1: as given, else one word in seven."""
    if arguments.mask is None:
        words = len(text.split())
        count = max(1, round(words / 7)) if words else 0
        return tuple(sorted(random.Random(arguments.seed).sample(range(1, words + 1), k=count)))
    try:
        return tuple(sorted({int(word) for word in arguments.mask.split(",")}))
    except ValueError:
        raise ConfigError(
            f"--mask {arguments.mask}: expected numbers of words between commas, for example 1,3."
        ) from None


@dataclass(frozen=True, kw_only=True)
class ClozeArguments:
    """ELECTRA as a masked language model (Appendix G): how often is a held-out word predicted, one masked word at a
    time.

    The generator alone, and generator and discriminator together, by argmax of D·p_G / (a(1-D) + p_G) over the
    generator's top words.
    """

    run: tyro.conf.Positional[Path]
    """Run folder (RUN@STEP: a checkpoint before the newest), or exported folder with --p-mask. An MLM run gives its own
    accuracy.
    """
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
    """Seed that draws the rows and words."""
    p_mask: float | None = None
    """Share of masked tokens in the formula, a = (1 - p_mask) / p_mask; by default the run's."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac."""


def run_cloze(arguments: ClozeArguments) -> Any:
    """Print the accuracies."""
    from electra_trainer.paper.cloze import cloze

    against = _loaded(arguments.against, arguments.device) if arguments.against is not None else None
    found = cloze(
        _loaded(arguments.run, arguments.device),
        arguments.data,
        against=against,
        rows=arguments.rows,
        per_row=arguments.per_row,
        top=arguments.top,
        seed=arguments.seed,
        p_mask=arguments.p_mask,
    )
    if arguments.json:
        return as_json(found)
    _show(found)


def _loaded(run: Path, device: str) -> "Pretrained":
    from electra_trainer.pretrained.pretrained import load
    from electra_trainer.train.device import choose_device, use_threads

    use_threads()
    return load(run).to(choose_device(device))


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


def _percent(estimate: "statistics.Estimate") -> str:
    value, error, low, high = (
        100 * number for number in (estimate.value, estimate.standard_error, estimate.low, estimate.high)
    )
    return f"{value:6.2f} % ± {error:.2f}   95 %: {low:.2f} to {high:.2f}"


@dataclass(frozen=True, kw_only=True)
class MinimalPairsArguments:
    """In how many minimal pairs (BLiMP) the run scores the acceptable sentence above the other one; a tie is wrong.

    Scores: `discriminator`, `appendix-g` and `generator` of an ELECTRA run, `pseudo-likelihood` of an MLM run,
    `encoder` and `generator` of a replace-mlm or all-tokens-mlm run; rtd-mlm has those of both. All but `discriminator`
    take a forward pass for each token.
    """

    run: tyro.conf.Positional[Path]
    """Run folder (RUN@STEP: a checkpoint before the newest) or exported folder."""
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
    """auto, cpu, cuda, cuda:N, or mps on a Mac."""


def run_minimal_pairs(arguments: MinimalPairsArguments) -> Any:
    """Print the accuracies."""
    from electra_trainer.paper.minimal_pairs import minimal_pairs

    found = minimal_pairs(
        _loaded(arguments.run, arguments.device),
        arguments.folder,
        paradigms=_names(arguments.paradigms),
        limit=arguments.limit,
        scores=_names(arguments.scores),
        p_mask=arguments.p_mask,
    )
    if arguments.json:
        return pairs_as_json(found)
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
    print(table_writer.Table(head=["accuracy, %", *found.scores], rows=rows, words=1).text(least=18))
    part = "" if found.limit is None else f", the first {found.limit:,} or fewer of each paradigm"
    print(f"{found.pairs:,} pairs of {len(scores[0].paradigms)} paradigms{part}; ± is one standard error")
    if found.identical:
        print(f"{found.identical:,} pairs are two times the same tokens: a tie for every score")
    if found.long:
        print(f"{found.long:,} sentences are longer than the rows of training; the positions beyond were not trained")
    for note in found.notes:
        print(f"note: {note}")
