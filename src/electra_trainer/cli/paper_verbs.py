"""The verbs `electra table 4 EXP [EXP …]`, `electra figure 1|3|4 EXP [EXP …]` and `electra figure 2 RUN`."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from electra_trainer.errors import ConfigError
from electra_trainer.files.durable import write_output

if TYPE_CHECKING:
    from electra_trainer.experiments.results import Findings


@dataclass(frozen=True, kw_only=True)
class TableArguments:
    """A table of the paper with the cells of your experiments under the paper's."""

    number: tyro.conf.Positional[int]
    """1, 2, 3, 4 or 7."""
    experiments: tyro.conf.Positional[tuple[Path, ...]]
    """Experiment folders of electra compare, glue, squad or finetune."""
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
    write_output(out, text.encode())
    print(out)


def _read(paths: Sequence[Path]) -> "list[Findings]":
    from electra_trainer.experiments.results import read_experiment

    return [read_experiment(path) for path in dict.fromkeys(paths)]


@dataclass(frozen=True, kw_only=True)
class FigureArguments:
    """A figure of the paper: 1, 3 and 4 from experiments, 2 (the worked example) from one run."""

    number: tyro.conf.Positional[int]
    """1: score against compute; 2: the worked example; 3: generators and training algorithms; 4: model sizes."""
    paths: tyro.conf.Positional[tuple[Path, ...]]
    """Experiment folders; for figure 2 one run folder or exported folder."""
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
            "figure: give an experiment folder (figure 2: a run folder), for example: electra figure 1 experiments/tiny"
        )
    out = arguments.out or arguments.paths[0] / f"figure-{arguments.number}.svg"
    form = out.suffix.lower().removeprefix(".")
    content = _worked_example(arguments, form) if arguments.number == 2 else _from_experiments(arguments, form)
    write_output(out, content)
    print(out)


def _from_experiments(arguments: FigureArguments, form: str) -> bytes:
    from electra_trainer.paper.figures import draw_figure

    if arguments.text is not None or arguments.mask is not None:
        raise ConfigError(f"--text and --mask belong to figure 2, not to figure {arguments.number}.")
    return draw_figure(arguments.number, _read(arguments.paths), metric=arguments.metric, form=form)


def _worked_example(arguments: FigureArguments, form: str) -> bytes:
    from rich.console import Console

    from electra_trainer.paper.worked_example import (
        PAPER_MASK,
        PAPER_TEXT,
        draw_example,
        terminal_table,
        worked_example,
    )
    from electra_trainer.pretrained.pretrained import load

    if len(arguments.paths) != 1:
        raise ConfigError(f"figure 2: expected one run, found {len(arguments.paths)}.")
    if arguments.metric is not None:
        raise ConfigError("--metric belongs to figures 1, 3 and 4.")
    text = PAPER_TEXT if arguments.text is None else arguments.text
    mask = PAPER_MASK if text == PAPER_TEXT and arguments.mask is None else _mask(arguments, text)
    example = worked_example(load(arguments.paths[0]), text, mask=mask, seed=arguments.seed)
    parts = arguments.paths[0].resolve().parts
    name = "/".join(parts[-3:]) if parts[-1] == "run" else parts[-1]  # a cell of an experiment: ARM/seed-N/run
    content = draw_example(example, name=name, form=form)
    Console(highlight=False, soft_wrap=True).print(terminal_table(example))
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
            f"--mask {arguments.mask}: expected numbers of words with commas between them, for example 1,3."
        ) from None
