"""Find inputs by name: files, folders, patterns, URLs, data sets of the package `datasets`, and texts of a program.

Data sets are read by `datasets`, of the extra [hub], which is imported for them alone.
"""

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from electra_trainer import errors
from electra_trainer.errors import DataError, MissingInputError, StorageError
from electra_trainer.files import reading
from electra_trainer.files.formats import FORMATS
from electra_trainer.files.opening import OPENERS, ROWS, Rows, TextFile, is_url, reach, reason, unreached

_TEXT = tuple(ending for ending in FORMATS if ending not in (".csv", ".tsv", ".json"))
"""Endings of files that a folder may hold: tables and .json are often something else there."""
_DATA_SET = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w.-]+))?"
    r"(:(?P<config>[\w.-]*))?(:(?P<split>[\w.-]+))?"
)


@dataclass(frozen=True)
class DataSet:
    """A data set of the Hub."""

    owner_and_name: str
    commit: str
    config: str
    split: str
    size: int = 0

    def __str__(self) -> str:
        """A name that may be given as an input again."""
        return f"{self.owner_and_name}@{self.commit}:{self.config}:{self.split}"

    def rows(self, column: str | None) -> Rows:
        """All rows.

        Raises:
            ConfigError: the extra [hub] is missing. ElectraError: it is not there, or cannot be read.
        """
        errors.need(f"Reading {self}", ["datasets"], extra="hub")
        import datasets

        how: dict[str, Any] = {"split": self.split, "revision": self.commit, "streaming": True}
        try:
            yield from enumerated(datasets.load_dataset(self.owner_and_name, self.config or None, **how), column)
        except Exception as error:
            raise unreached(str(self), error) from None


@dataclass(frozen=True)
class Texts:
    """Documents that a program gives: texts, lists of lines, or mappings of which a field is one or the other."""

    items: Iterable[object]
    size: int = 0

    def __str__(self) -> str:
        return "documents"

    def rows(self, column: str) -> Rows:
        """Rows with that column, in which lists of lines are texts."""
        for row, number in enumerated(self.items, column):
            value: Any = row.get(column)
            is_lines = isinstance(value, list | tuple) and all(isinstance(line, str) for line in value)
            yield {column: "\n".join(value)} if is_lines else row, number


def enumerated(items: Any, column: str | None) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Mappings with their numbers from 1; of another item one with it as `column`, None: as `text`."""
    if hasattr(items, "select_columns"):  # of the package datasets, where rows one at a time are slow
        items = items.select_columns([column]) if column in (items.column_names or ()) else items
        batches = items.iter(batch_size=ROWS)
        items = (dict(zip(batch, row, strict=True)) for batch in batches for row in zip(*batch.values(), strict=True))
    for number, item in enumerate(items, 1):
        yield item if isinstance(item, Mapping) else {column or "text": item}, number


def data_set(name: str) -> DataSet | None:
    """The data set that an input names; None if it is of another kind.

    A name of the Hub is OWNER/NAME[@REVISION][:CONFIG[:SPLIT]], and nothing on the disk. The commit is settled here,
    once for the process, so that all passes read the same rows.

    Raises:
        ConfigError: a package is missing. StorageError: the Hub gave no such data set.
    """
    found = _DATA_SET.fullmatch(name)
    if found is None or Path(name).parent.exists() or Path(name).suffix in (*OPENERS, *FORMATS):
        return None
    return DataSet(found[1], _commit(found[1], found["revision"]), found["config"] or "", found["split"] or "train")


@cache
def _commit(name: str, revision: str | None) -> str:
    errors.need(f"{name} is not on this disk; reading it from the Hub", ["huggingface_hub"], extra="hub")
    import huggingface_hub

    try:
        return str(huggingface_hub.HfApi().dataset_info(name, revision=revision).sha)
    except Exception as error:
        what = f"is not on this disk, and the Hub gave no data set of this name ({reason(error)})"
        raise StorageError(f"{name}: {what}. Check the name, your login and the network.") from None


Source = TextFile | DataSet | Texts
"""Origin of documents."""


def find_sources(paths: Sequence[str | Path | Texts]) -> tuple[list[Source], int]:
    """Resolve files, folders, glob patterns, URLs and names of data sets, in the order given and sorted within each;
    what is named twice is found once.

    Returns:
        What is to be read; how many other files in folders were left out because of their names.

    Raises:
        MissingInputError: nothing there, or a pattern that matches nothing.
        DataError: no path at all, a folder without text, something that is not a regular file.
    """
    found: dict[Any, Source] = {}
    skipped = 0
    for name in [paths] if isinstance(paths, str | Path) else paths:
        if isinstance(name, Texts):
            found.setdefault(id(name), name)
        elif is_url(str(name)):
            found |= {file.url: file for file in remote_files(str(name)) if file.url not in found}
        elif data := data_set(str(name)):
            found.setdefault(str(data), data)
        else:
            files, others = _expand(str(name))
            skipped += others
            for path in files:
                status = reading.regular(path, limit=sys.maxsize)
                found.setdefault((status.st_dev, status.st_ino), TextFile(path, status.st_size))
    return list(found.values()), skipped


def _expand(name: str) -> tuple[list[Path], int]:
    """Files that a path or a pattern names, and how many others its folder holds."""
    if os.path.isdir(name):  # noqa: PTH112 - False for what cannot be a name
        return _in_folder(Path(name))
    if os.path.lexists(name):
        return [Path(name)], 0
    if not any(character in name for character in "*?["):
        remedy = "Check the path; `docstrings` names the embedded corpus, OWNER/NAME a data set of the Hub."
        raise MissingInputError(f"{name}: no such file or folder. {remedy}")
    matches = map(Path, sorted(glob.glob(name, recursive=True)))  # noqa: PTH207 - absolute patterns too
    if not (kept := [match for match in matches if not match.is_dir()]):
        raise MissingInputError(f"{name}: the pattern matches no file. Check it, and quote it for the shell.")
    return kept, 0


def _in_folder(folder: Path) -> tuple[list[Path], int]:
    def refuse(error: OSError) -> None:
        raise errors.storage_error(error, error.filename or folder)

    kept: list[Path] = []
    skipped = 0
    for root, folders, names in os.walk(folder, onerror=refuse):
        folders.sort()
        if "dataset_info.json" in names:  # of several splits each folder has one
            remedy = f"in Python datasets.load_from_disk({root!r}).to_parquet('a.parquet'), and name them"
            raise DataError(f"{root}: is a folder of `save_to_disk`. Write its rows, {remedy}.")
        texts = sorted(filter(_is_text, names))
        kept += [Path(root, name) for name in texts]
        skipped += len(names) - len(texts)
    if not kept:
        wanted = f"expected {', '.join(_TEXT)} (or those with {', '.join(OPENERS)})"
        raise DataError(f"{folder}: holds no text, {wanted}. Name files of other names one by one, or with a pattern.")
    return kept, skipped


def _is_text(name: str) -> bool:
    """Whether a file in a folder is taken for text."""
    return TextFile(Path(name), 0).suffix in _TEXT and not name.startswith(".")


def remote_files(url: str) -> list[TextFile]:
    """Files at a URL, sorted: itself, those that a pattern matches, or those of a folder that are text.

    Raises:
        ConfigError: a package is missing. MissingInputError: nothing is there. StorageError: it cannot be reached.
    """
    system, path = reach(url)
    is_web = url.lower().startswith("http")  # a page has neither patterns nor folders
    try:
        if not is_web and any(character in path for character in "*?["):
            found = sorted(one for one in system.glob(path) if system.isfile(one))
        elif not is_web and system.isdir(path):
            found = sorted(one for one in system.find(path) if _is_text(one.rpartition("/")[2]))
        else:
            found = [path]
        sizes = [int(system.info(one).get("size") or 0) for one in found]
    except Exception as error:
        raise unreached(url, error) from None
    if not found:
        raise MissingInputError(f"{url}: no file of text is there. Check the address, and quote a pattern.")
    urls = found if is_web else map(system.unstrip_protocol, found)
    names = [Path(one.partition("?")[0].rpartition("/")[2]) for one in found]
    return [TextFile(name, size, url) for name, size, url in zip(names, sizes, urls, strict=True)]
