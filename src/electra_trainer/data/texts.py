"""Encode texts, pairs of texts and sentences of words as rows of ids, for networks that were trained."""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Encoding, Tokenizer

from electra_trainer.data.tokenizer import Specials


@dataclass(frozen=True, kw_only=True)
class Text:
    """Text -> ids, for rows of at most `length` tokens. "[SEP]" and the like in a text are ordinary characters."""

    tokenizer: Tokenizer
    """With `encode_special_tokens` set: `data.tokenizer.as_plain_text`."""
    specials: Specials
    length: int

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Ids and offsets of each text, without special tokens, not cut."""
        return list(self.tokenizer.encode_batch(list(texts), add_special_tokens=False))

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[Encoding]:
        """The same for sentences that are split into words; `word_ids` of an encoding gives the word of each token."""
        words = [list(sentence) for sentence in sentences]
        return list(self.tokenizer.encode_batch(words, is_pretokenized=True, add_special_tokens=False))

    def row(self, first: Sequence[int], second: Sequence[int] | None = None) -> tuple[int, ...]:
        """A row with its special tokens. Long texts lose tokens at the end; of a pair always the longer text does (as BERT)."""
        cls, sep = self.specials.cls, self.specials.sep
        if second is None:
            return (cls, *first[: self.length - 2], sep)
        left, right = fit_pair(len(first), len(second), self.length - 3)
        return (cls, *first[:left], sep, *second[:right], sep)


def fit_pair(first: int, second: int, room: int) -> tuple[int, int]:
    """Lengths of a pair after tokens were dropped, one at a time, from the longer (from the second of equals) until both fit."""
    if first + second <= room:
        return first, second
    if first <= room // 2:
        return first, room - first
    if second <= room // 2:
        return room - second, second
    return room - room // 2, room // 2
