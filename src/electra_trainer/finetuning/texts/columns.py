"""Which columns hold the text, its partner and the label: those that were named, or those that cannot be meant otherwise.

    label       --label; else the one column with a label's name; else, of two columns, the second
    text        --text; else, of two columns, the other one; else the one column with a text's name
    text pair   --text-pair; else none, unless two columns are named as a known pair (sentence1 and sentence2, ...)

Column names are compared without regard to case. Anything else is asked for, never guessed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from electra_trainer.errors import ConfigError, DataError, did_you_mean
from electra_trainer.files.tables import Table, texts
from electra_trainer.finetuning.examples import TextExample

LABELS = "label labels class target score category sentiment rating stars gold_label y value".split()
TEXTS = "text texts sentence review comment content body message document tweet utterance".split()
PAIRS = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text1", "text2"),
    ("text_a", "text_b"), ("sentence_a", "sentence_b"), ("question", "sentence"), ("text", "text_pair"),
)  # fmt: skip
_LOOKED_AT = 1000
"""Rows from which a likely column is guessed."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of columns."""

    text: str
    pair: str | None = None
    label: str | None = None
    """None for a file without labels."""

    def described(self) -> str:
        """What was taken, in words."""
        parts = [("text", self.text), ("text pair", self.pair), ("label", self.label)]
        return "columns: " + ", ".join(f"{what} = {name!r}" for what, name in parts if name is not None) + "."


def choose_columns(table: Table, *, text: str | None, text_pair: str | None, label: str | None) -> Columns:
    """Columns of a training file.

    Args:
        table: the file.
        text, text_pair, label: columns named by flags; None: by the rule above.

    Raises:
        ConfigError: a flag names no column, or one column twice; or a flag is needed.
    """
    _require_columns(table, text=text, text_pair=text_pair, label=label)
    names = [name for name in table.columns if name]
    if len(names) < 2:
        raise DataError(f"{table.path}: has one column ({names[0]!r}), expected a text and a label.")
    taken = (text, text_pair, label)
    if label is None:
        label = _only(table, "--label", LABELS, [name for name in names if name not in taken])
    if label is None and len(names) == 2:
        label = names[1] if names[1] not in taken else names[0]
    if label is None:
        raise _ask(table, "--label", "the label")
    left = [name for name in names if name != label]
    if text is None and text_pair is None:
        text, text_pair = _pair(left)
    text = text or _remaining_text(table, [name for name in left if name != text_pair])
    _require_columns(table, text=text, text_pair=text_pair, label=label)
    return Columns(text=text, pair=text_pair, label=label)


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
    _require_columns(table, text=text, text_pair=text_pair)
    names = [name for name in table.columns if name]
    if like is None and pair and text is None and text_pair is None:
        text, text_pair = _pair(names)
    if text is None and like is not None:
        text = _as_trained(table, like.text, flag="--text")
    text = text or _remaining_text(table, [name for name in names if name != text_pair])
    if text_pair is None and like is not None and like.pair is not None:
        text_pair = _as_trained(table, like.pair, flag="--text-pair")
    if text_pair is None and pair:
        raise _ask(table, "--text-pair", "the second text")
    _require_columns(table, text=text, text_pair=text_pair)
    return Columns(text=text, pair=text_pair)


def labelled_like(table: Table, columns: Columns) -> Columns:
    """The same columns in another file, the development set say; DataError: one is missing."""
    for name in (columns.text, columns.pair, columns.label):
        if name is not None:
            _as_trained(table, name, flag=None)
    return columns


def text_examples(table: Table, columns: Columns) -> list[TextExample]:
    """Examples without answers."""
    first = texts(table, columns.text)
    second: Sequence[str | None] = texts(table, columns.pair) if columns.pair is not None else [None] * len(first)
    return [
        TextExample(text=text, pair=pair, place=table.where(row))
        for row, (text, pair) in enumerate(zip(first, second, strict=True))
    ]


def _as_trained(table: Table, name: str, *, flag: str | None) -> str:
    if name not in table.columns:
        remedy = f" Rename it, or name it: {flag} COLUMN." if flag else " Name it as in the training file."
        raise DataError(
            f"{table.path}: has no column {name!r}, which the training file has.{did_you_mean(name, table.columns)} "
            f"Its columns: {_listed(table.columns)}.{remedy}"
        )
    return name


def _require_columns(table: Table, **named: str | None) -> None:
    """ConfigError: a named column is missing, or named twice."""
    flags: dict[str, str] = {}
    for field, name in named.items():
        flag = f"--{field.replace('_', '-')}"
        if name is None:
            continue
        if name not in table.columns:
            raise ConfigError(
                f"{flag} {name}: {table.path} has no such column.{did_you_mean(name, table.columns)} Its columns: {_listed(table.columns)}."
            )
        if name in flags:
            raise ConfigError(f"{flags[name]} and {flag} are both {name!r}. Name two different columns.")
        flags[name] = flag


def _only(table: Table, flag: str, known: Sequence[str], names: Iterable[str]) -> str | None:
    """The one of `names` that is known; ConfigError: several are."""
    found = [name for name in names if name.casefold() in known]
    if len(found) > 1:
        raise ConfigError(f"{table.path}: {_listed(found)} could all be meant. Name one: {flag} {_word(found[0])}")
    return found[0] if found else None


def _remaining_text(table: Table, left: Sequence[str]) -> str:
    """The column of the text: the only one left, or the one with a text's name; ConfigError: neither."""
    text = left[0] if len(left) == 1 else _only(table, "--text", TEXTS, left)
    if text is None:
        raise _ask(table, "--text", "the text")
    return text


def _pair(names: Sequence[str]) -> tuple[str, str] | tuple[None, None]:
    """Two columns named as a known pair."""
    folded = {name.casefold(): name for name in names}
    return next(((folded[one], folded[two]) for one, two in PAIRS if one in folded and two in folded), (None, None))


def _ask(table: Table, flag: str, what: str) -> ConfigError:
    """The question which column is meant, with a likely one as its example."""
    names = [name for name in table.columns if name]
    cells = {name: [str(cell) for cell in table.column(name)[:_LOOKED_AT]] for name in names}
    repeated = [name for name in names if 1 < len(set(cells[name])) <= len(cells[name]) // 2]
    if flag == "--label":
        likely = min(repeated or names[-1:], key=lambda name: len(set(cells[name])))
    else:
        likely = max(names, key=lambda name: (sum(map(len, cells[name])), name))
    return ConfigError(
        f"{table.path}: which column is {what}? Its columns: {_listed(names)}. Type, for example: {flag} {_word(likely)}"
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _word(name: str) -> str:
    return f'"{name}"' if not name.isidentifier() else name
