"""`electra pretrain DATA --preset small --out RUN`."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from electra_trainer.cli.shown import Shown
from electra_trainer.errors import ConfigError, ElectraError, Interrupted, refuse_if, tell
from electra_trainer.settings import extensions
from electra_trainer.settings.request import TrainingRequest, dotted_names, taken

if TYPE_CHECKING:
    from electra_trainer.train.plan import Length


@dataclass(frozen=True, kw_only=True)
class Pretrain(TrainingRequest):
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
    exported folder, of any ELECTRA, BERT or ModernBERT folder or Hub name; or of both, DISCRIMINATOR,GENERATOR.
    Prepare the text with its tokenizer, and keep the shapes; there may be more positions."""
    continue_from: str | None = None
    """RUN or RUN@STEP: train that run longer, or with another end, from its newest or that checkpoint, with its
    moments. --steps is the total, counted from its first step; settings are its own unless --config or flags change
    them."""
    objective: str | None = None
    """rtd: ELECTRA; mlm: BERT; replace-mlm, all-tokens-mlm (§3.5); rtd-mlm: rtd and replace-mlm in one network;
    adversarial (Appendix F); sentence-contrast, hard-mlm (Appendix H); or one of your own. Default: the preset's."""
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
    Several machines: docs/gpu.md."""
    restarts: int = 0
    """Restart at most N times when the process is killed or crashes; errors that would recur are not retried."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac."""
    quiet: bool = False
    """Print errors and warnings only."""
    track: str | None = None
    """Trackers between commas: tensorboard, wandb, mlflow."""
    brief = (
        "data out preset objective init continue_from config steps budget flops dry_run processes restarts device "
        "track seed optimizer.learning_rate batch.size batch.lanes"
    )

    def run(self) -> Shown | None:
        """Train and write the report. Returns its path, or None if nothing was trained or another rank leads."""
        from electra_trainer.inspection.trackers import parse, tracked

        if self.track is not None:
            parse(self.track, flag="--track")  # a missing package is found before torch is loaded
        from electra_trainer.inspection.report import how_far, read_run, write_report
        from electra_trainer.pretrained.source import InitFrom
        from electra_trainer.runs.progress import Status
        from electra_trainer.runs.signals import process_leads
        from electra_trainer.train.begin.continued import ContinueFrom
        from electra_trainer.train.loop import pretrain

        length = self.length
        init = InitFrom(name=str(self.init)) if self.init is not None else None
        former = ContinueFrom(name=self.continue_from) if self.continue_from is not None else None
        faults = {
            "--continue-from and --init both say what the run begins with: give one.": bool(init and former),
            "--continue-from with --budget: the time of a part of a run is not measured. Give --steps.": bool(
                former and length.budget
            ),
        }
        refuse_if(faults)
        if self.dry_run:
            _dry_run(self, length)
            return None
        with tracked(self.out, self.track):
            if self.restarts or self.processes != 1:
                _supervised(self)
                return None
            try:
                with Status(self.out) as status:
                    pretrain(
                        self.settings,
                        self.data,
                        out=self.out,
                        length=length,
                        init=init or former,
                        device=self.device,
                        quiet=self.quiet,
                        status=status,
                    )
            except Interrupted:
                with suppress(ElectraError):  # nothing was logged yet
                    if process_leads() and not self.quiet:
                        tell(how_far(read_run(self.out)))
                raise
            if not process_leads():
                return None
            page = write_report([self.out])
        ended = f"all steps are done. ALARM: {status.message}." if status.message else "done."
        then = f"Next: electra playground {self.out}; electra finetune {self.out} --train LABELLED.csv --out NEW"
        lines = [f"electra: {ended} Look at {page}", how_far(read_run(self.out)), then]
        return None if self.quiet else Shown(page, lines)

    @property
    def length(self) -> "Length":
        """The length of the run; settings that have a flag are not fitted to it."""
        from electra_trainer.train.plan import Length

        keep = dotted_names(self.typed)
        return Length(steps=self.steps, budget=self.budget, flops=self.flops, flops_real=self.flops_real, keep=keep)


def _supervised(request: Pretrain) -> None:
    """Train in separate processes, restarted where that helps; exits with the run's code."""
    from electra_trainer.data.store import Store
    from electra_trainer.ranks import world
    from electra_trainer.runs.progress import Status
    from electra_trainer.runs.restarts import supervise
    from electra_trainer.train.plan import fit_to_data

    if not request.typed:
        raise ConfigError(
            "restarts and processes belong to the command line. From Python, start processes by torchrun."
        )
    if "RANK" in os.environ:
        raise ConfigError("--restarts and --processes start processes themselves: leave out either them or torchrun.")
    if not 1 <= request.processes <= 1024:
        raise ConfigError(f"--processes {request.processes}: expected 1 to 1024.")
    if request.restarts < 0:
        raise ConfigError(f"--restarts {request.restarts}: expected 0 or more.")
    try:  # what all processes would say, once
        config = fit_to_data(request.settings, Store.open(request.data))
        if config.deterministic:  # first: it is stricter
            world.check_tree(config.batch.lanes, processes=request.processes)
        world.World(0, request.processes).owned(config.batch.lanes)
    except ElectraError as error:
        Status(request.out).failed(error)
        raise
    code = supervise(command_of(request.typed, processes=request.processes), request.out, restarts=request.restarts)
    if code:
        raise SystemExit(code)


def command_of(words: Sequence[str], *, processes: int) -> list[str]:
    """The command that the supervisor starts: `pretrain` in one process or by torchrun, without the flags of the
    supervisor, which also starts the trackers.
    """
    launcher = ["-m", "electra_trainer.runs.launcher", "--standalone", f"--nproc-per-node={processes}"]
    started = [*(launcher if processes > 1 else []), "-m", "electra_trainer", "pretrain"]
    return [sys.executable, *started, *extensions.flags(), *taken(words, "restarts", "processes", "track")[1]]


def _dry_run(request: Pretrain, length: "Length") -> None:
    from electra_trainer.cost.parameters import STATE_BYTES, parameters
    from electra_trainer.data.store import Store
    from electra_trainer.train import device, plan, timing

    device.use_threads()
    store, here = Store.open(request.data), device.choose_device(request.device)
    config = plan.fit_to_data(request.settings, store)
    precision = device.choose_precision(config.precision, here)
    print(f"{config.preset} on {here}, {precision}; nothing is trained; measuring the speed, 6 s or more", flush=True)
    gpu, free = timing.activation_bytes(precision, here), timing.free_bytes(here)
    fits = free is None or STATE_BYTES * parameters(config).joint <= free  # else its steps cannot be timed
    measured = timing.measure_time(config, store, device=here, precision=precision) if fits else None
    if measured is not None or length.budget is None:
        planned = plan.steps_for(length, config, measured)
        for name, value in plan.describe(planned, store, measured, gpu=gpu):
            print(f"  {name:<28} {value}")
    if free is not None and (what := plan.does_not_fit(config, free, gpu=gpu)):
        print(f"  {'does it fit':<28} perhaps not: {what}")
