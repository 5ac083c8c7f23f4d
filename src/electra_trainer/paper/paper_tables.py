"""Tables 1, 2, 3, 4 and 7 with our rows under the paper's, as Markdown or LaTeX. No torch here.

The paper's rows keep their order. A row that this package can train (an ELECTRA or the paper's own BERT) is followed by
one row for every experiment that has it, or by one row that says it is missing. Runs that match no row of the paper
come last. Each row of ours names its runs; nothing that is missing is blank or zero.

Our side of tables and figures is an `Entry`: an arm of an experiment, or an encoder that was fine-tuned.
"""

import fnmatch
import math
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from electra_trainer.cost.flops import infer_flops, run_flops
from electra_trainer.cost.parameters import parameters
from electra_trainer.errors import ConfigError, DataError, MissingInputError, did_you_mean
from electra_trainer.experiments.cell import FACTS, Cell, DeclaredRow, Result
from electra_trainer.experiments.statistics import Spread, compare_paired, spread
from electra_trainer.experiments.summary import Summary, gaps
from electra_trainer.files import wording
from electra_trainer.files.wording import duration
from electra_trainer.finetuning import glue_table
from electra_trainer.inspection.report import read_run
from electra_trainer.paper.published import PRINTED, SQUAD, TABLES
from electra_trainer.presets import arms, models
from electra_trainer.settings import records
from electra_trainer.settings.config import Config

PUBLISHED_SCORES = ("glue/", "glue-test/", "squad1/", "squad2/")
"""How metrics begin that have a column of their own in some table of the paper; it prints them in points."""
_AVERAGE = "glue/average"
_PAPERS_MASKED = 0.15
_PREFERRED = (_AVERAGE, "pos/accuracy", "held-out/discriminator_standard_auc")
"""Metrics of figures: of those that all arms have, the first is shown. Other held-out metrics depend on an arm's own
fakes or masks.
"""
_BASE_INFER_FLOPS = 2.9e10  # BERT-Base, the reference of Table 1's speedups


def factor(metric: str) -> float:
    """Factor of a share on the paper's axes: GLUE and SQuAD are shown in points."""
    return 100.0 if metric.startswith(PUBLISHED_SCORES) else 1.0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The content of a row of ours: an arm of `electra compare`, or a fine-tuned encoder, with a finished seed."""

    experiment: Summary
    arm: str
    results: tuple[Result, ...]
    """One for each seed; of a fine-tuned encoder with the scores of all tasks and the cost of its pre-training."""
    config: Config | None
    """The configuration of the pre-training; None where it cannot be read."""

    @property
    def tuned(self) -> bool:
        """Whether its numbers are medians over fine-tuning seeds, as the paper's are (§3.1)."""
        return self.experiment.declared.verb != "compare"

    @property
    def preset(self) -> str:
        """The preset that the pre-training began from; the name of an encoder whose folder does not say."""
        about = self.experiment.declared.about
        encoder = (about.get("encoder") or {}).get("config", {}).get("preset") or Path(about.get("model") or "").name
        return str(self.experiment.declared.facts.get("preset", encoder))

    @property
    def label(self) -> str:
        """The preset, and the experiment's folder where it says more."""
        name = self.experiment.name
        return name if name == self.preset else f"{self.preset}\n{name}"

    @property
    def size(self) -> str:
        """The preset's size in the paper's words: `bert_small` and `small_50` train the same network as `small`.
        Another shape or batch than the preset's is no size of the paper.
        """
        if self.config is not None and self.preset in models.PRESETS:
            own, named = self.config, models.preset(self.preset)
            batch = replace(own.batch, lanes=named.batch.lanes)
            if replace(own.model, vocab_size=named.model.vocab_size) != named.model or batch != named.batch:
                return f"{self.preset}, changed"
        return models.SIZES.get(self.preset, self.preset)

    def by_seed(self, name: str) -> dict[int, float]:
        """A metric, or a cost of the pre-training, of each seed that has it, in the paper's units.

        Raises:
            DataError: a score that is not a share between -1 and 1.
        """
        given = {one.seed: value for one in self.results if (value := (one.facts | one.scores).get(name)) is not None}
        if factor(name) > 1 and (wrong := [value for value in given.values() if abs(value) > 1]):
            raise DataError(
                f"{self.experiment.path}: {name} = {wrong[0]}: expected a share between -1 and 1, not points."
            )
        return {seed: factor(name) * value for seed, value in given.items()}

    def spread(self, name: str) -> Spread | None:
        """Spread of `by_seed`; None where no seed has it."""
        found = self.by_seed(name)
        return spread(found) if found else None

    def having(self, metric: str) -> "Entry":
        """Only the seeds that have a metric and a cost."""
        kept = self.by_seed(metric).keys() & self.by_seed("flops_paper").keys()
        return replace(self, results=tuple(one for one in self.results if one.seed in kept))

    @property
    def unfinished(self) -> str:
        """The step of a checkpoint from before the end of its run, in words; it has not decayed as a shorter run
        has.
        """
        steps = self.spread("steps")
        if not self.tuned or self.config is None or steps is None or steps.median >= self.config.schedule.steps:
            return ""
        return f"step {steps.median:,.0f} of {self.config.schedule.steps:,}"

    @property
    def share_trained(self) -> float | None:
        """Share of the FLOPs of the full ELECTRA of this size (as the paper counts); None for another preset."""
        spent = self.spread("flops_paper")
        if self.size not in models.PRESETS or spent is None or not spent.mean:
            return None
        return spent.mean / run_flops(models.preset(self.size)).paper

    def fits(self, *, arm: str, size: str | None = None, share: float | None = None) -> bool:
        """Whether it is what a row of the paper needs: the arm, the size, and the share of the size's full training."""
        if self.arm != arm or size not in (None, self.size):
            return False
        trained = self.share_trained
        # within 15 %: the paper's BERT-Small costs 1.10 of ELECTRA-Small by the authors' own count
        return share is None or (trained is not None and abs(math.log(trained / share)) < math.log(1.15))

    def curves(self, metric: str) -> list[list[tuple[float, float]]]:
        """For each seed (FLOPs, metric) during training; empty where the run did not measure it."""
        cells = (Cell(root=self.experiment.path, key=one.key, seed=one.seed) for one in self.results)
        return [_curve(cell.kept, metric.removeprefix("held-out/")) for cell in cells]


def _curve(run: Path, metric: str) -> list[tuple[float, float]]:
    """The metric in a run's held-out rows."""
    try:
        rows = read_run(run).valid
    except (MissingInputError, DataError):
        return []  # a cell without its run folder still has its result
    points = [(row.get("flops", 0.0), row.get(metric, math.nan)) for row in rows]
    return [(flops, value) for flops, value in points if math.isfinite(value) and flops > 0]


def entries(experiments: Sequence[Summary], *, metric: str | None = None) -> list[Entry]:
    """All arms and encoders that have a finished cell, in the order of the experiments and of their arms.

    Args:
        metric: only those that have it, with the seeds that have it and a cost.
    """
    found: list[Entry] = []
    for one in experiments:
        found += _arms(one) if one.declared.verb == "compare" else _tuned(one)
    if metric is not None:
        found = [entry.having(metric) for entry in found]
    return [entry for entry in found if entry.results]


def _config(plain: Any) -> Config | None:
    """A configuration from its JSON; None where it cannot be read."""
    try:
        return None if plain is None else records.read(Config, plain, where="config")
    except ConfigError:
        return None


def _arms(experiment: Summary) -> Iterator[Entry]:
    """The arms of a comparison."""
    for key, by_seed in experiment.results.items():
        config = _config(experiment.declared.rows[key].settings)
        arm = (arms.arm_of(config) if config is not None and key == arms.PRESET else None) or key
        results = tuple(result for result in by_seed.values() if result.failed is None)
        yield Entry(experiment=experiment, arm=arm, results=results, config=config)


def _tuned(experiment: Summary) -> list[Entry]:
    """An encoder that was fine-tuned: the cells of each seed as one."""
    rows, encoder = experiment.declared.rows, experiment.declared.about.get("encoder") or {}
    facts, environment = {name: encoder[name] for name in FACTS if name in encoder}, encoder.get("environment") or {}
    done: dict[int, Result] = {}
    for key, by_seed in experiment.results.items():
        for seed, one in by_seed.items():
            if one.failed is None and rows[key].reference is None:
                first = done.setdefault(seed, replace(one, scores={}, facts=facts, environment=environment))
                first.scores.update(_columns_of(rows[key], one))
    for result in done.values():
        if result.scores.keys() >= {*glue_table.COLUMNS.values()}:
            average = statistics.fmean(result.scores[column] for column in glue_table.COLUMNS.values())
            result.scores[_AVERAGE] = average
    results = tuple(done[seed] for seed in sorted(done))
    if results:  # of each task the seed that was best on dev
        results[0].scores.update(glue_table.read_scores(experiment.path))
    config = _config(encoder.get("config"))
    arm = "fine-tuned" if config is None else arms.arm_of(config) or "another"
    return [Entry(experiment=experiment, arm=arm, results=results, config=config)]


def _columns_of(row: DeclaredRow, result: Result) -> dict[str, float]:
    """A fine-tuning run's scores by the paper's columns; of other tasks the main one as TASK/METRIC."""
    split, _, metric = row.metrics[0].partition("/")
    names = SQUAD.get(result.key) or {metric: glue_table.COLUMNS.get(result.key, f"{result.key}/{metric}")}
    return {
        column: result.scores[f"{split}/{name}"] for name, column in names.items() if f"{split}/{name}" in result.scores
    }


def _metric_names(known: Sequence[Entry]) -> list[str]:
    """All metrics, in the order in which they are first met."""
    return list(dict.fromkeys(name for entry in known for one in entry.results for name in one.scores))


def _require_known(flag: str, pattern: str, names: Sequence[str]) -> None:
    if not fnmatch.filter(names, pattern):
        known = ", ".join(names) or "none is there yet"
        raise ConfigError(f"{flag} {pattern}: no such metric.{did_you_mean(pattern, names)} Known: {known}.")


def extra_metrics(known: Sequence[Entry], patterns: Sequence[str], *, declared: Collection[str]) -> list[str]:
    """Metrics for further columns: those that match a pattern. Without patterns those that were declared, or that
    fine-tuning gave, and that no table of the paper has; tasks of GLUE too where an arm has no average of them.

    Raises:
        ConfigError: a pattern that matches nothing.
    """
    names = _metric_names(known)
    for pattern in patterns:
        _require_known("--metrics", pattern, names)
    if patterns:
        return [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    main = {*declared, *_metric_names([entry for entry in known if entry.tuned])}
    alone = {*_metric_names([entry for entry in known if not entry.by_seed(_AVERAGE)])}
    shown = {name for name in alone if name.startswith("glue/")}
    return [name for name in names if name in main and (name in shown or not name.startswith(PUBLISHED_SCORES))]


def choose_metric(experiments: Sequence[Summary], wanted: str | None) -> str:
    """The metric of a figure: the requested one, else of those that all arms have the first preferred.

    Raises:
        ConfigError: no cell has the requested metric, or the arms share none that compares them.
        DataError: no cell is finished, or none has a metric.
    """
    known = entries(experiments)
    if not (names := _metric_names(known)):
        where = " ".join(str(experiment.path) for experiment in experiments)
        raise DataError(f"{where}: no cell is finished, or none has a metric. Run electra compare again; it resumes.")
    if wanted is not None:
        _require_known("--metric", wanted, names)
        return wanted
    for name in (*_PREFERRED, *(name for name in names if not name.startswith("held-out/"))):
        if all(entry.by_seed(name) for entry in known):
            return name
    raise ConfigError(
        "the arms share no metric that compares them: held-out ones depend on an arm's own fakes and masks. Add a "
        f"--probe to electra compare, or choose with --metric: {', '.join(names)}."
    )


ABSENT = "—"
_LEGEND = (
    f"{ABSENT}: missing. In a row of the paper: it prints no number, or the transcribed copy is illegible there; in a "
    "row of ours: not trained or not measured.",
    "ours: mean ± standard deviation over seeds; the median for fine-tuned encoders (electra glue, squad, finetune). "
    "FLOPs and parameters as the paper counts them. Rows of the paper without “ours” are other people's systems.",
    "test: of each task the seed that is best on dev, as the server of GLUE scored the archive of electra glue "
    "--predict; dev: the dev sets, where test-scores.json in the experiment's folder has no such scores.",
)


class Column(NamedTuple):
    """A column; `kind` says how its numbers are written."""

    key: str
    title: str
    kind: Literal["score", "metric", "flops", "ratio", "count", "words"]


class Value(NamedTuple):
    """A cell of a table. Neither number nor words: it is missing."""

    number: float | None = None
    """In points (0 to 100) for a score."""
    sd: float | None = None
    words: str | None = None


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """A model in a table, the paper's or ours."""

    model: str
    source: str
    """The word "paper", or "ours" with the preset."""
    split: str = ""
    """"dev" or "test" where the table has both."""
    values: Mapping[str, Value]
    """Values by column; a column that is not there is missing."""
    seeds: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table, ready to be written."""

    number: int
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[PaperRow, ...]
    notes: tuple[str, ...]


def build_table(number: int, experiments: Sequence[Summary], *, metrics: Sequence[str] = ()) -> PaperTable:
    """Table `number` of the paper with the experiments' cells.

    Args:
        metrics: patterns of further metrics (`pos/*`), each a column; empty: the declared ones.

    Raises:
        ConfigError: no such table, or a pattern that matches nothing. DataError: a score in points where a share is
        expected.
    """
    if number not in TABLES:
        raise ConfigError(
            f"table {number}: expected one of {', '.join(map(str, TABLES))}. Table 5 is: electra show small"
        )
    table, known, about = TABLES[number], entries(experiments), dict(PRINTED["columns"])
    about[_AVERAGE] = (table.average, "score")
    declared = set[str]().union(*(one.metrics for one in experiments))
    keys = dict.fromkeys([*table.columns, "train_flops", *extra_metrics(known, metrics, declared=declared)])
    columns = tuple(Column(key, *about.get(key, (key, "metric"))) for key in keys)

    ours = partial(_ours, keys=keys, number=number, several=len(experiments) > 1)
    rows: list[PaperRow] = []
    others = known
    for row in table.rows:
        values = {key: Value(words=one) if isinstance(one, str) else Value(one) for key, one in row.values.items()}
        rows.append(PaperRow(model=row.model, source="paper", split=row.split, values=values))
        if (needed := table.ours.get(row.model)) is not None:
            fitting = [ours(entry, row.model, row.split) for entry in known if entry.fits(**needed)]
            rows += fitting or [PaperRow(model=row.model, source="ours", split=row.split, values={})]
            others = [entry for entry in others if not entry.fits(**needed)]
    rows += [ours(entry, _name(entry), {2: "dev", 7: "test"}.get(number, "")) for entry in others]
    notes = tuple(
        f"{one.name}: {key}: {gap}" for one in experiments for key in one.declared.rows for gap in gaps(one, key)
    )
    if number == 4:
        notes += tuple(line for one in experiments for line in attribution(one))
    return PaperTable(number=number, caption=table.caption, columns=columns, rows=tuple(rows), notes=notes)


_ATTRIBUTION = {
    "all of it": ("electra", "mlm"),
    "detecting over all tokens instead of the masked": ("electra", "electra-15"),
    "samples in place of [MASK]": ("replace-mlm", "mlm"),
    "predicting all words instead of the masked": ("all-tokens-mlm", "replace-mlm"),
    "detecting instead of predicting, over all tokens": ("electra", "all-tokens-mlm"),
}


def attribution(experiment: Summary) -> Iterator[str]:
    """Differences of Table 4's rows that §3.5 explains, in the declared metrics, paired by seed, as lines."""
    for step, (row, reference) in _ATTRIBUTION.items():
        for metric in experiment.metrics:
            values, others = (experiment.values.get(one, {}).get(metric, {}) for one in (row, reference))
            if (pair := compare_paired(values, others)) is not None:
                scale, digits = (100, 1) if factor(metric) > 1 else (1, 3)
                low, high = (f"{scale * one:z.{digits}f}" for one in pair.t_interval or (0, 0))
                interval = f"; 95 %: {low} to {high}" if pair.t_interval else ""
                gain = f"{scale * pair.mean:+z.{digits}f} (n = {pair.n}{interval})"
                yield f"{experiment.name}: {step} ({row} − {reference}), {metric}: {gain}"


def _ours(entry: Entry, model: str, split: str, *, keys: Iterable[str], number: int, several: bool) -> PaperRow:
    """A row of ours in table `number`; `several`: its experiment is one of several."""
    if number == 7 and not any(name.startswith("glue-test/") for name in _metric_names([entry])):
        split = "dev"
    reference = TABLES[number].reference_flops
    values = {key: _measured(entry, key, reference=reference, split=split) for key in keys}
    return PaperRow(
        model=model,
        source=_source(entry, several=several),
        split=split,
        values={key: value for key, value in values.items() if value is not None},
        seeds=tuple(one.seed for one in entry.results),
    )


def _source(entry: Entry, *, several: bool) -> str:
    """Where a row of ours is from, and how it differs from the paper's."""
    about = [entry.preset, *([entry.experiment.name] if several else [])]
    masked = entry.config.masking.fraction if entry.config is not None else _PAPERS_MASKED
    if masked != _PAPERS_MASKED and {*entry.by_seed("steps").values()} != {0}:
        about.append(f"{100 * masked:g} % masked")
    return f"ours ({', '.join([*about, *filter(None, [entry.unfinished])])})"


def _name(entry: Entry) -> str:
    """The name of an arm that the paper's table does not have."""
    trained = entry.share_trained
    part = "" if trained is None or abs(trained - 1) < 0.15 else f", {100 * trained:.3g}% trained"
    return f"{entry.preset} (ours): {entry.arm}{part}"


def _measured(entry: Entry, key: str, *, reference: float, split: str) -> Value | None:
    """An entry's value in a column; None: it has none. Parameters are those of the exported network, as the paper
    counts them.

    Args:
        reference: training FLOPs that ratios and speedups refer to.
        split: test: the scores of the test sets.
    """
    spent, config = entry.by_seed("flops_paper").values(), entry.config
    counted: dict[str, Callable[[Config], float]] = {
        "parameters": lambda config: parameters(config).kept,
        "infer_flops": lambda config: infer_flops(config).paper,
        "infer_speedup": lambda config: _BASE_INFER_FLOPS / infer_flops(config).paper,
    }
    costs = {
        "train_flops": [*spent],
        "train_ratio": [flops / reference for flops in spent],
        "train_speedup": [reference / flops for flops in spent if flops > 0],
    }
    if key == "time_and_hardware":
        return _time_and_hardware(entry)
    if key in counted:
        return None if config is None else Value(counted[key](config))
    if key in costs:
        return Value(statistics.fmean(costs[key])) if costs[key] else None
    return _scored(entry, key.replace("glue/", "glue-test/", 1) if split == "test" and key.startswith("glue/") else key)


def _scored(entry: Entry, metric: str) -> Value | None:
    """A metric over the seeds; of a fine-tuned encoder the median in the place of the mean."""
    if (found := entry.spread(metric)) is None:
        return None
    if entry.tuned and metric == _AVERAGE:  # as the paper: of the tasks' medians
        tasks = filter(None, map(entry.spread, glue_table.COLUMNS.values()))
        return Value(statistics.fmean(task.median for task in tasks), found.sd)
    return Value(found.median if entry.tuned else found.mean, found.sd)


def _time_and_hardware(entry: Entry) -> Value | None:
    """Mean time of pre-training, and the machines of the seeds."""
    if (seconds := entry.spread("seconds")) is None:
        return None
    machines = (one.environment for one in entry.results)
    names = (one.get("gpu") or f"{one.get('cpu', 'a CPU')} (threads: {one.get('threads', '?')})" for one in machines)
    return Value(words=f"{duration(seconds.mean)} on {', '.join(dict.fromkeys(names))}")


def write(table: PaperTable, ending: str) -> str:
    """The table's text, for a file that ends in .md or .tex."""
    split = any(row.split for row in table.rows)
    rows = [_cells(row, table, split) for row in table.rows]
    head = ["Model", "From", *(["Set"] if split else []), *(column.title for column in table.columns), "seeds", "Runs"]
    shown = wording.Table(head=head, rows=rows, words=3 if split else 2)
    caption, notes = f"{table.caption}, as the paper prints it and as measured here.", (*_LEGEND, *table.notes)
    if ending == ".tex":
        return shown.latex(caption=caption, notes=notes)
    title = f"**Table {table.number}.** {wording.escape_markdown(caption)}"
    return "\n".join([title, "", shown.markdown(), "", *(f"- {wording.escape_markdown(note)}" for note in notes), ""])


def _cells(row: PaperRow, table: PaperTable, split: bool) -> list[str]:
    cells = [row.model, row.source, *([row.split or ABSENT] if split else [])]
    cells += [_shown(row.values.get(column.key, Value()), column) for column in table.columns]
    return [*cells, str(len(row.seeds) or ABSENT), " ".join(map(str, row.seeds)) or ABSENT]


def _shown(value: Value, column: Column) -> str:
    """A cell as the paper prints it: 85.0, 1.4e18, 45x, 14M."""
    if value.number is None:
        return value.words or ABSENT
    return " ± ".join(_number(number, column.kind) for number in (value.number, value.sd) if number is not None)


def _number(number: float, kind: str) -> str:
    match kind:
        case "score":
            return f"{number:.1f}"
        case "metric":
            return f"{number:z.3f}"
        case "flops":
            digits, _, exponent = f"{number:.1e}".partition("e")
            return f"{digits}e{int(exponent)}"
        case "ratio":
            if number and not 1e-3 <= number < 1e4:
                return f"{_number(number, 'flops')}x"
            return f"{number:.0f}x" if number >= 10 else f"{number:.2g}x"
        case "count":
            return f"{number / 1e6:.3g}M"
    return f"{number:g}"
