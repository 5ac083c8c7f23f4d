"""Read and write rows on disk: a folder that is complete once its manifest is there; every field of the manifest is
checked.

DATA/manifest.json     written last; sizes, hashes, settings
DATA/train.bin         [rows, sequence_length] ids, little-endian uint16 (uint32 above 65,536 words), no header
DATA/valid.bin         the same, of held-out documents
DATA/tokenizer/        tokenizer.json, tokenizer_config.json, vocab.txt
DATA/train.documents   the documents that the rows are from, in their order; valid.documents the same
DATA/documents.jsonl   the names of the corpus files, one JSON string a line
DATA/preparing.json    only while `prepare` is at work, or after it was stopped

An entry of train.documents is five little-endian int64: where the document begins, as a position in all rows (row times
sequence_length plus column), the file's line in documents.jsonl from 0, its number there, its first line, the lines
after it. A document ends where the next entry begins.
"""

import contextlib
import hashlib
import json
import shutil
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from electra_trainer.data.document import Place
from electra_trainer.data.tokenizer import Specials, saved_tokenizer, tokenizer_sha256
from electra_trainer.errors import ConfigError, DataError, ElectraError, MissingInputError, storage_error, tell
from electra_trainer.files import durable, reading
from electra_trainer.files.wording import Printed
from electra_trainer.settings import records

Split = Literal["train", "valid"]
SPLITS: tuple[Split, Split] = ("train", "valid")
MANIFEST = "manifest.json"
MARKER = "preparing.json"
NAMES = "documents.jsonl"
_FILES = ("train.bin", "valid.bin", "train.documents", "valid.documents", NAMES)
_OURS = {MANIFEST, "tokenizer", *_FILES}
VERSION = 4
_ENTRY = struct.Struct("<5q")
DAMAGED = "It is damaged: delete the folder, and prepare again."
_CHANGED = "It was damaged or changed by hand: delete the folder, and run the same prepare command again."


@dataclass(frozen=True, kw_only=True)
class FileInfo:
    """Size and hash of a file."""

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class DocumentFiles:
    """Entries in the manifest of the files that say which documents the rows are from."""

    names: FileInfo
    train: FileInfo
    valid: FileInfo


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
class Manifest(Printed):
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
        """I/N of a folder that is one shard of a preparation (prepare.py), with no rows of a split perhaps; None of a
        whole one.
        """
        return self.settings.get("shard")

    @staticmethod
    def from_json(data: bytes, *, where: str) -> "Manifest":
        """Read and check.

        Raises:
            DataError: not JSON, another version, not as it was written, a field that is missing, unknown, of another
                type.
        """
        value = reading.json_object(data, where=where, remedy=_CHANGED)
        version = value.get("version")
        if version != VERSION or isinstance(version, bool):
            raise DataError(
                f"{where}: version is {reading.short(version)}, this program reads {VERSION}. Delete the folder, "
                "and run the same prepare command again."
            )
        seal = value.pop("sha256", None)
        manifest = records.read(Manifest, value, where=where, error=DataError, remedy=_CHANGED, complete=True)
        if seal != records.hash_of(value):
            raise DataError(f"{where}: is not as it was written (SHA-256). {_CHANGED}")
        return manifest


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
    def open(cls, folder: str | Path, *, verify: bool = False, is_shard: bool = False) -> "Store":
        """Open and check: the manifest, the sizes of the files, the tokenizer's hash; with `verify` every byte too.

        Args:
            folder: that `prepare` made.
            verify: read all of it.
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
        documents = manifest.documents
        infos = (manifest.train, manifest.valid, documents.train, documents.valid, documents.names)
        for name, info in zip(_FILES, infos, strict=True):
            _check_file(folder / name, info, verify=verify)
        tokenizer = saved_tokenizer(folder / "tokenizer")
        if (found := tokenizer_sha256(tokenizer)) != manifest.tokenizer_sha256:
            raise DataError(
                f"{folder / 'tokenizer'}: is not the tokenizer that made these rows (hash {found[:12]}, expected "
                f"{manifest.tokenizer_sha256[:12]}). Put the right one back, or delete the folder and prepare again."
            )
        return cls(folder, manifest, tokenizer)

    def rows(self, split: Split) -> NDArray[np.integer[Any]]:
        """Ids of a split, [rows, sequence_length], uint16 or uint32: a read-only map of the file, not in memory."""
        info: SplitInfo = getattr(self.manifest, split)
        path = self.folder / f"{split}.bin"
        try:
            return np.memmap(path, dtype=self.manifest.dtype, mode="r", shape=(info.rows, self.sequence_length))
        except OSError as error:
            raise storage_error(error, path) from None

    def documents(self, split: Split) -> "RowDocuments":
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


def _check_file(path: Path, info: FileInfo, *, verify: bool) -> None:
    """Compare a file with its entry in the manifest."""
    try:
        if (size := path.stat().st_size) != info.bytes:
            raise DataError(f"{path}: has {size:,} bytes, expected {info.bytes:,}. {DAMAGED}")
        if not verify:
            return
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256")
    except OSError as error:
        raise storage_error(error, path) from None
    if digest.hexdigest() != info.sha256:
        raise DataError(f"{path}: its content has changed (SHA-256). {DAMAGED}")


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A document's part of a row."""

    place: Place
    begin: int
    """Its first column."""
    end: int
    """The column after its last; padding at the end of the row is within."""
    start: int
    """Where the document begins, as a position in all rows of the split."""


class RowDocuments:
    """The documents of one split's rows.

    Args:
        folder: of the store.
        split: train or valid.
        sequence_length: tokens a row.
        rows: in the split.

    Raises:
        DataError: the file is damaged. StorageError: it cannot be read.
    """

    def __init__(self, folder: Path, split: str, *, sequence_length: int, rows: int) -> None:
        self._names, self._path = folder / NAMES, folder / f"{split}.documents"
        self._length, self._size = sequence_length, sequence_length * rows
        try:
            self._entries: Any = np.memmap(self._path, "<i8", mode="r").reshape(-1, 5)
        except OSError as error:
            raise storage_error(error, self._path) from None
        except ValueError:
            raise DataError(f"{self._path}: is not a list of documents. {DAMAGED}") from None
        lines = reading.lines(reading.read_file(self._names, limit=reading.MOST_TEXT), self._names)
        self._files = [
            str(reading.parse_json(line, where=f"{self._names}:{number}", remedy=DAMAGED)) for number, line in lines
        ]

    def row(self, index: int) -> list[Passage]:
        """The passages of a row, in order. Raises DataError or StorageError as above."""
        begin, end = index * self._length, (index + 1) * self._length
        first = max(0, bisect_right(self._entries, begin, key=_start) - 1)
        last = bisect_left(self._entries, end, lo=first, key=_start)
        entries = self._entries[first : last + 1]
        starts = [*entries[:, 0].tolist(), *([self._size] if last == len(self._entries) else [])]
        if starts[0] > begin or (entries < 0).any() or any(one >= other for one, other in pairwise(starts)):
            raise DataError(f"{self._path}: the documents of row {index:,} are not in order. {DAMAGED}")
        return [
            Passage(place=self._place(entry), begin=max(start, begin) - begin, end=min(after, end) - begin, start=start)
            for entry, (start, after) in zip(entries, pairwise(starts), strict=False)
        ]

    def all(self) -> Iterator[tuple[int, Place]]:
        """Every document of the split: its first position in all rows, and its place; errors as above."""
        for entry in self._entries:
            yield _start(entry), self._place(entry)

    def _place(self, entry: Any) -> Place:
        _, file, number, line, more = entry.tolist()
        if file not in range(len(self._files)):
            raise DataError(f"{self._names}: lacks line {file + 1:,}. {DAMAGED}")
        return Place(self._files[file], number, line, line + more)


def _start(entry: Any) -> int:
    return int(entry[0])


class StoreWriter:
    """Writes the files of a store as rows and documents come. Raises OSError as the system gives it."""

    def __init__(self, folder: Path, *, sequence_length: int, dtype: str, vocab_size: int) -> None:
        self._folder, self._length, self._dtype, self._vocab_size = folder, sequence_length, dtype, vocab_size
        self._files = {name: durable.HashedFile(folder / name) for name in _FILES}
        self._rows, self._known = dict.fromkeys(SPLITS, 0), dict[str, int]()

    def write(self, split: Split, rows: NDArray[np.generic]) -> None:
        """Append rows, [any, sequence_length]. Raises DataError when an id is outside of the vocabulary."""
        largest = int(rows.max(initial=0))
        if largest >= self._vocab_size:
            raise DataError(f"{self._folder}: id {largest} is outside of the vocabulary of {self._vocab_size}.")
        self._files[f"{split}.bin"].write(np.ascontiguousarray(rows, dtype=self._dtype).tobytes())
        self._rows[split] += len(rows)

    def add_document(self, split: Split, start: int, place: Place) -> None:
        """Add a document that begins at position `start` of all rows of a split, in their order."""
        if place.file not in self._known:
            self._known[place.file] = len(self._known)
            self._files[NAMES].write(json.dumps(place.file).encode() + b"\n")
        entry = _ENTRY.pack(start, self._known[place.file], place.number, place.line, place.last - place.line)
        self._files[f"{split}.documents"].write(entry)

    def finish(self, counts: Mapping[Split, tuple[int, int, int]]) -> dict[str, Any]:
        """Force the files onto the disk; returns the fields train, valid and documents of the manifest.

        Args:
            counts: the documents, the tokens of text and the positions of padding in each split.
        """
        closed = {name: one.close() for name, one in self._files.items()}
        infos = {name: FileInfo(bytes=size, sha256=digest) for name, (size, digest) in closed.items()}
        fields: dict[str, Any] = {
            "documents": DocumentFiles(
                names=infos[NAMES], train=infos["train.documents"], valid=infos["valid.documents"]
            )
        }
        for split, (documents, text_tokens, padding) in counts.items():
            positions = self._rows[split] * self._length
            fields[split] = SplitInfo(
                **asdict(infos[f"{split}.bin"]),
                rows=self._rows[split],
                tokens=positions - padding,
                text_tokens=text_tokens,
                documents=documents,
                padding=padding / max(positions, 1),
            )
        return fields

    def close(self) -> None:
        """Close the files; those of a store that is not finished are of no use."""
        for file in self._files.values():
            file.abandon()


@contextlib.contextmanager
def claimed(
    folder: Path, *, asked: tuple[dict[str, Any], str, int] | None = None, latest: float = 0.0
) -> Iterator[Manifest | None]:
    """A folder to write rows into, held, with the marker in it; or the manifest, where the same command has finished.
    Nothing but a store's own files is ever removed.

    After an error of the input nothing of it is of use: it is emptied.

    Args:
        folder: new, empty, or left by a preparation that was stopped.
        asked: settings, the tokenizer's hash and the sequence length; "sources" in the settings identifies the text.
        latest: when the text last changed.

    Raises:
        ConfigError: another command is at work there; a folder that holds something else, or another finished store.
            DataError: what is there already is damaged. StorageError.
    """
    with durable.alone(folder):
        try:
            if folder.exists() and not folder.is_dir():
                raise ConfigError(f"{folder}: is a file, expected a folder. Choose another --out.")
            folder.mkdir(parents=True, exist_ok=True)
            durable.sweep(folder)
            inside = {path.name for path in folder.iterdir() if not durable.is_temporary(path.name)}
            if MANIFEST in inside and asked and "sources" in asked[0]:
                made = Store.open(folder, is_shard=True).manifest
                same = (made.settings, made.tokenizer_sha256, made.sequence_length) == asked
                if same and latest <= (folder / MANIFEST).stat().st_mtime:
                    (folder / MARKER).unlink(missing_ok=True)
                    tell(f"{folder}: is there already, of the same text and settings.")
                    yield made
                    return
            if inside and MARKER not in inside:
                if MANIFEST not in inside or inside - _OURS:
                    raise ConfigError(f"{folder}: holds other things than prepared rows. Choose another --out.")
                raise ConfigError(f"{folder}: holds prepared rows already. Use them, or choose another --out.")
            durable.replace_durably(folder / MARKER, b"{}\n")
            (folder / MANIFEST).unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(error, error.filename or folder, writing=True) from None
        try:
            yield None
        except ElectraError:
            with contextlib.suppress(OSError):
                for name in (*_FILES, MANIFEST, MARKER):
                    (folder / name).unlink(missing_ok=True)
                shutil.rmtree(folder / "tokenizer", ignore_errors=True)
                folder.rmdir()
            raise
        except OSError as error:
            raise storage_error(error, error.filename or folder) from None


def publish(folder: Path, manifest: Manifest) -> Manifest:
    """Write the manifest last, atomically, then remove what killed processes left, and the marker last of all;
    StorageError.
    """
    durable.replace_durably(folder / MANIFEST, manifest.to_json().encode())
    try:
        durable.sweep(folder)
        (folder / MARKER).unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(error, error.filename or folder) from None
    return manifest
