"""Figure 2 from a real run: a sentence is masked, filled by the generator and judged by the discriminator.

It is drawn from left to right as in the paper, and printed as a table on the terminal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from electra_trainer.data.batches import encode_rows
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.files.table_writer import Table
from electra_trainer.inspection.report import COLOURS, rendered
from electra_trainer.paper.figures import caption, new_figure
from electra_trainer.pretrained.pretrained import Pretrained

if TYPE_CHECKING:
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
    model.tokenizer.encode_special_tokens = True  # a written "[MASK]" is plain text here
    encoding = model.tokenizer.encode(text, add_special_tokens=False)
    tokens, room = len(encoding.ids), model.length - 2
    if not 0 < tokens <= room:
        raise DataError(f"figure 2: --text has {tokens} tokens, expected from 1 to {room}, as a trained row has.")
    words = [word if word is not None else -1 for word in encoding.word_ids]
    if not mask or not set(mask) <= {word + 1 for word in words}:
        raise ConfigError(
            f"--mask {' '.join(map(str, mask))}: expected words from 1 to {max(words) + 1} of {text!r}, such as 1 3."
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


COLUMNS = ("original", "masked", "Generator's sample", "Discriminator's verdict", "truth")


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
