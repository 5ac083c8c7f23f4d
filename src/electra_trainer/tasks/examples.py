"""Examples of texts and of tagged sentences, and the files that predictions are written to. No torch here.

Which columns hold the text, its partner and the label: those that were named, or those that cannot be meant otherwise.

    label       --label; else the one column with a label's name; else, of two columns, the second
    text        --text; else, of two columns, the other one; else the one column with a text's name
    text pair   --text-pair; else none, unless two columns are named as a known pair (sentence1 and sentence2, ...)

Column names are compared without regard to case. Anything else is asked for, never guessed.

Without a development file a tenth of the training file is held out, the same on every machine and in every run. Rows
with the same text (or pair) stay on one side. Within each class texts are ordered by a hash, and the first are held
out, so that class shares are kept; every class keeps a text to learn from. Sentences are held out in hash order, except
those that contain a label's only remaining words.
"""

import hashlib
import json
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, NoReturn, TypeVar

import numpy as np

from electra_trainer.data.legibility import UNREADABLE_IS_MUCH
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.files import tables, wording
from electra_trainer.files.reading import short
from electra_trainer.files.tables import NUMBER, SEVERAL, Table, decimal_sign, looks_listed, plain_number, shown, texts

Prediction = dict[str, Any]
"""The prediction for one example, ready for JSON: {"label": ...}, {"value": ...}, {"tags": [...]}, {"text": ...}."""


@dataclass(frozen=True, kw_only=True)
class TextExample:
    """A text, or a pair, with its label if it has one."""

    text: str
    pair: str | None = None
    label: str | None = None
    """The label as written in the file."""
    labels: tuple[str, ...] | None = None
    """Its labels, where a text may have several; None: not known."""
    value: float | None = None
    """The number that a regression task learns, in the file's own units."""
    place: str = ""
    """`file:line`, for messages."""
    id: str | None = None
    """Its id in the file; predictions carry it."""


@dataclass(frozen=True, kw_only=True)
class TaggedSentence:
    """An example: a sentence of words, each with its label if it has one."""

    words: tuple[str, ...]
    labels: tuple[str | None, ...]
    """One per word; None: not labelled, so neither learned nor scored."""
    file: str = ""
    lines: tuple[int, ...] = ()
    """The line of each word in `file`, counted from 1."""

    def __post_init__(self) -> None:
        if len(self.words) != len(self.labels):
            raise ValueError(f"{self.place_of(0)}: {len(self.words)} words and {len(self.labels)} labels.")

    def place_of(self, word: int) -> str:
        """`file:line` of a word, for messages."""
        return f"{self.file}:{self.lines[word]}" if self.lines else self.file


def strings(value: Any, index: int, expected: str, *, count: int | None = None) -> tuple[str, ...]:
    """`value`, the `index`-th to be predicted, as a tuple of strings. Raises DataError if it is not one, or not of
    `count`.
    """
    fits = not isinstance(value, str) and isinstance(value, Sequence) and all(isinstance(item, str) for item in value)
    if not fits or not value or count not in (None, len(value)):
        raise DataError(f"predict: item {index} is {value!r:.60}, expected {expected}.")
    return tuple(value)


MANY = 20
"""Most classes that get a column each for their probabilities; labels of which a text may have several always do."""


def predicted_csv(table: Table, predictions: Sequence[Prediction | None], *, separator: str = ";") -> str:
    """CSV in the form of the input: the columns of `table`, then `prediction`; for classes also `probability` (the
    predicted one's), `unsure` where it is known, and one column per label. Several labels of a text have `separator`
    between them; a row without a prediction has empty cells. In a table with semicolons numbers have a decimal comma,
    as spreadsheets read it, unless its own have points.
    """
    sign = "," if table.semicolons and all(decimal_sign(table, name)[0] == "," for name in table.columns) else "."
    names, predicted = list(table.columns), [_flat(one, separator, sign) if one else {} for one in predictions]
    new, rows = next(filter(None, predicted)), []
    for row, cells in zip(table.rows, predicted, strict=True):
        own = [cell if isinstance(cell, str) else "" if cell is None else json.dumps(cell) for cell in row]
        rows.append([*own, *[""] * (len(table.columns) - len(row)), *(cells.get(name, "") for name in new)])
    whole = wording.Table(head=[*table.columns, *(_free(name, names) for name in new)], rows=rows)
    return "\ufeff" * table.marked + whole.csv(";" if table.semicolons else ",")


def _flat(prediction: Prediction, separator: str, sign: str) -> dict[str, str]:
    """Column -> cell; `sign` is the decimal one."""
    if (shares := prediction.get("probabilities")) is None:
        answer = _answer(prediction)
        return {"prediction": answer if isinstance(answer, str) else f"{answer:.9g}".replace(".", sign)}
    several = "labels" in prediction
    figures = {name: f"{share:.6f}".replace(".", sign) for name, share in shares.items()}
    each = {f"probability_{name}": share for name, share in figures.items() if several or len(shares) <= MANY}
    if several:
        return {"prediction": separator.join(prediction["labels"]), **each}
    sure = {"unsure": "yes" if prediction["unsure"] else "no"} if "unsure" in prediction else {}
    return {"prediction": _answer(prediction), "probability": figures[prediction["label"]], **sure, **each}


def predicted_jsonl(table: Table, predictions: Iterable[Prediction | None]) -> str:
    """One JSON object per row: its columns, `prediction` (null for a row without one) and, for classes,
    `probabilities`.
    """
    lines = []
    for values, prediction in zip(table.rows, predictions, strict=True):
        row: dict[str, Any] = dict(zip(table.columns, values, strict=False))
        more = {name: prediction[name] for name in ("probabilities", "unsure") if prediction and name in prediction}
        new = {"prediction": _answer(prediction) if prediction else None} | more
        lines.append({**row, **{_free(name, list(row)): value for name, value in new.items()}})
    return jsonl(lines)


def tagged_text(predictions: Iterable[Prediction]) -> str:
    """A word, a tab and its tag per line, a blank line after each sentence."""
    return "".join(
        "".join(f"{word}\t{tag}\n" for word, tag in zip(predicted["words"], predicted["tags"], strict=True)) + "\n"
        for predicted in predictions
    )


def jsonl(predictions: Iterable[Prediction]) -> str:
    """One JSON object per prediction, with the fields that its task gives it."""
    return "".join(json.dumps(predicted) + "\n" for predicted in predictions)


def by_id(predictions: Iterable[Prediction], name: str) -> str:
    """{id: prediction[name]}. Of "text" what SQuAD's official scripts score ("" is no answer, 2.0); of
    "no_answer_score" what evaluate-v2.0.py reads as --na-prob-file: the larger, the less likely there is an answer.
    """
    return json.dumps({predicted["id"]: predicted[name] for predicted in predictions}, indent=1) + "\n"


def _answer(prediction: Prediction) -> Any:
    return next(prediction[name] for name in ("label", "labels", "value") if name in prediction)


def _free(name: str, taken: list[str]) -> str:
    """`name`, with underscores appended until no column has it."""
    while name in taken:
        name += "_"
    taken.append(name)
    return name


LABELS = "label labels class target score category sentiment rating stars gold_label y value".split()
TEXTS = "text texts sentence review comment content body message document tweet utterance".split()
PAIRS = (("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text", "text_pair"))


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of columns."""

    text: str
    pair: str | None = None
    label: str | None = None
    """None for a file without labels."""
    separator: str | None = None
    """Between several labels in the column `label`."""
    labels: tuple[str, ...] = ()
    """Columns of 0 and 1, one for each label."""

    def described(self) -> str:
        """A sentence on the columns that were taken."""
        parts = [("text", self.text), ("text pair", self.pair), ("label", self.label)]
        parts += [("label", name) for name in self.labels]
        return "columns: " + ", ".join(f"{what} = {name!r}" for what, name in parts if name is not None) + "."


def choose_columns(
    table: Table, *, text: str | None, text_pair: str | None, label: str | None, labels: Sequence[str] = ()
) -> Columns:
    """Columns of a training file.

    Args:
        table: the file.
        text, text_pair, label: columns named by flags; None: by the rule above.
        labels: columns of 0 and 1, one for each label, instead of `label`.

    Raises:
        ConfigError: a flag names no column, or one column twice; or a flag is needed.
    """
    text, text_pair, label = (_written(table, name) for name in (text, text_pair, label))
    _require_columns(table, text=text, text_pair=text_pair, label=label)
    for name in labels:
        _require_columns(table, labels=name, text=text, text_pair=text_pair)
    names = [name for name in table.columns if name]
    if len(names) < 2:
        raise DataError(f"{table.path}: has one column ({names[0]!r}), expected a text and a label.")
    if label is None and not labels:
        free = [name for name in names if name not in (text, text_pair)]
        second = (names[1] if names[1] in free else names[0]) if len(names) == 2 else None
        label = _only(LABELS, free) or second or _ask(table, "--label", "the label")
    taken = (label, *labels)
    if text is None and text_pair is None:
        text, text_pair = _known_pair([name for name in names if name not in taken])
    text = text or _remaining_text(table, text_pair, *taken)
    _require_columns(table, text=text, text_pair=text_pair, label=label)
    return Columns(text=text, pair=text_pair, label=label, labels=tuple(labels))


def _known_pair(names: Sequence[str]) -> tuple[str | None, str | None]:
    """The first known pair of columns among `names`."""
    folded = {name.casefold(): name for name in names}
    return next(((folded[a], folded[b]) for a, b in PAIRS if a in folded and b in folded), (None, None))


def choose_texts(
    table: Table, like: Columns | None, *, text: str | None = None, text_pair: str | None = None, pair: bool = False
) -> Columns:
    """Columns of a file to be predicted: those named by flags, or those of training.

    Args:
        table: the file.
        like: the columns of training, where they are known.
        text, text_pair: columns named by flags.
        pair: whether a pair is needed, where `like` does not say.

    Raises:
        ConfigError: a flag names no column, or a flag is needed. DataError: a column of training is missing.
    """
    text, text_pair = _written(table, text), _written(table, text_pair)
    _require_columns(table, text=text, text_pair=text_pair)
    if like is not None and like.pair is None and text_pair is not None:
        raise ConfigError(f"--text-pair {text_pair}: the model was trained on single texts. Leave it out.")
    if like is None and pair and text_pair is None:
        _ask(table, "--text-pair", "the second text")
    known = like or Columns(text=text or _remaining_text(table, text_pair))
    found = as_trained(table, Columns(text=text or known.text, pair=text_pair or known.pair))
    _require_columns(table, text=found.text, text_pair=found.pair)
    return found


def as_trained(table: Table, columns: Columns) -> Columns:
    """Columns of training in another file, such as the development set. Raises DataError if one is missing."""
    columns = as_written(table, columns)
    for name in (columns.text, columns.pair, columns.label, *columns.labels):
        if name not in (None, *table.columns):
            raise DataError(
                f"{table.path}: has no column {name!r}, which the training file has. Its columns: {_listed(table)}. "
                "Rename it; in a file to predict it can be named: --text COLUMN, --text-pair COLUMN."
            )
    return columns


def as_written(table: Table, columns: Columns) -> Columns:
    """Columns with their names in another file, where these differ in case alone; names of labels stay."""
    same: dict[str, Any] = {field: _written(table, getattr(columns, field)) for field in ("text", "pair", "label")}
    return replace(columns, **same)


def _written(table: Table, name: str | None) -> str | None:
    """The name of a column as the file has it, where one alone is the same but for the case."""
    found = [own for own in table.columns if name is not None and own.casefold() == name.casefold()]
    return found[0] if len(found) == 1 else name


def text_examples(table: Table, columns: Columns) -> list[TextExample]:
    """Examples without answers."""
    first = texts(table, columns.text)
    second: Sequence[str | None] = texts(table, columns.pair) if columns.pair is not None else [None] * len(first)
    return [
        TextExample(text=text, pair=pair, place=table.where(row))
        for row, (text, pair) in enumerate(zip(first, second, strict=True))
    ]


def _require_columns(table: Table, **named: str | None) -> None:
    """ConfigError: a named column is missing, or named twice."""
    given = {f"--{field.replace('_', '-')}": name for field, name in named.items() if name is not None}
    for flag, name in given.items():
        if name not in table.columns:
            raise ConfigError(f"{flag} {name}: {table.path} has no such column. Its columns: {_listed(table)}.")
        if list(given.values()).count(name) > 1:
            flags = " and ".join(flag for flag, other in given.items() if other == name)
            raise ConfigError(f"{flags} are both {name!r}. Name two different columns.")


def _only(known: Sequence[str], names: Iterable[str]) -> str | None:
    """The one of `names` that is known; None: there is none, or several."""
    found = [name for name in names if name.casefold() in known]
    return found[0] if len(found) == 1 else None


def _remaining_text(table: Table, *taken: str | None) -> str:
    """The column of the text: the only one left, or the one with a text's name. Raises ConfigError without either."""
    left = [name for name in table.columns if name and name not in taken]
    return (left[0] if len(left) == 1 else _only(TEXTS, left)) or _ask(table, "--text", "the text")


def _ask(table: Table, flag: str, what: str) -> NoReturn:
    raise ConfigError(f"{table.path}: which column is {what}? Its columns: {_listed(table)}. Name it: {flag} COLUMN")


def _listed(table: Table) -> str:
    return shown([short(name) for name in table.columns if name])


SHARE = 0.1
FOLDS = 5
"""Parts of a small table, each predicted by a model that learned from the others."""
_RANGES = 10
"""Most ranges of a regression's values; the same share of each is held out."""
E = TypeVar("E")


Split = tuple[list[E], list[E]]
"""Examples to learn from, and examples held out; each in the order of the file."""


def _split(examples: Sequence[E], chosen: Collection[int], *, where: str, what: str) -> Split[E]:
    if not chosen:
        raise DataError(f"{where}: has too few {what} to hold some out. Add {what}, or give a --dev file.")
    train = [example for index, example in enumerate(examples) if index not in chosen]
    return train, [examples[index] for index in sorted(chosen)]


def held_out(dev: Sequence[E], train: Sequence[E], what: str) -> str:
    """A note on `dev`, which was split off the examples `train`."""
    return f"{len(dev):,} of {len(train):,} {what} were held out to be scored; no text is on both sides."


def _groups(texts: Iterable[E]) -> dict[E, list[int]]:
    """The places of each text."""
    groups: dict[E, list[int]] = {}
    for index, text in enumerate(texts):
        groups.setdefault(text, []).append(index)
    return groups


def same_text(example: TextExample | TaggedSentence) -> str:
    """The texts without regard to case and spaces: equal if two examples say the same."""
    if isinstance(example, TaggedSentence):
        return "\n".join(example.words).casefold()
    first = " ".join(example.text.casefold().split())
    return first if example.pair is None else first + "\n" + " ".join(example.pair.casefold().split())


def hold_out(examples: Sequence[TextExample], *, where: str, share: float = SHARE) -> Split[TextExample]:
    """Split labelled examples; `where` is what they were read from.

    Raises:
        DataError: too few different texts, or too few in each class.
    """
    groups = _groups(map(same_text, examples))
    if len(groups) < 2:
        raise DataError(f"{where}: has one text only, so none can be held out. Add rows, or give a --dev file.")
    strata, texts = strata_of(examples), list(groups)
    members = _groups(strata[groups[text][0]] for text in texts)
    chosen: set[int] = set()
    for stratum, count in _quotas({name: len(found) for name, found in members.items()}, share=share).items():
        ordered = sorted((texts[index] for index in members[stratum]), key=hash_of)
        chosen.update(row for text in ordered[:count] for row in groups[text])
    if examples[0].value is None:
        chosen = _leave_every_class(groups, chosen, [label_names(example) for example in examples])
    return _split(examples, chosen, where=where, what="rows")


def folds(examples: Sequence[TextExample]) -> tuple[tuple[int, ...], ...]:
    """Numbers of the examples in each of `FOLDS` parts with the same shares of the classes, equal texts in one part;
    empty where no class has as many texts.
    """
    from sklearn.model_selection import StratifiedKFold

    rows, strata = [*_groups(map(same_text, examples)).values()], strata_of(examples)
    of_text = [strata[first] for first, *_ in rows]
    if max(Counter(of_text).values()) < FOLDS:
        return ()
    with warnings.catch_warnings(action="ignore"):  # a class with fewer texts
        parts = [held for _, held in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(of_text, of_text)]
    return tuple(tuple(sorted(row for text in held for row in rows[text])) for held in parts)


def hold_out_sentences(sentences: Sequence[TaggedSentence], *, where: str) -> Split[TaggedSentence]:
    """Split sentences; those with the same words are on one side.

    Raises:
        DataError: too few different sentences, or each of them has a label that no other has.
    """
    groups = _groups(map(same_text, sentences))
    left = Counter(label for sentence in sentences for label in sentence.labels if label is not None)
    chosen: set[int] = set()
    wanted = max(1, round(SHARE * len(groups)))
    for text in sorted(groups, key=hash_of):
        own = Counter(label for row in groups[text] for label in sentences[row].labels if label is not None)
        if wanted and own and all(left[label] > count for label, count in own.items()):
            left.subtract(own)
            chosen.update(groups[text])
            wanted -= 1
    return _split(sentences, chosen, where=where, what="sentences")


def label_names(example: TextExample) -> tuple[str, ...]:
    """The label of an example, or its labels."""
    return (str(example.label),) if example.labels is None else example.labels


def _leave_every_class(
    groups: Mapping[str, list[int]], chosen: set[int], labels: Sequence[tuple[str, ...]]
) -> set[int]:
    """`chosen` without texts that have the last rows of a class, such as a text that occurs with two labels."""
    left = {label for row, own in enumerate(labels) if row not in chosen for label in own}
    kept = set(chosen)
    for rows in groups.values():
        if rows[0] in kept and any(not left.issuperset(labels[row]) for row in rows):
            kept.difference_update(rows)
            left.update(label for row in rows for label in labels[row])
    return kept


def strata_of(examples: Sequence[TextExample]) -> list[str]:
    """The class of each example; of several labels the rarest; for numbers, their range."""
    if examples[0].labels is not None:
        counts = Counter(label for example in examples for label in label_names(example))
        return [min(label_names(example), key=lambda one: (counts[one], one), default="") for example in examples]
    if examples[0].value is None:
        return [str(example.label) for example in examples]
    values = np.array([example.value for example in examples], dtype=np.float64)
    ranges = max(1, min(_RANGES, round(SHARE * len(values))))
    edges = np.unique(np.quantile(values, np.linspace(0, 1, ranges + 1)[1:-1]))
    return [f"{number:02d}" for number in np.searchsorted(edges, values, side="right")]


def _quotas(sizes: dict[str, int], *, share: float) -> dict[str, int]:
    """Texts to hold out of each stratum: largest remainders, at least one in all, and never a whole stratum."""
    total = max(1, round(share * sum(sizes.values())))
    quotas = {name: min(int(size * share), size - 1) for name, size in sizes.items()}
    by_remainder = sorted(sizes, key=lambda name: (-(sizes[name] * share - quotas[name]), -sizes[name], hash_of(name)))
    for name in by_remainder:
        if sum(quotas.values()) < total and quotas[name] < sizes[name] - 1:
            quotas[name] += 1
    return quotas


def hash_of(text: str) -> bytes:
    """SHA-256, by which texts are ordered without regard to their place in a file."""
    return hashlib.sha256(text.encode()).digest()


def digest_of(example: Any) -> str:
    """16 hexadecimal digits, the same for texts, or tagged sentences, that say the same; empty for other examples."""
    return hash_of(same_text(example)).hex()[:16] if isinstance(example, TextExample | TaggedSentence) else ""


WARNING = "warning: "
"""Marks a sentence as a warning among notes."""
MARKS = "".join(sign for sign in map(chr, range(0x300, 0x10000)) if unicodedata.category(sign)[0] == "M")
"""Signs that combine with the letter before them, for a set of a regular expression."""


def overlap(
    train: Sequence[TextExample], dev: Sequence[TextExample], what: str = "development", other: str = "training"
) -> list[str]:
    """A warning about texts that occur in both files, if there are any; `what` is the one of `dev`, `other` that of
    `train`.
    """
    first = {same_text(example): example for example in reversed(train)}
    both = [(first[text], example) for example in dev if (text := same_text(example)) in first]
    if not both:
        return []
    one, two = (PurePath(example.place).name for example in both[0])
    return [
        f"{WARNING}{len(both):,} of {len(dev):,} {what} rows ({100 * len(both) / len(dev):.3g} %) are in the "
        f"{other} file too, so the scores are too good: {two} is {one}."
    ]


def _answers(example: TextExample) -> Any:
    return example.label, example.value, example.labels and {*example.labels}


def contradictions(train: Sequence[TextExample], ids: Sequence[tuple[int, ...]] = ()) -> list[str]:
    """A warning about texts that occur with different labels or values, if there are any. With the token ids of each:
    about different texts that have the same, as where [UNK] stands for different symbols.
    """
    keys: Sequence[Any] = ids or [*map(same_text, train)]
    first = dict(zip(reversed(keys), reversed(train), strict=True))
    pairs = [(first[key], one) for key, one in zip(keys, train, strict=True)]
    pairs = [(one, two) for one, two in pairs if _answers(one) != _answers(two)]
    if ids:
        pairs = [(one, two) for one, two in pairs if same_text(one) != same_text(two)]
    if len(pairs) <= UNREADABLE_IS_MUCH * len(train) * bool(ids):
        return []
    one, two = (
        f"{short(each.text) if ids else PurePath(each.place).name} ({each.label or each.labels or each.value!r})"
        for each in pairs[0]
    )
    what = "have the token ids of another with a different text and" if ids else "repeat the text of another with a"
    return [f"{WARNING}{len(pairs):,} of {len(train):,} training rows {what} different label: {two} and {one}."]


def meaning(label: str) -> float | str:
    """The value of a label that is a number; the letters of others, without regard to case, width, spaces and invisible
    characters.
    """
    signs = unicodedata.normalize("NFKC", label)
    text = "".join(one for one in signs if unicodedata.category(one) != "Cf" and one not in "\ufe0e\ufe0f")
    # of longer numbers float has not every digit
    return float(text) if NUMBER.fullmatch(text) and len(text) < 16 else " ".join(text.casefold().split())


def odd_labels(names: Sequence[str], columns: Columns) -> Iterator[str]:
    """Notes on classes that may not be what they look like."""
    if missing := [name for name in names if name.lower() in tables.MISSING]:
        yield f"{WARNING}{missing[0]!r} is a class like the others. Delete such rows if no label is meant."
    found = [meaning(name) for name in names]
    alike = [" and ".join(repr(names[at]) for at in places) for places in _groups(found).values() if len(places) > 1]
    if alike:
        yield f"{WARNING}{shown(alike, 200)} look alike, and are classes of their own."
    if columns.separator is not None or columns.labels:
        return
    if listed := [name for name in names if looks_listed(name)]:
        yield f"{WARNING}{len(listed):,} of {len(names):,} classes look like lists, such as {listed[0]}. {SEVERAL}."
    yield from _numbers(
        [name for name, value in zip(names, found, strict=True) if isinstance(value, float)], len(names)
    )


def _numbers(figures: Sequence[str], count: int) -> Iterator[str]:
    """A note on many classes that are numbers, of `count` classes."""
    whole = all(re.fullmatch(r"[-+]?\d+(\.0*)?", name) for name in figures)
    if len(figures) > (MANY if whole else 10) and not any(re.match(r"0\d", name) for name in figures):
        what = f"{len(figures):,} of {count:,} classes are numbers, such as {figures[0]!r}"
        yield f"{what}. If their size matters, use --task regression."


def odd_numbers(table: Table, column: str) -> Iterator[str]:
    """Notes on numbers that may not be what they look like."""
    sign, doubtful = decimal_sign(table, column)
    cells = [cell.strip() for cell in table.column(column) if isinstance(cell, str)]
    bare = [cell for cell in cells if re.fullmatch(r"[-+]?\d+", cell)]
    if parted := [cell for cell in cells if len(plain_number(cell, sign)) < len(cell)]:
        what = f"{len(parted):,} of {len(cells):,} numbers have signs between thousands"
        yield f"{WARNING * bool(doubtful)}{what}: {parted[0]} is read as {plain_number(parted[0], sign)}."
    doubtful = [cell for cell in doubtful if sign in cell]
    if doubtful and ((table.semicolons and (bare or sign == ".")) or any(len(cell.lstrip("+-")) > 2 for cell in bare)):
        count, point = f"{len(doubtful):,} of {len(cells):,} numbers", "point" if sign == "." else "comma"
        what = f"{count}, such as {doubtful[0]}," if bare else f"{doubtful[0]} and all others"
        yield f"{WARNING}{what} have a decimal {point}. Remove {point}s that part thousands."
