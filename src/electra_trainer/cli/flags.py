"""How flags are shown and read: values have names, not types; a default that says nothing is left out; 1e5 and 100k are
numbers.

tyro asks a registry how to read a type and which fields a class has; ours answers for numbers and dataclasses, and
leaves the rest to it.
"""

import dataclasses
import types
from collections.abc import Callable, Collection
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
_DECIDED = {"Model.vocab_size", "BatchShape.sequence_length"}
"""Settings that the prepared data decides: no help has them."""
_REQUESTS = ("Finetune", "Glue", "Squad", "Compare", "Table", "Figure", "Cloze", "MinimalPairs")
_OWN = ("Arguments", "Flags", "Config", "Changes", *_REQUESTS)
"""Endings of the classes whose fields are flags without a prefix."""


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
_WORDS = {
    "budget": "TIME", "config": "FILE", "continue_from": "RUN", "dev": "FILE", "engine": "FOLDER",
    "generator": "NAME", "grace": "SECONDS", "init": "MODEL", "label": "COLUMN", "objective": "NAME",
    "out": "FOLDER", "paths": "FOLDERS", "patience": "SECONDS", "phases": "NAME", "predict": "FILE",
    "preset": "NAME", "recipe": "NAME", "seeds": "N", "shard": "I/N", "text_pair": "COLUMN", "to": "NAMES",
    "track": "NAMES", "train": "FILE", "zip": "FILE",
}  # fmt: skip
"""Names of values that the flag's own does not say."""
_APPENDED = get_args(tyro.conf.UseAppendAction[str])[1]
"""Marks a flag that is given once for each of its values."""
_HIDDEN = get_args(tyro.conf.Suppress[str])[1]
_FILE_OF_FLAGS = "JSON or TOML file with any of these flags, which override it; `electra show VERB --toml` prints one."
_SAID = {"yes": True, "no": False, "true": True, "false": False}
_READ: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("a whole number, for example 1000, 1e3 or 1k", whole_number),
    float: ("a number, for example 0.5 or 5e-4", float),
    str: ("a text", str),
    Path: ("a path", Path),
    bool: ("yes or no", lambda text: _SAID[text.lower()]),
}


def registry(*, for_help: bool = False, brief: Collection[str] = ()) -> ConstructorRegistry:
    """What tyro is to know of our flags.

    Args:
        for_help: leave out flags that help does not show; to parse, all are needed.
        brief: the only flags that help shows, if there are any: `out`, and `Optimizer.learning_rate` of a group of
            settings.
    """
    found = ConstructorRegistry()
    found.primitive_rule(_reading)
    found.struct_rule(_Fields(for_help, brief))
    return found


def _reading(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Numbers, texts and paths, each also where it may be None; yes and no where a flag takes them as a value."""
    kind, optional = _without_none(info.type)
    says_yes = kind is bool and tyro.conf.FlagConversionOff in info.markers
    if kind not in _READ or not (optional or kind in _NAMES or says_yes):
        return None
    expected, read = _READ[kind]

    def from_words(words: list[str]) -> Any:
        if optional and words[0] == "None":
            return None
        try:
            return read(words[0])
        except (ValueError, KeyError):
            raise ValueError(f"expected {expected}") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="{yes,no}" if kind is bool else _NAMES.get(kind, "TEXT"),
        instance_from_str=from_words,
        is_instance=lambda value: (
            (optional and value is None) or (isinstance(value, kind) and isinstance(value, bool) == (kind is bool))
        ),
        str_from_instance=lambda value: [
            {True: "yes", False: "no"}[value] if kind is bool and value is not None else str(value)
        ],
    )


class _Fields:
    """A dataclass as tyro sees it, with the names of its values and without silent defaults; a verb's own also with
    --config.
    """

    def __init__(self, for_help: bool, brief: Collection[str]) -> None:
        self._for_help, self._brief = for_help, brief
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
        kind, of_verb = info.type, info.type.__name__.endswith(("Arguments", *_REQUESTS))
        if of_verb and not any(field.name == "config" for field in spec.fields):
            added = StructFieldSpec("config", Path | None, None, helptext=_FILE_OF_FLAGS)  # type: ignore[arg-type]  # a union is no class

            def made(config: Path | None = None, **values: Any) -> Any:
                return kind(**values)

            made.__doc__ = kind.__doc__  # the verb's description
            spec = dataclasses.replace(spec, fields=(*spec.fields, added), instantiate=made)
        return dataclasses.replace(spec, fields=tuple(self._named(kind.__name__, field) for field in spec.fields))

    def _named(self, owner: str, field: StructFieldSpec) -> StructFieldSpec:
        hint: Any = field.type

        def words() -> str:
            said = field.helptext() if callable(field.helptext) else field.helptext
            return " ".join((said or "").split())

        told = tyro.conf.arg(
            metavar=_metavar(field.name, hint),
            aliases=_ALIASES.get((owner, field.name)),
            help_behavior_hint=lambda label: "" if "Default:" in words() else _default(owner, field.name, label),
        )
        named: Any = Annotated[hint, told]
        if self._hides(owner, field.name, hint):
            named = Annotated[named, _HIDDEN]
        return dataclasses.replace(field, type=named, helptext=words if field.helptext is not None else None)

    def _hides(self, owner: str, name: str, hint: Any) -> bool:
        key = name if owner.endswith(_OWN) else f"{owner}.{name}"
        is_group = any(dataclasses.is_dataclass(one) for one in (_bare(hint), *get_args(_bare(hint))))
        return self._for_help and (key in _DECIDED or bool(self._brief and not is_group and key not in self._brief))


def _default(owner: str, name: str, label: str) -> str:
    """What is taken where the flag is not given; of fine-tuning what each recipe takes, where they differ."""
    if owner == "Changes":
        from electra_trainer.finetuning.recipe import RECIPES

        shown = {True: "yes", False: "no"}
        both = {kind: getattr(make(hidden_size=256), name) for kind, make in RECIPES.items()}
        if len(set(both.values())) > 1:
            values = (f"{kind} {shown[value] if isinstance(value, bool) else value}" for kind, value in both.items())
            return f"Default: {', '.join(values)}."
    return "" if label in _SILENT else f"Default: {label}."


def _metavar(name: str, hint: Any) -> str | None:
    """`RUN`, `N`, `FILE [FILE ...]`, `{a,b}`; None where tyro's own says as much."""
    kind, optional = _without_none(_bare(hint))
    if kind is bool or get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind) or ("yes", "no"))) + "}" if optional else None
    word = _WORDS.get(name, name.rpartition("_")[2].upper())
    if name == "out" and optional:
        word = "FILE"
    if get_origin(kind) is tuple:
        one = _NAMES.get(get_args(kind)[0], word.removesuffix("S"))
        return one if _APPENDED in get_args(hint) else f"{one} [{one} ...]"
    return word if name in _WORDS else _NAMES.get(kind, word)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _without_none(hint: Any) -> tuple[Any, bool]:
    """`(T, True)` of `T | None`, `(hint, False)` of anything else."""
    if get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in get_args(hint) if each is not type(None)]
        if len(rest) == 1 and len(rest) < len(get_args(hint)):
            return rest[0], True
    return hint, False
