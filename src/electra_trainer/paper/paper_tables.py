"""Tables 1, 2, 3, 4 and 7 with our rows under the paper's, as Markdown, LaTeX or CSV. No torch here.

The paper's rows keep their order. A row that this package can train (an ELECTRA or the paper's own BERT) is followed by
one row for every experiment that has it, or by one row that says it is missing. Runs that match no row of the paper
come last. Each row of ours links to its runs; nothing that is missing is blank or zero.

Our side of tables and figures is an `Entry`: an arm of an experiment, or an encoder that was fine-tuned.
"""

import fnmatch
import math
import os
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from electra_trainer.cost.flops import infer_flops, run_flops
from electra_trainer.cost.parameters import parameters
from electra_trainer.errors import ConfigError, DataError, MissingInputError, did_you_mean
from electra_trainer.experiments.cell import FACTS, Cell, DeclaredRow, Result, environment_of
from electra_trainer.experiments.statistics import Spread, spread, spread_of
from electra_trainer.experiments.summary import Summary
from electra_trainer.files import wording
from electra_trainer.files.wording import duration
from electra_trainer.finetuning import glue_table
from electra_trainer.inspection.report import read_run
from electra_trainer.paper.published import PRINTED, SQUAD, TABLES, PublishedRow
from electra_trainer.presets import arms, models
from electra_trainer.settings import records
from electra_trainer.settings.config import Config

PUBLISHED_SCORES = ("glue/", "glue-test/", "squad1/", "squad2/")
"""How metrics begin that have a column of their own in some table of the paper; it prints them in points."""
_AVERAGE = "glue/average"
_TOTAL_LOSS = "held-out/loss"
"""A weighted sum of other terms in each objective: shown on request only."""
_PAPERS_MASKED = 0.15
_PREFERRED = (_AVERAGE, "pos/accuracy", "held-out/discriminator_standard_auc")
"""Metrics of figures: of those that all arms have, the first is shown. Other held-out metrics depend on an arm's own
fakes or masks.
"""
_BASE_INFER_FLOPS = 2.9e10  # BERT-Base, the reference of Table 1's speedups


def notes_of(summary: Summary) -> list[str]:
    """Sentences on cells that failed or are not done."""
    notes = []
    for row in summary.declared.rows:
        failed = summary.failed.get(row, {}).items()
        notes += [f"{summary.name}: {row}: seed {seed} failed, and is left out: {why}" for seed, why in failed]
        if missing := summary.missing(row):
            notes.append(f"{summary.name}: {row}: not done: seed {', '.join(map(str, missing))}.")
    return notes


def config_of(summary: Summary, row: str) -> Config | None:
    """Configuration of an arm's pre-training, or of the encoder that was fine-tuned; None where it cannot be read."""
    encoder = summary.declared.about.get("encoder") or {}
    plain = summary.declared.rows[row].settings if summary.declared.verb == "compare" else encoder.get("config")
    try:
        return None if plain is None else records.read(Config, plain, where=row)
    except ConfigError:
        return None


def preset_of(summary: Summary) -> str:
    """The preset that its pre-training began from, or the encoder's name."""
    about = summary.declared.about
    encoder = (about.get("encoder") or {}).get("config", {}).get("preset") or Path(about.get("model") or "encoder").name
    return str(summary.declared.facts.get("preset", encoder))


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
    def preset(self) -> str:
        """The preset that the pre-training began from; the name of an encoder whose folder does not say."""
        return preset_of(self.experiment)

    @property
    def tuned(self) -> bool:
        """Whether its numbers are medians over fine-tuning seeds, as the paper's are (§3.1)."""
        return self.experiment.declared.verb != "compare"

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

    def kept(self, result: Result) -> Path:
        """Folder of a seed's run."""
        return Cell(root=self.experiment.path, key=result.key, seed=result.seed).kept

    @property
    def unfinished(self) -> str:
        """The step of a checkpoint from before the end of its run, in words; it has not decayed as a shorter run
        has.
        """
        steps = self.facts("steps")
        if not self.tuned or self.config is None or not steps or min(steps) >= self.config.schedule.steps:
            return ""
        return f"step {min(steps):,.0f} of {self.config.schedule.steps:,}"

    def facts(self, name: str) -> list[float]:
        """A cost of pre-training, of each seed that has it."""
        return [one.facts[name] for one in self.results if name in one.facts]

    def metric(self, name: str) -> list[float]:
        """A metric of each seed that has it."""
        return [one.scores[name] for one in self.results if name in one.scores]

    @property
    def share_trained(self) -> float | None:
        """Share of the FLOPs of the full ELECTRA of this size (as the paper counts); None for another preset."""
        spent = self.facts("flops_paper")
        if self.size not in models.PRESETS or not spent or not any(spent):
            return None
        return statistics.fmean(spent) / run_flops(models.preset(self.size)).paper

    def fits(self, *, arm: str, size: str | None = None, share: float | None = None) -> bool:
        """Whether it is what a row of the paper needs: the arm, the size, and the share of the size's full training."""
        if self.arm != arm or size not in (None, self.size):
            return False
        trained = self.share_trained
        # within 15 %: the paper's BERT-Small costs 1.10 of ELECTRA-Small by the authors' own count
        return share is None or (trained is not None and abs(math.log(trained / share)) < math.log(1.15))

    @property
    def flops(self) -> float:
        """Mean training FLOPs of the seeds, as the paper counts."""
        return statistics.fmean(self.facts("flops_paper"))

    def by_seed(self, metric: str) -> dict[int, float]:
        """A metric by seed, in the paper's units."""
        return {one.seed: factor(metric) * one.scores[metric] for one in self.results if metric in one.scores}

    def having(self, metric: str) -> "Entry":
        """Only the seeds that have a metric and a cost."""
        kept = [one for one in self.results if metric in one.scores and "flops_paper" in one.facts]
        return replace(self, results=tuple(kept))

    def score(self, metric: str) -> Spread:
        """A metric that it has, over the seeds, in the paper's units."""
        return spread(self.by_seed(metric))

    def curves(self, metric: str) -> list[list[tuple[float, float]]]:
        """For each seed (FLOPs, metric) during training; empty where the run did not measure it."""
        return [_curve(self.kept(one), metric) for one in self.results]


def _curve(run: Path, metric: str) -> list[tuple[float, float]]:
    """The held-out rows of a run that have the metric, under its name or without "held-out/"."""
    try:
        rows = read_run(run).valid
    except (MissingInputError, DataError):
        return []  # a cell without its run folder still has its result
    values = [row.get(metric, row.get(metric.removeprefix("held-out/"), math.nan)) for row in rows]
    return [
        (row["flops"], factor(metric) * value)
        for row, value in zip(rows, values, strict=True)
        if math.isfinite(value) and row.get("flops", 0.0) > 0
    ]


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


def _arms(experiment: Summary) -> list[Entry]:
    """The arms of a comparison."""
    found = []
    for key, by_seed in experiment.results.items():
        config = config_of(experiment, key)
        arm = (arms.arm_of(config) if config is not None and key == arms.PRESET else None) or key
        results = tuple(result for result in by_seed.values() if result.failed is None)
        found.append(Entry(experiment=experiment, arm=arm, results=results, config=config))
    return found


def _tuned(experiment: Summary) -> list[Entry]:
    """An encoder that was fine-tuned: the cells of each seed as one."""
    about, rows = experiment.declared.about, experiment.declared.rows
    done: dict[int, list[Result]] = {}
    for key, by_seed in experiment.results.items():
        for seed, result in by_seed.items():
            if result.failed is None and rows[key].reference is None:
                done.setdefault(seed, []).append(result)
    if not done:
        return []
    encoder = about.get("encoder") or {}
    environment = encoder.get("environment") or environment_of(records.run_and_step(about["model"])[0])
    facts = {name: encoder[name] for name in FACTS if name in encoder}
    results = []
    for _, of_tasks in sorted(done.items()):
        scores: dict[str, float] = {}
        for one in of_tasks:
            scores |= _columns_of(rows[one.key], one)
        if scores.keys() >= {*glue_table.COLUMNS.values()}:
            scores[_AVERAGE] = statistics.fmean(scores[column] for column in glue_table.COLUMNS.values())
        results.append(replace(of_tasks[0], facts=facts, scores=scores, environment=environment))
    test = glue_table.read_scores(experiment.path)  # of each task the seed that was best on dev
    results[0] = replace(results[0], scores=results[0].scores | test)
    config = config_of(experiment, results[0].key)
    arm = "fine-tuned" if config is None else arms.arm_of(config) or "another"
    return [Entry(experiment=experiment, arm=arm, results=tuple(results), config=config)]


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


def _unknown(flag: str, word: str, names: Sequence[str]) -> ConfigError:
    known = ", ".join(names) or "none is there yet"
    return ConfigError(f"{flag} {word}: no such metric.{did_you_mean(word, names)} Known: {known}.")


def extra_metrics(
    known: Sequence[Entry], patterns: Sequence[str], *, columns: Collection[str], declared: Collection[str]
) -> list[str]:
    """Metrics without a column in the table: those that match a pattern, or the declared ones that are in no table of
    the paper; tasks of GLUE too where an arm has no average of them. Where nothing is declared: all of at most two
    levels but the total loss.

    Args:
        columns: of the table.

    Raises:
        ConfigError: a pattern that matches nothing.
    """
    names = _metric_names(known)
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise _unknown("--metrics", pattern, names)
    alone = {*_metric_names([entry for entry in known if not entry.metric(_AVERAGE)])}
    main = {*declared, *_metric_names([entry for entry in known if entry.tuned])}

    def is_shown(name: str) -> bool:
        if patterns:
            return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        if name.startswith(PUBLISHED_SCORES) and not (name in alone and name.startswith("glue/")):
            return False
        return name in main if main else name.count("/") <= 1 and name != _TOTAL_LOSS

    return [name for name in names if name not in columns and is_shown(name)]


def choose_metric(experiments: Sequence[Summary], wanted: str | None) -> str:
    """The metric of a figure: the requested one, else of those that all arms have the first preferred.

    Raises:
        ConfigError: no cell has the requested metric, or the arms share none that compares them.
        DataError: no cell is finished, or none has a metric.
    """
    known = entries(experiments)
    names = _metric_names(known)
    if not names:
        where = " ".join(str(experiment.path) for experiment in experiments)
        raise DataError(f"{where}: no cell is finished, or none has a metric. Run electra compare again; it resumes.")
    if wanted is not None:
        if wanted not in names:
            raise _unknown("--metric", wanted, names)
        return wanted
    shared = [name for name in names if all(entry.metric(name) for entry in known)]
    comparable = [name for name in _PREFERRED if name in shared]
    comparable += [name for name in shared if not name.startswith("held-out/")]
    if not comparable:
        raise ConfigError(
            "the arms share no metric that compares them: held-out ones depend on an arm's own fakes and masks. Add a "
            f"--probe to electra compare, or choose with --metric: {', '.join(names)}."
        )
    return comparable[0]


Format = Literal["md", "tex", "csv"]
Kind = Literal["score", "metric", "flops", "ratio", "count", "words"]
ABSENT = "—"
"""In Markdown and LaTeX. A CSV has `NA`, which readers of CSV know."""
ABSENT_CSV = "NA"
_LEGEND = (
    f"{ABSENT}: missing. In a row of the paper: it prints no number, or the transcribed copy is illegible there; in a "
    "row of ours: not trained or not measured.",
    "ours: mean ± standard deviation over the seeds, which are counted under “seeds” and named under “Runs”. Training "
    " FLOPs, inference FLOPs and parameters as the paper counts them. Rows of the paper without “ours” are "
    "other people's systems.",
    "Encoders that were fine-tuned (electra glue, squad, finetune): medians over the seeds. test: of each "
    "task the seed that is best on dev, as the server of GLUE scored the archive of electra glue --predict; dev: the "
    "dev sets, where test-scores.json in the experiment's folder has no such scores.",
)


class Column(NamedTuple):
    """A column; `kind` says how its numbers are written."""

    key: str
    title: str
    kind: Kind

    @property
    def spreads(self) -> bool:
        """Whether its numbers have a standard deviation over the seeds."""
        return self.kind in ("score", "metric")


@dataclass(frozen=True, kw_only=True)
class Value:
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
    seeds: int = 0
    runs: tuple[tuple[int, Path], ...] = ()
    """(seed, run folder)."""


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
    printed = dict.fromkeys([*table.columns, "train_flops"])
    about[_AVERAGE] = (table.average, "score")
    declared = {name for one in experiments for name in one.metrics}
    keys = [*printed, *extra_metrics(known, metrics, columns=printed, declared=declared)]
    columns = tuple(Column(key, *about.get(key, (key, "metric"))) for key in keys)

    def ours(entry: Entry, model: str, split: str) -> PaperRow:
        if number == 7 and not any(name.startswith("glue-test/") for name in _metric_names([entry])):
            split = "dev"
        source = _source(entry, several=len(experiments) > 1)
        return _ours(entry, columns, reference=table.reference_flops, model=model, source=source, split=split)

    rows: list[PaperRow] = []
    others = known
    for row in table.rows:
        rows.append(_paper(row))
        if (needed := table.ours.get(row.model)) is not None:
            fitting = [ours(entry, row.model, row.split) for entry in known if entry.fits(**needed)]
            rows += fitting or [PaperRow(model=row.model, source="ours", split=row.split, values={})]
            others = [entry for entry in others if not entry.fits(**needed)]
    rows += [ours(entry, _name(entry), {2: "dev", 7: "test"}.get(number, "")) for entry in others]
    notes = tuple(note for experiment in experiments for note in notes_of(experiment))
    return PaperTable(number=number, caption=table.caption, columns=columns, rows=tuple(rows), notes=notes)


def _paper(row: PublishedRow) -> PaperRow:
    values = {
        key: Value(words=value) if isinstance(value, str) else Value(number=value) for key, value in row.values.items()
    }
    return PaperRow(model=row.model, source="paper", split=row.split, values=values)


def _ours(
    entry: Entry, columns: Sequence[Column], *, reference: float, model: str, source: str, split: str
) -> PaperRow:
    values = {one.key: _measured(entry, one, reference=reference, split=split) for one in columns}
    return PaperRow(
        model=model,
        source=source,
        split=split,
        values={key: value for key, value in values.items() if value is not None},
        seeds=len(entry.results),
        runs=tuple((one.seed, entry.kept(one)) for one in entry.results),
    )


def _source(entry: Entry, *, several: bool) -> str:
    """Where a row of ours is from, and how it differs from the paper's."""
    about = [entry.preset, *([entry.experiment.name] if several else [])]
    masked = entry.config.masking.fraction if entry.config is not None else _PAPERS_MASKED
    if masked != _PAPERS_MASKED and {*entry.facts("steps")} != {0}:
        about.append(f"{100 * masked:g} % masked")
    return f"ours ({', '.join([*about, *filter(None, [entry.unfinished])])})"


def _name(entry: Entry) -> str:
    """The name of an arm that the paper's table does not have."""
    trained = entry.share_trained
    part = "" if trained is None or abs(trained - 1) < 0.15 else f", {100 * trained:.3g}% trained"
    return f"{entry.preset} (ours): {entry.arm}{part}"


def _measured(entry: Entry, column: Column, *, reference: float, split: str) -> Value | None:
    """An entry's value in a column; None: it has none. Parameters are those of the exported network, as the paper
    counts them.

    Args:
        reference: training FLOPs that ratios and speedups refer to.
        split: test: the scores of the test sets.
    """
    spent, config, key = entry.facts("flops_paper"), entry.config, column.key
    match key:
        case "train_flops":
            found = spread_of(spent)
        case "train_ratio":
            found = spread_of([flops / reference for flops in spent])
        case "train_speedup":
            found = spread_of([reference / flops for flops in spent if flops > 0])
        case "time_and_hardware":
            return _time_and_hardware(entry)
        case "parameters" | "infer_flops" | "infer_speedup":
            return None if config is None else Value(number=_counted(config, key))
        case _:
            name = key.replace("glue/", "glue-test/", 1) if split == "test" and key.startswith("glue/") else key
            found = _scored(entry, name, points=column.kind == "score")
    return None if found is None else Value(number=found.mean, sd=found.sd)


def _counted(config: Config, key: str) -> float:
    """From the configuration alone."""
    if key == "parameters":
        return parameters(config).kept
    cost = infer_flops(config).paper
    return cost if key == "infer_flops" else _BASE_INFER_FLOPS / cost


def _scored(entry: Entry, metric: str, *, points: bool) -> Spread | None:
    """A metric over the seeds, in points or as it is; of a fine-tuned encoder the median in the place of the mean.

    Raises:
        DataError: a score that is not a share between -1 and 1.
    """
    values = entry.metric(metric)
    if points and (wrong := [value for value in values if abs(value) > 1]):
        raise DataError(
            f"{entry.experiment.path}: {metric} = {wrong[0]}: expected a share between -1 and 1, not points."
        )
    found = spread_of([100 * value for value in values] if points else values)
    if found is None or not entry.tuned:
        return found
    if metric == _AVERAGE:  # as the paper: of the tasks' medians
        of_tasks = (_scored(entry, task, points=points) for task in glue_table.COLUMNS.values())
        return replace(found, mean=statistics.fmean(task.mean for task in of_tasks if task is not None))
    return replace(found, mean=found.median)


def _time_and_hardware(entry: Entry) -> Value | None:
    """Mean time of pre-training, and the machines of the seeds."""
    seconds = entry.facts("seconds")
    if not seconds:
        return None
    machines = (one.environment for one in entry.results)
    names = (one.get("gpu") or f"{one.get('cpu', 'a CPU')} (threads: {one.get('threads', '?')})" for one in machines)
    return Value(words=f"{duration(statistics.fmean(seconds))} on {', '.join(dict.fromkeys(names))}")


def write(table: PaperTable, form: Format, *, base: Path) -> str:
    """The table's text. A CSV has unrounded numbers, with SDs in separate columns, and run folders as `runs`.

    Args:
        base: folder that links are relative to.
    """
    split, exact = any(row.split for row in table.rows), form == "csv"
    rows = [_cells(row, table, split, exact, base) for row in table.rows]
    if exact:
        head = ["model", "from", *(["set"] if split else [])]
        for column in table.columns:
            head += [column.key, *([f"{column.key} sd"] if column.spreads else [])]
        return wording.Table(head=[*head, "seeds", "runs"], rows=rows).csv()
    head = ["Model", "From", *(["Set"] if split else []), *(column.title for column in table.columns), "seeds", "Runs"]
    shown = wording.Table(head=head, rows=rows, words=3 if split else 2)
    caption, notes = f"{table.caption}, as the paper prints it and as measured here.", (*_LEGEND, *table.notes)
    if form == "tex":
        return shown.latex(caption=caption, notes=notes)
    title = f"**Table {table.number}.** {wording.escape_markdown(caption)}"
    return "\n".join([title, "", shown.markdown(), "", *(f"- {wording.escape_markdown(note)}" for note in notes), ""])


def _cells(row: PaperRow, table: PaperTable, split: bool, exact: bool, base: Path) -> list[str]:
    absent = ABSENT_CSV if exact else ABSENT
    cells = [row.model, row.source, *([row.split or absent] if split else [])]
    for column in table.columns:
        value = row.values.get(column.key, Value())
        cells += _exact(value, column) if exact else [_shown(value, column)]
    runs = [_relative(run, base) for _, run in row.runs] if exact else [str(seed) for seed, _ in row.runs]
    return [*cells, str(row.seeds or absent), (";" if exact else " ").join(runs) or absent]


def _relative(path: Path, base: Path) -> str:
    """`path` seen from the folder `base`, with forward slashes."""
    return Path(os.path.relpath(path.resolve(), base.resolve())).as_posix()


def _exact(value: Value, column: Column) -> list[str]:
    """The number, and where it has a spread the SD."""
    numbers = [ABSENT_CSV if number is None else f"{number:.10g}" for number in (value.number, value.sd)]
    if value.words is not None:
        numbers[0] = value.words.rstrip("x+")  # a lower bound
    return numbers if column.spreads else numbers[:1]


def _shown(value: Value, column: Column) -> str:
    """A cell as the paper prints it: 85.0, 1.4e18, 45x, 14M."""
    if value.number is None:
        return ABSENT if value.words is None else value.words
    text = _number(value.number, column.kind)
    if column.spreads and value.sd is not None:
        text += f" ± {_number(value.sd, column.kind)}"
    return text


def _number(number: float, kind: Kind) -> str:
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
        case "words":
            return f"{number:g}"
