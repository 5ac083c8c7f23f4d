"""Arbitrary bytes, and sound files mutated, into every reader: a value or a typed error, never anything else."""

from __future__ import annotations

import copy
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from tests.faults.parsers import Parser, parsers
from tests.reliability.figures import LONG, report

from electra_trainer.errors import ElectraError

CASES = 20_000 if LONG else 500
FRAGMENTS = (
    b"", b"\0", b"\xff", b"\xed\xa0\x80", b"\\ud800", b'"', b"'", b"\\", b"[", b"]", b"{", b"}", b"[" * 2000, b"\n", b"\n\n", b"\r", b"\t", b",", b":",
    b" ", "\u2028".encode(), "\x85".encode(), "\u0661".encode(), b"\xef\xbb\xbf", b"-1", b"0", b"1e999", b"NaN", b"-Infinity", b"9" * 30, b"9" * 5000,
    b"null", b"true", b"[]", b"{}", b'""', b"#", b"_", b"1-2", b"\x1b[31m", b"<script>",
)  # fmt: skip
ODD = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, 10**400, 1.5, -0.0, 1e308, float("nan"), float("inf"), "", " ", "a", "\ud800", "\0", "1", "x" * 300, [], [0],
    [[]], [None], ["a"], {}, {"": 0}, {"a": {"b": []}}, {"kind": "x"}, {"kind": []},
)  # fmt: skip


def plan_of(chance: random.Random) -> Any:
    """A case: bytes, or ("edit" | "swap", where and what)."""
    kind = chance.randrange(3)
    if kind == 0:
        return chance.randbytes(chance.randrange(121))
    if kind == 1:
        edits = range(chance.randint(1, 5))
        return "edit", [(chance.randrange(1 << 16), chance.randint(0, 12), chance.choice(FRAGMENTS)) for _ in edits]
    swaps = range(chance.randint(1, 3))
    return "swap", [(chance.randrange(1 << 12), chance.randrange(len(ODD))) for _ in swaps]


def edited(sound: bytes, plan: list[tuple[int, int, bytes]]) -> bytes:
    """Fragments in place of some bytes."""
    for at, length, fragment in plan:
        at %= len(sound) + 1
        sound = sound[:at] + fragment + sound[at + length :]
    return sound


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *places(value[key]))]


def swapped(sound: bytes, plan: list[tuple[int, int]]) -> bytes:
    """JSON, or JSON lines, with some values, names or whole fields replaced by odd ones; other files get the values as text."""
    try:
        documents = [json.loads(line) for line in ([sound] if sound.count(b"\n{") == 0 else sound.splitlines())]
    except ValueError:
        return edited(sound, [(at, 3, json.dumps(ODD[what]).encode()) for at, what in plan])
    for at, what in plan:
        if found := places(documents):
            container, key = found[at % len(found)]
            if at % 7 == 0:
                del container[key]
            elif at % 11 == 0 and isinstance(container, dict):
                container[str(ODD[what])] = container.pop(key)
            else:
                container[key] = copy.deepcopy(ODD[what])
    return b"\n".join(json.dumps(one).encode() for one in documents)


def content(parser: Parser, plan: Any) -> bytes:
    if isinstance(plan, bytes):
        return plan
    return edited(parser.sound, plan[1]) if plan[0] == "edit" else swapped(parser.sound, plan[1])


def naive(data: bytes, name: str) -> None:
    """Naive reader: decode and parse."""
    text = data.decode("utf-8")
    for part in text.splitlines() if name.endswith(".jsonl") else [text]:
        if name.endswith((".json", ".jsonl")):
            json.loads(part)


@pytest.mark.parametrize("parser", parsers(), ids=lambda parser: parser.name)
def test_only_typed_errors(parser: Parser, tmp_path: Path) -> None:
    counts = {"cases": 0, "read": 0, "refused": 0, "other": 0, "naive": 0}
    path = tmp_path / parser.file
    path.write_bytes(parser.sound)
    try:
        parser.read(path)  # what is mutated is sound, or lacks only what stands beside it
    except ElectraError as error:
        assert "no such file" in str(error), error

    def run(plan: Any) -> None:
        data = content(parser, plan)
        path.write_bytes(data)
        counts["cases"] += 1
        try:
            naive(data, parser.file)
        except Exception:
            counts["naive"] += 1
        try:
            parser.read(path)
            counts["read"] += 1
        except ElectraError as error:
            counts["refused"] += 1
            assert str(error).strip() and len(str(error)) < 100_000
        except RecursionError:
            counts["other"] += 1
            raise AssertionError(f"a RecursionError of {data[:80]!r}") from None
        except Exception as error:
            counts["other"] += 1
            raise AssertionError(f"{type(error).__name__} of {data[:2000]!r}") from error

    start, chance = time.process_time(), random.Random(parser.name)
    try:
        for _ in range(CASES):
            run(plan_of(chance))
    finally:
        report(
            "fuzz", parser=parser.name, cases=counts["cases"], typed=counts["refused"], read=counts["read"], other=counts["other"],
            seconds=round(time.process_time() - start, 1), control_exceptions_of_a_naive_reader=counts["naive"],
        )  # fmt: skip
    assert counts["refused"] > CASES // 20
