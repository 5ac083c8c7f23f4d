"""Read documents: streaming, in constant memory, and nothing is ever dropped in silence.

A document is a tuple of lines (`Document`); a line is one paragraph or sentence, between two of which a row may
change segment. `.txt` files hold lines, with a boundary of your choice between documents; `.jsonl` files hold one
document a line, whose text may hold several lines; so may the texts of other files and of data sets. Lines end with LF,
CR LF or CR, and nothing else: U+2028, U+0085 and the like are ordinary characters. A file that is not text is an error
(files/reading.py), never a document.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from electra_trainer.data.document import Document, Place
from electra_trainer.errors import require
from electra_trainer.files import formats, opening, sources
from electra_trainer.files.opening import ByteLine, Fault, Rows, TextFile
from electra_trainer.files.reading import short
from electra_trainer.files.sources import Source

Boundary = Literal["blank", "line", "file"]
OnBadText = Literal["error", "skip"]

DOCSTRINGS = "docstrings"
"""The path name that means the embedded corpus."""

_LINE = re.compile(r"[^\r\n]+")
_TEXT_LINE_BYTES = 1 << 20  # a text line is cut at a space near here
_SAMPLED_CHARACTERS = 2000  # of a part of a line


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How text files are read."""

    boundary: Boundary = "blank"
    """End of a document in .txt: a blank line, every line, or the end of the file."""
    text_field: str = "text"
    """Field of JSON, or column of a table, that holds the text."""
    on_bad_text: OnBadText = "error"
    """Bytes that are not UTF-8, NUL bytes, unusable JSON: stop, or leave the line or record out."""
    max_document_chars: int = 2_000_000
    """Longer documents become several, in characters."""

    def __post_init__(self) -> None:
        for name, known in (("boundary", get_args(Boundary)), ("on_bad_text", get_args(OnBadText))):
            require(getattr(self, name) in known, name, getattr(self, name), f"one of {', '.join(known)}")
        require(self.max_document_chars >= 1000, "max_document_chars", self.max_document_chars, "at least 1000")


@dataclass(frozen=True, kw_only=True)
class PrepareSettings(Reading):
    """How text becomes rows. All but `workers` decide the bytes."""

    valid_fraction: float = 0.005
    """Share of the documents that is held out, at least one."""
    seed: int = 1
    """Seed of the held-out split and of the random lengths and segments of rows."""
    workers: int | None = None
    """Processes that tokenize; default: one a core. The rows are the same whatever their number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.valid_fraction <= 0.5, "valid_fraction", self.valid_fraction, "above 0 and at most 0.5")
        require(0 <= self.seed < 2**63, "seed", self.seed, "an integer from 0 to below 2**63")
        require(self.workers is None or 1 <= self.workers <= 512, "workers", self.workers, "1 to 512")


Input = str | Path | sources.Texts
"""An input: a file, folder, pattern, URL or name of a data set, `docstrings`, or documents that a program gives."""


def input_name(path: Input) -> str:
    """The name of an input in a manifest: without the folders of this machine."""
    name = str(path)
    if isinstance(path, Path):
        return path.name
    return name if opening.is_url(name) else str(sources.data_set(name) or Path(name).name)


def documents(
    paths: Sequence[Input], *, report: "CorpusReport", reading: Reading | None = None, shard: tuple[int, int] = (1, 1)
) -> Iterator[Document]:
    """Read documents from files, folders, glob patterns, URLs, data sets, or `docstrings` (the embedded corpus), in a
    fixed order.

    Args:
        paths: `.txt`, `.jsonl`, `.json`, `.csv`, `.tsv`, WET, Parquet, Arrow, also with `.gz`, `.bz2`, `.xz`, `.zst`;
            folders, which are searched to the bottom, in sorted order; s3://, gs://, hf:// and https://; OWNER/NAME of
            a data set of the Hub; documents that a program gives.
        report: filled while the iterator runs.
        reading: how.
        shard: (I, N) reads every N-th file or data set only, from the I-th on.

    Raises:
        MissingInputError: a path that is not there. DataError: not text, bad text under `error`, a damaged file,
            something
        that is not a regular file. StorageError: a file that cannot be read. ConfigError: the extra [hub] is missing.
    """
    reading = reading or Reading()
    named, skipped = sources.find_sources([path for path in paths if str(path) != DOCSTRINGS])
    report.skipped_files += skipped
    has_docstrings = shard[0] == 1 and any(str(path) == DOCSTRINGS for path in paths)
    found = named[shard[0] - 1 :: shard[1]]
    report.disk_total += sum(source.size for source in found)
    if has_docstrings:
        from electra_trainer.data import docstrings

        for document in docstrings.documents():
            yield report.counted(document)
            report.bytes += sum(len(line.encode()) + 1 for line in document) + 1
        report.files += len(docstrings.files())
    for source in found:
        report.files += 1
        before, done = report.documents + report.empty_documents, report.disk_bytes
        for document in _Source(source, reading, report).documents(done):
            yield report.counted(document)
        report.disk_bytes = done + source.size
        if report.documents + report.empty_documents == before:
            report.empty_documents += 1


class _Source:
    """A file or data set on its way into documents of bounded size."""

    def __init__(self, source: Source, reading: Reading, report: "CorpusReport") -> None:
        self._reading, self._report, self._source = reading, report, source
        self._path, self._taken = str(source), 0
        self._lines: list[str] = []
        self._first = self._last = 0
        self._characters = 0

    def documents(self, done: int) -> Iterator[Document]:
        """Its documents; `done` bytes of other files were read before."""
        source, column = self._source, self._reading.text_field

        def tick(position: int) -> None:
            self._report.disk_bytes = done + position

        if not isinstance(source, TextFile):
            return self.from_rows(source.rows(column))
        if (reader := formats.reader_of(source)) is not formats.text_rows:
            return self.from_rows(reader(source, column, tick))
        return self.from_text(opening.read_lines(source, limit=_TEXT_LINE_BYTES, on_progress=tick))

    def from_rows(self, rows: Rows) -> Iterator[Document]:
        """A document a row."""
        for row, number in rows:
            text = row if isinstance(row, Fault) else self._text_of(row)
            if isinstance(text, Fault):
                self._left_out(text, number)
            elif text is None:
                self._report.empty_documents += 1
            else:
                self._report.bytes += 1 + (len(text) if text.isascii() else len(text.encode()))
                yield from self._whole(text, number)

    def _text_of(self, row: Mapping[str, Any]) -> str | Fault | None:
        column = self._reading.text_field
        if column not in row:
            named = ", ".join(str(name)[:40] for name in [*row][:12])
            return Fault(f"has no column {column!r}", f". The columns are: {named}. Choose one with --text-field")
        text = row[column]
        if isinstance(text, str):
            return opening.sound(text)
        return None if text is None else Fault("not a text", f": {short(text)}")

    def _whole(self, text: str, number: int) -> Iterator[Document]:
        """The document that a text is."""
        for found in _LINE.finditer(text):  # one at a time: a text of line ends only is no longer than others
            if part := found.group().strip():
                yield from self._add(part, number)
        self._report.empty_documents += not self._lines
        yield from self._end()

    def from_text(self, lines: Iterator[ByteLine]) -> Iterator[Document]:
        boundary = self._reading.boundary
        for line in lines:
            self._report.bytes += line.length
            text = opening.decoded(line.data)
            if isinstance(text, Fault):
                self._left_out(text, line.number)
                continue
            if text := text.strip():
                yield from self._add(text, line.number)
            if boundary != "file" and (line.ends if boundary == "line" else not (text or line.continued)):
                yield from self._end()
        yield from self._end()

    def _left_out(self, fault: Fault, number: int) -> None:
        """Count what is wrong with a line or a row. Raises DataError where the policy is to stop."""
        if self._reading.on_bad_text == "error":
            raise fault.error(self._path, number, "Mend it, or leave such lines and rows out: --on-bad-text skip.")
        self._report.bad_text[fault.kind] += 1
        self._report.examples.setdefault(fault.kind, f"{self._path}:{number}")

    def _add(self, line: str, number: int) -> Iterator[Document]:
        limit = self._reading.max_document_chars
        while line:
            if self._characters and self._characters + len(line) > limit:
                yield self._take()
            part, line = line[:limit], line[limit:]
            self._first, self._last = self._first if self._lines else number, number
            self._lines.append(part)
            self._characters += len(part)

    def _end(self) -> Iterable[Document]:
        return [self._take()] if self._lines else []

    def _take(self) -> Document:
        self._taken += 1
        taken = Document(self._lines, Place(self._path, self._taken, self._first, self._last))
        self._lines, self._characters = [], 0
        return taken


@dataclass
class Sampled:
    """Every n-th line of a text, or part of a long line; n doubles whenever the sample is full."""

    most: int = 20_000
    lines: list[str] = field(default_factory=list)
    _every: int = 1
    _met: int = 0

    def add(self, lines: Sequence[str]) -> None:
        """Take those of some lines that belong to the sample."""
        step = _SAMPLED_CHARACTERS
        parts = [line[at : at + step] for line in lines for at in range(0, len(line) or 1, step)]
        self.lines += parts[-self._met % self._every :: self._every]
        self._met += len(parts)
        while len(self.lines) > self.most:
            self.lines, self._every = self.lines[::2], 2 * self._every


@dataclass
class CorpusReport:
    """Counts of a corpus, kept while it is read."""

    files: int = 0
    documents: int = 0
    lines: int = 0
    bytes: int = 0
    """Bytes of text after decompression."""
    characters: int = 0
    empty_documents: int = 0
    """Records or files without any text; they are not documents."""
    tokenless_documents: int = 0
    """Documents of which the tokenizer drops every character."""
    sample: Sampled = field(default_factory=Sampled)
    """Some lines from all over the text."""
    skipped_files: int = 0
    """Files in folders whose names say that they hold no text."""
    bad_text: Counter[str] = field(default_factory=Counter)
    """Problem -> lines (or records) that had it."""
    examples: dict[str, str] = field(default_factory=dict)
    """Problem -> where it was met first."""
    disk_bytes: int = 0
    """Bytes on disk that were read so far."""
    disk_total: int = 0
    """Bytes on disk of all files; 0 when unknown."""

    def counted(self, document: Document) -> Document:
        """Count a document, and return it."""
        self.documents += 1
        self.lines += len(document)
        self.characters += sum(map(len, document))
        self.sample.add(document)
        return document

    def counts(self) -> dict[str, Any]:
        """The counts that the manifest keeps."""
        kept = "files documents lines bytes characters empty_documents tokenless_documents skipped_files"
        counts = {name: getattr(self, name) for name in kept.split()}
        return counts | {"bad_text": dict(sorted(self.bad_text.items()))}

    def summary(self) -> list[str]:
        """Sentences for a person: the size of the corpus, then one for each kind of loss or repair that occurred."""
        found = [
            f"{self.documents:,} documents, {self.lines:,} lines, {self.characters:,} characters, "
            f"{self.bytes / 1e6:,.1f} MB of text in {self.files:,} file{'s' * (self.files != 1)}"
        ]
        notes = [
            (self.empty_documents, "empty documents left out"),
            (self.tokenless_documents, "documents without tokens left out: the tokenizer drops all their characters"),
            (self.skipped_files, "files in folders skipped by their names (name tables, .json, .md and others alone)"),
        ]
        found += [f"{count:,} {what}" for count, what in notes if count]
        return found + [
            f"{count:,} lines with bad text: {kind} (first: {self.examples[kind]})"
            for kind, count in sorted(self.bad_text.items())
        ]
