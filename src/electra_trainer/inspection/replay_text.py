"""A replayed step for people and for machines."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from rich.console import Console
from rich.text import Text

from electra_trainer.errors import plain
from electra_trainer.inspection.replay import Replayed
from electra_trainer.inspection.replay_rows import DocumentPart, ReplayedRow

_REASONS = "Machine, program and versions are those noted: did a later session of the run compute elsewhere (log.txt)?"
_UNKNOWN = (
    "documents: unknown, the rows were prepared by an earlier version. The same `electra prepare` command with another --out makes the "
    "same rows with their documents; give that folder with --data."
)


def print_replayed(found: Replayed, rows: Sequence[ReplayedRow]) -> None:
    """Everything, with some of the rows."""
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    console.print(f"step {found.step}, {_origin(found)}")
    for name, value in found.computed.items():
        console.print(f"  {name:<30} {value!r}")
    for line in (verdict(found), *found.reservations):
        console.print(line)
    if not found.result.finite:
        bad = [row.row for row in found.rows if not row.finite]
        told = (
            f"not a number in rows {', '.join(map(str, bad))}"
            if bad
            else "every loss is a number, the gradient is none"
        )
        console.print(told)
    if rows and not found.documents_known:
        console.print(_UNKNOWN)
    for row in rows:
        console.print()
        for text in _lines(row):
            console.print(text)
    if len(rows) < len(found.rows):
        console.print(f"\n{len(rows)} of {len(found.rows)} rows; --rows, --lane and --row show others")


def verdict(found: Replayed) -> str:
    """Whether the step is the run's, a sentence."""
    if found.identical:
        return f"metrics.jsonl: all {len(found.recorded or {})} numbers of this step came out again, to the last bit."
    if found.identical is None:
        why = "has no row of this step" if found.result.finite else "has no row of a step that was skipped"
        return f"metrics.jsonl {why}: nothing to compare with."
    told = [f"{name} {theirs!r}, here {mine!r}" for name, (theirs, mine) in found.differences.items()]
    shown = "; ".join(told[:4]) + (f"; and {len(told) - 4} more" if len(told) > 4 else "")
    return f"NOT the same as in metrics.jsonl: {shown}." + ("" if found.reservations else f" {_REASONS}")


def _origin(found: Replayed) -> str:
    began = f"the checkpoint of step {found.began}" if found.began else "the initial weights"
    again = f", {found.recomputed} steps in between trained again" if found.recomputed else ""
    return f"from {began}{again}"


def _lines(row: ReplayedRow) -> list[Text]:
    """Number and documents, the text, and the text as the kept network read it."""
    lines = [Text(f"row {row.row}, lane {row.lane}" + ("" if row.finite else ", NOT A NUMBER"), "bold")]
    lines += [Text(f"  {plain(_place(part))}", "cyan") for part in row.documents or []]
    lines.append(Text("  ").append(plain(joined(row.original))))
    marked = Text("  ")
    for at, (before, after) in enumerate(zip(row.original, row.shown, strict=True)):
        glued = goes_on(row.original, at) and not row.masked[at]
        space = "" if glued or at == 0 else " "
        if not row.masked[at]:
            marked.append(space + plain(before[2:] if glued else before), "dim")
        elif before == after:
            marked.append(f"{space}[{plain(before)}]", "yellow")
        else:
            marked.append(f"{space}[{plain(before)}→{plain(after)}]", "bold red")
    return [*lines, marked]


def _place(part: DocumentPart) -> str:
    where = part.place
    lines = f":{where.line}" + (f"-{where.last}" if where.last != where.line else "") if where.line else ""
    skipped = f", after {part.skipped:,} tokens of it" if part.skipped else ""
    return f"{where.file}{lines}, document {where.number} of the file: tokens {part.begin} to {part.end - 1}{skipped}"


def joined(tokens: Sequence[str]) -> str:
    """Tokens as text, pieces of words put together."""
    parts = [token[2:] if goes_on(tokens, at) else f" {token}" for at, token in enumerate(tokens)]
    return "".join(parts).removeprefix(" ")


def goes_on(tokens: Sequence[str], at: int) -> bool:
    """Whether a token is a later piece of the word before it; the rest of a word that was cut by the end of a row is not."""
    return (
        at > 0 and tokens[at].startswith("##") and not (tokens[at - 1].startswith("[") and tokens[at - 1].endswith("]"))
    )


def as_json(found: Replayed, rows: Sequence[ReplayedRow]) -> dict[str, Any]:
    """Plain values; what is no number is a text, "nan" or "inf"."""
    return {
        "step": found.step,
        "checkpoint": found.began,
        "recomputed_steps": found.recomputed,
        "finite": found.result.finite,
        "computed": {name: _number(value) for name, value in found.computed.items()},
        "recorded": found.recorded,
        "identical": found.identical,
        "differences": {name: [_number(one) for one in both] for name, both in found.differences.items()},
        "reservations": found.reservations,
        "rows_in_step": len(found.rows),
        "rows": [_row(row) for row in rows],
    }


def _row(row: ReplayedRow) -> dict[str, Any]:
    documents = None
    if row.documents is not None:
        documents = [
            {
                "file": part.place.file, "document": part.place.number, "line": part.place.line, "last_line": part.place.last,
                "begin": part.begin, "end": part.end, "skipped": part.skipped,
            }
            for part in row.documents
        ]  # fmt: skip
    return {
        "row": row.row,
        "lane": row.lane,
        "finite": row.finite,
        "documents": documents,
        "original": row.original,
        "masked_input": row.masked_input,
        "corrupted": row.corrupted,
        "masked": row.masked,
        "replaced": [before != after for before, after in zip(row.original, row.shown, strict=True)],
    }


def _number(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not isfinite(value) else value
