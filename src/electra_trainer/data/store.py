"""Read and write rows on disk: a folder that is complete once its manifest is there; every field of the manifest is
checked.

DATA/manifest.json     written last; sizes, hashes, settings
DATA/train.bin         [rows, sequence_length] ids, little-endian uint16 (uint32 above 65,536 words), no header
DATA/valid.bin         the same, of held-out documents
DATA/tokenizer/        tokenizer.json, tokenizer_config.json, vocab.txt
DATA/train.documents   the documents that the rows are from; valid.documents the same, documents.jsonl their files
(documents.py) DATA/preparing.json    only while `prepare` is at work, or after it was stopped
"""

import contextlib
import hashlib
import json
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from electra_trainer.data.documents import DAMAGED, NAMES, DocumentFiles, FileInfo, RowDocuments
from electra_trainer.data.tokenizer import Specials, saved_tokenizer, specials_of, tokenizer_sha256, vocab_size_of
from electra_trainer.errors import ConfigError, DataError, ElectraError, MissingInputError, storage_error
from electra_trainer.files import durable, reading
from electra_trainer.settings import records

Split = Literal["train", "valid"]
SPLITS: tuple[Split, Split] = ("train", "valid")
MANIFEST = "manifest.json"
MARKER = "preparing.json"
_FILES = ("train.bin", "valid.bin", "train.documents", "valid.documents", NAMES)
_OURS = {MANIFEST, "tokenizer", *_FILES}
_CHUNK = 1 << 22
VERSION = 4
DTYPES = {"<u2": 2, "<u4": 4}
"""Kinds of ids on disk, with their bytes."""
_CHANGED = "It was damaged or changed by hand; run the same prepare command again with --overwrite."


@dataclass(frozen=True, kw_only=True)
class SplitInfo(FileInfo):
    """One file of rows."""

    rows: int
    tokens: int
    """Positions that are not padding."""
    text_tokens: int
    """Positions that are neither padding nor [CLS] nor [SEP]."""
    documents: int
    padding: float
    """Share of the positions that are padding."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A prepared folder."""

    version: int
    sequence_length: int
    vocab_size: int
    dtype: str
    specials: Specials
    tokenizer_sha256: str
    train: SplitInfo
    valid: SplitInfo
    corpus: dict[str, Any]
    """Counts of the corpus report."""
    settings: dict[str, Any]
    """Settings that decide the rows, and the names of the inputs."""
    documents: DocumentFiles

    def to_json(self) -> str:
        """Text of the file; the same values give the same text."""
        values = asdict(self)
        values["sha256"] = records.hash_of(values)
        return json.dumps(values, indent=2, sort_keys=True) + "\n"

    @property
    def shard(self) -> str | None:
        """I/N of a folder that is one shard of a preparation (shards.py), with no rows of a split perhaps; None of a
        whole one.
        """
        shard = self.settings.get("shard")
        return shard if isinstance(shard, str) else None

    @staticmethod
    def from_json(data: bytes, *, where: str) -> "Manifest":
        """Read and check.

        Raises:
            DataError: not JSON, another version, not as it was written, a field that is missing, unknown, of another
                type or out of range.
        """
        value = reading.json_object(data, where=where, remedy=_CHANGED)
        version = value.get("version")
        if version != VERSION or isinstance(version, bool):
            raise DataError(
                f"{where}: version is {reading.short(version)}, this program reads {VERSION}. Run the same prepare "
                "command again with --overwrite."
            )
        seal = value.pop("sha256", None)
        manifest = records.read(Manifest, value, where=where, error=DataError, remedy=_CHANGED, complete=True)
        _check(manifest, where=where)
        if seal != records.hash_of(value):
            raise DataError(f"{where}: is not as it was written (SHA-256). {_CHANGED}")
        return manifest


def _check(manifest: Manifest, *, where: str) -> None:
    def require(condition: bool, what: str) -> None:
        if not condition:
            raise DataError(f"{where}: {what}. {_CHANGED}")

    size = DTYPES.get(manifest.dtype, 0)
    require(8 <= manifest.sequence_length <= 1 << 16, f"sequence_length {manifest.sequence_length} is out of range")
    require(size > 0, f"dtype {manifest.dtype!r} is none of {', '.join(DTYPES)}")
    fits = 5 <= manifest.vocab_size <= 1 << (8 * size)
    require(fits, f"vocab_size {manifest.vocab_size} does not fit dtype {manifest.dtype}")
    ids = list(asdict(manifest.specials).values())
    distinct = len(set(ids)) == len(ids) and all(0 <= number < manifest.vocab_size for number in ids)
    require(distinct, "two specials have the same id, or one has an id outside of the vocabulary")
    for name, split in (("train", manifest.train), ("valid", manifest.valid)):
        positions = split.rows * manifest.sequence_length
        if manifest.shard and not split.rows:
            require(split.bytes == split.tokens == split.documents == 0, f"{name} has no rows")
            continue
        require(split.rows >= 1, f"{name} has no rows")
        require(split.bytes == positions * size, f"{name}.bytes does not fit its rows")
        require(0 < split.text_tokens < split.tokens <= positions, f"{name}.tokens does not fit its rows")
        require(split.documents >= 1, f"{name} has no documents")
        require(0 <= split.padding < 1, f"{name}.padding is not a share")


class Store:
    """A complete folder of prepared rows."""

    def __init__(self, folder: Path, manifest: Manifest, tokenizer: Tokenizer) -> None:
        self.folder, self.manifest, self._tokenizer = folder, manifest, tokenizer
        self.specials: Specials = manifest.specials
        """Ids of the special tokens."""
        self.vocab_size: int = manifest.vocab_size
        """Words in the vocabulary; all ids are below."""
        self.sequence_length: int = manifest.sequence_length
        """Tokens a row."""

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        verify: bool = False,
        tick: Callable[[], None] = lambda: None,
        is_shard: bool = False,
    ) -> "Store":
        """Open and check: the manifest, the sizes of the files, the tokenizer's hash; with `verify` every byte and id
        too.

        Args:
            folder: that `prepare` made.
            verify: read all of it.
            tick: called every few megabytes meanwhile.
            is_shard: it may be one shard of a preparation.

        Raises:
            MissingInputError: no such folder, or not one of ours. DataError: not finished, damaged, or put together
                from several.
            StorageError: cannot be read.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        if manifest.shard and not is_shard:
            raise DataError(
                f"{folder}: is shard {manifest.shard}. Put all together: electra merge {folder.parent} --out DATA"
            )
        for split in SPLITS:
            _check_file(folder / f"{split}.bin", getattr(manifest, split), manifest, verify=verify, tick=tick)
        documents = manifest.documents
        for name, info in zip(_FILES[2:], (documents.train, documents.valid, documents.names), strict=True):
            _check_file(folder / name, info, None, verify=verify, tick=tick)
        tokenizer = saved_tokenizer(folder / "tokenizer")
        found = tokenizer_sha256(tokenizer)
        if found != manifest.tokenizer_sha256:
            raise DataError(
                f"{folder / 'tokenizer'}: is not the tokenizer that made these rows (hash {found[:12]}, expected "
                f"{manifest.tokenizer_sha256[:12]}). Put the right one back, or prepare again with --overwrite."
            )
        if specials_of(tokenizer) != manifest.specials or vocab_size_of(tokenizer) != manifest.vocab_size:
            raise DataError(f"{folder / MANIFEST}: does not fit the tokenizer (specials, vocab_size). {DAMAGED}")
        return cls(folder, manifest, tokenizer)

    def rows(self, split: Split) -> NDArray[np.integer[Any]]:
        """Ids of a split, [rows, sequence_length], uint16 or uint32: a read-only map of the file, not in memory."""
        info: SplitInfo = getattr(self.manifest, split)
        path = self.folder / f"{split}.bin"
        try:
            return np.memmap(path, dtype=self.manifest.dtype, mode="r", shape=(info.rows, self.sequence_length))
        except OSError as error:
            raise storage_error(error, path) from None

    def documents(self, split: Split) -> RowDocuments:
        """The documents of a split's rows. DataError, StorageError."""
        rows: int = getattr(self.manifest, split).rows
        return RowDocuments(self.folder, split, sequence_length=self.sequence_length, rows=rows)

    @property
    def identity(self) -> dict[str, str]:
        """Hashes that identify the rows, as runs and experiments record them."""
        return {
            "tokenizer_sha256": self.manifest.tokenizer_sha256,
            "train_sha256": self.manifest.train.sha256,
            "valid_sha256": self.manifest.valid.sha256,
        }

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the rows."""
        return self._tokenizer


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a complete folder; errors as for `Store.open`."""
    path = folder / MANIFEST
    try:
        return Manifest.from_json(reading.read_file(path), where=str(path))
    except MissingInputError:
        if (folder / MARKER).exists():
            raise DataError(f"{folder}: preparation did not finish. Run the same prepare command again.") from None
        what = "is not a folder of prepared rows" if folder.exists() else "no such folder"
        raise MissingInputError(
            f"{folder}: {what}. Make one with `electra prepare FILES --tokenizer TOK --out {folder}`."
        ) from None


def _check_file(
    path: Path, info: FileInfo, manifest: Manifest | None, *, verify: bool, tick: Callable[[], None]
) -> None:
    """Compare a file with its entry in the manifest. With a `manifest` the file holds ids, which are checked too."""
    try:
        status = path.stat()
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        if size != info.bytes:
            raise DataError(f"{path}: has {size:,} bytes, expected {info.bytes:,}. {DAMAGED}")
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            if not verify:  # beginning and end show whether a file is of another vocabulary or was overwritten
                for start in (0, max(0, size - _CHUNK) // 4 * 4) if manifest else ():
                    stream.seek(start)
                    _check_ids(path, stream.read(_CHUNK), manifest)
                return
            while chunk := stream.read(_CHUNK):
                tick()
                digest.update(chunk)
                _check_ids(path, chunk, manifest)
    except OSError as error:
        raise storage_error(error, path) from None
    if digest.hexdigest() != info.sha256:
        raise DataError(f"{path}: its content has changed (SHA-256). {DAMAGED}")


def _check_ids(path: Path, chunk: bytes, manifest: Manifest | None) -> None:
    if manifest is None:
        return
    largest = int(np.frombuffer(chunk, dtype=manifest.dtype).max(initial=0))
    if largest >= manifest.vocab_size:
        raise DataError(f"{path}: holds id {largest}, the vocabulary ends at {manifest.vocab_size - 1}. {DAMAGED}")


class SplitWriter:
    """Writes one file of rows; its hash is computed from memory."""

    def __init__(self, path: Path, *, sequence_length: int, dtype: str, vocab_size: int) -> None:
        self._path = path
        self._length, self._dtype, self._vocab_size = sequence_length, dtype, vocab_size
        self._rows = 0
        self._file = durable.HashedFile(path)

    def write(self, rows: NDArray[np.generic]) -> None:
        """Append rows, [any, sequence_length]; DataError when an id is outside of the vocabulary."""
        if not len(rows):
            return
        largest = int(rows.max())
        if largest >= self._vocab_size:
            raise DataError(f"{self._path}: id {largest} is outside of the vocabulary of {self._vocab_size}.")
        self._file.write(np.ascontiguousarray(rows, dtype=self._dtype).tobytes())
        self._rows += len(rows)

    def close(self, *, documents: int = 0, text_tokens: int = 0, padding: int = 0) -> SplitInfo:
        """Force the file onto the disk; returns its entry in the manifest. `padding` in positions."""
        size, digest = self._file.close()
        positions = self._rows * self._length
        return SplitInfo(
            rows=self._rows,
            tokens=positions - padding,
            text_tokens=text_tokens,
            documents=documents,
            bytes=size,
            padding=padding / max(positions, 1),
            sha256=digest,
        )

    def abandon(self) -> None:
        """Close without an entry."""
        self._file.abandon()


def claim_folder(folder: Path, *, overwrite: bool, is_same: Callable[[Manifest], bool] = lambda _: False) -> None:
    """Make or empty the folder for a new preparation, and leave the marker in it.

    Nothing but a store's own files is ever removed.

    Args:
        folder: new, empty, left by a preparation that was stopped, or with `overwrite` a finished store.
        overwrite: replace a finished store.
        is_same: whether a manifest is that of the new preparation; for the words of the error.

    Raises:
        ConfigError: a folder that holds something else, or a finished store without `overwrite`. StorageError.
    """
    try:
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{folder}: is a file, expected a folder. Choose another --out.")
        folder.mkdir(parents=True, exist_ok=True)
        durable.sweep(folder)
        inside = {path.name for path in folder.iterdir() if not durable.is_temporary(path.name)}
        if inside and MARKER not in inside:
            if MANIFEST not in inside or inside - _OURS:
                raise ConfigError(f"{folder}: holds other things than prepared rows. Choose another --out.")
            if not overwrite:
                what = "these very rows, finished" if is_same(read_manifest(folder)) else "prepared rows already"
                raise ConfigError(
                    f"{folder}: holds {what}. Use them, choose another --out, or add --overwrite to make them again."
                )
        durable.replace_durably(folder / MARKER, b"{}\n")
        (folder / MANIFEST).unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(error, error.filename or folder, writing=True) from None


@contextlib.contextmanager
def claimed(folder: Path, *, overwrite: bool, is_same: Callable[[Manifest], bool] = lambda _: False) -> Iterator[None]:
    """A folder to write rows into, claimed as `claim_folder` does. After an error of the input nothing of it is of use:
    it is emptied.
    """
    claim_folder(folder, overwrite=overwrite, is_same=is_same)
    try:
        yield
    except ElectraError:
        give_up(folder)
        raise
    except OSError as error:
        raise storage_error(error, error.filename or folder) from None


def give_up(folder: Path) -> None:
    """Remove the files of a failed preparation from a claimed folder, and the folder if it is empty then."""
    with contextlib.suppress(OSError):
        for name in (*_FILES, MANIFEST, MARKER):
            (folder / name).unlink(missing_ok=True)
        shutil.rmtree(folder / "tokenizer", ignore_errors=True)
        folder.rmdir()


def publish(folder: Path, manifest: Manifest) -> None:
    """Write the manifest last, atomically, and remove the marker; StorageError."""
    durable.replace_durably(folder / MANIFEST, manifest.to_json().encode())
    tidied(folder, manifest)


def tidied(folder: Path, manifest: Manifest) -> Manifest:
    """Remove what killed processes left in a folder whose manifest is there, and the marker last of all;
    StorageError.
    """
    try:
        durable.sweep(folder)
        (folder / MARKER).unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(error, error.filename or folder) from None
    return manifest
