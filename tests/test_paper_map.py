"""docs/paper_map.md names only what exists, and leaves out nothing that the paper's tables, text or our presets and arms have."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from electra_trainer.cli import pretrain
from electra_trainer.cli.main import VERBS
from electra_trainer.finetuning.recipe import Recipe
from electra_trainer.paper import published
from electra_trainer.presets.arms import ARMS
from electra_trainer.presets.models import PRESETS
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import GENERATORS, PHASES, ObjectiveSettings
from electra_trainer.settings.records import to_dict

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "paper_map.md").read_text(encoding="utf-8")
TABLES, NUMBERS = PAGE.split("## Numbers in the text")


def rows_of(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] not in ("paper", "number")]


ROWS = rows_of(TABLES)
BUILT = [row for row in ROWS if row[2] != "not yet"]
OURS = ("mini", "tiny", "modern_small", "modern_base")
"""Presets that are no row of the paper."""


def quoted(column: int) -> list[str]:
    return [item for row in ROWS for item in re.findall(r"`([^`]+)`", row[column])]


def test_the_tables_were_read() -> None:
    assert len(ROWS) >= 45 and len(BUILT) >= 42
    assert all(len(row) == 6 for row in ROWS), [row for row in ROWS if len(row) != 6]


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.parametrize("row", BUILT, ids=lambda row: row[0])
def test_code_and_test_exist(row: list[str]) -> None:
    code = re.fullmatch(r"`([\w/]+\.py):(\w+)`", row[2])
    assert code and code[2] in names_in(ROOT / "src" / "electra_trainer" / code[1]), row[2]
    held = re.fullmatch(r"`(tests/[\w/]+\.py)`", row[4])
    assert held and any(name.startswith("test_") for name in names_in(ROOT / held[1])), row[4]


def test_test_files_speak_of_what_they_hold() -> None:
    """A test file that a row names imports, or has as a word, something of the module that the row names."""
    for row in BUILT:
        module = row[2].strip("`").split(":")[0].removesuffix(".py").split("/")[-1]
        name = row[2].strip("`").split(":")[1]
        text = (ROOT / row[4].strip("`")).read_text(encoding="utf-8")
        shared = [item for item in re.findall(r"`([^`]+)`", row[3]) if item.lstrip("-") in text]
        assert module in text or name in text or shared, row[:3]


def flags() -> set[str]:
    """Every flag of `electra pretrain`, over all members of the tagged unions."""
    found = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(pretrain.Pretrain)}
    members: list[tuple[str, Any]] = [("", Config)]
    members += [("objective.", cls) for cls in ObjectiveSettings.kinds.values()]
    members += [("generator.", cls) for cls in GENERATORS.values()] + [("phases.", cls) for cls in PHASES.values()]
    for prefix, cls in members:
        hints = get_type_hints(cls)
        for field in dataclasses.fields(cls):
            inner = hints[field.name]
            path = prefix + field.name
            if dataclasses.is_dataclass(inner) and inner is not ObjectiveSettings:
                found |= {f"--{path}.{part.name}".replace("_", "-") for part in dataclasses.fields(inner)}
            else:
                found.add(f"--{path}".replace("_", "-"))
    return found


RECIPE = {field.name for field in dataclasses.fields(Recipe)}
CHOICES = {"--objective": ObjectiveSettings.kinds, "--generator": GENERATORS, "--phases": PHASES}


@pytest.mark.parametrize("item", sorted(set(quoted(3))))
def test_every_choice_exists(item: str) -> None:
    """A preset, an arm, a flag (with its value, where it has one), or a command."""
    if item.startswith("--"):
        flag, *value = item.split()
        assert flag in flags()
        if flag in CHOICES:
            assert all(word in CHOICES[flag] for word in value)
        elif flag == "--phases.start":
            assert value == ["fresh"]
    elif item.startswith("electra "):
        verb = item.split()[1]
        assert verb in VERBS
        for flag in re.findall(r"--(\S+)", item) if verb == "finetune" else ():
            assert flag == "recipe" or flag.replace("-", "_") in RECIPE
        if verb == "flops":
            assert item.split()[2] in ("all", *PRESETS)
    else:
        assert item in PRESETS or item in ARMS


def test_no_preset_and_no_arm_is_left_out() -> None:
    named = set(quoted(3))
    assert set(PRESETS) - set(OURS) - named == set()
    assert set(ARMS) - named == set()
    assert set(ObjectiveSettings.kinds) >= {item.split()[1] for item in named if item.startswith("--objective ")}


def test_presets_are_what_their_rows_say() -> None:
    """Whoever is named with an objective, a generator or phases by flag is built with them."""
    for row in BUILT:
        items = re.findall(r"`([^`]+)`", row[3])
        for flag, field in (("--objective", "objective"), ("--generator", "generator"), ("--phases", "phases")):
            for kind in (item.split()[1] for item in items if item.startswith(flag + " ")):
                for name in (item for item in items if item in PRESETS):
                    assert to_dict(PRESETS[name]())[field]["kind"] == kind, (name, kind)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 7])
def test_every_row_of_a_table_is_there(number: int) -> None:
    """The rows that paper/published.py has of the table are named in rows of this page that name the table."""
    text = " ".join(" ".join(row[:2]) for row in ROWS if f"Table {number}" in row[0])
    for row in published.TABLES[number].rows:
        assert row.model in text, row.model


def test_every_section_and_appendix_is_there() -> None:
    places = " ".join(row[0] for row in ROWS)
    for place in (
        *(f"§{n}" for n in ("2", "3.1", "3.2", "3.3", "3.4", "3.5")),
        *(f"Appendix {letter}" for letter in "ABCDEFGH"),
    ):
        assert place in places, place
    assert all(f"Figure {n}" in places for n in range(1, 5)) and all(f"Table {n}" in places for n in range(1, 8))


def test_numbers_of_the_text_are_the_papers() -> None:
    found = {row[0]: row[1:3] for row in rows_of(NUMBERS)}
    for name, where, value, unit in published.PRINTED["statements"]:
        assert found.pop(name) == [where, f"{value:{',' if isinstance(value, int) else 'g'}} {unit}"]
    assert not found


def test_no_number_is_a_blank_to_fill() -> None:
    assert not re.search(r"NUM_|TODO|\?\?", PAGE)


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert all((ROOT / "docs" / link).exists() for link in links), links
