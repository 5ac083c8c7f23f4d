"""`electra compare`: objectives at equal compute, every arm with every seed a separate run, and their summary.

`compare` hands a `Comparing` to the engine of experiments/runner.py. A cell trains, probes and records its result, and
repeats no part that is done. Arms are comparable because each gets the number of steps that spends the same FLOPs,
steps or time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from electra_trainer.cost.flops import steps_for_flops
from electra_trainer.data.store import Store
from electra_trainer.errors import ConfigError, DataError, Diverged, did_you_mean, require
from electra_trainer.experiments.folder import Cell, Declared, Event, Of, Order, Reports, Work
from electra_trainer.experiments.results import FACTS, Measured, environment_of, read_arm, write_arm
from electra_trainer.experiments.runner import run_experiment, run_facts
from electra_trainer.objectives import build
from electra_trainer.paper import composite, sweep
from electra_trainer.paper.arm_summary import UNTRAINED, Summary, comparable, summarize, write_summary
from electra_trainer.paper.probes import METRICS, PROBES, Subject, fingerprint, parse_probes, probe
from electra_trainer.presets.arms import arm
from electra_trainer.runs import checkpoint, run_folder
from electra_trainer.settings import records
from electra_trainer.settings.config import FOLLOWS_FROM_STEPS, Config
from electra_trainer.settings.records import differences, to_dict
from electra_trainer.train import loop, optim, plan, weights, word_start
from electra_trainer.train.device import choose_device, choose_precision, use_threads
from electra_trainer.train.timing import measure_time

Match = Literal["paper-flops", "real-flops", "steps", "time"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A request: arms, seeds, amount and probes."""

    arms: Sequence[str]
    """Names of arms (arms.py), or `untrained`; the first is the reference."""
    seeds: Sequence[int] = (1, 2, 3)
    flops: float | None = None
    """Operations of each run; or `steps`, or `budget`."""
    steps: int | None = None
    budget: str | None = None
    """Wall-clock time of each run, for example 10m."""
    match: Match | None = None
    """What is equal: by default paper-FLOPs with `flops`, steps with `steps`, time with `budget`."""
    probes: Sequence[str] = ("held-out",)
    """`held-out`, `pos=TREEBANK`, `sentences=FOLDER`, `minimal-pairs=FOLDER`, `glue=FOLDER`, `squad=FOLDER`; see
    probes.py.
    """
    probe_sentences: int = 4000
    """Sentences that a probe which learns is trained on."""
    probe_pairs: int = 100
    """Minimal pairs that are read of each paradigm."""
    probe_seeds: int = 1
    """Fine-tuning seeds of the probes `glue` and `squad`: their scores are medians."""
    metrics: Sequence[str] = field(default_factory=tuple)
    """Metrics whose contrasts are declared, for example pos/accuracy; empty: arm_summary.py's default."""
    sweep: Sequence[str] = field(default_factory=tuple)
    """Values of settings, crossed, as further arms: `optimizer.learning-rate=1e-4,3e-4`; see sweep.py."""
    choose: str | None = None
    """The metric by which the best combination of each arm is chosen."""

    def __post_init__(self) -> None:
        if not self.arms or not self.seeds:
            raise ConfigError(
                "compare: expected at least one arm and one seed, for example --arms electra,mlm --seeds 3."
            )
        twice = [name for name in self.arms if list(self.arms).count(name) > 1]
        if twice:
            raise ConfigError(f"--arms: {twice[0]} is given twice.")
        require(self.probe_sentences >= 1, "--probe-sentences", self.probe_sentences, "at least 1")
        require(self.probe_pairs >= 1, "--probe-pairs", self.probe_pairs, "at least 1")
        require(self.probe_seeds >= 1, "--probe-seeds", self.probe_seeds, "at least 1")
        require(
            self.choose is None or bool(self.sweep), "--choose", self.choose, "--sweep, whose values it chooses among"
        )
        require(min(self.seeds) >= 0, "--seeds", min(self.seeds), "numbers of at least 0")
        for name in (*self.metrics, *([self.choose] if self.choose else [])):
            probe, _, metric = name.partition("/")
            names = METRICS.get(probe, (metric,))  # those of other probes depend on the objective
            if name not in (*FACTS, composite.NAME) and not (metric in names and metric and probe in PROBES):
                known = [
                    *FACTS,
                    composite.NAME,
                    *(f"{probe}/{metric}" for probe in PROBES for metric in METRICS.get(probe, "…")),
                ]
                flag = "--choose" if name == self.choose else "--metrics"
                raise ConfigError(f"{flag} {name}:{did_you_mean(name, known)} Known: {', '.join(known)}.")


def compare(
    asked: Comparison,
    config: Config,
    data: Path,
    *,
    out: Path,
    shard: tuple[int, int] = (1, 1),
    parallel: int = 1,
    device: str = "auto",
    quiet: bool = False,
) -> Summary:
    """Run the unfinished cells of a comparison, and summarise all finished ones.

    Args:
        config: the preset with its settings, which every arm begins from; its seed is not used.
        data: a folder that `prepare` made.
        out: the experiment's folder: a new one, or one to resume or extend.
        shard: (i, N): run every N-th cell, from the i-th on.
        parallel: runs at once, each with its share of the cores or a GPU.

    Raises:
        ConfigError: an impossible arm, probe or amount, or another experiment in `out`.
        Interrupted: stopped and saved; the summary of the finished cells is written, and the same call resumes.
        ElectraError: as `pretrain` and the probes.
    """
    use_threads()
    if parallel > 1 and asked.budget is not None:
        raise ConfigError(
            "--parallel: runs at once slow each other down, and --budget is time. Give --flops or --steps."
        )
    work = Comparing(asked, config, data, device=device, quiet=quiet, alone=parallel == 1)
    run_experiment(work, out, device=str(choose_device(device)), parallel=parallel, shard=shard, quiet=quiet)
    return summarize(out)


class Comparing(Work):
    """The work of a comparison: arms that are pre-trained and probed."""

    of: Of = "compare"
    own_display = True

    def __init__(self, asked: Comparison, config: Config, data: Path, *, device: str, quiet: bool, alone: bool) -> None:
        self._asked, self._config, self._data = asked, config, data
        self._device, self._quiet, self._shows = device, quiet, alone and not quiet

    def declare(self, old: Declared | None) -> Declared:
        """See `Work`. Steps that were measured when the experiment began stay."""
        asked = self._asked
        probes = parse_probes(asked.probes)
        match, amount = amount_of(flops=asked.flops, steps=asked.steps, budget=asked.budget, match=asked.match)
        store = Store.open(self._data)
        if "held-out" in probes and not len(store.rows("valid")):
            raise DataError(f"{self._data}: holds no held-out rows. Prepare it with a --valid-fraction above 0.")
        config = plan.fit_to_data(self._config, store)
        parts = {
            name: {"folder": str(folder) if folder else None, "sha256": fingerprint(name, folder)}
            for name, folder in probes.items()
        }
        for name in asked.metrics:  # a metric that cannot be measured is refused now, not after the training
            part, there = name.partition("/")[0], {**parts, **(old.parts if old is not None else {})}
            if name == composite.NAME and not there.keys() >= composite.PROBES:
                raise ConfigError(f"--metrics {name}: its probes are not all requested. Add --probe quick=DIR.")
            if name not in (*FACTS, composite.NAME) and part not in there:
                raise ConfigError(
                    f"--metrics {name}: the probe {part} is not requested. "
                    f"Add --probe {part}{'=DIR' if part in METRICS else ''}."
                )
        rows = self._rows(config)
        if asked.choose is not None:
            sweep.require_choosable(asked.choose, {**parts, **(old.parts if old is not None else {})})
            _require_alike(asked.choose, rows)
        for name, one in rows.items():
            if name != UNTRAINED and not (match == "time" and old is not None and name in old.rows):
                timing = self._timing(one, store) if match == "time" else None
                rows[name] = settle(one, match=match, amount=amount, timing=timing)
        return Declared(
            of=self.of,
            facts={
                "preset": config.preset,
                **store.identity,
                "match": match,
                "amount": amount,
                "probe_sentences": asked.probe_sentences,
                "probe_pairs": asked.probe_pairs,
                "metrics": tuple(asked.metrics),
                "choose": asked.choose,
                "probe_seeds": asked.probe_seeds if asked.probe_seeds > 1 else None,
            },
            rows={name: to_dict(one) for name, one in rows.items()},
            seeds=tuple(sorted(set(asked.seeds))),
            parts=parts,
            about={"data": str(self._data)},
        )

    def _rows(self, config: Config) -> dict[str, Config]:
        """The arms, and every combination of swept values of each that is trained."""
        axes, arms = sweep.parse_sweep(self._asked.sweep), {name: arm_config(name, config) for name in self._asked.arms}
        sweep.require_fields(axes, [one for name, one in arms.items() if name != UNTRAINED])
        rows: dict[str, Config] = {}
        for name, one in arms.items():
            rows |= {name: one} if name == UNTRAINED else sweep.swept(name, one, axes)
        return rows

    def _timing(self, config: Config, store: Store) -> plan.Timing:
        where = choose_device(self._device)
        return measure_time(config, store, device=where, precision=choose_precision(config.precision, where))

    def identity(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """All but the seed, and what follows from steps that were measured."""
        config = replace(records.read(Config, row, where="experiment.json: arms"), seed=0)
        return _without(to_dict(config), FOLLOWS_FROM_STEPS if self._asked.budget is not None else ())

    def orders(self, cells: Sequence[Cell], declared: Declared) -> list[Order]:
        """Cells that are not trained, or lack a probe. A run that diverged would diverge again."""
        found = {cell: read_arm(cell) for cell in cells}
        return [
            Order(cell=cell)
            for cell, result in found.items()
            if result is None or (result.failed is None and declared.parts.keys() - result.parts)
        ]

    def units(self, cell: Cell, declared: Declared) -> float:
        """Steps."""
        return 0.0 if cell.key == UNTRAINED else float(declared.rows[cell.key]["schedule"]["steps"])

    def do(self, order: Order, declared: Declared, *, device: str, reports: Reports) -> None:
        """Train and probe a cell, or resume it. A run that diverges is a result too: `failed` has the reason, without
        metrics.
        """
        cell, result = order.cell, read_arm(order.cell)
        try:
            if result is None:
                said = "fresh weights" if cell.key == UNTRAINED else "training"
                reports.tell(Event(kind="said", text=said))
                self._train(cell, declared, device=device, reports=reports)
                result = _trained(cell)
            todo = {name: part["folder"] for name, part in declared.parts.items() if name not in result.parts}
            reports.tell(Event(kind="said", text=f"probes {', '.join(todo)}"))
            subject = Subject(
                run=cell.run,
                data=self._data,
                folder=None,
                seed=cell.seed,
                device=device,
                sentences=declared.facts["probe_sentences"],
                pairs=declared.facts["probe_pairs"],
                tunings=declared.facts.get("probe_seeds") or 1,
            )
            metrics = {**result.metrics, **probe(todo, subject)}
            result = replace(result, parts=(*result.parts, *todo), metrics=metrics)
        except Diverged as error:
            result = replace(_trained(cell), failed=str(error))
            reports.tell(Event(kind="said", text=f"FAILED: {error}", style="bold red"))
        write_arm(result)

    def _train(self, cell: Cell, declared: Declared, *, device: str, reports: Reports) -> None:
        row = records.read(Config, declared.rows[cell.key], where=f"{cell.root}: arms: {cell.key}")
        config = replace(row, seed=cell.seed)
        if cell.key == UNTRAINED:
            return initial_run(config, Store.open(self._data), cell.run)
        reports.saving(True)
        try:
            loop.pretrain(config, self._data, out=cell.run, device=device, quiet=not self._shows)
        finally:
            reports.saving(False)

    def sum_up(self, out: Path) -> object:
        """See `Work`."""
        return write_summary(out)


def _trained(cell: Cell) -> Measured:
    """What a cell's training took, and where."""
    return Measured(**vars(cell), facts=run_facts(cell.run), environment=environment_of(cell.run))


def _without(table: Mapping[str, Any], beginnings: tuple[str, ...], prefix: str = "") -> dict[str, Any]:
    """A table without the fields whose dotted names begin so."""
    return {
        name: _without(value, beginnings, f"{prefix}{name}.") if isinstance(value, dict) else value
        for name, value in table.items()
        if not f"{prefix}{name}".startswith(beginnings)
    }


def _require_alike(metric: str, rows: Mapping[str, Config]) -> None:
    """Refuse to choose among rows of an arm for which a held-out metric does not mean the same; ConfigError."""
    first: dict[str, str] = {}
    for row in rows:
        other = first.setdefault(sweep.arm_of_row(row), row)
        if not comparable(metric, rows[row], rows[other]):
            raise ConfigError(
                f"--choose {metric}: does not mean the same in {other} and {row}. Choose by "
                "held-out/discriminator_standard_auc, or on a "
                f"part of the training rows of a task: --probe {sweep.NESTED}pos=TREEBANK --choose "
                f"{sweep.NESTED}pos/accuracy."
            )


def arm_config(name: str, config: Config) -> Config:
    """The config of an arm; `untrained` has ELECTRA's networks, fresh.

    Raises:
        ConfigError: no such arm, or one that this config cannot be.
    """
    if name == UNTRAINED:
        return arm("electra", config)
    try:
        return arm(name, config)
    except ConfigError as error:
        known = f" Or {UNTRAINED}: fresh weights." if str(error).startswith("Unknown arm") else ""
        raise ConfigError(f"--arms {name}: {error}{known}") from None


def initial_run(config: Config, store: Store, out: Path) -> None:
    """A run folder with the initial weights of a config as its only checkpoint, at step 0.

    Raises:
        ConfigError: another run is there.
    """
    folder = run_folder.RunFolder(out)
    folder.open_for_writing()
    if not folder.exists:
        loop.begin_run(folder, config, store, {})
    elif changed := differences(folder.config(), config):
        raise ConfigError(f"{out} began with other settings ({'; '.join(changed)}). Choose another --out.")
    objective = build(config)
    weights.give_frequencies(objective, store)
    word_start.begin_words(objective, folder)
    saved = weights.state_of(objective, optim.build_optimizer(objective, config.optimizer), step=0, seconds=0.0)
    checkpoint.save(folder.checkpoints, saved, origin=folder.origin, keep=1)


_GIVEN_BY: dict[Match, str] = {"paper-flops": "flops", "real-flops": "flops", "steps": "steps", "time": "budget"}
"""The flag that gives an amount of what the arms are matched on; the first of a flag is meant where nothing else is
said.
"""


def amount_of(
    *, flops: float | None, steps: int | None, budget: str | None, match: Match | None
) -> tuple[Match, float]:
    """What the arms are matched on, and how much of it each is given.

    Raises:
        ConfigError: none or several amounts, or one that `match` is no measure of.
    """
    plan.Length(flops=flops, steps=steps, budget=budget)  # checks each value, and that there is at most one
    given = {"flops": flops, "steps": steps, "budget": None if budget is None else plan.seconds(budget)}
    for flag, amount in given.items():
        if amount is not None:
            fitting = [kind for kind, needed in _GIVEN_BY.items() if needed == flag]
            chosen = match or fitting[0]
            if chosen not in fitting:
                raise ConfigError(f"--match {chosen}: give --{_GIVEN_BY[chosen]}.")
            return chosen, float(amount)
    raise ConfigError("how much each arm is given is not said: --flops 1e15, --steps 3000 or --budget 10m.")


def settle(config: Config, *, match: Match, amount: float, timing: plan.Timing | None = None) -> Config:
    """`config` with the steps that spend `amount`; warm-up, decay and intervals are fitted to them (`with_steps`).

    Args:
        amount: operations, steps, or seconds.
        timing: of this arm on this machine, where `match` is "time".
    """
    if match == "time":
        return plan.steps_for(plan.Length(budget=f"{amount}s"), config, timing)
    steps = int(amount) if match == "steps" else steps_within(config, amount, counting=match)
    return plan.steps_for(plan.Length(steps=steps), config, None)


def steps_within(config: Config, flops: float, *, counting: Literal["paper-flops", "real-flops"]) -> int:
    """The most steps that cost no more than `flops`, at least 1."""
    return max(1, steps_for_flops(config, flops=flops, counting="paper" if counting == "paper-flops" else "real"))
