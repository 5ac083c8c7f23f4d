"""Settings as plain tables and files, and back. Strict: an unknown key or a wrong type is an error that suggests the
right one.

A member of a tagged union is written as its fields plus `"kind"`, the class's name with hyphens: `{"kind":
"all-tokens-mlm", "weight": 1.0}`.
"""

import dataclasses
import hashlib
import json
import re
import tomllib
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from electra_trainer.errors import ConfigError, DataError, ElectraError, Refusal, did_you_mean
from electra_trainer.files.reading import BOM, json_object, read_file, short
from electra_trainer.settings.config import Config
from electra_trainer.settings.extensions import HINT
from electra_trainer.settings.methods import ADDED as ADDED
from electra_trainer.settings.methods import Generator, ObjectiveSettings, generators, kind_of

T = TypeVar("T")
Fault = Callable[[str], ElectraError]
"""Makes the error of a message."""
EARLIER = {"last_layer": "all"}
"""Settings of runs of earlier versions, whose files lack them."""


def to_dict(value: Any) -> Any:
    """A dataclass as plain dictionaries; members of unions carry their `kind`."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    hints, fields = get_type_hints(type(value)), {}
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        kind = {"kind": kind_of(type(inner))} if _members(hints[field.name]) else {}
        fields[field.name] = kind | to_dict(inner) if kind else to_dict(inner)
    return fields


def read(
    cls: type[T], table: object, *, where: str, error: Refusal = ConfigError, remedy: str = "", complete: bool = False
) -> T:
    """Build a dataclass from a plain table, as JSON or TOML holds it.

    Lists become tuples, whole numbers become floats and tables become dataclasses where the field's type says so.

    Args:
        cls: the dataclass; `kind` chooses among the members of a tagged union.
        table: field names and plain values; a missing field keeps its default.
        where: name of the table in messages, for example a file's name.
        error: class of the errors.
        remedy: a sentence that ends every message.
        complete: fields with a default are required too, except those with `metadata=ADDED`.

    Raises:
        `error`: an unknown or missing field, a value of another type, or a value that the class refuses.
    """

    def fault(message: str) -> ElectraError:
        return error(f"{message} {remedy}".rstrip())

    return _record(cls, table, where, fault, complete)  # type: ignore[no-any-return]


def _record(cls: Any, table: object, where: str, fault: Fault, complete: bool) -> Any:
    if not isinstance(table, dict):
        raise fault(f"{where}: expected a table of fields, found {short(table)}.")
    required = {
        field.name
        for field in dataclasses.fields(cls)
        if (complete and ADDED.items() - field.metadata.items())
        or (field.default is field.default_factory is dataclasses.MISSING)
    }
    names, hints = {field.name for field in dataclasses.fields(cls)}, get_type_hints(cls)
    hints = {name: hint for name, hint in hints.items() if name in names}
    table = {name: value for name, value in table.items() if name not in getattr(cls, "FORMER", ())}
    values = _values(hints, table, where, fault, complete=complete, required=required)
    try:
        return cls(**values)
    except ElectraError as refused:
        raise fault(f"{where}: {refused}") from None


def _values(
    hints: Mapping[str, Any],
    table: Mapping[str, Any],
    where: str,
    fault: Fault,
    *,
    complete: bool = False,
    required: Collection[str] = (),
) -> dict[str, Any]:
    for name in table:
        if name not in hints:
            raise fault(f"{where}: unknown field {_known(name, hints)}")
    for name in hints:
        if name in required and name not in table:
            raise fault(f"{where}: field {name} is missing.")
    return {name: _value(hints[name], value, f"{where}: {name}", fault, complete) for name, value in table.items()}


def read_values(hints: Mapping[str, Any], table: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """Plain values as fields of these types hold them.

    Raises:
        ConfigError: an unknown name, or a value of another type.
    """
    return _values(hints, table, where, ConfigError)


def _known(name: str, known: Collection[str]) -> str:
    return f"{short(name)}.{did_you_mean(name, known)} Known: {', '.join(known)}."


def _members(hint: Any) -> dict[str, type]:
    """The classes that a field may hold where its table names one by `kind`; the first is meant where it names none."""
    if hint is ObjectiveSettings:
        return dict(ObjectiveSettings.kinds)
    if hint == Generator:
        return dict(generators())
    classes = [one for one in get_args(hint) if isinstance(one, type) and dataclasses.is_dataclass(one)]
    return {kind_of(one): one for one in classes} if len(classes) > 1 else {}


def _value(hint: Any, value: Any, where: str, fault: Fault, complete: bool) -> Any:
    """A plain value as a field of type `hint` holds it."""
    kind, inner = get_origin(hint), get_args(hint)
    if _members(hint):
        return _read_member(hint, value, where, fault, complete)
    if kind in (Union, types.UnionType):
        return _read_union(hint, value, where, fault, complete)
    if dataclasses.is_dataclass(hint) and type(value) is not hint:
        return _record(hint, value, where, fault, complete)
    if kind in (dict, Mapping) and isinstance(value, dict):
        return {name: _value(inner[1], one, f"{where}: {name}", fault, complete) for name, one in value.items()}
    if _is_list(hint, value):
        every = inner if kind is tuple and ... not in inner else inner[:1] * len(value)
        pairs = enumerate(zip(every, value, strict=True))
        found = [_value(one, each, f"{where}[{at}]", fault, complete) for at, (one, each) in pairs]
        return found if kind is list else tuple(found)
    if kind is Literal:
        return _read_literal(inner, value, where, fault)
    return value if hint is Any else _read_plain(hint, value, where, fault)


def _is_list(hint: Any, value: Any) -> bool:
    """Whether a list has a length that its type allows: any, but of a tuple with a type for each place."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind not in (tuple, list, Sequence) or not isinstance(value, list | tuple):
        return False
    return kind is not tuple or ... in inner or len(inner) == len(value)


def _read_member(hint: Any, value: Any, where: str, fault: Fault, complete: bool) -> Any:
    members = _members(hint)
    if not isinstance(value, dict):
        raise fault(f'{where}: expected a table with "kind", one of {", ".join(members)}.')
    name = str(value.get("kind", next(iter(members))))
    if name not in members:
        raise fault(f"{where}: unknown kind {_known(name, members)}{HINT * (hint in (ObjectiveSettings, Generator))}")
    rest = {key: one for key, one in value.items() if key != "kind"}
    return _record(members[name], rest, where, fault, complete)


def _read_union(hint: Any, value: Any, where: str, fault: Fault, complete: bool) -> Any:
    options = [one for one in get_args(hint) if one is not types.NoneType]
    optional = len(options) < len(get_args(hint))
    if value is None and optional:
        return None
    if all(get_origin(one) is Literal for one in options):
        words = [word for one in options for word in get_args(one)]
        options = [Literal[(*[None] * optional, *words)]]
    fitting = [one for one in options if type(value) is one or (one is Path and isinstance(value, Path))]
    kinds = (tuple, list, Sequence) if isinstance(value, list | tuple) else (Literal,) if isinstance(value, str) else ()
    fitting = fitting or [one for one in options if get_origin(one) in kinds]
    return _value((fitting or options)[0], value, where, fault, complete)


def _read_literal(words: tuple[Any, ...], value: Any, where: str, fault: Fault) -> Any:
    if not any(type(value) is type(one) and value == one for one in words):
        near = did_you_mean(str(value), map(str, words))
        wanted = " or ".join(map(repr, words)) if len(words) < 3 else f"one of {', '.join(map(repr, words))}"
        raise fault(f"{where} = {short(value)}: expected {wanted}.{near}")
    return value


def _read_plain(hint: Any, value: Any, where: str, fault: Fault) -> Any:
    """A number, a text or a path; a whole number is read as a float, and a text as a path or back."""
    kind = get_origin(hint)
    if isinstance(value, int) and value.bit_length() > 63:
        raise fault(f"{where}: a whole number of {value.bit_length():,} bits. Expected one of 63 at most.")
    if (hint, type(value)) in ((float, int), (Path, str)) or (hint is str and isinstance(value, Path)):
        return hint(value)
    if kind or not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        wanted = hint.__name__ if not kind else "a table" if kind in (dict, Mapping) else "a list"
        raise fault(f"{where} = {short(value)}: expected {wanted}, found {type(value).__name__}.")
    return value


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid upon `base`, table by table; a table of another kind replaces the whole table."""
    merged = dict(base)
    for name, value in over.items():
        old = merged.get(name)
        if isinstance(old, dict) and isinstance(value, dict) and old.get("kind") == value.get("kind", old.get("kind")):
            value = merge(old, value)
        merged[name] = value
    return merged


def read_table(path: Path, *, expected: str = "as in the config.json of a run") -> dict[str, Any]:
    """Read a `.json` or `.toml` file of settings.

    Args:
        expected: how it should be written, for messages.

    Raises:
        MissingInputError, StorageError: cannot be read. ConfigError: not a regular file, too large, neither JSON nor
            TOML, or not a table.
    """
    content = read_file(path, error=ConfigError)
    if path.suffix != ".toml":
        remedy = f"Expected a JSON object, or TOML in a .toml file, {expected}."
        return json_object(content, where=str(path), remedy=remedy, error=ConfigError)
    try:
        return tomllib.loads(content.removeprefix(BOM).decode())
    except (ValueError, RecursionError) as error:  # text that is not UTF-8 is a ValueError
        raise ConfigError(f"{path}: is not valid TOML: {error}. Correct it, or write JSON into a .json file.") from None


def overlay(config: Config, path: Path) -> Config:
    """`config` with the settings of a file laid upon it; the file may hold only some of them, or be what `electra show
    --json` prints.
    """
    table = read_table(path)
    if isinstance(shown := table.get("config"), dict) and "parameters" in table:
        table = shown
    return read(Config, merge(to_dict(config), table), where=str(path))


def hash_of(value: object) -> str:
    """SHA-256 of plain values, whatever the order of their names."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def differences(first: object, second: object, *, show: Callable[[object], str] = repr) -> list[str]:
    """Dotted names of the fields in which two configs (or tables of plain values) differ, with both values."""
    one, two = flat(to_dict(first)), flat(to_dict(second))
    odd = [name for name in one | two if one.get(name) != two.get(name)]
    return [f"{show(name)[1:-1]}: {show(one.get(name))} -> {show(two.get(name))}" for name in odd]


def flat(table: dict[str, Any]) -> dict[str, Any]:
    """Nested tables as one table with dotted names; an empty one is a value."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        inner = flat(value) if isinstance(value, dict) else {}
        found |= {f"{name}.{one}": each for one, each in inner.items()} or {name: value}
    return found


BOX = Path(__file__).parents[1] / "encoders"
"""Encoders that come with this package, each a run folder without moments (`electra export RUN --as run`)."""
DEFAULT = "en-mini"
"""Name of the one that is taken where no model is named."""
TASK, LEARNED = "electra_task.json", "learned.txt"
"""Files of a fine-tuned model: see finetuning/model_folder.py."""


def finetuned_from(encoder: Path) -> Path | None:
    """The folder of the fine-tuned model whose encoder is here: the same, or the one above `encoder`; None: it is of
    none.
    """
    folder = encoder.parent if encoder.name == "encoder" else encoder
    return folder if (folder / TASK).is_file() else None


def in_the_box(name: str | Path) -> bool:
    """Whether a name is that of an encoder that comes with this package; what exists under that path is meant first."""
    return (BOX / name / "config.json").is_file() and len(Path(name).parts) == 1 and not Path(name).exists()


def run_and_step(name: str | Path) -> tuple[Path, int | None]:
    """`RUN@700` -> RUN and 700; a name without a step, or of a run with an @ in its name, as it is, and None. `en-mini`
    -> the run folder in this package, see `in_the_box`.
    """
    if in_the_box(name):
        return BOX / name, None
    match, whole = re.fullmatch(r"(.+)@([0-9]{1,12})", str(name)), Path(name)
    if match is None or (whole / "checkpoints").is_dir():
        return whole, None
    run = Path(match[1])
    return (run, int(match[2])) if (run / "checkpoints").is_dir() or not whole.exists() else (whole, None)


def is_run(name: str | Path) -> bool:
    """Whether a name, with a step or without, is a run's folder."""
    return (run_and_step(name)[0] / "checkpoints").is_dir()


AGAIN = "Delete it and repeat the command that wrote it."


def read_object(file: Path, *, remedy: str = AGAIN) -> dict[str, Any]:
    """The object of a JSON file.

    Raises:
        MissingInputError: no such file. DataError: not a JSON object. StorageError: cannot be read.
    """
    return json_object(read_file(file), where=str(file), remedy=remedy)


def require_fields(fields: Mapping[str, Any], table: Mapping[str, Any], where: object, *, remedy: str = AGAIN) -> None:
    """Check that a table has fields of these types; it may have others.

    Raises:
        DataError: a field is missing, or of another type.
    """
    known = {name: value for name, value in table.items() if name in fields}
    _values(fields, known, str(where), lambda message: DataError(f"{message} {remedy}"), required=fields)
