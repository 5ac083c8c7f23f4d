"""The kinds of tasks by name: what run.describe wrote down becomes a task again."""

from __future__ import annotations

import dataclasses
import importlib
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from electra_trainer.errors import ConfigError, DataError, did_you_mean
from electra_trainer.finetune.examples import TextExample
from electra_trainer.finetune.task import Task
from electra_trainer.reading import short

KINDS = {
    "Classification": "classification",
    "Regression": "regression",
    "Tagging": "tagging",
    "QuestionAnswering": "question_answering",
}
"""A task's class -> the module here that holds it."""


def task_from(description: object, *, where: str = "task", own: Collection[type[Task]] = ()) -> Task:
    """The task that `run.describe` described.

    Args:
        own: classes outside this package that it may be: a file names a task, and never chooses code.

    Raises:
        DataError: an unknown kind or field, or a value that it cannot have; `where` says in which file.
    """
    table = dict(description) if isinstance(description, Mapping) else {}
    kind = table.pop("kind", None)
    others = {made.__name__: made for made in own if made.__name__ not in KINDS}
    known = [*KINDS, *others]
    if not isinstance(kind, str) or kind not in known:
        raise DataError(
            f"{where}: unknown kind of task {short(kind)}.{did_you_mean(str(kind), known)} Known: {', '.join(known)}. A class of your own is "
            "given with own=[...]."
        )
    made: Any = others.get(kind) or getattr(importlib.import_module(f"electra_trainer.finetune.{KINDS[kind]}"), kind)
    hints = get_type_hints(made)
    fields = [field.name for field in dataclasses.fields(made)]
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in fields:
            raise DataError(
                f"{where}: a {kind} has no field {short(name)}.{did_you_mean(name, fields)} Known: {', '.join(fields)}."
            )
        if not _fits(value, hints[name]):
            raise DataError(f"{where}: {name} = {short(value)} cannot be. Export the run again.")
        values[name] = tuple(value) if isinstance(value, list) else value
    try:
        return cast(Task, made(**values))
    except (TypeError, ValueError, OverflowError, ConfigError) as error:
        raise DataError(f"{where}: not a {kind}: {error}") from None


def examples_of(task: Task, texts: Sequence[Any], *, pair: bool = False) -> list[Any]:
    """Examples without answers, of a kind of task, from plain values.

    Args:
        task: what is asked.
        texts: strings; for tagging lists of words; for questions (question, context).
        pair: texts are pairs of strings.

    Raises:
        DataError: one of them is something else.
    """
    kind = type(task).__name__
    if isinstance(texts, str):
        raise DataError("predict: expected a list of texts, found one text. Put it in brackets.")
    if kind == "Tagging":
        from electra_trainer.finetune.tagged_sentence import TaggedSentence

        sentences = [_strings(text, index, "a list of words") for index, text in enumerate(texts)]
        return [TaggedSentence(words=words, labels=(None,) * len(words)) for words in sentences]
    if kind == "QuestionAnswering":
        from electra_trainer.finetune.squad_files import Question

        asked = [_strings(text, index, "a question and its context", count=2) for index, text in enumerate(texts)]
        return [Question(id=str(index), question=one, context=two) for index, (one, two) in enumerate(asked)]
    if pair:
        both = [
            _strings(text, index, "a pair of texts, which it learned from", count=2) for index, text in enumerate(texts)
        ]
        return [TextExample(text=one, pair=two) for one, two in both]
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"predict: item {index} is {text!r:.60}, expected a text.")
    return [TextExample(text=text) for text in texts]


def _strings(value: Any, index: int, expected: str, *, count: int | None = None) -> tuple[str, ...]:
    strings = (
        not isinstance(value, str) and isinstance(value, Sequence) and all(isinstance(item, str) for item in value)
    )
    if not strings or not value or count not in (None, len(value)):
        raise DataError(f"predict: item {index} is {value!r:.60}, expected {expected}.")
    return tuple(value)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a plain value can stand in a field of that type."""
    origin, members = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, member) for member in members)
    if origin is Literal:
        return value in members and not isinstance(value, bool)
    if origin is tuple:
        return isinstance(value, list | tuple) and all(_fits(item, members[0]) for item in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)
