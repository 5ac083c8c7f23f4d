"""Every figure that README and docs claim stands in the record that is named beside it, as it is or rounded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/evidence.md", "docs/recipes.md")
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?!\w)")
LINK = re.compile(r"\]\(([^)#\s]*records/[^)#\s]+)\)")
PLAIN = (".md", ".csv", ".jsonl", ".json", ".txt")


def blocks(page: str) -> Iterator[str]:
    """Paragraphs, and rows of tables one by one, without code blocks."""
    text = re.sub(r"```.*?```", "", page, flags=re.S)
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.splitlines()
        rows = [line for line in lines if line.startswith("|")]
        yield from rows
        yield " ".join(line for line in lines if not line.startswith("|"))


def figures(block: str) -> list[str]:
    """Its numbers, without those in commands, names of records and titles of pages."""
    return [one.rstrip(",") for one in NUMBER.findall(re.sub(r"`[^`]*`|\]\([^)]*\)|\[[^]]*(?=\])", "", block))]


def value(figure: str) -> float:
    return float(figure.replace(",", ""))


def stands(figure: str, known: set[float]) -> bool:
    """As it is, rounded to the digits that are shown, or as a percentage of a share."""
    wanted = value(figure)
    if "e" in figure:
        return wanted in known
    half = 0.5001 * 10.0 ** -len(figure.partition(".")[2])
    return any(abs(scale * one - wanted) <= half for one in known for scale in (1, 100))


def recorded(block: str, folder: Path) -> set[float]:
    """All numbers of the records that a block links."""
    places = [(folder / target).resolve() for target in LINK.findall(block)]
    files = [file for place in places for file in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    text = " ".join(file.read_text(encoding="utf-8") for file in files if file.suffix in PLAIN)
    return {value(one.rstrip(",")) for one in re.findall(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?", text)}


def missing(page: str, folder: Path) -> list[tuple[str, str]]:
    """Figures that no record named beside them has, each with where it stands."""
    found = []
    for block in blocks(page):
        if LINK.search(block):
            known = recorded(block, folder)
            found += [(figure, block[:80]) for figure in figures(block) if not stands(figure, known)]
    return found


@pytest.mark.parametrize("name", PAGES)
def test_figures_stand_in_their_records(name: str) -> None:
    page = ROOT / name
    assert missing(page.read_text(encoding="utf-8"), page.parent) == []


@pytest.mark.parametrize("name", ["README.md", "docs/evidence.md"])
def test_every_claim_says_what_measured_it(name: str) -> None:
    """A record, or a test that fails where it does not hold; what has not been measured says so."""
    text = (ROOT / name).read_text(encoding="utf-8")
    rows = [row for row in blocks(text) if row.startswith("|") and figures(row)]
    assert len(rows) >= 4
    for row in rows:
        assert LINK.search(row) or "`pytest " in row or "not measured" in row, row


def test_a_wrong_figure_is_found() -> None:
    """The check can fail: a figure that its record lacks, in a row and in a paragraph."""
    folder = ROOT / "docs"
    link = "[record](../records/2026-11-23-pair-head)"
    assert missing(f"| overlap | STS-B 79.0 | {link} |", folder) == []
    assert [one for one, _ in missing(f"| overlap | STS-B 79.7 | {link} |", folder)] == ["79.7"]
    assert [one for one, _ in missing(f"Overlap reaches 0.796\non STS-B ({link}).", folder)] == ["0.796"]
