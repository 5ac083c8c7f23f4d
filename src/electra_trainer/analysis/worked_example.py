"""Figure 2 from a real run: one sentence masked, filled by the generator, judged by the discriminator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from electra_trainer.errors import ConfigError, DataError
from electra_trainer.score import Pretrained, encode_rows

PAPER_TEXT = "the chef cooked the meal"
PAPER_MASK = (1, 3)
"""The paper masks "the" and "cooked"."""


@dataclass(frozen=True, kw_only=True)
class WorkedExample:
    """A sentence on its way through both networks, token by token."""

    original: list[str]
    masked: list[bool]
    sampled: list[str]
    """What the discriminator reads: the generator's samples at masked tokens, the original elsewhere."""
    replaced: list[bool]
    """The truth: the token is not the original one. A sample that hits the original counts as original (§2)."""
    probability: list[float]
    """Of "replaced", by the discriminator."""
    seed: int

    @property
    def verdicts(self) -> list[str]:
        """Each token: "replaced" where the discriminator holds that for likelier than not, else "original"."""
        return ["replaced" if probability > 0.5 else "original" for probability in self.probability]

    @property
    def right(self) -> int:
        """Tokens that are judged rightly."""
        return sum((word == "replaced") == truth for word, truth in zip(self.verdicts, self.replaced, strict=True))


@torch.no_grad()
def worked_example(model: Pretrained, text: str, *, mask: Sequence[int], seed: int) -> WorkedExample:
    """Mask words of a text, sample from the generator and ask the discriminator; the same seed gives the same samples.

    Args:
        mask: words to mask, counted from 1; punctuation marks are words, and every piece of a word is masked.

    Raises:
        ConfigError: no generator network or no discriminator here, or a word that the text does not have.
        DataError: the text is empty or longer than a trained row.
    """
    if model.discriminator is None:
        raise ConfigError(
            "figure 2: this run has no discriminator (it trains a masked language model). Give a run of --objective rtd."
        )
    if model.generator is None:
        raise ConfigError(
            "figure 2: there is no generator network here (a unigram or uniform generator has none; an exported discriminator comes "
            "without). Give a run with --generator learned."
        )
    model.tokenizer.encode_special_tokens = True  # a written "[MASK]" is plain text here
    encoding = model.tokenizer.encode(text, add_special_tokens=False)
    if not encoding.ids:
        raise DataError("figure 2: --text is empty. Give at least one word.")
    if len(encoding.ids) + 2 > model.length:
        raise DataError(
            f"figure 2: --text has {len(encoding.ids)} tokens, a trained row has room for {model.length - 2}. Shorten it."
        )
    words = [word if word is not None else -1 for word in encoding.word_ids]
    if not mask or not set(mask) <= {word + 1 for word in words}:
        raise ConfigError(
            f"--mask {','.join(map(str, mask))}: expected words from 1 to {max(words) + 1} of {text!r}, for example 1,3."
        )
    masked = [word + 1 in set(mask) for word in words]
    ids = [model.specials.cls, *encoding.ids, model.specials.sep]
    slots = [index + 1 for index, chosen in enumerate(masked) if chosen]
    corrupted = list(ids)
    for slot, sample in zip(slots, _samples(model, ids, slots, seed), strict=True):
        corrupted[slot] = sample
    batch = encode_rows([corrupted])
    probability = model.discriminator(batch.ids_BT, batch)[0, 1:-1].sigmoid().tolist()
    return WorkedExample(
        original=[_word(model, token) for token in ids[1:-1]],
        masked=masked,
        sampled=[_word(model, token) for token in corrupted[1:-1]],
        replaced=[new != old for new, old in zip(corrupted[1:-1], ids[1:-1], strict=True)],
        probability=probability,
        seed=seed,
    )


def _samples(model: Pretrained, ids: Sequence[int], slots: Sequence[int], seed: int) -> list[int]:
    """One draw from the generator's distribution for each slot, all from one pass over the masked row."""
    assert model.generator is not None
    masked = [model.specials.mask if index in set(slots) else token for index, token in enumerate(ids)]
    batch = encode_rows([masked])
    logits_KV = model.generator(batch.ids_BT, batch, torch.tensor(slots))
    drawn: list[int] = (
        torch.multinomial(logits_KV.softmax(-1), 1, generator=torch.Generator().manual_seed(seed)).squeeze(1).tolist()
    )
    return drawn


def _word(model: Pretrained, token: int) -> str:
    return model.tokenizer.id_to_token(token) or f"[{token}]"
