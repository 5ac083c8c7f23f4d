"""What was read from a corpus, and what was wrong with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

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
