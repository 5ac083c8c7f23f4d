"""Probes that `electra demo` shows: held-out sentences with one word exchanged, and the nearest words of
frequent ones.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from electra_trainer.data.batches import word_counts
from electra_trainer.data.store import Store
from electra_trainer.model.networks import Discriminator
from electra_trainer.pretrained.pretrained import Scored, replaced_probability

FREQUENT = 100
"""Number of the most frequent words of the training rows that an exchanged word is drawn from."""
_WORDS = range(6, 21)
"""Words that a sentence has."""
_STOPS = frozenset(".。｡．！？।॥۔؟።།။")
"""Ends of sentences: English full stops, and the signs of Chinese, Japanese, Hindi, Urdu, Arabic, Amharic, Tibetan and
Burmese.
"""


@dataclass(frozen=True, kw_only=True)
class Exchanged:
    """A sentence with one word exchanged."""

    ids: list[int]
    """Index among its tokens, with the specials around them."""
    place: int
    """Index of the exchanged word in `ids`."""
    original: str
    """The word that stood there."""


@dataclass(frozen=True, kw_only=True)
class Suspected:
    """Verdict of a discriminator on a sentence with an exchanged word."""

    sentence: Exchanged
    scored: Scored
    suspect: str
    """The token that it suspects most."""
    found: bool
    """Whether that is the exchanged one."""


def exchange_words(store: Store, *, count: int, seed: int = 1, rows: int | None = None) -> list[Exchanged]:
    """At most `count` held-out sentences of 6 to 20 words, in random order, each with one whole word exchanged.

    The words that are exchanged, and those that take their place, are drawn alike from a seed: nothing is chosen.

    Args:
        rows: read no more than the first held-out rows, frequencies included; None: all, and frequencies in the
            training rows.
    """
    words, read = _vocabulary(store), store.rows("valid")[:rows]
    counts = word_counts(store) if rows is None else np.bincount(read.reshape(-1), minlength=store.vocab_size)
    frequent = _frequent(counts, words, FREQUENT)
    sentences = list(_sentences(read, store, words)) or list(_sentences(read, store, words, whole=True))
    draws = np.random.default_rng(seed)
    found = []
    for index in draws.permutation(len(sentences))[:count]:
        ids = sentences[index]
        # a word of several pieces would leave its other pieces behind
        places = [i for i, one in enumerate(ids) if _is_word(words[one]) and not words[ids[i + 1]].startswith("##")]
        if not places:
            continue
        place = int(draws.choice(places))
        other = int(draws.choice(frequent[frequent != ids[place]]))
        found.append(Exchanged(ids=[*ids[:place], other, *ids[place + 1 :]], place=place, original=words[ids[place]]))
    return found


def suspect(discriminator: Discriminator, store: Store, sentences: list[Exchanged]) -> list[Suspected]:
    """Verdicts of the discriminator, on the CPU, on each sentence."""
    words, found = _vocabulary(store), []
    for sentence in sentences:
        probabilities = replaced_probability(discriminator, sentence.ids)
        most = int(np.argmax(probabilities))
        tokens = [words[one] for one in sentence.ids[1:-1]]
        scored = Scored(tokens=tokens, replaced_probability=probabilities)
        right = most == sentence.place - 1
        found.append(Suspected(sentence=sentence, scored=scored, suspect=tokens[most], found=right))
    return found


@torch.no_grad()
def nearest_words(discriminator: Discriminator, store: Store, *, count: int) -> list[tuple[str, list[str]]]:
    """The `count` most frequent words of six letters and more, each with the four frequent words whose embeddings are
    nearest by cosine.
    """
    words = _vocabulary(store)
    known = _frequent(word_counts(store), words, 4 * FREQUENT)
    embeddings_ND = discriminator.electra.embeddings.word_embeddings.weight[torch.from_numpy(known)]
    directions_ND = torch.nn.functional.normalize(embeddings_ND - embeddings_ND.mean(0), dim=-1)
    long = [index for index, one in enumerate(known) if len(words[one]) >= 6][:count]
    near = (directions_ND[long] @ directions_ND.T).topk(min(5, len(known))).indices[:, 1:].tolist()
    return [(words[known[index]], [words[known[i]] for i in row]) for index, row in zip(long, near, strict=True)]


def _sentences(
    rows: Iterable[NDArray[Any]], store: Store, words: list[str], *, whole: bool = False
) -> Iterator[list[int]]:
    """Ids of the sentences of rows with [CLS] and [SEP] around them: what lies between two full stops, or ends of
    documents.

    Args:
        whole: whole documents instead, for text without full stops.
    """
    special = store.specials
    for row in rows:
        sentence: list[int] | None = None  # a row may begin in the middle of one
        for one in map(int, row[1:]):
            is_special = one in (special.cls, special.sep, special.pad)
            if sentence is not None and not is_special:
                sentence.append(one)
            if is_special or (words[one] in _STOPS and not whole):
                if sentence and is_special is whole and sum(_is_word(words[piece]) for piece in sentence) in _WORDS:
                    yield [special.cls, *sentence, special.sep]
                if sentence is not None or is_special:
                    sentence = []


def _is_word(piece: str) -> bool:
    """Whether a piece is a word, or its beginning: letters and their marks."""
    return bool(piece) and all(unicodedata.category(character)[0] in "LM" for character in piece)


def _frequent(counts_V: NDArray[np.int64], words: list[str], count: int) -> NDArray[np.intp]:
    """Ids of the most frequent whole words, the most frequent first."""
    whole_V = np.array([_is_word(word) for word in words])
    return np.argsort(-counts_V * whole_V, kind="stable")[: min(count, int(whole_V.sum()))]


def _vocabulary(store: Store) -> list[str]:
    tokenizer: Any = store.tokenizer()
    return [tokenizer.id_to_token(index) or "" for index in range(store.vocab_size)]
