"""Whole training steps, ours and the peers', in turn on the same rows: `python -m benchmarks.speed --preset small`.

Every system lives in a process of its own, in the environment that its users have: the peers as Python starts them, ours with
what `electra` sets for itself (runs/launcher.py). All stay alive and take turns, A B A B, while the others sleep, so that a machine
that slows down slows all of them. A step is forward and backward of both networks, sampling, clipping and the optimizer; the
first ones, where torch.compile works, are not counted. What the peers are is told in benchmarks/peers.py, the fine-tuning
task in benchmarks/finetune.py.

Peak memory is that of the whole process on a CPU (VmHWM), and torch.cuda.max_memory_allocated on a GPU. Utilisation (MFU) is the
useful matrix products of a step (cost/flops.py) against the rate of a large product in the system's own precision,
measured between the turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import finetune
from benchmarks.machine_facts import versions
from benchmarks.speed_process import Failed, Process, environment
from benchmarks.synthetic import with_rows
from electra_trainer.cost.flops import step_flops
from electra_trainer.data.store import Store
from electra_trainer.errors import ConfigError, ElectraError, did_you_mean
from electra_trainer.files.processes import cores
from electra_trainer.kernels.native.library import VARIANTS, missing
from electra_trainer.presets.models import preset
from electra_trainer.settings.config import Config, changed
from electra_trainer.settings.methods import RTD, Joint, Learned
from electra_trainer.settings.records import to_dict
from electra_trainer.train.device import choose_device
from electra_trainer.train.plan import fit_to_data

_GPU_BURST = 10
"""Steps that are timed together on a GPU, so that waiting for it once a step costs nothing."""
_LIMIT = 1800.0
"""Seconds after which a worker that does not answer is given up; torch.compile takes minutes on a CPU."""
_PAUSE = 0.2
"""Seconds between turns: threads of the one before have gone to sleep."""


@dataclass(frozen=True, kw_only=True)
class System:
    """How a system is started."""

    peer: bool
    precision: str
    compiled: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    tuned: bool = True
    """Ours: with the environment that `electra` sets for itself."""
    by_hand: bool = False
    """The tuned peer of peers.py."""
    threads: int | None = None
    """Instead of the command's."""
    longest: bool = False
    """The peer pads each batch to its longest sentence (fine-tuning)."""


SYSTEMS = {
    "electra-trainer": System(peer=False, precision="auto"),
    "electra-trainer-pytorch": System(peer=False, precision="auto", environment={"ELECTRA_NATIVE": "off"}),
    "electra-trainer-fp32": System(peer=False, precision="fp32"),
    "transformers-fp32": System(peer=True, precision="fp32"),
    "transformers-bf16": System(peer=True, precision="bf16"),
    "transformers-bf16-compiled": System(peer=True, precision="bf16", compiled=True),
}
_DEFAULT = ",".join(SYSTEMS)
SYSTEMS |= {
    f"native-{name}": System(peer=False, precision=variant["precision"], environment={"ELECTRA_NATIVE": name})
    for name, variant in VARIANTS.items()
}
SYSTEMS |= {
    "transformers-bf16-tuned": System(peer=True, precision="bf16", compiled=True, by_hand=True),
    "transformers-fp32-longest": System(peer=True, precision="fp32", longest=True),
    "transformers-bf16-longest": System(peer=True, precision="bf16", longest=True),
    "two-threads": System(peer=False, precision="auto", threads=2),
    "without-tuning": System(peer=False, precision="auto", tuned=False),
}


@dataclass
class Result:
    """What was seen of one system."""

    precision: str = ""
    seconds: list[float] = field(default_factory=list)
    peak_memory_bytes: int = 0
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is measured: the same for every system."""

    config: Config
    task: str
    device: str
    threads: int
    data: Path | None
    rounds: int
    bursts: int
    """At least so many bursts of steps in a turn."""
    turn: float

    @property
    def tokens(self) -> float:
        """Tokens of a step: all positions of full rows; when fine-tuning, the real ones."""
        if self.task == "pretrain":
            return self.config.tokens_per_step
        return finetune.tokens_per_step(self.config)

    @property
    def flops(self) -> float:
        """Useful operations of a step."""
        if self.task == "pretrain":
            return step_flops(self.config).real
        return finetune.useful_flops(self.config)

    def setup(self, system: System) -> dict[str, Any]:
        """The first request to a worker."""
        gpu, config = self.device != "cpu", self.config
        if system.peer:  # its whole batch at once
            config = dataclasses.replace(config, batch=dataclasses.replace(config.batch, lanes=1))
        return {
            "kind": "setup",
            "config": to_dict(config),
            "task": self.task,
            "device": self.device,
            "threads": system.threads or self.threads,
            "data": None if self.data is None else str(self.data),
            "peer": system.peer,
            "precision": system.precision,
            "compiled": system.compiled,
            "by_hand": system.by_hand,
            "longest": system.longest,
            "burst": finetune.BATCHES if self.task == "finetune" else _GPU_BURST if gpu else 1,
            "warmup": 2 if system.compiled or gpu else 1,
            "rests": gpu or not system.peer,  # the peers' allocator gives memory back by itself
        }


def measure(job: Job, names: list[str], after: Path | None = None) -> tuple[dict[str, Result], dict[str, float]]:
    """All systems, set up beside one another, then in turn, once `after` exists: what was seen of each, and the matrix rates by precision."""
    results = {name: Result() for name in names}
    processes: dict[str, Process] = {}
    matrix = Process(environment(tuned=True, threads=job.threads, more={}))
    rates: dict[str, float] = {}
    try:
        for name in names:
            system = SYSTEMS[name]
            tuned = system.tuned and not system.peer
            processes[name] = Process(
                environment(tuned=tuned, threads=system.threads or job.threads, more=system.environment)
            )
        _tell(f"setting up {', '.join(names)}")
        with ThreadPoolExecutor() as pool:
            ready = pool.map(lambda name: (name, _ask(processes, name, job.setup(SYSTEMS[name]), results)), names)
        for name, answer in ready:
            results[name].precision = answer.get("precision", "")
        while after is not None and not after.exists():
            time.sleep(_PAUSE)
        for number in range(job.rounds):
            answer = matrix.ask({"kind": "matrix", "device": job.device, "threads": job.threads}, limit=_LIMIT)
            rates = {name: max(rate, rates.get(name, 0.0)) for name, rate in answer.items()}
            for name in list(processes):
                time.sleep(_PAUSE)
                answer = _ask(processes, name, {"kind": "turn", "seconds": job.turn, "bursts": job.bursts}, results)
                if answer:
                    results[name].seconds += answer["seconds"]
                    results[name].peak_memory_bytes = answer["peak_memory_bytes"]
                    _tell(f"round {number + 1} of {job.rounds}: {name} {answer['seconds'][-1]:.4g} s a step")
    finally:
        for process in (matrix, *processes.values()):
            process.close()
    return results, rates


def _ask(
    processes: dict[str, Process], name: str, request: dict[str, Any], results: dict[str, Result]
) -> dict[str, Any]:
    """The answer; empty where the system failed, which is noted, and the others go on."""
    try:
        return processes[name].ask(request, limit=_LIMIT)
    except Failed as failure:
        results[name].error = str(failure)
        processes.pop(name).close()
        _tell(f"{name}: {failure}")
        return {}


def report(job: Job, results: dict[str, Result], rates: dict[str, float]) -> dict[str, Any]:
    """The object that --json prints."""
    systems: dict[str, dict[str, Any]] = {}
    for name, result in results.items():
        if result.error is not None:
            systems[name] = {"error": result.error}
            continue
        step = statistics.median(result.seconds)
        systems[name] = {
            "tokens_per_second": job.tokens / step,
            "peak_memory_bytes": result.peak_memory_bytes,
            "seconds_per_step": result.seconds,
            "precision": result.precision,
            "mfu": job.flops / step / (rates[result.precision] * (SYSTEMS[name].threads or job.threads) / job.threads),
        }
    speed = {name: facts["tokens_per_second"] for name, facts in systems.items() if "error" not in facts}
    ratios = {
        ours: {peer: speed[ours] / speed[peer] for peer in speed if SYSTEMS[peer].peer}
        for ours in speed
        if not SYSTEMS[ours].peer
    }
    return {
        "device": job.device,
        "preset": job.config.preset,
        "block": job.config.model.block,
        "task": job.task,
        "batch": job.config.batch.size,
        "sequence_length": job.config.batch.sequence_length,
        "tokens_per_step": job.tokens,
        "threads": job.threads,
        "versions": versions(),
        "matrix_flops_per_second": rates,
        "systems": systems,
        "ratios": ratios,
    }


def table(facts: dict[str, Any]) -> str:
    """The same for reading."""
    measured = [name for name, seen in facts["systems"].items() if "error" not in seen]
    peers = [name for name in measured if SYSTEMS[name].peer] or measured[:1]  # what the others are compared with
    rates = ", ".join(f"{name} {rate / 1e9:,.0f} GFLOP/s" for name, rate in facts["matrix_flops_per_second"].items())
    lines = [
        f"{facts['preset']}, {facts['block']}, {facts['task']}: {facts['batch']} rows x {facts['sequence_length']} tokens, {facts['device']}, "
        f"{facts['threads']} threads; matrix products {rates}",
        f"{'':<28}{'tokens/s':>11}{'s a step (least - most)':>30}{'memory':>10}{'MFU':>7}"
        + "".join(f"{'x ' + peer.removeprefix('transformers-'):>18}" for peer in peers),
    ]
    for name, seen in facts["systems"].items():
        if "error" in seen:
            lines.append(f"{name:<28}{seen['error']}")
            continue
        times = seen["seconds_per_step"]
        spread = f"{statistics.median(times):.4g} ({min(times):.4g} - {max(times):.4g})"
        own = [seen["tokens_per_second"] / facts["systems"][peer]["tokens_per_second"] for peer in peers]
        lines.append(
            f"{name:<28}{seen['tokens_per_second']:>11,.0f}{spread:>30}{seen['peak_memory_bytes'] / 1e9:>7.2f} GB"
            f"{seen['mfu']:>7.1%}" + "".join(f"{ratio:>18.2f}" for ratio in own)
        )
    return "\n".join(lines)


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--block", choices=["bert", "modern"], default="bert", help="layers of both networks")
    parser.add_argument("--batch", type=_positive, help="rows a step; default: the preset's, 32 when fine-tuning")
    parser.add_argument(
        "--lanes", type=_positive, help="portions that ours computes one after another; default: the preset's"
    )
    parser.add_argument("--seq-len", type=_positive, help="tokens a row; default: the preset's, or the data's")
    parser.add_argument("--device", default="auto", help="cpu or cuda; default: a GPU where there is one")
    parser.add_argument("--threads", type=_positive, help="default: 1 on a CPU, all cores beside a GPU")
    parser.add_argument("--rounds", type=_positive, default=3, help="turns of each system")
    parser.add_argument("--turn", type=float, default=1.0, help="seconds of a turn; one step at least")
    parser.add_argument("--bursts", type=_positive, default=1, help="in a turn, at least: of 10 steps on a GPU")
    parser.add_argument("--systems", default=_DEFAULT, help=f"some of: {', '.join(SYSTEMS)}")
    parser.add_argument(
        "--paths",
        action="store_true",
        help="every native path that this machine can run, beside PyTorch's own and the peers",
    )
    parser.add_argument("--task", choices=["pretrain", "finetune"], default="pretrain")
    parser.add_argument("--data", type=Path, help="a prepared folder; default: made-up rows of Zipf's words")
    parser.add_argument("--after", type=Path, help="set up, and wait until this file exists")
    parser.add_argument("--json", action="store_true", help="one object on standard output")
    arguments = parser.parse_args()
    try:
        job, names = plan(arguments)
    except ElectraError as error:
        print(f"benchmarks.speed: {error}", file=sys.stderr)
        return error.exit_code
    facts = report(job, *measure(job, names, arguments.after))
    print(json.dumps(facts) if arguments.json else table(facts))
    return 70 if any("error" in facts["systems"][name] for name in names if not SYSTEMS[name].peer) else 0


def plan(arguments: argparse.Namespace) -> tuple[Job, list[str]]:
    """What to measure of which systems; raises ConfigError or DataError."""
    names = arguments.systems.split(",")
    if arguments.paths:
        here = [f"native-{name}" for name, variant in VARIANTS.items() if not missing(variant)]
        names = [*here, "electra-trainer-pytorch", *(name for name in names if SYSTEMS[name].peer)]
    for name in names:
        if name not in SYSTEMS:
            raise ConfigError(f"unknown system {name!r}.{did_you_mean(name, SYSTEMS)} Known: {', '.join(SYSTEMS)}.")
    config = changed(preset(arguments.preset), optimizer={"name": "adam"})  # all systems move weights alike
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, block=arguments.block))
    if not isinstance(config.objective, RTD):  # the peers do replaced token detection, and so does ours, in that shape
        generator = Learned(width=0.25)
        config = dataclasses.replace(config, objective=RTD(), phases=Joint(), generator=generator, sharing="embeddings")
    if arguments.data is not None:
        config = fit_to_data(config, Store.open(arguments.data))
    length = finetune.PADDED if arguments.task == "finetune" else arguments.seq_len
    if length is not None and length != config.batch.sequence_length:
        if arguments.data is not None:
            raise ConfigError(f"--seq-len {length}: rows of {arguments.data} are {config.batch.sequence_length} long.")
        config = dataclasses.replace(config, batch=dataclasses.replace(config.batch, sequence_length=length))
    rows = arguments.batch or (32 if arguments.task == "finetune" else config.batch.size)
    device = choose_device(arguments.device).type
    config = with_rows(config, rows)
    lanes = arguments.lanes or config.batch.lanes
    return Job(
        config=dataclasses.replace(config, batch=dataclasses.replace(config.batch, lanes=lanes)),
        task=arguments.task,
        device=device,
        threads=arguments.threads or (1 if device == "cpu" else cores()),
        data=arguments.data,
        rounds=arguments.rounds,
        bursts=arguments.bursts,
        turn=arguments.turn,
    ), names


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
