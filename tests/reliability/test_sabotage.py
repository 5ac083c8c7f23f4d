"""The tests are tested: the edits of sabotages.py fit the source, and the quickest (all of them in the long form) are noticed."""

from __future__ import annotations

import ast
import dataclasses
import difflib
from contextlib import nullcontext
from pathlib import Path

import pytest
from tests import conftest
from tests.reliability import mutants, sabotage
from tests.reliability.children import in_a_child
from tests.reliability.figures import LONG
from tests.reliability.sabotage import ALL, ROOT, missed, sabotaged
from tests.reliability.sabotages import NINE, Sabotage, Stale

PACKAGE = ROOT / "src" / "electra_trainer"
QUICKEST = ("signal-mask",)
EDITS = {one.name: one for one in ALL}


@pytest.mark.parametrize("edit", ALL, ids=list(EDITS))
def test_the_edit_fits_and_its_tests_are_there(edit: Sabotage) -> None:
    before, after = (PACKAGE / edit.file).read_text(encoding="utf-8"), edit.edited(PACKAGE)
    assert compile(after, edit.file, "exec") != compile(before, edit.file, "exec")
    for test in edit.caught_by:
        file, _, name = test.partition("::")
        assert f"\ndef {name.partition('[')[0]}(" in (ROOT / file).read_text(encoding="utf-8"), test


def test_every_case_that_is_named_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of parametrised tests, too: a new row must not shift what they are called."""
    tests = sorted({test for edit in ALL for test in edit.caught_by})
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(conftest, "SHOWN", nullcontext())  # it is entered already
    words = ["--collect-only", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *tests]
    assert in_a_child(lambda: int(pytest.main(words))) == 0  # what this process has loaded is not loaded again


def test_nine_at_least_and_no_name_twice() -> None:
    assert len(NINE) == 9 and len(EDITS) == len(ALL) > 9


@pytest.mark.parametrize("sought", ["no such line\n", "import"])
def test_an_edit_that_no_longer_fits_is_refused(sought: str, tmp_path: Path) -> None:
    stale = dataclasses.replace(NINE[0], sought=sought)
    with pytest.raises(Stale, match="expected once"):
        stale.edited(PACKAGE)
    with pytest.raises(Stale, match="0 times"):
        NINE[0].edited(tmp_path)


EDIT = dataclasses.replace(NINE[0], caught_by={"a.py::b": r"assert -\d+ == 75", "a.py::c": "DID NOT RAISE"})
GOOD = {"a.py::b": "E  assert -15 == 75", "a.py::c": "E  Failed: DID NOT RAISE"}
WHOLE = dict.fromkeys(GOOD, "passed")


@pytest.mark.parametrize(
    ("whole", "edited", "why"),
    [
        (WHOLE, GOOD, ""),
        (WHOLE, WHOLE, "a.py::b passed"),
        (WHOLE, {**GOOD, "a.py::c": "passed"}, "a.py::c passed"),
        (WHOLE, {"a.py::b": GOOD["a.py::b"]}, "a.py::c failed for another reason: not run"),
        (WHOLE, {**GOOD, "a.py::c": "error"}, "another reason: error"),
        (WHOLE, {**GOOD, "a.py::b": "E  ImportError: no name"}, "another reason: E  ImportError"),
        (WHOLE, {**GOOD, "a.py::c": "E  Failed: Timeout >600s DID NOT RAISE"}, "another reason: E  Failed: Timeout"),
        (WHOLE, {"pytest": "ended with 2"}, "pytest ended with 2"),
        ({**WHOLE, "a.py::b": "skipped"}, GOOD, "without the edit a.py::b did not pass"),
        ({"a.py::b": "passed"}, GOOD, "without the edit a.py::c did not pass"),
    ],
)
def test_only_the_right_failure_counts(whole: dict[str, str], edited: dict[str, str], why: str) -> None:
    found = missed(EDIT, whole, edited)
    assert why in found and (found == "") == (why == "")


@pytest.mark.slow
def test_every_promise_that_is_broken_is_noticed() -> None:
    assert sabotaged(ALL if LONG else [EDITS[name] for name in QUICKEST]) == {}


def test_a_name_that_is_not_known_is_refused() -> None:
    with pytest.raises(SystemExit, match="no sabotage is named fsink"):
        sabotage.main(["fsink"])


def test_a_mutant_differs_from_its_file_by_one_change() -> None:
    made = list(mutants.mutants("runs/restarts.py"))
    before = ast.unparse(ast.parse((PACKAGE / "runs/restarts.py").read_text(encoding="utf-8"))).splitlines()
    assert len(made) > 20
    for mutant in made:
        compile(mutant.text, mutant.file, "exec")
        changed = [line for line in difflib.ndiff(before, mutant.text.splitlines()) if line[0] in "+-"]
        assert 0 < len(changed) < 12, mutant.change
