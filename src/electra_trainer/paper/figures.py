"""Figures 1, 3 and 4 from experiments, and Figure 2 (the worked example) from one run.

Points are means over seeds with one standard deviation; thin lines are single seeds during training. Matplotlib is
imported inside functions.

Figure 2: a sentence is masked, filled by the generator and judged by the discriminator; a table for the terminal.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from electra_trainer.data.batches import encode_rows
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.experiments.statistics import Paired, Spread, compare_paired, spread
from electra_trainer.experiments.summary import Summary
from electra_trainer.files.wording import Printed, Table
from electra_trainer.inspection.report import COLOURS, FAINT, INK, rendered
from electra_trainer.paper import published
from electra_trainer.paper.paper_tables import Entry, choose_metric, entries, factor
from electra_trainer.presets.arms import arm_of
from electra_trainer.pretrained.pretrained import Pretrained
from electra_trainer.settings import methods
from electra_trainer.settings.config import Config, generator_shape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class WorkedExample(Printed):
    """A sentence passing through both networks, token by token."""

    original: list[str]
    masked: list[bool]
    sampled: list[str]
    """The discriminator's input: the generator's samples at masked tokens, the original elsewhere."""
    replaced: list[bool]
    """The truth: the token differs from the original one. A sample equal to the original counts as original (§2)."""
    probability: list[float]
    """Probability of "replaced", by the discriminator."""

    @property
    def verdicts(self) -> list[str]:
        """For each token "replaced" where the discriminator considers that more likely than not, else "original"."""
        return ["replaced" if probability > 0.5 else "original" for probability in self.probability]

    def text(self) -> str:
        """One row a token."""
        masked = ["[MASK]" if masked else word for word, masked in zip(self.original, self.masked, strict=True)]
        verdicts = [f"{word} {share:.2f}" for word, share in zip(self.verdicts, self.probability, strict=True)]
        truth = ["replaced" if replaced else "original" for replaced in self.replaced]
        head = ("original", "masked", "Generator's sample", "Discriminator's verdict, P(replaced)", "truth")
        return Table(head=head, rows=[*zip(self.original, masked, self.sampled, verdicts, truth, strict=True)]).text()


@torch.no_grad()
def worked_example(model: Pretrained, text: str, *, mask: Sequence[int], seed: int) -> WorkedExample:
    """Mask words of a text, sample from the generator and ask the discriminator; the same seed gives the same samples.

    Args:
        mask: words to mask, counted from 1; punctuation marks are words, and every piece of a word is masked.

    Raises:
        ConfigError: there is no generator network or no discriminator, or a word that the text does not have.
        DataError: the text is empty or longer than a trained row.
    """
    if model.discriminator is None or model.generator is None:
        what = "discriminator" if model.discriminator is None else "generator network"
        raise ConfigError(f"figure 2: there is no {what} here. Give a run of --objective rtd, --generator learned.")
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


ALGORITHMS = ("electra", "mlm", "two-stage", "adversarial")
"""The arms in the right panel of Figure 3."""
_COLUMN = 3.3
"""Inches of a column of a paper."""
_PRINTED = {"font.size": 8, "axes.titlesize": 8, "legend.fontsize": 7, "lines.markersize": 4}


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
    name = choose_metric(experiments, metric)
    return rendered(lambda: FIGURES[number](entries(experiments, metric=name), name), form, style=_PRINTED)


def _panels(count: int, *, columns: int = 1) -> "tuple[Figure, list[Axes]]":
    """A figure as wide as a paper's column or two, with axes one below the other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(columns * _COLUMN, 2.7 * count), layout="constrained")
    return figure, [*figure.subplots(count, 1, squeeze=False)[:, 0]]


def _figure_1(shown: Sequence[Entry], metric: str) -> "Figure":
    """Score against training FLOPs; GLUE's with the paper's points behind, and a dashed box around ours enlarged."""
    figure, (whole, *enlarged) = _panels(2, columns=2) if metric == "glue/average" else _panels(1)
    for near in enlarged:
        _against_flops(near, "The dashed box, enlarged", shown, metric)
        whole.indicate_inset(near.viewLim.bounds, edgecolor=INK, linestyle="--", alpha=1)
        near.autoscale(False)
        for axes in (whole, near):
            _published(axes)
    _against_flops(whole, "Training compute", shown, metric)
    return figure


def _figure_3(shown: Sequence[Entry], metric: str) -> "Figure":
    """Sizes of the generator, and training algorithms. Without entries for one of them, the other alone."""
    compared = [entry for entry in shown if entry.arm in ALGORITHMS]
    sized = any(generator_size(entry.config) is not None for entry in shown)
    if not sized and not compared:
        raise DataError(f"figure 3: no arm is a size of the generator, or one of {', '.join(ALGORITHMS)}.")
    figure, axes = _panels(sized + bool(compared))
    if sized:
        _generator_sizes(axes[0], shown, metric)
    if compared:
        _against_flops(axes[-1], "Training algorithms", compared, metric)
    return figure


def generator_size(config: Config | None) -> tuple[float, str] | None:
    """Place of an arm in Figure 3: hidden units (below 0: it has none) and a label; None if it differs from ELECTRA in
    more than its generator's size.
    """
    if config is None or arm_of(config) not in ("electra", "same-size", "unigram", "uniform"):
        return None
    generator = config.generator
    if not isinstance(generator, methods.Learned):
        return (-1.0, "unigram") if isinstance(generator, methods.Unigram) else (-2.0, "uniform")
    if generator.temperature != 1 or config.sharing != "embeddings":
        return None
    shape, main = generator_shape(config), config.model
    width, layers = shape.hidden_size, shape.num_hidden_layers
    depth = "" if layers == main.num_hidden_layers else f" {layers} of {main.num_hidden_layers}"
    return (width, f"{width} ({width / main.hidden_size:.3g}x){depth}")


def _generator_sizes(axes: "Axes", shown: Sequence[Entry], metric: str) -> None:
    """Sizes at equal distances, those without hidden units first; a line joins an experiment's learned generators."""
    sized = [(size, entry) for entry in shown if (size := generator_size(entry.config)) is not None]
    places = sorted({size for size, _ in sized})
    labels = {entry.experiment.path: entry.label for _, entry in sized}
    for colour, (path, label) in zip(COLOURS * len(labels), labels.items(), strict=False):
        mine = [(size, _spread(entry, metric)) for size, entry in sized if entry.experiment.path == path]
        for learned, line in ((True, "-"), (False, "none")):
            points = [(places.index(size), score) for size, score in mine if (size[0] > 0) == learned]
            _draw(axes, points, colour, line=line, label=label if learned else None)
    axes.set_xticks(range(len(places)), [label for _, label in places], rotation=90)
    axes.margins(x=0.15)
    across = "generator's hidden units\n(share of the discriminator's), layers if fewer"
    _name_axes(axes, "Generator sizes", across, metric)


def _figure_4(shown: Sequence[Entry], metric: str) -> "Figure":
    """BERT next to ELECTRA for each size; the gain, if any size has both; curves of the first size."""
    shown = [entry for entry in shown if entry.arm in ("electra", "mlm")]
    if not shown:
        raise DataError(
            f"figure 4: no finished cell of electra or mlm has {metric}. Run electra compare --arms electra,mlm."
        )
    labels = {entry.experiment.path: entry.label for entry in shown}
    places = {path: at for at, path in enumerate(labels)}
    electra, mlm = (
        {places[entry.experiment.path]: entry for entry in shown if entry.arm == arm} for arm in ("electra", "mlm")
    )
    pairs = [(at, compare_paired(electra[at].by_seed(metric), mlm[at].by_seed(metric))) for at in electra if at in mlm]
    gains = [(at, gain) for at, gain in pairs if gain is not None]
    figure, axes = _panels(2 + bool(gains))
    for found, name, colour in ((electra, "ELECTRA (electra)", COLOURS[0]), (mlm, "BERT (mlm)", COLOURS[1])):
        _draw(axes[0], [(at, _spread(entry, metric)) for at, entry in found.items()], colour, label=name)
    if gains:
        _draw(axes[1], gains, INK, line="none")
        axes[1].axhline(0, color=FAINT, linewidth=1.1, linestyle=(0, (4, 2)))
        _name_axes(axes[1], "ELECTRA minus BERT, paired seeds", "model", metric)
    for each in axes[:-1]:
        each.set_xticks(range(len(labels)), labels.values())
        each.set_xlim(-0.5, len(labels) - 0.5)
    _name_axes(axes[0], "Model sizes", "model", metric)
    first = [entry for entry in shown if entry.experiment.path == shown[0].experiment.path]
    _against_flops(axes[-1], f"Convergence, {first[0].preset}", first, metric)
    return figure


FIGURES = {1: _figure_1, 3: _figure_3, 4: _figure_4}


def _against_flops(axes: "Axes", title: str, shown: Sequence[Entry], metric: str) -> None:
    """Each seed's curve, thin, and the mean at the end; a line joins the budgets of one arm."""
    lines: dict[object, list[Entry]] = {}
    for entry in shown:
        lines.setdefault(_whatever_its_length(entry), []).append(entry)
    several = len({entry.experiment.path for entry in shown}) > 1
    for colour, budgets in zip(COLOURS * len(lines), lines.values(), strict=False):
        for curve in (curve for entry in budgets for curve in entry.curves(metric) if curve):
            axes.plot(*zip(*curve, strict=True), color=colour, alpha=0.45, linewidth=1.0)
        points = [(_spread(entry, "flops_paper").mean, _spread(entry, metric)) for entry in budgets]
        label = budgets[0].arm + (f" ({budgets[0].experiment.name})" if several and len(budgets) == 1 else "")
        _draw(axes, points, colour, label=label)
    axes.set_xscale("log")
    first, last = axes.get_xlim()
    if last < 10 * first:  # a decade has ticks
        axes.set_xlim(first / 3, last * 3)
    _name_axes(axes, title, "training FLOPs, as the paper counts", metric)


def _whatever_its_length(entry: Entry) -> object:
    """Equal for entries of an arm that was trained for several budgets."""
    if entry.config is None:
        return entry.arm, entry.experiment.path
    usual = Config()  # its settings of what follows from the steps
    apart = {name: getattr(usual, name) for name in ("schedule", "evaluation", "checkpoint", "log_every")}
    return entry.arm, entry.tuned, bool(entry.unfinished), replace(entry.config, **apart)


def _spread(entry: Entry, metric: str) -> Spread:
    """The spread of a metric that it has."""
    return spread(entry.by_seed(metric))


def _draw(
    axes: "Axes",
    points: Iterable[tuple[float, Spread | Paired]],
    colour: str,
    *,
    line: str = "-",
    label: str | None = None,
) -> None:
    """Means with one standard deviation, from left to right."""
    ordered = sorted(points, key=lambda point: point[0])
    look: Any = {"color": colour, "linestyle": line, "label": label, "marker": "o", "capsize": 3}
    bars = [math.nan if found.sd is None else found.sd for _, found in ordered]
    axes.errorbar([at for at, _ in ordered], [found.mean for _, found in ordered], yerr=bars, **look)


def _name_axes(axes: "Axes", title: str, across: str, metric: str) -> None:
    axes.set(title=title, xlabel=across, ylabel=_words(metric))
    if axes.get_legend_handles_labels()[0]:
        axes.legend()


def _published(axes: "Axes") -> None:
    """The paper's points, with names, in grey."""
    for (family, points), mark in zip(published.published_points().items(), "osD", strict=True):
        flops, scores = [point[0] for point in points], [point[1] for point in points]
        line = "none" if family == "others" else "-"
        axes.plot(flops, scores, color=FAINT, marker=mark, linewidth=1, linestyle=line, label=f"{family} (paper)")
        for x, y, name in points:
            left = family == "ELECTRA" or name == "RoBERTa-100K"  # away from the other families' names
            place: Any = {"xytext": (-5, 2), "ha": "right"} if left else {"xytext": (5, -9), "ha": "left"}
            axes.annotate(name, (x, y), textcoords="offset points", fontsize=7, color=FAINT, **place)
    axes.margins(x=0.2)


def _words(metric: str) -> str:
    if metric == "glue/average":
        return "GLUE score"
    return f"{metric} (points)" if factor(metric) > 1 else metric
