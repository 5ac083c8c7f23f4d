"""Arms of `electra compare`: objectives at equal compute, every arm with every seed a separate run.

A cell trains, probes and records its result, and repeats no part that is done. Arms are comparable because each gets
the number of steps that spends the same FLOPs, or the same steps. Held-out metrics are compared only where they are
declared by name: a loss over masked tokens only differs from one over all tokens whatever the network learned.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from electra_trainer.data.store import Store
from electra_trainer.errors import ConfigError, DataError, Diverged, did_you_mean
from electra_trainer.experiments import cell as cells
from electra_trainer.experiments import sweep
from electra_trainer.experiments.cell import FACTS, PLUS, Cell, Declared, DeclaredRow, Result
from electra_trainer.experiments.engine import Reports, Work, run_facts
from electra_trainer.objectives import build
from electra_trainer.paper.probes import PROBES, Subject, fingerprint, parse_probes, probe
from electra_trainer.presets.arms import arm
from electra_trainer.runs import checkpoint, run_folder
from electra_trainer.settings import records
from electra_trainer.settings.config import Config
from electra_trainer.settings.records import differences, to_dict
from electra_trainer.settings.request import dotted_names
from electra_trainer.train import loop, optim, plan, stacked, weights
from electra_trainer.train.begin.settle import begin_run
from electra_trainer.train.begin.word_start import begin_words
from electra_trainer.train.device import choose_device

Match = Literal["paper-flops", "real-flops", "steps"]
UNTRAINED = "untrained"
"""The arm that is not trained: the baseline of every probe."""
_AUC = "held-out/discriminator_standard_auc"
"""On fakes that are the same for all arms: the metric that is declared where none is named and no probe has its own."""


class Comparing(Work):
    """The work of a comparison: arms that are pre-trained and probed."""

    verb = "compare"

    def __init__(self, asked: Any) -> None:
        """`asked`: a `Compare` of request.py, which imports this file to run."""
        self._asked = asked
        self._amount = amount_of(flops=asked.flops, steps=asked.steps, match=asked.match)
        self._shows = asked.parallel == 1 and not asked.quiet
        self._own: dict[str, Config] = {}
        self._todo: list[Cell] = []
        self._trained: set[Cell] = set()

    def declare(self, old: Declared | None) -> Declared:
        """See `Work`."""
        asked = self._asked
        probes = parse_probes(asked.probe or ("held-out",))
        match, amount = self._amount
        store = Store.open(asked.data)
        if "held-out" in probes and not len(store.rows("valid")):
            raise DataError(f"{asked.data}: holds no held-out rows. Prepare it with a --valid-fraction above 0.")
        parts = {
            name: {"folder": str(folder) if folder else None, "sha256": fingerprint(name, folder)}
            for name, folder in probes.items()
        }
        for name in asked.metric_names:
            _require_metric(name, parts | (old.parts if old is not None else {}))
        base = plan.fit_to_data(asked.settings, store)
        self._own = {name: plan.fit_to_data(config, store) for name, config in asked.own.items()}
        rows = self._rows(base, reference=None if old is None else next(iter(old.rows)))
        declared = Declared(
            verb=self.verb,
            facts={
                "preset": asked.settings.preset,
                **store.identity,
                "match": match,
                "amount": amount,
                "probe_sentences": asked.probe_sentences,
                "probe_pairs": asked.probe_pairs,
                "metrics": asked.metric_names,
                "probe_seeds": asked.probe_seeds if asked.probe_seeds > 1 else None,
                "probe_pooling": asked.probe_pooling if asked.probe_pooling != "cls" else None,
            },
            rows=rows,
            seeds=tuple(sorted(cells.parse_seeds(asked.seeds))),
            parts=parts,
            about={"data": str(asked.data)},
        )
        if old is not None and (reference := next(iter(old.rows))) not in rows:
            compared = replace(declared, rows={reference: DeclaredRow(settings=self._reference(reference, base))})
            cells.extend(old, compared, root=asked.out, identity=self.identity)  # refuses other settings
        return declared

    def _rows(self, base: Config, *, reference: str | None) -> dict[str, DeclaredRow]:
        """The arms, and every combination of swept values of each that is trained; without a reference the first is
        it.
        """
        axes = sweep.parse_axes(self._asked.sweep, flag="--sweep", example="optimizer.learning-rate=1e-4,3e-4")
        arms = {name: self._own.get(name) or arm_config(name, base) for name in self._asked.arm_names}
        sweep.require_fields(axes, [one for name, one in arms.items() if name != UNTRAINED])
        configs: dict[str, Config] = {}
        for name, one in arms.items():
            configs |= {name: one} if name == UNTRAINED else sweep.swept(name, one, axes)
        reference = reference or next(iter(configs))
        return {
            name: DeclaredRow(
                settings=self._settled(name, one, axes),
                reference=None if name == reference else reference,
                title=sweep.title(name, one, axes),
                baseline="fresh weights" if name == UNTRAINED else "",
            )
            for name, one in configs.items()
        }

    def _reference(self, row: str, config: Config) -> dict[str, Any]:
        """Settings that this command would give the row that an experiment began with."""
        name, *values = row.split(PLUS)
        axes = sweep.parse_axes(values, flag="--sweep", example="optimizer.learning-rate=1e-4")
        (one,) = sweep.swept(name, self._own.get(name) or arm_config(name, config), axes).values()
        return self._settled(name, one, axes)

    def _settled(self, name: str, config: Config, axes: sweep.Axes) -> dict[str, Any]:
        """A row's config with its steps (`settle`); fresh weights have none."""
        match, amount = self._amount
        if name != UNTRAINED:
            config = settle(config, match=match, amount=amount, keep={*axes, *dotted_names(self._asked.typed)})
        settings: dict[str, Any] = to_dict(config)
        return settings

    def identity(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """All but the seed, and what an earlier version computed otherwise."""
        return {**to_dict(records.read(Config, settings, where="rows")), "seed": 0, "last_layer": "read"}

    def with_contrasts(self, declared: Declared) -> Declared:
        """Each arm with the metrics on which it is compared with the reference, those declared before first; not fresh
        weights.
        """
        before = next((row.metrics for row in declared.rows.values() if row.metrics), ())
        probes = {part: its for part, its in PROBES.items() if part in declared.parts}
        usual = [f"{part}/{name}" for part, its in probes.items() for name in its.metrics] or [_AUC]
        metrics = tuple(declared.facts["metrics"] or dict.fromkeys([*before, *usual]))
        rows = {key: replace(row, metrics=() if key == UNTRAINED else metrics) for key, row in declared.rows.items()}
        return replace(declared, rows=rows)

    def todo(self, cells: Sequence[Cell], declared: Declared) -> list[Cell]:
        """Cells that are not trained, or lack a probe. A run that diverged would diverge again."""
        found = ((cell, cell.result()) for cell in cells)
        self._todo = [
            cell for cell, one in found if one is None or (one.failed is None and declared.parts.keys() - one.parts)
        ]
        return self._todo

    def units(self, cell: Cell, declared: Declared) -> float:
        """Steps; 1 for a cell that is trained in one step with an earlier one."""
        if cell.key == UNTRAINED:
            return 0.0
        first = next(iter(self._together(cell, declared, choose_device(self._asked.device))), cell)
        return float(declared.rows[cell.key].settings["schedule"]["steps"]) if first == cell else 1.0

    def do(self, cell: Cell, declared: Declared, *, device: str, reports: Reports) -> None:
        """Train and probe a cell, or resume it. A run that diverges is a result too: `failed` has the reason, without
        metrics.
        """
        result = cell.result()
        try:
            if result is None:
                reports.say("fresh weights" if cell.key == UNTRAINED else "training")
                self._train(cell, declared, device=device, reports=reports)
                result = _trained(cell)
            todo = {name: part["folder"] for name, part in declared.parts.items() if name not in result.parts}
            reports.say(f"probes {', '.join(todo)}")
            subject = Subject(
                run=cell.run,
                data=self._asked.data,
                seed=cell.seed,
                device=device,
                sentences=declared.facts["probe_sentences"],
                pairs=declared.facts["probe_pairs"],
                tunings=declared.facts.get("probe_seeds") or 1,
                pooling=declared.facts.get("probe_pooling") or "cls",
            )
            result = replace(result, scores=result.scores | probe(todo, subject))
        except Diverged as error:
            result = replace(_trained(cell), failed=str(error))
            reports.say(f"FAILED: {error}", style="bold red")
        cells.write_result(cell.folder, result)

    def _train(self, cell: Cell, declared: Declared, *, device: str, reports: Reports) -> None:
        config, where = _config(cell, declared), torch.device(device)
        if cell.key == UNTRAINED:
            initial_run(config, Store.open(self._asked.data), cell.run)
            return
        if self._asked.parallel == "stacked" and (why := stacked.why_not(config, where)):
            reports.say(f"trained alone: {why}")
        alike = self._together(cell, declared, where)
        if [*alike] == [cell]:
            loop.pretrain(config, self._asked.data, out=cell.run, device=device, quiet=not self._shows)
        elif cell in alike:  # else it was trained with an earlier one
            reports.say(f"in one step with {'; '.join(str(one) for one in alike if one != cell)}")
            runs = {one.run: its for one, its in alike.items()}
            diverged = stacked.pretrain_stacked(runs, self._asked.data, device=device, report=reports.progress)
            self._trained |= {one for one in alike if one.run not in diverged}
            if cell.run in diverged:
                raise diverged[cell.run]

    def _together(self, cell: Cell, declared: Declared, device: torch.device) -> dict[Cell, Config]:
        """The cells that are trained in one step with this one, and it, unless it is trained already, with their
        configs.
        """
        config = _config(cell, declared)
        if self._asked.parallel != "stacked" or stacked.why_not(config, device):
            return {cell: config}
        rows = {key: _config(one, declared) for key, one in {one.key: one for one in self._todo}.items()}
        rows = {key: its for key, its in rows.items() if stacked.shape_of(its) == stacked.shape_of(config)}
        waiting = [one for one in self._todo if one.key != UNTRAINED and not one.is_done and one not in self._trained]
        return {one: replace(rows[one.key], seed=one.seed) for one in waiting if one.key in rows}


def _config(cell: Cell, declared: Declared) -> Config:
    settings = {**records.EARLIER, **declared.rows[cell.key].settings}
    return replace(records.read(Config, settings, where=f"{cell.root}: rows: {cell.key}"), seed=cell.seed)


def _require_metric(name: str, parts: Mapping[str, Any]) -> None:
    """Refuse a metric that no probe has, or one whose probe is not among `parts`: now, not after the training."""
    part, _, metric = name.partition("/")
    known = [*FACTS, *(f"{part}/{one}" for part, its in PROBES.items() for one in its.metrics or "…")]
    if name not in known and (part != "held-out" or not metric):
        raise ConfigError(f"--metrics {name}:{did_you_mean(name, known)} Known: {', '.join(known)}.")
    if name not in FACTS and part not in parts:
        raise ConfigError(f"--metrics {name}: its probe is not requested. Add {part} to --probe.")


def _trained(cell: Cell) -> Result:
    """Cost and place of a cell's training."""
    return Result(key=cell.key, seed=cell.seed, facts=run_facts(cell.run), environment=cells.environment_of(cell.run))


def arm_config(name: str, config: Config) -> Config:
    """The config of an arm; `untrained` has ELECTRA's networks, fresh.

    Raises:
        ConfigError: no such arm, or one that this config cannot be.
    """
    try:
        return arm("electra" if name == UNTRAINED else name, config)
    except ConfigError as error:
        raise ConfigError(f"--arms {name}: {error}") from None


def initial_run(config: Config, store: Store, out: Path) -> None:
    """A run folder with the initial weights of a config as its only checkpoint, at step 0.

    Raises:
        ConfigError: another run is there.
    """
    folder = run_folder.RunFolder(out)
    folder.open_for_writing()
    if not folder.exists:
        begin_run(folder, config, store, {})
    elif changed := differences(folder.config(), config):
        raise ConfigError(f"{out} began with other settings ({'; '.join(changed)}). Choose another --out.")
    objective = build(config)
    weights.give_frequencies(objective, store)
    begin_words(objective, folder)
    saved = weights.state_of(objective, optim.build_optimizer(objective, config.optimizer), step=0, seconds=0.0)
    checkpoint.save(folder.checkpoints, saved, origin=folder.origin, keep=1)


def amount_of(*, flops: float | None, steps: int | None, match: Match | None) -> tuple[Match, float]:
    """Quantity that the arms are matched on, and its amount.

    Raises:
        ConfigError: none or several amounts, or one that `match` is no measure of.
    """
    plan.Length(flops=flops, steps=steps)  # checks each value, and that there is at most one
    if steps is not None and match in (None, "steps"):
        return "steps", float(steps)
    if flops is not None and match != "steps":
        return match or "paper-flops", flops
    raise ConfigError("give what each arm gets: --flops 1e15 (--match paper-flops or real-flops), or --steps 3000.")


def settle(config: Config, *, match: Match, amount: float, keep: Collection[str] = ()) -> Config:
    """`config` with the steps that spend `amount`, operations or steps; warm-up, decay and intervals are fitted to
    them.

    Args:
        keep: names of fields that are not fitted, since they are swept or have a flag.

    Raises:
        ConfigError: a step costs more than `amount`.
    """
    field = {"steps": "steps", "paper-flops": "flops", "real-flops": "flops_real"}[match]
    given: dict[str, Any] = {field: int(amount) if match == "steps" else amount}
    return plan.steps_for(plan.Length(**given, keep=keep), config, None)
