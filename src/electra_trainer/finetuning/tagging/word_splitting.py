"""Running text as words: where each begins and ends. No torch here."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal

from electra_trainer.finetuning.examples import TaggedSentence

Splitting = Literal["spaces", "punctuation", "contractions", "characters", "unknown"]
"""How words of training data are split: at spaces; punctuation apart; n't, 's and the like apart too (Penn Treebank);
each Chinese or Japanese character apart; by a program (unknown)."""
_CHUNK = re.compile(r"\S+")
_MARKS = re.compile(r"\.{2,}|-{2,}|''|``|.", re.DOTALL)
"""Marks that are a word: each alone, or some that are often doubled."""
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+")
_CONTRACTION = re.compile(r"(?:n['’]t|['’](?:s|re|ve|ll|d|m))$", re.IGNORECASE)
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters of scripts that write no spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""
_LOOKED_AT = 5_000
"""Sentences from which the splitting is guessed."""


def word_places(text: str, how: Splitting = "punctuation") -> list[tuple[int, int]]:
    """Beginning and end of each word. Punctuation at the ends of a word is a word, unless `how` is spaces."""
    chunks = [match.span() for match in _CHUNK.finditer(text)]
    if how == "spaces":
        return chunks
    return [place for first, stop in chunks for place in _parts(text, first, stop, how)]


def _parts(text: str, first: int, stop: int, how: Splitting) -> Iterator[tuple[int, int]]:
    """The words of a run without spaces."""
    begin, end = first, stop
    if how == "contractions" and _CONTRACTION.fullmatch(text[first:stop]):
        yield first, stop
        return
    while begin < stop and _is_mark(text[begin]) and not _begins_name(text, begin, stop):
        begin += 1
    while end > begin and _is_mark(text[end - 1]) and not _INITIALS.fullmatch(text, begin, end):
        end -= 1
    yield from (match.span() for match in _MARKS.finditer(text, first, begin))
    at = begin
    if how == "characters":
        for letter in _UNSPACED.finditer(text, begin, end):
            if at < letter.start():
                yield at, letter.start()
            yield letter.span()
            at = letter.end()
    elif how == "contractions" and (match := _CONTRACTION.search(text[begin:end])) and match.start():
        yield begin, begin + match.start()
        at = begin + match.start()
    if at < end:
        yield at, end
    yield from (match.span() for match in _MARKS.finditer(text, end, stop))


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS" and character != "_"


def _begins_name(text: str, first: int, stop: int) -> bool:
    """#topic and @person are words."""
    return text[first] in "#@" and first + 1 < stop and text[first + 1].isalnum()


def unspaced_letters(text: str) -> int:
    """Number of letters of scripts that write no spaces between words."""
    return len(_UNSPACED.findall(text))


def splitting_of(sentences: Sequence[TaggedSentence]) -> Splitting:
    """How the words of training data were split."""
    words = [word for one in islice(sentences, _LOOKED_AT) for word in one.words if word]
    unspaced = [word for word in words if _UNSPACED.search(word)]
    if 4 * len(unspaced) > len(words):
        single = sum(len(word) == 1 for word in unspaced)
        return "characters" if 10 * single >= 9 * len(unspaced) else "unknown"
    alone = sum(word in (".", ",", ";", ":", "!", "?", "。", "،", "।") for word in words)
    attached = sum(
        len(word) > 2 and word[-1] in ",;!?." and word[-2].isalpha() and word.count(".") < 2 for word in words
    )
    if attached > alone:
        return "spaces"
    return "contractions" if any(_CONTRACTION.fullmatch(word) for word in words) else "punctuation"
