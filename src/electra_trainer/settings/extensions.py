"""Code of your own: files that a command names (`--import FILE.py`) and installed packages with an entry point in the
group `electra_trainer.extensions`. What it defines registers itself when it is imported.
"""

import hashlib
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from electra_trainer.errors import ConfigError, require
from electra_trainer.files.reading import read_file

GROUP = "electra_trainer.extensions"
HINT = " One of your own? Name its file with --import FILE.py; in Python, import it."
imported: dict[str, str] = {}
"""Files by path, with their SHA-256, and entry points by value, with the package and its version."""


def files() -> list[str]:
    """Paths of the files that were imported, for other processes of the same work."""
    return [name for name in imported if name.endswith(".py")]


def flags() -> list[str]:
    """Words of a command that imports them again."""
    return [f"--import={file}" for file in files()]


def import_extensions(named: Iterable[str]) -> None:
    """Import what is installed, then these files, each once, as a module with the file's name.

    Raises:
        MissingInputError, StorageError: a file cannot be read. ConfigError: its code fails, or another module has its
            name.
    """
    for point in entry_points(group=GROUP):
        if point.value not in imported:
            _guarded(point.load, f"installed extension {point.value}")
            imported[point.value] = f"{point.dist.name} {point.dist.version}" if point.dist else ""
    for given in named:
        path = Path(given).resolve()
        require(path.suffix == ".py", "--import", given, "Python files, such as mine.py, with commas between them")
        content = read_file(path, error=ConfigError)
        sys.path.append(str(path.parent))
        module = _guarded(partial(import_module, path.stem), f"--import {given}", str(path))
        if Path(getattr(module, "__file__", None) or "").resolve() != path:
            raise ConfigError(f"--import {given}: another module is called {path.stem}. Rename the file.")
        imported[str(path)] = f"sha256:{hashlib.sha256(content).hexdigest()}"


def _guarded(load: Callable[[], Any], what: str, path: str = "") -> Any:
    try:
        return load()
    except Exception as error:
        lines = [f", line {at.lineno}" for at in traceback.extract_tb(error.__traceback__) if at.filename == path]
        raise ConfigError(f"{what}{''.join(lines[-1:])}: {type(error).__name__}: {error}") from None


def recorded() -> dict[str, dict[str, str]]:
    """A field of environment.json: names of what was imported, without folders; empty where nothing was."""
    named = {Path(name).name: found for name, found in imported.items()}
    return {"extensions": named} if named else {}


def differing(table: Mapping[str, Any]) -> tuple[str, list[str]]:
    """A remedy where a table has `recorded` what this process has not imported, and sentences on what has changed."""
    noted, now = table.get("extensions"), recorded().get("extensions", {})
    then = noted if isinstance(noted, dict) else {}
    lost = {name: found for name, found in then.items() if name not in now}
    made = ", ".join(f"{name} ({found})" for name, found in lost.items())
    remedy = f"It was made with {made}. Add --import {','.join(lost)}, or install it if it is a package."
    changed = [
        f"{name} has changed: {found} then, {now[name]} now."
        for name, found in then.items()
        if now.get(name, found) != found
    ]
    return remedy * bool(lost), changed
