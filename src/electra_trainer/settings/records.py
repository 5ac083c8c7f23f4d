"""Config <-> dictionaries and files. Strict: an unknown key or a wrong type is an error that says what was meant.

A tagged union is written as its fields plus `"kind"`, the class's name with hyphens: `{"kind": "all-tokens-mlm", "weight": 1.0}`.

Fields of a JSON file that `electra compare` wrote: each is what it should be, or a DataError names file and field.
"""

import dataclasses
import hashlib
import json
import tomllib
import types
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from electra_trainer.errors import ConfigError, DataError, did_you_mean
from electra_trainer.files.reading import parse_json, read_file, short
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import ObjectiveSettings, kind_of

T = TypeVar("T")


def to_dict(value: Any) -> Any:
    """A dataclass as plain dictionaries; members of unions carry their `kind`."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    hints = get_type_hints(type(value))
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        plain = to_dict(inner)
        if _union_members(hints[field.name]):
            plain = {"kind": kind_of(type(inner)), **plain}
        fields[field.name] = plain
    return fields


def from_dict(cls: type[T], data: Any, *, where: str) -> T:
    """Build `cls` from plain dictionaries; fields that are missing keep their defaults.

    Args:
        where: what the data is called in an error, for example a file's name.

    Raises:
        ConfigError: unknown key, wrong type, or a value that the class refuses.
    """
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: expected a table of fields, found {short(data)}.")
    hints = get_type_hints(cls)
    known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name not in known:
            raise ConfigError(
                f"{where}: unknown field {short(name)}.{did_you_mean(name, known)} Known: {', '.join(known)}."
            )
        values[name] = _convert(hints[name], value, where=f"{where}: {name}")
    try:
        return cls(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _union_members(hint: Any) -> list[type]:
    """The classes that a field may hold, where its table says which by `kind`; the first is meant where it does not."""
    if hint is ObjectiveSettings:
        return list(ObjectiveSettings.kinds.values())
    if get_origin(hint) in (Union, types.UnionType):
        return [member for member in get_args(hint) if isinstance(member, type) and dataclasses.is_dataclass(member)]
    return []


def _convert(hint: Any, value: Any, *, where: str) -> Any:
    if members := _union_members(hint):
        by_kind = {kind_of(member): member for member in members}
        if not isinstance(value, dict):
            raise ConfigError(f'{where}: expected a table with "kind", one of {", ".join(by_kind)}.')
        kind = str(value.get("kind", next(iter(by_kind))))
        if kind not in by_kind:
            raise ConfigError(
                f"{where}: unknown kind {short(kind)}.{did_you_mean(kind, by_kind)} Known: {', '.join(by_kind)}."
            )
        return from_dict(by_kind[kind], {k: v for k, v in value.items() if k != "kind"}, where=where)
    if dataclasses.is_dataclass(hint):
        return from_dict(hint, value, where=where)  # type: ignore[arg-type]
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise ConfigError(
                f"{where} = {short(value)}: expected one of {', '.join(map(repr, get_args(hint)))}."
                f"{did_you_mean(str(value), map(str, get_args(hint)))}"
            )
        return value
    if isinstance(value, int) and value.bit_length() > 63:
        raise ConfigError(f"{where}: a whole number of {value.bit_length():,} bits. Expected one of 63 at most.")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{where} = {short(value)}: expected {hint.__name__}, found {type(value).__name__}.")
    return value


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid upon `base`, table by table; a table of another kind replaces the whole table."""
    merged = dict(base)
    for name, value in over.items():
        old = merged.get(name)
        same = (
            isinstance(old, dict) and isinstance(value, dict) and old.get("kind") == value.get("kind", old.get("kind"))
        )
        merged[name] = merge(old, value) if same else value  # type: ignore[arg-type]
    return merged


def read_table(path: Path) -> dict[str, Any]:
    """Read a `.json` or `.toml` file of settings.

    Raises:
        MissingInputError, StorageError: cannot be read. ConfigError: no regular file, too large, neither JSON nor TOML, or no table.
    """
    content = read_file(path, error=ConfigError)
    if path.suffix == ".toml":
        table: Any = _toml(content, path)
    else:
        yaml = " YAML is not read." if path.suffix in (".yaml", ".yml") else ""
        remedy = f"Expected a JSON object, or TOML in a .toml file, as in the config.json of a run.{yaml}"
        table = parse_json(content, where=str(path), remedy=remedy, error=ConfigError)
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: expected a table of fields, as in the config.json of a run; found {short(table)}.")
    return table


def _toml(content: bytes, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(content.removeprefix(b"\xef\xbb\xbf").decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}. Save it as UTF-8.") from None
    except RecursionError:
        raise ConfigError(
            f"{path}: is TOML nested too deeply. Expected settings, as in the config.json of a run."
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}. Mend it, or write JSON into a .json file.") from None


def overlay(config: Config, path: Path) -> Config:
    """`config` with the settings of a file laid upon it; the file may hold only some of them."""
    return from_dict(Config, merge(to_dict(config), read_table(path)), where=str(path))


def hash_of(value: object) -> str:
    """SHA-256 of plain values, whatever the order of their names."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def differences(first: object, second: object) -> list[str]:
    """Dotted names of the fields in which two configs (or tables of plain values) differ, with both values."""

    def flatten(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
        flat: dict[str, Any] = {}
        for name, value in table.items():
            flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
        return flat

    one, two = flatten(to_dict(first)), flatten(to_dict(second))
    return [f"{name}: {one.get(name)!r} -> {two.get(name)!r}" for name in one | two if one.get(name) != two.get(name)]


_WORDS = {int: "a whole number", float: "a number", str: "a text", dict: "an object", list: "a list"}
_BITS = 1023
"""Of the largest whole number that is surely a float."""


def read_object(file: Path) -> dict[str, Any]:
    """The object of a file.

    Raises:
        DataError: not JSON, or no object. StorageError: cannot be read.
    """
    try:
        return read_table(file)
    except ConfigError as error:
        raise DataError(f"{error} Delete it and run electra compare again.") from None


def checked(table: dict[str, Any], name: str, kind: type, file: Path) -> Any:
    """A field of a kind; a whole number is a float too, if it fits into one, and stays whole."""
    value = table.get(name)
    whole = isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _BITS
    if not (whole if kind is int else isinstance(value, kind) or (kind is float and whole)):
        found = f"found {repr(value)[:40]}" if name in table else "it is not there"
        raise DataError(f"{file}: {name!r}: expected {_WORDS[kind]}, {found}. Run electra compare again.")
    return value
