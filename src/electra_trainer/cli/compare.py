"""`electra compare DATA --arms electra,mlm --preset tiny --flops 1e15 --seeds 3 --out EXP`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from electra_trainer.cli import main as cli
from electra_trainer.cli.pretrain import settings_from
from electra_trainer.errors import ConfigError
from electra_trainer.settings.config import Config


@dataclass(frozen=True, kw_only=True)
class CompareArguments:
    """Pre-train several arms with several seeds at equal compute, probe what each learned, and compare by seed.

    The same command resumes where it stopped; more seeds, arms or probes extend the experiment. All other flags are the
    configuration's, as for `electra pretrain`, and hold for all arms.
    """

    data: tyro.conf.Positional[Path]
    """Folder that `electra prepare` made."""
    arms: str
    """Arms between commas, the first the reference: electra, electra-15, electra-15-other, mlm, mlm-80-10-10, mlm-rare,
    replace-mlm, all-tokens-mlm, unigram, uniform, same-size, sharing-none, sharing-all, two-stage, two-stage-fresh, adversarial,
    warm-sampling, disallow-correct, sentence-contrast; untrained: fresh weights, the baseline of every probe."""
    out: Path
    """Folder of the experiment: a new one, or one to resume or extend."""
    seeds: str = "3"
    """How many, or which: 3 is 1,2,3."""
    flops: float | None = None
    """Operations of each run, for example 1e15."""
    steps: int | None = None
    """Optimizer steps of each run."""
    budget: str | None = None
    """Wall-clock time of each run, for example 10m; the steps that fit are measured once an arm, when it begins."""
    match: Literal["paper-flops", "real-flops", "steps", "time"] | None = None
    """What is equal between arms. Default: paper-flops with --flops, steps with --steps, time with --budget."""
    probe: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """held-out, pos=TREEBANK_DIR, minimal-pairs=DIR or glue=DIR; may be repeated. Default: held-out."""
    probe_sentences: int = 4000
    """Sentences that the part-of-speech probe is trained on."""
    probe_pairs: int = 100
    """Minimal pairs that are read of each paradigm."""
    metrics: str | None = None
    """Metrics between commas whose contrasts are declared, for example pos/accuracy: p-values are corrected over them.
    Default: what pos, minimal-pairs and glue say, else the held-out losses."""
    shard: str = "1/1"
    """i/N: run every N-th cell, from the i-th on, so that N machines share the work."""
    parallel: int = 1
    """Runs at once, each with its share of the cores, or with a GPU."""
    config: Path | None = None
    """JSON or TOML file with settings; it may hold only some."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    quiet: bool = False
    """Print the tables only."""
    settings: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)


def parse_compare(words: Sequence[str]) -> CompareArguments:
    """Flags -> Arguments. The preset and the file decide the defaults of all other flags, so they are read first."""
    if cli.value_of(words, "--seed") is not None:
        raise ConfigError("--seed: compare trains several. Give --seeds 3 or a list such as --seeds 1,2,5.")
    for flag in ("--objective", "--generator", "--phases", "--objective.loss-over"):
        if cli.value_of(words, flag) is not None:
            raise ConfigError(
                f"{flag}: is what the arms differ in. Name the arm that has it in --arms (--help lists them)."
            )
    default = CompareArguments(data=tyro.MISSING, arms=tyro.MISSING, out=tyro.MISSING, settings=settings_from(words))
    arguments: CompareArguments = cli.parse(CompareArguments, words, verb="compare", default=default)
    return arguments


def run_compare(arguments: CompareArguments) -> None:
    """Run the cells, then print the tables."""
    from electra_trainer.experiments.folder import parse_seeds, parse_shard
    from electra_trainer.paper import arm_summary, comparison

    asked = comparison.Comparison(
        arms=_list(arguments.arms),
        seeds=parse_seeds(arguments.seeds),
        flops=arguments.flops,
        steps=arguments.steps,
        budget=arguments.budget,
        match=arguments.match,
        probes=arguments.probe or ("held-out",),
        probe_sentences=arguments.probe_sentences,
        probe_pairs=arguments.probe_pairs,
        metrics=_list(arguments.metrics or ""),
    )
    summary = comparison.compare(
        asked,
        arguments.settings,
        arguments.data,
        out=arguments.out,
        shard=parse_shard(arguments.shard),
        parallel=arguments.parallel,
        device=arguments.device,
        quiet=arguments.quiet,
    )
    arm_summary.print_summary(summary)
    print(arguments.out / "summary.md")


def _list(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
