"""The tests are tested: each promise is broken in a copy of the source, and the tests named for it must fail, and for that reason.

    python -m tests.reliability.sabotage [NAME ...]

Source and tests are copied into a separate folder, so that the checkout is never touched; one exact edit (sabotages.py) is made in
the copy; pytest runs there. Caught is a sabotage whose tests all fail, by an assertion that says what was expected, while the same tests
pass on a copy without the edit. An error of import, collection or set-up, a timeout, or another assertion does not count.

One JSON line a sabotage, one for all; exit 1 unless all are caught.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from tests.reliability.figures import report
from tests.reliability.sabotages import FURTHER, NINE, NUMBERS, Sabotage

ALL = (*NINE, *FURTHER, *NUMBERS)
ROOT = Path(__file__).resolve().parents[2]
LIMIT = 3600
"""Seconds by the clock that a test may take: it may hang without what was taken away, and the machine may be busy."""
_SHOWN = 800
"""Characters of output, of a sabotage that was not caught."""


@contextmanager
def copy_of(root: Path) -> Iterator[Path]:
    """A folder with source, tests, benchmarks and settings, and links to the pages and records that tests read."""
    with tempfile.TemporaryDirectory(prefix="sabotage-") as folder:
        place = Path(folder).resolve()
        for name in ("docs", "records", "README.md", "Makefile"):
            (place / name).symlink_to(root / name)
        for name in ("src/electra_trainer", "tests", "benchmarks"):
            shutil.copytree(root / name, place / name)
        shutil.copy(root / "pyproject.toml", place)
        yield place


def run_pytest(place: Path, *words: str, limit: float | None = None) -> int:
    """Run tests in a copy: pytest's exit code, or -9 after `limit` seconds. Its output is in `printed.txt`.

    Variables of the run that sabotages are left out: the tests in it are short and leave no figures.
    """
    own = ("ELECTRA_RELIABILITY", "PYTEST_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    environment |= {"PYTHONPATH": f"{place / 'src'}{os.pathsep}{place}", "ELECTRA_TEST_PATIENCE": str(LIMIT // 2)}
    command = [sys.executable, "-m", "pytest", *words, "-p", "no:cacheprovider", "-p", "no:xdist"]
    with (place / "printed.txt").open("w") as said:
        process = subprocess.Popen(
            [*command, "--basetemp", str(place / "tmp")],
            cwd=place, env=environment, stdout=said, stderr=said, start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with what the tests started
                process.wait()


def outcomes(place: Path, tests: Sequence[str]) -> dict[str, str]:
    """Each test with `passed`, the lines of the failed assertion, `error` or `skipped`; an entry `pytest` if it did not get so far."""
    outcome = place / "outcome.xml"
    code = run_pytest(place, *tests, "--timeout", str(LIMIT), "--junit-xml", str(outcome))
    if code not in (0, 1):
        said = (place / "printed.txt").read_text(encoding="utf-8", errors="replace")
        return {"pytest": f"ended with {code}: {said[-_SHOWN:]}"}
    found = {}
    for case in ElementTree.parse(outcome).iter("testcase"):
        kinds = {child.tag: child for child in case}
        shown = next((kind for kind in ("error", "skipped") if kind in kinds), "passed")
        if "failure" in kinds:
            lines = (kinds["failure"].text or "").splitlines()
            shown = "\n".join(line for line in lines if line.startswith(("E ", ">")))
        found[f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"] = shown
    return found


def missed(sabotage: Sabotage, whole: dict[str, str], edited: dict[str, str]) -> str:
    """Why it is not caught, by the outcomes of its tests on a copy without and with the edit; empty if it is."""
    for found in (whole, edited):
        if "pytest" in found:
            return f"pytest {found['pytest']}"
    for test, said in sabotage.caught_by.items():
        if whole.get(test) != "passed":
            return f"without the edit {test} did not pass"
        found_here = edited.get(test, "not run")
        if found_here == "passed":
            return f"{test} passed"
        if "Timeout" in found_here or not re.search(said, found_here):
            return f"{test} failed for another reason: {found_here[-_SHOWN:]}"
    return ""


def sabotaged(sabotages: Sequence[Sabotage]) -> dict[str, str]:
    """Break each promise, print and report the outcome: the names of those that were not caught, each with the reason."""
    began, wrong = time.monotonic(), dict[str, str]()
    with copy_of(ROOT) as place:
        whole = outcomes(place, sorted({test for sabotage in sabotages for test in sabotage.caught_by}))
    for sabotage in sabotages:
        start = time.monotonic()
        with copy_of(ROOT) as place:
            source = place / "src" / "electra_trainer"
            (source / sabotage.file).write_text(sabotage.edited(source), encoding="utf-8")
            why = missed(sabotage, whole, outcomes(place, list(sabotage.caught_by)))
        wrong |= {sabotage.name: why} if why else {}
        line = {"sabotage": sabotage.name, "takes_away": sabotage.takes_away, "outcome": why or "caught"}
        print(json.dumps({**line, "seconds": round(time.monotonic() - start, 1)}), flush=True)
    nine = [sabotage.name for sabotage in NINE if sabotage in sabotages]
    report(
        "sabotage", sabotages=len(sabotages), caught=len(sabotages) - len(wrong),
        of_the_nine=f"{len({*nine} - wrong.keys())} of {len(nine)}", seconds=round(time.monotonic() - began, 1),
        control_tests=len(whole), control_failed=sum(shown != "passed" for shown in whole.values()),
    )  # fmt: skip
    return wrong


def main(names: Sequence[str]) -> int:
    """The command; its exit code."""
    known = {sabotage.name: sabotage for sabotage in ALL}
    if unknown := {*names} - known.keys():
        sys.exit(f"no sabotage is named {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    chosen = [known[name] for name in names] or ALL
    for sabotage in chosen:  # all fit, before the first is tried
        sabotage.edited(ROOT / "src" / "electra_trainer")
    return 1 if sabotaged(chosen) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
