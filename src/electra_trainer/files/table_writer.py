"""One table, written as Markdown, LaTeX, CSV, or aligned text."""

import csv
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

from electra_trainer.files.wording import MARKDOWN, escape_markdown, render


class Link(NamedTuple):
    """A text that leads somewhere."""

    text: str
    address: str


Cell = str | list[Link]
_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$",
    "—": "---", "×": r"$\times$", "λ": r"$\lambda$", "§": r"\S{}", "“": "``", "”": "''", '"': r"\textquotedbl{}",
}  # fmt: skip


def escape_tex(text: str) -> str:
    """A text that LaTeX prints as it is (with T1 fonts)."""
    return "".join(_TEX.get(letter, letter) for letter in text)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells under a head. Columns of words are aligned left, columns of numbers right."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: int | None = None
    """Leading columns that hold words; None: all of them."""

    @property
    def _left(self) -> int:
        return len(self.head) if self.words is None else self.words

    def markdown(self, *, escaped: str = MARKDOWN) -> str:
        """Lines with pipes between the cells.

        Args:
            escaped: letters that are escaped in texts; "|" where cells hold Markdown themselves.
        """

        def line(cells: Iterable[str]) -> str:
            return f"| {' | '.join(cells)} |"

        def plain(text: str) -> str:
            return escape_markdown(text, escaped)

        rows = _written((self.head, *self.rows), plain, lambda text, address: f"[{text}]({quote(address)})")
        dashes = line("---" if index < self._left else "--:" for index in range(len(self.head)))
        return "\n".join([line(next(rows)), dashes, *map(line, rows)])

    def latex(self, *, caption: str, notes: Sequence[str] = ()) -> str:
        """A float with the table (booktabs), its caption and its notes, all of which are escaped."""

        def link(text: str, address: str) -> str:
            return rf"\href{{{quote(address).replace('%', chr(92) + '%')}}}{{{text}}}"

        rows = [" & ".join(cells) for cells in _written((self.head, *self.rows), escape_tex, link)]
        columns = "l" * self._left + "r" * (len(self.head) - self._left)
        escaped = [escape_tex(note) for note in notes]
        return render("table.tex", rows=rows, columns=columns, caption=escape_tex(caption), notes=escaped)

    def csv(self) -> str:
        """Comma-separated values; of links the addresses, `;` between them."""
        text = io.StringIO()
        rows = (
            [cell if isinstance(cell, str) else ";".join(at for _, at in cell) for cell in row] for row in self.rows
        )
        csv.writer(text, lineterminator="\n").writerows([self.head, *rows])
        return text.getvalue()

    def text(self, *, least: int = 0) -> str:
        """Lines with aligned columns, two spaces between them.

        Args:
            least: smallest width of a column of numbers.
        """
        rows = list(_written((self.head, *self.rows), str, lambda text, _: text))
        widths = [max(map(len, column)) for column in zip(*filter(None, rows), strict=True)]

        def padded(index: int, cell: str, width: int) -> str:
            return cell.ljust(width) if index < self._left else cell.rjust(max(width, least))

        lines = ("  ".join(map(padded, itertools.count(), row, widths)) for row in rows)
        return "\n".join(line.rstrip() for line in lines)


def _written(
    rows: Iterable[Sequence[Cell]], plain: Callable[[str], str], link: Callable[[str, str], str]
) -> Iterator[list[str]]:
    """The cells as texts: `plain` escapes a text, `link` makes a link of an escaped text and an address."""

    def written(cell: Cell) -> str:
        return plain(cell) if isinstance(cell, str) else " ".join(link(plain(text), at) for text, at in cell)

    return ([written(cell) for cell in row] for row in rows)
