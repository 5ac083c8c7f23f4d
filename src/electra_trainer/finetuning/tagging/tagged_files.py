"""Files of tagged words, whatever their kind: columns, word/TAG, CoNLL-U, JSON and tables; and running text that is to
be tagged.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from electra_trainer.data.conllu import UPOS, Sentence, Word, read_conllu
from electra_trainer.errors import ConfigError, DataError, did_you_mean
from electra_trainer.files import reading
from electra_trainer.finetuning.examples import TaggedSentence
from electra_trainer.finetuning.tagging import column_files, tag_rows
from electra_trainer.finetuning.tagging.tag_columns import UNLABELLED, TagColumns, Tagged
from electra_trainer.finetuning.tagging.word_splitting import Splitting, word_places

TreebankColumn = Literal["upos", "xpos", "feats", "deprel"]
ROWS = (".json", ".jsonl", ".csv")
"""Endings of files that hold objects or a table; a .tsv does if its first line names columns."""
_SIDECARS = ("dataset_info.json", "dataset_infos.json", "id2label.json", "label2id.json", "labels.txt")
"""Files next to one with numbers that name these."""


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
    path, suffix = Path(path), Path(path).suffix.lower()
    split: Splitting = like.split if like is not None else "punctuation"
    if suffix == ".conllu":
        return _read_treebank(path, column, labelled=labelled)
    if suffix in ROWS or (suffix == ".tsv" and _names_columns(path, (words, column))):
        named = [None if one is None else str(one) for one in (words, column)]
        return tag_rows.read_rows(path, words=named[0], label=named[1], sentence=sentence, labelled=labelled, like=like)
    lines = [line for _, line in reading.lines(reading.read_file(path, limit=reading.MOST_TEXT), path)]
    if words is None and _is_conllu(lines) and (column is None or column in get_args(TreebankColumn)):
        return _read_treebank(path, column, labelled=labelled)
    mark = column_files.pairs_by(lines) if words is None and column is None else None
    if mark is not None:
        return column_files.read_pairs(lines, path, mark, labelled=labelled)
    if not labelled and words is None and not column_files.has_columns(lines, like, known):
        return _read_text(lines, path, split)
    given = words if words is not None else like.words if like is not None and like.kind == "columns" else 1
    number = _number(column, path) if labelled else None
    read = column_files.read_columns(lines, path, words=_word_column(given, path), label=number, known=known)
    different = {word for one in read.sentences for word in one.words}
    if not labelled and len(different & {*known}) >= max(2, len(different) / 2):
        note = (
            f"column {read.columns.words} of {path.name}, where the words are in the training file, holds labels. "
            "--words names another."
        )
        return replace(read, notes=(*read.notes, note))
    if labelled and _is_heading(read.sentences[0]):
        line, first = read.sentences[0].lines[0], read.sentences[0]
        rest = replace(first, words=first.words[1:], labels=first.labels[1:], lines=first.lines[1:])
        note = f"line {line} of {path.name} names the columns: left out."
        read = replace(
            read, sentences=[*([rest] if rest.words else []), *read.sentences[1:]], notes=(*read.notes, note)
        )
    if words is None and given == 1 and read.columns.columns > 2 and column_files.are_numbered(read.sentences):
        note = f"column 1 of {path.name} numbers the words: they are read from column 2. --words names another."
        read = column_files.read_columns(lines, path, words=2, label=number, known=known)
        return replace(read, notes=(*read.notes, note))
    return read


def _is_heading(sentence: TaggedSentence) -> bool:
    """Whether the first line names columns."""
    word, label = tag_rows.key(sentence.words[0]), tag_rows.key(sentence.labels[0] or "")
    return word in tag_rows.WORDS and label in (*tag_rows.LABELS, *tag_rows.OTHER_LABELS)


def _is_conllu(lines: Sequence[str]) -> bool:
    """Whether lines are CoNLL-U (or CoNLL-X), whatever the file's name: ten columns, the first a number."""
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "").split("\t")
    return len(first) == 10 and re.fullmatch(r"1(-\d+)?", first[0]) is not None


def _names_columns(path: Path, given: Sequence[str | int | None]) -> bool:
    """Whether the first line of a .tsv names columns: one by a flag, or the words' and another's by usual names."""
    content = reading.read_file(path, limit=reading.MOST_TEXT)
    first = next((line for _, line in reading.lines(content, path)), "").split("\t")
    known = {tag_rows.key(name) for name in first}
    usual = known & {*tag_rows.WORDS, *tag_rows.TEXTS}
    others = known & {*tag_rows.LABELS, *tag_rows.OTHER_LABELS, *tag_rows.SENTENCES} - usual
    return any(isinstance(one, str) and one in first for one in given) or bool(usual and (others or len(first) == 1))


def _read_treebank(path: Path, column: str | int | None, *, labelled: bool) -> Tagged:
    name = "upos" if column is None or not labelled else str(column)
    if name not in get_args(TreebankColumn):
        raise ConfigError(
            f"{path}: label column {name!r}: expected {', '.join(get_args(TreebankColumn))} of a .conllu file."
            f"{did_you_mean(name.lower(), get_args(TreebankColumn))}"
        )

    def label(word: Word) -> str | None:
        value: str | None = getattr(word, name)
        return UNLABELLED if value is None and name == "feats" else value  # no features is also an answer

    sentences, spaces, notes = [], 0, []
    read = read_conllu(path, own_upos=True)
    for one in read:
        words = [word for word in one.words if word.form.strip()]
        spaces += len(one.words) - len(words)
        if words:
            sentences.append(
                TaggedSentence(
                    words=tuple(word.form for word in words),
                    labels=tuple(label(word) if labelled else None for word in words),
                    file=str(path),
                    lines=tuple(word.line for word in words),
                )
            )
    if not sentences:
        raise DataError(f"{path}: holds spaces and no words.")
    if spaces:
        notes.append(f"words of {path.name} that are spaces alone, as spaCy writes them: {spaces:,}, left out.")
    if labelled and name == "upos":
        notes += _own_upos(read, path)
    columns = TagColumns(kind="treebank", words="form", label=name if labelled else None)
    return Tagged(sentences=sentences, columns=columns, notes=tuple(notes))


def _own_upos(sentences: Sequence[Sentence], path: Path) -> list[str]:
    """A note on parts of speech that UD 2 does not have; DataError: one that occurs once and looks like a slip for one
    in the file.
    """
    words = [word for one in sentences for word in one.words if word.form.strip() and word.upos is not None]
    counts = Counter(str(word.upos) for word in words)
    own = [word for word in words if word.upos not in UPOS]
    for word in own:
        near = did_you_mean(str(word.upos).upper(), [known for known in UPOS if known in counts])
        if near and counts[str(word.upos)] == 1 and word.upos != "CONJ":
            raise DataError(f"{path}:{word.line}: unknown part of speech {reading.short(word.upos)}.{near}")
    if not own:
        return []
    names = sorted({str(word.upos) for word in own})
    shown = ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
    return [
        f"parts of speech that UD 2 does not have: {shown} ({len(own):,} of {len(words):,} words, first at "
        f"{path.name}:{own[0].line}). Read as "
        "they are."
    ]


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


def _read_text(lines: Sequence[str], path: Path, split: Splitting) -> Tagged:
    """Running text, a sentence or a paragraph a line; DataError: its words cannot be told."""
    if split == "unknown":
        raise DataError(
            f"{path}: is running text, and the model learned words of a script without spaces that a program had "
            "split. Split the text with "
            "the same program, and give a word a line, with a blank line after each sentence."
        )
    sentences = [
        TaggedSentence(
            words=tuple(line[first:stop] for first, stop in places),
            labels=(None,) * len(places),
            file=str(path),
            lines=(number,) * len(places),
        )
        for number, line in enumerate(lines, start=1)
        if (places := word_places(line, split))
    ]
    if not sentences:
        raise DataError(f"{path}: holds no words.")
    how = {
        "spaces": "at spaces only",
        "punctuation": "with punctuation apart",
        "characters": "with each Chinese or Japanese character apart",
        "contractions": "with punctuation, n't and 's apart",
    }[split]
    note = f"{path.name}: running text, a sentence a line, split into words {how}, like the training data."
    return Tagged(sentences=sentences, columns=TagColumns(kind="text", split=split), notes=(note,))


@dataclass(frozen=True, kw_only=True)
class TagNames:
    """Names of labels that are numbers in a file, by number, and where the names are from."""

    by_number: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    asked: bool = False
    """They were given, so that a number without a name is an error."""


def read_names(given: str | Path | None, near: Path) -> TagNames:
    """Names of labels.

    Args:
        given: names between commas, or a file: a name a line, a JSON list, {name: number}, {number: name}, or
            dataset_info.json.
        near: file of examples; None for `given` looks for a file with names next to it.

    Raises:
        MissingInputError, StorageError: cannot be read. DataError: holds no names.
    """
    if given is not None and "," in str(given) and not Path(given).exists():
        names = [name.strip() for name in str(given).split(",")]
        return TagNames(by_number=_numbered(names), source="--tag-names", asked=True)
    beside = [near.parent / name for name in _SIDECARS if (near.parent / name).is_file()]
    for path in beside if given is None else [Path(given)]:
        content = reading.read_file(path)
        if path.suffix.lower() == ".json":
            found = _names_in(reading.parse_json(content, where=str(path), remedy="Expected names of labels."))
        else:
            found = _numbered([line.strip() for _, line in reading.lines(content, path) if line.strip()])
        if found or given is not None:
            break
    else:
        return TagNames()
    if not found:
        raise DataError(f"{path}: holds no names of labels. Expected a name a line, or a JSON list of names.")
    return TagNames(by_number=found, source=path.name, asked=given is not None)


def _numbered(names: Sequence[str]) -> dict[str, str]:
    return {str(at): name for at, name in enumerate(names)}


def _names_in(value: Any) -> dict[str, str]:
    """Names of labels by number in one of the usual layouts."""
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return _numbered(value)
    if not isinstance(value, dict):
        return {}
    if value and all(isinstance(one, int) for one in value.values()):
        return {str(number): name for name, number in value.items()}
    if value and all(isinstance(one, str) and name.isdecimal() for name, one in value.items()):
        return dict(value)
    inner = [
        value.get(name)
        for name in ("id2label", "names", "ner_tags", "tags", "labels", "feature", "features", "default")
    ]
    return next((found for one in [*inner, *value.values()] if (found := _names_in(one))), {})


def with_names(read: Tagged, names: TagNames) -> Tagged:
    """Name labels that are numbers, or keep them if they have no names, with a note on either.

    Raises:
        DataError: a number has none of the names that were given.
    """
    labels = {label for one in read.sentences for label in one.labels if label is not None}
    if not labels or not all(map(str.isdecimal, labels)):
        if names.asked and labels:
            place, label = next((one.file, label) for one in read.sentences for label in one.labels if label)
            raise ConfigError(f"--tag-names: labels of {place} are not numbers, such as {label!r}. Leave it out.")
        return read
    numbers, known = sorted(labels, key=int), names.by_number
    lacking = [number for number in numbers if number not in known]
    if lacking and names.asked:
        place = next(one.place_of(one.labels.index(lacking[0])) for one in read.sentences if lacking[0] in one.labels)
        raise DataError(
            f"{place}: label {lacking[0]} has no name; {names.source} has {len(known)}, from 0. Add it to --tag-names."
        )
    if lacking:
        note = (
            f"labels are numbers without names, {numbers[0]} to {numbers[-1]}, and stay numbers. Name them from 0 "
            "on: --tag-names O,B-PER,I-PER"
        )
        return replace(read, notes=(*read.notes, note))
    sentences = [
        replace(one, labels=tuple(None if label is None else known[label] for label in one.labels))
        for one in read.sentences
    ]
    shown = ", ".join(f"{number} {known[number]}" for number in numbers[:8]) + (" ..." if len(numbers) > 8 else "")
    return replace(read, sentences=sentences, notes=(*read.notes, f"labels are named by {names.source}: {shown}."))
