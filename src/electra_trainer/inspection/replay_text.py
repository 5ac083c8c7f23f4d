"""A replayed step, printed for people and as plain values for machines."""

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from rich.text import Text

from electra_trainer.errors import plain
from electra_trainer.files.wording import Terminal
from electra_trainer.inspection import replay

_REASONS = "Machine, program and versions match the record: did the run later continue elsewhere (log.txt)?"


def shown(found: replay.Replayed, rows: Sequence[replay.ReplayedRow]) -> list[str]:
    """Lines for a terminal: everything, with some of the rows."""
    console = Terminal(highlight=False, soft_wrap=True, markup=False, emoji=False)
    with console.capture() as captured:
        _print(console, found, rows)
    return captured.get().splitlines()


def _print(console: Terminal, found: replay.Replayed, rows: Sequence[replay.ReplayedRow]) -> None:
    began = f"the checkpoint of step {found.began}" if found.began else "the initial weights"
    again = f", {found.recomputed} steps in between trained again" if found.recomputed else ""
    console.print(f"step {found.step}, from {began}{again}")
    for name, value in found.computed.items():
        console.print(f"  {name:<30} {value!r}")
    for line in (verdict(found), *found.reservations):
        console.print(line)
    if not found.result.finite:
        bad = ", ".join(str(row.row) for row in found.rows if not row.finite)
        console.print(
            f"NaN or infinite in rows {bad}" if bad else "every loss is finite, the gradient is NaN or infinite"
        )
    for row in rows:
        console.print()
        for text in _lines(row):
            console.print(text)
    if len(rows) < len(found.rows):
        console.print(f"\n{len(rows)} of {len(found.rows)} rows; --rows, --lane and --row show others")


def verdict(found: replay.Replayed) -> str:
    """A sentence on whether the step matches the run's record."""
    if found.identical:
        return f"metrics.jsonl: all {len(found.recorded or {})} numbers of this step were reproduced, to the last bit."
    if found.identical is None:
        why = "has no row of this step" if found.result.finite else "has no row of a step that was skipped"
        return f"metrics.jsonl {why}: nothing to compare with."
    odd = [f"{name} {theirs!r}, here {mine!r}" for name, (theirs, mine) in found.differences.items()]
    shown = "; ".join(odd[:4]) + (f"; and {len(odd) - 4} more" if len(odd) > 4 else "")
    return f"NOT the same as in metrics.jsonl: {shown}." + ("" if found.reservations else f" {_REASONS}")


def _lines(row: replay.ReplayedRow) -> Iterator[Text]:
    """Number and documents, the text, and the text as the main network read it."""
    yield Text(f"row {row.row}, lane {row.lane}" + ("" if row.finite else ", NaN OR INFINITE"), "bold")
    for part in row.documents:
        yield Text(f"  {plain(_place(part))}", "cyan")
    yield Text("  ").append(plain(joined(row.original)))
    marked = Text("  ")
    for at, (before, after) in enumerate(zip(row.original, row.shown, strict=True)):
        glued = continues(row.original, at) and not row.masked[at]
        space = "" if glued or at == 0 else " "
        if not row.masked[at]:
            marked.append(space + plain(before[2:] if glued else before), "dim")
        elif before == after:
            marked.append(f"{space}[{plain(before)}]", "yellow")
        else:
            marked.append(f"{space}[{plain(before)}→{plain(after)}]", "bold red")
    yield marked


def _place(part: replay.DocumentPart) -> str:
    where = part.place
    lines = f":{where.line}" + (f"-{where.last}" if where.last != where.line else "") if where.line else ""
    skipped = f", after its first {part.skipped:,} tokens" if part.skipped else ""
    return f"{where.file}{lines}, document {where.number} of the file: tokens {part.begin} to {part.end - 1}{skipped}"


def joined(tokens: Sequence[str]) -> str:
    """Tokens as text, with the pieces of words joined."""
    parts = [token[2:] if continues(tokens, at) else f" {token}" for at, token in enumerate(tokens)]
    return "".join(parts).removeprefix(" ")


def continues(tokens: Sequence[str], at: int) -> bool:
    """Whether a token continues the word before it; the rest of a word that the end of a row cut off does not."""
    before = tokens[at - 1] if at else "[]"
    return tokens[at].startswith("##") and not (before.startswith("[") and before.endswith("]"))


def as_json(found: replay.Replayed, rows: Sequence[replay.ReplayedRow]) -> dict[str, Any]:
    """Plain values; NaN and infinity are the texts "nan" and "inf"."""
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


def _row(row: replay.ReplayedRow) -> dict[str, Any]:
    def document(part: replay.DocumentPart) -> dict[str, Any]:
        where = part.place
        place = {"file": where.file, "document": where.number, "line": where.line, "last_line": where.last}
        return {**place, "begin": part.begin, "end": part.end, "skipped": part.skipped}

    return {
        **vars(row),
        "documents": [document(part) for part in row.documents],
        "replaced": [before != after for before, after in zip(row.original, row.shown, strict=True)],
    }


def _number(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not isfinite(value) else value
