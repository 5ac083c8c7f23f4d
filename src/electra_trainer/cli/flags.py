"""From words to a request: how flags are shown and read, and `--config FILE` of every verb.

tyro asks a registry how to read a type and which fields a class has; ours answers for numbers and dataclasses, and
leaves the rest to it: values have names, not types; a default that says nothing is left out; 1e5 and 100k are numbers.
"""

import dataclasses
import functools
import operator
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from electra_trainer.errors import ConfigError
from electra_trainer.settings import records
from electra_trainer.settings.config import Config
from electra_trainer.train.from_flags import settings_from, taken

_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9}
_SILENT = ("", "None", "False")
"""Defaults that a reader learns nothing from: the flag is simply not given."""
_ALIASES = {("Optimizer", "learning_rate"): ("--learning-rate", "--lr"), ("BatchShape", "size"): ("--batch-size",)}
"""Short names that people try, by class and field of the settings."""
_DECIDED = {"Model.vocab_size", "BatchShape.sequence_length"}
"""Settings that the prepared data decides: no help has them."""


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
_APPENDED = get_args(tyro.conf.UseAppendAction[str])[1]
"""Marks a flag that is given once for each of its values."""
_STYLE = (tyro.conf.AvoidSubcommands, tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalMetavarFromFieldName)
_HIDDEN = get_args(tyro.conf.Suppress[str])[1]
_SAID = {"yes": True, "no": False, "true": True, "false": False}
_READ: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("a whole number, for example 1000, 1e3 or 1k", whole_number),
    float: ("a number, for example 0.5 or 5e-4", float),
    str: ("a text", str),
    Path: ("a path", Path),
    bool: ("yes or no", lambda text: _SAID[text.lower()]),
}


@dataclasses.dataclass(frozen=True)
class _File:
    config: Path | None = None


def read_request(kind: Any, verb: str, words: Sequence[str]) -> Any:
    """The request of class `kind` that words describe; a file that --config names comes first, and flags override it.

    A class with a field `settings: Config` reads the configuration of a run from the file (train/from_flags.py); one
    with a field `typed` keeps all the words.

    Raises:
        ConfigError: a file that cannot be used. SystemExit: tyro has printed help (0), or what is wrong with the flags.
    """
    flags, fields = list(words), {one.name for one in dataclasses.fields(kind)}
    defaults: dict[str, Any] = {}
    if "typed" in fields:
        defaults["typed"] = tuple(words)
    for flag, why in getattr(kind, "refused", {}).items():
        if any(word.partition("=")[0] == flag for word in flags):
            raise ConfigError(f"{flag}: {why}")
    if "settings" in fields and get_type_hints(kind)["settings"] is Config:
        default = _begun(kind, defaults | {"settings": settings_from(flags)})
    else:
        file, flags = taken(_File, flags) if not _asks(flags) else (_File(), flags)
        default = _from_file(kind, file.config, defaults)
    brief = getattr(kind, "brief", "").split() if "--help-all" not in flags else []
    try:
        return tyro.cli(
            kind,
            args=["--help" if flag == "--help-all" else flag for flag in flags],
            prog=f"electra {verb}",
            default=default,
            config=_STYLE,
            registry=_registry(for_help=_asks(flags), brief=brief if _asks(flags) else ()),
        )
    finally:
        if _asks(flags):
            if "config" not in fields:
                print("--config FILE: JSON or TOML with any of these flags.")
            if brief:
                print(f"These are the flags that most runs need. All of them: electra {verb} --help-all")


def print_completion(verbs: Mapping[str, tuple[Any, str]], shell: str) -> None:
    """Print tyro's script by which a shell completes verbs, each given with its request and what it does."""
    kinds = [Annotated[kind, tyro.conf.subcommand(name=name, description=what)] for name, (kind, what) in verbs.items()]
    every: Any = functools.reduce(operator.or_, kinds)
    with suppress(SystemExit):
        tyro.cli(every, prog="electra", args=["--tyro-print-completion", shell], config=_STYLE, registry=_registry())


def _asks(flags: Sequence[str]) -> bool:
    return bool({"-h", "--help", "--help-all"} & set(flags))


def _begun(kind: Any, values: dict[str, Any]) -> Any:
    """The request with these values, its own defaults, and tyro.MISSING where it has none."""
    fields = dataclasses.fields(kind)
    absent = {one.name: tyro.MISSING for one in fields if one.default is one.default_factory is dataclasses.MISSING}
    return kind(**absent | values)


def _from_file(kind: Any, path: Path | None, values: dict[str, Any]) -> Any:
    """The request with the flags of a file, or its defaults; ConfigError for an unknown one, or a value that a flag
    cannot have.
    """
    if path is None:
        return _begun(kind, values)
    read = records.read_table(path, expected="a table of flags")
    table = {name.replace("-", "_"): value for name, value in read.items()}
    owners = {name: (owner, field, hint) for owner, field, name, hint in _leaves(kind)}
    hints = {name: hint for name, (*_, hint) in owners.items()}
    texts = {name for name, hint in hints.items() if str in (hint, *get_args(hint))}
    given = {n: str(value) if n in texts and type(value) in (int, float) else value for n, value in table.items()}
    checked = records.read_values(hints, given, where=str(path))
    try:
        groups: dict[str | None, dict[str, Any]] = {None: dict(values)}
        for name in table:
            owner, field, _ = owners[name]
            groups.setdefault(owner, {})[field] = checked[name]
        own = groups.pop(None)
        defaults = _begun(kind, values)
        for owner, inner in groups.items():
            own[str(owner)] = dataclasses.replace(getattr(defaults, str(owner)), **inner)
        return _begun(kind, own)
    except ConfigError as refused:
        raise ConfigError(f"{path}: {refused}") from None


def _leaves(kind: Any) -> Iterator[tuple[str | None, str, str, Any]]:
    """Each flag of a request: the field of the group that it is in (None: its own), field, name, type."""
    hints = get_type_hints(kind, include_extras=True)
    for one in dataclasses.fields(kind):
        marks, bare = getattr(hints[one.name], "__metadata__", ()), _bare(hints[one.name])
        if dataclasses.is_dataclass(bare):
            yield from ((one.name, field, name, hint) for _, field, name, hint in _leaves(bare))
        elif _HIDDEN not in marks:
            named = next((str(mark.name) for mark in marks if getattr(mark, "name", None)), one.name)
            yield None, one.name, named, bare


def _registry(*, for_help: bool = False, brief: Collection[str] = ()) -> ConstructorRegistry:
    """Rules by which tyro reads and shows our flags.

    Args:
        for_help: leave out flags that help does not show; to parse, all are needed.
        brief: the only flags that help shows, if there are any: `out`, and `Optimizer.learning_rate` of a group of
            settings.
    """
    found = ConstructorRegistry()
    found.primitive_rule(_reading)
    inside: list[Any] = []  # tyro's own rule is asked for the class that this one is asked for

    def fields_of(info: StructTypeInfo) -> StructConstructorSpec | None:
        """A dataclass as tyro sees it, with the names of its values and without silent defaults."""
        if not dataclasses.is_dataclass(info.type) or info.type in inside:
            return None
        inside.append(info.type)
        try:
            spec = ConstructorRegistry.get_struct_spec(info)
        finally:
            inside.pop()
        if not isinstance(spec, StructConstructorSpec):
            return None
        named = (_named(info.type, field, for_help=for_help, brief=brief) for field in spec.fields)
        return dataclasses.replace(spec, fields=tuple(named))

    found.struct_rule(fields_of)
    return found


def _named(owner: Any, field: StructFieldSpec, *, for_help: bool, brief: Collection[str]) -> StructFieldSpec:
    hint: Any = field.type

    def words() -> str:
        return " ".join(((field.helptext() if callable(field.helptext) else field.helptext) or "").split())

    shown = tyro.conf.arg(
        metavar=_metavar(field.name, hint),
        aliases=_ALIASES.get((owner.__name__, field.name)),
        help_behavior_hint=lambda label: "" if "Default:" in words() else _default(owner.__name__, field.name, label),
    )
    named: Any = Annotated[hint, shown]
    prefixed = owner is not Config and owner.__module__.startswith("electra_trainer.settings.")
    key = f"{owner.__name__}.{field.name}" if prefixed else field.name
    is_group = any(dataclasses.is_dataclass(one) for one in (_bare(hint), *get_args(_bare(hint))))
    if for_help and (key in _DECIDED or bool(brief and not is_group and key not in brief)):
        named = Annotated[named, _HIDDEN]
    return dataclasses.replace(field, type=named, helptext=words if field.helptext is not None else None)


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


def _default(owner: str, name: str, label: str) -> str:
    """Default of a flag, for its help; in fine-tuning that of each recipe, where they differ."""
    if owner == "Changes":
        from electra_trainer.tasks.recipe import RECIPES

        shown = {True: "yes", False: "no"}
        both = {kind: getattr(make(hidden_size=256), name) for kind, make in RECIPES.items()}
        if len(set(both.values())) > 1:
            values = (f"{kind} {shown[value] if isinstance(value, bool) else value}" for kind, value in both.items())
            return f"Default: {', '.join(values)}."
    return "" if label in _SILENT else f"Default: {label}."


def _metavar(name: str, hint: Any) -> str | None:
    """`OUT`, `N`, `RUN [RUN ...]`, `{a,b}`; None where tyro's own says as much."""
    kind, optional = _without_none(_bare(hint))
    if kind is bool or get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind) or ("yes", "no"))) + "}" if optional else None
    word = "RUN" if name == "run_folder" else name.rpartition("_")[2].upper()
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
