"""Parquet and Arrow files mutated: texts or a typed error, with a bounded time and memory, and no file takes the process down."""

from __future__ import annotations

import importlib.util
import io
import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.reliability.children import copy_workers
from tests.reliability.figures import LONG

from electra_trainer.data.corpus import CorpusReport, Reading, documents
from electra_trainer.errors import DataError, ElectraError
from electra_trainer.files import columnar

pytestmark = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs the extra [hub]: pyarrow")
CASES = 10_000 if LONG else 60
MOST_SECONDS, MOST_MEGABYTES = 20, 1000
TEXTS = [f"Text {number} of some words, naïve ones: " + "abc " * (number % 9) for number in range(60)] + [None]
NUMBERS = (0, 1, -1, 127, 128, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, -(2**63))


def sound_files() -> dict[str, bytes]:
    """Every way to write a column of texts, by name."""
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    text = pa.array(TEXTS)
    repeated = pa.array([f"word {number % 3}" for number in range(200)])
    others = {"list": pa.array([[1, 2], [], None] * 20 + [[3]]), "struct": pa.array([{"a": 1, "b": "x"}] * 61)}
    tables = {
        "plain": pa.table({"text": text}),
        "nested": pa.table({"text": text, **others}),
        "dictionary": pa.table({"text": repeated.dictionary_encode()}),
        "large": pa.table({"text": text.cast(pa.large_string())}),
        "view": pa.table({"text": text.cast(pa.string_view())}),
        "lists": pa.table({"text": pa.array([["a", "b"], None, []])}),
    }
    found: dict[str, bytes] = {}

    def add(name: str, write: Callable[[Any], None]) -> None:
        out = io.BytesIO()
        write(out)
        found[name] = out.getvalue()

    for name, table in tables.items():
        for codec in ("none", "snappy", "zstd"):
            add(
                f"Parquet {name} {codec}",
                lambda out, t=table, c=codec: pa.parquet.write_table(t, out, compression=c, row_group_size=40),
            )
        for codec in (None, "lz4", "zstd"):
            options = pa.ipc.IpcWriteOptions(compression=codec)

            def write(out: Any, make: Any, table: Any = table, options: Any = options) -> None:
                with make(out, table.schema, options=options) as writer:
                    writer.write_table(table, max_chunksize=40)

            add(f"stream {name} {codec}", lambda out, w=write: w(out, pa.ipc.new_stream))
            add(f"file {name} {codec}", lambda out, w=write: w(out, pa.ipc.new_file))
    for codec in ("gzip", "brotli", "lz4"):
        add(f"Parquet {codec}", lambda out, c=codec: pa.parquet.write_table(tables["plain"], out, compression=c))
    for encoding in ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"):
        add(f"Parquet {encoding}", lambda out, e=encoding: pa.parquet.write_table(
            tables["plain"], out, use_dictionary=False, column_encoding={"text": e}, data_page_version="2.0"))  # fmt: skip
    add("Feather", lambda out: pa.feather.write_feather(tables["plain"], out))
    found["Feather 1"] = b"FEA1\0\0\0\0" + found["Feather"][8:-6] + b"FEA1"
    return found


def mutated(sound: bytes, chance: random.Random) -> bytes:
    """One to four changes: bits, numbers of 1 to 8 bytes, parts taken out, repeated or exchanged, an end cut off."""
    data = bytearray(sound)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(max(len(data), 1))
        at = (
            len(data) - chance.randrange(1, min(400, len(data)) + 1) if chance.random() < 0.3 and data else at
        )  # the footer
        width, length = chance.choice((1, 2, 4, 8)), chance.randrange(1, 40)
        kind = chance.randrange(6)
        if kind == 0 and data:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            at -= at % width
            data[at : at + width] = (chance.choice(NUMBERS) % (1 << 8 * width)).to_bytes(width, "little")
        elif kind == 2:
            data[at : at + length] = chance.randbytes(length)
        elif kind == 3:
            del data[at : at + length]
        elif kind == 4:
            data[at:at] = data[at : at + length] * chance.randrange(1, 5)
        elif chance.random() < 0.2:
            del data[at:]
        else:
            data[at : at + 1] = bytes([chance.choice((0, 1, 0x7F, 0x80, 0xFF))])
    return bytes(data)


def resident() -> float:
    """Megabytes that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def test_mutated_arrow_and_parquet_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers are copies of this process: 10,000 new Pythons take an hour."""
    import pyarrow.parquet  # noqa: F401 - before it is copied

    copy_workers(monkeypatch)
    chance, files = random.Random(20), list(sound_files().items())
    files = files if LONG else files[::2]  # of nine encodings a table: the next table has the others
    formats = {"P": "parquet", "s": "arrow", "f": "arrow", "F": "feather"}
    paths = {letter: tmp_path / f"a.{ending}" for letter, ending in formats.items()}
    for name, sound in files:
        (path := paths[name[0]]).write_bytes(sound)
        if "lists" not in name and name != "Feather 1":
            assert len(list(documents([path], report=CorpusReport()))) in (60, 200), name
    counts, worst, wrong, before = Counter[str](), 0.0, list[str](), resident()
    for number in range(CASES):
        name, sound = files[number % len(files)]
        (path := paths[name[0]]).write_bytes(mutated(sound, chance))
        start = computed()
        try:
            list(documents([path], report=CorpusReport(), reading=Reading(on_bad_text="skip")))
            counts["read"] += 1
        except ElectraError as error:
            counts["refused"] += 1
            counts["refused: the reader's process had ended"] += "ended with status" in str(error)
            if path.name not in str(error) or len(str(error)) > 2000 or not isinstance(error, DataError):
                wrong.append(f"{number} {name}: {error}"[:500])
        except Exception as error:
            wrong.append(f"{number} {name}: {type(error).__name__}: {error}"[:500])
        worst = max(worst, computed() - start)
    most = max(resident() - before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024 - before)
    print(
        f"{CASES} cases of {len(files)} files: {dict(counts)}, {len(wrong)} other errors; most {worst:.2f} s, {most:.0f} MB"
    )
    assert not wrong, "\n".join(wrong[:20])
    assert counts["refused"] > CASES // 10 and counts["read"] > CASES // 50
    assert worst < MOST_SECONDS and most < MOST_MEGABYTES


def computed() -> float:
    """Seconds of computing, here and in children that have ended."""
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def test_a_reader_that_crashes_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(sound_files()["Parquet plain none"])
    copy_workers(monkeypatch)
    for number in (signal.SIGSEGV, signal.SIGKILL):
        monkeypatch.setattr(columnar, "_serve", lambda _, number=number: os.kill(os.getpid(), number))
        with pytest.raises(DataError, match=r"a\.parquet: is damaged: the process that read it ended"):
            list(documents([path], report=CorpusReport()))
