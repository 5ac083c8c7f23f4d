"""`--config FILE` of every verb: a file of flags that the command line overrides, and `electra show VERB --toml`, which
prints one.

`pretrain` and `compare` read the configuration of a run instead (settings/records.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, field, fields, is_dataclass, make_dataclass, replace
from keyword import iskeyword
from pathlib import Path
from typing import Any, get_args, get_type_hints

import tyro

from electra_trainer.errors import ConfigError
from electra_trainer.settings import records

_HIDDEN = get_args(tyro.conf.Suppress[str])[1]


def reads_run_settings(kind: Any) -> bool:
    """Whether --config of the verb names the configuration of a run, not its flags."""
    return any("config" in vars(one).get("__annotations__", {}) for one in kind.__mro__)


def defaults(kind: Any, words: Sequence[str], config: str | None) -> Any:
    """The arguments of a verb without its command line: what the file `config` says, else the defaults; tyro.MISSING
    where there are none.

    Args:
        kind: class of the arguments.
        words: the command line.

    Raises:
        ConfigError: the file has an unknown flag, or a value that a flag cannot have.
    """
    table = {} if config is None else _flags_of(Path(config))
    end = words.index("--") if "--" in words else len(words)
    named = [f"--{name.replace('_', '-')}={value}" for name, value in table.items()]
    begun = kind.begin([*words[:end], *named, *words[end:]]) if hasattr(kind, "begin") else {}
    required = {one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING}
    found = kind(**dict.fromkeys(required, tyro.MISSING) | begun)
    return found if config is None else _overlaid(found, table, config)


def _flags_of(path: Path) -> dict[str, Any]:
    table = records.read_table(path, expected="as `electra show VERB --toml` prints it")
    return {name.replace("-", "_"): value for name, value in table.items()}


def _leaves(record: Any) -> Iterator[tuple[str, Any, Any, bool]]:
    """Each flag: name, type, value, and whether that value is only what the recipe of an encoder takes."""
    hints = get_type_hints(type(record), include_extras=True)
    for one in fields(record):
        value, marks = getattr(record, one.name), getattr(hints[one.name], "__metadata__", ())
        if is_dataclass(value):
            depends = hasattr(record, "given")  # what is given by name counts as chosen
            yield from (
                (name, hint, inner, depends or inner_depends) for name, hint, inner, inner_depends in _leaves(value)
            )
        elif _HIDDEN not in marks:
            yield _name(one.name, marks), hints[one.name], value, False


def _name(name: str, marks: Sequence[object]) -> str:
    return next((str(mark.name) for mark in marks if getattr(mark, "name", None)), name)  # type: ignore[attr-defined]


def _field(name: str) -> str:
    """A flag's name as that of a dataclass's field, which cannot be a word of Python, such as `as`."""
    return f"{name}_" if iskeyword(name) else name


def _overlaid(record: Any, table: Mapping[str, Any], where: str) -> Any:
    """`record` with the values of `table`, by the names of flags."""
    hints = {_field(name): hint for name, hint, *_ in _leaves(record)}
    table = {_field(name): value for name, value in table.items()}
    flags = make_dataclass("Flags", [(name, hint, field(default=None)) for name, hint in hints.items()])
    plain = get_type_hints(flags)
    texts = {name for name in table if str in (plain.get(name), *get_args(plain.get(name)))}
    given = {
        name: str(value) if name in texts and type(value) in (int, float) else value for name, value in table.items()
    }
    values = vars(records.read(flags, given, where=where))
    try:
        return _with(record, {name.rstrip("_"): values[name] for name in given})
    except ConfigError as refused:
        raise ConfigError(f"{where}: {refused}") from None


def _with(record: Any, values: Mapping[str, Any]) -> Any:
    hints, changes = get_type_hints(type(record), include_extras=True), {}
    for one in fields(record):
        value, name = getattr(record, one.name), _name(one.name, getattr(hints[one.name], "__metadata__", ()))
        if is_dataclass(value):
            changes[one.name] = _with(value, values)
        elif name in values:
            changes[one.name] = values[name]
    return replace(record, **changes)


def settings_of(kind: Any) -> tuple[dict[str, Any], list[str]]:
    """The flags of a verb that have a value of their own, as `--config` reads them, and the names of the others."""
    if reads_run_settings(kind):
        return records.to_dict(defaults(kind, (), None).settings), []
    chosen, open_ = dict[str, Any](), list[str]()
    for name, _, value, depends in _leaves(defaults(kind, (), None)):
        if depends or value is None or value is tyro.MISSING or value == ():
            open_.append(name)
        else:
            chosen[name] = str(value) if isinstance(value, Path) else value
    return chosen, open_
