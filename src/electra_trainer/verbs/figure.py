"""`electra figure 1|3|4 EXP [EXP …]` and `electra figure 2 RUN`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """A figure of the paper: 1, 3 and 4 from experiments, 2 (the worked example) from one run."""

    number: tyro.conf.Positional[int]
    """1: score against compute; 2: the worked example; 3: generators and training algorithms; 4: model sizes."""
    paths: tyro.conf.Positional[tuple[Path, ...]]
    """Experiment folders; for figure 2 one run folder or exported folder."""
    metric: str | None = None
    """Figures 1, 3, 4: what is shown, for example pos/accuracy; default: the first of the usual ones that all arms share."""
    text: str | None = None
    """Figure 2: a sentence; default: the paper's, "the chef cooked the meal"."""
    mask: str | None = None
    """Figure 2: the words to mask, counted from 1, for example 1,3; default: the paper's for its sentence, else one word in seven."""
    seed: int = 1
    """Figure 2: seed of the generator's samples (and of the words to mask)."""
    out: Path | None = None
    """.svg, .png or .pdf; default: figure-N.svg in the first folder."""


def run(arguments: Arguments) -> None:
    """Draw it and say where; figure 2 is printed as well."""
    from electra_trainer.durable import write_output
    from electra_trainer.errors import ConfigError

    if not arguments.paths:
        raise ConfigError(
            "figure: give an experiment folder (figure 2: a run folder), for example: electra figure 1 experiments/tiny"
        )
    out = arguments.out or arguments.paths[0] / f"figure-{arguments.number}.svg"
    form = out.suffix.lower().removeprefix(".")
    content = _worked_example(arguments, form) if arguments.number == 2 else _from_experiments(arguments, form)
    write_output(out, content)
    print(out)


def _from_experiments(arguments: Arguments, form: str) -> bytes:
    from electra_trainer.analysis.figures import draw_figure
    from electra_trainer.analysis.read_experiment import read_experiment
    from electra_trainer.errors import ConfigError

    if arguments.text is not None or arguments.mask is not None:
        raise ConfigError(f"--text and --mask belong to figure 2, not to figure {arguments.number}.")
    experiments = [read_experiment(path) for path in dict.fromkeys(arguments.paths)]
    return draw_figure(arguments.number, experiments, metric=arguments.metric, form=form)


def _worked_example(arguments: Arguments, form: str) -> bytes:
    from rich.console import Console

    from electra_trainer.analysis.worked_example import PAPER_TEXT, worked_example
    from electra_trainer.analysis.worked_example_figure import draw_example, terminal_table
    from electra_trainer.errors import ConfigError
    from electra_trainer.score import load

    if len(arguments.paths) != 1:
        raise ConfigError(f"figure 2: expected one run, found {len(arguments.paths)}.")
    if arguments.metric is not None:
        raise ConfigError("--metric belongs to figures 1, 3 and 4.")
    text = PAPER_TEXT if arguments.text is None else arguments.text
    example = worked_example(load(arguments.paths[0]), text, mask=_mask(arguments, text), seed=arguments.seed)
    parts = arguments.paths[0].resolve().parts
    name = "/".join(parts[-3:]) if parts[-1] == "run" else parts[-1]  # a cell of an experiment: ARM/seed-N/run
    content = draw_example(example, name=name, form=form)
    Console(highlight=False, soft_wrap=True).print(terminal_table(example))
    return content


def _mask(arguments: Arguments, text: str) -> tuple[int, ...]:
    """The words to mask, from 1."""
    import random

    from electra_trainer.analysis.worked_example import PAPER_MASK, PAPER_TEXT
    from electra_trainer.errors import ConfigError

    if arguments.mask is None:
        if text == PAPER_TEXT:
            return PAPER_MASK
        words = len(text.split())
        return tuple(
            sorted(
                random.Random(arguments.seed).sample(range(1, words + 1), k=max(1, round(words / 7)) if words else 0)
            )
        )
    try:
        return tuple(sorted({int(word) for word in arguments.mask.split(",")}))
    except ValueError:
        raise ConfigError(
            f"--mask {arguments.mask}: expected numbers of words with commas between them, for example 1,3."
        ) from None
