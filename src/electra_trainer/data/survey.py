"""Findings of `electra check` on a corpus before anything is trained on it: unreadable files, copies, lengths,
languages, scripts, traces of bad conversion.

Everything but the counts is measured on documents, lines and words whose hashes fall into a sample; its share is halved
whenever it is full, so that the memory stays the same. The same text gives the same page.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from typing import Generic, TypeVar

from electra_trainer.data.corpus import CorpusReport, Input, Reading, documents
from electra_trainer.data.legibility import bare, is_letter, percent
from electra_trainer.data.remote import Texts
from electra_trainer.data.text_files import find_sources
from electra_trainer.data.vocabulary import needs_marks
from electra_trainer.errors import ElectraError
from electra_trainer.files.reading import short

_MOST = 200_000
"""Entries of a sample."""
_READ, _BEGINNING = 2_000, 1_000
"""Documents of which the language is guessed, and characters of each that are looked at."""
_SHARE = 0.001
"""Smallest share that is worth a line."""
_TRACES = {
    "lines with HTML tags or entities": re.compile(
        r"</?(?:a|b|br|div|em|i|img|li|p|span|strong|table|td|tr|ul)\b[^<>]*>|&(?:amp|lt|gt|nbsp|quot|#\d+);", re.I
    ),
    "lines decoded in a wrong encoding": re.compile("[ÃÂ][\\x80-\\xbf]|â€|Ð[\\x80-\\xbf]|�"),
    "lines with wiki markup": re.compile(r"\[\[[^\]]+\]\]|'''|\{\{[^}]+\}\}|^==+.*==+$"),
    "lines with control characters": re.compile(r"[\x00-\x08\x0e-\x1f\x7f\x80-\x9f]"),
    "lines that are addresses of the web": re.compile(r"^(?:https?://|www\.)\S+$"),
}
_AROUND = ".,;:!?\"'()"
T = TypeVar("T")


class Sample(Generic[T]):
    """Values by a hash of 64 bits; of those that are met, as large a share as fits."""

    def __init__(self, most: int = _MOST) -> None:
        self.most, self.of = most, 1
        """Sampling rate: one value in `of` is kept."""
        self.values: dict[int, T] = {}

    def takes(self, key: int) -> bool:
        """Whether a hash belongs to the sample."""
        return key % self.of == 0

    def put(self, key: int, value: T) -> None:
        """Add or replace a value whose hash belongs to it."""
        self.values[key] = value
        while len(self.values) > self.most:
            self.of *= 2
            self.values = {one: kept for one, kept in self.values.items() if one % self.of == 0}


def key_of(text: str) -> int:
    """The hash of a text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def count(sample: Sample[tuple[int, str]], text: str, times: int, shown: str) -> None:
    """Count a text in a sample, `times` more."""
    if sample.takes(key := key_of(text)):
        sample.put(key, (sample.values.get(key, (0, ""))[0] + times, shown))


@dataclass
class Survey:
    """A corpus, as far as it was read."""

    report: CorpusReport = field(default_factory=CorpusReport)
    unread: list[str] = field(default_factory=list)
    """Messages about inputs that cannot be used."""
    documents: Sample[tuple[int, int, str]] = field(default_factory=Sample)
    """Occurrences, characters and first place of each text."""
    beginnings: Sample[str] = field(default_factory=lambda: Sample(_READ))
    """First characters of each text."""
    lines: Sample[tuple[int, str]] = field(default_factory=Sample)
    """Occurrences and beginning of each line."""
    words: Sample[tuple[int, str]] = field(default_factory=Sample)
    """Occurrences of each word, and the word."""
    traces: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Traces of bad conversions: how many lines, and the first."""

    checked: int = 0
    """Lines in which they were looked for."""

    def add(self, text: Sequence[str], where: str) -> None:
        """A document."""
        for line in text:
            count(self.lines, line, 1, line[:80])
        whole = "\n".join(text)
        key = key_of(whole)
        if self.beginnings.takes(key):
            self.beginnings.put(key, whole[:_BEGINNING])
        if not self.documents.takes(key):
            return
        times, _, first = self.documents.values.get(key, (0, 0, where))
        self.documents.put(key, (times + 1, len(whole), first))
        for line in text:
            self.checked += 1
            for name, pattern in _TRACES.items():
                if pattern.search(line):
                    many, first = self.traces.get(name, (0, f"{where}: {short(line)}"))
                    self.traces[name] = (many + 1, first)
        for word, times in Counter(whole.split()).items():
            count(self.words, word, times, word)

    def page(self) -> list[str]:
        """The page, a line a finding."""
        found = [f"cannot be used: {message}" for message in self.unread] + self.report.summary()
        if self.documents.values:
            for part in (self._copies, self._lengths, self._languages, self._scripts, self._case, self._forms):
                found += part()
            for name, (many, first) in sorted(self.traces.items(), key=lambda item: -item[1][0]):
                found.append(f"{name}: {percent(many, self.checked)}; the first at {first}")
        return found

    def _copies(self) -> Iterable[str]:
        values = [*self.documents.values.values()]
        total = sum(times for times, _, _ in values)
        copies = total - len(values)
        most = max(values)
        note = f", {most[0]:,} times the text at {most[2]}" if copies else ""
        yield f"copies: {percent(copies, total)} of the documents are whole copies of an earlier one{note}"
        lines = sorted(self.lines.values.values(), reverse=True)
        total = sum(times for times, _ in lines)
        common = ", ".join(f"{times:,} x {short(line)}" for times, line in lines[:3] if times > 1)
        yield f"repeated lines: {percent(total - len(lines), total)}{f'; the commonest: {common}' if common else ''}"

    def _lengths(self) -> Iterable[str]:
        lengths = sorted(length for times, length, _ in self.documents.values.values() for _ in range(times))
        at = [lengths[int(share * (len(lengths) - 1))] for share in (0.05, 0.5, 0.95, 1.0)]
        yield (
            f"lengths: {at[0]:,} to {at[2]:,} characters in nine of ten documents, {at[1]:,} in the middle, {at[3]:,} "
            "in the longest"
        )

    def _languages(self) -> Iterable[str]:
        from py3langid.langid import classify

        texts = [text for text in self.beginnings.values.values() if any(map(str.isalpha, text))]
        found = Counter(str(classify(text)[0]) for text in texts).most_common()
        shares = [f"{name} {percent(count, len(texts))}" for name, count in found if count > 0.01 * len(texts)]
        yield f"languages, guessed from {len(texts):,} documents: {', '.join(shares[:8]) or 'no letters'}"

    def _scripts(self) -> Iterable[str]:
        letters: Counter[str] = Counter()
        for times, word in self.words.values.values():
            for letter in word:
                if letter.isalpha():
                    letters[_script(letter)] += times
        total = letters.total()
        shares = [f"{name} {percent(count, total)}" for name, count in letters.most_common(6) if count > _SHARE * total]
        yield f"scripts: {', '.join(shares) or 'no letters'}"

    def _case(self) -> Iterable[str]:
        words = [*self.words.values.values()]
        capitals = sum(times for times, word in words if word != word.lower())
        yield (
            f"capitals: in {percent(capitals, sum(times for times, _ in words))} of the words; kept with `electra "
            "tokenizer --cased`"
        )
        yield accents_line(words) or "accents: in fewer than one word of a thousand"

    def _forms(self) -> Iterable[str]:
        """Words whose letters and marks are composed (NFC) next to words where they are not (NFD)."""
        both: dict[str, set[str]] = {}
        composed = decomposed = 0
        for times, word in self.words.values.values():
            if not word.isascii() and (nfc := unicodedata.normalize("NFC", word)) != unicodedata.normalize("NFD", word):
                both.setdefault(nfc, set()).add(word)
                composed += times * (word == nfc)
                decomposed += times * (word != nfc)
        if decomposed:
            twice = [sorted(one) for one in both.values() if len(one) > 1]
            some = ", ".join(" and ".join(map(ascii, one)) for one in twice[:3])
            yield (
                f"normal forms: {percent(decomposed, composed + decomposed)} of the words with accents are decomposed "
                "(not NFC)"
                + (f"; {len(twice):,} words are spelt in both ways, such as {some}" if twice else "")
                + ("; `electra tokenizer --nfc` composes them" if composed else "")
            )


def accents_line(words: Iterable[tuple[int, str]], *, stripped: bool = False) -> str:
    """Line on the accents of words (with their counts) that a vocabulary changes by default, without --cased; empty
    where there are next to none.

    Args:
        stripped: it removes them whatever the script (--strip-accents).
    """
    words = [*words]
    total = sum(times for times, _ in words)
    accents = sum(times for times, word in words if bare(word) != unicodedata.normalize("NFC", word))
    if accents < _SHARE * total or not accents:
        return ""
    letters: Counter[str] = Counter()
    for times, word in words:
        for letter in word:
            letters[letter] += times
    share = f"accents: in {percent(accents, total)} of the words"
    if needs_marks(letters) and not stripped:
        return f"{share}; they are part of the script, and `electra tokenizer` keeps them"
    known: dict[str, Counter[str]] = {}
    for times, word in words:
        if all(map(is_letter, lower := unicodedata.normalize("NFC", word.lower().strip(_AROUND)))):
            known.setdefault(bare(lower), Counter())[lower] += times
    merged = sorted((one for one in known.values() if len(one) > 1), key=lambda one: -sorted(one.values())[-2])
    some = ", ".join("/".join(sorted(one)) for one in merged[:4])
    return f"{share}, which lose them unless you give --keep-accents or --cased to `electra tokenizer`" + (
        f"; {len(merged):,} groups of words become one, such as {some}" if merged else ""
    )


@cache
def _script(letter: str) -> str:
    return unicodedata.name(letter, "unknown").split()[0].capitalize()


def survey(paths: Sequence[Input], reading: Reading | None = None) -> Survey:
    """Read a corpus to its end, whatever is wrong with its files: bad lines are left out and counted.

    Args:
        paths: as for `documents`.
        reading: how; bad text is always counted.

    Raises:
        MissingInputError, StorageError, DataError: an input that is not there, or nothing to read.
    """
    found, reading = Survey(), replace(reading or Reading(), on_bad_text="skip")
    texts = [path for path in paths if isinstance(path, Texts)]
    named = [path for path in paths if not isinstance(path, Texts) and str(path) != "docstrings"]
    sources, found.report.skipped_files, found.report.repeated_files = find_sources(named)
    inputs: list[Input] = [
        *(["docstrings"] if len(named) + len(texts) < len(paths) else []),
        *map(str, sources),
        *texts,
    ]
    for one in inputs:
        try:
            for document in documents([one], report=found.report, reading=reading):
                place = document.place
                found.add(document, f"{place.file}:{place.line}" if place.line else place.file)
        except ElectraError as error:
            found.unread.append(str(error))
    return found
