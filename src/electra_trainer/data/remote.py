"""Text that is not in files here: at a URL, by fsspec; in a data set of the Hub or from `save_to_disk`, by `datasets`;
in memory.

These packages are the extra [hub]. Nothing of them is imported before an input of the kind is named.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from electra_trainer.errors import ConfigError, DataError, ElectraError, MissingInputError, StorageError, install

ROWS = 1000
"""Rows that are asked for at once: one at a time takes forty times as long."""
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
HUB_NAME = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w.-]+))?"
    r"(:(?P<config>[\w.-]*))?(:(?P<split>[\w.-]+))?"
)


@contextmanager
def extra(what: str) -> Iterator[None]:
    """Around the import of a package of the extra; ConfigError says how it is installed. `what` begins the sentence."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"{what} needs the package {(error.name or str(error)).partition('.')[0]}, of the extra [hub]. Type, "
            f"{install('hub')}"
        ) from None


def is_url(name: str) -> bool:
    """Whether an input is a URL such as s3://bucket/text.txt."""
    return _URL.match(name) is not None


def _reach(url: str) -> tuple[Any, str]:
    """The file system of a URL, and its path there."""
    with extra(f"Reading {url}"):
        from fsspec import core
    try:
        return core.url_to_fs(url)  # type: ignore[no-any-return]
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{url}: {url.partition('://')[0]}:// cannot be read ({error}).") from None


def unreached(url: str, error: Exception) -> ElectraError:
    """The sentence on an error of a package that reads from elsewhere."""
    if isinstance(error, ElectraError):
        return error
    if isinstance(error, FileNotFoundError):
        reason = f", or it cannot be reached ({error.__cause__})" if error.__cause__ else ""
        return MissingInputError(f"{url}: nothing is there{reason[:200]}. Check the address.")
    reason = " ".join(str(error).split()) or type(error).__name__
    return StorageError(
        f"{url}: cannot be read ({reason[:200]}). Check the address (OWNER/NAME:CONFIG where a data set has several "
        "configurations), your rights and the network, then try again."
    )


def files(url: str, *, is_text: Callable[[str], bool]) -> list[tuple[str, int]]:
    """Files at a URL, sorted, with their bytes (0: unknown): itself, those that a pattern matches, or those of a folder
    that are text.

    Raises:
        ConfigError: a package is missing. MissingInputError: nothing is there. StorageError: it cannot be reached.
    """
    system, path = _reach(url)
    is_web = url.lower().startswith("http")  # a page has neither patterns nor folders
    try:
        if not is_web and any(character in path for character in "*?["):
            found = sorted(one for one in system.glob(path) if system.isfile(one))
        elif not is_web and system.isdir(path):
            found = sorted(one for one in system.find(path) if is_text(one.rpartition("/")[2]))
        else:
            found = [path]
        sizes = [int(system.info(one).get("size") or 0) for one in found]
    except Exception as error:
        raise unreached(url, error) from None
    if not found:
        raise MissingInputError(f"{url}: no file of text is there. Check the address, and quote a pattern.")
    return [(one if is_web else system.unstrip_protocol(one), size) for one, size in zip(found, sizes, strict=True)]


def opened(url: str) -> IO[bytes]:
    """The bytes of a file at a URL; errors as for `files`."""
    system, path = _reach(url)
    try:
        return system.open(path, "rb")  # type: ignore[no-any-return]
    except Exception as error:
        raise unreached(url, error) from None


@dataclass(frozen=True)
class DataSet:
    """A data set of the package `datasets`: of the Hub, or a folder that `save_to_disk` made."""

    name: str
    """A folder, or OWNER/NAME@COMMIT:CONFIG:SPLIT, which may be given as an input again."""
    is_folder: bool
    size: int = 0

    def __str__(self) -> str:
        return self.name

    def texts(self, column: str) -> Iterator[tuple[Any, int]]:
        """The values of a column, with their rows, from 1.

        Raises:
            DataError: there is not such a column. ElectraError: it is not there, or cannot be read.
        """
        try:
            yield from Texts(self.loaded(column)).texts(column)
        except Exception as error:
            raise unreached(self.name, error) from None

    def loaded(self, column: str) -> Any:
        """The data set with this column only; errors as for `texts`, and those of the package."""
        with extra(f"Reading {self.name}"):
            import datasets
        if self.is_folder:
            data = datasets.load_from_disk(self.name, keep_in_memory=False)
        else:
            name, revision, config, split = _hub_parts(self.name)
            data = datasets.load_dataset(name, config, split=split, revision=revision, streaming=True)
        data = data["train"] if isinstance(data, dict) else data
        columns = data.column_names
        if columns and column not in columns:
            raise no_column(self.name, column, columns)
        return data.select_columns([column]) if columns else data


@dataclass(frozen=True)
class Texts:
    """Documents that a program gives: texts, lists of lines, or mappings of which a field is one or the other."""

    items: Iterable[object]
    size: int = 0

    def __str__(self) -> str:
        return "documents"

    def texts(self, column: str) -> Iterator[tuple[Any, int]]:
        """Their texts, with their numbers from 1; DataError: a mapping without that field."""
        items: Any = self.items
        if hasattr(items, "select_columns"):  # of the package datasets, where rows one at a time are slow
            items = (value for batch in items.iter(batch_size=ROWS) for value in batch.get(column) or [batch])
        for number, item in enumerate(items, 1):
            value: Any = item
            if isinstance(item, Mapping):
                if column not in item:
                    raise no_column(f"{self}:{number}", column, [*item])
                value = item[column]
            is_lines = isinstance(value, list | tuple) and all(isinstance(line, str) for line in value)
            yield "\n".join(value) if is_lines else value, number


def no_column(name: object, column: str, columns: Sequence[str]) -> DataError:
    """There is not a column of that name."""
    some = ", ".join(str(one)[:40] for one in columns[:12])
    return DataError(f"{name}: has no column {column!r}. The columns are: {some}. Choose one with --text-field.")


def data_set(name: str, *, endings: Collection[str]) -> DataSet | None:
    """The data set that an input names; None if it is of another kind.

    A name of the Hub is OWNER/NAME[@REVISION][:CONFIG[:SPLIT]], and nothing on the disk. The commit is settled here,
    once for the process, so that all passes read the same rows.

    Raises:
        ConfigError: a package is missing. StorageError: the Hub gave no such data set.
    """
    folder = Path(name)
    with suppress(OSError, ValueError):  # not a name that the disk can have
        if any((folder / mark).is_file() for mark in ("dataset_dict.json", "dataset_info.json")):
            return DataSet(name, True)
    if not HUB_NAME.fullmatch(name) or folder.parent.exists() or folder.suffix in endings:
        return None
    owner, revision, config, split = _hub_parts(name)
    return DataSet(f"{owner}@{_commit(owner, revision)}:{config or ''}:{split}", False)


def _hub_parts(name: str) -> tuple[str, str | None, str | None, str]:
    found = HUB_NAME.fullmatch(name)
    assert found is not None
    return found["name"], found["revision"], found["config"] or None, found["split"] or "train"


@cache
def _commit(name: str, revision: str | None) -> str:
    with extra(f"{name} is not on this disk; reading it from the Hub"):
        import huggingface_hub
    try:
        return str(huggingface_hub.HfApi().dataset_info(name, revision=revision).sha)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise StorageError(
            f"{name}: is not on this disk, and the Hub gave no data set of this name ({type(error).__name__}: "
            f"{reason}). Check the name, your login and the network."
        ) from None
