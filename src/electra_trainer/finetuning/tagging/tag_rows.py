"""Tagged sentences from JSON and tables: .json, .jsonl, and .csv or .tsv with names of columns.

    a sentence a row, words     {"tokens": [...], "ner_tags": [...]}; in a table lists, or words with spaces between
    a sentence a row, text      {"text": ..., "label": [[0, 6, "PER"]]}, and the layouts of doccano, Label Studio, spaCy
    and Prodigy a word a row                sentence_id, word, tag; without an id blank lines part the sentences

Spans are counted in characters of the text. Their words are found with word_splitting.py, or are those that the row
lists.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from electra_trainer.errors import ConfigError, DataError, did_you_mean
from electra_trainer.files import reading
from electra_trainer.files.tables import read_table_file
from electra_trainer.finetuning.examples import TaggedSentence
from electra_trainer.finetuning.tagging.tag_columns import UNLABELLED, TagColumns, Tagged
from electra_trainer.finetuning.tagging.text_spans import TextSpan, are_spans, listed_words, read_spans, span_tags
from electra_trainer.finetuning.tagging.word_splitting import Splitting, word_places

WORDS = ("tokens", "words", "token", "word", "form", "forms", "tokenizedtext")
TEXTS = ("text", "sentence", "content", "sentences")
SENTENCES = (
    "sentenceid",
    "sentid",
    "sentenceidx",
    "sentidx",
    "sentencenumber",
    "sentenceno",
    "sentence",
    "sent",
    "docid",
    "id",
)
LABELS = (
    "nertags",
    "nertag",
    "ner",
    "tags",
    "tag",
    "labels",
    "label",
    "bio",
    "iob",
    "entities",
    "spans",
    "ents",
    "annotations",
)
OTHER_LABELS = ("upos", "pos", "postags", "postag", "xpos", "chunktags", "chunktag", "chunk")
"""Usual names of columns, without case, spaces and marks; the last ones only where no other is there."""
_MOST = 20_000_000
_IGNORED = -100
"""Number of a word without a label in data sets of the Hub."""
_BRACKETS = re.compile(r"\s*\[.*\]\s*", re.DOTALL)
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A row with its place, `file:line`."""

    fields: Mapping[str, Any]
    line: int
    where: str


def key(name: str) -> str:
    """A column's name without case, spaces and marks; "Sentence #" is sentencenumber."""
    return re.sub(r"[\W_]+", "", name.casefold().replace("#", "number"))


def read_rows(
    path: Path, *, words: str | None, label: str | None, sentence: str | None, labelled: bool, like: TagColumns | None
) -> Tagged:
    """The sentences of a .json, .jsonl, .csv or .tsv file.

    Args:
        words, label, sentence: names of columns; None: one with a usual name.
        labelled: False leaves the labels out.
        like: how the training file was read, for a file to be tagged.

    Raises:
        ConfigError: no such column, or one has to be named. DataError: malformed; says file:line.
    """
    every = _rows(path)
    rows = [row for row in every if row.fields.get("answer") not in ("reject", "ignore")]  # Prodigy
    if not rows:
        raise DataError(f"{path}: every row is rejected or ignored (answer). Expected some that are accepted.")
    columns = list(dict.fromkeys(name for row in rows for name in row.fields))
    split: Splitting = like.split if like is not None and like.split != "unknown" else "punctuation"
    learned = (like.words, like.sentence) if like is not None and like.kind == "rows" else (None, None)
    words, sentence = (
        given or (name if name in columns else None) for given, name in zip((words, sentence), learned, strict=True)
    )
    said = _choose(path, columns, "--words", words, (*WORDS, *TEXTS), "the words, or the text")
    tag = _label(path, [one for one in columns if one != said], label, rows) if labelled else None
    left = [name for name in columns if name not in (said, tag)]
    group = sentence or next((name for known in SENTENCES for name in left if key(name) == known), None)
    if sentence is not None and sentence not in columns:
        raise ConfigError(f"--sentence-id {sentence}: {path} has no such column.{did_you_mean(sentence, columns)}")
    reader = _Reader(path, words=said, label=tag, split=split)
    if reader.has_word_rows(rows, group, asked=sentence is not None):
        sentences = reader.word_rows(rows, group)
    else:
        group, sentences = None, [reader.sentence(row) for row in rows]
    named = TagColumns(kind="rows", words=said, label=tag, sentence=group, split=split)
    chosen = ", ".join(
        f"{what} = {one!r}" for what, one in (("words", said), ("labels", tag), ("sentence", group)) if one
    )
    notes = [f"columns of {path.name}: {chosen}.", *reader.notes()]
    if len(rows) < len(every):
        notes.append(
            f"{len(every) - len(rows):,} of {len(every):,} rows of {path.name} are rejected or ignored (answer): left "
            "out."
        )
    return Tagged(sentences=sentences, columns=named, notes=tuple(notes))


def _choose(path: Path, columns: Sequence[str], flag: str, given: str | None, known: Sequence[str], what: str) -> str:
    if given is not None and given in columns:
        return given
    if given is not None:
        raise ConfigError(
            f"{flag} {given}: {path} has no such column.{did_you_mean(given, columns)} {_listed(columns)}"
        )
    found = next((name for one in known for name in columns if key(name) == one), None)
    if found is None:
        raise ConfigError(f"{path}: which column has {what}? {_listed(columns)} Name it: {flag} COLUMN")
    return found


def _label(path: Path, columns: Sequence[str], given: str | None, rows: Sequence[_Row]) -> str:
    """The column of the labels: the one with a usual name; ConfigError: several, or none."""
    for known in (LABELS, OTHER_LABELS):
        found = [name for name in columns if key(name) in known]
        filled = [name for name in found if any(row.fields.get(name) for row in rows)] or found
        ner = [name for name in filled if key(name).startswith("ner")]
        if given is None and len(filled) > 1 and len(ner) != 1:
            several = ", ".join(map(repr, filled))
            raise ConfigError(f"{path}: {several} could all be the labels. Name one: --label {filled[0]}")
        if given is None and filled:
            return (ner or filled)[0]
    return _choose(path, columns, "--label", given, (), "the labels")


def _listed(columns: Sequence[str]) -> str:
    return f"Its columns: {', '.join(map(repr, columns[:12]))}{' ...' if len(columns) > 12 else ''}."


def _rows(path: Path) -> list[_Row]:
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        table = read_table_file(path)
        read = []
        for name in table.columns:
            cells = table.column(name)
            listed = any(cells) and all(not cell or _BRACKETS.fullmatch(cell) for cell in cells)
            read.append([_cell(cell) if listed else cell for cell in cells])
        return [
            _Row(fields=dict(zip(table.columns, row, strict=True)), line=line, where=f"{path}:{line}")
            for line, *row in zip(table.lines, *read, strict=True)
        ]
    content = reading.read_file(path, limit=reading.MOST_TEXT)
    remedy = 'Expected an object such as {"tokens": [...], "tags": [...]} on each line.'
    values: list[tuple[int, str, Any]]
    if suffix == ".jsonl":
        numbered = [(number, line) for number, line in reading.lines(content, path) if line.strip()]
        values = [
            (number, where, reading.parse_json(line, where=where, remedy=remedy))
            for number, line in numbered
            if (where := f"{path}:{number}")
        ]
    else:
        whole = reading.parse_json(content, where=str(path), remedy="Expected a list of objects.", most=_MOST)
        whole = whole.get("data", [whole]) if isinstance(whole, dict) else whole
        values = [
            (at, f"{path}: row {at}", one) for at, one in enumerate(whole if isinstance(whole, list) else [whole], 1)
        ]
    rows = [_Row(fields=_fields(value, where), line=number, where=where) for number, where, value in values]
    if not rows:
        raise DataError(f"{path}: holds no sentences. {remedy}")
    return rows


def _fields(value: Any, where: str) -> dict[str, Any]:
    """The fields of a row, as spaCy and Label Studio nest them."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict):
        return {"text": value[0], **value[1]}  # spaCy 2
    if not isinstance(value, dict):
        raise DataError(
            f'{where}: is {reading.short(value)}, expected an object such as {{"tokens": [...], "tags": [...]}}.'
        )
    if isinstance(value.get("data"), dict):  # Label Studio
        found = value.get("annotations") or value.get("completions") or []
        result = found[0].get("result", []) if isinstance(found, list) and found and isinstance(found[0], dict) else []
        return {**value["data"], "annotations": result}
    return value


def _cell(text: str) -> Any:
    """A list that was written into a cell, as JSON, Python or numpy write it; else the text itself."""
    inner = text.strip()
    if not inner:
        return None
    if re.search(r"[\[({]", inner[1:]):
        for parse in (reading.json_value, ast.literal_eval):
            try:
                return parse(inner)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
        return text
    if quoted := _QUOTED.findall(inner[1:-1]):
        return [one[1:-1].replace("\\" + one[0], one[0]) for one in quoted]
    numbers = re.split(r"[\s,]+", inner[1:-1].strip(" ,\n"))
    return numbers if all(re.fullmatch(r"-?\d+", one) for one in numbers) else [] if numbers == [""] else text


class _Reader:
    """Rows as sentences; counts what its notes say."""

    def __init__(self, path: Path, *, words: str, label: str | None, split: Splitting) -> None:
        self._path, self._words, self._label, self._split = path, words, label, split
        self._within: list[tuple[str, str]] = []
        self._left_out: list[tuple[str, str]] = []
        self._spans = 0
        self._again: list[tuple[str, str]] = []

    def notes(self) -> Iterator[str]:
        file = self._path.name
        if self._within:
            where, example = self._within[0]
            much = (
                " Are the offsets those of another text, or counted in bytes?"
                if 2 * len(self._within) > self._spans
                else ""
            )
            yield (
                f"{len(self._within):,} of {self._spans:,} spans of {file} begin or end within a word (first "
                f"{example} at {where}): "
                f"the whole word is in the span.{much}"
            )
        if self._left_out:
            where, example = self._left_out[0]
            yield (
                f"{len(self._left_out):,} of {self._spans:,} spans of {file} overlap a longer one, or hold no word "
                f"(first {example} at {where}): "
                "left out."
            )
        if self._again:
            where, value = self._again[0]
            yield (
                f"sentences of {file} have the id of an earlier one (first {value} at {where}, {len(self._again):,} "
                "in all): taken for new ones."
            )

    def has_word_rows(self, rows: Sequence[_Row], group: str | None, *, asked: bool) -> bool:
        """Whether a row is a word: no cell has several, and an id or blank lines part the sentences."""
        cells = [row.fields.get(one) for row in rows for one in (self._words, self._label) if one is not None]
        if any(isinstance(cell, list | dict) or (isinstance(cell, str) and " " in cell.strip()) for cell in cells):
            return False
        if key(self._words) in TEXTS and not asked:
            return False
        ids = [row.fields.get(group) for row in rows] if group is not None else []
        repeated = any(one == two or two in (None, "") for one, two in pairwise(ids))
        if asked or repeated or self._parted(rows):
            return True
        if key(self._words) not in WORDS or len(rows) == 1 or self._path.suffix.lower() not in (".csv", ".tsv"):
            return False
        remedy = "Name it: --sentence-id COLUMN." if self._label is not None else "Call it sentence_id."
        raise ConfigError(
            f"{self._path}: has a row for each word, and no column that numbers the sentences. {remedy} Or leave a "
            "line blank after each "
            "sentence."
        )

    def _parted(self, rows: Sequence[_Row]) -> bool:
        """Blank lines part the rows of a table."""
        is_table = self._path.suffix.lower() in (".csv", ".tsv")
        gaps = any(two.line > one.line + 1 for one, two in pairwise(rows))
        return is_table and (gaps or any(_is_blank(row) for row in rows))

    def word_rows(self, rows: Sequence[_Row], group: str | None) -> list[TaggedSentence]:
        """Sentences of rows that are words."""
        sentences: list[TaggedSentence] = []
        block: list[tuple[str, str | None, int]] = []
        before, line, seen = None, 0, set[Any]()

        def end() -> None:
            if block:
                said, tags, lines = zip(*block, strict=True)
                sentences.append(TaggedSentence(words=said, labels=tags, file=str(self._path), lines=lines))
            block.clear()

        for row in rows:
            value = row.fields.get(group) if group is not None else None
            value = before if value in (None, "") else value  # written once a sentence
            gap = group is None and row.line > line + 1
            if value != before or gap or _is_blank(row):
                end()
                if value in seen and value != before:
                    self._again.append((Path(row.where).name, reading.short(value)))
                seen.add(value)
            before, line = value, row.line
            if _is_blank(row):
                continue
            word = str(row.fields.get(self._words) or "").strip()
            if not word:
                raise DataError(f"{row.where}: column {self._words!r} is empty. Fill it in, or delete the row.")
            block.append((word, _label_text(row.fields.get(self._label), row.where) if self._label else None, row.line))
        end()
        return sentences

    def sentence(self, row: _Row) -> TaggedSentence:
        """The sentence of a row."""
        value, tags = row.fields.get(self._words), row.fields.get(self._label) if self._label else None
        text = row.fields.get("text") if isinstance(value, list) else value
        if not isinstance(value, str | list) or not value or (isinstance(value, str) and not value.strip()):
            raise DataError(
                f"{row.where}: {self._words!r} is {reading.short(value)}, expected words: a list, or a text."
            )
        if isinstance(text, str):
            reading.encodable(text, f"{row.where}: the text")
        spans = read_spans(tags or (), row.where, text) if isinstance(text, str) and are_spans(tags) else None
        if isinstance(value, str) and spans is None and tags is not None:
            words = value.split()
            labels = tags.split() if isinstance(tags, str) else tags
        elif isinstance(value, str):
            places = word_places(value, self._split)
            words = [value[first:stop] for first, stop in places]
            labels = self._of_spans(places, spans, row.where, value) if spans is not None else None
        else:
            words, given = listed_words(value, row.where, text if isinstance(text, str) else None)
            labels = tags.split() if isinstance(tags, str) else tags
            if spans is not None and given is not None:
                labels = self._of_spans(given, spans, row.where, str(text))
        if not words:
            raise DataError(f"{row.where}: {self._words!r} holds no words.")
        if labels is None:
            labels = [None] * len(words)
        if not isinstance(labels, list | tuple) or len(labels) != len(words):
            count = f"{len(labels):,}" if isinstance(labels, list | tuple) else reading.short(labels)
            raise DataError(
                f"{row.where}: {len(words):,} words and {count} labels. Expected a label for each word, or spans "
                "[start, end, type]."
            )
        found = tuple(_label_text(label, row.where) for label in labels)
        lines = () if self._path.suffix.lower() == ".json" else (row.line,) * len(words)
        return TaggedSentence(words=tuple(words), labels=found, file=str(self._path), lines=lines)

    def _of_spans(
        self, places: Sequence[tuple[int, int]], spans: Sequence[TextSpan], where: str, text: str
    ) -> list[str]:
        tags, within, left_out = span_tags(places, spans)
        self._spans += len(spans)
        for found, into in ((within, self._within), (left_out, self._left_out)):
            into += [(Path(where).name, f"{reading.short(text[one.first : one.stop])} {one.type}") for one in found]
        return tags


def _label_text(label: Any, where: str) -> str | None:
    """A label as text; None: not labelled."""
    if label is None or label in ("", UNLABELLED, _IGNORED, str(_IGNORED)):
        return None
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise DataError(f"{where}: label {reading.short(label)}, expected a text or a whole number for each word.")
    return reading.encodable(str(label).strip(), f"{where}: label")


def _is_blank(row: _Row) -> bool:
    return all(value in (None, "") for value in row.fields.values())
