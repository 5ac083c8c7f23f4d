"""Bad input of every kind to every reader: a sentence that says where and what to do, the right exit code, and nothing left behind."""

from __future__ import annotations

import json
import random
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.reliability.bad_inputs import CASES, COMMANDS, Case
from tests.reliability.figures import LONG, report
from tests.reliability.forking import Forks, Outcome, listing
from tests.reliability.materials import write_all
from tests.reliability.spoiling import put

MOST_SECONDS = 2.0
MOST_MEGABYTES = 300
SAMPLE = 70
"""Cases of the short form: one of each reader and some more, chosen by a seed."""


def chosen() -> list[Case]:
    order = random.Random(6).sample(CASES, len(CASES))
    first = {case.reader: case for case in order}
    rest = [case for case in order if first[case.reader] is not case]
    return CASES if LONG else sorted([*first.values(), *rest][:SAMPLE], key=CASES.index)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as forks:
        yield forks


def complaints(case: Case, told: Outcome, left: object) -> list[str]:
    """Faults of an outcome."""
    found = [f"lacks {words!r}" for words in case.said if words not in told.said]
    if told.code != case.code:
        found.append(f"exit code {told.code}, expected {case.code}")
    if "Traceback" in told.said or "bug in electra-trainer" in told.said:
        found.append("a traceback")
    if "\x1b" in told.said or "\0" in told.said:
        found.append("steers the terminal")
    if told.seconds > MOST_SECONDS or told.megabytes > MOST_MEGABYTES:
        found.append(f"{told.seconds:.1f} s, {told.megabytes:.0f} MB")
    if left:
        found.append(f"leaves {left}")
    return found


def test_every_kind_is_a_sentence(forks: Forks, good: Path, tmp_path: Path) -> None:
    wrong: list[str] = []
    told: list[Outcome] = []
    for number, case in enumerate(chosen()):
        folder = tmp_path / str(number)
        folder.mkdir()
        bad = folder / case.file
        put(bad, case.content, good)
        before = listing(folder)
        words = [word.format(bad=bad, good=good) for word in COMMANDS[case.reader].split()]
        told.append(forks.command(*words, folder=folder))
        left = sorted(listing(folder).keys() ^ before.keys())
        if found := complaints(case, told[-1], left):
            wrong.append(f"{case.reader}, {case.kind}: {'; '.join(found)}\n    {told[-1].said[-600:]}")
        if case.file in before and stat.S_ISREG(before[case.file][0]):
            bad.unlink()  # some have 100 MB
    report(
        "bad_input",
        kinds=len(told),
        readers=len({case.reader for case in chosen()}),
        right=len(told) - len(wrong),
        tracebacks=sum("Traceback" in one.said for one in told),
        most_seconds=round(max(one.seconds for one in told), 2),
        most_megabytes=round(max(one.megabytes for one in told)),
        control_tracebacks_of_a_naive_reader=naive(good, tmp_path / "naive"),
        of=len(told),
    )
    assert not wrong, "\n".join(wrong)


def naive(good: Path, folder: Path) -> int:
    """How many of the same files, where they are files, a usual reader meets with an exception that is not its own."""
    failed = 0
    for number, case in enumerate(chosen()):
        if not isinstance(case.content, bytes):
            continue
        path = folder / str(number) / case.file
        put(path, case.content, good)
        try:
            text = path.read_text(encoding="utf-8")
            for document in text.split("\n") if path.suffix == ".jsonl" else [text]:
                if path.suffix in (".json", ".jsonl"):
                    json.loads(document)
        except (ValueError, RecursionError):
            failed += 1
    return failed


def test_there_are_enough_kinds() -> None:
    assert len(CASES) >= 150 and len({(case.reader, case.kind, case.file) for case in CASES}) == len(CASES)
    assert {case.reader for case in CASES} == set(COMMANDS) == {case.reader for case in chosen()}
    assert len(chosen()) >= 60


ODD_AND_RIGHT = {
    "byte order mark and CRLF": b"\xef\xbb\xbfone\r\n\r\ntwo words\r\n",
    "U+2028 and U+0085": "one\u2028still one\x85and still\n\ntwo words\n".encode(),
    "documents of one token": b"a\n\nb\n\nc\n\nd\n",
    "no line end": b"one\n\ntwo words",
    "a line of a megabyte": b"word " * 200_000 + b"\n\ntwo\n",
}


@pytest.mark.parametrize("kind", ODD_AND_RIGHT)
def test_what_is_odd_and_right_is_read(forks: Forks, good: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "text.txt").write_bytes(ODD_AND_RIGHT[kind])
    words = COMMANDS["corpus"].format(bad=tmp_path / "text.txt", good=good).split()
    told = forks.command(*words, folder=tmp_path)
    assert told.code == 0, told.said
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    documents = manifest["train"]["documents"] + manifest["valid"]["documents"]
    assert documents == (4 if kind == "documents of one token" else 2)


def test_a_failed_preparation_leaves_what_was_there(forks: Forks, good: Path, tmp_path: Path) -> None:
    """Bad text late in a large file: nothing of the store stays, and other files in the folder are not touched."""
    (tmp_path / "text.txt").write_bytes(b"plain words\n\n" * 20_000 + b"\xff\n")
    words = COMMANDS["corpus"].format(bad=tmp_path / "text.txt", good=good).split()
    told = forks.command(*words, folder=tmp_path)
    assert told.code == 65 and "text.txt:40001" in told.said, told.said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.txt"]
