"""Calls from Python: arguments are held against the types of their parameters."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from os import PathLike
from types import EllipsisType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from electra_trainer.errors import ConfigError
from electra_trainer.settings.records import read_values

P = ParamSpec("P")
R = TypeVar("R")
Made = TypeVar("Made", bound=type)


def checked(function: Callable[P, R], *, name: str = "", fills: Sequence[type] = ()) -> Callable[P, R]:
    """A function for programs: a keyword that it does not have, or a value of another type, is a ConfigError; numbers
    and lists of NumPy become Python's.

    Args:
        function: the function.
        name: its name in messages, where it has another one.
        fills: dataclasses whose plain fields are its further keywords.
    """
    name, signature = name or function.__name__, inspect.signature(function)
    *_, last = signature.parameters.values()

    @wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> R:
        hints = _parameters(function, fills)
        read_values(hints, {one: None for one in given if one not in hints}, where=name)
        try:
            table = signature.bind(*args, **given).arguments
        except TypeError as error:
            raise ConfigError(f"{name}: {error}. Its parameters: {', '.join(hints)}.") from None
        table |= table.pop(last.name, {}) if last.kind is last.VAR_KEYWORD else {}
        plain = {one: _python(name, one, value, hints[one]) for one, value in table.items() if one in hints}
        return function(**table | read_values(hints, plain, where=name))  # type: ignore[call-arg]

    return call


def _parameters(function: Callable[..., Any], fills: Sequence[type]) -> dict[str, Any]:
    """Keywords of a function with their types, those of the dataclasses that it fills included; Any: not checked."""
    hints = get_type_hints(function)
    hints.pop("return", None)
    if fills:
        hints.pop([*inspect.signature(function).parameters][-1])
    for kind in fills:
        own = get_type_hints(kind)
        names = [one.name for one in dataclasses.fields(kind) if not dataclasses.is_dataclass(own[one.name])]
        hints = {name: own[name] for name in names if name != "typed"} | hints
    return {name: hint if all(map(_is_plain, _leaves(hint))) else Any for name, hint in hints.items()}


def checked_class(made: Made) -> Made:
    """A dataclass whose fields are held against their types when it is made; see `checked`."""
    made.__init__ = checked(made.__init__, name=made.__name__)  # type: ignore[misc]
    return made


def _leaves(hint: Any) -> set[Any]:
    """The types that a union or list is made of."""
    made_of = get_origin(hint) in (Union, UnionType, tuple, list, Sequence)
    return set().union(*map(_leaves, get_args(hint))) if made_of else {hint}


def _is_plain(one: Any) -> bool:
    is_class = isinstance(one, type | EllipsisType) and not getattr(one, "_is_protocol", False)
    return is_class or get_origin(one) is Literal


def _python(function: str, name: str, value: Any, hint: Any) -> Any:
    """Numbers and lists of NumPy and the like as Python's, where the parameter takes plain values."""
    if hint is Any or isinstance(value, str | bytes | Mapping | PathLike):
        return [value] if isinstance(value, str) and get_origin(hint) is tuple else value
    if hasattr(value, "to_csv") and hasattr(value, "columns"):
        kind = type(value).__name__
        raise ConfigError(f"{function}: {name} is a {kind}. Write it with .to_csv(FILE, index=False), and give FILE.")
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Iterable):
        return [one if isinstance(one, str) else _python(function, name, one, hint) for one in value]
    whole = isinstance(value, float) and value.is_integer() and {int, float} & _leaves(hint) == {int}
    return int(value) if whole else value
