"""Files -> documents. Streaming, constant memory, and nothing is ever dropped in silence.

A document is a tuple of lines (document.py); a line is one paragraph or sentence, between two of which a row may change segment. `.txt`
files hold lines, with a boundary of your choice between documents; `.jsonl` files hold one document a line, whose text may
hold several lines. Lines end with LF and nothing else: U+2028, U+0085 and the like are ordinary characters.

What was read from a corpus, and what was wrong with it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from electra_trainer.data.documents import Document, Place
from electra_trainer.data.text_files import ByteLine, TextFile, find_files, read_lines
from electra_trainer.errors import ConfigError, DataError, did_you_mean
from electra_trainer.files.reading import NotJson, json_value, short

__all__ = ["DOCSTRINGS", "Boundary", "CorpusReport", "Document", "OnBadText", "documents"]

Boundary = Literal["blank", "line", "file"]
OnBadText = Literal["error", "skip", "replace"]

DOCSTRINGS = "docstrings"
"""The path name that means the embedded corpus."""

_JSON_LINE_BYTES = 1 << 24  # a JSON line must be held whole; longer ones are bad text
_TEXT_LINE_BYTES = 1 << 20  # a text line is cut at a space near here


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How files are read. `documents` makes it from its arguments."""

    boundary: Boundary = "blank"
    text_field: str = "text"
    on_bad_text: OnBadText = "error"
    max_document_chars: int = 2_000_000

    def __post_init__(self) -> None:
        for name, value, known in (
            ("boundary", self.boundary, ("blank", "line", "file")),
            ("on_bad_text", self.on_bad_text, ("error", "skip", "replace")),
        ):
            if value not in known:
                raise ConfigError(
                    f"{name} = {value!r}: expected one of {', '.join(known)}.{did_you_mean(str(value), known)}"
                )
        if self.max_document_chars < 1000:
            raise ConfigError(f"max_document_chars = {self.max_document_chars}: expected at least 1000.")


def documents(
    paths: Sequence[str | Path],
    *,
    report: "CorpusReport",
    boundary: Boundary = "blank",
    text_field: str = "text",
    on_bad_text: OnBadText = "error",
    max_document_chars: int = 2_000_000,
) -> Iterator[Document]:
    """Read documents from files, folders, glob patterns, or `docstrings` (the embedded corpus), in a fixed order.

    Args:
        paths: `.txt` and `.jsonl`, plain or with `.gz`, `.bz2`, `.xz`. Folders are searched to the bottom, in sorted order.
        report: filled while the iterator runs.
        boundary: what ends a document in a text file: a blank line, every line, or the end of the file.
        text_field: the field of a JSON object that holds the text.
        on_bad_text: what to do with bytes that are not UTF-8, NUL characters and unusable JSON: raise; `skip` the line or
            record; or `replace` bad bytes by U+FFFD and drop NULs (unusable JSON is then skipped). Always counted.
        max_document_chars: a longer document becomes several.

    Raises:
        MissingInputError: a path that is not there. DataError: bad text under `error`, a damaged compressed file, something
        that is not a regular file. StorageError: a file that cannot be read. ConfigError: an unknown policy.
    """
    reading = Reading(
        boundary=boundary, text_field=text_field, on_bad_text=on_bad_text, max_document_chars=max_document_chars
    )
    return _documents(list(paths), reading, report)


def _documents(paths: list[str | Path], reading: Reading, report: "CorpusReport") -> Iterator[Document]:
    files, skipped, repeated = find_files([path for path in paths if str(path) != DOCSTRINGS])
    report.skipped_files += skipped
    report.repeated_files += repeated
    report.disk_total += sum(file.size for file in files)
    if any(str(path) == DOCSTRINGS for path in paths):
        from electra_trainer.data import docstrings

        for document in docstrings.documents():
            yield _counted(document, report)
            report.bytes += sum(len(line.encode()) + 1 for line in document) + 1
        report.files += docstrings.file_count()
    for file in files:
        report.files += 1
        before, done = report.documents + report.empty_documents, report.disk_bytes
        lines = read_lines(
            file,
            limit=_JSON_LINE_BYTES if file.is_json else _TEXT_LINE_BYTES,
            on_progress=lambda position, done=done: setattr(report, "disk_bytes", done + position),  # type: ignore[misc]
        )
        found = _from_json(file, lines, reading, report) if file.is_json else _from_text(file, lines, reading, report)
        for document in found:
            yield _counted(document, report)
        report.disk_bytes = done + file.size
        if report.documents + report.empty_documents == before:
            report.empty_documents += 1


def _counted(document: Document, report: "CorpusReport") -> Document:
    report.documents += 1
    report.lines += len(document)
    report.characters += sum(map(len, document))
    return document


def _from_text(
    file: TextFile, lines: Iterator[ByteLine], reading: Reading, report: "CorpusReport"
) -> Iterator[Document]:
    whole = _Collector(reading, report, file)
    for line in lines:
        report.bytes += line.length
        report.split_lines += line.continued
        text = _decode(line.data, line, file, reading, report)
        if text is None:
            continue
        text = text.strip()
        if text:
            yield from whole.add(text, line.number)
        is_end = line.ends if reading.boundary == "line" else not (text or line.continued)
        if is_end and reading.boundary != "file":
            yield from whole.end()
    yield from whole.end()


def _from_json(
    file: TextFile, lines: Iterator[ByteLine], reading: Reading, report: "CorpusReport"
) -> Iterator[Document]:
    too_long, whole = False, _Collector(reading, report, file)
    for line in lines:
        report.bytes += line.length
        if too_long or not line.ends:  # a line beyond the limit comes in parts; none of them can be used
            if not too_long:
                _bad("JSON line over 16 MiB", line, file, reading, report, can_replace=False)
            too_long = not line.ends
            continue
        if not line.data.strip():
            continue
        text = _json_text(line, file, reading, report)
        if text is None:
            continue
        for part in text.split("\n"):
            if part := part.strip():
                yield from whole.add(part, line.number)
        if whole.is_empty:
            report.empty_documents += 1
        yield from whole.end()


def _json_text(line: ByteLine, file: TextFile, reading: Reading, report: "CorpusReport") -> str | None:
    text = _decode(line.data, line, file, reading, report)
    if text is None:
        return None
    try:
        record = json_value(text)
    except NotJson as error:
        _bad("invalid JSON", line, file, reading, report, detail=f" (it is {error})", can_replace=False)
        return None
    value = record.get(reading.text_field) if isinstance(record, dict) else None
    if not isinstance(value, str):
        hint = f" The fields are: {', '.join(map(short, list(record)[:8]))}." if isinstance(record, dict) else ""
        _bad(
            f"JSON without a text in field {reading.text_field!r}", line, file, reading, report,
            detail=f".{hint} Choose one with --text-field", can_replace=False,
        )  # fmt: skip
        return None
    return _clean(value, line, file, reading, report)


def _decode(data: bytes, line: ByteLine, file: TextFile, reading: Reading, report: "CorpusReport") -> str | None:
    """Text of a line's bytes, or None when the policy says to leave the line out."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        hint = (
            " (UTF-16 perhaps: convert it with iconv)"
            if line.number == 1 and data[:2] in (b"\xff\xfe", b"\xfe\xff")
            else ""
        )
        hint = hint or (" (compressed, but not named so)" if data[:2] == b"\x1f\x8b" else "")
        if not _bad("bytes that are not UTF-8", line, file, reading, report, at=error.start, detail=hint):
            return None
        text = data.decode("utf-8", "replace")
    return _clean(text, line, file, reading, report)


def _clean(text: str, line: ByteLine, file: TextFile, reading: Reading, report: "CorpusReport") -> str | None:
    if "\x00" in text:
        if not _bad("NUL characters", line, file, reading, report):
            return None
        text = text.replace("\x00", "")
    try:
        if not text.isascii():  # known at no cost
            text.encode()
    except UnicodeEncodeError:  # an escape such as "\\ud800" in JSON
        if not _bad("half a surrogate pair", line, file, reading, report):
            return None
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _bad(
    kind: str, line: ByteLine, file: TextFile, reading: Reading, report: "CorpusReport",
    *, at: int = 0, detail: str = "", can_replace: bool = True,
) -> bool:  # fmt: skip
    """Count a problem; True when the policy is to repair it, False to leave the line out."""
    where = f"{file.path}:{line.number}"
    if reading.on_bad_text == "error":
        remedy = "--on-bad-text skip leaves such lines out" + (", replace repairs them" if can_replace else "")
        raise DataError(f"{where}: {kind} at byte {line.offset + at:,}{detail}. Expected UTF-8 text; {remedy}.")
    report.bad_text[kind] += 1
    report.examples.setdefault(kind, where)
    return can_replace and reading.on_bad_text == "replace"


class _Collector:
    """Gathers lines into a document of bounded size."""

    def __init__(self, reading: Reading, report: "CorpusReport", file: TextFile) -> None:
        self._reading, self._report = reading, report
        self._file, self._taken = str(file.path), 0
        self._lines: list[str] = []
        self._first = self._last = 0
        self._characters = 0
        self._split = False

    @property
    def is_empty(self) -> bool:
        return not self._lines

    def add(self, line: str, number: int) -> Iterator[Document]:
        limit = self._reading.max_document_chars
        while line:
            if self._characters and self._characters + len(line) > limit:
                self._split = True
                yield self._take()
            part, line = line[:limit], line[limit:]
            self._first, self._last = self._first if self._lines else number, number
            self._lines.append(part)
            self._characters += len(part)

    def end(self) -> Iterable[Document]:
        self._report.split_documents += self._split
        self._split = False
        return [self._take()] if self._lines else []

    def _take(self) -> Document:
        self._taken += 1
        taken = Document(self._lines, Place(self._file, self._taken, self._first, self._last))
        self._lines, self._characters = [], 0
        return taken


_COUNTS = (
    "files", "documents", "lines", "bytes", "characters", "empty_documents", "split_documents", "split_lines",
    "skipped_files", "repeated_files",
)  # fmt: skip


@dataclass
class CorpusReport:
    """What was read, counted while it is read. `bad_text` has one entry a kind of problem."""

    files: int = 0
    documents: int = 0
    lines: int = 0
    bytes: int = 0
    """Bytes of text after decompression."""
    characters: int = 0
    empty_documents: int = 0
    """Records or files without any text; they are not documents."""
    split_documents: int = 0
    """Documents that were longer than the limit and became several."""
    split_lines: int = 0
    """Lines that were longer than the limit and became several."""
    skipped_files: int = 0
    """Files in folders whose names say that they hold no text."""
    repeated_files: int = 0
    """Files that were named more than once; each is read once."""
    bad_text: Counter[str] = field(default_factory=Counter)
    """Problem -> lines (or records) that had it."""
    examples: dict[str, str] = field(default_factory=dict)
    """Problem -> where it was met first."""
    disk_bytes: int = 0
    """Bytes on disk that were read so far."""
    disk_total: int = 0
    """Bytes on disk of all files; 0 when unknown."""

    def counts(self) -> dict[str, int | dict[str, int]]:
        """What the manifest keeps."""
        kept: dict[str, int | dict[str, int]] = {name: getattr(self, name) for name in _COUNTS}
        kept["bad_text"] = dict(sorted(self.bad_text.items()))
        return kept

    def summary(self) -> list[str]:
        """Sentences for a person; the first is always there, each other one only when there is something to say."""
        said = [
            f"{self.documents:,} documents, {self.lines:,} lines, {self.characters:,} characters, "
            f"{self.bytes / 1e6:,.1f} MB of text in {self.files:,} file{'s' * (self.files != 1)}"
        ]
        notes = [
            (self.empty_documents, "empty documents left out"),
            (self.split_documents, "giant documents split"),
            (self.split_lines, "giant lines split"),
            (self.skipped_files, "files in folders skipped (not .txt or .jsonl)"),
            (self.repeated_files, "files named twice, read once"),
        ]
        said += [f"{count:,} {what}" for count, what in notes if count]
        said += [
            f"{count:,} lines with bad text: {kind} (first: {self.examples[kind]})"
            for kind, count in sorted(self.bad_text.items())
        ]
        return said
