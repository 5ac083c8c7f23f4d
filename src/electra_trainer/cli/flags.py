"""From words to a request: how flags are shown and read, and `--config FILE` of every verb.

tyro asks a registry how to read a type and which fields a class has; ours answers for numbers and dataclasses, and
leaves the rest to it: values have names, not types; a default that says nothing is left out; 1e5 is a number.
"""

import dataclasses
import functools
import types
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro
from tyro import constructors

from electra_trainer.errors import ConfigError
from electra_trainer.settings import records
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import ObjectiveSettings
from electra_trainer.settings.request import Request, TrainingRequest, dotted_names, taken
from electra_trainer.tasks.recipe import RECIPES, Recipe
from electra_trainer.train.from_flags import settings_from

_SILENT = ("", "None", "False")
"""Defaults that a reader learns nothing from: the flag is simply not given."""
_ALIASES = {"optimizer.learning_rate": ("--learning-rate", "--lr"), "batch.size": ("--batch-size",)}
"""Short names that people try."""
FILE_ONLY = frozenset(
    "attention_dropout batches bias_correction clip_norm double_unordered head_dropout reduction schedule "
    "top_layer_power zero_head batch.sequence_length last_layer model.initializer_range model.layer_norm_eps "
    "model.local_rotary_theta model.rotary_theta model.type_vocab_size model.vocab_size objective.guess_weight "
    "objective.neighbour_weight objective.policy_weight objective.sentence_weight objective.unchanged objective.width "
    "optimizer.beta1 optimizer.epsilon schedule.steps".split()
)
"""Settings that a preset, a recipe or the data decides and nobody sweeps: keys of a file, without a flag."""


def whole_number(text: str) -> int:
    """`100000` and `1e5` are one number.

    Raises:
        ValueError: it is not a whole number.
    """
    try:
        return int(text)
    except ValueError:
        value = float(text)
    if not value.is_integer():
        raise ValueError
    return int(value)


_STYLE = (tyro.conf.AvoidSubcommands, tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalMetavarFromFieldName)
_HIDDEN = get_args(tyro.conf.Suppress[str])[1]
_FIXED = get_args(tyro.conf.Fixed[str])[1]
_POSITIONAL = get_args(tyro.conf.Positional[str])[1]
_READ: dict[Any, tuple[str, str, Callable[[str], Any]]] = {
    int: ("N", "a whole number, for example 1000 or 1e3", whole_number),
    float: ("X", "a number, for example 0.5 or 5e-4", float),
    str: ("TEXT", "a text", str),
    Path: ("PATH", "a path", Path),
}
"""How values of a type are shown, described and read."""


def read_request(kind: type[Request], verb: str, words: Sequence[str]) -> Any:
    """The request of class `kind` that words describe; a file that --config names comes first, and flags override it.

    Raises:
        ConfigError: a file that cannot be used, or a flag that this verb refuses. SystemExit: tyro has printed help (0)
            or what is wrong with the flags.
    """
    asks, flags, names = bool({"-h", "--help", "--help-all"} & {*words}), list(words), dotted_names(words)
    if issubclass(kind, TrainingRequest):
        for flag, why in kind.refused.items():
            if flag.removeprefix("--").replace("-", "_") in names:
                raise ConfigError(f"{flag}: {why}")
        default = _begun(kind, {"typed": tuple(words), "settings": settings_from(words)})
    else:
        file, flags = taken(words, "config") if not asks else ({}, flags)
        default = _from_file(kind, Path(file["config"]), words) if file else _begun(kind, {"typed": tuple(words)})
    if filed := sorted(names & FILE_ONLY):
        raise ConfigError(f"--{filed[0].replace('_', '-')}: is no flag. Write {filed[0]} into a file, --config FILE.")
    brief = kind.brief.split() if asks and "--help-all" not in flags else []
    try:
        return tyro.cli(
            kind,
            args=["--help" if flag == "--help-all" else flag for flag in _completed(flags, default)],
            prog=f"electra {verb}",
            default=default,
            config=_STYLE,
            registry=_registry(brief),
        )
    finally:
        if asks and not issubclass(kind, TrainingRequest):
            print("--config FILE: JSON or TOML with any of these flags.")
        if brief:
            print(f"These are the flags that most runs need. All of them: electra {verb} --help-all")


def _completed(words: list[str], default: Any) -> list[str]:
    """Words with the model in front where it has a default and the texts after it are all that was given."""
    hints = get_type_hints(type(default), include_extras=True)
    places = [name for name, hint in hints.items() if _POSITIONAL in getattr(hint, "__metadata__", ())]
    known = [name for name in places if getattr(default, name) is not tyro.MISSING]
    given, last = 0, bool
    for word in words:
        given += last is bool and not word.startswith("-")
        flag, equals, _ = word.partition("=")
        is_flag = last is bool and flag.startswith("--") and not equals
        last = hints.get(flag[2:].replace("-", "_"), bool) if is_flag else bool
    complete = known == places[:1] and given == len(places) - 1 > 0
    return [str(getattr(default, known[0])), *words] if complete else words


def _begun(kind: Any, values: dict[str, Any]) -> Any:
    """The request with these values, its own defaults, and tyro.MISSING where it has none."""
    fields = dataclasses.fields(kind)
    absent = {one.name: tyro.MISSING for one in fields if one.default is one.default_factory is dataclasses.MISSING}
    return kind(**absent | values)


def _from_file(kind: Any, path: Path, words: Sequence[str]) -> Any:
    """The request with the flags of a file.

    Raises:
        ConfigError: an unknown flag, or a value that it cannot have.
    """
    read = records.read_table(path, expected="a table of flags")
    table = {name.replace("-", "_"): value for name, value in read.items()}
    hints = get_type_hints(kind)
    groups = {name: get_type_hints(hint) for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    known = {name: hint for some in (hints, *groups.values()) for name, hint in some.items()}
    for name, value in table.items():
        if type(value) in (int, float) and str in (known.get(name), *get_args(known.get(name))):
            table[name] = str(value)
    flags = {name: hint for name, hint in known.items() if name not in {"typed", *groups}}
    values = records.read_values(flags, table, where=str(path))
    for group, names in groups.items():
        own = {name: values.pop(name) for name in names.keys() & values.keys()}
        values[group] = records.read(hints[group], own, where=str(path))
    return _begun(kind, {**values, "typed": (*(f"--{name}" for name in table), *words)})


def _registry(brief: Collection[str] = ()) -> constructors.ConstructorRegistry:
    """Rules by which tyro reads and shows our flags.

    Args:
        brief: the only flags that help shows, if there are any: `out`, and `optimizer.learning_rate` of the settings.
    """
    found = constructors.ConstructorRegistry()
    found.primitive_rule(_reading)
    inside: list[Any] = []  # tyro's own rule is asked for the class that this one is asked for

    def fields_of(info: constructors.StructTypeInfo) -> constructors.StructConstructorSpec | None:
        """A dataclass as tyro sees it, with the names of its values and without silent defaults."""
        if not dataclasses.is_dataclass(info.type) or info.type in inside:
            return None
        inside.append(info.type)
        try:
            spec = constructors.ConstructorRegistry.get_struct_spec(info)
        finally:
            inside.pop()
        if not isinstance(spec, constructors.StructConstructorSpec):
            return None
        return dataclasses.replace(spec, fields=tuple(_named(info.type, field, brief) for field in spec.fields))

    found.struct_rule(fields_of)
    return found


@functools.cache
def _group(owner: Any) -> str:
    """`batch.` for the fields of `BatchShape`, `objective.` for those of every objective; nothing for a request's."""
    if issubclass(owner, ObjectiveSettings):
        return "objective."
    hints = get_type_hints(Config).items()
    return next((f"{name}." for name, hint in hints if owner in (hint, *get_args(hint))), "")


def _named(owner: Any, field: constructors.StructFieldSpec, brief: Collection[str]) -> constructors.StructFieldSpec:
    hint: Any = field.type
    key = _group(owner) + field.name

    def words() -> str:
        return " ".join(((field.helptext() if callable(field.helptext) else field.helptext) or "").split())

    shown = tyro.conf.arg(
        aliases=_ALIASES.get(key),
        help_behavior_hint=lambda label: "" if "Default:" in words() else _default(owner, field.name, label),
    )
    named: Any = Annotated[hint, shown]
    is_group = any(dataclasses.is_dataclass(one) for one in (_bare(hint), *get_args(_bare(hint))))
    if key in FILE_ONLY and not is_group:
        named = Annotated[named, _FIXED, _HIDDEN]
    elif brief and key not in brief and not is_group:
        named = Annotated[named, _HIDDEN]
    return dataclasses.replace(field, type=named, helptext=words if field.helptext is not None else None)


def _reading(info: constructors.PrimitiveTypeInfo) -> constructors.PrimitiveConstructorSpec[Any] | None:
    """Numbers, texts, paths and choices, also where they may be None."""
    kind, optional = _without_none(info.type)
    if get_origin(kind) is Literal and optional:
        choices = f"{{{','.join(get_args(kind))}}}"
        return dataclasses.replace(_reading_of(str, optional=True), choices=get_args(kind), metavar=choices)
    return _reading_of(kind, optional=optional) if kind in _READ else None


def _reading_of(kind: Any, *, optional: bool) -> constructors.PrimitiveConstructorSpec[Any]:
    shown, expected, read = _READ[kind]

    def from_words(words: list[str]) -> Any:
        try:
            return None if optional and words[0] == "None" else read(words[0])
        except ValueError:
            raise ValueError(f"expected {expected}") from None

    return constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=shown,
        instance_from_str=from_words,
        is_instance=lambda value: isinstance(value, kind) or (optional and value is None),
        str_from_instance=lambda value: [str(value)],
    )


def _default(owner: Any, name: str, label: str) -> str:
    """Default of a flag, for its help; in fine-tuning that of each recipe, where they differ."""
    if owner is Recipe:
        both = {kind: getattr(make(hidden_size=256), name) for kind, make in RECIPES.items()}
        if len(set(both.values())) > 1:
            return f"Default: {', '.join(f'{kind} {value}' for kind, value in both.items())}."
    return "" if label in _SILENT else f"Default: {label}."


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _without_none(hint: Any) -> tuple[Any, bool]:
    """`(T, True)` of `T | None`, `(hint, False)` of anything else."""
    if get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in get_args(hint) if each is not type(None)]
        if len(rest) == 1 and len(rest) < len(get_args(hint)):
            return rest[0], True
    return hint, False
