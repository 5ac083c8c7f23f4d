"""Weights for a vocabulary with more words: old words keep their rows, a new one gets the mean of the rows of its
pieces.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from tokenizers import Tokenizer
from torch import Tensor

from electra_trainer.data.tokenizer import as_plain_text, specials_of, vocab_size_of
from electra_trainer.data.vocabulary import UNUSED
from electra_trainer.train.begin.initial import Initial

_TABLES = ("word_embeddings.", "generator_lm_head.")
"""Parts of the names of tensors that have a row for each word."""


def fit_words(initial: Initial, tokenizer: Tokenizer) -> Initial:
    """The weights for the vocabulary of `tokenizer`, or as they are if it is another one than theirs with words added.

    Rows that no word of a tokenizer has, as some models are filled up with, are dropped.
    """
    theirs, mine = initial.tokenizer.get_vocab(), tokenizer.get_vocab()
    fresh = {word: number for word, number in mine.items() if theirs.get(word) != number}
    gone = theirs.keys() - mine.keys()
    rows = vocab_size_of(tokenizer)
    if fresh.keys() & theirs.keys() or not all(map(UNUSED.fullmatch, gone)):
        return initial
    if not fresh and initial.model.vocab_size == rows:
        return initial
    plain, unknown = as_plain_text(initial.tokenizer), specials_of(initial.tokenizer).unk
    pieces = {
        number: [one for one in plain.encode(word.removeprefix("##"), add_special_tokens=False).ids if one != unknown]
        for word, number in fresh.items()
    }

    def fitted(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: _with_rows(tensor, rows, pieces) if any(part in name for part in _TABLES) else tensor
            for name, tensor in tensors.items()
        }

    return replace(
        initial,
        model=replace(initial.model, vocab_size=rows),
        tokenizer=tokenizer,
        encoder=fitted(initial.encoder),
        networks={name: fitted(tensors) for name, tensors in initial.networks.items()},
        shapes={name: replace(shape, vocab_size=rows) for name, shape in initial.shapes.items()},
        new_words=len(fresh),
    )


def _with_rows(table: Tensor, rows: int, pieces: Mapping[int, list[int]]) -> Tensor:
    """A table with that many rows; `pieces`: of a new row, the rows whose mean it is (none: all)."""
    mean = table.mean(0, keepdim=True)
    made = torch.cat([table[:rows], mean.expand(max(0, rows - len(table)), *table.shape[1:])])
    for number, known in pieces.items():
        made[number] = table[known].mean(0) if known else mean[0]
    return made.contiguous()
