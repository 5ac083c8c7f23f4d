"""Findings of `electra prepare --dry-run` on a corpus: unreadable files, copies, languages, traces of bad conversion.

Everything but the counts is measured on documents, lines and words whose hashes fall into a sample; its share is halved
whenever it is full, so that the memory stays the same. The same text gives the same page.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from electra_trainer.data.corpus import DOCSTRINGS, CorpusReport, Input, Reading, documents
from electra_trainer.data.legibility import CONTROL, SAID, bare, percent
from electra_trainer.data.vocabulary import needs_marks
from electra_trainer.errors import ElectraError
from electra_trainer.files.reading import short
from electra_trainer.files.sources import Texts, find_sources

_MOST = 200_000
"""Entries of a sample."""
_READ, _BEGINNING = 2_000, 1_000
"""Documents of which the language is guessed, and characters of each that are looked at."""
_MOST_LETTERS = 100
"""Letters of a word that are looked at: composing a long run of marks takes the square of its length."""
_DOTLESS = frozenset("ıİ")  # of Turkish and its relatives
_TRACES = {
    "lines with HTML tags or entities": re.compile(
        r"</?(?:a|b|br|div|em|i|img|li|p|span|strong|table|td|tr|ul)\b[^<>]*>|&(?:amp|lt|gt|nbsp|quot|#\d+);", re.I
    ),
    "lines decoded in a wrong encoding": re.compile("[ÃÂ][\\x80-\\xbf]|â€|Ð[\\x80-\\xbf]|�"),
    "lines with wiki markup": re.compile(r"\[\[[^\[\]]+\]\]|'''|\{\{[^{}]+\}\}|^={2,6}[^=](?:.*[^=])?={2,6}$"),
    "lines with control characters": CONTROL,
    "lines that are addresses of the web": re.compile(r"^(?:https?://|www\.)\S+$"),
}


class Sample:
    """Texts and how often each occurred; of those that are met, as large a share, by a hash of 64 bits, as fits."""

    def __init__(self, most: int = _MOST) -> None:
        self.most, self.of = most, 1
        """Sampling rate: one text in `of` is kept."""
        self.values: dict[int, tuple[int, str]] = {}

    def add(self, text: str, shown: str, times: int = 1) -> bool:
        """Count a text; whether it belongs to the sample. `shown` is what is kept of it, the first time."""
        key = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
        if key % self.of:
            return False
        count, first = self.values.get(key, (0, shown))
        self.values[key] = count + times, first
        while len(self.values) > self.most:
            self.of *= 2
            self.values = {one: kept for one, kept in self.values.items() if one % self.of == 0}
        return True

    def commonest(self) -> list[tuple[int, str]]:
        """How often each occurred, and what was kept of it."""
        return sorted(self.values.values(), reverse=True)


@dataclass
class Survey:
    """A corpus, as far as it was read."""

    report: CorpusReport = field(default_factory=CorpusReport)
    unread: list[str] = field(default_factory=list)
    """Messages about inputs that cannot be used."""
    documents: Sample = field(default_factory=Sample)
    """Texts, and the first place of each."""
    beginnings: Sample = field(default_factory=lambda: Sample(_READ))
    """Texts, and the first characters of each."""
    lines: Sample = field(default_factory=Sample)
    words: Sample = field(default_factory=Sample)
    traces: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Traces of bad conversions: how many lines, and the first."""

    checked: int = 0
    """Lines in which they were looked for."""

    def add(self, text: Sequence[str], where: str) -> None:
        """A document."""
        for line in text:
            self.lines.add(line, line[:80])
        whole = "\n".join(text)
        self.beginnings.add(whole, whole[:_BEGINNING])
        if not self.documents.add(whole, where):
            return
        for line in text:
            self.checked += 1
            for name, pattern in _TRACES.items():
                if pattern.search(line):
                    many, first = self.traces.get(name, (0, f"{where}: {short(line)}"))
                    self.traces[name] = (many + 1, first)
        for word, times in Counter(whole.split()).items():
            self.words.add(word, word, times)

    def page(self) -> list[str]:
        """The page, a line a finding."""
        found = [f"cannot be used: {message}" for message in self.unread] + self.report.summary()
        if self.documents.values:
            found += [*self._copies(), self._languages(), *self._folded()]
            for name, (many, first) in sorted(self.traces.items(), key=lambda item: -item[1][0]):
                found.append(f"{name}: {percent(many, self.checked)}; the first at {first}")
        return found

    def _copies(self) -> Iterable[str]:
        values = self.documents.commonest()
        total = sum(times for times, _ in values)
        copies = total - len(values)
        note = f", {values[0][0]:,} times the text at {values[0][1]}" if copies else ""
        yield f"copies: {percent(copies, total)} of the documents are whole copies of an earlier one{note}"
        lines = self.lines.commonest()
        total = sum(times for times, _ in lines)
        common = ", ".join(f"{times:,} x {short(line)}" for times, line in lines[:3] if times > 1)
        yield f"repeated lines: {percent(total - len(lines), total)}{f'; the commonest: {common}' if common else ''}"

    def _languages(self) -> str:
        from py3langid.langid import classify

        texts = [text for _, text in self.beginnings.commonest() if any(map(str.isalpha, text))]
        found = Counter(str(classify(unicodedata.normalize("NFC", text))[0]) for text in texts).most_common()
        shares = [f"{name} {percent(count, len(texts))}" for name, count in found if count > 0.01 * len(texts)]
        return f"languages, guessed from {len(texts):,} documents: {', '.join(shares[:8]) or 'no letters'}"

    def _folded(self) -> Iterable[str]:
        words = self.words.commonest()
        capitals = percent(
            sum(times for times, word in words if word != word.lower()), sum(times for times, _ in words)
        )
        yield f"capitals: in {capitals} of the words; kept with `electra tokenizer --cased`"
        yield accents_line(words) or "accents: in fewer than one word of a thousand"


def accents_line(words: Iterable[tuple[int, str]]) -> str:
    """Line on the accents of words (with their counts) that a vocabulary changes by default, without --cased; empty
    where there are next to none.
    """
    words = [(times, unicodedata.normalize("NFC", word[:_MOST_LETTERS])) for times, word in words]
    total = sum(times for times, _ in words)
    accents = sum(times for times, word in words if bare(word) != word)
    if accents < SAID * total or not accents:
        return ""
    letters: Counter[str] = Counter()
    for times, word in words:
        letters.update(dict.fromkeys(word, times))
    share = f"accents: in {percent(accents, total)} of the words"
    if sum(times for times, word in words if not _DOTLESS.isdisjoint(word)) > 0.01 * total:
        return f"{share}; give --cased to `electra tokenizer`: --keep-accents alone lower-cases I to i, not to ı"
    if needs_marks(letters):
        return f"{share}; they are part of the script, and `electra tokenizer` keeps them"
    return f"{share}, which lose them unless you give --keep-accents or --cased to `electra tokenizer`"


def survey(paths: Sequence[Input], reading: Reading | None = None) -> Survey:
    """Read a corpus to its end, whatever is wrong with its files: bad lines are left out and counted.

    Args:
        paths: as for `documents`.
        reading: how; bad text is always counted.

    Raises:
        MissingInputError, StorageError, DataError: an input that is not there, or nothing to read.
    """
    found, reading = Survey(), replace(reading or Reading(), on_bad_text="skip")
    named = [path for path in paths if str(path) != DOCSTRINGS]
    sources, found.report.skipped_files = find_sources(named)
    inputs: list[Input] = [one if isinstance(one, Texts) else str(one) for one in sources]
    for one in [DOCSTRINGS, *inputs] if len(named) < len(paths) else inputs:
        try:
            for document in documents([one], report=found.report, reading=reading):
                place = document.place
                found.add(document, f"{place.file}:{place.line}" if place.line else place.file)
        except ElectraError as error:
            found.unread.append(str(error))
    return found
