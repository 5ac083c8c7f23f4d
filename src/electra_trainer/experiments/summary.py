"""Summary of an experiment: rows x metrics x seeds with spreads, and contrasts with reference rows. No torch here.

A contrast is a row minus its reference within a seed, on rows that chose nothing where there are some. Holm's
correction covers the declared contrasts, once, those without a result included. A run that diverged counts in no mean.
The verdict on files of one's own (`Contrast.verdict`, `answer`) is over their rows, and over seeds where
results do not have them. The seed of a fine-tuning run decides its head, order and dropout, not its encoder: intervals
over such seeds are of what fine-tuning again would give, not of what pre-training again would.

Read by the page, the terminal, the JSON file, and the paper's tables and figures.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from electra_trainer.errors import Diverged, MissingInputError, require_known
from electra_trainer.experiments import cell, statistics
from electra_trainer.experiments.by_class import ClassReport
from electra_trainer.experiments.cell import Cell, Declared, DeclaredRow, Result
from electra_trainer.experiments.statistics import Paired, Sample, Spread, compare_paired, holm, spread
from electra_trainer.files import durable, wording
from electra_trainer.files.wording import Printed, Table
from electra_trainer.settings.records import in_the_box

ABSENT = "–"
WIDE, SURE, MANY = 20.0, 95.0, 1000
"""Width, x 100, of a 95 % interval from which on rows are too few for a number; its lower end, x 100, above which more
labels bring little; and labels that are not few.
"""
T = TypeVar("T")
Verdict = Literal["beats", "perhaps", "does not beat"]
_SPREAD = ("row", "metric", "n", "median", "mean", "SD", "best", "best seed")
_APART = ("test: row", "metric", "n", "median", "mean", "SD", "of the best seed above")
_CONTRAST = ("metric", "row", "reference", "n", "difference", "95 % over rows", "95 % Student", "p", "p (Holm)")


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A row against its reference on one declared metric, row minus reference."""

    metric: str
    row: str
    reference: str
    found: Paired
    p_holm: float | None = None
    """Corrected over all contrasts."""
    medians: tuple[float, float]
    """Values of the row and of the reference."""
    over_rows: tuple[float, float] | None = None
    """95 % interval of the difference over rows with answers, where the results of both have them."""

    @property
    def verdict(self) -> Verdict:
        """Whether the reference beats this row, a baseline, over the seeds; `perhaps`: the 95 % interval includes 0, or
        there is none.
        """
        if self.medians[1] <= self.medians[0]:
            return "does not beat"
        return "beats" if (self.found.t_interval or (-1.0, -1.0))[1] < 0 else "perhaps"


@dataclass(frozen=True, kw_only=True, repr=False)
class Summary(Printed):
    """All results of an experiment."""

    path: Path
    declared: Declared
    results: dict[str, dict[int, Result]]
    """Row -> seed -> result, of cells that are done or failed."""
    shown: tuple[str, ...] = ()
    """Notes of rows that were printed before and that `text` does not repeat."""

    def __repr__(self) -> str:
        return f"<Summary: {self.path}>"

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @cached_property
    def values(self) -> dict[str, dict[str, dict[int, float]]]:
        """Row -> metric or fact -> seed -> value. Seconds only where they are a declared metric: the summary of
        the same results is the same.
        """
        found: dict[str, dict[str, dict[int, float]]] = {row: {} for row in self.declared.rows}
        for row, by_seed in self.results.items():
            for seed, result in by_seed.items():
                for name, value in (result.facts | result.scores).items() if result.failed is None else ():
                    if name != "seconds" or name in self._named:
                        found[row].setdefault(name, {})[seed] = value
        return found

    @property
    def _named(self) -> Sequence[str]:
        """Metrics that were declared by name."""
        return self.declared.facts.get("metrics") or ()

    @cached_property
    def rows(self) -> dict[str, dict[str, Spread]]:
        """Row -> metric or fact -> its spread over the seeds."""
        return {
            row: {name: spread(found, lower_is_better=name.endswith("loss")) for name, found in metrics.items()}
            for row, metrics in self.values.items()
        }

    @property
    def metrics(self) -> tuple[str, ...]:
        """Declared metrics: the named ones, or those of the default that some row has."""
        names = dict.fromkeys(name for row in self.declared.rows.values() for name in row.metrics)
        measured = {name for found in self.values.values() for name in found}
        return tuple(name for name in names if name in self._named or name in measured)

    @property
    def tested(self) -> dict[str, dict[str, dict[int, float]]]:
        """Row -> metric -> seed -> score, on the splits that choose nothing (`DeclaredRow.apart`)."""
        return {
            row: {name: by_seed for name, by_seed in found.items() if self._is_apart(row, name)}
            for row, found in self.values.items()
        }

    def _is_apart(self, row: str, metric: str) -> bool:
        return metric.partition("/")[0] in self.declared.rows[row].apart

    @cached_property
    def classes(self) -> dict[str, dict[str, ClassReport]]:
        """Row -> split -> scores class by class of the seed with the best main score; without baselines, and rows that
        the model may have seen before.
        """
        best = {row: main.best_seed for row in self.results if (main := self.main(row)) is not None}
        found = {row: self.results[row][seed].reports for row, seed in best.items()}
        hidden = {row for row, one in self.declared.rows.items() if one.baseline or _is_seen(one)}
        return {row: reports for row, reports in found.items() if reports and row not in hidden}

    @cached_property
    def answer(self) -> tuple[str, ...]:
        """See `answer`."""
        return answer(self)

    @property
    def conclusion(self) -> str:
        """The answer, without what to do next."""
        return " ".join(filter(None, self.answer[:2]))

    @property
    def contrasts(self) -> list[Contrast]:
        """Differences of all rows to their references on the declared metrics."""
        return self._compared[0]

    @property
    def unmeasured(self) -> list[tuple[str, str]]:
        """Declared contrasts, metric and row, that no seed of both rows has; the correction counts them."""
        return self._compared[1]

    @cached_property
    def _compared(self) -> tuple[list[Contrast], list[tuple[str, str]]]:
        contrasts: list[Contrast] = []
        missing: list[tuple[str, str]] = []
        for key, row in self.declared.rows.items():
            if (reference := row.reference) is None:
                continue
            for metric in dict.fromkeys(self._judged(row, name) for name in row.metrics):
                values, against = (self.values[one].get(metric, {}) for one in (key, reference))
                if (pair := compare_paired(_at_seeds(row, values, against), against)) is None:
                    missing += [(metric, key)] * self._is_due(metric, key, reference)
                    continue
                both = (self.rows[key][metric].median, self.rows[reference][metric].median)
                rows, others = self.samples(key, metric), self.samples(reference, metric)
                over = statistics.difference_over_rows(_at_seeds(row, rows, others), others)
                contrasts.append(
                    Contrast(metric=metric, row=key, reference=reference, found=pair, medians=both, over_rows=over)
                )
        p_holm = holm({**{(one.metric, one.row): one.found.p for one in contrasts}, **dict.fromkeys(missing)})
        return [replace(one, p_holm=p_holm.get((one.metric, one.row))) for one in contrasts], missing

    def _judged(self, row: DeclaredRow, metric: str) -> str:
        """The metric on rows that choose nothing, where it is measured on some."""
        names = (f"{split}/{metric.partition('/')[2]}" for split in row.apart)
        return next((name for name in names if name in self.values[str(row.reference)]), metric)

    def samples(self, row: str, metric: str) -> dict[int, statistics.Sample]:
        """Seed -> values of the rows that a metric was measured on."""
        return {seed: one.samples[metric] for seed, one in self.results[row].items() if metric in one.samples}

    def _is_due(self, metric: str, *rows: str) -> bool:
        """Whether a contrast of two rows without a result is one that was asked for: by name, or its parts are not
        measured yet. A default metric that the networks of an arm cannot give was not declared.
        """
        part = metric.partition("/")[0]
        lacking = [one for row in rows if metric not in self.values[row] for one in self.results[row].values()]
        return metric in self._named or not any(part in one.parts for one in lacking if not one.failed)

    @property
    def failed(self) -> dict[str, dict[int, str]]:
        """Row -> seed -> reason, of runs that diverged."""
        return {
            row: failed
            for row, by_seed in self.results.items()
            if (failed := {seed: found.failed for seed, found in by_seed.items() if found.failed is not None})
        }

    def missing(self, row: str) -> list[int]:
        """Seeds of a row that are not done."""
        wanted = self.declared.seeds if self.declared.rows[row].seeded else (0,)
        return [seed for seed in wanted if seed not in self.results[row]]

    def main(self, row: str) -> Spread | None:
        """The spread of a row's first declared metric; None where no seed is done. Raises ConfigError if the experiment
        has no such row.
        """
        require_known(f"{row}: no such row here", row, self.declared.rows)
        about = self.declared.rows[row]
        of = about if about.metrics or about.reference is None else self.declared.rows[about.reference]
        return self.rows[row].get(of.metrics[0]) if of.metrics else None

    def best(self, row: str) -> Cell:
        """The cell with the best main score, the first of equals (Appendix D). Raises MissingInputError if none is
        done, Diverged if all have failed.
        """
        if (main := self.main(row)) is None:
            if (failed := self.failed.get(row)) and not self.missing(row):
                first = next(iter(failed.values()))
                raise Diverged(f"{first} No run of {row} is left: try a lower --learning-rate, in another --out.")
            raise MissingInputError(
                f"{self.path}: no run of {row} is done. Repeat the command that the experiment began with."
            )
        return Cell(root=self.path, key=row, seed=main.best_seed)

    def baselines(self, row: str) -> dict[str, float]:
        """Main scores of the baselines of a row by name; medians where they have seeds."""
        found = {key: self.main(key) for key, one in self.declared.rows.items() if one.reference == row}
        return {key.removeprefix(row + cell.PLUS): main.median for key, main in found.items() if main is not None}

    def as_json(self) -> dict[str, Any]:
        """Content of summary.json."""
        return {
            "version": 3,
            "facts": self.declared.facts,
            "seeds": self.declared.seeds,
            "metrics": self.metrics,
            "rows": {row: {name: asdict(one) for name, one in found.items()} for row, found in self.rows.items()},
            "tested": {row: list(found) for row, found in self.tested.items() if found},
            "classes": {
                row: {split: asdict(one) for split, one in found.items()} for row, found in self.classes.items()
            },
            "conclusion": self.conclusion,
            "contrasts": [(table := asdict(one)) | table.pop("found") for one in self.contrasts],
            "unmeasured": self.unmeasured,
            "cells": [
                {"row": key, "seed": seed, "state": state, "run": run}
                for key in self.declared.rows
                for seed, state, run in self._states(key)
            ],
            "remarks": [*remarks(self)],
        }

    def _states(self, row: str) -> Iterator[tuple[int, str, str]]:
        """Seed, state and run folder of each cell of a row."""
        for seed in sorted({*self.results[row], *self.missing(row)}):
            one, result = Cell(root=self.path, key=row, seed=seed), self.results[row].get(seed)
            state = "missing" if result is None else "done" if result.failed is None else "failed"
            yield seed, state, one.kept.relative_to(self.path).as_posix()

    def tables(self) -> dict[str, Table]:
        """Declared metrics, scores on rows that chose nothing, and contrasts."""
        return {
            "scores": Table(head=_SPREAD, rows=self._spreads(self.metrics), words=2),
            "tested": Table(head=_APART, rows=[*self._apart()], words=2),
            "contrasts": Table(head=_CONTRAST, rows=[*self._contrast_rows()], words=3),
        }

    def text(self, *after: str) -> str:
        """Tables, and what failed or is missing, for a terminal; what comes `after` them; and the answer."""
        last = [*(line for line in remarks(self) if not line.endswith(self.shown)), str(self.path / "summary.md")]
        tables = [one.text() for one in self.tables().values() if one.rows]
        return "\n\n".join(filter(None, [*tables, "\n".join(last), *after, "\n".join(self.answer)]))

    def markdown(self) -> str:
        """The page."""
        names = dict.fromkeys(
            name for row, found in self.rows.items() for name in found if not self._is_apart(row, name)
        )
        facts = {
            name.replace("_", " "): number(value) if isinstance(value, float) else value
            for name, value in (self.declared.about | self.declared.facts).items()
            if value and not (isinstance(value, dict) or name.endswith("sha256"))
        }
        runs = [
            (self._title(key), str(seed), state, run if state == "missing" else f"[{run}]({run})")
            for key in self.declared.rows
            for seed, state, run in self._states(key)
        ]
        tables = self.tables() | {
            "everything": Table(head=_SPREAD, rows=self._spreads(names), words=2),
            "runs": Table(head=("row", "seed", "state", "run"), rows=runs, words=2),
        }
        return wording.render(
            "experiment_summary.md",
            rows=[self._title(key) for key, row in self.declared.rows.items() if not row.baseline],
            facts=facts,
            seeds=self.declared.seeds,
            answer=[self.conclusion, *self.answer[2:]],
            remarks=[*remarks(self)],
            classes={
                f"{self._title(row)}, {split}": report
                for row, found in self.classes.items()
                for split, report in found.items()
            },
            tables={name: table.markdown(escaped="|") if table.rows else "" for name, table in tables.items()},
        )

    def _title(self, row: str) -> str:
        return self.declared.rows[row].title or row

    def _spreads(self, metrics: Iterable[str]) -> list[tuple[str, ...]]:
        return [
            (*self._line(row, name, one, one.best), str(one.best_seed))
            for name in metrics
            for row, found in self.rows.items()
            if (one := found.get(name)) is not None
        ]

    def _line(self, row: str, metric: str, one: Spread, last: float | None) -> tuple[str, ...]:
        shown = (ABSENT if value is None else number(value) for value in (one.median, one.mean, one.sd, last))
        return (self._title(row), metric, str(one.n), *shown)

    def _apart(self) -> Iterator[tuple[str, ...]]:
        """Scores on the splits that choose nothing, and that of the seed with the best main score."""
        for row, metrics in self.tested.items():
            for name, by_seed in metrics.items():
                main = self.main(row)
                own = by_seed.get(main.best_seed) if main is not None else None
                yield self._line(row, name, self.rows[row][name], own)

    def _contrast_rows(self) -> Iterator[tuple[str, ...]]:
        for one in self.contrasts:
            both = (one.over_rows, one.found.t_interval)
            intervals = (ABSENT if found is None else "{:+.3g} to {:+.3g}".format(*found) for found in both)
            compared = (one.metric, *map(self._title, (one.row, one.reference)), str(one.found.n))
            yield (*compared, f"{one.found.mean:+.4g}", *intervals, _p(one.found.p), _p(one.p_holm))


def _at_seeds(row: DeclaredRow, values: dict[int, T], seeds: Iterable[int]) -> dict[int, T]:
    """The values of a row by seed; of a row without seeds its value at each of `seeds`."""
    return values if row.seeded or not values else dict.fromkeys(seeds, values[0])


def _p(value: float | None) -> str:
    return ABSENT if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def number(value: float) -> str:
    """Four significant digits; whole numbers whole up to a million."""
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e6 else f"{value:.4g}"


def remarks(summary: Summary) -> Iterator[str]:
    """Sentences for a reader: baselines, notes, doubts, what failed, is missing or cannot be compared."""
    over_seeds = {one.row: one for one in summary.contrasts if one.over_rows is None}
    for key, row in summary.declared.rows.items():
        title = key if row.reference is None or not row.baseline else row.reference
        if row.baseline and (one := over_seeds.get(key)):
            says = {"beats": "beats", "perhaps": "is above, not beyond doubt,"}.get(one.verdict, "does not beat")
            numbers = f"median {one.medians[1]:.3f} against {one.medians[0]:.3f}"
            yield f"{title}: {says} {row.baseline} ({numbers}, over the seeds on {one.metric.partition('/')[0]} rows)."
        yield from row_remarks(summary, key, title)
    if summary.unmeasured:
        names = ", ".join(f"{metric} of {row}" for metric, row in summary.unmeasured)
        yield f"Declared and not measured, but counted by Holm's correction: {names}."
    known = {one.row for one in summary.contrasts} | {row for _, row in summary.unmeasured}
    rows = summary.declared.rows.items()
    if apart := [key for key, row in rows if row.reference and row.metrics and key not in known]:
        yield (
            f"Not compared with the first arm, because no declared metric is measured for both: {', '.join(apart)}. "
            "Repeat the command with a probe that all arms have, for example --probe pos=TREEBANK_DIR."
        )


def answer(summary: Summary) -> tuple[str, ...]:
    """Lines on the only task of an experiment on files of one's own, in the words of its user: how often the exported
    model is right, what else is as good, what to do next. Empty: it has several tasks, or results without values of
    rows.

    The 95 % intervals are over rows: those kept apart where there are some, else all rows, each by a model that had not
    seen it, else the rows held out. The number is the exported run's where the rows chose nothing, else the mean over
    the seeds. Another predictor is better or worse where the interval of the difference leaves out 0.
    """
    key, *others = [key for key, row in summary.declared.rows.items() if row.reference is None]
    found = {name for one in summary.results[key].values() for name in one.samples if name.partition("/")[0] in _JUDGED}
    if others or not found:
        return ()
    metric = min(found, key=lambda name: [*_JUDGED].index(name.partition("/")[0]))
    (split, _, name), row, every = metric.partition("/"), summary.declared.rows[key], summary.samples(key, metric)
    best, tags = summary.best(key).seed, row.settings["task"]["kind"] == "Tagging"
    mine = {best: every[best]} if split in row.apart and best in every else every
    (of, more), (low, high) = _JUDGED[split], statistics.over_rows([*mine.values()])
    first, ends = score_in_words(name, mine, of, tags=tags)
    last = _more_labels(summary, key, split, sure=100 * low > SURE)
    if 100 * (high - low) > WIDE:
        last = f"{mine[min(mine)].rows:,} are too few for a number, {ends}: {more}."
    compared = " ".join(_others(summary, metric, mine, partial(_score, name, tags=tags)))
    if _is_seen(row):
        begun, last = summary.declared.about["model"], ""
        first = (
            f"No honest score: {begun} {cell.SEEN}. With another --out, give it other rows (--test FILE), or leave "
            f"{begun} out and learn from all rows anew."
        )
        plain = ((one.baseline, summary.samples(key, metric)) for key, one in summary.declared.rows.items())
        judged = partial(score_in_words, name, of=of, tags=tags)
        compared = " ".join(f"{title}: {judged(scores)[0]}" for title, scores in plain if title and scores)
    if any("collapsed: " in doubt for doubt in summary.results[key][best].doubts):
        recipe = "--learning-rate (it was {learning_rate:g}) or more --epochs (they were {epochs:g})"
        last = f"It says the same of every text. Try another {recipe.format(**row.settings['recipe'])}, another --out."
    return first, compared, last


def _is_seen(row: DeclaredRow) -> bool:
    """Whether its model may have learned before from the rows that are scored."""
    return any(cell.SEEN in note for note in row.notes)


def score_in_words(metric: str, samples: Mapping[int, Sample], of: str, *, tags: bool) -> tuple[str, str]:
    """A sentence on the score of some rows, and its 95 % interval over rows.

    Args:
        samples: by seed; the score is their mean.
        of: what follows "100 rows".
        tags: each word has a prediction.
    """
    low, high = statistics.over_rows([*samples.values()])
    right, _, share = _score(metric, samples, tags=tags).partition(" (")
    judged = f"{samples[min(samples)].rows:,} {'sentences' if tags else 'rows'}{of}"
    ends = f"{low:.2f} to {high:.2f}" if metric in _ONE else f"{100 * max(low, 0):.0f} to {100 * high:.0f}"
    if share:
        return f"Right in {right} of {judged} ({share[:-1]}, {ends}).", f"{ends} %"
    perfect = f"{ends}; {1 if metric in _ONE else 100} is perfect"
    return f"{_NAMED.get(metric, metric)}: {right} on {judged} ({perfect}).", ends


def _score(metric: str, samples: Mapping[int, Sample], *, tags: bool) -> str:
    """As "70 (70.0 %)" of rows that are right or wrong."""
    value, count = float(np.mean([one.values for one in samples.values()])), samples[min(samples)].rows
    if metric == "accuracy" and not tags:
        return f"{round(count * value):,} ({100 * round(count * value) / count:.1f} %)"
    return f"{value:.2f}" if metric in _ONE else f"{100 * value:.1f}"


_ONE = ("spearman", "pearson", "matthews")
"""Scores of at most 1 that are shown as they are."""
_JUDGED = {
    "test": (" kept apart", "keep at least 100 apart"),
    "folds": (", each by a model that had not seen it", "label more"),
    "dev": (" held out", "keep 100 apart, --test FILE"),
}
"""Splits that an answer can be about, the best first: what their rows are, and what helps where they are few."""
_NAMED = {
    "accuracy": "Words with the right tag",
    "f1": "F1 of the spans",
    "micro_f1": "F1 of all labels",
    "macro_f1": "Mean F1 of the classes",
    "spearman": "Rank correlation with the true numbers",
    "pearson": "Correlation with the true numbers",
}


def _others(
    summary: Summary, metric: str, mine: Mapping[int, Sample], score: Callable[[Mapping[int, Sample]], str]
) -> Iterator[str]:
    """Sentences on baselines and other models: the better ones, those too close to call, then the others."""
    found: list[tuple[int, str]] = []
    for name, row in summary.declared.rows.items():
        theirs = summary.samples(name, metric)
        ours = summary.samples(str(row.reference), metric) if row.seeded and row.reference else mine
        over = statistics.difference_over_rows(ours, _at_seeds(row, theirs, ours))
        if row.reference is None or over is None:
            continue
        simpler = f"; {row.baseline} {'are' if row.baseline.endswith('s') else 'is'} simpler" * (not row.seeded)
        says = "Clearly better: take that" if over[1] < 0 else f"Too close to call{simpler}"
        title = row.baseline if row.settings.get("rival") else row.baseline[0].upper() + row.baseline[1:]
        worse = f"Better than {row.baseline}, {score(theirs)}."
        judged = (2, worse) if over[0] > 0 else (int(over[1] >= 0), f"{title}: {score(theirs)}. {says}.")
        doubtful = f"{title}: no honest score, since it may have learned from these rows."
        found.append((1, doubtful) if _is_seen(row) else judged)
    yield from (sentence for _, sentence in sorted(found, key=lambda one: one[0]))


def _more_labels(summary: Summary, key: str, split: str, *, sure: bool) -> str:
    """A sentence: labels are few, and the command that shows what more of them bring (no curve can be read from a tenth
    of the rows of folds: there a larger encoder); else where the mistakes are.
    """
    settings, page = summary.declared.rows[key].settings, summary.path / "summary.md"
    rows, task = settings["train_rows"], settings["task"]
    counts = [str(few) for few in (rows // 4, rows // 2, 4 * rows // 5) if few >= max(2, len(task.get("labels", ())))]
    if rows >= MANY or sure or not counts or task["kind"] == "Tagging":
        return f"Class by class, and what is taken for what: {page}" if key in summary.classes else ""
    more = f"More labels than these {rows:,} may help"
    if split != "folds":
        other = "--dev in place of --test and " * (split == "test")
        curve = f"{other}--labels-curve {','.join(counts)} --out {summary.path}-curve"
        return f"{more}. How much: the same command with {curve}"
    if not in_the_box(summary.declared.about.get("model", "")):
        return f"{more}."
    larger = f"finetune sentence-transformers/all-MiniLM-L6-v2 and --out {summary.path}-larger"
    return f"{more}, or a larger encoder. To try one, which is downloaded and slower: the same command with {larger}"


def row_remarks(summary: Summary, key: str, title: str) -> Iterator[str]:
    """Sentences on one row, each after `title`."""
    row, results = summary.declared.rows[key], summary.results[key]
    own = title.lower().replace("-", "")  # a note may itself begin with the task: "SST-2: ..." of sst2
    for note in row.notes:
        yield note if note.lower().replace("-", "").startswith(own) else f"{title}: {note}"
    kept = [(seed, one.facts[cell.KEPT]) for seed, one in results.items() if cell.KEPT in one.facts]
    if kept and not row.baseline:
        epochs = ", ".join(f"seed {seed} epoch {epoch:g}" for seed, epoch in kept)
        yield f"{title}: weights kept: {epochs}. {cell.OPTIMISTIC}"
    if not row.baseline:  # fresh weights may collapse
        yield from (f"{title}: DOUBTFUL: seed {seed}: {doubt}" for seed, one in results.items() for doubt in one.doubts)
    yield from (f"{title}: {gap}" for gap in gaps(summary, key))


def gaps(summary: Summary, key: str) -> Iterator[str]:
    """Sentences on the cells of a row that failed or are missing."""
    row = summary.declared.rows[key]
    of = f"{row.baseline}, " if row.baseline else ""
    for seed, why in summary.failed.get(key, {}).items():
        yield f"FAILED: {of}seed {seed}: {why}"
    if missing := summary.missing(key):
        yield f"missing: {of}seed {', '.join(map(str, missing))}." if row.seeded else f"missing: {row.baseline}."


def summarize(root: Path) -> Summary:
    """The summary of all results in an experiment's folder.

    Raises:
        MissingInputError: no experiment is there. DataError: a result.json is damaged.
    """
    declared = cell.read_declared(root)
    results: dict[str, dict[int, Result]] = {row: {} for row in declared.rows}
    for one in declared.cells(root):
        if not one.part and (found := one.result()) is not None:
            results[one.key][one.seed] = found
    return Summary(path=root, declared=declared, results=results)


def write_summary(root: Path) -> Summary:
    """Sum up, and write summary.json and summary.md."""
    summary = summarize(root)
    durable.replace_durably(root / "summary.json", (json.dumps(summary.as_json(), indent=1) + "\n").encode())
    durable.replace_durably(root / "summary.md", summary.markdown().encode())
    return summary
