"""Bound on what a compressed or columnar file may hold: a fixed amount, and a multiple of its size on disk.

Repetitive text is read: gzip reaches 1,000 times, so texts of more than 2,000 times the file's size, beyond the first
512 MiB, come from a
file that was made to be endless.
"""

from dataclasses import dataclass

from electra_trainer.errors import DataError

FREE = 1 << 29
"""Bytes that any file may hold."""
RATIO = 2000
"""Bytes that it may hold for each byte on disk, beyond these."""
RECORD = 256
"""Bytes that a row or a record counts at least: it takes that much work."""
LINE = 32
"""Bytes that a line of text counts at least."""


@dataclass
class Bound:
    """Running total of what a file has yielded, and its bound."""

    file: str
    size: int
    """Bytes on disk; 0: unknown, so that the file is not bounded."""
    held: int = 0

    def _most(self) -> int:
        return FREE + RATIO * self.size

    def add(self, length: int, *, least: int) -> None:
        """Count lines or a record of that many bytes, or as `least` where they are shorter; DataError if the file holds
        too much.
        """
        self.held += max(length, least)
        if self.held > self._most() and self.size:
            most = (
                f"{self._most() >> 20:,} MiB of text, {self._most() // LINE:,} lines or {self._most() // RECORD:,} rows"
            )
            raise self._refused(f"unpacks to over {most}")

    def claims(self, rows: int) -> None:
        """Refuse a file that claims too many rows before they are read."""
        if RECORD * rows > self._most() and self.size:
            raise self._refused(f"claims {rows:,} rows, more than {self._most() // RECORD:,}")

    def _refused(self, claim: str) -> DataError:
        return DataError(
            f"{self.file}: has {self.size:,} bytes on disk and {claim}, which is too much for its size. Is it "
            "damaged? If it is sound, "
            "write its text to a file that is not compressed, and name that."
        )
