"""Figures 1, 3 and 4 from experiments, and Figure 2 (the worked example) from one run.

Points are means over seeds with one standard deviation; thin lines are single seeds during training. Matplotlib is
imported inside functions.

Figure 2: a sentence is masked, filled by the generator and judged by the discriminator; it is also a table for the
terminal.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from electra_trainer.data.batches import encode_rows
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.experiments.statistics import Paired, Spread, compare_paired
from electra_trainer.experiments.summary import Summary
from electra_trainer.files.wording import Table
from electra_trainer.inspection.report import COLOURS, FAINT, INK, rendered
from electra_trainer.paper import paper_tables, published
from electra_trainer.paper.paper_tables import Entry
from electra_trainer.pretrained.pretrained import Pretrained
from electra_trainer.settings import methods
from electra_trainer.settings.config import Config, generator_shape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class WorkedExample:
    """A sentence passing through both networks, token by token."""

    original: list[str]
    masked: list[bool]
    sampled: list[str]
    """The discriminator's input: the generator's samples at masked tokens, the original elsewhere."""
    replaced: list[bool]
    """The truth: the token differs from the original one. A sample equal to the original counts as original (§2)."""
    probability: list[float]
    """Probability of "replaced", by the discriminator."""
    seed: int

    @property
    def verdicts(self) -> list[str]:
        """For each token "replaced" where the discriminator considers that more likely than not, else "original"."""
        return ["replaced" if probability > 0.5 else "original" for probability in self.probability]

    @property
    def right(self) -> int:
        """Number of tokens with the right verdict."""
        return sum((word == "replaced") == truth for word, truth in zip(self.verdicts, self.replaced, strict=True))


@torch.no_grad()
def worked_example(model: Pretrained, text: str, *, mask: Sequence[int], seed: int) -> WorkedExample:
    """Mask words of a text, sample from the generator and ask the discriminator; the same seed gives the same samples.

    Args:
        mask: words to mask, counted from 1; punctuation marks are words, and every piece of a word is masked.

    Raises:
        ConfigError: there is no generator network or no discriminator, or a word that the text does not have.
        DataError: the text is empty or longer than a trained row.
    """
    for network, what in ((model.discriminator, "discriminator"), (model.generator, "generator network")):
        if network is None:
            raise ConfigError(f"figure 2: there is no {what} here. Give a run of --objective rtd, --generator learned.")
    assert model.discriminator is not None and model.generator is not None
    ids, masked = _with_masks(model, text, mask)
    special = model.specials
    slots = [index for index, chosen in enumerate(masked, start=1) if chosen]
    corrupted = [special.cls, *ids, special.sep]
    batch = encode_rows([[special.mask if index in slots else token for index, token in enumerate(corrupted)]])
    p_KV = model.generator(batch.ids_BT, batch, torch.tensor(slots)).softmax(-1)
    drawn_K1 = torch.multinomial(p_KV, 1, generator=torch.Generator().manual_seed(seed))
    for slot, sample in zip(slots, drawn_K1[:, 0].tolist(), strict=True):
        corrupted[slot] = sample
    batch = encode_rows([corrupted])
    original, sampled = (
        [model.tokenizer.id_to_token(token) or f"[{token}]" for token in row] for row in (ids, corrupted[1:-1])
    )
    return WorkedExample(
        original=original,
        masked=masked,
        sampled=sampled,
        replaced=[new != old for new, old in zip(corrupted[1:-1], ids, strict=True)],
        probability=model.discriminator(batch.ids_BT, batch)[0, 1:-1].sigmoid().tolist(),
        seed=seed,
    )


def _with_masks(model: Pretrained, text: str, mask: Sequence[int]) -> tuple[list[int], list[bool]]:
    """The tokens of a text, and for each whether its word is masked."""
    model.tokenizer.encode_special_tokens = True  # a written "[MASK]" is plain text here
    encoding = model.tokenizer.encode(text, add_special_tokens=False)
    tokens, room = len(encoding.ids), model.length - 2
    if not 0 < tokens <= room:
        raise DataError(f"figure 2: --text has {tokens} tokens, expected from 1 to {room}, as a trained row has.")
    words = [0 if word is None else word + 1 for word in encoding.word_ids]
    if not mask or not {*mask} <= {*words}:
        raise ConfigError(
            f"--mask {' '.join(map(str, mask))}: expected words from 1 to {max(words)} of {text!r}, such as 1 3."
        )
    return encoding.ids, [word in mask for word in words]


COLUMNS = ("original", "masked", "Generator's sample", "Discriminator's verdict, P(replaced)", "truth")


def cells(example: WorkedExample) -> list[tuple[str, ...]]:
    """One row a token, under COLUMNS."""
    return [
        (
            word,
            "[MASK]" if example.masked[at] else word,
            example.sampled[at],
            f"{example.verdicts[at]} {example.probability[at]:.2f}",
            "replaced" if example.replaced[at] else "original",
        )
        for at, word in enumerate(example.original)
    ]


def text_table(example: WorkedExample) -> str:
    """The example as a table for the terminal."""
    return Table(head=COLUMNS, rows=cells(example), words=len(COLUMNS)).text()


def draw_example(example: WorkedExample, *, name: str, form: str) -> bytes:
    """The picture as a file's content; `form` is svg, png or pdf (ConfigError otherwise)."""

    def make() -> "Figure":
        figure, (axes,) = new_figure(1)
        axes.set_axis_off()
        table = axes.table(cells(example), colLabels=COLUMNS, loc="center", edges="open", cellLoc="center")
        table.auto_set_font_size(False)
        table.set_fontsize(10)
        table.scale(1, 1.5)
        for at, verdict in enumerate(example.verdicts, start=1):
            if verdict == "replaced":
                table[at, 3].get_text().set_color(COLOURS[0])
            if example.masked[at - 1]:
                table[at, 1].get_text().set_color(COLOURS[1])
        caption(
            figure,
            f"Figure 2, from {name}. Samples are drawn with seed {example.seed}. A sample that is the original word "
            f"counts as original. The discriminator is right about {example.right} of {len(example.original)} tokens.",
        )
        return figure

    return rendered(make, form)


ALGORITHMS = ("electra", "mlm", "two-stage", "adversarial")
"""The arms in the right panel of Figure 3."""
_FLOPS_LABEL = "training FLOPs, as the paper counts"
_POINTS = (
    "Points: mean over seeds, bars: one standard deviation (none for one seed); thin lines: single seeds in training."
)


def draw_figure(number: int, experiments: Sequence[Summary], *, metric: str | None, form: str) -> bytes:
    """A figure as a file's content.

    Args:
        metric: name as in result.json; None: the first that all arms share.
        form: svg, png or pdf.

    Raises:
        ConfigError: no such figure, format or metric.
        DataError: nothing to draw.
    """
    if number not in FIGURES:
        raise ConfigError(f"figure {number}: expected 1, 3 or 4 with experiments, or 2 with a run.")
    name = paper_tables.choose_metric(experiments, metric)

    def make() -> "Figure":
        figure, title = FIGURES[number](experiments, paper_tables.entries(experiments, metric=name), name)
        caption(figure, f"Figure {number}. {_words(name)}{title} {_POINTS}")
        return figure

    return rendered(make, form)


def new_figure(columns: int) -> "tuple[Figure, list[Axes]]":
    """A figure with axes side by side."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(4.6 * max(columns, 1.5), 3.9), layout=ConstrainedLayoutEngine(w_pad=0.08, wspace=0.04))
    grid = figure.add_gridspec(1, columns)
    return figure, [figure.add_subplot(grid[0, column]) for column in range(columns)]


def caption(figure: "Figure", text: str) -> None:
    """A text under the figure, wrapped to its width."""
    wrapped = textwrap.fill(text, int(figure.get_figwidth() * 15))
    figure.supxlabel(wrapped, x=0.01, ha="left", fontsize=8, color=INK)


def _figure_1(experiments: Sequence[Summary], shown: Sequence[Entry], metric: str) -> "tuple[Figure, str]":
    """Score against training FLOPs, with the paper's points behind ours where the score is GLUE's."""
    figure, (axes,) = new_figure(1)
    if metric == "glue/average":
        _published(axes)
    _against_flops(axes, "Training compute", shown, metric, several=len(experiments) > 1)
    return figure, " against training compute."


def _figure_3(experiments: Sequence[Summary], shown: Sequence[Entry], metric: str) -> "tuple[Figure, str]":
    """Left: sizes of the generator. Right: training algorithms. Without entries for one of them, the other alone."""
    compared = [entry for entry in shown if entry.arm in ALGORITHMS]
    sized = any(generator_size(entry) is not None for entry in shown)
    if not sized and not compared:
        raise DataError(f"figure 3: no arm is a size of the generator, or one of {', '.join(ALGORITHMS)}.")
    figure, axes = new_figure(sized + bool(compared))
    if sized:
        _generator_sizes(axes[0], experiments, shown, metric)
    if compared:
        _against_flops(axes[-1], "Training algorithms", compared, metric, several=len(experiments) > 1)
    parts = ["by size of the generator"] * sized + ["by training algorithm, at its cost"] * bool(compared)
    return figure, f" {', and '.join(parts)}."


def generator_size(entry: Entry) -> tuple[float, str] | None:
    """An arm's place in the left of Figure 3: hidden units (below 0: it has none) and a label; None if it differs from
    ELECTRA in more than its generator's size.
    """
    config = entry.config
    if config is None or type(config.objective) is not methods.RTD:
        return None
    if config.objective.loss_over != "all" or config.objective.lucky != "original":
        return None
    generator = config.generator
    if not isinstance(config.phases, methods.Joint) or generator.disallow_correct:
        return None
    if isinstance(generator, methods.Uniform):
        return (-2.0, "uniform")
    if isinstance(generator, methods.Unigram):
        return (-1.0, "unigram")
    if generator.temperature != 1 or config.sharing != "embeddings":
        return None
    shape, main = generator_shape(config), config.model
    width, layers = shape.hidden_size, shape.num_hidden_layers
    depth = "" if layers == main.num_hidden_layers else f"\n{layers} of {main.num_hidden_layers}"
    return (width, f"{width}\n({width / main.hidden_size:.3g}x){depth}")


_MOST_SIDE_BY_SIDE = 5
"""Sizes of generators whose labels have room next to one another; the labels of more are turned."""


def _generator_sizes(axes: "Axes", experiments: Sequence[Summary], shown: Sequence[Entry], metric: str) -> None:
    """Sizes at equal distances, those without hidden units first; a line joins an experiment's learned generators."""
    sized = [(size, entry) for entry in shown if (size := generator_size(entry)) is not None]
    places = sorted({size for size, _ in sized})
    for index, experiment in enumerate(experiments):
        colour = COLOURS[index % len(COLOURS)]
        mine = sorted(((size, one) for size, one in sized if one.experiment is experiment), key=lambda pair: pair[0])
        for size, entry in mine:
            _error_bar(axes, places.index(size), entry.score(metric), colour, label=None)
        line = [(places.index(size), one.score(metric).mean) for size, one in mine if size[0] > 0]
        axes.plot([at for at, _ in line], [mean for _, mean in line], color=colour, label=_labelled(experiment))
    if len(places) > _MOST_SIDE_BY_SIDE:
        labels = [label.replace("\n", " ") for _, label in places]
        axes.set_xticks(range(len(places)), labels, rotation=90)
    else:
        axes.set_xticks(range(len(places)), [label for _, label in places])
    axes.margins(x=0.15)
    across = "generator's hidden units\n(share of the discriminator's), layers if fewer"
    _name_axes(axes, "Generator sizes", across, metric)


def _figure_4(experiments: Sequence[Summary], shown: Sequence[Entry], metric: str) -> "tuple[Figure, str]":
    """Left: BERT next to ELECTRA for each size. Centre: the gain, if any size has both. Right: curves of the first
    size.
    """
    shown = [entry for entry in shown if entry.arm in ("electra", "mlm")]
    if not shown:
        raise DataError(
            f"figure 4: no finished cell of electra or mlm has {metric}. Run electra compare --arms electra,mlm."
        )
    ordered = [one for one in experiments if any(entry.experiment is one for entry in shown)]
    electra, mlm = (
        {ordered.index(entry.experiment): entry for entry in shown if entry.arm == arm} for arm in ("electra", "mlm")
    )
    pairs = ((at, compare_paired(electra[at].by_seed(metric), mlm[at].by_seed(metric))) for at in electra if at in mlm)
    gains = sorted((at, gain) for at, gain in pairs if gain is not None)
    figure, axes = new_figure(2 + bool(gains))
    for found, name, colour in ((electra, "ELECTRA (electra)", COLOURS[0]), (mlm, "BERT (mlm)", COLOURS[1])):
        _joined(axes[0], [(at, found[at].score(metric)) for at in sorted(found)], colour, label=name)
    if gains:
        for at, gain in gains:
            _error_bar(axes[1], at, gain, INK, label=None)
        axes[1].axhline(0, color=FAINT, linewidth=1.1, linestyle=(0, (4, 2)))
        _name_axes(axes[1], "ELECTRA minus BERT, paired seeds", "model", metric)
    for each in axes[:-1]:
        each.set_xticks(range(len(ordered)), [_labelled(experiment) for experiment in ordered])
        each.set_xlim(-0.5, len(ordered) - 0.5)
    _name_axes(axes[0], "Model sizes", "model", metric)
    first_size = [entry for entry in shown if entry.experiment is ordered[0]]
    _against_flops(axes[-1], f"Convergence, {paper_tables.preset_of(ordered[0])}", first_size, metric, several=False)
    return figure, ". BERT and ELECTRA for several model sizes; the first during training."


def _joined(axes: "Axes", points: Sequence[tuple[int, Spread]], colour: str, *, label: str) -> None:
    """Points with a line through them, of which the first is named."""
    for index, (at, score) in enumerate(points):
        _error_bar(axes, at, score, colour, label=label if index == 0 else None)
    axes.plot([at for at, _ in points], [score.mean for _, score in points], color=colour)


FIGURES = {1: _figure_1, 3: _figure_3, 4: _figure_4}


def _against_flops(axes: "Axes", title: str, shown: Sequence[Entry], metric: str, *, several: bool) -> None:
    """Each seed's curve, thin, and the mean at the end; a line joins the budgets of one arm."""
    lines: dict[object, list[Entry]] = {}
    for entry in shown:
        lines.setdefault(_whatever_its_length(entry), []).append(entry)
    for index, budgets in enumerate(lines.values()):
        colour, first = COLOURS[index % len(COLOURS)], budgets[0]
        label = first.arm + (f" ({first.experiment.name})" if several and len(budgets) == 1 else "")
        budgets.sort(key=lambda entry: entry.flops)
        scores = [entry.score(metric) for entry in budgets]
        for entry, score in zip(budgets, scores, strict=True):
            for curve in filter(None, entry.curves(metric)):
                axes.plot(*zip(*curve, strict=True), color=colour, alpha=0.45, linewidth=1.0)
            _error_bar(axes, entry.flops, score, colour, label=label if entry is budgets[0] else None)
        axes.plot([one.flops for one in budgets], [one.mean for one in scores], color=colour, linewidth=1.4)
    _powers(axes)
    _name_axes(axes, title, _FLOPS_LABEL, metric)


def _whatever_its_length(entry: Entry) -> object:
    """Equal for entries of an arm that was trained for several budgets."""
    if entry.config is None:
        return entry.arm, entry.experiment.path
    usual = Config()  # its settings of what follows from the steps
    apart = {name: getattr(usual, name) for name in ("schedule", "evaluation", "checkpoint", "log_every")}
    return entry.arm, entry.tuned, bool(entry.unfinished), replace(entry.config, **apart)


def _powers(axes: "Axes") -> None:
    """A logarithmic axis of FLOPs, at least a decade wide, with powers of ten as the paper writes them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    first, last = axes.get_xlim()
    if last < 10 * first:
        axes.set_xlim(first / 3, last * 3)
    axes.xaxis.set_major_locator(LogLocator(numticks=7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}".replace("e+", "e")))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _error_bar(axes: "Axes", at: float, score: Spread | Paired, colour: str, *, label: str | None) -> None:
    spread = None if score.sd is None else [score.sd]
    look: dict[str, Any] = {"marker": "o", "markersize": 5.5, "capsize": 3, "linestyle": "none", "zorder": 3}
    axes.errorbar([at], [score.mean], yerr=spread, color=colour, label=label, **look)


def _name_axes(axes: "Axes", title: str, across: str, metric: str) -> None:
    axes.set(title=title, xlabel=across, ylabel=_words(metric))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)


def _published(axes: "Axes") -> None:
    """The paper's points, with names, in grey."""
    for (family, points), mark in zip(published.published_points().items(), "osD", strict=True):
        flops, scores = [point[0] for point in points], [point[1] for point in points]
        line = "none" if family == "others" else "-"
        label = f"{family} (paper)"
        axes.plot(flops, scores, color=FAINT, marker=mark, markersize=4, linewidth=1, linestyle=line, label=label)
        for x, y, name in points:
            left = family == "ELECTRA" or name == "RoBERTa-100K"  # away from the other families' names
            place: Any = {"xytext": (-5, 2), "ha": "right"} if left else {"xytext": (5, -9), "ha": "left"}
            axes.annotate(name, (x, y), textcoords="offset points", fontsize=6.5, color=FAINT, **place)
    axes.margins(x=0.2)


def _labelled(experiment: Summary) -> str:
    """The preset, and the folder where it says more."""
    preset = paper_tables.preset_of(experiment)
    return preset if experiment.name == preset else f"{preset}\n{experiment.name}"


def _words(metric: str) -> str:
    if metric == "glue/average":
        return "GLUE score"
    return f"{metric} (points)" if paper_tables.factor(metric) > 1 else metric
