"""The tests are tested: each promise is broken in a copy of the source, and the tests named for it must fail, and for that reason.

    python -m tests.reliability.sabotage [NAME ...] [--list] [--jobs N]

Source and tests are copied into a folder of their own, so that the checkout is never touched; one exact edit (sabotages.py) is made in the
copy; pytest runs there. A file that Python reads as each process begins notes where that process takes the package from: all must take it
from the copy. Caught is a sabotage whose tests all fail, by an assertion that says what was expected, while the same tests pass on a copy
without the edit. An error of import, collection or set-up, a timeout, or another assertion does not count.

One JSON line a sabotage, one for all; exit 1 unless all are caught.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.reliability.figures import report
from tests.reliability.sabotages import FURTHER, NINE, Sabotage, Stale
from tests.reliability.sabotages_of_numbers import NUMBERS

ALL = (*NINE, *FURTHER, *NUMBERS)
ROOT = Path(__file__).resolve().parents[2]
LIMIT = 3600
"""Seconds by the clock that a test may take: it may hang without what was taken away, and the machine may be busy."""
_SHOWN = 800
"""Characters of what was said, of a sabotage that was not caught."""
_PASSED, _CAUGHT = "passed", "caught"
_OWN = ("ELECTRA_RELIABILITY", "PYTEST_")
"""How names of variables begin that are those of the run that sabotages, not of the tests in it: these are short and leave no figures."""
_WITNESS = '''"""Read as each process begins: it notes where the package is taken from."""

import os
import sys
from importlib.machinery import PathFinder


class Witness:
    def find_spec(self, name, path=None, target=None):
        if name == "electra_trainer":
            sys.meta_path.remove(self)
            found = PathFinder.find_spec(name, path)
            with open(os.environ["SABOTAGE_WITNESS"], "a") as file:
                file.write(f"{found and found.origin}\\n")


sys.meta_path.insert(0, Witness())
'''


@dataclass(frozen=True, kw_only=True)
class Ran:
    """Outcome of some tests."""

    code: int
    """Exit code of pytest: 0 passed, 1 failed, anything else: it did not come so far."""
    results: dict[str, str]
    """Outcome by test: `passed`, or the lines of the failed assertion, or what else there was."""
    astray: set[str]
    """Other places that a process took the package from; `nowhere` if none did."""
    said: str
    """The end of what pytest printed."""
    seconds: float


@contextmanager
def copy_of(root: Path) -> Iterator[Path]:
    """A folder with source, tests, benchmarks and settings of their own."""
    with tempfile.TemporaryDirectory(prefix="sabotage-") as folder:
        place = Path(folder).resolve()
        for name in ("src/electra_trainer", "tests", "benchmarks"):
            shutil.copytree(root / name, place / name)
        shutil.copy(root / "pyproject.toml", place)
        (place / "sitecustomize.py").write_text(_WITNESS, encoding="utf-8")
        yield place


def run_tests(place: Path, tests: Sequence[str]) -> Ran:
    """Run tests in a copy."""
    witness, outcome, printed = place / "witness.txt", place / "outcome.xml", place / "printed.txt"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
    environment |= {"PYTHONPATH": f"{place / 'src'}{os.pathsep}{place}", "SABOTAGE_WITNESS": str(witness)}
    environment |= {"ELECTRA_TEST_PATIENCE": str(LIMIT // 2)}
    words = ["-m", "pytest", *tests, "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout", str(LIMIT)]
    words += ["--junit-xml", str(outcome), "--basetemp", str(place / "tmp")]
    began = time.monotonic()
    with printed.open("w") as stream:
        code = subprocess.run(
            [sys.executable, *words], cwd=place, env=environment, stdout=stream, stderr=stream, check=False
        ).returncode
    said = printed.read_text(encoding="utf-8", errors="replace")[-_SHOWN:]
    mine = str(place / "src" / "electra_trainer" / "__init__.py")
    seen = set(witness.read_text().split("\n")[:-1]) if witness.exists() else {"nowhere"}
    results = dict(results_in(outcome)) if code in (0, 1) else {}
    seconds = round(time.monotonic() - began, 1)
    return Ran(code=code, results=results, astray=seen - {mine}, said=said, seconds=seconds)


def results_in(outcome: Path) -> Iterator[tuple[str, str]]:
    """Each test of a report of pytest's, and what became of it."""
    for case in ElementTree.parse(outcome).iter("testcase"):
        test = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        kinds = {child.tag: child for child in case}
        if "failure" in kinds:
            lines = (kinds["failure"].text or "").splitlines()
            yield test, "\n".join(line for line in lines if line.startswith(("E ", ">")))
        else:
            yield test, next((kind for kind in ("error", "skipped") if kind in kinds), _PASSED)


def verdict(sabotage: Sabotage, ran: Ran) -> str:
    """`caught`, or why it is not."""
    if ran.astray:
        return _went_astray(ran)
    if ran.code not in (0, 1):
        return f"pytest ended with {ran.code}: {ran.said}"
    for test, said in sabotage.caught_by.items():
        found = ran.results.get(test, "not run")
        if found == _PASSED:
            return f"{test} passed"
        if "Timeout" in found or not re.search(said, found):
            return f"{test} failed for another reason: {found[-_SHOWN:]}"
    return _CAUGHT


def unfit_without(sabotage: Sabotage, whole: Ran) -> str:
    """Why its tests prove nothing: what they did on a copy without an edit; empty where they passed."""
    if whole.astray:
        return f"without the edit {_went_astray(whole)}"
    failed = [test for test in sabotage.caught_by if whole.results.get(test) != _PASSED]
    return f"without the edit {', '.join(failed)} did not pass" if failed else ""


def _went_astray(ran: Ran) -> str:
    return f"a process took the package from {', '.join(sorted(ran.astray))}"


def control(sabotages: Sequence[Sabotage]) -> Ran:
    """The tests of all of them, on a copy without an edit."""
    tests = sorted({test for sabotage in sabotages for test in sabotage.caught_by})
    with copy_of(ROOT) as place:
        return run_tests(place, tests)


def tried(sabotage: Sabotage) -> Ran:
    """Its tests, on a copy with the edit."""
    with copy_of(ROOT) as place:
        sabotage.apply(place / "src" / "electra_trainer")
        return run_tests(place, list(sabotage.caught_by))


def sabotaged(sabotages: Sequence[Sabotage], *, jobs: int = 1) -> dict[str, str]:
    """Break each promise, print and report what came of it: the names of those that were not caught, each with the reason."""
    began = time.monotonic()
    missed: dict[str, str] = {}
    with ThreadPoolExecutor(jobs) as pool:
        unedited = pool.submit(control, sabotages)
        for sabotage, ran in zip(sabotages, pool.map(tried, sabotages), strict=True):
            said = verdict(sabotage, ran)
            if said != _CAUGHT:
                missed[sabotage.name] = said
            line = {"sabotage": sabotage.name, "takes_away": sabotage.takes_away, "outcome": said}
            print(json.dumps({**line, "tests": list(sabotage.caught_by), "seconds": ran.seconds}), flush=True)
        whole = unedited.result()
    unfit = {one.name: why for one in sabotages if (why := unfit_without(one, whole))}
    if whole.code != 0:
        print(f"without an edit pytest ended with {whole.code}: {whole.said}", file=sys.stderr)
    missed |= unfit
    nine = {sabotage.name for sabotage in NINE} & {sabotage.name for sabotage in sabotages}
    report(
        "sabotage",
        sabotages=len(sabotages),
        caught=len(sabotages) - len(missed),
        of_the_nine=f"{len(nine - missed.keys())} of {len(nine)}",
        control_tests=len(whole.results),
        control_failed=len(unfit),
        seconds=round(time.monotonic() - began, 1),
    )
    return missed


def main(words: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    known = {sabotage.name: sabotage for sabotage in ALL}
    parser = argparse.ArgumentParser(
        prog="python -m tests.reliability.sabotage", description="Are the tests good for anything?"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all by default")
    parser.add_argument("--list", action="store_true", help="show them and do nothing")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many at once (default 1)")
    asked = parser.parse_args(words)
    if unknown := [name for name in asked.names if name not in known]:
        parser.error(f"no sabotage is named {', '.join(unknown)}; --list shows all")
    chosen = [known[name] for name in asked.names] or list(ALL)
    if asked.list:
        for sabotage in chosen:
            print(f"{sabotage.name:22} {sabotage.takes_away}  [{sabotage.file}]")
        return 0
    try:
        for sabotage in chosen:  # all fit, before the first is tried
            sabotage.edited(ROOT / "src" / "electra_trainer")
    except Stale as error:
        parser.error(str(error))
    return 1 if sabotaged(chosen, jobs=asked.jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
