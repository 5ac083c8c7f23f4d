"""Made-up text for the tests of this folder."""

import random
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, trainers

from electra_trainer.data.pack import Packer
from electra_trainer.data.tokenizer import SPECIAL_TOKENS, Specials

SPECIALS = Specials(pad=0, unk=1, cls=2, sep=3, mask=4)
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
WORDS = [a + b + c for a in SYLLABLES[::3] for b in SYLLABLES[1::7] for c in ("", "s", "ning", "pé", "rum")]


def sentences(count: int, *, seed: int = 0) -> list[str]:
    """Lines of made-up words, some long, some short, some odd."""
    draw = random.Random(seed)
    odd = ["[MASK]", "[CLS] and [SEP]", "naïve", "中文", "x" * 210, "U.S.A.", "\u2028", "3,14"]
    lines = []
    for _ in range(count):
        words = draw.choices(WORDS, k=draw.choice([1, 3, 8, 20, 60]))
        lines.append(" ".join([*words, draw.choice(odd)] if draw.random() < 0.2 else words))
    return lines


def pack(
    documents: Iterable[list[list[int]]], *, sequence_length: int, specials: Specials, seed: int = 1, dtype: str = "<u2",
) -> NDArray[np.generic]:  # fmt: skip
    """Rows [rows, sequence_length] of documents in memory, each a list of lines of ids."""
    packer = Packer(sequence_length=sequence_length, specials=specials, seed=seed, dtype=dtype)
    for index, document in enumerate(documents):
        lines = [line for line in document if line]
        if lines:
            ids = np.array([token for line in lines for token in line], dtype=np.uint32)
            packer.add(index, ids, np.array([len(line) for line in lines], dtype=np.uint32))
    return packer.finish()


def trained(
    model: Any, texts: list[str], size: int, *, cut: Any = None, normal: Any = None, decoder: Any = None
) -> Tokenizer:
    """A tokenizer by the library `tokenizers`: its model, pre-tokenizer, normaliser and decoder."""
    made = Tokenizer(model)
    made.pre_tokenizer, made.normalizer, made.decoder = cut, normal, decoder
    by_model = {
        "WordPiece": trainers.WordPieceTrainer,
        "BPE": trainers.BpeTrainer,
        "Unigram": partial(trainers.UnigramTrainer, unk_token="[UNK]"),
    }
    train = by_model[type(model).__name__]
    made.train_from_iterator(texts, train(vocab_size=size, special_tokens=[*SPECIAL_TOKENS], show_progress=False))
    return made
