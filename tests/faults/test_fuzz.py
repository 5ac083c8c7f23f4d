"""Arbitrary bytes, and sound files mutated, into every reader: a value or a typed error, never anything else."""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Sequence
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
    [[]], [None], ["a"], "../..", {}, {"": 0}, {"a": {"b": []}}, {"kind": "x"}, {"kind": []},
)  # fmt: skip


def mutated(sound: bytes, chance: random.Random) -> bytes:
    """Bytes of any kind, or the sound ones with some of them or of its values replaced."""
    kind = chance.randrange(3)
    if kind == 0:
        return chance.randbytes(chance.randrange(121))
    if kind == 1:
        return edited(sound, chance, FRAGMENTS)
    return swapped(sound, chance)


def edited(sound: bytes, chance: random.Random, fragments: Sequence[bytes]) -> bytes:
    """Fragments in place of some bytes."""
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(sound) + 1)
        sound = sound[:at] + chance.choice(fragments) + sound[at + chance.randint(0, 12) :]
    return sound


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *places(value[key]))]


def swapped(sound: bytes, chance: random.Random) -> bytes:
    """JSON, or JSON lines, with some values, names or whole fields replaced by odd ones; other files get the values as text."""
    try:
        documents = [json.loads(line) for line in ([sound] if sound.count(b"\n{") == 0 else sound.splitlines())]
    except ValueError:
        return edited(sound, chance, [json.dumps(value).encode() for value in ODD])
    for _ in range(chance.randint(1, 3)):
        if found := places(documents):
            (container, key), how, value = chance.choice(found), chance.randrange(8), copy.deepcopy(chance.choice(ODD))
            if how == 0:
                del container[key]
            elif how == 1 and isinstance(container, dict):
                container[str(value)] = container.pop(key)
            else:
                container[key] = value
    return b"\n".join(json.dumps(one).encode() for one in documents)


def naive(data: bytes, name: str) -> None:
    """Naive reader: decode and parse."""
    text = data.decode("utf-8")
    for part in text.splitlines() if name.endswith(".jsonl") else [text]:
        if name.endswith((".json", ".jsonl")):
            json.loads(part)


@pytest.mark.parametrize("parser", parsers(), ids=lambda parser: parser.name)
def test_only_typed_errors(parser: Parser, tmp_path: Path) -> None:
    refused = control = 0
    path = tmp_path / parser.file
    path.write_bytes(parser.sound)
    try:
        parser.read(path)  # what is mutated is sound, or lacks only the files next to it
    except ElectraError as error:
        assert "no such file" in str(error), error
    start, chance = time.process_time(), random.Random(parser.name)
    for _ in range(CASES):
        data = mutated(parser.sound, chance)
        path.write_bytes(data)
        try:
            naive(data, parser.file)
        except Exception:
            control += 1
        try:
            parser.read(path)
        except ElectraError as error:
            refused += 1
            assert str(error).strip() and len(str(error)) < 100_000
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} of {data[:2000]!r}") from error
    seconds = round(time.process_time() - start, 1)
    report(
        "fuzz",
        parser=parser.name,
        cases=CASES,
        typed=refused,
        seconds=seconds,
        control_exceptions_of_a_naive_reader=control,
    )
    assert refused > CASES // 20
