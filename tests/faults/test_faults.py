"""Every fault to every reader: a sentence that says where and what to do, the right exit code; nothing runs, is written elsewhere or left."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.faults import naive
from tests.faults.cases import BAD, BOMBS, CANARY, COMMANDS, ELSEWHERE, HOLES, TENSORS, TYPED, Case, pickles, put
from tests.faults.materials import write_all
from tests.reliability.figures import LONG, report
from tests.reliability.forking import Forks, Outcome, listing

SAMPLE = 70
"""Bad inputs of the short form: one of each reader and some more, chosen by a seed."""


def chosen() -> list[Case]:
    order = random.Random(6).sample(BAD, len(BAD))
    first = {case.reader: case for case in order}
    rest = [case for case in order if first[case.reader] is not case]
    return BAD if LONG else sorted([*first.values(), *rest][:SAMPLE], key=BAD.index)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Cases of one kind, with limits for a reader of ours, and what a usual one does with the same."""

    cases: Sequence[Case]
    control: Callable[[Forks, Path], bool]
    """Whether the fault of a case has its way; the place is in the working folder."""
    harms: float = 1
    """How many cases it must have its way with."""
    megabytes: float = 500
    seconds: float = math.inf


def ran(forks: Forks, place: Path) -> bool:
    forks.call("tests.faults.naive:unpickle", str(place), folder=place.parent)
    return (place.parent / CANARY).exists()


def written(_: Forks, place: Path) -> bool:
    before = listing(place.parent / "outside")
    naive.write(place)
    return listing(place.parent / "outside") != before


def swells(forks: Forks, place: Path) -> bool:
    return forks.call("tests.faults.naive:whole", str(place), folder=place.parent).megabytes > 500


GROUPS = {
    "bad_input": Group(cases=chosen(), control=lambda _, place: place.is_file() and naive.fails(place), megabytes=450, seconds=2),
    "hostile_pickles": Group(cases=[*pickles()], control=ran, harms=len([*pickles()])),
    "hostile_writes": Group(cases=ELSEWHERE, control=written, harms=5),
    "hostile_tensors": Group(cases=TENSORS, control=lambda _, place: naive.takes(place / "model.safetensors"), harms=2),
    "bombs": Group(cases=BOMBS, control=swells),
    "sparse_checkpoints": Group(cases=HOLES, control=swells, harms=len(HOLES)),
}  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as forks:
        yield forks


def typed(forks: Forks, reader: str, bad: Path, good: Path, folder: Path) -> Outcome:
    return forks.command(*(word.format(bad=bad, good=good) for word in COMMANDS[reader].split()), folder=folder)


@pytest.mark.parametrize("name", GROUPS)
def test_every_fault_is_a_sentence(name: str, forks: Forks, good: Path, tmp_path: Path) -> None:
    group, wrong, told, harmed = GROUPS[name], list[str](), list[Outcome](), 0
    for number, case in enumerate(group.cases):
        folder = tmp_path / str(number)
        (folder / "outside").mkdir(parents=True)
        (folder / "outside" / "kept").write_bytes(b'{"step": 1}\n')
        bad = folder / case.file
        put(bad, case.content, good)
        before, sound = listing(folder), listing(good)
        told.append(typed(forks, case.reader, bad, good, folder))
        after = listing(folder)
        faults = complaints(case, told[-1], group)
        if (folder / CANARY).exists():
            faults.append("ran code")
        if listing(good) != sound or any(
            after.get(path) != before[path] for path in before if path.startswith("outside")
        ):
            faults.append("changed files elsewhere")
        if case.code is not None and "{bad}" not in COMMANDS[case.reader].partition("--out ")[2]:
            faults += [f"leaves {path}" for path in after.keys() ^ before.keys()]
        wrong += [f"{case.reader}, {case.kind}: {'; '.join(faults)}\n    {told[-1].said[-600:]}"] * bool(faults)
        harmed += group.control(forks, bad)
        if bad.is_file():
            bad.unlink()  # some have 100 MB
    most = {
        "most_seconds": round(max(one.seconds for one in told), 2),
        "most_megabytes": round(max(one.megabytes for one in told)),
    }
    report(name, cases=len(told), right=len(told) - len(wrong), **most, control_harmed_by_a_naive_reader=harmed)
    assert not wrong, "\n".join(wrong)
    assert harmed >= group.harms


def complaints(case: Case, told: Outcome, group: Group) -> list[str]:
    """Faults of an outcome."""
    found = [f"lacks {words!r}" for words in case.said if words not in told.said]
    if told.code not in (TYPED if case.code is None else {case.code}):
        found.append(f"exit code {told.code}, expected {case.code}")
    if "Traceback" in told.said or "bug in electra-trainer" in told.said:
        found.append("a traceback")
    if "\x1b" in told.said or "\0" in told.said:
        found.append("steers the terminal")
    if told.seconds > group.seconds or told.megabytes > group.megabytes:
        found.append(f"{told.seconds:.1f} s, {told.megabytes:.0f} MB")
    return found


def test_there_are_enough_kinds() -> None:
    every = [case for group in GROUPS.values() for case in group.cases] + BAD
    assert len(BAD) >= 150 and len({(case.reader, case.kind, case.file) for case in BAD}) == len(BAD)
    assert {case.reader for case in every} == set(COMMANDS) and {case.reader for case in chosen()} == {
        case.reader for case in BAD
    }


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
    told = typed(forks, "corpus", tmp_path / "text.txt", good, tmp_path)
    assert told.code == 0, told.said
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    documents = manifest["train"]["documents"] + manifest["valid"]["documents"]
    assert documents == (4 if kind == "documents of one token" else 2)
