"""Read and write `manifest.json`, which describes a folder of prepared rows; every field is checked."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from electra_trainer.data.tokenizer import Specials
from electra_trainer.errors import DataError
from electra_trainer.files.reading import parse_json, short
from electra_trainer.settings import records

VERSION = 3
_WITHOUT_SEAL, _WITHOUT_DOCUMENTS = 2, 1
"""Still read: without a hash of the manifest itself; also without the documents that the rows are from."""
DTYPES = {"<u2": 2, "<u4": 4}
"""Kinds of ids on disk, with their bytes."""
_REMEDY = "It was damaged or changed by hand; run the same prepare command again with --overwrite."


@dataclass(frozen=True, kw_only=True)
class SplitInfo:
    """One file of rows."""

    rows: int
    tokens: int
    """Positions that are not padding."""
    text_tokens: int
    """Positions that are neither padding nor [CLS] nor [SEP]."""
    documents: int
    bytes: int
    """Size of the file."""
    padding: float
    """Share of the positions that are padding."""
    sha256: str


@dataclass(frozen=True, kw_only=True)
class FileInfo:
    """Another file."""

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class DocumentFiles:
    """The files that say which documents the rows are from: see documents.py."""

    names: FileInfo
    train: FileInfo
    valid: FileInfo


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
    documents: DocumentFiles | None = None
    """None in a folder of version 1."""

    def to_json(self) -> str:
        """Text of the file; the same values give the same text."""
        values = asdict(self)
        if self.documents is None:
            del values["documents"]
        if self.version == VERSION:
            values["sha256"] = records.hash_of(values)
        return json.dumps(values, indent=2, sort_keys=True) + "\n"

    @staticmethod
    def from_json(data: bytes, *, where: str) -> "Manifest":
        """Read and check.

        Raises:
            DataError: not JSON, another version, not as it was written, a field that is missing, unknown, of another type or out of range.
        """
        value = parse_json(data, where=where, remedy=_REMEDY)
        version = value.get("version") if isinstance(value, dict) else None
        if version not in (VERSION, _WITHOUT_SEAL, _WITHOUT_DOCUMENTS) or isinstance(version, bool):
            raise DataError(
                f"{where}: version is {short(version)}, this program reads 1 to {VERSION}. Run the same prepare command again with "
                "--overwrite."
            )
        seal = value.pop("sha256", None) if version == VERSION else None
        absent = {"documents": None} if version == _WITHOUT_DOCUMENTS else {}
        manifest = records.read(Manifest, absent | value, where=where, error=DataError, remedy=_REMEDY, complete=True)
        _check(manifest, where=where)
        if version == VERSION and seal != records.hash_of(value):
            raise DataError(f"{where}: is not as it was written (SHA-256). {_REMEDY}")
        return manifest


def _check(manifest: Manifest, *, where: str) -> None:
    def require(condition: bool, what: str) -> None:
        if not condition:
            raise DataError(f"{where}: {what}. {_REMEDY}")

    size = DTYPES.get(manifest.dtype, 0)
    require(
        (manifest.documents is None) == (manifest.version == _WITHOUT_DOCUMENTS), "documents does not fit its version"
    )
    require(8 <= manifest.sequence_length <= 1 << 16, f"sequence_length {manifest.sequence_length} is out of range")
    require(size > 0, f"dtype {manifest.dtype!r} is none of {', '.join(DTYPES)}")
    fits = 5 <= manifest.vocab_size <= 1 << (8 * size)
    require(fits, f"vocab_size {manifest.vocab_size} does not fit dtype {manifest.dtype}")
    ids = list(asdict(manifest.specials).values())
    distinct = len(set(ids)) == len(ids) and all(0 <= number < manifest.vocab_size for number in ids)
    require(distinct, "two specials have the same id, or one has an id outside of the vocabulary")
    for name, split in (("train", manifest.train), ("valid", manifest.valid)):
        positions = split.rows * manifest.sequence_length
        require(split.rows >= 1, f"{name} has no rows")
        require(split.bytes == positions * size, f"{name}.bytes does not fit its rows")
        require(0 < split.text_tokens < split.tokens <= positions, f"{name}.tokens does not fit its rows")
        require(split.documents >= 1, f"{name} has no documents")
        require(0 <= split.padding < 1, f"{name}.padding is not a share")
