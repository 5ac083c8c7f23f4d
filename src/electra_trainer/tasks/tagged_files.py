"""Files of tagged words, running text that is to be tagged, and the spans that labels mark. No torch here.

    .conll .txt .tsv ...  a word a line, columns between tabs or spaces, a blank line between sentences (CoNLL)
    .conllu               CoNLL-U
    .jsonl                {"tokens": [...], "ner_tags": [...]}, or {"text": ..., "label": [[0, 6, "PER"]]} in characters

In column files lines with -DOCSTART- part documents. A line before a sentence that begins with # is a word if it can be
one, as "#" and "#topic" are, else a comment; see `_comments`.

    IO      PER                      adjacent words of one type are one span
    BIO     B-PER, I-PER             IOB2; or IOB1, where B- only parts two adjacent spans of one type
    BIOES   B-PER, I-PER, E-PER      S-PER is a span of one word. BILOU: L for E, U for S. BMES, BMEWO: M for I, W for S

One of - _ : / | parts mark and type, and types may be missing. Every label is read as one of BIOES with a dash. Other
notations (PER-B, b-PER, B.PER, BEGIN-PER, BPER, 0 for O) are replaced first; see `standard_tags`. F1 is seqeval's by
default, which is that of conlleval (CoNLL-2000 to 2003): an I or E that continues nothing begins a span, as does a
change of type; E and S end one.
"""

import re
import shlex
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from electra_trainer.data.conllu import Word, file_lines, read_conllu
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.files import reading
from electra_trainer.files.reading import short
from electra_trainer.files.tables import Table, read_table_file, shown
from electra_trainer.tasks.examples import MARKS, WARNING, TaggedSentence

Splitting = Literal["spaces", "punctuation", "contractions", "characters"]
"""How words of training data are split: at spaces; punctuation apart; n't, 's and the like apart too (Penn Treebank);
each Chinese or Japanese character apart."""
_CHUNK = re.compile(r"\S+")
_MARKS = re.compile(r"\.{2,}|-{2,}|''|``|.", re.DOTALL)
"""Marks that are a word: each alone, or some that are often doubled."""
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+")
_CONTRACTION = re.compile(r"(?:n['’]t|['’](?:s|re|ve|ll|d|m))$", re.IGNORECASE)
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
    """The words of a run without spaces."""
    begin, end = first, stop
    if how == "contractions" and _CONTRACTION.fullmatch(text[first:stop]):
        yield first, stop
        return
    while begin < stop and _is_mark(text[begin]) and not _begins_name(text, begin, stop):
        begin += 1
    initials = _INITIALS.match(text, begin, stop)
    while end > begin and _is_mark(text[end - 1]) and not (initials and initials.end() == end):
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


def splitting_of(sentences: Sequence[TaggedSentence]) -> Splitting:
    """How the words of training data were split; scripts without spaces by a program: spaces, as it writes them."""
    words = [word for one in islice(sentences, _LOOKED_AT) for word in one.words if word]
    unspaced = [word for word in words if _UNSPACED.search(word)]
    if 4 * len(unspaced) > len(words):
        single = sum(_UNSPACED.fullmatch(word) is not None for word in unspaced)
        return "characters" if 10 * single >= 9 * len(unspaced) else "spaces"
    alone = sum(word in (".", ",", ";", ":", "!", "?", "。", "،", "।") for word in words)
    attached = sum(
        len(word) > 2 and word[-1] in ",;!?." and word[-2].isalpha() and word.count(".") < 2 for word in words
    )
    if attached > alone:
        return "spaces"
    return "contractions" if any(_CONTRACTION.fullmatch(word) for word in words) else "punctuation"


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
_NAMES = (
    re.compile(r"tokens?|words?|forms?|text", re.IGNORECASE),
    re.compile(r"([ux]?pos|ner|chunk)([ _-]?tags?)?|tags?|labels?", re.IGNORECASE),
)
"""Names of the column of words and of that of labels, in a first line of names."""
_EMPTY = "{}: holds no sentences. Expected a word a line, its label in another column."
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
    tags: dict[str, str] = field(default_factory=dict)
    """Label in the files -> label of the task, where they differ; "_" is a word without a label."""


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
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".conllu":
        return _treebank(path, "upos" if column is None or not labelled else str(column), labelled=labelled)
    if suffix == ".jsonl":
        return _objects(path, words, column, like, labelled=labelled)
    lines = file_lines(path)
    if words is None and like is not None and not labelled and _is_running_text(lines, like, known):
        return _running_text(lines, path, like.split)
    learned = like.words if like is not None and like.columns else "1"
    label = None if column is None or not labelled else _number(column, "label", path)
    at = _number(learned if words is None else words, "word", path)
    return _columns(lines, path, words=at, label=label, labelled=labelled, known=known)


def _treebank(path: Path, column: str, *, labelled: bool) -> Tagged:
    if column not in get_args(TreebankColumn):
        raise ConfigError(
            f"{path}: label column {column!r}: expected {', '.join(get_args(TreebankColumn))} of a .conllu file."
        )

    def label(word: Word) -> str | None:
        value: str | None = getattr(word, column) if labelled else None
        return UNLABELLED if value is None and labelled and column == "feats" else value  # none is an answer too

    sentences = [
        _sentence(path, [word.form for word in one.words], map(label, one.words), [word.line for word in one.words])
        for one in read_conllu(path, own_upos=True)
    ]
    return Tagged(sentences=sentences, columns=TagColumns(words="form", label=column if labelled else None))


def _sentence(path: Path, words: Sequence[str], labels: Any, lines: Sequence[int]) -> TaggedSentence:
    return TaggedSentence(words=tuple(words), labels=tuple(labels), file=str(path), lines=tuple(lines))


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
    """The sentences of a column file, all of whose lines have as many columns as the first; `label` None: the last."""
    used = {number: line for number, line in enumerate(lines, 1) if not _ends_sentence(line)}
    patterns = r"[^#]", r"#[^\s=]"  # a word that begins with # where no other line is one
    first = next((at for pattern in patterns for at, line in used.items() if re.match(pattern, line)), None)
    if first is None:
        raise DataError(_EMPTY.format(path))
    tabs = "\t" in used[first].strip(" \t")
    fields = {number: _fields(line, tabs=tabs) for number, line in used.items()}
    count = len(fields[first])
    last, words = label or count, 1 if count == 1 and not labelled else words
    apart = count == 1 or (not tabs and path.suffix.lower() == ".csv")
    if labelled and apart and (separator := re.search("[,;|]", used[first])):
        raise DataError(f"{path}:{first}: {_convert(path, used[first], separator[0])}")
    if max(words, last) > count or (labelled and words == last):
        name = "s" * (count > 1), " Name them: --words 1 --label 2" * (count > 1)
        raise DataError(
            f"{path}:{first}: has {count} column{name[0]}; expected on each line the word in column "
            f"{words} and its label in {last}, with tabs or spaces between.{name[1]}"
        )
    cells = fields[first][words - 1], fields[first][last - 1]
    if words != last and all(name.fullmatch(cell) for name, cell in zip(_NAMES, cells, strict=True)):
        raise DataError(f"{path}:{first}: {cells[0]!r}, {cells[1]!r} are names of columns. Delete the line.")
    comments = _comments(fields, count, last, known)
    blocks: list[list[int]] = []
    for number, row in fields.items():
        if number - 1 not in fields:
            blocks.append([])
        if number in comments:
            continue
        empty = [at for at in (words, last)[: 1 + labelled] if "" in row[at - 1 : at]]
        if len(row) != count or empty:
            what = f"but column {empty[0]} is empty" if len(row) == count else f"found {len(row)}"
            raise DataError(
                f"{path}:{number}: expected {count} columns, as line {first} has, {what}; of words and labels none may "
                f"be empty (--label N names another column). {'Tabs' if tabs else 'Spaces'} separate them; an unknown "
                f"label is {UNLABELLED}; a word with a space needs tabs; a comment may be before a sentence only."
            )
        blocks[-1].append(number)
    sentences = []
    for block in filter(None, blocks):
        rows = [fields[number] for number in block]
        tags = [one[last - 1] if labelled and one[last - 1] not in _NO_LABEL else None for one in rows]
        sentences.append(_sentence(path, [one[words - 1] for one in rows], tags, block))
    if not sentences:
        raise DataError(_EMPTY.format(path))
    different = {word for one in sentences for word in one.words}
    numbers = labelled and all(map(str.isdecimal, different))
    if numbers or (not labelled and len(different & {*known}) >= max(2, len(different) / 2)):
        what = f"column {words} holds {'numbers' if numbers else 'labels'}"
        raise DataError(f"{path}: {what}. Name the column of the words: --words N. CoNLL-U ends in .conllu.")
    unparted = _unparted(path, [fields[at] for one in blocks for at in one], words, last, len(sentences), tabs=tabs)
    if unparted and labelled and len(sentences) == 1:
        raise DataError(unparted)
    columns = TagColumns(words=str(words), label=str(last) if labelled else None, columns=count)
    notes = (WARNING + unparted,) if unparted else ()
    return Tagged(sentences=sentences, columns=columns, comments=len(comments), notes=notes)


def _comments(fields: Mapping[int, Sequence[str]], count: int, last: int, known: Collection[str]) -> set[int]:
    """The lines before sentences, beginning with #, that are comments: those with another number of columns; with a
    label that no other line has and that is not of their scheme; without a scheme also those that begin with # alone,
    have a key ("#id=3"), or begin alike with different labels ("#id 3").
    """
    heads: set[int] = set()
    for number, row in fields.items():
        if row[0][:1] == "#" and (number - 1 not in fields or number - 1 in heads):
            heads.add(number)
    labels = {row[last - 1] for number, row in fields.items() if len(row) == count and number not in heads} | {*known}
    alike = Counter(key for key, _ in {(fields[head][0], fields[head][-1]) for head in heads})
    scheme = scheme_of(labels)

    def is_word(row: Sequence[str]) -> bool:
        key, tag = row[0], row[min(last, len(row)) - 1]
        if len(row) != count or count == 1 or tag in labels or tag == UNLABELLED:
            return len(row) == count
        if scheme != "none":
            return read_tag(tag, scheme) is not None
        return key != "#" and "=" not in key and alike[key] == 1

    return {number for number in heads if not is_word(fields[number])}


_STOPS = ".!?。！？।؟"
"""Words that end a sentence."""


def _unparted(path: Path, rows: Sequence[Sequence[str]], words: int, last: int, sentences: int, *, tabs: bool) -> str:
    """A sentence on a file in which blank lines seem to be missing, with a command that adds them; empty: none are."""
    stops = sum(row[words - 1] in _STOPS for row in rows)
    if stops <= 6 * sentences and len(rows) <= 200 * sentences:
        return ""
    blocks = "no blank line in" if sentences == 1 else f"{sentences:,} blocks between blank lines in"
    code = f'{{print}} index("{_STOPS}", ${words}) {{print ""}}'
    for at in {*range(1, len(rows[0]) + 1)} - {words, last}:
        runs = [number for number, _ in groupby(row[at - 1] for row in rows)]
        if 1 < len(runs) == len({*runs}) <= len(rows) / 2:  # numbers of sentences
            code = f'NR > 1 && ${at} != last {{print ""}} {{print; last = ${at}}}'
    found = f"{path}: {blocks} {len(rows):,} lines, {stops:,} full stops. Expected a blank line between sentences. "
    if not stops and code.startswith("{"):
        return f"{found}Add them by hand: neither full stops nor a column of numbers says where sentences end."
    tab = "-F'\\t' " * tabs
    how = f"awk {tab}'{code}' < {shlex.quote(str(path))} > NEW{path.suffix}"
    return f"{found}Add them: {how}"


def _convert(path: Path, head: str, separator: str) -> str:
    """The error of a column file with other separators, and a command that converts it; `head` is its first line."""
    expected = "Expected a word a line, a tab, its label, and a blank line between sentences."
    how = f"sed 's/\\(.*\\){separator}/\\1 /'"
    if path.suffix.lower() == ".csv":
        row = '"\\t".join(row)'
        if head.lower().startswith("sent"):  # a column with the sentence's number, perhaps on its first row alone
            row = '(last and row[0] not in ("", last) and "\\n" or "") + "\\t".join(row[1:])'
        code = 'import csv, sys; rows = csv.reader(sys.stdin); next(rows); last = ""; '
        how = f"python3 -c '{code}[(print({row}), last := (row or [last])[0] or last) for row in rows]'"
    return f"has {separator!r} between the columns. {expected} Convert it: {how} < {shlex.quote(str(path))} > NEW.conll"


def _fields(line: str, *, tabs: bool) -> list[str]:
    if tabs:
        return [field.strip(" ") for field in line.split("\t")]
    return [field for field in line.replace("\t", " ").split(" ") if field]


def _is_running_text(lines: Sequence[str], like: TagColumns, known: Collection[str]) -> bool:
    """Whether a file to be tagged is running text: neither a word a line, nor columns like those of the training file
    with labels that the model knows.
    """
    every = [line for line in lines if not _ends_sentence(line)]
    used = [line for line in every if line[0] != "#"] or every
    rows = [line.split() for line in used]
    if any("\t" in line.strip() for line in used):
        return False
    if all(len(row) == 1 for row in rows):
        return like.split == "characters" and any(len(_UNSPACED.findall(line)) > 1 for line in used)
    at = int(like.label or 1) - 1 if like.columns else 0
    labels = [row[at] for row in rows if len(row) == like.columns]
    return 2 * sum(label in known or label == UNLABELLED for label in labels) <= len(rows)


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
    table = read_table_file(path)
    if words is None and like is not None and like.words in table.columns:
        words = like.words
    text = _column(table, "--words", words, _WORDS)
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
    if isinstance(value, str) and (tags is None or isinstance(tags, list)):
        places = word_places(value, split)
        words = [value[first:stop] for first, stop in places]
        if tags is not None:
            labels, kinds = _bio(places, [_read_span(one, where, value) for one in tags])
            for what, kind in kinds:
                odd[what].append(f"{kind} at {where}")
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        raise DataError(f"{where}: words {short(value)}. {_LAYOUTS}")
    labels = [None] * len(words) if labels is None else labels
    if not isinstance(labels, list) or len(labels) != len(words):
        raise DataError(f"{where}: {len(words):,} words, labels {short(labels)}. {_LAYOUTS}")
    for word in words:
        reading.encodable(word, f"{where}: a word")
    return _sentence(path, words, [_label_text(label, where) for label in labels], [number] * len(words))


def _bio(
    words: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int, str]]
) -> tuple[list[str], list[tuple[str, str]]]:
    """BIO tags of words, and the odd spans' types with what is odd: `_LOST`, they label no word, since they hold none
    or a longer span has one of theirs; `_WIDENED`, they begin or end within a word and label all of it.
    """
    tags, odd = ["O"] * len(words), list[tuple[str, str]]()
    begins, ends = [begin for begin, _ in words], [end for _, end in words]
    inside: dict[tuple[int, int, str], tuple[int, int]] = {}
    for first, stop, kind in spans:
        at, after = bisect_right(ends, first), bisect_left(begins, stop)
        if at < after:  # without the spaces at its ends
            inside[max(first, begins[at]), min(stop, ends[after - 1]), kind] = at, after
        else:
            odd.append((_LOST, kind))
    for (first, stop, kind), (at, after) in sorted(inside.items(), key=lambda one: (one[0][0] - one[0][1], one[0][0])):
        if tags[at] != "O" or tags[after - 1] != "O":  # a longer span that has any of its words has one at an end
            odd.append((_LOST, kind))
            continue
        tags[at:after] = [f"B-{kind}", *[f"I-{kind}"] * (after - at - 1)]
        if begins[at] < first or ends[after - 1] > stop:
            odd.append((_WIDENED, kind))
    return tags, odd


def _read_span(span: Any, where: str, text: str) -> tuple[int, int, str]:
    """A span of a text in characters and its type. Raises DataError if it is not of this text."""
    values: list[Any] = span if isinstance(span, list) else []
    if isinstance(span, dict):
        values = [next((span[name] for name in names if name in span), None) for names in _SPAN]
    first, stop, kind = values[:3] if len(values) >= 3 else (0, 0, "")
    right = isinstance(first, int) and isinstance(stop, int) and isinstance(kind, str) and kind
    if not right or not 0 <= first < stop <= len(text):
        raise DataError(
            f"{where}: span {short(span)} of {len(text)} characters. Expected a start from 0, the end behind the last "
            '(in characters of Unicode, not bytes or UTF-16) and one type, such as [0, 6, "PER"].'
        )
    return first, stop, kind


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


def check_scheme(label: str, scheme: Scheme, where: str, error: type[Exception] = DataError) -> None:
    """An error at a label that is not of the scheme."""
    if scheme != "none" and read_tag(label, scheme) is None:
        expected = "O, B-TYPE, I-TYPE" + ", E-TYPE, S-TYPE" * (scheme == "bioes")
        what = f"{where}: label {short(label)} is none of {scheme.upper()}: expected {expected}"
        raise error(f"{what}. For labels without spans: --scheme plain.")


def scheme_of(labels: Collection[str]) -> Scheme:
    """The scheme of most different labels, which have marks and types. A few malformed ones do not matter."""
    typed = [found[1] for label in labels if (found := _LABEL.fullmatch(label)) and found[2]]
    most = 2 * len(typed) >= len({*labels} - {"O"}) if "O" in labels else len(typed) == len({*labels}) and "B" in typed
    if not typed or not most:
        return "none"
    return "bioes" if {*typed} - {"B", "I"} else "bio"


_OUTSIDE = ("o", "0", "out", "outside", "none", "null", "nan", "nil", "other", "-", "\u2013", "\u2014")
"""Words for outside, in small letters."""
_MARK, _TYPE = r"(?P<mark>[BIESLUMW]|BEG(?:IN(?:NING)?)?|IN(?:SIDE)?|END|LAST|SINGLE|UNIT)", r"(?P<type>.+)"
_WAYS = "(?!)", rf"{_MARK}[\W_]{_TYPE}", rf"{_TYPE}[\W_]{_MARK}\W?", r"(?P<mark>[BI])(?P<type>\w.+)"
_NOTATIONS = [re.compile(way, re.DOTALL | re.IGNORECASE) for way in _WAYS]
"""Ways to write the labels of a file: as `_LABEL` has them; b-PER, B.PER, BEGIN-PER; PER-B, PER(B); BPER."""


def standard_tags(
    labels: Collection[str | None], asked: Literal["detect"] | Scheme, *, others: Collection[str | None]
) -> tuple[dict[str, str], Scheme]:
    """How labels are rewritten so that `read_tag` reads them (see `TagColumns.tags`), and their scheme.

    Where no label is O, those among `_OUTSIDE` are, or else words without a label. A notation is believed where each
    type that has an I has a B, so that START_DATE and BRAND are types of IO.

    Args:
        labels: those of training; None: a word without one.
        asked: for a scheme that is asked for no marks are rewritten.
        others: labels of all files.
    """
    names, every = ({label for label in some if label is not None} for some in (labels, others))
    outside = {} if "O" in labels else {label: "O" for label in every if label.casefold() in _OUTSIDE}
    for notation in _NOTATIONS:
        found = {label: match for label in every - {*outside, "O"} if (match := notation.fullmatch(label))}
        tags = outside | {label: f"{match['mark'][0].upper()}-{match['type']}" for label, match in found.items()}
        begin, inside = ({tag[2:] for tag in tags.values() if tag[:2] == mark} for mark in ("B-", "I-"))
        scheme = scheme_of({tags.get(label, label) for label in names})
        if scheme != "none" and (not found or set() < inside <= begin):
            break
    else:
        tags, scheme = {}, "none"
    if asked != "detect":
        tags, scheme = (outside if asked == "io" else {}), asked
    if names and None in labels and scheme != "none" and "O" not in {tags.get(label, label) for label in names}:
        tags[UNLABELLED] = "O"
    return tags, scheme


def described(labels: Collection[str], scheme: Scheme, tags: Mapping[str, str]) -> Iterator[str]:
    """Notes on the labels of the training words: their notation and types, and how they are scored."""
    bare = {one: one.strip("[]<>{}'\"") for one in labels}
    found = {one: way.fullmatch(bare[one]) for one in labels for way in _NOTATIONS[2:0:-1] if way.fullmatch(bare[one])}
    marked = [one for one, match in found.items() if match and match["mark"] in "BbIi"]
    if scheme == "none":
        advice = "Types of spans: --scheme io."
        if "B" in labels and {*labels} <= {*_MEANT, "O"}:
            advice = f"Marks of spans: --scheme {'bio' if {*labels} <= {*'BIO'} else 'bioes'}."
        for one in marked[:1]:
            odd = "".join(sorted(f", {one!r} does not" for one in {*labels} - {*marked, "O"})[:1])
            advice = f"{one!r} looks like a span's label{odd}; --scheme bio names the first such line."
        yield f"labels: {len(labels)} without spans, scored by accuracy. {advice}"
        return
    types = sorted({tag[2:] for label in labels if (tag := read_tag(label, scheme) or "O")[2:]})
    yield (
        f"labels: {scheme.upper()} of {shown(types)}. "
        "Spans are scored by seqeval's definition (conlleval's): same words, same type."
    )
    if tags:
        named = {"words without a label" if old == UNLABELLED else repr(old): new for old, new in tags.items()}
        changed = ", ".join(sorted(f"{old} as {new!r}" for old, new in named.items())[:4])
        yield f"{WARNING * (UNLABELLED in tags)}labels are read and predicted in the usual notation: {changed}."
    if scheme == "io" and marked:
        yield f"{WARNING}--scheme io takes {marked[0]!r} for a type, mark and all. Omit it, and marks are read."
    if "O" not in labels:
        yield f"{WARNING}no label is O, so every word is predicted to be in a span. Label the words outside of spans O."
    if len({*map(str.casefold, types)}) < len(types):
        yield f"{WARNING}types differ in case alone: {', '.join(map(repr, types[:12]))}."


class Span(NamedTuple):
    """Words `first` up to, not including, `stop`."""

    type: str
    first: int
    stop: int


class SpanCounts(NamedTuple):
    """The counts behind precision and recall. A share of nothing is 0, as in conlleval."""

    true: int = 0
    """Spans in the truth."""
    predicted: int = 0
    """Spans in the predictions."""
    right: int = 0
    """Spans in both: same words, same type."""

    @property
    def precision(self) -> float:
        """Share of the predicted spans that are right."""
        return self.right / max(self.predicted, 1)

    @property
    def recall(self) -> float:
        """Share of the true spans that were found."""
        return self.right / max(self.true, 1)

    @property
    def f1(self) -> float:
        """Harmonic mean of both."""
        return 2 * self.right / max(self.predicted + self.true, 1)


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


def count_spans(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> SpanCounts:
    """Counts over all types and sentences: the micro average, which is the one that papers report.

    Args:
        truth, predicted: the tags of each sentence, equally many in both.
    """
    both = [({*spans_of(true)}, {*spans_of(found)}) for true, found in zip(truth, predicted, strict=True)]
    return SpanCounts(
        true=sum(len(true) for true, _ in both),
        predicted=sum(len(found) for _, found in both),
        right=sum(len(true & found) for true, found in both),
    )
