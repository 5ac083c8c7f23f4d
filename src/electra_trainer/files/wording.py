"""Words for people: numbers, Markdown, tables, templates of pages and cards, and a terminal that no text can steer.

A template is a Jinja2 file in the package's `templates/` folder. A value that a template names and nobody gave is an
error. HTML escapes every value by itself; a Markdown card says `{{ text | markdown }}` where a value is somebody
else's text.

Control and bidirectional characters of texts from outside appear as escapes: the command line wraps standard output and
error in `plain_output`, so that every `print` is covered, those of libraries too. rich's consoles write past it;
`Terminal` is one that escapes texts.
"""

import csv
import html
import io
import itertools
import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from electra_trainer.errors import plain
from electra_trainer.files.reading import short

if TYPE_CHECKING:
    from jinja2 import Environment

MARKDOWN = "\\`*_[]<>|"
"""Letters that can begin markup or end a cell of a table."""


def duration(seconds: float) -> str:
    """`41 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def number(value: float) -> str:
    """Three significant digits, thousands by suffix: `0.0965`, `3000`, `12.3M`; a dash for NaN and infinity."""
    if not math.isfinite(value):
        return "–"
    if value >= 1e15:
        return power(value)
    for size, unit, suffix in ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= size:
            return f"{value / unit:.3g}{suffix}"
    return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:#.3g}".removesuffix(".")


def power(value: float) -> str:
    """`6.90e13`."""
    return f"{value:.2e}".replace("e+", "e")


def escape_markdown(text: str, letters: str = MARKDOWN) -> str:
    """A text of somebody's files or flags on one line, in which `letters` are escaped."""
    return "".join("\\" + letter if letter in letters else letter for letter in plain(" ".join(text.split())))


def render(template: str, **values: Any) -> str:
    """The text of `templates/TEMPLATE.j2` with these values."""
    return _environment().get_template(f"{template}.j2").render(values)


@cache
def _environment() -> "Environment":
    import jinja2  # takes 70 ms, which only those who write pages pay

    @jinja2.pass_eval_context
    def in_order(page: jinja2.nodes.EvalContext, value: object) -> object:
        """A text on a page of HTML cannot reorder what follows it."""
        return plain(value, keep="\n\t") if page.autoescape and type(value) is str else value

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parents[1] / "templates"),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=in_order,
    )
    made.filters["markdown"] = escape_markdown
    return made


_RETURNS = re.compile(r"(^\r|\r(?=\n))")
"""Carriage returns of line ends, and those by which a library draws its progress over the same line."""


class PlainStream:
    """A text stream on which everything is printed by `plain`.

    Args:
        stream: where it goes.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream
        """Where rich's consoles write, which have styles of their own."""

    def write(self, text: str) -> int:
        """Write a text, escaped."""
        parts = _RETURNS.split(text)
        parts[::2] = [plain(part, keep="\n\t") for part in parts[::2]]
        self.rich_proxied_file.write("".join(parts))
        return len(text)

    def isatty(self) -> bool:
        """No: what is printed here has no styles."""
        return False

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def plain_output() -> Iterator[None]:
    """Standard output and error as plain streams, inside a `with`."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack a character
    sys.stdout, sys.stderr = PlainStream(sys.stdout), PlainStream(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class Terminal(Console):
    """rich's console, which prints texts by `plain`; its own styles, colours and cursor moves pass."""

    @property
    def file(self) -> IO[str]:
        """The stream itself, without what is wrapped around it."""
        file: Any = super().file
        while (inner := getattr(file, "rich_proxied_file", None)) is not None:
            file = inner
        return file  # type: ignore[no-any-return]

    @file.setter
    def file(self, new: IO[str]) -> None:
        self._file = new

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Segments of rich, with plain texts."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text, keep="\n"), segment.style)


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
    rows: Sequence[Sequence[str]]
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

        head, *rows = ([escape_markdown(cell, escaped) for cell in row] for row in (self.head, *self.rows))
        dashes = line("---" if index < self._left else "--:" for index in range(len(self.head)))
        return "\n".join([line(head), dashes, *map(line, rows)])

    def latex(self, *, caption: str, notes: Sequence[str] = ()) -> str:
        """A float with the table (booktabs), its caption and its notes, all of which are escaped."""
        rows = [" & ".join(map(escape_tex, cells)) for cells in (self.head, *self.rows)]
        columns = "l" * self._left + "r" * (len(self.head) - self._left)
        escaped = [escape_tex(note) for note in notes]
        return render("table.tex", rows=rows, columns=columns, caption=escape_tex(caption), notes=escaped)

    def csv(self, separator: str = ",") -> str:
        """Lines with separators between the cells."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n", delimiter=separator).writerows([self.head, *self.rows])
        return text.getvalue()

    def text(self, *, least: int = 0) -> str:
        """Lines with aligned columns, two spaces between them.

        Args:
            least: smallest width of a column of numbers.
        """
        rows = [self.head, *self.rows]
        widths = [max(map(len, column)) for column in zip(*filter(None, rows), strict=True)]

        def padded(index: int, cell: str, width: int) -> str:
            return cell.ljust(width) if index < self._left else cell.rjust(max(width, least))

        lines = ("  ".join(map(padded, itertools.count(), row, widths)) for row in rows)
        return "\n".join(line.rstrip() for line in lines)


class Printed:
    """A result of which `print` and a notebook show `text`."""

    def text(self) -> str:
        """Its fields, a line each."""
        return Table(head=("field", "value"), rows=[(name, short(value)) for name, value in vars(self).items()]).text()

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(plain(self.text(), keep=chr(10)))}</pre>"
