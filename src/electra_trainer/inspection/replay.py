"""Compute again what a run computed: a step with its rows, documents, text and losses, and its held-out metrics.

A step is a function of (weights, config, seed, step), so the nearest checkpoint before it is enough: the steps in
between are trained again in memory. Nothing is written into the run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from rich.text import Text
from torch import Tensor
from torch.optim import Optimizer

from electra_trainer import batch, errors
from electra_trainer.data.store import Passage, Store
from electra_trainer.data.tokenizer import load_tokenizer
from electra_trainer.errors import plain, tell
from electra_trainer.files.wording import Printed, Terminal
from electra_trainer.objectives import Objective, build
from electra_trainer.pretrained.source import InitFrom
from electra_trainer.runs import checkpoint, verified
from electra_trainer.runs.metrics import readable_rows
from electra_trainer.runs.run_folder import METRICS, RunFolder, environment_facts
from electra_trainer.settings.calls import checked
from electra_trainer.settings.config import Config
from electra_trainer.settings.records import run_and_step
from electra_trainer.train import device as devices
from electra_trainer.train import measures, optim, plan, weights
from electra_trainer.train import step as steps
from electra_trainer.train.begin.continued import Continued, ContinueFrom, same_weights
from electra_trainer.train.begin.initial import begin_with
from electra_trainer.train.begin.settle import fitted
from electra_trainer.train.begin.word_start import begin_words
from electra_trainer.train.fast_step import FastStep

_PLACE = {"step", "tokens", "flops", "flops_real", "seconds", "tokens_per_second"}
"""Fields of a row of metrics.jsonl that its step did not compute."""
_FACTS = tuple("device gpu arithmetic processes electra_trainer git torch numpy cpu_capability extensions".split())
"""Facts in environment.json that the bits of a step depend on."""


@dataclass(frozen=True, kw_only=True)
class ReplayedRow:
    """A row of a batch; lists have one entry per token, without padding."""

    row: int
    """Its number in train.bin, from 0."""
    lane: int
    finite: bool
    """Whether everything computed from it is finite."""
    documents: list[Passage]
    """Without the padding at its end."""
    original: list[str]
    masked_input: list[str]
    """The input of the generator, or of an MLM."""
    corrupted: list[str] | None
    """The input of the discriminator (or of the encoder after a generator); None if the step has no such network."""
    masked: list[bool]
    """Whether the position was chosen for prediction."""

    @property
    def shown(self) -> list[str]:
        """The input of the main network."""
        return self.masked_input if self.corrupted is None else self.corrupted


@dataclass(frozen=True, kw_only=True)
class Replayed(Printed):
    """A step, computed again."""

    step: int
    """Counted from 1, as in metrics.jsonl and in the log."""
    began: int
    """The step of the checkpoint that it was computed from; 0: the run's initial weights."""
    result: steps.StepResult
    """Learning rate, gradient norm before clipping, and metrics; if they are not finite, the weights did not move."""
    recorded: dict[str, Any] | None
    """This step's row in metrics.jsonl, or None."""
    rows: list[ReplayedRow]
    """All rows of the batch, in order."""
    reservations: list[str]
    """Why the bits may differ from the run's, a sentence each."""

    @property
    def computed(self) -> dict[str, float]:
        """The numbers that metrics.jsonl would hold."""
        found = self.result
        return {**found.metrics, "learning_rate": found.learning_rate, "gradient_norm": found.gradient_norm}

    @property
    def differences(self) -> dict[str, tuple[Any, Any]]:
        """Name -> (recorded, computed) of the numbers that do not match to the last bit."""
        if self.recorded is None:
            return {}
        theirs, mine = self.recorded, self.computed
        return {n: (theirs.get(n), mine.get(n)) for n in {**theirs, **mine} if theirs.get(n) != mine.get(n)}

    @property
    def identical(self) -> bool | None:
        """Whether all recorded numbers were reproduced to the last bit; None if none are recorded."""
        return None if self.recorded is None else not self.differences


@checked
def replay(run: str | Path, *, step: int, data: str | Path | None = None, device: str = "auto") -> Replayed:
    """Compute a step of a run again; what takes long, and checkpoints that do not verify, are reported on standard
    error.

    Args:
        run: the run folder; nothing in it is changed.
        step: from 1, as in metrics.jsonl; may be beyond the run's last step so far.
        data: the prepared folder; None: where it was when the run began.
        device: auto (the run's), cpu, cuda, cuda:N or mps.

    Raises:
        ConfigError: no such step.
        MissingInputError, DataError: no run, or not the run's data.
        CheckpointError: the weights that it began with have changed since.
    """
    folder = RunFolder(Path(run))
    config, facts = folder.config(), folder.environment()
    if not 1 <= step <= config.schedule.steps:
        raise errors.ConfigError(f"--step {step}: expected 1 to {config.schedule.steps}, the steps of {run}.")
    store = _store(folder, facts, data)
    where, precision, reservations = _machine(config, facts, device)
    objective = build(config)
    weights.give_frequencies(objective, store)
    objective.to(where)
    optimizer = optim.build_optimizer(objective, config.optimizer, precision=precision)
    feed = steps.Feed.of(config, store, device=where, precision=precision)
    began = _restore_before(step, folder, objective, optimizer)
    if step - 1 > began:
        tell(f"training again from step {began:,} to {step - 1:,} ({step - 1 - began:,} steps), in memory")
    phases = optim.Phases(config, objective)
    objective.train()
    with FastStep(optimizer, feed) as fast:
        for at in range(began, step - 1):
            fast.step(phases.at(at), at, diagnose=(at + 1) % config.log_every == 0)
        part = phases.at(step - 1)
        rows, metrics = rows_of_step(part, feed, store, step=step - 1)
        result = fast.step(part, step - 1, diagnose=True)
    if not result.finite:
        result = replace(result, metrics=metrics)
    return Replayed(
        step=step, began=began, result=result, recorded=_recorded(folder, step), rows=rows, reservations=reservations
    )


def _store(folder: RunFolder, facts: dict[str, Any], data: str | Path | None) -> Store:
    """The rows that the run was trained on."""
    place = Path(data if data is not None else str(facts.get("data_folder")))
    if place.is_dir() and (store := Store.open(place)).identity == facts.get("data"):
        return store
    error = errors.DataError if place.is_dir() else errors.MissingInputError
    raise error(f"{place}: not the rows that {folder.path} was trained on. Give their folder with --data.")


def _machine(config: Config, facts: dict[str, Any], device: str) -> tuple[torch.device, str, list[str]]:
    """The device and the precision, those of the run where they are known, and what differs here."""
    devices.use_threads()
    threads = facts.get("threads")
    if isinstance(threads, int) and 1 <= threads <= 1024:
        devices.set_threads(threads)
    same = "cuda" if facts.get("device") == "cuda" and torch.cuda.is_available() else "cpu"
    where = devices.choose_device(same if device == "auto" else device)
    theirs = str(facts.get("arithmetic"))[:4]
    precision = theirs if theirs in ("fp32", "bf16") else devices.choose_precision(config.precision, where)
    here = environment_facts() | {
        "device": where.type,
        "arithmetic": devices.arithmetic(precision, where),
        "processes": facts.get("processes") if config.deterministic else 1,
    }
    differing = [name for name in _FACTS if facts.get(name) != here.get(name)]
    return where, precision, [f"{name}: {facts.get(name)} in the run, {here.get(name)} here." for name in differing]


def _restore_before(step: int, folder: RunFolder, objective: Objective, optimizer: Optimizer) -> int:
    """Restore the newest checkpoint before `step` that verifies, or else the initial weights; returns its step, or
    0.
    """
    for path in reversed([path for at, path in checkpoint.numbered(folder.checkpoints) if at < step]):
        try:
            saved = verified.read(path, origin=folder.origin, network=lambda: objective)
        except errors.CheckpointError as error:
            tell(f"{error} Trying the checkpoint before it.")
            continue
        return _restored(saved, objective, optimizer)
    if isinstance(init := folder.environment().get("init"), dict):
        name, at = str(init.get("name")), init.get("step")
        if at is not None and step <= at:
            raise errors.ConfigError(f"--step {step}: {folder.path} begins after step {at} of {name}. Replay it there.")
        initial = InitFrom(name=name).read() if at is None else ContinueFrom(name=name, step=at).read()
        if not same_weights(init, initial.identity):
            raise errors.CheckpointError(
                f"{folder.path}: began with the weights of {init.get('name')}, which have changed since, and no "
                f"checkpoint before step {step} is left. Put them back, or replay a later step."
            )
        if isinstance(initial, Continued):
            return _restored(initial.saved, objective, optimizer)
        begin_with(objective, fitted(initial, load_tokenizer(folder.tokenizer), objective.config))
    begin_words(objective, folder)
    return 0


def _restored(saved: verified.Saved, objective: Objective, optimizer: Optimizer) -> int:
    weights.restore(objective, saved.weights)
    optim.load_optimizer_tensors(objective, optimizer, saved.optimizer.items())
    return saved.step


def _recorded(folder: RunFolder, step: int) -> dict[str, Any] | None:
    """The numbers of the step in metrics.jsonl."""
    mine = [row for row in readable_rows(folder.path / METRICS) if row["step"] == step and "split" not in row]
    return {name: value for name, value in mine[-1].items() if name not in _PLACE} if mine else None


def rows_of_step(
    objective: Objective, feed: steps.Feed, store: Store, *, step: int
) -> tuple[list[ReplayedRow], dict[str, float]]:
    """The rows of a step and its metrics, from forward passes as training computes them; weights do not move.

    Args:
        objective: what the step trains, with the weights from before it, in training mode.
        feed: the run's.
        store: the run's.
        step: counted from 0.
    """
    config, tokenizer, documents = feed.config, store.tokenizer(), store.documents("train")
    picked = feed.picked(step)
    lanes = feed.lanes(step)
    counts = steps.add_counts([objective.counts(masked) for masked, _ in lanes])

    def words(ids_T: Tensor) -> list[str]:
        return [tokenizer.id_to_token(number) or f"[{number}]" for number in ids_T.tolist()]

    measured: list[batch.Losses] = []
    rows: list[ReplayedRow] = []
    for lane, (masked, rng) in enumerate(lanes):
        rng.seed_dropout()
        with devices.autocast(feed.precision, feed.device):
            losses: batch.Losses = objective(masked, rng, diagnose=True)
        losses = replace(losses, terms={n: replace(term, sum=term.sum.detach()) for n, term in losses.terms.items()})
        measured.append(measures.keep_measured(losses))
        numbers = picked[lane * config.lane_size : (lane + 1) * config.lane_size].tolist()
        corrupted_BT = losses.diagnostics.get("corrupted_BT")
        real_B, finite_B = masked.batch.real_BT.sum(1).tolist(), finite_rows(masked, losses).tolist()
        rows += [
            ReplayedRow(
                row=number,
                lane=lane,
                finite=finite,
                original=words(masked.batch.ids_BT[at, :real]),
                masked_input=words(masked.input_BT[at, :real]),
                masked=masked.chosen_BT[at, :real].tolist(),
                corrupted=None if corrupted_BT is None else words(corrupted_BT[at, :real]),
                documents=[replace(one, end=min(one.end, real)) for one in documents.row(number)],
            )
            for at, (number, real, finite) in enumerate(zip(numbers, real_B, finite_B, strict=True))
        ]
    return rows, measures.measure(measured, counts, measures.divisors(counts, config))


def finite_rows(masked: batch.Masked, losses: batch.Losses) -> Tensor:
    """Bool [B]: rows all of whose values are finite; if the lane's losses are not and no row shows why, none is."""
    found = losses.diagnostics
    bad_BT = ~found.get("replaced_logit_BT", torch.zeros(())).isfinite() & masked.batch.real_BT
    for name in ("generator_entropy_K", "encoder_entropy_K"):
        if name in found:
            bad_BT.view(-1)[masked.slots_K[~found[name].isfinite() & (masked.slots_K >= 0)]] = True
    finite_B = ~bad_BT.any(1)
    return finite_B & (not finite_B.all() or all(bool(term.sum.isfinite()) for term in losses.terms.values()))


@dataclass(frozen=True, kw_only=True)
class Evaluated(Printed):
    """Metrics of a checkpoint of a run."""

    step: int
    rows: int
    vocab_size: int
    metrics: dict[str, float]


@checked
def evaluate(run: str | Path, data: str | Path, *, device: str = "auto") -> Evaluated:
    """Metrics of a run, or of its checkpoint `RUN@STEP`, over all held-out rows of `data`, with fixed masks and no
    dropout.

    Raises:
        MissingInputError: there is no such run or checkpoint.
        DataError: `data` was prepared with another tokenizer than the run's, or holds no held-out rows.
    """
    devices.use_threads()
    path, step = run_and_step(run)
    folder, store, where = RunFolder(path), Store.open(Path(data)), devices.choose_device(device)
    config = plan.fit_to_data(folder.config(), store)
    if folder.fact(str, "data", "tokenizer_sha256") != store.manifest.tokenizer_sha256:
        raise errors.DataError(
            f"{data}: was prepared with another tokenizer than {run}. Prepare it with --tokenizer {folder.tokenizer}."
        )
    if not len(store.rows("valid")):
        raise errors.DataError(f"{data}: holds no held-out rows. Prepare it with a --valid-fraction above 0.")
    objective, at = weights.trained(folder, config, step=step)
    objective.to(where)
    feed = steps.Feed.of(config, store, device=where, precision=devices.choose_precision(config.precision, where))
    metrics = steps.evaluate(objective, feed)
    return Evaluated(step=at, rows=len(feed.valid), vocab_size=store.vocab_size, metrics=metrics)


def shown(found: Replayed, rows: Sequence[ReplayedRow]) -> list[str]:
    """Lines for a terminal: everything, with some of the rows."""
    began = f"the checkpoint of step {found.began}" if found.began else "the initial weights"
    between = found.step - 1 - found.began
    again = f", {between} steps in between trained again" if between else ""
    lines: list[str | Text] = [f"step {found.step}, from {began}{again}"]
    lines += [f"  {name:<30} {value!r}" for name, value in found.computed.items()]
    lines += [verdict(found), *found.reservations]
    if not found.result.finite:
        bad = ", ".join(str(row.row) for row in found.rows if not row.finite)
        lines.append(f"NaN or infinite in rows {bad}" if bad else "the gradient is NaN or infinite")
    for row in rows:
        lines += ["", *_lines(row)]
    if len(rows) < len(found.rows):
        lines += ["", f"{len(rows)} of {len(found.rows)} rows; --rows shows more"]
    console = Terminal(highlight=False, soft_wrap=True, markup=False, emoji=False)
    with console.capture() as captured:
        for line in lines:
            console.print(line)
    return captured.get().splitlines()


def verdict(found: Replayed) -> str:
    """A sentence on whether the step matches the run's record."""
    if found.recorded is None:
        return "metrics.jsonl has no row of this step: nothing to compare with."
    if found.identical:
        return f"metrics.jsonl: all {len(found.recorded)} numbers of this step were reproduced, to the last bit."
    odd = (f"{name} {theirs!r}, here {mine!r}" for name, (theirs, mine) in found.differences.items())
    return f"NOT the same as in metrics.jsonl: {'; '.join(odd)}."


def _lines(row: ReplayedRow) -> Iterator[Text]:
    """Number and documents, and the text with what the main network read in its place."""
    yield Text(f"row {row.row}, lane {row.lane}" + ("" if row.finite else ", NaN OR INFINITE"), "bold")
    for part in row.documents:
        where = part.place
        lines = f"{where.line}-{where.last}" if where.last != where.line else f"{where.line}"
        file = f"{where.file}:{lines}" if where.line else where.file
        place = f"{file}, document {where.number} of the file: tokens {part.begin} to {part.end - 1}"
        yield Text(f"  {plain(place)}", "cyan")
    marked = Text(" ")
    for before, after, masked in zip(row.original, row.shown, row.masked, strict=True):
        if not masked:
            marked.append(plain(before[2:] if before.startswith("##") else f" {before}"), "dim")
        elif before == after:
            marked.append(f" [{plain(before)}]", "yellow")
        else:
            marked.append(f" [{plain(before)}→{plain(after)}]", "bold red")
    yield marked


def as_json(found: Replayed) -> dict[str, Any]:
    """Plain values; NaN and infinity are the texts "nan" and "inf"."""
    return {
        "step": found.step,
        "checkpoint": found.began,
        "finite": found.result.finite,
        "computed": {name: value if isfinite(value) else str(value) for name, value in found.computed.items()},
        "recorded": found.recorded,
        "identical": found.identical,
        "reservations": found.reservations,
        "rows": [
            vars(row) | {"documents": [vars(part) | {"place": part.place._asdict()} for part in row.documents]}
            for row in found.rows
        ],
    }
