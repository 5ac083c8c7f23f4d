"""Fields of a JSON file that `electra compare` wrote: each is what it should be, or a DataError names file and field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from electra_trainer.config_io import read_table
from electra_trainer.errors import ConfigError, DataError

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
