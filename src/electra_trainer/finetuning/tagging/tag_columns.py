"""Sentences of a file of tagged words, and how it was read, which is kept with the model."""

from dataclasses import dataclass
from typing import Literal

from electra_trainer.finetuning.examples import TaggedSentence
from electra_trainer.finetuning.tagging.word_splitting import Splitting

UNLABELLED = "_"
"""Label of a word that is neither learned nor scored."""


@dataclass(frozen=True, kw_only=True)
class TagColumns:
    """How a file was read. Columns have a name, or a number counted from 1."""

    kind: Literal["columns", "pairs", "treebank", "rows", "text"] = "columns"
    """Columns of a text file; word/TAG; CoNLL-U; objects or rows of a table; running text."""
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
