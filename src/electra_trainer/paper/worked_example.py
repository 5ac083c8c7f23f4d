"""Figure 2 from a real run: a sentence is masked, filled by the generator and judged by the discriminator.

It is drawn from left to right as in the paper, and printed as a table on the terminal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from electra_trainer.data.batches import encode_rows
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.files.wording import Table
from electra_trainer.inspection.report import COLOURS, FAINT, INK, rendered
from electra_trainer.paper.figures import caption
from electra_trainer.pretrained.pretrained import Pretrained

if TYPE_CHECKING:
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
    if model.discriminator is None:
        raise ConfigError(
            "figure 2: this run has no discriminator (it trains a masked language model). Give a run of --objective "
            "rtd."
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
            f"--mask {','.join(map(str, mask))}: expected words from 1 to {max(words) + 1} of {text!r}, for example "
            "1,3."
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


_COLUMNS = {"original": 0.8, "masked": 2.5, "sample of the Generator": 4.4, "P(replaced) by the Discriminator": 6.8}
"""Titles and positions of the columns, in inches from the left."""
_WIDTH, _ROW = 8.4, 0.42


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

    def draw(at: float, row: float, word: str, colour: str, *, bold: bool = False) -> None:
        weight = "bold" if bold else "normal"
        axes.text(at, -row * _ROW, word, ha="center", va="center", fontsize=10, color=colour, fontweight=weight)

    for title, at in _COLUMNS.items():
        draw(at, 0.6, title, FAINT)
    for index, word in enumerate(example.original):
        masked, verdict = example.masked[index], example.verdicts[index]
        wrong = (verdict == "replaced") != example.replaced[index]
        colour = COLOURS[1] if masked else INK
        judged = f"{verdict} {example.probability[index]:.2f}{'  (wrong)' if wrong else ''}"
        words = (word, "[MASK]" if masked else word, example.sampled[index])
        for at, shown, tint in zip(_COLUMNS.values(), words, (INK, colour, colour), strict=False):
            draw(at, index + 1.5, shown, tint)
        is_fake = verdict == "replaced"
        draw([*_COLUMNS.values()][-1], index + 1.5, judged, COLOURS[0] if is_fake else INK, bold=is_fake)
    caption(
        figure,
        f"Figure 2, from {name}. Samples are drawn with seed {example.seed}. A sample that is the original word counts "
        "as original.",
        f"The discriminator is right about {example.right} of {rows} tokens.",
    )
    return figure
