"""`electra evaluate RUN DATA`.

`electra score RUN "the chef flew the meal"`.

`electra fill RUN "the [MASK] cooked the meal"`.

`electra export RUN --out DIR`.

`electra replay RUN --step 1000`.

`electra report RUN [RUN …]`.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from electra_trainer.errors import ConfigError

if TYPE_CHECKING:
    from electra_trainer.inspection.replay import Replayed
    from electra_trainer.inspection.replay_rows import ReplayedRow


@dataclass(frozen=True, kw_only=True)
class EvaluateArguments:
    """Held-out metrics of a run, over all held-out rows of DATA, always with the same masks."""

    run: tyro.conf.Positional[Path]
    """Run folder."""
    data: tyro.conf.Positional[Path]
    """Prepared folder, with the tokenizer of the run."""
    json: bool = False
    """Print one JSON object."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


def run_evaluate(arguments: EvaluateArguments) -> None:
    """Print the metrics."""
    from electra_trainer.inspection.evaluate import evaluate
    from electra_trainer.train.measures import health_line

    result = evaluate(arguments.run, arguments.data, device=arguments.device)
    if arguments.json:
        print(json.dumps({"step": result.step, **result.metrics}))
        return
    print(f"step {result.step}, {result.rows:,} held-out rows")
    for name, value in result.metrics.items():
        print(f"  {name:<30} {value:.4f}")
    print(health_line(result.metrics, vocab_size=result.vocab_size))


@dataclass(frozen=True, kw_only=True)
class ScoreArguments:
    """Say of each token of a text how likely it was replaced."""

    run: tyro.conf.Positional[Path]
    """Run folder or exported folder."""
    text: tyro.conf.Positional[str]
    """The text."""
    json: bool = False
    """Print one JSON object: tokens, replaced_probability."""


def run_score(arguments: ScoreArguments) -> None:
    """Print the tokens with their probabilities."""
    from electra_trainer.pretrained.pretrained import load

    scored = load(arguments.run).score(arguments.text)
    if arguments.json:
        print(json.dumps(asdict(scored)))
        return
    from electra_trainer.inspection.terminal import print_scored

    print_scored(scored)


@dataclass(frozen=True, kw_only=True)
class FillArguments:
    """The generator's most probable words for each [MASK] of a text."""

    run: tyro.conf.Positional[Path]
    """Run folder, exported folder or its generator."""
    text: tyro.conf.Positional[str]
    """A text with at least one [MASK]."""
    top: int = 5
    """Words a gap."""
    json: bool = False
    """Print a JSON list: for each [MASK] its words with probabilities."""


def run_fill(arguments: FillArguments) -> None:
    """Print the words."""
    from electra_trainer.pretrained.pretrained import load

    gaps = load(arguments.run).fill(arguments.text, top=arguments.top)
    if arguments.json:
        print(json.dumps([[asdict(candidate) for candidate in gap] for gap in gaps]))
        return
    for number, gap in enumerate(gaps, 1):
        print(f"[MASK] {number}: " + "  ".join(f"{c.token} {c.probability:.3f}" for c in gap))


@dataclass(frozen=True, kw_only=True)
class ExportArguments:
    """Write DIR/discriminator and DIR/generator: folders that `transformers` loads, with tokenizer and model card."""

    run: tyro.conf.Positional[Path]
    """Run folder."""
    out: Path
    """A new or empty folder."""


def run_export(arguments: ExportArguments) -> None:
    """Write, read back, and, where transformers is installed, compare logits."""
    from importlib.util import find_spec

    from electra_trainer.errors import CheckpointError
    from electra_trainer.pretrained.export import check_with_transformers
    from electra_trainer.pretrained.pretrained import export_run

    for folder in export_run(arguments.run, arguments.out):
        line = f"{folder}: written and read back bit for bit"
        if find_spec("transformers") is not None:
            difference = check_with_transformers(folder, ids=[list(range(5, 21))] * 2)
            if difference > 1e-4:
                raise CheckpointError(
                    f"{folder}: logits differ from transformers' by {difference:.1e}; please report this."
                )
            line += f"; transformers gives the same logits (largest difference {difference:.0e})"
        print(line)


_SHOWN = 4


@dataclass(frozen=True, kw_only=True)
class ReplayArguments:
    """One step of a run again: its rows with the documents that they are from, what was masked and replaced, and its losses, compared to the
    last bit with metrics.jsonl. From the nearest checkpoint before it; nothing is written into the run.

    In the text `[meal→food]` was masked and read as food, `[meal]` was masked and came out as it was.
    """

    run: tyro.conf.Positional[Path]
    """Run folder."""
    step: int
    """Which step, from 1, as in metrics.jsonl and log.txt."""
    data: Path | None = None
    """Prepared folder that the run was trained on; default: where it was when the run began."""
    rows: int | None = None
    """Rows that are shown, at most; default: 4, with --json all."""
    lane: int | None = None
    """Only the rows of this lane, from 0."""
    row: int | None = None
    """Only this row, by its number in train.bin."""
    json: bool = False
    """Print one JSON object."""
    device: str = "auto"
    """auto (the run's), cpu, cuda or cuda:N."""


def run_replay(arguments: ReplayArguments) -> None:
    """Print the step."""
    from electra_trainer.inspection.replay import replay
    from electra_trainer.inspection.replay_text import as_json, print_replayed

    if arguments.rows is not None and arguments.rows < 0:
        raise ConfigError(f"--rows {arguments.rows}: expected 0 or more.")
    found = replay(
        arguments.run,
        step=arguments.step,
        data=arguments.data,
        device=arguments.device,
        tell=lambda line: print(f"electra: {line}", file=sys.stderr),
    )
    rows = _chosen(arguments, found)
    if arguments.json:
        print(json.dumps(as_json(found, rows[: arguments.rows])))
        return
    print_replayed(found, rows[: _SHOWN if arguments.rows is None else arguments.rows])


def _chosen(arguments: ReplayArguments, found: "Replayed") -> "list[ReplayedRow]":
    """The rows that were asked for; ConfigError when the step has none such."""
    rows = [
        row
        for row in found.rows
        if arguments.lane in (None, row.lane) and arguments.row in (None, row.row)
    ]  # fmt: skip
    if not rows:
        asked = f"--lane {arguments.lane}" if arguments.row is None else f"--row {arguments.row}"
        have = ", ".join(str(row.row) for row in found.rows[:12])
        raise ConfigError(
            f"{asked}: step {arguments.step} has no such row. It has lanes 0 to {found.rows[-1].lane}, and rows {have}"
            + (", ..." if len(found.rows) > 12 else ".")
        )
    return rows


@dataclass(frozen=True, kw_only=True)
class ReportArguments:
    """One page with pictures: losses, AUC, rates, and sentences with masked, sampled and detected tokens."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders; several are laid over one another."""
    out: Path | None = None
    """Where the page goes; default: report.html in the first run."""


def run_report(arguments: ReportArguments) -> None:
    """Write it and say where."""
    from electra_trainer.errors import ConfigError
    from electra_trainer.inspection.report import write_report

    if not arguments.runs:
        raise ConfigError("report: give at least one run folder.")
    print(write_report(list(dict.fromkeys(arguments.runs)), out=arguments.out))
