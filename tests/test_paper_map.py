"""docs/paper_map.md names only what exists, says of each of 129 things how far it is, and leaves out no table row, preset or arm."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

from tests.cli.test_flags import flags_of

from electra_trainer.cli.main import VERBS
from electra_trainer.cli.pretrain import Pretrain
from electra_trainer.paper import published
from electra_trainer.presets.arms import ARMS
from electra_trainer.presets.models import PRESETS
from electra_trainer.settings.methods import PHASES, ObjectiveSettings, generators
from electra_trainer.settings.records import to_dict

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "paper_map.md").read_text(encoding="utf-8")
TABLES, NUMBERS = PAGE.split("## Numbers in the text")


def rows_of(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    cells = [[cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")] for line in lines]
    return [row for row in cells if row[0] not in ("#", "paper", "number")]


CLAIMS = [row for row in rows_of(TABLES) if row[0].isdecimal()]
"""#, paper, what, code, how to choose it, test, state, run."""
ROWS = [row[1:6] + row[7:] for row in CLAIMS] + [row for row in rows_of(TABLES) if not row[0].isdecimal()]
BUILT = [row for row in ROWS if row[2] != "not yet"]
OURS = ("demo", "mini", "tiny")
"""Presets that are no row of the paper."""


def quoted(column: int) -> list[str]:
    return [item for row in ROWS for item in re.findall(r"`([^`]+)`", row[column])]


def test_the_tables_were_read() -> None:
    assert all(len(row) == 6 for row in ROWS), [row for row in ROWS if len(row) != 6]
    assert [int(row[0]) for row in CLAIMS] == [*range(1, len(CLAIMS) + 1)]
    assert len(CLAIMS) == 129 and len(ROWS) > len(CLAIMS)


def test_a_state_is_earned() -> None:
    """Y: code, a test, and a record or the reason for having none. P and N: one word on what is missing."""
    for row in CLAIMS:
        state, word = [*row[6].split(": "), ""][:2]
        assert state in ("Y", "P", "N") and row[2], row
        if state == "Y":
            assert not word and row[3] != "not yet" and row[5], row
            assert re.search(r"\]\(\.\./records/[\w-]+\)", row[7]) or row[7].startswith("no run: "), row
            assert says_what_came_out(row[7]), row
        else:
            assert re.fullmatch(r"[a-z]+", word) and (state == "N") == (row[3] == "not yet"), row


def says_what_came_out(run: str) -> bool:
    """A link alone shows nothing: next to it is a number or a finding, or the test whose bound it is. A record in which
    no encoder is above a look-up table, or at the majority class, shows nothing of an encoder, but may of a command.
    """
    said = re.sub(r"\[[^]]*\]\([^)]*\)", "", run)
    found = re.search(r"\d|\(the test\)|`tests/", said) or len(re.findall(r"\w+", said)) >= 4
    return bool(found) and not re.search(r"(look-up table|majority class)(?! \(the command\b)|not tuned", said)


def test_a_link_alone_earns_nothing() -> None:
    link = "[record](../records/google-curve)"
    shows = (f"AUC 0.613, {link}", "no run: equal to the bit (the test)", "the majority class (the command alone)")
    hides = (link, f"thin, {link}", f"below a look-up table: tags 0.77, {link}")
    assert all(map(says_what_came_out, shows)) and not any(map(says_what_came_out, hides))


def test_states_are_counted() -> None:
    count = {state: sum(row[6][0] == state for row in CLAIMS) for state in "YPN"}
    assert "Today Y {Y}, P {P}, N {N}.".format(**count) in PAGE, count


@cache
def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_code_and_test_exist() -> None:
    for row in BUILT:
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


def names_of_flags(kind: Any) -> set[str]:
    """Names of a request's flags, over all members of the tagged unions."""
    return {name.replace("_", "-") for name in flags_of(kind)}


CHOICES = {"--objective": ObjectiveSettings.kinds, "--generator": generators(), "--phases": PHASES}


def test_every_choice_exists() -> None:
    for item in sorted(set(quoted(3))):
        check_choice(item)


def check_choice(item: str) -> None:
    """A preset, an arm, a flag (with its value, where it has one), or a command."""
    if item.startswith("--"):
        flag, *value = item.split()
        assert flag.removeprefix("--") in names_of_flags(Pretrain)
        if flag in CHOICES:
            assert all(word in CHOICES[flag] for word in value)
        elif flag == "--phases.start":
            assert value == ["fresh"]
    elif item.startswith("electra "):
        verb = item.split()[1]
        assert verb in VERBS
        assert {*re.findall(r"--(\S+)", item)} <= names_of_flags(VERBS[verb]), item
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


def test_every_row_of_a_table_is_there() -> None:
    """The rows that paper/published.py has of a table are named in rows of this page that name the table."""
    for number in (1, 2, 3, 4, 7):
        text = " ".join(" ".join(row[:2]) for row in ROWS if f"Table {number}" in row[0])
        assert [row.model for row in published.TABLES[number].rows if row.model not in text] == []


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
