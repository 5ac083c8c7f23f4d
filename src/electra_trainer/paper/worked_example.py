"""Figure 2 from a real run: a sentence is masked, filled by the generator and judged by the discriminator.

It is drawn from left to right as in the paper, and printed as a table on the terminal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from electra_trainer.data.batches import encode_rows
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.files.table_writer import Table
from electra_trainer.inspection.report import COLOURS, FAINT, INK, rendered
from electra_trainer.paper.figures import caption
from electra_trainer.pretrained.pretrained import Pretrained

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER_TEXT = "the chef cooked the meal"
PAPER_MASK = (1, 3)
"""The paper masks "the" and "cooked"."""


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
    """Of "replaced", by the discriminator."""
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
    if model.discriminator is None:
        raise ConfigError(
            "figure 2: this run has no discriminator (it trains a masked language model). "
            "Give a run of --objective rtd."
        )
    if model.generator is None:
        raise ConfigError(
            "figure 2: there is no generator network here (a unigram or uniform generator has none; an exported "
            "discriminator comes without). Give a run with --generator learned."
        )
    model.tokenizer.encode_special_tokens = True  # a written "[MASK]" is plain text here
    encoding = model.tokenizer.encode(text, add_special_tokens=False)
    tokens, room = len(encoding.ids), model.length - 2
    if not tokens:
        raise DataError("figure 2: --text is empty. Give at least one word.")
    if tokens > room:
        raise DataError(f"figure 2: --text has {tokens} tokens, a trained row has room for {room}. Shorten it.")
    words = [word if word is not None else -1 for word in encoding.word_ids]
    if not mask or not set(mask) <= {word + 1 for word in words}:
        raise ConfigError(
            f"--mask {','.join(map(str, mask))}: expected words from 1 to {max(words) + 1} of {text!r}, "
            "for example 1,3."
        )
    masked = [word + 1 in set(mask) for word in words]
    special = model.specials
    slots = [index + 1 for index, chosen in enumerate(masked) if chosen]
    corrupted = [special.cls, *encoding.ids, special.sep]
    batch = encode_rows([[special.mask if index in slots else token for index, token in enumerate(corrupted)]])
    p_KV = model.generator(batch.ids_BT, batch, torch.tensor(slots)).softmax(-1)
    drawn_K1 = torch.multinomial(p_KV, 1, generator=torch.Generator().manual_seed(seed))
    for slot, sample in zip(slots, drawn_K1[:, 0].tolist(), strict=True):
        corrupted[slot] = sample
    batch = encode_rows([corrupted])

    def words_of(ids: Sequence[int]) -> list[str]:
        return [model.tokenizer.id_to_token(token) or f"[{token}]" for token in ids]

    return WorkedExample(
        original=words_of(encoding.ids),
        masked=masked,
        sampled=words_of(corrupted[1:-1]),
        replaced=[new != old for new, old in zip(corrupted[1:-1], encoding.ids, strict=True)],
        probability=model.discriminator(batch.ids_BT, batch)[0, 1:-1].sigmoid().tolist(),
        seed=seed,
    )


# Position of each column, in inches from the left
_ORIGINAL, _MASKED, _GENERATOR, _SAMPLED, _DISCRIMINATOR, _VERDICT = 0.8, 2.3, 3.9, 5.5, 7.1, 8.9
_WIDTH, _ROW = 10.2, 0.42


def draw_example(example: WorkedExample, *, name: str, form: str) -> bytes:
    """The picture as a file's content; `form` is svg, png or pdf (ConfigError otherwise)."""
    return rendered(lambda: _figure(example, name), form)


def text_table(example: WorkedExample) -> str:
    """One row a token: original, masked, sampled, probability and verdict."""
    rows = [
        (
            word,
            "[MASK]" if example.masked[at] else word,
            example.sampled[at],
            example.verdicts[at],
            "replaced" if example.replaced[at] else "original",
            f"{example.probability[at]:.3f}",
        )
        for at, word in enumerate(example.original)
    ]
    return Table(head=("original", "masked", "sampled", "verdict", "truth", "P(replaced)"), rows=rows, words=5).text()


def _figure(example: WorkedExample, name: str) -> "Figure":
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = len(example.original)
    height = _ROW * (rows + 2)
    figure = Figure(figsize=(_WIDTH, height + 0.5), layout=ConstrainedLayoutEngine())
    axes = figure.add_subplot()
    axes.set_xlim(0, _WIDTH)
    axes.set_ylim(-height, 0)
    axes.set_axis_off()
    titles = {_ORIGINAL: "original", _MASKED: "masked", _SAMPLED: "sampled", _VERDICT: "verdict, P(replaced)"}
    for at, title in titles.items():
        axes.text(at, -0.5 * _ROW, title, ha="center", va="center", fontsize=9, color=FAINT)
    for index in range(rows):
        _row(axes, example, index, -(index + 1.5) * _ROW)
    middle = -(rows / 2 + 1) * _ROW
    _box(axes, _GENERATOR, middle, rows, "Generator\n(small MLM)", COLOURS[1])
    _box(axes, _DISCRIMINATOR, middle, rows, "Discriminator\n(ELECTRA)", COLOURS[0])
    caption(
        figure,
        f"Figure 2, from {name}. Samples are drawn with seed {example.seed}. "
        "A sample that is the original word counts as original.",
        f"The discriminator is right about {example.right} of {rows} tokens.",
    )
    return figure


def _row(axes: "Axes", example: WorkedExample, index: int, y: float) -> None:
    """One token, from left to right."""
    masked, verdict = example.masked[index], example.verdicts[index]
    right = (verdict == "replaced") == example.replaced[index]
    colour = COLOURS[1] if masked else INK
    _draw_word(axes, _ORIGINAL, y, example.original[index], INK)
    _arrow(axes, _ORIGINAL + 0.62, _MASKED - 0.62, y)
    _draw_word(axes, _MASKED, y, "[MASK]" if masked else example.original[index], colour)
    if masked:
        _arrow(axes, _MASKED + 0.62, _GENERATOR - 0.65, y)
        _arrow(axes, _GENERATOR + 0.65, _SAMPLED - 0.65, y, note="sample")
    _draw_word(axes, _SAMPLED, y, example.sampled[index], colour)
    _arrow(axes, _SAMPLED + 0.62, _DISCRIMINATOR - 0.65, y)
    _arrow(axes, _DISCRIMINATOR + 0.65, _VERDICT - 0.85, y)
    text = f"{verdict} {example.probability[index]:.2f}" + ("" if right else "  (wrong)")
    _draw_word(axes, _VERDICT, y, text, COLOURS[0] if verdict == "replaced" else INK, bold=verdict == "replaced")


def _draw_word(axes: "Axes", x: float, y: float, text: str, colour: str, *, bold: bool = False) -> None:
    axes.text(x, y, text, ha="center", va="center", fontsize=10, color=colour, fontweight="bold" if bold else "normal")


def _arrow(axes: "Axes", start: float, end: float, y: float, *, note: str = "") -> None:
    axes.annotate("", (end, y), (start, y), arrowprops={"arrowstyle": "->", "color": FAINT, "linewidth": 1.0})
    if note:
        axes.text((start + end) / 2, y + 0.08, note, ha="center", va="bottom", fontsize=7, color=FAINT)


def _box(axes: "Axes", x: float, y: float, rows: int, text: str, colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    height = _ROW * (rows - 0.2)
    look: Any = {"boxstyle": "round,pad=0.06", "facecolor": "white", "edgecolor": colour, "linewidth": 1.4, "zorder": 3}
    axes.add_patch(FancyBboxPatch((x - 0.55, y - height / 2), 1.1, height, **look))
    axes.text(x, y, text, ha="center", va="center", fontsize=9, color=colour, fontweight="bold", zorder=4)
