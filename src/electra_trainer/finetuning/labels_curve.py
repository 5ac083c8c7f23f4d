"""Labels against score: the encoder and its baselines on parts of a task's training rows, several draws of each.

A number of labels is a row of the experiment, and a draw is a seed: it draws the training rows, and then the head, the
order and the dropout of the run on them. All rows of a draw learn from the same examples, and a larger number of labels
contains the smaller ones. Examples are drawn from each class (range of numbers) in proportion to its size, one at
least. The examples that scores are computed on are the same for all.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from electra_trainer.errors import ConfigError
from electra_trainer.experiments.cell import PLUS
from electra_trainer.experiments.statistics import Spread
from electra_trainer.experiments.summary import ABSENT, Contrast, Summary, row_remarks
from electra_trainer.files.durable import replace_durably
from electra_trainer.files.wording import Printed, Table
from electra_trainer.inspection.report import COLOURS, rendered
from electra_trainer.randomness import key
from electra_trainer.tasks.examples import TextExample, strata_of
from electra_trainer.tasks.task import TaskData

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AGAINST = "tf_idf"
"""The baseline that every curve has, and that decides from how many labels on an encoder pays."""
ENCODER = "the encoder"


def parse_counts(text: str) -> tuple[int, ...]:
    """`"50,100,200"` -> (50, 100, 200).

    Raises:
        ConfigError: something else than different whole numbers of at least 2.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    counts = sorted({int(word) for word in words if word.isdecimal() and len(word) < 10})
    if not counts or len(counts) < len(words) or counts[0] < 2:
        raise ConfigError(
            f"--labels-curve {text!r}: expected different numbers of labels of at least 2, such as 50,100,200,500"
        )
    return tuple(counts)


def checked(counts: Sequence[int], data: TaskData) -> Sequence[int]:
    """The numbers of labels, if the task has as many.

    Raises:
        ConfigError: it has fewer, or more classes than that.
    """
    least = len(getattr(data.task, "labels", ()))
    for count in counts:
        if not least <= count <= len(data.train):
            raise ConfigError(
                f"--labels-curve {count}: expected from {max(2, least):,}, an example of each class, to "
                f"{len(data.train):,}, the training rows."
            )
    return counts


def draw(train: Sequence[TextExample], count: int, *, seed: int) -> list[TextExample]:
    """`count` examples in the order of the file. The first of each class come first; then the n-th of m examples has
    its turn after (n + 1/2) / m of all.
    """
    order = np.random.default_rng(key(seed, "labels curve")).permutation(len(train))
    strata, drawn = strata_of(train), Counter[str]()
    sizes, turn = Counter(strata), {}
    for index in order.tolist():
        before = drawn[strata[index]]
        turn[index] = (before + 0.5) / sizes[strata[index]] if before else 0.0
        drawn[strata[index]] += 1
    return [train[index] for index in sorted(sorted(turn, key=turn.__getitem__)[:count])]


@dataclass(frozen=True, kw_only=True)
class LabelsCurve(Printed):
    """Result of `electra finetune --labels-curve`."""

    summary: Summary
    notes: tuple[str, ...]
    """How the files were read."""

    @cached_property
    def scores(self) -> dict[str, dict[int, Spread]]:
        """Predictor -> number of labels -> main score over the draws."""
        found: dict[str, dict[int, Spread]] = {}
        for name, row in self.summary.declared.rows.items():
            if (main := self.summary.main(name)) is not None:
                found.setdefault(row.baseline or ENCODER, {})[row.settings["train_rows"]] = main
        return found

    @cached_property
    def contrasts(self) -> dict[int, Contrast]:
        """Number of labels -> TF-IDF against the encoder, in increasing order."""
        rows = self.summary.declared.rows
        mine = (one for one in self.summary.contrasts if one.row.endswith(PLUS + AGAINST))
        return dict(sorted((rows[one.row].settings["train_rows"], one) for one in mine))

    @property
    def says(self) -> str:
        """One sentence: from how many labels on the encoder is above TF-IDF, by the 95 % intervals."""
        sides: dict[str, list[int]] = {"above": [], "below": [], "open": []}
        for count, one in self.contrasts.items():
            low, high = one.over_rows or one.found.t_interval or (-1.0, 1.0)
            sides["above" if high < 0 else "below" if low > 0 else "open"].append(count)
        above = sides["above"]
        if above and above == [*self.contrasts][-len(above) :]:
            parts = [f"From {above[0]:,} labels on the encoder is above TF-IDF"]
        else:
            parts = [f"The encoder is above TF-IDF at {_listed(above) or 'no number of'} labels"]
        others = {"below it at": sides["below"], "not clearly either at": sides["open"]}
        parts += [f"{words} {_listed(counts)}" for words, counts in others.items() if counts]
        over = "paired draws" + " and dev rows" * any(one.over_rows for one in self.contrasts.values())
        return f"{', '.join(parts)} ({self._metric}; 95 % intervals of the difference over {over})."

    @property
    def _metric(self) -> str:
        return self.summary.metrics[0].partition("/")[2]

    def table(self) -> Table:
        """Means over the draws, and the paired difference of encoder and TF-IDF, x100."""
        rows = []
        for count in sorted({count for found in self.scores.values() for count in found}):
            means = [f"{100 * found[count].mean:.1f}" if count in found else ABSENT for found in self.scores.values()]
            draws = self.scores[ENCODER][count].n if count in self.scores.get(ENCODER, {}) else 0
            rows.append([f"{count:,}", *means, *_difference(self.contrasts.get(count)), str(draws)])
        return Table(head=["labels", *self.scores, "encoder − TF-IDF", "95 %", "draws"], rows=rows, words=0)

    @property
    def page(self) -> Path:
        """The file that has the table and the figure, which is next to it."""
        return self.summary.path / "labels_curve.md"

    def write(self) -> None:
        """Write the page and the figure."""
        figure = self.page.with_suffix(".svg")
        replace_durably(figure, rendered(self._draw, "svg"))
        lines = [f"# {self.summary.name}", self.says, self.table().markdown(escaped="|"), f"![curve]({figure.name})"]
        replace_durably(self.page, ("\n\n".join(lines) + "\n").encode())

    def _draw(self) -> "Figure":
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.4, 4.0), dpi=100, layout="constrained")
        axes = figure.add_subplot(xscale="log", xlabel="labels", ylabel=f"{self._metric}, x100")
        for (name, found), color in zip(self.scores.items(), cycle(COLOURS), strict=False):
            counts = sorted(found)
            means = [100 * found[count].mean for count in counts]
            reach = [100 * half_interval(found[count]) for count in counts]
            axes.errorbar(counts, means, yerr=reach, color=color, label=name, marker="o", capsize=3)
        axes.set_xticks([*self.contrasts], [f"{count:,}" for count in self.contrasts])
        axes.minorticks_off()
        axes.set_title(self.summary.name)
        axes.legend(fontsize=9)
        return figure

    def text(self) -> str:
        """Table, sentence, notes and files."""
        rows = self.summary.declared.rows
        lines = (line for name in rows for line in row_remarks(self.summary, name, name))
        notes = [line for line in lines if not line.endswith(self.summary.shown)]
        files = map(str, (self.page, self.page.with_suffix(".svg"), self.summary.path / "summary.md"))
        return "\n\n".join([self.table().text(), self.says, "\n".join([*notes, *files])])

    def as_json(self) -> Mapping[str, Any]:
        """Notes, sentence, summary, and the page."""
        summary = self.summary.as_json()
        return {"notes": [*self.notes], "says": self.says, "summary": summary, "page": str(self.page)}


def half_interval(one: Spread) -> float:
    """Half of the width of Student's 95 % interval of the mean; 0 for one draw."""
    from scipy import stats

    return 0.0 if one.sd is None else float(stats.t.ppf(0.975, one.n - 1)) * one.sd / math.sqrt(one.n)


def _difference(one: Contrast | None) -> tuple[str, str]:
    """Encoder less TF-IDF, and its interval."""
    if one is None:
        return ABSENT, ABSENT
    low, high = one.over_rows or one.found.t_interval or (math.nan, math.nan)
    interval = ABSENT if math.isnan(low) else f"{-100 * high:+.1f} to {-100 * low:+.1f}"
    return f"{-100 * one.found.mean:+.1f}", interval


def _listed(counts: Sequence[int]) -> str:
    return " and ".join(f"{count:,}" for count in counts)
