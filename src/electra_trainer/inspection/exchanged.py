"""Probe that `electra demo` shows: held-out sentences with one word exchanged."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra_trainer.data.batches import word_counts
from electra_trainer.data.store import Store
from electra_trainer.model.networks import Discriminator
from electra_trainer.pretrained.pretrained import Scored, replaced_probability

FREQUENT = 100
"""Number of the most frequent words of the training rows that an exchanged word is drawn from."""
_WORDS = range(6, 21)
"""Words that a sentence has."""
_BETWEEN = ("[CLS]", "[SEP]", "[PAD]")


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


def exchange_words(store: Store, *, count: int, seed: int = 1) -> list[Exchanged]:
    """At most `count` held-out sentences of 6 to 20 words, in random order, each with one whole word exchanged.

    The words that are exchanged, and those that take their place, are drawn alike from a seed: nothing is chosen.
    """
    words = _vocabulary(store)
    whole_V = np.array([word.isalpha() for word in words])
    frequent = np.argsort(-word_counts(store) * whole_V, kind="stable")[: min(FREQUENT, int(whole_V.sum()))]
    sentences = list(_sentences(store.rows("valid"), words))
    draws, special = np.random.default_rng(seed), store.specials
    found = []
    for index in draws.permutation(len(sentences))[:count]:
        ids = [special.cls, *sentences[index], special.sep]
        # a word of several pieces would leave its other pieces behind
        places = [i for i, one in enumerate(ids) if words[one].isalpha() and not words[ids[i + 1]].startswith("##")]
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


def _sentences(rows: Iterable[NDArray[Any]], words: list[str]) -> Iterator[list[int]]:
    """Ids of the sentences of 6 to 20 words: what lies between full stops of a document."""
    for row in (list(map(int, row[1:])) for row in rows):  # a row may begin in the middle of a sentence
        begin: int | None = None
        for at, word in enumerate(words[one] for one in row):
            if word in _BETWEEN:
                begin = at + 1
            elif word == "." and begin is not None:
                if sum(words[one].isalpha() for one in row[begin : at + 1]) in _WORDS:
                    yield row[begin : at + 1]
                begin = at + 1


def _vocabulary(store: Store) -> list[str]:
    tokenizer: Any = store.tokenizer()
    return [tokenizer.id_to_token(index) or "" for index in range(store.vocab_size)]
