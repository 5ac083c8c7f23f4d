"""`electra pretrain DATA --preset small --out RUN`.

`electra compare DATA --arms electra,mlm --preset tiny --flops 1e15 --seeds 3 --out EXP`.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from electra_trainer.cli import main as cli
from electra_trainer.cli.track import TrackFlags
from electra_trainer.errors import ConfigError, ElectraError, did_you_mean, refuse_if
from electra_trainer.presets.models import preset
from electra_trainer.settings import methods, records
from electra_trainer.settings.config import Config

OURS = ("--restarts", "--patience", "--grace", "--processes", "--track", "--project")
"""Flags of the supervisor, which also starts the trackers."""


@dataclass(frozen=True, kw_only=True)
class PretrainArguments:
    """Pre-train an encoder. The same command again resumes where it stopped; Ctrl-C and SIGTERM save first.

    Settings come from the preset, then from --config, then from the flags. How long: at most one of --steps, --budget,
    --flops, --flops-real.
    """

    data: tyro.conf.Positional[Path]
    """Folder that `electra prepare` made."""
    out: Path
    """Run folder: a new one, or one to resume."""
    init: str | None = None
    """Begin with trained weights: of a run (to continue on other rows, another text or another objective), of an
    exported folder, of any ELECTRA or BERT folder or Hub name; or of both networks, DISCRIMINATOR,GENERATOR. Prepare
    the text with its tokenizer, and keep the shapes; there may be more positions."""
    continue_from: str | None = None
    """RUN or RUN@STEP: train that run longer, or with another end, from its newest or that checkpoint, with its
    moments. --steps is the total, counted from its first step; settings are its own unless --config or flags change
    them."""
    config: Path | None = None
    """JSON or TOML file with settings, for example the config.json of another run; it need not hold all."""
    objective: str | None = None
    """rtd: ELECTRA; mlm: BERT; replace-mlm, all-tokens-mlm (§3.5); rtd-mlm: rtd and replace-mlm in one network;
    adversarial (Appendix F); sentence-contrast (Appendix H); or one of your own. Default: the preset's."""
    generator: str | None = None
    """learned: a small masked language model; unigram: samples by word frequency; uniform. Default: the preset's."""
    phases: str | None = None
    """joint, or two-stage: first the generator, then the discriminator (§3.2). Default: the preset's."""
    steps: int | None = None
    """Train for N optimizer steps. Default: the preset's."""
    budget: str | None = None
    """Wall-clock time, for example 90s, 20m, 4h, 2d: the steps that fit are measured on this machine."""
    flops: float | None = None
    """Operations as the paper counts them, for example 1.3e18 for all of ELECTRA-Small."""
    flops_real: float | None = None
    """Train for X FLOPs as hardware counts them: matrix products, the backward pass twice the forward pass."""
    dry_run: bool = False
    """Print parameters, FLOPs, memory, tokens, and hours on this device; train nothing."""
    processes: int = 1
    """Run N processes on this machine, started by torchrun, each with a GPU or a share of the cores. Needs
    --batch.lanes N or more.
    Several machines: docs/cluster.md."""
    shard: bool = False
    """FSDP: divide weights, gradients and optimizer state among the processes, for models that do not fit one GPU. Each
    computes equally many lanes. May differ between starts of a run."""
    restarts: int = 0
    """Restart at most this many times when the process is killed, crashes or hangs; errors that would recur are not
    retried.
    """
    patience: float = 600.0
    """With --restarts: seconds without a step after which a process counts as hung."""
    grace: float = 600.0
    """Longest time to save after Ctrl-C or SIGTERM, in seconds, before the run is killed. Only with --restarts or
    --processes.
    """
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac."""
    quiet: bool = False
    """Print errors and warnings only."""
    words: tyro.conf.Suppress[tuple[str, ...]] = ()
    """The command line that these were read from."""
    tracking: Annotated[TrackFlags, tyro.conf.arg(name="")] = field(default_factory=TrackFlags)
    settings: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)
    brief: ClassVar[str] = (
        "data out preset objective init continue_from config steps budget flops dry_run processes restarts device "
        "track seed "
        "Optimizer.learning_rate BatchShape.size BatchShape.lanes"
    )
    """What the short help shows."""

    @staticmethod
    def begin(words: Sequence[str]) -> dict[str, Any]:
        """The preset and the file decide the defaults of all other flags, so they are read first."""
        return {"settings": settings_from(words), "words": tuple(words)}


_OTHER_NAMES = {"electra": "rtd", "bert": "mlm"}
"""Objectives by the model that made them known."""


def settings_from(words: Sequence[str]) -> Config:
    """Preset, file and choices of tagged unions that the flags name: the defaults of the flags for their fields."""
    config = preset(cli.value_of(words, "--preset") or "small")
    named, file = cli.value_of(words, "--objective"), cli.value_of(words, "--config")
    objective = _OTHER_NAMES.get(named or "", named)
    files = [path for path in (_settings_of_continued(words), file and Path(file)) if path]
    if files or objective not in (None, *methods.ObjectiveSettings.kinds):
        import electra_trainer.objectives  # noqa: F401  makes objectives known that have their settings in their own file
    for path in files:
        config = records.overlay(config, path)
    config = _choose(config, "objective", objective, methods.ObjectiveSettings.kinds)
    config = _choose(config, "generator", cli.value_of(words, "--generator"), methods.GENERATORS)
    return _choose(config, "phases", cli.value_of(words, "--phases"), methods.PHASES)


def _settings_of_continued(words: Sequence[str]) -> Path | None:
    """The config.json of the run that --continue-from names; if that is gone, that of the run which went on from it, to
    resume.
    """
    name, out = cli.value_of(words, "--continue-from"), cli.value_of(words, "--out")
    folders = [records.run_and_step(name)[0], *([Path(out)] if out else [])] if name else []
    return next((folder / "config.json" for folder in folders if (folder / "config.json").exists()), None)


def _choose(config: Config, name: str, kind: str | None, known: Mapping[str, type]) -> Config:
    """`config` with the member of a tagged union that a flag names, with its defaults; the same member keeps its
    settings.
    """
    if kind is None:
        return config
    if kind not in known:
        raise ConfigError(f"--{name} {kind!r}: unknown.{did_you_mean(kind, known)} Known: {', '.join(known)}.")
    if type(getattr(config, name)) is known[kind]:
        return config
    chosen = copy(config)
    object.__setattr__(chosen, name, known[kind]())  # unchecked: the settings that go with it may be in the other flags
    return chosen


def run_pretrain(arguments: PretrainArguments) -> None:
    """Train, then write the report."""
    from electra_trainer.inspection.report import write_report
    from electra_trainer.pretrained.source import InitFrom
    from electra_trainer.runs.progress import Status
    from electra_trainer.runs.signals import process_leads
    from electra_trainer.train.continued import ContinueFrom
    from electra_trainer.train.loop import pretrain
    from electra_trainer.train.plan import Length

    length = Length(
        steps=arguments.steps, budget=arguments.budget, flops=arguments.flops, flops_real=arguments.flops_real
    )
    init = InitFrom(name=arguments.init) if arguments.init is not None else None
    former = ContinueFrom(name=arguments.continue_from) if arguments.continue_from is not None else None
    faults = {
        "--continue-from and --init both say what the run begins with: give one.": bool(init and former),
        "--continue-from with --budget: the time of a part of a run is not measured. Give --steps.": bool(
            former and length.budget
        ),
    }
    refuse_if(faults)
    if arguments.dry_run:
        _dry_run(arguments, length)
        return
    with arguments.tracking.tracked(arguments.out):
        if arguments.restarts or arguments.processes != 1:
            _supervised(arguments)
            return
        with Status(arguments.out) as status:
            pretrain(
                arguments.settings,
                arguments.data,
                out=arguments.out,
                length=length,
                init=init or former,
                device=arguments.device,
                shard=arguments.shard,
                quiet=arguments.quiet,
                status=status,
            )
        if not process_leads():
            return
        page = write_report([arguments.out])
    if not arguments.quiet:
        print(f"electra: done. Look at {page}", file=sys.stderr)


def _supervised(arguments: PretrainArguments) -> None:
    """Train in separate processes, restarted where that helps; exits with the run's code."""
    from electra_trainer.runs.progress import Status
    from electra_trainer.supervise.supervise import Policy, supervise

    if "RANK" in os.environ:
        raise ConfigError("--restarts and --processes start processes themselves: leave out either them or torchrun.")
    if not 1 <= arguments.processes <= 1024:
        raise ConfigError(f"--processes {arguments.processes}: expected 1 to 1024.")
    policy = Policy(restarts=arguments.restarts, patience=arguments.patience, grace=arguments.grace)
    try:
        _check_what_all_would_say(arguments)
    except ElectraError as error:
        Status(arguments.out).failed(error)
        raise
    code = supervise(command_of(arguments.words, processes=arguments.processes), arguments.out, policy)
    if code:
        raise SystemExit(code)


def _check_what_all_would_say(arguments: PretrainArguments) -> None:
    """Find what is wrong for every process before any is started; ElectraError."""
    from electra_trainer.data.store import Store
    from electra_trainer.ranks import sharding, world
    from electra_trainer.train.plan import fit_to_data

    config = fit_to_data(arguments.settings, Store.open(arguments.data))
    if config.deterministic:  # first: it is stricter
        world.check_tree(config.batch.lanes, processes=arguments.processes)
    world.World(0, arguments.processes).owned(config.batch.lanes)
    if arguments.shard:
        sharding.check_shard(config, processes=arguments.processes)


def command_of(words: Sequence[str], *, processes: int) -> list[str]:
    """The command that the supervisor starts: `pretrain` without the supervisor's flags, in one process or by
    torchrun.
    """
    launcher = ["-m", "electra_trainer.supervise.launcher", "--standalone", f"--nproc-per-node={processes}"]
    started = [*(launcher if processes > 1 else []), "-m", "electra_trainer", "pretrain"]
    return [sys.executable, *started, *cli.part(words, OURS)[1]]


def _dry_run(arguments: PretrainArguments, length: object) -> None:
    from electra_trainer.cost.parameters import state_bytes
    from electra_trainer.data.store import Store
    from electra_trainer.train import device, plan, timing

    assert isinstance(length, plan.Length)
    device.use_threads()
    store, here = Store.open(arguments.data), device.choose_device(arguments.device)
    config = plan.fit_to_data(arguments.settings, store)
    precision = device.choose_precision(config.precision, here)
    print(f"{config.preset} on {here}, {precision}; nothing is trained")
    parts, gpu = arguments.processes if arguments.shard else 1, timing.activation_bytes(precision, here)
    described = partial(plan.describe, processes=parts, gpu=gpu)
    told = [] if length.budget is not None else described(plan.steps_for(length, config, None), store)
    free = timing.free_bytes(here)
    if free is not None and (what := plan.does_not_fit(config, free, processes=parts, gpu=gpu)):
        told.append(("does it fit", f"perhaps not: {what}"))
    _print_rows(told)
    sys.stdout.flush()
    if free is not None and state_bytes(config) > free:
        return  # its steps cannot be timed
    measured = timing.measure_time(config, store, device=here, precision=precision)
    rows = described(plan.steps_for(length, config, measured), store, measured)
    _print_rows([row for row in rows if row not in told])


def _print_rows(rows: Sequence[tuple[str, str]]) -> None:
    for name, value in rows:
        print(f"  {name:<28} {value}")


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
    mlm-hard, replace-mlm, all-tokens-mlm, unigram, uniform, same-size, sharing-none, sharing-all, disentangled,
    two-stage, two-stage-fresh, adversarial, warm-sampling, disallow-correct, sentence-contrast; untrained: fresh
    weights, the baseline of every probe."""
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
    """held-out, pos=TREEBANK_DIR, sentences=GLUE_DIR, minimal-pairs=DIR, glue=DIR or squad=DIR; may be repeated. With
    nested- before its name, a probe is scored on a part of its training rows. Default: held-out."""
    probe_sentences: int = 4000
    """Sentences that the part-of-speech probe is trained on."""
    probe_pairs: int = 100
    """Minimal pairs that are read of each paradigm."""
    probe_seeds: int = 1
    """Fine-tuning seeds of the probes glue and squad; their scores are medians, as the paper's."""
    sweep: tuple[str, ...] = ()
    """Values of settings, crossed, each combination an arm: optimizer.learning-rate=1e-4,3e-4
    objective.weight=10,50.
    """
    choose: str | None = None
    """With --sweep: choose each arm's best values by this metric, on rows that no table reports:
    held-out/discriminator_standard_auc, or one of a nested probe, for example nested-pos/accuracy."""
    metrics: str | None = None
    """Metrics between commas whose contrasts are declared, for example pos/accuracy: p-values are corrected over them.
    Default: what pos, minimal-pairs and glue say, else the held-out losses of words and the AUC on standard fakes."""
    shard: str = "1/1"
    """i/N: run every N-th cell, from the i-th on, so that N machines share the work."""
    parallel: int = 1
    """Train N runs at the same time, each with its share of the cores, or with a GPU."""
    config: Path | None = None
    """JSON or TOML file with settings; it may hold only some."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac."""
    quiet: bool = False
    """Print the tables only."""
    tracking: Annotated[TrackFlags, tyro.conf.arg(name="")] = field(default_factory=TrackFlags)
    settings: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)
    brief: ClassVar[str] = (
        "data arms out seeds flops steps budget match probe parallel config device track preset BatchShape.size"
    )
    """What the short help shows."""

    @staticmethod
    def begin(words: Sequence[str]) -> dict[str, Any]:
        """As for `pretrain`; ConfigError for what the arms or the seeds decide."""
        if cli.value_of(words, "--seed") is not None:
            raise ConfigError("--seed: compare trains several. Give --seeds 3 or a list such as --seeds 1,2,5.")
        for flag in ("--objective", "--generator", "--phases", "--objective.loss-over"):
            if cli.value_of(words, flag) is not None:
                raise ConfigError(f"{flag}: is what arms differ in. Name the arm that has it in --arms (see --help).")
        return {"settings": settings_from(words)}


def run_compare(arguments: CompareArguments) -> None:
    """Run the cells, then print the tables."""
    from electra_trainer.experiments.folder import parse_seeds, parse_shard
    from electra_trainer.paper import arm_summary, comparison

    read = {
        "arms": _list(arguments.arms),
        "seeds": parse_seeds(arguments.seeds),
        "probes": arguments.probe or ("held-out",),
        "metrics": _list(arguments.metrics or ""),
    }
    asked = comparison.Comparison(**cli.shared(arguments, comparison.Comparison) | read)
    with arguments.tracking.tracked(arguments.out):
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
