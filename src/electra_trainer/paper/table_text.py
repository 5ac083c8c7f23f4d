"""A table as Markdown, LaTeX or CSV. Every number of ours leads to its run; nothing that is missing is blank or zero."""

import csv
import io
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from electra_trainer.paper.paper_tables import MISSING, Column, Row, Table, Value

Format = Literal["md", "tex", "csv"]
ABSENT = "—"
"""In Markdown and LaTeX. A CSV says `NA`, which readers of CSV know."""
ABSENT_CSV = "NA"

_LEGEND = (
    f"{ABSENT}: missing. In a row of the paper: it prints no number, or the copy that was transcribed is not legible there; "
    "in a row of ours: not trained or not measured.",
    "ours: mean ± standard deviation over the seeds, which are counted under “seeds”; a link leads to the runs. Training FLOPs, "
    "inference FLOPs and parameters as the paper counts them. Rows of the paper without “ours” are other people's systems.",
)


def write(table: Table, form: Format, *, base: Path) -> str:
    """The table's text.

    Args:
        base: folder that links are relative to.
    """
    return {"md": _markdown, "tex": _latex, "csv": _csv}[form](table, base)


def relative(path: Path, base: Path) -> str:
    """`path` seen from the folder `base`, with forward slashes."""
    return Path(os.path.relpath(path.resolve(), base.resolve())).as_posix()


def shown(value: Value, column: Column) -> str:
    """A cell in the words of the paper: 85.0, 1.4e18, 45x, 14M."""
    if value.missing:
        return ABSENT
    if value.number is None:
        return value.words or ""
    number = _number(value.number, column) + ("+" if value.at_least else "")
    sd = f" ± {value.sd:.{_decimals(column)}f}" if value.sd is not None and column.kind in ("score", "metric") else ""
    return (
        number + sd + (f" (n={value.count})" if value.count is not None and column.kind in ("score", "metric") else "")
    )


def _decimals(column: Column) -> int:
    return 1 if column.kind == "score" else 3


def _number(number: float, column: Column) -> str:
    match column.kind:
        case "score" | "metric":
            return f"{number:.{_decimals(column)}f}"
        case "flops":
            return _power(number)
        case "ratio":
            if number and not 1e-3 <= number < 1e4:
                return f"{_power(number)}x"
            return f"{number:.0f}x" if number >= 10 else f"{number:.2g}x"
        case "count":
            return f"{number / 1e6:.3g}M"
        case "words":
            return f"{number:g}"


def _power(number: float) -> str:
    """As the paper writes them: 1.4e18."""
    digits, _, exponent = f"{number:.1e}".partition("e")
    return f"{digits}e{int(exponent)}"


def _header(table: Table) -> tuple[list[str], bool]:
    """Titles, and whether there is a column that says dev or test."""
    split = any(row.split for row in table.rows)
    titles = [
        "Model",
        "From",
        *(["Set"] if split else []),
        *(column.title for column in table.columns),
        "seeds",
        "Runs",
    ]
    return titles, split


def _cells(
    row: Row, table: Table, split: bool, base: Path, plain: Callable[[str], str], link: Callable[[str, str], str]
) -> list[str]:
    """The texts of a row; `plain` escapes, `link` makes a link of (text, address)."""
    cells = [plain(row.model), plain(row.source), *([plain(row.split)] if split else [])]
    for column in table.columns:
        value = row.values.get(column.key, MISSING)
        text = plain(shown(value, column))
        linked = row.folder is not None and not value.missing
        cells.append(link(text, relative(row.folder, base)) if linked and row.folder is not None else text)
    runs = " ".join(link(str(seed), relative(run, base)) for seed, run in row.runs)
    return [*cells, str(row.seeds) if row.seeds else ABSENT, runs or plain(ABSENT)]


def _markdown(table: Table, base: Path) -> str:
    def plain(text: str) -> str:
        return "".join("\\" + letter if letter in "\\`*_[]<>|" else letter for letter in text)

    def link(text: str, address: str) -> str:
        return f"[{text}]({quote(address)})"

    titles, split = _header(table)
    words = 3 if split else 2
    lines = [f"**Table {table.number}.** {plain(table.caption)}, as the paper prints it and as measured here.", ""]
    lines.append(_line(plain(title) for title in titles))
    lines.append(_line("---" if index < words else "--:" for index in range(len(titles))))
    lines += [_line(_cells(row, table, split, base, plain, link)) for row in table.rows]
    return "\n".join([*lines, "", *(f"- {plain(note)}" for note in (*_LEGEND, *table.notes)), ""])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$",
    "—": "---", "×": r"$\times$", "λ": r"$\lambda$", "§": r"\S{}", "“": "``", "”": "''", '"': r"\textquotedbl{}",
}  # fmt: skip


def tex_escaped(text: str) -> str:
    """A text that LaTeX prints as it is (with T1 fonts)."""
    return "".join(_TEX.get(letter, letter) for letter in text)


def _latex(table: Table, base: Path) -> str:
    def link(text: str, address: str) -> str:
        return rf"\href{{{quote(address).replace('%', chr(92) + '%')}}}{{{text}}}"

    titles, split = _header(table)
    words = 3 if split else 2
    rows = [" & ".join(_cells(row, table, split, base, tex_escaped, link)).replace(ABSENT, "---") for row in table.rows]
    return "\n".join(
        [
            r"% needs \usepackage[T1]{fontenc}, \usepackage{booktabs,graphicx,hyperref}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{tex_escaped(table.caption)}, as the paper prints it and as measured here.}}",
            r"\resizebox{\textwidth}{!}{%",
            rf"\begin{{tabular}}{{{'l' * words + 'r' * (len(titles) - words)}}}",
            r"\toprule",
            " & ".join(map(tex_escaped, titles)) + r" \\",
            r"\midrule",
            *(row + r" \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}}",
            r"\par\smallskip\raggedright\footnotesize",
            *(tex_escaped(note) + r"\par" for note in (*_LEGEND, *table.notes)),
            r"\end{table}",
            "",
        ]
    )


def _csv(table: Table, base: Path) -> str:
    """Numbers as they are, means and SDs in columns of their own; `runs` holds the run folders, `;` between them."""
    _, split = _header(table)
    names = ["model", "from", *(["set"] if split else [])]
    for column in table.columns:
        names += [column.key, f"{column.key} sd", f"{column.key} seeds"] if _spreads(column) else [column.key]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, "seeds", "runs"])
    for row in table.rows:
        cells: list[str] = [row.model, row.source, *([row.split or ABSENT_CSV] if split else [])]
        for column in table.columns:
            value = row.values.get(column.key, MISSING)
            cells.append(_exact(value.number) if value.words is None else value.words)
            if _spreads(column):
                count = value.count if value.count is not None else row.seeds
                cells += [_exact(value.sd), str(count) if count and not value.missing else ABSENT_CSV]
        runs = ";".join(relative(run, base) for _, run in row.runs)
        writer.writerow([*cells, row.seeds or ABSENT_CSV, runs or ABSENT_CSV])
    return text.getvalue()


def _spreads(column: Column) -> bool:
    return column.kind in ("score", "metric")


def _exact(number: float | None) -> str:
    return ABSENT_CSV if number is None else f"{number:.10g}"
