"""Text files with a word a line and its labels in columns, a blank line between sentences: CoNLL-2000, 2002, 2003 and
their like; and with a sentence a line of word/TAG.

Columns are separated by tabs, if the first line of words has one, or by spaces. Lines with -DOCSTART- part documents
and hold no word. A line before a sentence that begins with # is a comment if it has another number of columns, or a
label that no other line has: "#" is also a word ("# # B-NP" in CoNLL-2000), and so is #topic.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from electra_trainer.errors import ConfigError, DataError
from electra_trainer.files.reading import short
from electra_trainer.finetuning.examples import TaggedSentence
from electra_trainer.finetuning.tagging.notation import notation_of
from electra_trainer.finetuning.tagging.tag_columns import UNLABELLED, TagColumns, Tagged
from electra_trainer.finetuning.tagging.word_splitting import unspaced_letters

_DOCUMENT = "-DOCSTART-"
_LONG_WORD = 6
"""Letters in a row that are several words in a script without spaces."""
_USUAL = 0.9
"""Share of the lines, or words, that have to look alike."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the first line of words looks, as all others must."""

    line: int
    tabs: bool
    columns: int

    def split(self, line: str) -> list[str]:
        """The fields of a line."""
        if self.tabs:
            return [field.strip(" ") for field in line.split("\t")]
        return [field for field in line.replace("\t", " ").split(" ") if field]


def read_columns(
    lines: Sequence[str], path: Path, *, words: int, label: int | None, known: Collection[str] = ()
) -> Tagged:
    """Sentences of a column file.

    Args:
        lines: of the file.
        words: column of the words, counted from 1; of one column without labels it is the first.
        label: column of the labels, 0 the last one; None: none.
        known: labels, where others than the file's are known.

    Raises:
        ConfigError: a column that cannot be. DataError: malformed; says file:line.
    """
    layout = layout_of(lines, path)
    last = layout.columns if label == 0 else label
    words = 1 if label is None and layout.columns == 1 else words
    _check_columns(layout, words, last, f"{path}:{layout.line}")
    hashes = _Hashes(lines, layout, words=words, label=last or layout.columns, known=known)
    sentences: list[TaggedSentence] = []
    block: list[tuple[str, str | None]] = []
    for number, line in enumerate([*lines, ""], start=1):
        if _ends_sentence(line):
            if block:
                said, labelled = zip(*block, strict=True)
                at = tuple(range(number - len(block), number))
                sentences.append(TaggedSentence(words=said, labels=labelled, file=str(path), lines=at))
            block = []
            continue
        fields = layout.split(line)
        if line.startswith("#") and not block and hashes.is_comment(number, line, fields):
            continue
        _check_fields(fields, line, layout, where=f"{path}:{number}")
        value = fields[last - 1] if last is not None else UNLABELLED
        block.append((fields[words - 1], None if value == UNLABELLED else value))
    if not sentences:
        raise DataError(f"{path}: holds comments and no words.")
    every = [word for one in sentences for word in one.words]
    if 2 * sum(" " in word.strip() for word in every) > len(every):
        raise DataError(
            f"{path}: column {words} holds texts, expected a word a line. Name another column (--words), or for "
            "running text give a file "
            "of text alone."
        )
    columns = TagColumns(words=str(words), label=str(last) if last else None, columns=layout.columns)
    return Tagged(sentences=sentences, columns=columns, notes=tuple(hashes.notes(path)))


class _Hashes:
    """Lines before a sentence that begin with #: words or comments."""

    def __init__(self, lines: Sequence[str], layout: Layout, *, words: int, label: int, known: Collection[str]) -> None:
        self._layout, self._words, self._label = layout, words, label
        self._comments: list[tuple[int, str]] = []
        self._guessed: list[tuple[int, str]] = []
        clear, doubtful, begun = Counter[str](), Counter[str](), False
        for line in lines:
            if _ends_sentence(line):
                begun = False
                continue
            fields, begun = layout.split(line), begun or not line.startswith("#")
            if len(fields) == layout.columns:
                (clear if begun else doubtful)[fields[label - 1]] += 1
        self._known, self._doubtful = {*clear, *known}, doubtful
        self._notation = notation_of(tuple(self._known | set(doubtful)), "bioes")
        self._spans = self._notation.outside in self._known or bool(self._notation.typed(self._known))
        self._shapes = {_shape(one) for one in self._known}

    def is_comment(self, number: int, line: str, fields: list[str]) -> bool:
        if len(fields) != self._layout.columns:
            return True
        label = fields[self._label - 1]
        tag = self._spans and self._notation.typed([label])
        if self._layout.columns == 1 or label in self._known or label == UNLABELLED or tag:
            return False
        often = self._doubtful[label] > 1 or len(fields[self._words - 1]) > 1
        if often and _shape(label) in self._shapes:
            self._guessed.append((number, line))
            return False
        self._comments.append((number, line))
        return True

    def notes(self, path: Path) -> Iterator[str]:
        for found, what in ((self._comments, "comments"), (self._guessed, "words")):
            if found:
                number, line = found[0]
                count = (
                    "1 line that begins with # is" if len(found) == 1 else f"{len(found):,} lines that begin with # are"
                )
                yield (
                    f"{count} taken for {what} (first at {path.name}:{number}, {short(line)}): before a sentence, with "
                    f"{self._layout.columns} columns, and a label that no other line has."
                )


def _shape(label: str) -> tuple[bool, bool, bool]:
    """Capitals, digits, other characters."""
    return label.isupper(), any(map(str.isdecimal, label)), not label.replace("-", "").replace("_", "").isalnum()


def are_numbered(sentences: Sequence[TaggedSentence]) -> bool:
    """Whether the words are numbers that count the words of each sentence, from 0 or 1 on."""
    many = any(len(one.words) > 1 for one in sentences)
    counts = ((one.words, range(len(one.words) + 1)) for one in sentences)
    return many and all(words in (tuple(map(str, to[:-1])), tuple(map(str, to[1:]))) for words, to in counts)


def layout_of(lines: Sequence[str], path: Path) -> Layout:
    """The layout of a column file; DataError: it has no words."""
    for number, line in enumerate(lines, start=1):
        if not _ends_sentence(line) and not line.startswith("#"):
            first = Layout(line=number, tabs="\t" in line.strip(" \t"), columns=0)
            return replace(first, columns=len(first.split(line)))
    raise DataError(f"{path}: holds no sentences. Expected a word a line, its label in another column.")


def has_columns(lines: Sequence[str], like: TagColumns | None, known: Collection[str]) -> bool:
    """Whether a file to be tagged has a word a line, rather than running text.

    Args:
        lines: of the file.
        like: columns of the training file.
        known: labels of the model.
    """
    used = [line for line in lines if not _ends_sentence(line) and not line.startswith("#")]
    if not used:
        return True
    layout = Layout(line=0, tabs=2 * sum("\t" in line.strip() for line in used) > len(used), columns=0)
    rows = [layout.split(line) for line in used]
    (usual, count), *_ = Counter(map(len, rows)).most_common(1)
    longest = 1 if like is not None and like.split == "characters" else _LONG_WORD
    texts = sum(
        unspaced_letters(line) > longest or (line.strip().endswith(("。", "！", "？")) and len(line) > 1)
        for line in used
    )
    if usual == 1 and 2 * texts > len(used):
        return False
    if usual == 1 or count < _USUAL * len(rows) or layout.tabs:
        return layout.tabs or count >= _USUAL * len(rows)
    if any(line.startswith(_DOCUMENT) for line in lines) or (like is None and not known):
        return True
    if like is not None and like.columns and usual > like.columns:
        return False
    at = int(like.label) if like is not None and like.columns == usual and like.label else usual
    alike = [row for row in rows if len(row) == usual]
    last = [row[at - 1] for row in alike]
    if all(row[0].isdecimal() for row in alike):
        return True
    fitting = sum(label in known or label == UNLABELLED for label in last)
    return 2 * fitting >= len(last) or 5 * len(set(last)) <= len(last)


def _ends_sentence(line: str) -> bool:
    return not line.strip(" \t") or line.startswith(_DOCUMENT)


def _check_columns(layout: Layout, words: int, labels: int | None, where: str) -> None:
    if labels is not None and layout.columns == 1:
        raise DataError(f"{where}: has one column. Expected a word and its label on each line, tab or spaces between.")
    for what, flag, column in (("word", "--words", words), ("label", "--label", labels)):
        if column is not None and not 1 <= column <= layout.columns:
            raise DataError(f"{where}: {what} column {column}, and there are {layout.columns}. Choose one: {flag} 1.")
    if words == labels:
        raise ConfigError(f"{where}: column {words} holds words or labels, not both. Name both: --words 1 --label 2.")


def _check_fields(fields: list[str], line: str, layout: Layout, *, where: str) -> None:
    if "" in fields and len(fields) == layout.columns:
        raise DataError(f"{where}: column {fields.index('') + 1} is empty. What is not known is written {UNLABELLED}.")
    if len(fields) == layout.columns:
        return
    why = ""
    if layout.tabs and "\t" not in line:
        why = " The line has no tabs: was the file saved by an editor that replaced them?"
    elif line.startswith("#"):
        why = " A comment may stand before a sentence only."
    elif not layout.tabs and len(fields) > layout.columns:
        why = " If a word has a space in it, put tabs between the columns."
    raise DataError(f"{where}: expected {layout.columns} columns, as line {layout.line} has, found {len(fields)}.{why}")


def pairs_by(lines: Sequence[str]) -> str | None:
    """The character between word and tag where a line is a sentence of word/TAG, word_TAG or word|TAG; tabs separate
    columns.
    """
    used = [line.split() for line in lines if not _ends_sentence(line) and not line.startswith("# ")]
    if any("\t" in line.strip() for line in lines):
        return None
    fields = [field for line in used for field in line]
    for mark in "/_|":
        tags = {field.rpartition(mark)[2] for field in fields if mark in field.strip(mark)}
        alike = sum(mark in field.strip(mark) for field in fields) >= _USUAL * len(fields)
        if alike and len(fields) > 1 and len(tags) < max(3, len(fields)):
            return mark
    return None


def read_pairs(lines: Sequence[str], path: Path, mark: str, *, labelled: bool) -> Tagged:
    """Sentences of word/TAG, one a line; DataError: a word has no tag."""
    sentences = []
    for number, line in enumerate(lines, start=1):
        if _ends_sentence(line) or line.startswith("# "):
            continue
        both = [field.rpartition(mark) for field in line.split()]
        if bad := next(("".join(parts) for parts in both if not all(parts)), ""):
            raise DataError(f"{path}:{number}: {short(bad)} has no tag. Expected word{mark}TAG, spaces between.")
        sentences.append(
            TaggedSentence(
                words=tuple(word for word, _, _ in both),
                labels=tuple(tag if labelled and tag != UNLABELLED else None for _, _, tag in both),
                file=str(path),
                lines=(number,) * len(both),
            )
        )
    return Tagged(sentences=sentences, columns=TagColumns(kind="pairs", label=mark if labelled else None))
