"""How flags are shown and read: values have names, not types; a default that says nothing is left out; 1e5 and 100k are numbers.

tyro asks a registry how to read a type and which fields a class has; ours answers for numbers and dataclasses, and leaves the rest to it.
"""

import dataclasses
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9}
_SILENT = ("", "None", "False")
"""Defaults that a reader learns nothing from: the flag is simply not given."""
_ALIASES = {("Optimizer", "learning_rate"): ("--learning-rate", "--lr"), ("BatchShape", "size"): ("--batch-size",)}
"""Short names that people try, by class and field of the settings."""


def whole_number(text: str) -> int:
    """`100000`, `1e5`, `100k` and `0.1M` are one number.

    Raises:
        ValueError: it is not a whole number.
    """
    try:
        return int(text)
    except ValueError:
        unit = _UNITS.get(text[-1:].lower())
        value = float(text[:-1]) * unit if unit else float(text)
    if not value.is_integer():
        raise ValueError
    return int(value)


_NAMES: dict[Any, str] = {int: "N", float: "X"}
_WORDS = {"out": "FOLDER", "engine": "FOLDER", "init": "MODEL", "continue_from": "RUN", "paths": "FOLDERS"}
"""Names of values that the flag's own does not say."""
_APPENDED = get_args(tyro.conf.UseAppendAction[str])[1]
"""Marks a flag that is given once for each of its values."""
_READ: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("a whole number, for example 1000, 1e3 or 1k", whole_number),
    float: ("a number, for example 0.5 or 5e-4", float),
    str: ("a text", str),
    Path: ("a path", Path),
}


def registry() -> ConstructorRegistry:
    """What tyro is to know of our flags."""
    found = ConstructorRegistry()
    found.primitive_rule(_reading)
    found.struct_rule(_Fields())
    return found


def _reading(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Numbers, texts and paths, each also where it may be None."""
    kind, optional = _without_none(info.type)
    if kind not in _READ or not (optional or kind in _NAMES):
        return None
    expected, read = _READ[kind]

    def from_words(words: list[str]) -> Any:
        if optional and words[0] == "None":
            return None
        try:
            return read(words[0])
        except ValueError:
            raise ValueError(f"expected {expected}") from None

    return PrimitiveConstructorSpec(
        nargs=1, metavar=_NAMES.get(kind, "TEXT"), instance_from_str=from_words,
        is_instance=lambda value: (optional and value is None) or (isinstance(value, kind) and not isinstance(value, bool)),
        str_from_instance=lambda value: [str(value)],
    )  # fmt: skip


class _Fields:
    """A dataclass as tyro sees it, with the names of its values and without silent defaults."""

    def __init__(self) -> None:
        self._inside: list[Any] = []  # tyro's own rule is asked for the class that this one is asked for

    def __call__(self, info: StructTypeInfo) -> StructConstructorSpec | None:
        if not dataclasses.is_dataclass(info.type) or info.type in self._inside:
            return None
        self._inside.append(info.type)
        try:
            spec = ConstructorRegistry.get_struct_spec(info)
        finally:
            self._inside.pop()
        if not isinstance(spec, StructConstructorSpec):
            return None
        return dataclasses.replace(spec, fields=tuple(_named(info.type.__name__, field) for field in spec.fields))


def _named(owner: str, field: StructFieldSpec) -> StructFieldSpec:
    hint: Any = field.type
    told = tyro.conf.arg(
        metavar=_metavar(field.name, hint), aliases=_ALIASES.get((owner, field.name)),
        help_behavior_hint=lambda label: "" if label in _SILENT else f"Default: {label}.",
    )  # fmt: skip
    named: Any = Annotated[hint, told]
    return dataclasses.replace(field, type=named)


def _metavar(name: str, hint: Any) -> str | None:
    """`RUN`, `N`, `FILE [FILE ...]`, `{a,b}`; None where tyro's own says as much."""
    kind, optional = _without_none(_bare(hint))
    if kind is bool or get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind) or (True, False))) + "}" if optional else None
    word = _WORDS.get(name, name.rpartition("_")[2].upper())
    if get_origin(kind) is tuple:
        one = _NAMES.get(get_args(kind)[0], word.removesuffix("S"))
        return one if _APPENDED in get_args(hint) else f"{one} [{one} ...]"
    return _NAMES.get(kind, word)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _without_none(hint: Any) -> tuple[Any, bool]:
    """`(T, True)` of `T | None`, `(hint, False)` of anything else."""
    if get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in get_args(hint) if each is not type(None)]
        if len(rest) == 1 and len(rest) < len(get_args(hint)):
            return rest[0], True
    return hint, False
