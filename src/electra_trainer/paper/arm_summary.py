"""The summary of `electra compare`: means of arms, paired differences, missing cells, as JSON, page and terminal.

The declared contrasts are those of all trained arms to the reference on the declared metrics; Holm's correction is over
them, once, those without a result included. All other metrics are in the summary too, uncorrected. Held-out metrics
are compared only between networks of the same kind judged on the same tokens, unless a metric was declared by name: the
loss of ELECTRA 15 %, which counts masked tokens only, differs whatever the network learned.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from electra_trainer.cost.parameters import learned_generator
from electra_trainer.experiments import folder, pages, results, statistics
from electra_trainer.files import durable, wording
from electra_trainer.paper import composite, sweep
from electra_trainer.settings import methods, records
from electra_trainer.settings.config import Config

ByArm = dict[str, dict[str, dict[int, float]]]
"""Arm -> metric -> seed -> value."""
UNTRAINED = "untrained"
"""The arm that is not trained: the baseline of every probe."""
_FINE_TUNED = ("glue/", "squad1/", "squad2/")
"""Beginnings of the scores of probes that fine-tune."""
_HELD_OUT = ("generator_loss", "discriminator_standard_auc", "encoder_loss")
"""Metrics that are declared by default; none depends on the fakes of the arm's own generator."""
_UNITS = {
    "paper-flops": "FLOPs as the paper counts",
    "real-flops": "FLOPs of matrix products",
    "steps": "steps",
    "time": "seconds",
}
_HEAD = ("metric", "arm", "n", *pages.CONTRAST)
_ON_TERMINAL = (0, 1, 2, 3, 4, 7, 8)
"""Of these columns, what fits into 100 characters."""


@dataclass(frozen=True, kw_only=True)
class CellState:
    """What became of a cell."""

    arm: str
    seed: int
    state: Literal["done", "failed", "missing"]
    run: str
    """Run folder, relative to the experiment's."""
    message: str | None = None
    """Why it failed."""
    values: dict[str, float] = field(default_factory=dict)
    """Facts and metrics by name."""


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """An arm against the reference on one metric."""

    metric: str
    arm: str
    reference: str
    declared: bool
    found: statistics.Paired
    p_holm: float | None
    """Corrected over the declared contrasts."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """All that an experiment says."""

    preset: str
    match: str
    amount: float
    seeds: tuple[int, ...]
    reference: str
    declared: tuple[str, ...]
    cells: list[CellState]
    arms: dict[str, dict[str, statistics.Spread]]
    """Arm -> metric -> its values over the seeds."""
    contrasts: list[Contrast]
    unmeasured: list[tuple[str, str]]
    """Declared contrasts, metric and arm, that no seed of both arms has; the correction counts them."""
    choose: str | None = None
    """The metric by which the best row of each arm that was swept is chosen."""
    chosen: dict[str, str | None] = field(default_factory=dict)
    """Arm -> its best row; None while one waits for a seed."""
    titles: dict[str, str] = field(default_factory=dict)
    """Arm -> its name in tables: an arm whose settings are swept is shown with its own values of them."""

    def plain(self) -> dict[str, Any]:
        """The same as summary.json has it."""
        table = {"version": 1, **asdict(self)}
        table["differences"] = [{**one, **one.pop("found")} for one in table.pop("contrasts")]
        return table


def summarize(root: Path) -> Summary:
    """The summary of whatever cells are in an experiment's folder.

    Raises:
        MissingInputError: no experiment is there. DataError: a result.json is not one.
    """
    experiment = folder.read(root, of="compare")
    found = [(cell, results.read_arm(cell)) for cell in experiment.cells(root)]
    states = [_state(cell, result) for cell, result in found]
    by_arm: ByArm = {arm: {} for arm in experiment.rows}
    for state in states:
        for name, value in state.values.items():
            by_arm[state.arm].setdefault(name, {})[state.seed] = value
    names = list(dict.fromkeys(name for state in states for name in state.values))
    for arm, by_seed in composite.composite(by_arm, reference=next(iter(by_arm))).items():
        by_arm[arm][composite.NAME] = by_seed
        names += [composite.NAME] * (composite.NAME not in names)
    declared = _declared_metrics(experiment, names)
    facts = experiment.facts
    probed = {(cell.key, part) for cell, result in found if result and not result.failed for part in result.parts}
    contrasts, unmeasured = _contrasts(experiment, by_arm, names, declared, probed)
    choose, failed = facts.get("choose"), {state.arm for state in states if state.state == "failed"}
    values = {arm: found[choose] for arm, found in by_arm.items() if choose in found}
    return Summary(
        preset=facts["preset"], match=facts["match"], amount=facts["amount"], seeds=experiment.seeds,
        reference=next(iter(experiment.rows)), declared=declared, cells=states,
        arms={
            arm: {name: statistics.spread(values[name], lower_is_better=name.endswith("loss")) for name in names if name in values}
            for arm, values in by_arm.items()
        },
        contrasts=contrasts, unmeasured=unmeasured, choose=choose, titles=sweep.titles(_configs(experiment)),
        chosen=sweep.choices(list(by_arm), choose, values, seeds=experiment.seeds, failed=failed) if choose else {},
    )  # fmt: skip


def _state(cell: folder.Cell, result: results.Measured | None) -> CellState:
    made = partial(CellState, arm=cell.key, seed=cell.seed, run=cell.named(cell.run))
    if result is None:
        return made(state="missing")
    if result.failed is not None:  # what a failed run took is not a cost of the arm
        return made(state="failed", message=result.failed)
    return made(state="done", values={name: float(value) for name, value in result.facts.items()} | result.metrics)


def comparable(metric: str, one: Config, other: Config) -> bool:
    """Whether a metric means the same in two arms. A held-out one does for networks of the same kind, judged on the
    same tokens; other probes always do.
    """
    probe, _, name = metric.partition("/")
    return probe != "held-out" or _judged(name, one) == _judged(name, other)


def _judged(name: str, config: Config) -> object:
    """The network and the tokens that a held-out metric describes; equal values are comparable."""
    objective = config.objective
    if name == "discriminator_standard_auc":  # the fakes follow from the data alone
        return name
    if name.startswith("generator_"):
        network: object = learned_generator(config) if objective.uses_generator else config.model
    elif name in ("fake_rate", "discriminator_auc", "discriminator_loss", "discriminator_constant_loss"):
        over = objective.loss_over if isinstance(objective, methods.RTD) else "all"
        unchanged = objective.unchanged if isinstance(objective, methods.SentenceContrast) else 0.0
        network = (objective.keeps, config.model, over, unchanged)
    else:
        network = (config.model, objective)
    return config.masking, network


def _declared_metrics(experiment: folder.Declared, names: list[str]) -> tuple[str, ...]:
    """The declared metrics; by default Q where its probes and two seeds are asked for, and GLUE; or those of the probes
    that all arms share; or else held-out metrics. Which of them follows from what was asked for, not from what is done.
    """
    if experiment.facts["metrics"]:
        return tuple(experiment.facts["metrics"])
    if experiment.parts.keys() >= composite.PROBES and len(experiment.seeds) > 1:
        return (composite.NAME, *(name for name in names if name.startswith(_FINE_TUNED)))
    if experiment.parts.keys() & {"pos", "minimal-pairs", "glue", "squad1", "squad2"}:
        tags = ("pos/accuracy",) if "pos" in experiment.parts else ()
        return (*tags, *(name for name in names if name.startswith(("minimal-pairs/", *_FINE_TUNED))))
    return tuple(name for name in names if name in {f"held-out/{metric}" for metric in _HELD_OUT})


def _configs(experiment: folder.Declared) -> dict[str, Config]:
    return {name: records.read(Config, row, where=f"arms: {name}") for name, row in experiment.rows.items()}


def _contrasts(
    experiment: folder.Declared,
    by_arm: ByArm,
    names: list[str],
    declared: tuple[str, ...],
    probed: set[tuple[str, str]],
) -> tuple[list[Contrast], list[tuple[str, str]]]:
    """Every difference, and the declared ones without a result. A default metric that the networks of an arm cannot
    give was not declared.

    Args:
        probed: arms and probes of which some cell has the result.
    """
    configs = _configs(experiment)
    reference, *others = configs
    found: dict[tuple[str, str], statistics.Paired] = {}
    unmeasured = []
    for name in dict.fromkeys([*declared, *(n for n in names if n not in results.FACTS)]):
        for arm in others:
            pair = statistics.compare_paired(by_arm[arm].get(name, {}), by_arm[reference].get(name, {}))
            named = name in experiment.facts["metrics"]
            if not (named or comparable(name, configs[arm], configs[reference])):
                continue
            if pair is not None:
                found[name, arm] = pair
            elif name in declared and arm != UNTRAINED:
                parts = composite.PROBES if name == composite.NAME else {name.partition("/")[0]}
                lacking = [one for one in (arm, reference) if name not in by_arm[one]]
                if named or not any({(one, part) for part in parts} <= probed for one in lacking):
                    unmeasured.append((name, arm))
    family = {(name, arm): pair.p for (name, arm), pair in found.items() if name in declared and arm != UNTRAINED}
    p_holm = statistics.holm({**family, **dict.fromkeys(unmeasured)})
    contrasts = [
        Contrast(
            metric=name,
            arm=arm,
            reference=reference,
            declared=(name, arm) in family,
            found=pair,
            p_holm=p_holm.get((name, arm)),
        )
        for (name, arm), pair in found.items()
    ]
    return contrasts, unmeasured


def write_summary(root: Path) -> Summary:
    """Sum up, and write summary.json and summary.md."""
    summary = summarize(root)
    durable.replace_durably(root / "summary.json", (json.dumps(summary.plain(), indent=1) + "\n").encode())
    durable.replace_durably(root / "summary.md", markdown(summary).encode())
    return summary


def _titled(summary: Summary) -> Summary:
    """The summary with each arm under its name in tables."""
    title = {arm: summary.titles.get(arm, arm) for arm in summary.arms}
    return replace(
        summary,
        reference=title[summary.reference],
        cells=[replace(one, arm=title[one.arm]) for one in summary.cells],
        arms={title[arm]: values for arm, values in summary.arms.items()},
        contrasts=[replace(one, arm=title[one.arm], reference=title[one.reference]) for one in summary.contrasts],
        unmeasured=[(metric, title[arm]) for metric, arm in summary.unmeasured],
        chosen={arm: row and title[row] for arm, row in summary.chosen.items()},
    )


def markdown(summary: Summary) -> str:
    """The page: the comparison, all means, all differences, every cell."""
    summary = _titled(summary)
    declared = [one for one in summary.contrasts if one.declared]
    others = [one for one in summary.contrasts if not one.declared]
    metrics = [*(name for values in summary.arms.values() for name in values), *summary.declared]
    tables = {
        "means": _means(summary, metrics),
        "declared": [_HEAD, *map(_row, declared)],
        "others": [_HEAD, *map(_row, others)] if others else [],
        "medians": _medians(summary),
        "runs": [("arm", "seed", "state", *results.FACTS, "run"), *map(_cell_row, summary.cells)],
    }
    return wording.render(
        "arm_summary.md",
        summary=summary,
        unit=_UNITS[summary.match],
        amount=pages.number(summary.amount),
        legend=pages.LEGEND,
        chosen=_chosen(summary),
        unfinished=_unfinished(summary),
        notes=[*_notes(declared), *_not_compared(summary)],
        **{name: "\n".join(pages.pipes(rows)) if rows else "" for name, rows in tables.items()},
    )


def print_summary(summary: Summary, *, console: Console | None = None) -> None:
    """Means and differences of the declared metrics, and what failed or is missing."""
    console, summary = console or pages.terminal(), _titled(summary)
    means = _means(summary, [*summary.declared, "steps", "seconds"])
    pages.print_table(console, list(zip(*means, strict=True)), title="mean ± SD (seeds)")
    shown = [one for one in summary.contrasts if one.metric in summary.declared]
    if shown:
        rows = [[row[column] for column in _ON_TERMINAL] for row in (_HEAD, *map(_row, shown))]
        pages.print_table(console, rows, title=f"\ndifferences to {summary.reference}, paired by seed")
        pages.print_lines(console, _notes(shown))
    pages.print_lines(console, [*_chosen(summary), *_not_compared(summary), *_unfinished(summary)])


def _chosen(summary: Summary) -> list[str]:
    """The rule, and what it chose of each arm."""
    if summary.choose is None:
        return []
    lines = [
        "Declared before the first run: of each arm the values with the "
        f"{'lowest' if summary.choose.endswith('loss') else 'highest'} mean "
        f"of {summary.choose} over seeds {', '.join(map(str, summary.seeds))}, on rows that no table reports."
    ]
    for arm, row in summary.chosen.items():
        rivals = sum(sweep.arm_of_row(one) == arm for one in summary.arms)
        if row is None:
            lines.append(f"Not chosen yet: {arm}, one of its {rivals} combinations waits for a seed.")
        else:
            lines.append(
                f"Chosen: {row}, {_mean(summary.arms[row][summary.choose])}, of {rivals} combinations of {arm}."
            )
    return lines


def _unfinished(summary: Summary) -> list[str]:
    failed = [f"FAILED: {one.arm}, seed {one.seed}: {one.message}" for one in summary.cells if one.state == "failed"]
    missing = [f"{one.arm} seed {one.seed}" for one in summary.cells if one.state == "missing"]
    declared = [f"{metric} of {arm}" for metric, arm in summary.unmeasured]
    seeds = len(summary.seeds)
    few = [
        f"{one.metric} of {one.arm} ({one.found.n} of {seeds})"
        for one in summary.contrasts
        if one.declared and one.found.n < seeds
    ]
    return [
        *failed,
        *([f"Missing: {', '.join(missing)}."] if missing else []),
        *([f"Declared and not measured, but counted by Holm's correction: {', '.join(declared)}."] if declared else []),
        *([f"Declared and measured for fewer seeds than were asked for: {', '.join(few)}."] if few else []),
    ]


def _not_compared(summary: Summary) -> list[str]:
    """Trained arms that no declared metric compares with the reference, though both were measured."""
    compared = {one.arm for one in summary.contrasts if one.declared}
    measured = {one.arm for one in summary.cells if one.state == "done"}
    arms = [arm for arm in summary.arms if arm in measured - compared - {summary.reference, UNTRAINED}]
    if not arms or summary.reference not in measured:
        return []
    return [
        f"Not compared: {', '.join(arms)} with {summary.reference}: no declared metric is of like networks at the same "
        "tokens in both. Ask all arms the same, for example with --probe pos=TREEBANK."
    ]


def _means(summary: Summary, metrics: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows of a table: metrics down, arms across."""
    rows = [(name, *(_mean(one.get(name)) for one in summary.arms.values())) for name in dict.fromkeys(metrics)]
    return [("metric", *summary.arms), *rows]


def _mean(found: statistics.Spread | None) -> str:
    if found is None:
        return pages.ABSENT
    return pages.number(found.mean) + (f" ± {found.sd:.2g}" if found.sd is not None else "") + f" ({found.n})"


def _medians(summary: Summary) -> list[tuple[str, ...]]:
    """Of the declared metrics: medians, and the runs to look at."""
    return [
        ("metric", "arm", "median", "median seed", "best", "best seed"),
        *(
            (name, arm, pages.number(one.median), str(one.median_seed), pages.number(one.best), str(one.best_seed))
            for name in summary.declared
            for arm, values in summary.arms.items()
            if (one := values.get(name)) is not None
        ),
    ]


def _row(one: Contrast) -> tuple[str, ...]:
    arm = one.arm + (" (baseline)" if one.arm == UNTRAINED else "")
    return (one.metric, arm, str(one.found.n), *pages.contrast(one.found, one.p_holm))


def _notes(contrasts: Sequence[Contrast]) -> list[str]:
    """Each note once, with whom it concerns."""
    own = dict.fromkeys(one.metric for one in contrasts if one.metric.removeprefix("held-out/") in sweep.OWN_FAKES)
    whom: dict[str, list[str]] = {}
    for one in contrasts:
        if one.found.note is not None:
            whom.setdefault(one.found.note, []).append(f"{one.arm} {one.metric}")
    easier = "come from the fakes of each arm's own generator, so a worse generator makes better values"
    same = "held-out/discriminator_standard_auc has the same fakes for all"
    first = [f"Note: {', '.join(own)} {easier}; {same}."] if own else []
    return first + [
        f"Note: {note}" + ("." if len(names) == len(contrasts) else f" ({', '.join(names)}).")
        for note, names in whom.items()
    ]


def _cell_row(one: CellState) -> tuple[str, ...]:
    state = one.state if one.message is None else f"{one.state}: {one.message}"
    facts = (pages.number(one.values[name]) if one.values else pages.ABSENT for name in results.FACTS)
    return (one.arm, str(one.seed), state, *facts, one.run if one.state == "missing" else f"[{one.run}]({one.run})")
