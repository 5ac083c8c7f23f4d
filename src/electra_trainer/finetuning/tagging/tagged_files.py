"""Files of tagged words, and running text that is to be tagged. No torch here.

    .conll .txt .tsv ...  a word a line, columns between tabs or spaces, a blank line between sentences (CoNLL)
    .conllu               CoNLL-U, also by another name where a line has ten columns
    .jsonl .json          {"tokens": [...], "ner_tags": [...]}, or {"text": ..., "label": [[0, 6, "PER"]]} in characters
    .csv .tsv             a row a word, with column names; a sentence's id or blank lines part the sentences

In column files lines with -DOCSTART- part documents. A line before a sentence that begins with # is a comment if it has
another number of columns, or a label that no other line has: "#" is also a word ("# # B-NP" in CoNLL-2000), and so is
#topic.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

from electra_trainer.data.conllu import UPOS, Sentence, Word, read_conllu
from electra_trainer.errors import ConfigError, DataError, did_you_mean
from electra_trainer.files import reading
from electra_trainer.files.reading import short
from electra_trainer.files.tables import Table, read_table_file
from electra_trainer.finetuning.examples import TaggedSentence
from electra_trainer.finetuning.tagging.spans import notation_of, scheme_of
from electra_trainer.finetuning.tagging.word_splitting import Splitting, unspaced_letters, word_places

TreebankColumn = Literal["upos", "xpos", "feats", "deprel"]
UNLABELLED = "_"
"""Label of a word that is neither learned nor scored."""
_IGNORED = -100
"""Number of a word without a label in data sets of the Hub."""
_WORDS = ("tokens", "words", "token", "word", "form", "forms")
_TEXTS = ("text", "sentence", "content", "sentences")
_SENTENCES = ("sentenceid", "sentid", "sentenceidx", "sentidx", "sentencenumber", "sentence", "sent", "id")
_LABELS = (
    ("nertags", "nertag", "ner"),
    ("tags", "tag", "labels", "label", "bio", "iob", "entities", "spans", "ents"),
    ("upos", "pos", "postags", "postag", "xpos", "chunktags", "chunktag", "chunk"),
)
"""Usual names of columns, without case, spaces and marks; of labels those first that are taken before the others."""
_SPAN = (("start", "start_offset"), ("end", "end_offset"), ("label", "labels"))
"""Keys of a span that is an object."""
_MOST = 20_000_000
_DOCUMENT = "-DOCSTART-"
_LONG_WORD = 6
"""Letters in a row that are several words in a script without spaces."""
_USUAL = 0.9
"""Share of the lines, or words, that have to look alike."""
_LAYOUTS = (
    'Expected {"tokens": [...], "tags": [...]} with a label for each word, or {"text": ..., "label": [[0, 6, "PER"]]} '
    "with spans in characters, one object a line."
)


@dataclass(frozen=True, kw_only=True)
class TagColumns:
    """How a file was read, which is kept with the model. Columns have a name, or a number counted from 1."""

    kind: Literal["columns", "treebank", "rows", "text"] = "columns"
    """Columns of a text file; CoNLL-U; objects or rows of a table; running text."""
    words: str = "1"
    """Column of the words, or of the text."""
    label: str | None = None
    """Column of the labels; None: none was read."""
    sentence: str | None = None
    """Column with the sentence's id, where a row is a word."""
    columns: int = 0
    """Number of columns of a text file; 0: another kind of file."""
    split: Splitting = "punctuation"
    """How the training words are split, for running text."""


@dataclass(frozen=True, kw_only=True)
class Tagged:
    """The content of a file."""

    sentences: list[TaggedSentence]
    columns: TagColumns
    notes: tuple[str, ...] = ()
    """Decisions that a reader of the scores must know."""


def read_tagged(
    path: str | Path,
    *,
    words: str | int | None = None,
    column: str | int | None = None,
    sentence: str | None = None,
    labelled: bool = True,
    like: TagColumns | None = None,
    known: Collection[str] = (),
) -> Tagged:
    """The sentences of a file.

    Args:
        words: column of the words, a number counted from 1 or a name; None: 1, or a usual name.
        column: of the labels: a number counted from 1 or "last" (which is meant by None) in a column file; a name in a
            table (None: a usual one); upos (which is meant by None), xpos, feats or deprel in a treebank.
        sentence: column of the sentence's id in a table with a row for each word; None: a usual name.
        labelled: False leaves the labels out; the file need not have them, may be running text, and of a single column
            it is the words.
        like: how the training file was read, for a file to be tagged.
        known: labels of the model, for a file to be tagged.

    Raises:
        MissingInputError, StorageError: cannot be read. ConfigError: no such column. DataError: malformed; says
            file:line.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".conllu":
        return _treebank(path, column, labelled=labelled)
    if suffix in (".json", ".jsonl", ".csv"):
        return _Rows(path, like).read(words, column, sentence, labelled=labelled)
    lines = [line for _, line in reading.lines(reading.read_file(path, limit=reading.MOST_TEXT), path)]
    if suffix == ".tsv" and _names_columns(lines, (words, column)):
        return _Rows(path, like).read(words, column, sentence, labelled=labelled)
    if words is None and _is_conllu(lines) and (column is None or column in get_args(TreebankColumn)):
        return _treebank(path, column, labelled=labelled)
    if words is None and column is None:
        _require_no_pairs(lines, path)
    if not labelled and words is None and _is_running_text(lines, like, known):
        return _running_text(lines, path, like.split if like is not None else "punctuation")
    given = words if words is not None else like.words if like is not None and like.kind == "columns" else 1
    number = _number(column, path) if labelled else None
    return _columns(lines, path, words=_word_column(given, path), label=number, known=known)


def _key(name: str) -> str:
    """A column's name without case, spaces and marks; "Sentence #" is sentencenumber."""
    return re.sub(r"[\W_]+", "", name.casefold().replace("#", "number"))


def _is_conllu(lines: Sequence[str]) -> bool:
    """Whether lines are CoNLL-U (or CoNLL-X), whatever the file's name: ten columns, the first a number."""
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "").split("\t")
    return len(first) == 10 and re.fullmatch(r"1(-\d+)?", first[0]) is not None


def _names_columns(lines: Sequence[str], given: Sequence[str | int | None]) -> bool:
    """Whether the first line of a .tsv names columns: one by a flag, or the words' and another's by usual names."""
    first = (lines[0] if lines else "").split("\t")
    known = {_key(name) for name in first}
    usual = known & {*_WORDS, *_TEXTS}
    others = known & {*sum(_LABELS, ()), *_SENTENCES} - usual
    return any(isinstance(one, str) and one in first for one in given) or bool(usual and (others or len(first) == 1))


def _require_no_pairs(lines: Sequence[str], path: Path) -> None:
    """DataError where a line is a sentence of word/TAG, word_TAG or word|TAG."""
    fields = [field for line in lines if not _ends_sentence(line) for field in line.split()]
    if len(fields) < 2 or any("\t" in line.strip() for line in lines):
        return
    for mark in "/_|":
        tags = {field.rpartition(mark)[2] for field in fields if mark in field.strip(mark)}
        alike = sum(mark in field.strip(mark) for field in fields)
        if alike >= _USUAL * len(fields) and len(tags) < max(3, len(fields)):
            raise DataError(
                f"{path}: has a sentence a line, as word{mark}TAG, which is not read. Write a word a line, a tab, its "
                "tag, and a blank line after each sentence."
            )


def _treebank(path: Path, column: str | int | None, *, labelled: bool) -> Tagged:
    name = "upos" if column is None or not labelled else str(column)
    if name not in get_args(TreebankColumn):
        raise ConfigError(
            f"{path}: label column {name!r}: expected {', '.join(get_args(TreebankColumn))} of a .conllu "
            f"file.{did_you_mean(name.lower(), get_args(TreebankColumn))}"
        )

    def label(word: Word) -> str | None:
        value: str | None = getattr(word, name)
        return UNLABELLED if value is None and name == "feats" else value  # no features is also an answer

    sentences, spaces = [], 0
    read = read_conllu(path, own_upos=True)
    for one in read:
        words = [word for word in one.words if word.form.strip()]
        spaces += len(one.words) - len(words)
        if words:
            labels = tuple(label(word) if labelled else None for word in words)
            sentences.append(_sentence(path, [word.form for word in words], labels, [word.line for word in words]))
    if not sentences:
        raise DataError(f"{path}: holds spaces and no words.")
    notes = []
    if spaces:
        notes.append(f"words of {path.name} that are spaces alone, as spaCy writes them: {spaces:,}, left out.")
    if labelled and name == "upos":
        notes += _own_upos(read, path)
    columns = TagColumns(kind="treebank", words="form", label=name if labelled else None)
    return Tagged(sentences=sentences, columns=columns, notes=tuple(notes))


def _own_upos(sentences: Sequence[Sentence], path: Path) -> Iterator[str]:
    """A note on parts of speech that UD 2 does not have."""
    words = [word for one in sentences for word in one.words if word.form.strip() and word.upos is not None]
    if own := [word for word in words if word.upos not in UPOS]:
        names = sorted({str(word.upos) for word in own})
        shown = ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
        yield (
            f"parts of speech that UD 2 does not have: {shown} ({len(own):,} of {len(words):,} words, first at "
            f"{path.name}:{own[0].line}). Read as they are."
        )


def _sentence(path: Path, words: Sequence[str], labels: Sequence[str | None], lines: Sequence[int]) -> TaggedSentence:
    return TaggedSentence(words=tuple(words), labels=tuple(labels), file=str(path), lines=tuple(lines))


def _word_column(words: str | int, path: Path) -> int:
    if re.fullmatch(r"[1-9]\d{0,3}", str(words)):
        return int(words)
    raise ConfigError(
        f"{path}: word column {words!r}: expected a number counted from 1; a .csv, .tsv or .jsonl has names."
    )


def _number(column: str | int | None, path: Path) -> int:
    """A label column as a number, 0 for the last one."""
    if column is None or column == "last":
        return 0
    if re.fullmatch(r"[1-9]\d{0,3}", str(column)):
        return int(column)
    names = f" {column} is a column of .conllu files." if column in get_args(TreebankColumn) else ""
    raise ConfigError(f"{path}: label column {column!r}: expected a number counted from 1, or last.{names}")


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """The form of the first line of words, which all others must have."""

    line: int
    tabs: bool
    columns: int = 0

    def split(self, line: str) -> list[str]:
        """The fields of a line."""
        if self.tabs:
            return [field.strip(" ") for field in line.split("\t")]
        return [field for field in line.replace("\t", " ").split(" ") if field]

    def check(self, fields: list[str], where: str) -> None:
        """DataError: another number of fields, or an empty one."""
        if "" in fields and len(fields) == self.columns:
            raise DataError(
                f"{where}: column {fields.index('') + 1} is empty. What is not known is written {UNLABELLED}."
            )
        if len(fields) == self.columns:
            return
        raise DataError(
            f"{where}: expected {self.columns} columns, as line {self.line} has, found {len(fields)}. "
            f"{'Tabs separate them' if self.tabs else 'Spaces separate them, so a word with a space needs tabs'}; a "
            "comment may be before a sentence only."
        )


def _ends_sentence(line: str) -> bool:
    return not line.strip(" \t") or line.startswith(_DOCUMENT)


def _layout(lines: Sequence[str], path: Path) -> _Layout:
    """The layout of a column file; DataError: it has no words."""
    for number, line in enumerate(lines, start=1):
        if not _ends_sentence(line) and not line.startswith("#"):
            first = _Layout(line=number, tabs="\t" in line.strip(" \t"))
            return replace(first, columns=len(first.split(line)))
    raise DataError(f"{path}: holds no sentences. Expected a word a line, its label in another column.")


def _columns(lines: Sequence[str], path: Path, *, words: int, label: int | None, known: Collection[str]) -> Tagged:
    """The sentences of a column file; `label` 0 is the last column, None: none."""
    layout = _layout(lines, path)
    last = layout.columns if label == 0 else label
    words = 1 if label is None and layout.columns == 1 else words
    _check_columns(layout, words, last, f"{path}:{layout.line}")
    is_label = _label_test(lines, layout, last or layout.columns, known)
    sentences: list[TaggedSentence] = []
    block: list[tuple[str, str | None]] = []
    comments: list[tuple[int, str]] = []
    for number, line in enumerate([*lines, ""], start=1):
        if _ends_sentence(line):
            if block:
                forms, labels = zip(*block, strict=True)
                sentences.append(_sentence(path, forms, labels, range(number - len(block), number)))
            block = []
            continue
        fields = layout.split(line)
        if line.startswith("#") and not block and not is_label(fields):
            if len(fields) == layout.columns > 1:
                comments.append((number, line))
            continue
        layout.check(fields, f"{path}:{number}")
        value = fields[last - 1] if last is not None else UNLABELLED
        block.append((fields[words - 1], None if value == UNLABELLED else value))
    notes = []
    if comments:
        number, line = comments[0]
        notes.append(
            f"lines of {path.name} that begin with # are taken for comments: {len(comments):,} with {layout.columns} "
            f"columns and a label that no other line has (first at {path.name}:{number}, {short(line)})."
        )
    if label is not None and sentences and _is_heading(sentences[0]):
        first = sentences[0]
        notes.append(f"line {first.lines[0]} of {path.name} names the columns: left out.")
        rest = _sentence(path, first.words[1:], first.labels[1:], first.lines[1:])
        sentences[:1] = [rest] if rest.words else []
    _check_words(sentences, path, words, {*known} if label is None else set())
    columns = TagColumns(words=str(words), label=str(last) if last else None, columns=layout.columns)
    return Tagged(sentences=sentences, columns=columns, notes=tuple(notes))


def _check_columns(layout: _Layout, words: int, labels: int | None, where: str) -> None:
    if labels is not None and layout.columns == 1:
        raise DataError(f"{where}: has one column. Expected a word and its label on each line, tab or spaces between.")
    for what, flag, column in (("word", "--words", words), ("label", "--label", labels)):
        if column is not None and not 1 <= column <= layout.columns:
            raise DataError(f"{where}: {what} column {column}, and there are {layout.columns}. Choose one: {flag} 1.")
    if words == labels:
        raise ConfigError(f"{where}: column {words} holds words or labels, not both. Name both: --words 1 --label 2.")


def _label_test(lines: Sequence[str], layout: _Layout, label: int, known: Collection[str]) -> Any:
    """A function that tells a line of words that begins with #, given its fields, from a comment."""
    clear, begun = {UNLABELLED, *known}, False
    for line in lines:
        begun = not _ends_sentence(line) and (begun or not line.startswith("#"))
        if begun and len(fields := layout.split(line)) == layout.columns:
            clear.add(fields[label - 1])
    notation = notation_of(clear, "bioes")
    spans = notation.outside in clear or scheme_of(clear) in ("bio", "bioes")

    def is_label(fields: list[str]) -> bool:
        if len(fields) != layout.columns or layout.columns == 1:
            return layout.columns == 1 and len(fields) == 1
        return fields[label - 1] in clear or (spans and notation.read(fields[label - 1]) is not None)

    return is_label


def _is_heading(sentence: TaggedSentence) -> bool:
    """Whether the first line names columns."""
    word, label = _key(sentence.words[0]), _key(sentence.labels[0] or "")
    return word in _WORDS and label in sum(_LABELS, ())


def _check_words(sentences: Sequence[TaggedSentence], path: Path, column: int, labels: set[str]) -> None:
    """DataError: the column of the words holds something else.

    Args:
        labels: of the model, for a file to be tagged.
    """
    if not sentences:
        raise DataError(f"{path}: holds comments and no words.")
    every = [word for one in sentences for word in one.words]
    counts = ((one.words, range(len(one.words) + 1)) for one in sentences)
    numbered = all(words in (tuple(map(str, to[:-1])), tuple(map(str, to[1:]))) for words, to in counts)
    different = {*every}
    wrong = ""
    if 2 * sum(" " in word.strip() for word in every) > len(every):
        wrong = "texts, expected a word a line. For running text give a file of text alone, or"
    elif numbered and any(len(one.words) > 1 for one in sentences):
        wrong = "the numbers of the words."
    elif len(different & labels) >= max(2, len(different) / 2):
        wrong = "labels, and words in the training file."
    if wrong:
        raise DataError(f"{path}: column {column} holds {wrong} Name the column of the words: --words N.")


def _is_running_text(lines: Sequence[str], like: TagColumns | None, known: Collection[str]) -> bool:
    """Whether a file to be tagged is running text, rather than a word a line.

    Args:
        lines: of the file.
        like: columns of the training file.
        known: labels of the model.
    """
    used = [line for line in lines if not _ends_sentence(line) and not line.startswith("#")]
    if 2 * sum("\t" in line.strip() for line in used) > len(used) or not used:
        return False
    rows = [line.split() for line in used]
    usual, count = Counter(map(len, rows)).most_common(1)[0]
    if count < _USUAL * len(rows):
        return True
    if usual == 1:
        longest = 1 if like is not None and like.split == "characters" else _LONG_WORD
        texts = (unspaced_letters(line) > longest or line.strip()[1:].endswith(("。", "！", "？")) for line in used)
        return 2 * sum(texts) > len(used)
    if not known or any(line.startswith(_DOCUMENT) for line in lines):
        return False
    at = int(like.label) if like is not None and like.columns == usual and like.label else usual
    last = [row[at - 1] for row in rows if len(row) == usual]
    labels = sum(label in known or label == UNLABELLED for label in last)
    return 2 * labels < len(last) < 5 * len(set(last))


def _running_text(lines: Sequence[str], path: Path, split: Splitting) -> Tagged:
    """Running text, a sentence or a paragraph a line; DataError: its words cannot be found."""
    if split == "unknown":
        raise DataError(
            f"{path}: is running text, and the model learned words of a script without spaces that a program had "
            "split. Split the text with the same program, and give a word a line, with a blank line after each "
            "sentence."
        )
    sentences = [
        _sentence(path, [line[first:stop] for first, stop in places], [None] * len(places), [number] * len(places))
        for number, line in enumerate(lines, start=1)
        if (places := word_places(line, split))
    ]
    if not sentences:
        raise DataError(f"{path}: holds no words.")
    note = f"{path.name}: running text, a sentence a line, split into words like the training data ({split})."
    return Tagged(sentences=sentences, columns=TagColumns(kind="text", split=split), notes=(note,))


class _Rows:
    """The sentences of a .json, .jsonl, .csv or .tsv file; counts spans that do not fit its words."""

    def __init__(self, path: Path, like: TagColumns | None) -> None:
        self.path, self.table = path, _table(path)
        self.is_table = path.suffix.lower() in (".csv", ".tsv")
        self.split: Splitting = like.split if like is not None and like.split != "unknown" else "punctuation"
        known = (like.words, like.sentence) if like is not None and like.kind == "rows" else (None, None)
        self.learned = [name if name in self.table.columns else None for name in known]
        self.tokens = self.table.column("tokens") if "tokens" in self.table.columns else [None] * len(self.table.rows)
        self.spans, self.within, self.left_out = 0, list[str](), list[str]()

    def read(self, words: str | int | None, label: str | int | None, sentence: str | None, *, labelled: bool) -> Tagged:
        """The sentences, of columns that are named or have a usual name."""
        table, columns = self.table, self.table.columns
        if {"data", "annotations"} <= {*columns}:
            raise DataError(f"{self.path}: is Label Studio's full export. Export it as JSON_MIN or CONLL2003.")
        if sentence is not None and sentence not in columns:
            raise ConfigError(
                f"--sentence-id {sentence}: {self.path} has no such column.{did_you_mean(sentence, columns)}"
            )
        text = self._column(
            columns, "--words", words or self.learned[0], [self._usual_words()], "the words, or the text"
        )
        others = [name for name in columns if name != text]
        tag = self._column(others, "--label", label, _LABELS, "the labels") if labelled else None
        group = sentence or self.learned[1] or self._group([name for name in others if name != tag])
        tags = table.column(tag) if tag else [None] * len(table.rows)
        fields = [*zip(table.lines, table.column(text), tags, strict=True)]
        if self.is_table and self._has_words(text, group, labelled=labelled):
            sentences = self._word_rows(fields, table.column(group) if group else [None] * len(table.rows))
        else:
            group, answers = None, table.column("answer") if "answer" in columns else [None] * len(table.rows)
            sentences = [
                self._whole(at, *row)
                for at, (row, answer) in enumerate(zip(fields, answers, strict=True))
                if answer not in ("reject", "ignore")  # Prodigy
            ]
        if not sentences:
            raise DataError(f"{self.path}: holds no sentences. {_LAYOUTS}")
        named = TagColumns(kind="rows", words=text, label=tag, sentence=group, split=self.split)
        chosen = (("words", text), ("labels", tag), ("sentence", group))
        note = f"columns of {self.path.name}: {', '.join(f'{what} = {one!r}' for what, one in chosen if one)}."
        return Tagged(sentences=sentences, columns=named, notes=(note, *self._notes()))

    def _notes(self) -> Iterator[str]:
        for found, what in (
            (self.within, "begin or end within a word: the whole word is in the span"),
            (self.left_out, "overlap a longer one, or hold no word: left out"),
        ):
            if found:
                yield f"{len(found):,} of {self.spans:,} spans of {self.path.name} {what} (first {found[0]})."

    def _column(
        self, columns: Sequence[str], flag: str, given: str | int | None, known: Sequence[Collection[str]], what: str
    ) -> str:
        """The column that is given, or the one with a usual name; ConfigError: several, or none."""
        listed = f"Its columns: {', '.join(map(repr, columns[:12]))}{' ...' if len(columns) > 12 else ''}."
        if given is not None and given not in columns:
            raise ConfigError(
                f"{flag} {given}: {self.path} has no such column.{did_you_mean(str(given), columns)} {listed}"
            )
        names = [[name for name in columns if _key(name) in some] for some in known]
        found = [str(given)] if given is not None else next(filter(None, names), [])
        if not found:
            raise ConfigError(f"{self.path}: which column has {what}? {listed} Name it: {flag} COLUMN")
        if len(found) > 1:
            several = ", ".join(map(repr, found))
            raise ConfigError(f"{self.path}: {several} could all be {what}. Name one: {flag} {found[0]}")
        return found[0]

    def _usual_words(self) -> tuple[str, ...]:
        """The usual name of the words that the file has; the text's where words are objects, as Prodigy writes them."""
        for known in (*_WORDS, *_TEXTS):
            for name in self.table.columns:
                value = next((one for one in self.table.column(name) if one is not None), None)
                if _key(name) == known and not (isinstance(value, list) and value and isinstance(value[0], dict)):
                    return (known,)
        return ()

    def _group(self, columns: Sequence[str]) -> str | None:
        """The column that numbers the sentences: neighbours have the same id, or only the first word has one."""
        for name in (name for known in _SENTENCES for name in columns if _key(name) == known):
            if any(one == two or two in (None, "") for one, two in pairwise(self.table.column(name))):
                return name
        return None

    def _has_words(self, words: str, group: str | None, *, labelled: bool) -> bool:
        """Whether a row of a table is a word; a file to be tagged may have a text a row."""
        blank = any(not any(row) for row in self.table.rows)
        parted = group is not None or blank or any(two > one + 1 for one, two in pairwise(self.table.lines))
        if not labelled and (_key(words) in _TEXTS or any(" " in str(one) for one in self.table.column(words))):
            return False
        if not parted and len(self.table.rows) > 1:
            raise ConfigError(
                f"{self.path}: has a row for each word, and no column that numbers the sentences. Name it: "
                "--sentence-id COLUMN. Or leave a line blank after each sentence."
            )
        return True

    def _word_rows(self, rows: Sequence[tuple[int, Any, Any]], ids: Sequence[Any]) -> list[TaggedSentence]:
        sentences: list[TaggedSentence] = []
        block: list[tuple[str, str | None, int]] = []
        before, line = None, 0

        def end() -> None:
            if block:
                words, labels, lines = zip(*block, strict=True)
                sentences.append(_sentence(self.path, words, labels, lines))
            block.clear()

        for (number, word, label), given, whole in zip(rows, ids, self.table.rows, strict=True):
            value = before if given in (None, "") else given  # written once a sentence
            if value != before or (before is None and number > line + 1) or not any(whole):
                end()
            before, line, where = value, number, f"{self.path}:{number}"
            if not any(whole):
                continue
            if not (word := str(word or "").strip()):
                raise DataError(f"{where}: a word is empty. Fill it in, or delete the row.")
            if " " in str(label or "").strip() or str(label).startswith("["):
                raise DataError(
                    f"{where}: label {short(label)}. Expected a word a row; for a sentence a row: {_LAYOUTS}"
                )
            block.append((word, _label_text(label, where), number))
        end()
        return sentences

    def _whole(self, at: int, number: int, value: Any, tags: Any) -> TaggedSentence:
        """The sentence of a row."""
        where = f"{self.path}:{number}"
        if isinstance(value, str) and value.strip() and (tags is None or isinstance(tags, list)):
            reading.encodable(value, f"{where}: the text")
            places = self._places(at) or word_places(value, self.split)
            words = [value[first:stop] for first, stop in places]
            labels: Any = [None] * len(words) if tags is None else self._tags(places, tags, where, value)
        elif isinstance(value, list) and all(isinstance(word, str) and word for word in value):
            words = [reading.encodable(word, f"{where}: word {index}") for index, word in enumerate(value, 1)]
            labels = [None] * len(words) if tags is None else tags
        else:
            raise DataError(f"{where}: words {short(value)}, labels {short(tags)}. {_LAYOUTS}")
        if not words or not isinstance(labels, list) or len(labels) != len(words):
            count = f"{len(labels):,}" if isinstance(labels, list) else short(labels)
            raise DataError(f"{where}: {len(words):,} words and {count} labels. {_LAYOUTS}")
        return _sentence(self.path, words, [_label_text(label, where) for label in labels], [number] * len(words))

    def _places(self, at: int) -> list[tuple[int, int]]:
        """Characters of the words that a row lists, as spaCy and Prodigy do; [] where it lists none."""
        tokens: Any = self.tokens[at] if isinstance(self.tokens[at], list) else []
        places: list[Any] = [(one.get("start"), one.get("end")) for one in tokens if isinstance(one, dict)]
        return places if all(isinstance(at, int) for place in places for at in place) else []

    def _tags(self, words: Sequence[tuple[int, int]], spans: Sequence[Any], where: str, text: str) -> list[str]:
        """BIO tags of words. A span that begins or ends within a word gets the whole word; of two that share words the
        longer one counts.
        """
        tags, found = ["O"] * len(words), [_read_span(one, where, text) for one in spans]
        self.spans += len(found)
        for first, stop, kind in sorted(found, key=lambda span: (span[0] - span[1], span[0])):
            example = f"{short(text[first:stop])} {kind} at {Path(where).name}"
            inside = [at for at, (begin, end) in enumerate(words) if begin < stop and end > first]
            if not inside or any(tags[at] != "O" for at in inside):
                self.left_out.append(example)
                continue
            if words[inside[0]][0] < first or words[inside[-1]][1] > stop:
                self.within.append(example)
            for at in inside:
                tags[at] = f"{'B' if at == inside[0] else 'I'}-{kind}"
        return tags


def _table(path: Path) -> Table:
    if path.suffix.lower() != ".json":
        return read_table_file(path)
    content = reading.read_file(path, limit=reading.MOST_TEXT)
    rows = reading.parse_json(content, where=str(path), remedy="Expected a list of objects.", most=_MOST)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path}: holds no sentences, or is not a list of objects. {_LAYOUTS}")
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    values = [tuple(row.get(name) for name in names) for row in rows]
    return Table(path=path, columns=names, rows=values, lines=range(1, len(rows) + 1))


def _read_span(span: Any, where: str, text: str) -> tuple[int, int, str]:
    """A span of a text, in characters and without the spaces at its ends, and its type; DataError: not of this text."""
    values: Sequence[Any] = span if isinstance(span, list) else ()
    if isinstance(span, dict):
        values = [next((span[name] for name in names if name in span), None) for names in _SPAN]
    first, stop, kind = values[:3] if len(values) >= 3 else (None, None, None)
    kind = kind[0] if isinstance(kind, list) and len(kind) == 1 else kind
    if not (isinstance(first, int) and isinstance(stop, int) and isinstance(kind, str) and kind):
        raise DataError(f'{where}: span {short(span)}, expected a start, an end and one type, such as [0, 6, "PER"].')
    body = text[first:stop]
    if not 0 <= first < stop <= len(text) or (isinstance(span, dict) and span.get("text", body) != body):
        raise DataError(
            f"{where}: span {first} to {stop} is {short(body)}, and the text has {len(text)} characters. Expected "
            "characters from 0 (of Unicode, not bytes or UTF-16), the end behind the last."
        )
    begin = first + len(body) - len(body.lstrip())
    return begin, max(begin, stop - len(body) + len(body.rstrip())), kind


def _label_text(label: Any, where: str) -> str | None:
    """A label as text; None: not labelled."""
    if label is None or label in ("", UNLABELLED, _IGNORED, str(_IGNORED)):
        return None
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise DataError(f"{where}: label {short(label)}, expected a text or a whole number for each word.")
    return reading.encodable(str(label).strip(), f"{where}: label")


def read_names(given: str | Path | None) -> dict[str, str]:
    """Names of labels by number: between commas, or a file with a name a line or a JSON list.

    Raises:
        MissingInputError, StorageError: cannot be read. DataError: holds no names.
    """
    names: Any = []
    if given is not None and "," in str(given) and not Path(given).exists():
        names = [name.strip() for name in str(given).split(",")]
    elif given is not None:
        path, content = Path(given), reading.read_file(Path(given))
        names = [line.strip() for _, line in reading.lines(content, path) if line.strip()]
        if path.suffix.lower() == ".json":
            names = reading.parse_json(content, where=str(path), remedy="Expected names of labels.")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise DataError(f"{path}: holds no names of labels. Expected a name a line, or a JSON list of names.")
    return {str(at): name for at, name in enumerate(names)}


def with_names(read: Tagged, known: Mapping[str, str]) -> Tagged:
    """Name labels that are numbers, or keep them without names, with a note on either.

    Raises:
        ConfigError: there are names, and labels are not numbers. DataError: a number without a name.
    """
    labels = {label for one in read.sentences for label in one.labels if label is not None}
    if not labels or not all(map(str.isdecimal, labels)):
        if known and labels:
            where = read.sentences[0].file
            raise ConfigError(f"--tag-names: labels of {where} are not numbers, such as {min(labels)!r}. Leave it out.")
        return read
    numbers = sorted(labels, key=int)
    if not known:
        note = (
            f"labels are numbers without names, {numbers[0]} to {numbers[-1]}, and stay numbers. Name them from 0 on: "
            "--tag-names O,B-PER,I-PER"
        )
        return replace(read, notes=(*read.notes, note))
    if lacking := next((number for number in numbers if number not in known), None):
        place = next(one.place_of(one.labels.index(lacking)) for one in read.sentences if lacking in one.labels)
        raise DataError(
            f"{place}: label {lacking} has no name; --tag-names has {len(known)}, from 0. Add it to --tag-names."
        )
    sentences = [
        replace(one, labels=tuple(None if label is None else known[label] for label in one.labels))
        for one in read.sentences
    ]
    shown = ", ".join(f"{number} {known[number]}" for number in numbers[:8]) + (" ..." if len(numbers) > 8 else "")
    return replace(read, sentences=sentences, notes=(*read.notes, f"labels are named by --tag-names: {shown}."))
