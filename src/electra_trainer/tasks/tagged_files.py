"""Files of tagged words, running text that is to be tagged, and the spans that labels mark. No torch here.

    .conll .txt .tsv ...  a word a line, columns between tabs or spaces, a blank line between sentences (CoNLL)
    .conllu               CoNLL-U
    .jsonl                {"tokens": [...], "ner_tags": [...]}, or {"text": ..., "label": [[0, 6, "PER"]]} in characters

In column files lines with -DOCSTART- part documents. A line before a sentence that begins with # is a word if it has as
many columns as the others and a label that another line has, else a comment.

    IO      PER                      adjacent words of one type are one span
    BIO     B-PER, I-PER             IOB2; or IOB1, where B- only parts two adjacent spans of one type
    BIOES   B-PER, I-PER, E-PER      S-PER is a span of one word. BILOU: L for E, U for S. BMES, BMEWO: M for I, W for S

One of - _ : / | parts mark and type, and types may be missing. Every label is read as one of BIOES with a dash. Other
notations (PER-B, b-PER, B.PER, BEGIN-PER, BPER, 0 for O) are refused. F1 is seqeval's by default, which is that of
conlleval (CoNLL-2000 to 2003): an I or E that continues nothing begins a span, as does a change of type; E and S end
one.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from electra_trainer.data.conllu import file_lines, read_conllu
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.files import reading
from electra_trainer.files.reading import short
from electra_trainer.files.rows import has_named_columns, read_rows
from electra_trainer.files.tables import Table, shown
from electra_trainer.tasks.examples import MARKS, WARNING, TaggedSentence

Splitting = Literal["spaces", "punctuation", "characters"]
"""How words of training data are split: at spaces; punctuation apart; each Chinese or Japanese character apart too."""
_CHUNK = re.compile(r"\S+")
_MARKS = re.compile(r"\.{2,}|-{2,}|''|``|.", re.DOTALL)
"""Marks that are a word: each alone, or some that are often doubled."""
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3001-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uff0f\uff1a-\uff20"
    rf"\U00020000-\U0003ffff][{MARKS}]*"
)
"""Letters and punctuation of scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""
_LOOKED_AT = 5_000
"""Sentences from which the splitting is guessed."""


def word_places(text: str, how: Splitting = "punctuation") -> list[tuple[int, int]]:
    """Beginning and end of each word. Punctuation at the ends of a word is a word, unless `how` is spaces."""
    chunks = [match.span() for match in _CHUNK.finditer(text)]
    if how == "spaces":
        return chunks
    return [place for first, stop in chunks for place in _parts(text, first, stop, how)]


def _parts(text: str, first: int, stop: int, how: Splitting) -> Iterator[tuple[int, int]]:
    """The words of a run without spaces: marks, what is between them in one word or more, marks."""
    begin, end = _bare(text, first, stop)
    cuts = {begin, end}
    if how == "characters":
        cuts |= {at for letter in _UNSPACED.finditer(text, begin, end) for at in letter.span()}
    yield from (match.span() for match in _MARKS.finditer(text, first, begin))
    yield from pairwise(sorted(cuts))
    yield from (match.span() for match in _MARKS.finditer(text, end, stop))


def _bare(text: str, first: int, stop: int) -> tuple[int, int]:
    """Where a run without spaces begins and ends without its marks."""
    begin, end = first, stop
    while begin < stop and _is_mark(text[begin]) and not _begins_name(text, begin, stop):
        begin += 1
    while end > begin and _is_mark(text[end - 1]):
        end -= 1
    return begin, end


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS" and character != "_"


def _begins_name(text: str, first: int, stop: int) -> bool:
    """#topic and @person are words."""
    return text[first] in "#@" and first + 1 < stop and text[first + 1].isalnum()


def splitting_of(sentences: Sequence[TaggedSentence]) -> Splitting:
    """How the words of training data were split; scripts without spaces by a program: spaces, as it writes them."""
    words = [word for one in islice(sentences, _LOOKED_AT) for word in one.words]
    unspaced = [word for word in words if _UNSPACED.search(word)]
    if 4 * len(unspaced) > len(words):
        single = sum(_UNSPACED.fullmatch(word) is not None for word in unspaced)
        return "characters" if 10 * single >= 9 * len(unspaced) else "spaces"
    return "punctuation"


TreebankColumn = Literal["upos", "xpos", "feats", "deprel"]
UNLABELLED = "_"
"""Label of a word that is neither learned nor scored."""
_NO_LABEL = (None, "", UNLABELLED, -100, "-100")
"""Values of a word without a label; the numbers are those of data sets of the Hub."""
_WORDS = ("tokens", "words", "text", "sentence")
_LABELS = ("ner_tags", "tags", "labels", "label", "entities", "spans", "upos", "pos_tags")
"""Usual names of columns, those first that are taken before the others."""
_SPAN = (("start", "start_offset"), ("end", "end_offset"), ("label",))
"""Keys of a span that is an object."""
_DOCUMENT = "-DOCSTART-"
_EMPTY = "{}: holds no sentences. Expected a word a line, its label in another column."
_COMMAS = "{}: is a .csv. Expected tabs or spaces between a word and its label, no commas: save it as .tsv or .conll."
_LAYOUTS = (
    'Expected {"tokens": [...], "tags": [...]} with a label for each word, or {"text": ..., "label": [[0, 6, "PER"]]} '
    "with spans in characters, one object a line."
)


@dataclass(frozen=True, kw_only=True)
class TagColumns:
    """How a file was read, which is kept with the model. Columns have a name, or a number counted from 1."""

    words: str = "1"
    """Column of the words, or of the text."""
    label: str | None = None
    """Column of the labels; None: none was read."""
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
    comments: int = 0
    """Lines that were taken for comments."""

    def counted(self) -> str:
        """How many words and sentences were read, and what was not."""
        labels, count = [label for one in self.sentences for label in one.labels], len(self.sentences)
        missing = 0 if self.columns.label is None else labels.count(None)
        parts = [f"{len(labels):,} words in {count:,} sentence{'s' * (count > 1)}"]
        parts += [f"{missing:,} without a label"] * (missing > 0)
        parts += [f"{self.comments:,} comment line{'s' * (self.comments > 1)}"] * (self.comments > 0)
        return f"{Path(self.sentences[0].file).name}: {', '.join(parts)}"


def read_tagged(
    path: str | Path,
    *,
    words: str | int | None = None,
    column: str | int | None = None,
    labelled: bool = True,
    like: TagColumns | None = None,
    known: Collection[str] = (),
) -> Tagged:
    """The sentences of a file.

    Args:
        words: column of the words, a number counted from 1 or a name; None: 1, or a usual name.
        column: of the labels: a number counted from 1 in a column file (None: the last one); a name in .jsonl (None: a
            usual one); upos (which is meant by None), xpos, feats or deprel in a treebank.
        labelled: False leaves the labels out; the file need not have them, may be running text, and of a single column
            it is the words.
        like: how the training file was read, for a file to be tagged.
        known: labels of the model, for a file to be tagged.

    Raises:
        MissingInputError, StorageError: cannot be read. ConfigError: no such column. DataError: malformed; says
            file:line.
    """
    path, column = Path(path), column if labelled else None
    if path.suffix.lower() == ".conllu":
        return _treebank(path, str(column or "upos"), labelled=labelled)
    if has_named_columns(path):
        return _objects(path, words, column, like, labelled=labelled)
    if path.suffix.lower() == ".csv":
        raise DataError(_COMMAS.format(path))
    lines = file_lines(path)
    if words is None and like is not None and not labelled and _is_running_text(lines, like, known):
        return _running_text(lines, path, like.split)
    learned = like.words if like is not None and like.columns else "1"
    at = _number(learned if words is None else words, "word", path)
    label = None if column is None else _number(column, "label", path)
    return _columns(lines, path, words=at, label=label, labelled=labelled, known=known)


def _sentence(path: Path, words: Sequence[str], labels: Sequence[str | None], lines: Sequence[int]) -> TaggedSentence:
    return TaggedSentence(words=tuple(words), labels=tuple(labels), file=str(path), lines=tuple(lines))


def _treebank(path: Path, column: str, *, labelled: bool) -> Tagged:
    if column not in get_args(TreebankColumn):
        raise ConfigError(
            f"{path}: label column {column!r}: expected {', '.join(get_args(TreebankColumn))} of a .conllu file."
        )
    none, sentences = UNLABELLED if column == "feats" else None, []  # no features are an answer too
    for one in read_conllu(path, own_upos=True):
        labels = [getattr(word, column) or none if labelled else None for word in one]
        sentences.append(_sentence(path, [word.form for word in one], labels, [word.line for word in one]))
    return Tagged(sentences=sentences, columns=TagColumns(words="form", label=column if labelled else None))


def _number(column: str | int, what: str, path: Path) -> int:
    if re.fullmatch(r"[1-9]\d{0,3}", str(column), re.ASCII):
        return int(column)
    raise ConfigError(
        f"{path}: {what} column {column!r}: expected a number counted from 1. Names are for .conllu and .jsonl."
    )


def _ends_sentence(line: str) -> bool:
    return not line.strip(" \t") or line.startswith(_DOCUMENT)


def _columns(
    lines: Sequence[str], path: Path, *, words: int, label: int | None, labelled: bool, known: Collection[str]
) -> Tagged:
    """The sentences of a file of columns; `label` None: the last."""
    rows, first, tabs = _rows(lines, path)
    count = len(rows[first])
    label, words = label or count, 1 if count == 1 and not labelled else words
    _check_head(f"{path}:{first}", rows[first], words, label, labelled=labelled)
    comments = _comments(rows, count, label, known)
    rows = {number: row for number, row in rows.items() if number not in comments}
    _check_rows(path, rows, first, (words, label)[: 1 + labelled], tabs=tabs)
    sentences = _sentences(path, rows, words, label if labelled else None)
    every = [row[words - 1] for row in rows.values()]
    as_labels = len({*every} & {*known}) >= max(2, len({*every}) / 2)
    if all(map(str.isdecimal, every)) if labelled else as_labels:
        raise DataError(f"{path}: column {words} holds numbers or labels. Name the column of the words: --words N.")
    columns = TagColumns(words=str(words), label=str(label) if labelled else None, columns=count)
    notes, stops = tuple[str, ...](), sum(word in _STOPS for word in every)
    if stops > 6 * len(sentences) or len(every) > 200 * len(sentences):
        blocks = "no blank line in" if len(sentences) == 1 else f"{len(sentences):,} blocks between blank lines in"
        unparted = f"{path}: {blocks} {len(every):,} lines, {stops:,} full stops. Put a blank line between sentences."
        if labelled and len(sentences) == 1:
            raise DataError(unparted)
        notes = (WARNING + unparted,)
    return Tagged(sentences=sentences, columns=columns, comments=len(comments), notes=notes)


def _rows(lines: Sequence[str], path: Path) -> tuple[dict[int, list[str]], int, bool]:
    """The cells of each line that is not a gap; the first line that is surely no comment; whether it has tabs."""
    used = {number: line for number, line in enumerate(lines, 1) if not _ends_sentence(line)}
    first = next((number for number, line in used.items() if line.lstrip()[:1] != "#"), None)
    if first is None:
        raise DataError(_EMPTY.format(path))
    if "\t" in used[first].strip(" \t"):
        return {number: [cell.strip(" ") for cell in line.split("\t")] for number, line in used.items()}, first, True
    return {number: re.findall(r"[^ \t]+", line) for number, line in used.items()}, first, False


def _check_rows(
    path: Path, rows: Mapping[int, Sequence[str]], first: int, wanted: Sequence[int], *, tabs: bool
) -> None:
    """Raise DataError if a line has another number of columns than the first, or one of those wanted is empty."""
    count = len(rows[first])
    for number, row in rows.items():
        empty = [at for at in wanted if "" in row[at - 1 : at]]
        if len(row) != count or empty:
            what = f"but column {empty[0]} is empty" if len(row) == count else f"found {len(row)}"
            raise DataError(
                f"{path}:{number}: expected {count} columns between {'tabs' if tabs else 'spaces'}, as line {first} "
                f"has, {what}. An unknown label is {UNLABELLED}; a word with a space needs tabs; comments are before "
                "sentences."
            )


def _sentences(path: Path, rows: Mapping[int, Sequence[str]], words: int, label: int | None) -> list[TaggedSentence]:
    """A sentence of each run of lines without a gap."""
    sentences = []
    for _, run in groupby(enumerate(rows), lambda one: one[1] - one[0]):
        lines = [number for _, number in run]
        tags = [UNLABELLED if label is None else rows[at][label - 1] for at in lines]
        labels = [None if tag in _NO_LABEL else tag for tag in tags]
        sentences.append(_sentence(path, [rows[at][words - 1] for at in lines], labels, lines))
    return sentences


def _check_head(where: str, row: Sequence[str], words: int, label: int, *, labelled: bool) -> None:
    """Raise DataError if the first line has no such columns."""
    if max(words, label) > len(row) or (labelled and words == label):
        count, name = ("1 column", "") if len(row) == 1 else (f"{len(row)} columns", " Name them: --words 1 --label 2")
        raise DataError(
            f"{where}: has {count}; expected on each line the word in column {words} and its label in "
            f"{label if label != words else 'another'}, with tabs or spaces between, no commas.{name}"
        )


def _comments(rows: Mapping[int, Sequence[str]], count: int, label: int, known: Collection[str]) -> set[int]:
    """The lines before sentences, beginning with #, that are comments: those with another number of columns, or with a
    label that no other line has and that is not of the labels' scheme.
    """
    heads: set[int] = set()
    for number, row in rows.items():
        if row[0][:1] == "#" and (number - 1 not in rows or number - 1 in heads):
            heads.add(number)
    labels = {row[label - 1] for number, row in rows.items() if number not in heads and len(row) == count}
    labels |= {*known, UNLABELLED}
    spans = scheme_of(labels - {UNLABELLED}) != "none"

    tags = {head: rows[head][label - 1] for head in heads if len(rows[head]) == count}
    words = {head for head, tag in tags.items() if count == 1 or tag in labels or (spans and _LABEL.fullmatch(tag))}
    return heads - words


_STOPS = ".!?。！？।؟"
"""Words that end a sentence."""


def _is_running_text(lines: Sequence[str], like: TagColumns, known: Collection[str]) -> bool:
    """Whether a file to be tagged is running text: neither a word a line, nor columns like those of the training file
    with labels that the model knows.
    """
    used = [line for line in lines if not _ends_sentence(line) and line[0] != "#"]
    rows = [line.split() for line in used]
    if any("\t" in line.strip() for line in used):
        return False
    if all(len(row) == 1 for row in rows):
        return like.split == "characters" and any(len(_UNSPACED.findall(line)) > 1 for line in used)
    at = int(like.label or 1) - 1 if like.columns else 0
    labels = [row[at] for row in rows if len(row) == like.columns]
    return 2 * sum(map({*known, UNLABELLED}.__contains__, labels)) <= len(rows)


def _running_text(lines: Sequence[str], path: Path, split: Splitting) -> Tagged:
    """Running text, a sentence or a paragraph a line."""
    sentences = [
        _sentence(path, [line[first:stop] for first, stop in places], [None] * len(places), [number] * len(places))
        for number, line in enumerate(lines, start=1)
        if (places := word_places(line, split))
    ]
    note = f"{path.name}: running text, a sentence a line, split into words like the training data ({split})."
    return Tagged(sentences=sentences, columns=TagColumns(split=split), notes=(note,))


def _objects(
    path: Path, words: str | int | None, column: str | int | None, like: TagColumns | None, *, labelled: bool
) -> Tagged:
    """The sentences of a .jsonl file, a row each, in columns that are named or have a usual name."""
    table = read_rows(path)
    learned = like.words if like is not None and like.words in table.columns else None
    text = _column(table, "--words", learned if words is None else words, _WORDS)
    label = _column(table, "--label", column, _LABELS) if labelled else None
    tags = table.column(label) if label else [None] * len(table.rows)
    unspaced = any(isinstance(value, str) and _UNSPACED.search(value) for value in table.column(text))
    split = like.split if like else "characters" if unspaced else "punctuation"
    odd: dict[str, list[str]] = {_LOST: [], _WIDENED: []}
    rows = zip(table.lines, table.column(text), tags, strict=True)
    sentences = [_row(path, number, value, found, split, odd) for number, value, found in rows]
    notes = [f"columns of {path.name}: words = {text!r}" + (f", labels = {label!r}." if label else ".")]
    notes += [f"{WARNING}{what.format(f'{len(spans):,}', spans[0])}" for what, spans in odd.items() if spans]
    return Tagged(sentences=sentences, columns=TagColumns(words=text, label=label, split=split), notes=tuple(notes))


def _column(table: Table, flag: str, given: str | int | None, usual: Sequence[str]) -> str:
    """The column that is given, or the first with a usual name."""
    wanted = usual if given is None else [str(given)]
    for name in wanted:
        if name in table.columns:
            return name
    listed = shown([*map(repr, table.columns)])
    raise ConfigError(f"{table.path}: has no column {' or '.join(wanted)}, but {listed}. Name one: {flag} COLUMN")


_LOST = "spans that share a word with a longer one, or hold none, are left out: {}, the first a {}."
_WIDENED = (
    "spans that begin or end within a word label all of it: {}, the first a {}. Right for endings and compounds; else "
    "count characters of Unicode from 0, to the end behind the last."
)


def _row(
    path: Path, number: int, value: Any, tags: Any, split: Splitting, odd: Mapping[str, list[str]]
) -> TaggedSentence:
    """The sentence of an object: words with a label each, or a text with spans, of which the odd ones are noted."""
    where, words, labels = f"{path}:{number}", value, tags
    if isinstance(value, str) and isinstance(tags, list | None):
        places = word_places(value, split)
        words = [value[first:stop] for first, stop in places]
        labels = None if tags is None else _bio(places, [_read_span(one, where, value) for one in tags], where, odd)
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        raise DataError(f"{where}: words {short(value)}. {_LAYOUTS}")
    labels = [None] * len(words) if labels is None else labels
    if not isinstance(labels, list) or len(labels) != len(words):
        raise DataError(f"{where}: {len(words):,} words, labels {short(labels)}. {_LAYOUTS}")
    for word in words:
        reading.encodable(word, f"{where}: a word")
    return _sentence(path, words, [_label_text(label, where) for label in labels], [number] * len(words))


def _bio(
    words: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int, str]], where: str, odd: Mapping[str, list[str]]
) -> list[str]:
    """BIO tags of words. Odd spans are noted: `_LOST`, they label no word, since they hold none or a longer span has
    one of theirs; `_WIDENED`, they begin or end within a word and label all of it.
    """
    tags = ["O"] * len(words)
    begins, ends = [begin for begin, _ in words], [end for _, end in words]
    inside: dict[tuple[int, int, str], tuple[int, int]] = {}
    for first, stop, kind in spans:
        at, after = bisect_right(ends, first), bisect_left(begins, stop)
        if at < after:  # without the spaces at its ends
            inside[max(first, begins[at]), min(stop, ends[after - 1]), kind] = at, after
        else:
            odd[_LOST].append(f"{kind} at {where}")
    for (first, stop, kind), (at, after) in sorted(inside.items(), key=lambda one: (one[0][0] - one[0][1], one[0][0])):
        if tags[at] != "O" or tags[after - 1] != "O":  # a longer span that has any of its words has one at an end
            odd[_LOST].append(f"{kind} at {where}")
            continue
        tags[at:after] = [f"B-{kind}", *[f"I-{kind}"] * (after - at - 1)]
        if begins[at] < first or ends[after - 1] > stop:
            odd[_WIDENED].append(f"{kind} at {where}")
    return tags


def _read_span(span: Any, where: str, text: str) -> tuple[int, int, str]:
    """A span of a text in characters and its type. Raises DataError if it is not of this text."""
    values = span
    if isinstance(span, dict):
        values = [next((span[name] for name in names if name in span), None) for names in _SPAN]
    match values:
        case [int(first), int(stop), str(kind), *_] if kind and 0 <= first < stop <= len(text):
            return first, stop, kind
    raise DataError(
        f"{where}: span {short(span)} of {len(text)} characters. Expected a start from 0, the end behind the last "
        '(in characters of Unicode, not bytes or UTF-16) and one type, such as [0, 6, "PER"].'
    )


def _label_text(label: Any, where: str) -> str | None:
    """A label as text; None: not labelled."""
    if label in _NO_LABEL:
        return None
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise DataError(f"{where}: label {short(label)}, expected a text or a whole number for each word.")
    return reading.encodable(str(label).strip(), f"{where}: label")


Scheme = Literal["none", "io", "bio", "bioes"]
_MEANT = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I", "W": "S"}
"""Mark as written -> mark of BIOES."""
_LABEL = re.compile(r"([BIESLUMW])(?:[-_:/|](.+))?", re.DOTALL)


def read_tag(label: str, scheme: Scheme) -> str | None:
    """A label as a BIOES tag, such as "B-PER" or "O"; None: not a label of the scheme."""
    found = _LABEL.fullmatch(label)
    if label == "O":
        return "O"
    if scheme == "io":
        return f"I-{label}"
    if found is None or (scheme == "bio" and found[1] not in "BI"):
        return None
    return _MEANT[found[1]] + (f"-{found[2]}" if found[2] else "")


def check_scheme(sentence: TaggedSentence, scheme: Scheme) -> None:
    """Raise DataError at a label that is not of the scheme."""
    for at, label in enumerate(sentence.labels):
        if label is not None and scheme != "none" and read_tag(label, scheme) is None:
            raise DataError(
                f"{sentence.place_of(at)}: label {short(label)} is none of {scheme.upper()}: expected O, B-TYPE, I-TYPE"
                f"{', E-TYPE, S-TYPE' * (scheme == 'bioes')}. Words outside of spans have O. For labels without spans: "
                "--scheme plain."
            )


def scheme_of(labels: Collection[str]) -> Scheme:
    """The scheme of most different labels, which have marks and types. A few malformed ones do not matter."""
    typed = [found[1] for label in labels if (found := _LABEL.fullmatch(label)) and found[2]]
    most = 2 * len(typed) >= len({*labels} - {"O"}) if "O" in labels else len(typed) == len({*labels}) and "B" in typed
    if not typed or not most:
        return "none"
    return "bioes" if {*typed} - {"B", "I"} else "bio"


_MARK = r"(?P<mark>[BIESLUMW]|BEG(?:IN(?:NING)?)?|IN(?:SIDE)?|END|LAST|SINGLE|UNIT)"
_WAYS = rf"{_MARK}[\W_](?P<type>.+)", rf"(?P<type>.+)[\W_]{_MARK}\W?", r"(?P<mark>[BI])(?P<type>\w.+)"
_NOTATIONS = [re.compile(way, re.DOTALL | re.IGNORECASE) for way in _WAYS]
"""Ways to write marks and types: B-PER, b.PER, BEGIN-PER; PER-B, PER(B); BPER."""


def refuse_marks(labels: Collection[str], where: str) -> None:
    """Raise DataError if labels that are read without marks have some: a type with a begin and something after it."""
    for notation in _NOTATIONS:
        found = {one: match for one in sorted(labels) if (match := notation.fullmatch(one.strip("[]<>{}'\"")))}
        begin = {match["type"] for match in found.values() if match["mark"][0] in "Bb"}
        if begin & {match["type"] for match in found.values() if match["mark"][0] not in "Bb"}:
            odd = next((f" and {one!r} does not" for one in sorted({*labels} - {*found, "O"})), "")
            raise DataError(
                f"{where}: {next(iter(found))!r} looks like a span's label{odd}. Expected O, B-TYPE and I-TYPE, or "
                "E-TYPE and S-TYPE too. Write them so, or give --scheme plain."
            )


def described(labels: Collection[str], scheme: Scheme) -> Iterator[str]:
    """Notes on the labels of the training words: their notation and types, and how they are scored."""
    if scheme == "none":
        yield (
            f"labels: {len(labels)} without spans, scored by accuracy. Types of spans: --scheme io; marks alone: "
            "--scheme bio or bioes."
        )
        return
    types = sorted({tag[2:] for label in labels if (tag := read_tag(label, scheme) or "O")[2:]})
    yield (
        f"labels: {scheme.upper()} of {shown(types)}. "
        "Spans are scored by seqeval's definition (conlleval's): same words, same type."
    )
    if "O" not in labels:
        yield f"{WARNING}no label is O, so every word is predicted to be in a span. Label the words outside of spans O."


class Span(NamedTuple):
    """Words `first` up to, not including, `stop`."""

    type: str
    first: int
    stop: int


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The spans of one sentence of BIOES tags, in order."""
    found: list[Span] = []
    first, open_type = 0, None
    for index, tag in enumerate([*tags, "O"]):
        mark, _, kind = tag.partition("-")
        if open_type is not None and not (mark in ("I", "E") and kind == open_type):
            found.append(Span(open_type, first, index))
            open_type = None
        if mark != "O" and open_type is None:
            first, open_type = index, kind
        if mark in ("E", "S"):
            found.append(Span(kind, first, index + 1))
            open_type = None
    return found


def span_scores(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """`f1`, `precision` and `recall` over all types and sentences, the micro average that papers report; spans are
    right if words and type are the same. A share of nothing is 0, as in conlleval.

    Args:
        truth, predicted: the tags of each sentence, equally many in both.
    """
    both = [({*spans_of(true)}, {*spans_of(found)}) for true, found in zip(truth, predicted, strict=True)]
    count, found = (sum(len(one[side]) for one in both) for side in (0, 1))
    right = sum(len(true & found) for true, found in both)
    return {
        "f1": 2 * right / max(count + found, 1),
        "precision": right / max(found, 1),
        "recall": right / max(count, 1),
    }
