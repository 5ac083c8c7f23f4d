"""What a folder of prepared rows says about itself: `manifest.json`, checked field by field when it is read."""

import json
import types
import typing
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from electra_trainer.data.tokenizer import Specials
from electra_trainer.errors import DataError
from electra_trainer.files.reading import parse_json, short
from electra_trainer.settings.records import hash_of

VERSION = 3
_WITHOUT_SEAL, _WITHOUT_DOCUMENTS = 2, 1
"""Still read: no hash of the manifest itself; and not known which documents the rows are from."""
DTYPES = {"<u2": 2, "<u4": 4}
"""Kinds of ids on disk, with their bytes."""
_T = TypeVar("_T")


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
    """The files that say which documents the rows are from: see row_documents.py."""

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
            values["sha256"] = hash_of(values)
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
        manifest = _read(Manifest, value, where=where, prefix="")
        _check(manifest, where=where)
        if version == VERSION and seal != hash_of(value):
            raise DataError(f"{where}: is not as it was written (SHA-256). {_REMEDY}")
        return manifest


def _read(kind: type[_T], value: object, *, where: str, prefix: str) -> _T:
    if not isinstance(value, dict):
        raise DataError(f"{where}: {prefix or 'the file'} should be an object. {_REMEDY}")
    hints = typing.get_type_hints(kind)
    names = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    if kind is Manifest and value["version"] == _WITHOUT_DOCUMENTS:
        names.remove("documents")
    for name in names:
        if name not in value:
            raise DataError(f"{where}: field {prefix}{name} is missing. {_REMEDY}")
    for name in value:
        if name not in names:
            raise DataError(f"{where}: field {short(prefix + name)} is unknown. {_REMEDY}")
    return kind(**{name: _field(hints[name], value[name], where=where, name=prefix + name) for name in names})


def _field(kind: Any, value: object, *, where: str, name: str) -> object:
    if kind == DocumentFiles | None:
        kind = DocumentFiles
    if kind in (SplitInfo, Specials, DocumentFiles, FileInfo):
        return _read(kind, value, where=where, prefix=f"{name}.")
    wanted = dict if isinstance(kind, types.GenericAlias) else kind
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if value.bit_length() < 64 else value
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise DataError(f"{where}: field {name} is {short(value)}, expected {wanted.__name__}. {_REMEDY}")
    return value


_REMEDY = "It was damaged or changed by hand; run the same prepare command again with --overwrite."


def _check(manifest: Manifest, *, where: str) -> None:
    def require(condition: bool, what: str) -> None:
        if not condition:
            raise DataError(f"{where}: {what}. {_REMEDY}")

    require(8 <= manifest.sequence_length <= 1 << 16, f"sequence_length {manifest.sequence_length} is out of range")
    require(manifest.dtype in DTYPES, f"dtype {manifest.dtype!r} is none of {', '.join(DTYPES)}")
    size = DTYPES[manifest.dtype]
    require(
        5 <= manifest.vocab_size <= 1 << (8 * size),
        f"vocab_size {manifest.vocab_size} does not fit dtype {manifest.dtype}",
    )
    ids = list(asdict(manifest.specials).values())
    require(
        len(set(ids)) == len(ids) and all(0 <= number < manifest.vocab_size for number in ids), "the specials cannot be"
    )
    for name in ("train", "valid"):
        split: SplitInfo = getattr(manifest, name)
        positions = split.rows * manifest.sequence_length
        require(split.rows >= 1, f"{name} has no rows")
        require(split.bytes == positions * size, f"{name}.bytes does not fit its rows")
        require(0 < split.text_tokens < split.tokens <= positions, f"{name}.tokens does not fit its rows")
        require(split.documents >= 1, f"{name} has no documents")
        require(0 <= split.padding < 1, f"{name}.padding is no share")
