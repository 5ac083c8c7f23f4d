"""Whether tagged files can be learned from and scored, and what a reader of the scores must know of them.

What cannot be right is a DataError with file and line; the rest is a note.
"""

from collections.abc import Sequence
from pathlib import Path

from electra_trainer.errors import DataError, did_you_mean
from electra_trainer.finetuning.tagging.spans import Scheme, TaggedSentence, fault, spans_of, split_tag
from electra_trainer.finetuning.texts.text_checks import WARNING

UNSEEN_SHARE = 0.1
"""Of the development words: when more have labels that training lacks, the files do not belong together. Rich morphology has a few in a hundred."""
_LONG = 1_000
"""Words of a sentence that looks like several without blank lines between them."""
_NOT_BY_CHANCE = 5
"""Words of a sentence that hardly stands twice by chance."""


def check_labels(labels: Sequence[str], path: Path) -> None:
    """DataError unless there are two labels to tell apart."""
    if len(labels) < 2:
        found = f"every word has the label {labels[0]!r}" if labels else "no word has a label"
        raise DataError(f"{path}: {found}, so there is nothing to learn. Is it the right label column?")


def check_scheme(sentences: Sequence[TaggedSentence], scheme: Scheme) -> None:
    """DataError at the first label that is not of the scheme."""
    good: set[str | None] = {None}
    for sentence in sentences:
        for index, label in enumerate(sentence.labels):
            if label in good:
                continue
            if wrong := fault(str(label), scheme):
                raise DataError(f"{sentence.place_of(index)}: {wrong} For labels without spans: --scheme none.")
            good.add(label)


def odd_sentences(sentences: Sequence[TaggedSentence], scheme: Scheme) -> list[str]:
    """Notes on a file: words without labels, spans that begin with I or E, sentences that are too long to be one."""
    file = Path(sentences[0].file).name
    notes = []
    blank = [(s, i) for s in sentences for i, label in enumerate(s.labels) if label is None]
    if blank:
        notes.append(
            f"{_count(len(blank), 'word')} of {file} without a label (first at {_at(blank)}): not learned, not scored."
        )
    if scheme != "none":
        begun = [
            (sentence, span.first)
            for sentence in sentences
            for tags in [[label or "O" for label in sentence.labels]]
            for span in spans_of(tags)
            if split_tag(tags[span.first])[0] in ("I", "E")
        ]
        if begun:
            notes.append(
                f"{_count(len(begun), 'span')} of {file} that an I- or E- begins (first at {_at(begun)}): counted, as conlleval does. "
                "They are usual in IOB1, and slips elsewhere."
            )
    longest = max(sentences, key=lambda sentence: len(sentence.words))
    if len(longest.words) > _LONG:
        notes.append(f"{_at([(longest, 0)])}: a sentence of {len(longest.words):,} words. Are blank lines missing?")
    return notes


def unseen_labels(dev: Sequence[TaggedSentence], labels: Sequence[str], train: Path) -> list[str]:
    """A note on labels that training lacks; DataError if there are many, or no labels at all."""
    known = {*labels, None}
    unseen = [(s, i) for s in dev for i, label in enumerate(s.labels) if label not in known]
    words = sum(label is not None for sentence in dev for label in sentence.labels)
    if not words:
        raise DataError(f"{dev[0].file}: no word has a label, so nothing can be scored. Is it the right label column?")
    if not unseen:
        return []
    sentence, index = unseen[0]
    first = str(sentence.labels[index])
    what = f"label {first!r} does not occur in {train.name}.{did_you_mean(first, labels)}"
    if len(unseen) > UNSEEN_SHARE * words:
        raise DataError(
            f"{sentence.place_of(index)}: {what} {len(unseen):,} of {words:,} words have such labels. Expected the training "
            "file's labels in the same column: mend them, write _ where a word is not to be scored, or add sentences with them "
            "to the training file."
        )
    return [
        f"{_at(unseen)}: {what} {_count(len(unseen), 'word')} of {words:,} with such labels: scored, and never right."
    ]


def overlap(train: Sequence[TaggedSentence], dev: Sequence[TaggedSentence]) -> list[str]:
    """A note on development sentences that stand in training, word for word; a warning where one is too long for chance."""
    seen = {sentence.words for sentence in train}
    twice = [sentence for sentence in dev if sentence.words in seen]
    long = [sentence for sentence in twice if len(sentence.words) >= _NOT_BY_CHANCE]
    if not twice:
        return []
    first = f" (first at {_at([(long[0], 0)])})" if long else ""
    return [
        f"{WARNING if long else ''}{len(twice):,} of {_count(len(dev), 'sentence')} in {Path(dev[0].file).name} stand in training as well, "
        f"{len(long):,} of them with {_NOT_BY_CHANCE} words or more{first}."
    ]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _at(found: Sequence[tuple[TaggedSentence, int]]) -> str:
    """The first place, for notes: without its folder, so that a moved file leaves a result as it is."""
    sentence, index = found[0]
    return Path(sentence.place_of(index)).name
