"""The table of faults: the command that reads an input, what is wrong with it, the exit code, and words of the message.

Bad inputs end with the code of their row and leave nothing; hostile ones may also be read, if nothing of them runs or is written elsewhere.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import shutil
import socket
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.faults.materials import COLA, SQUAD, TREEBANK, WORD
from tests.reliability.figures import LONG

from electra_trainer.runs.verified import sealed

Make = Callable[[Path, Path], None]
"""(the place to fill, the folder of sound inputs)."""
Content = bytes | Callable[[bytes], bytes] | Make


def put(place: Path, content: Any, good: Path) -> None:
    """Fill a place with bytes, or as a function does it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        place.write_bytes(content)
    else:
        content(place, good)


def pipe(place: Path, _: Path) -> None:
    os.mkfifo(place)


def plug(place: Path, _: Path) -> None:
    where = os.getcwd()
    os.chdir(place.parent)  # a socket's name is short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(place.name)
    os.chdir(where)


def circle(place: Path, _: Path) -> None:
    place.symlink_to(place.name)


def folder(place: Path, _: Path) -> None:
    place.mkdir()


def link(target: str) -> Make:
    return lambda place, _: place.symlink_to(target)


def nothing(place: Path, _: Path) -> None:
    pass


def sparse(size: int) -> Make:
    """NULs that take no room on the disk."""

    def make(place: Path, _: Path) -> None:
        with place.open("wb") as file:
            file.truncate(size)

    return make


def line_of(size: int) -> Make:
    """One line of letters without an end."""

    def make(place: Path, _: Path) -> None:
        with place.open("wb") as file:
            for _part in range(size >> 20):
                file.write(b"a" * (1 << 20))

    return make


def bomb(begin: bytes, fill: bytes, size: int) -> Make:
    """A gzip file that unpacks to `size` bytes."""

    def make(place: Path, _: Path) -> None:
        megabyte = gzip.compress(fill * (1 << 20), compresslevel=1)  # a file may be many of them, one after another
        place.write_bytes(gzip.compress(begin) + megabyte * (size >> 20))

    return make


def spoilt(name: str, inner: str, change: Any) -> Make:
    """A sound folder with one file replaced by bytes, changed by a function of its bytes, or made by a `Make`."""

    def make(place: Path, good: Path) -> None:
        shutil.copytree(good / name, place)
        path = place / inner
        before = path.read_bytes() if path.is_file() else b""
        path.unlink(missing_ok=True)
        put(path, change(before) if getattr(change, "of_bytes", False) else change, good)

    return make


def of_bytes(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    change.of_bytes = True  # type: ignore[attr-defined]
    return change


def fields(**changes: Any) -> Callable[[bytes], bytes]:
    """JSON with fields changed, those of inner tables by `outer__inner`; None takes a field away."""

    def change(content: bytes) -> bytes:
        table = json.loads(content)
        for name, value in changes.items():
            *outer, last = name.split("__")
            inner = table
            for step in outer:
                inner = inner[step]
            if value is None:
                del inner[last]
            else:
                inner[last] = value
        return json.dumps(table).encode()

    return of_bytes(change)


def cut(share: float) -> Callable[[bytes], bytes]:
    return of_bytes(lambda content: content[: int(len(content) * share)])


DEEP = b"[" * 100_000 + b"]" * 100_000
LONG_NUMBER = b"9" * 10_000

COMMANDS = {
    "corpus": "prepare {bad} --tokenizer {good}/run/tokenizer --seq-len 32 --workers 1 --out out",
    "tokenizer": "prepare {good}/text.txt --tokenizer {bad} --seq-len 32 --workers 1 --out out",
    "rows": "pretrain {bad} --config {good}/config.json --steps 2 --device cpu --quiet --out out",
    "config": "pretrain {good}/data --config {bad} --device cpu --quiet --out out",
    "glue": "glue {good}/encoder --data {bad} --tasks cola --seeds 1 --parallel 1 --device cpu --quiet --out out",
    "squad": "squad {good}/encoder --train {bad} --dev {good}/squad.json --version 1 --seeds 1 --parallel 1 --device cpu --quiet --out out",
    "tags": "finetune {good}/encoder --train {bad} --dev {good}/words.conllu --task tagging --seeds 1 --parallel 1 --device cpu --quiet --out out",
    "table": "finetune {good}/encoder --train {bad} --seeds 1 --parallel 1 --device cpu --quiet --out out",
    "numbers": "finetune {good}/encoder --train {bad} --task regression --seeds 1 --parallel 1 --device cpu --quiet --out out",
    "run": "score {bad} text",
    "export": "score {bad} text",
    "encoder": "finetune {bad} --train {good}/train.csv --seeds 1 --parallel 1 --device cpu --quiet --out out",
    "tuned": "predict {bad} {good}/new.csv --device cpu --out out.csv",
    "predict": "predict {good}/tuned {bad} --device cpu --out out.csv",
    "context": "answer {good}/tuned --context @{bad} --question why",
    "pairs": "minimal-pairs {good}/export/discriminator {bad}",
    "report": "report {bad} --out out",
    "evaluate": "evaluate {bad} {good}/data",
    "prepared": "prepare {good}/text.txt --tokenizer {good}/run/tokenizer --seq-len 32 --workers 1 --out {bad}",
    "again": "pretrain {good}/data --config {good}/config.json --device cpu --quiet --out {bad}",
    "longer": "pretrain {good}/data --config {good}/longer.json --device cpu --quiet --out {bad}",
    "figures": "report {bad}",
    "exported": "export {bad} --out out",
}
TYPED = {0, 65, 66, 74, 78}


@dataclass(frozen=True)
class Case:
    """One bad input."""

    reader: str
    kind: str
    file: str
    content: Any
    code: int | None
    """None: any of TYPED."""
    said: tuple[str, ...] = ()


def _cases(reader: str, *rows: tuple[Any, ...]) -> list[Case]:
    return [Case(reader, kind, file, content, code, said) for kind, file, content, code, *said in rows]


def many_names(place: Path, _: Path) -> None:
    """Written when its test runs: made at import, every process that collects tests would make it."""
    place.write_text(json.dumps({f"n{i}": 0 for i in range(400_000)}))


TOO_LONG = "x" * 300
WHOLE = json.dumps(SQUAD)

CORPUS = _cases(
    "corpus",
    ("empty", "bad.txt", b"", 65, "bad.txt", "no text"),
    ("only blank lines", "bad.txt", b"\n \n\t\n" * 50, 65, "bad.txt", "no text"),
    ("NUL", "bad.txt", b"one\n\ntwo\x00\n", 65, "bad.txt:3: NUL", "--on-bad-text"),
    ("binary", "bad.txt", bytes(range(256)) * 50, 65, "bad.txt: is not text"),
    ("UTF-16", "bad.txt", "one\n\ntwo".encode("utf-16"), 65, "bad.txt: is UTF-16", "iconv"),
    ("Latin-1 late", "bad.txt", b"plain text\n\n" * 4000 + b"caf\xe9\n", 65, "bad.txt:8001: bytes that are not UTF-8 at byte 4 of the line"),
    ("one document", "bad.txt", b"only one line\n", 65, "fewer than two different documents", "--documents line"),
    ("100 MB without a line end", "bad.jsonl", line_of(100 << 20), 65, "bad.jsonl:1: a line of more than 16 MiB"),
    ("100 MB of NUL", "bad.txt", sparse(100 << 20), 65, "bad.txt: is not text"),
    ("not JSON", "bad.jsonl", b'{"text": "a"}\n{"text": \n', 65, "bad.jsonl:2: invalid JSON"),
    ("no text field", "bad.jsonl", b'{"body": "a"}\n', 65, "bad.jsonl:1: has no column 'text'", "body", "--text-field"),
    ("lone surrogate", "bad.jsonl", b'{"text": "a \\ud800 b"}\n', 65, "bad.jsonl:1: half a surrogate pair"),
    ("deep JSON", "bad.jsonl", DEEP + b"\n", 65, "bad.jsonl:1: invalid JSON", "nested too deeply"),
    ("number of 10,000 digits", "bad.jsonl", b'{"text": ' + LONG_NUMBER + b"}\n", 65, "bad.jsonl:1: invalid JSON", "thousands of digits"),
    ("five million lists", "bad.jsonl", b'{"text": "a", "x": [' + b"[]," * 5_000_000 + b"[]]}\n", 65, "bad.jsonl:1", "more than 1,000,000 values"),
    ("text is NaN", "bad.jsonl", b'{"text": NaN}\n', 65, "bad.jsonl:1: not a text: nan"),
    ("truncated gzip", "bad.txt.gz", gzip.compress(b"text\n\n" * 9000)[:-20], 65, "bad.txt.gz: is damaged"),
    ("truncated xz", "bad.txt.xz", lzma.compress(b"text\n\n" * 9000)[:-20], 65, "bad.txt.xz: is damaged"),
    ("damaged bz2", "bad.txt.bz2", bz2.compress(b"text\n\n" * 9000)[:30] + b"\xff" * 40, 65, "bad.txt.bz2: is damaged"),
    ("gzip in name only", "bad.txt.gz", b"plain text\n", 65, "bad.txt.gz: is damaged or not"),
    ("gzip bomb of NUL", "bad.txt.gz", bomb(b"a\n\n", b"\0", 200 << 20), 65, "bad.txt.gz: is not text"),
    ("gzip bomb in a line", "bad.jsonl.gz", bomb(b"", b"a", 200 << 20), 65, "bad.jsonl.gz:1: a line of more than 16 MiB"),
    ("gzip without the name", "bad.txt", gzip.compress(b"text"), 65, "bad.txt: is compressed, and its name does not say how"),
    ("pipe", "bad.txt", pipe, 65, "bad.txt: is not a regular file"),
    ("socket", "bad.txt", plug, 65, "bad.txt: is not a regular file"),
    ("/dev/zero", "bad.txt", link("/dev/zero"), 65, "bad.txt: is not a regular file"),
    ("/dev/full", "bad.txt", link("/dev/full"), 65, "bad.txt: is not a regular file"),
    ("links in a circle", "bad.txt", circle, 74, "bad.txt", "symbolic links"),
    ("link to nowhere", "bad.txt", link("nowhere"), 66, "bad.txt: no such file"),
    ("folder without text", "bad", folder, 65, "bad: holds no text"),
    ("nothing", "bad.txt", nothing, 66, "bad.txt: no such file"),
    ("pattern", "*.nothing", nothing, 66, "the pattern matches no file"),
    ("name too long", TOO_LONG, nothing, 66, "no such file"),
)  # fmt: skip
TOKENIZER = _cases(
    "tokenizer",
    ("empty vocabulary", "vocab.txt", b"", 65, "vocab.txt: is empty"),
    ("blank line", "vocab.txt", b"[PAD]\n[UNK]\n\n[CLS]\n[SEP]\n[MASK]\na\n", 65, "vocab.txt:3: is blank"),
    ("twice", "vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n", 65, "vocab.txt:8: token 'a' is on line 6"),
    ("no [MASK]", "vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n<mask>\na\n", 65, "has no [MASK]"),
    ("not UTF-8", "vocab.txt", b"[PAD]\n\xff\xfe\n", 65, "vocab.txt:2: not UTF-8"),
    ("1 GB", "vocab.txt", sparse(1 << 30), 65, "vocab.txt: is over 256 MiB"),
    ("pipe", "vocab.txt", pipe, 65, "vocab.txt: is not a regular file"),
    ("/dev/zero", "tokenizer.json", link("/dev/zero"), 65, "tokenizer.json: is not a regular file"),
    ("empty folder", "tok", folder, 66, "tok: holds neither tokenizer.json nor vocab.txt"),
    ("empty file", "tokenizer.json", b"", 65, "tokenizer.json: is not a tokenizer"),
    ("no model", "tokenizer.json", b"{}", 65, "tokenizer.json: is not a tokenizer"),
    ("deep JSON", "tokenizer.json", DEEP, 65, "tokenizer.json: is not a tokenizer"),
    ("cut", "tok", spoilt("run/tokenizer", "tokenizer.json", cut(0.5)), 65, "tokenizer.json: is not a tokenizer"),
    ("no special tokens", "tok", spoilt("run/tokenizer", "tokenizer.json", fields(model__vocab={"a": 0, "[UNK]": 1}, added_tokens=[])), 65, "has no [PAD]"),
    ("id of four billion", "tok", spoilt("run/tokenizer", "tokenizer.json", fields(model__vocab__the=4_000_000_000)), 65, "4000000000"),
    ("model of nothing", "tokenizer.json", b'{"model": {"type": "WordPiece"}}', 65, "tokenizer.json: is not a tokenizer"),
)  # fmt: skip
ROWS = _cases(
    "rows",
    ("no manifest", "data", folder, 66, "data: is not a folder of prepared rows", "electra prepare"),
    ("not finished", "data", spoilt("data", "manifest.json", lambda place, _: place.with_name("preparing.json").write_text("{}")), 65, "did not finish"),
    ("manifest cut", "data", spoilt("data", "manifest.json", cut(0.7)), 65, "manifest.json:", "not valid JSON", "delete the folder"),
    ("manifest deep", "data", spoilt("data", "manifest.json", DEEP), 65, "nested too deeply"),
    ("manifest is a pipe", "data", spoilt("data", "manifest.json", pipe), 65, "manifest.json: is not a regular file"),
    ("manifest of a gigabyte", "data", spoilt("data", "manifest.json", sparse(1 << 30)), 65, "manifest.json: is over 16 MiB"),
    ("unknown field", "data", spoilt("data", "manifest.json", fields(more=1)), 65, "unknown field 'more'"),
    ("padding is NaN", "data", spoilt("data", "manifest.json", fields(train__padding=float("nan"))), 65, "padding is not a share"),
    ("rows beyond the file", "data", spoilt("data", "manifest.json", fields(train__rows=10**15)), 65, "does not fit its rows"),
    ("rows of 30 digits", "data", spoilt("data", "manifest.json", fields(train__rows=10**30)), 65, "train: rows: a whole number of 100 bits", "delete the folder"),
    ("row file cut", "data", spoilt("data", "train.bin", cut(0.5)), 65, "train.bin: has", "expected"),
    ("documents cut", "data", spoilt("data", "train.documents", cut(0.5)), 65, "train.documents: has", "expected"),
    ("documents are a pipe", "data", spoilt("data", "documents.jsonl", pipe), 65, "documents.jsonl"),
    ("row file is a pipe", "data", spoilt("data", "train.bin", pipe), 65, "train.bin"),
    ("row file is gone", "data", spoilt("data", "valid.bin", nothing), 66, "valid.bin: no such file"),
    ("ids beyond the vocabulary", "data", spoilt("data", "train.bin", of_bytes(lambda content: b"\xff" * len(content))), 65, "train.bin: its content has changed"),
    ("reordered vocabulary", "data", spoilt("data", "tokenizer/tokenizer.json", of_bytes(lambda c: c.replace(b'"a"', b'"@"').replace(b'"b"', b'"a"').replace(b'"@"', b'"b"'))), 65, "is not the tokenizer that made these rows"),
    ("a file", "data", b"text", 66, "data"),
)  # fmt: skip
CONFIG = _cases(
    "config",
    ("YAML", "c.yaml", b"batch:\n  size: 8\n", 78, "c.yaml: is not valid JSON", "TOML in a .toml file"),
    ("unknown key", "c.json", b'{"bacth": {}}', 78, "unknown field 'bacth'", "Did you mean 'batch'?"),
    ("NaN", "c.json", b'{"optimizer": {"learning_rate": NaN}}', 78, "c.json", "learning_rate = nan"),
    ("Infinity", "c.json", b'{"optimizer": {"learning_rate": Infinity}}', 78, "c.json", "learning_rate = inf"),
    ("integer beyond floats", "c.json", b'{"optimizer": {"learning_rate": 1' + b"0" * 400 + b"}}", 78, "learning_rate", "bits"),
    ("integer of 4,000 digits", "c.json", b'{"batch": {"size": ' + b"8" * 4000 + b"}}", 78, "c.json"),
    ("number of 10,000 digits", "c.json", b'{"seed": ' + LONG_NUMBER + b"}", 78, "c.json", "thousands of digits"),
    ("deep JSON", "c.json", DEEP, 78, "c.json", "nested too deeply"),
    ("deep table", "c.json", b'{"batch": ' * 900 + b"1" + b"}" * 900, 78, "c.json"),
    ("list", "c.json", b"[1, 2]", 78, "c.json: is [1, 2], expected a JSON object", "[1, 2]"),
    ("cut", "c.json", b'{\n"batch": {\n"size": 8', 78, "c.json", "not valid JSON"),
    ("TOML cut", "c.toml", b"[batch\nsize = 8", 78, "c.toml", "not valid TOML"),
    ("TOML deep", "c.toml", b"a = " + DEEP, 78, "c.toml", "nested too deeply"),
    ("UTF-16", "c.json", '{"seed": 1}'.encode("utf-16"), 78, "c.json", "not UTF-8"),
    ("pipe", "c.json", pipe, 78, "c.json: is not a regular file"),
    ("/dev/zero", "c.json", link("/dev/zero"), 78, "c.json: is not a regular file"),
    ("links in a circle", "c.json", circle, 74, "c.json", "symbolic links"),
    ("folder", "c.json", folder, 78, "c.json: is a folder"),
    ("path through a file", "file/c.json", lambda place, _: place.parent.rmdir() or place.parent.write_text(""), 66, "part of its path is a file"),
    ("million names", "c.json", many_names, 78, "c.json: unknown field 'n0'"),
    ("name of a megabyte", "c.json", b'{"' + b"x" * (1 << 20) + b'": 0}', 78, "c.json: unknown field 'xxx"),
    ("escape codes in a name", "c.json", b'{"\\u001b[31m": 0}', 78, "unknown field"),
)  # fmt: skip
GLUE = _cases(
    "glue",
    ("no such file", "glue", folder, 66, "CoLA"),
    ("empty", "glue", spoilt("glue", "CoLA/train.tsv", b""), 65, "train.tsv: is empty"),
    ("too few fields", "glue", spoilt("glue", "CoLA/train.tsv", COLA.encode() + b"gj04\t1\n"), 65, "train.tsv:41: expected 4 fields"),
    ("unknown label", "glue", spoilt("glue", "CoLA/train.tsv", COLA.encode() + b"gj04\tyes\t\ta\n"), 65, "train.tsv:41: unknown label 'yes'"),
    ("commas", "glue", spoilt("glue", "CoLA/train.tsv", COLA.replace("\t", ",").encode()), 65, "train.tsv:1", "fields between tabs"),
    ("UTF-16", "glue", spoilt("glue", "CoLA/train.tsv", COLA.encode("utf-16")), 65, "train.tsv: is UTF-16"),
    ("Latin-1", "glue", spoilt("glue", "CoLA/dev.tsv", COLA.encode() + b"gj04\t1\t\tcaf\xe9\n"), 65, "dev.tsv:41: not UTF-8"),
    ("NUL", "glue", spoilt("glue", "CoLA/dev.tsv", COLA.encode() + b"gj04\t1\t\ta\0b\n"), 65, "dev.tsv:41: NUL"),
    ("pipe", "glue", spoilt("glue", "CoLA/train.tsv", pipe), 66, "train.tsv: no such file"),
)  # fmt: skip
SQUADS = _cases(
    "squad",
    ("empty", "s.json", b"", 65, "s.json: is not valid JSON"),
    ("cut", "s.json", WHOLE[:200].encode(), 65, "s.json: is not valid JSON"),
    ("JSON lines", "s.json", (WHOLE + "\n" + WHOLE).encode(), 65, "s.json", "line 2"),
    ("no data", "s.json", b'{"dta": []}', 65, "s.json: is not SQuAD", "Did you mean 'dta'?"),
    ("empty context", "s.json", WHOLE.replace("the red apple was in the box", " ").encode(), 65, "data[0].paragraphs[0].context: is blank"),
    ("start is words", "s.json", WHOLE.replace('"answer_start": 8', '"answer_start": "eight"').encode(), 65, "answers[0].answer_start: expected a whole number"),
    ("start is NaN", "s.json", WHOLE.replace('"answer_start": 8', '"answer_start": NaN').encode(), 65, "answer_start: expected a whole number"),
    ("no answers", "s.json", WHOLE.replace('[{"text": "apple", "answer_start": 8}]', "[]").encode(), 65, "qas[0]: has no answer", "--version 2"),
    ("half a surrogate", "s.json", WHOLE.replace("what was red", "what \\ud800").encode(), 65, "qas[0].question: half a surrogate pair"),
    ("deep", "s.json", DEEP, 65, "s.json", "nested too deeply"),
    ("deep field", "s.json", WHOLE.replace('"what was red"', "[" * 900 + "]" * 900).encode(), 65, "qas[0].question: expected a string"),
    ("pipe", "s.json", pipe, 65, "s.json: is not a regular file"),
)  # fmt: skip
TAGS = _cases(
    "tags",
    ("empty treebank", "t.conllu", b"", 65, "t.conllu: holds no sentences"),
    ("cut", "t.conllu", TREEBANK.encode()[:-5], 65, "t.conllu:8: expected 10 fields"),
    ("spaces for tabs", "t.conllu", TREEBANK.replace("\t", " ").encode(), 65, "t.conllu:1: expected 10 fields", "no tabs"),
    ("wrong number", "t.conllu", (WORD.format(2, "old", "ADJ") + "\n").encode(), 65, "t.conllu:1: word number '2': expected 1"),
    ("number of 10,000 digits", "t.conllu", (WORD.format("9" * 10_000, "old", "ADJ") + "\n").encode(), 65, "t.conllu:1: word number"),
    ("Latin-1", "t.conllu", TREEBANK.replace("box", "bo\xdf").encode("latin-1"), 65, "t.conllu:5: not UTF-8"),
    ("NUL", "t.conllu", TREEBANK.replace("box", "bo\0").encode(), 65, "t.conllu:5", "NUL"),
    ("pipe", "t.conllu", pipe, 65, "t.conllu: is not a regular file"),
    ("NUL in columns", "t.conll", b"a\tX\n\0\tX\n", 65, "t.conll:2", "NUL"),
    ("one column", "t.conll", b"a\nb\n", 65, "t.conll:1: has 1 column"),
    ("ragged", "t.conll", b"a\tX\nb\n", 65, "t.conll:2: expected 2 columns", "as line 1 has, found 1"),
    ("pipe", "t.conll", pipe, 65, "t.conll: is not a regular file"),
)  # fmt: skip
TABLES = _cases(
    "table",
    ("empty", "t.csv", b"", 65, "t.csv: is empty"),
    ("open quote", "t.csv", b'text,label\n"a,1\nb,0\n', 65, "t.csv:2: the row is not CSV"),
    ("ragged", "t.csv", b"text,label\na,b,1\n", 65, "t.csv:2: expected 2 fields"),
    ("one label", "t.csv", b"text,label\na,1\nb,1\nc,1\n", 65, "all rows have the label '1'"),
    ("UTF-16", "t.csv", "text,label\na,1\n".encode("utf-16"), 65, "t.csv: is UTF-16"),
    ("Excel", "t.xlsx", b"PK\x03\x04", 65, "t.xlsx", "expected .txt"),
    ("100 MB without a line end", "t.csv", line_of(100 << 20), 65, "t.csv:1: a line of more than 16 MiB"),
    ("deep", "t.jsonl", DEEP, 65, "t.jsonl:1", "nested too deeply"),
    ("five million lists", "t.jsonl", b'{"text": [' + b"[]," * 5_000_000 + b"[]]}\n", 65, "t.jsonl:1", "more than 1,000,000 values"),
    ("half a surrogate in a key", "t.jsonl", b'{"text": "a", "label": 1, "\\ud800": 1}\n' * 2, 65, "t.jsonl:1: key", "surrogate"),
    ("half a surrogate in a text", "t.jsonl", b'{"text": "\\ud800", "label": 1}\n' * 2, 65, "t.jsonl:1: column 'text'", "surrogate"),
    ("pipe", "t.csv", pipe, 65, "t.csv: is not a regular file"),
    ("/dev/full", "t.csv", link("/dev/full"), 65, "t.csv: is not a regular file"),
)  # fmt: skip
NUMBERS = _cases(
    "numbers",
    ("NaN", "t.jsonl", b'{"text": "a", "label": 1}\n{"text": "b", "label": NaN}\n', 65, "t.jsonl:2", "finite number"),
    ("integer of 4,000 digits", "t.jsonl", b'{"text": "a", "label": ' + b"8" * 4000 + b"}\n", 65, "t.jsonl:1", "expected a finite number"),
)  # fmt: skip
RUN = _cases(
    "run",
    ("config cut", "run", spoilt("run", "config.json", cut(0.5)), 78, "config.json:", "not valid JSON"),
    ("environment without an id", "run", spoilt("run", "environment.json", b"{}"), 65, "environment.json: has no run_id"),
    ("environment is a pipe", "run", spoilt("run", "environment.json", pipe), 78, "environment.json: is not a regular file"),
    ("tokenizer gone", "run", spoilt("run", "tokenizer/tokenizer.json", b"{}"), 65, "tokenizer.json: is not a tokenizer"),
    ("a file", "run", b"text", 66, "run: is a file"),
    ("config of a shape that cannot be", "run", spoilt("run", "config.json", fields(model__hidden_size=33)), 78, "config.json", "multiple"),
    ("config of a giant", "run", spoilt("run", "config.json", fields(model__intermediate_size=1 << 26)), 65, "other settings than config.json", "model.intermediate_size: 64 -> 67108864"),
    ("config of another shape", "run", spoilt("run", "config.json", fields(model__intermediate_size=72)), 65, "other settings than config.json"),
)  # fmt: skip
EVALUATE = _cases(
    "evaluate",
    ("environment without data", "run", spoilt("run", "environment.json", fields(data=None)), 65, "environment.json"),
)  # fmt: skip
ONE = "export/discriminator"
EXPORT = _cases(
    "export",
    ("weights cut", "net", spoilt(ONE, "model.safetensors", cut(0.5)), 65, "model.safetensors: not a readable safetensors file"),
    ("weights empty", "net", spoilt(ONE, "model.safetensors", b""), 65, "model.safetensors: not a readable safetensors file"),
    ("weights are a pipe", "net", spoilt(ONE, "model.safetensors", pipe), 65, "model.safetensors: is not a regular file"),
    ("no weights", "net", spoilt(ONE, "model.safetensors", nothing), 66, "model.safetensors: no such file"),
    ("not an ELECTRA", "net", spoilt(ONE, "config.json", fields(model_type="t5")), 65, "describes 't5'"),
    ("architectures is a number", "net", spoilt(ONE, "config.json", fields(architectures=5)), 65, "expected one of ElectraForPreTraining"),
    ("hidden size of a trillion", "net", spoilt(ONE, "config.json", fields(hidden_size=2**40)), 65, "no network can have that shape"),
    ("a billion layers", "net", spoilt(ONE, "config.json", fields(num_hidden_layers=10**9)), 65, "num_hidden_layers 1,000,000,000"),
    ("hidden size is a text", "net", spoilt(ONE, "config.json", fields(hidden_size="32")), 65, "hidden_size = '32': expected int"),
    ("size of 30 digits", "net", spoilt(ONE, "config.json", fields(vocab_size=10**30)), 65, "config.json"),
    ("config is a list", "net", spoilt(ONE, "config.json", b"[]"), 78, "config.json: is [], expected a JSON object"),
    ("no tokenizer", "net", spoilt(ONE, "tokenizer.json", lambda place, _: place.with_name("vocab.txt").unlink()), 66, "holds neither tokenizer.json nor vocab.txt"),
)  # fmt: skip
ENCODER = _cases(
    "encoder",
    ("another tensor's name", "enc", spoilt("encoder", "model.safetensors", of_bytes(lambda c: c.replace(b"LayerNorm.bias", b"LayerNorm.biaz", 1))), 65, "tensors do not match its config.json"),
    ("whole numbers for weights", "enc", spoilt("encoder", "model.safetensors", of_bytes(lambda c: c.replace(b'"F32"', b'"I32"'))), 65, "the floating-point tensors do not match its config.json"),
)  # fmt: skip
TUNED = _cases(
    "tuned",
    ("no such folder", "tuned", nothing, 66, "tuned: no such folder"),
    ("not JSON", "tuned", spoilt("tuned", "electra_task.json", b"{"), 78, "electra_task.json", "not valid JSON"),
    ("another format", "tuned", spoilt("tuned", "electra_task.json", fields(format=2)), 65, "format 2"),
    ("kind is a list", "tuned", spoilt("tuned", "electra_task.json", fields(task__kind=[])), 65, "unknown kind of task []"),
    ("labels are a number", "tuned", spoilt("tuned", "electra_task.json", fields(task__labels=7)), 65, "labels = 7: expected a list"),
    ("columns are a list", "tuned", spoilt("tuned", "electra_task.json", fields(columns=[1])), 65, "columns: expected a table of fields, found [1]"),
    ("length of 30 digits", "tuned", spoilt("tuned", "electra_task.json", fields(max_length=10**30)), 65, "max_length"),
    ("changed weights", "tuned", spoilt("tuned", "head.safetensors", of_bytes(lambda c: c[:-1] + bytes([c[-1] ^ 1]))), 65, "not those that were exported"),
    ("a file elsewhere", "tuned", spoilt("tuned", "electra_task.json", fields(files={"model.safetensors": "0", "../../etc/passwd": "0"})), 65, "../../etc/passwd"),
)  # fmt: skip
PREDICT = _cases(
    "predict",
    ("empty", "new.csv", b"", 65, "new.csv: is empty"),
    ("no such column", "new.csv", b"id,body\n1,a\n", 65, "new.csv: has no column 'text'"),
    ("blank text", "new.csv", b"id,text\n1,ok\n2, \n", 65, "new.csv:3"),
    ("pipe", "new.csv", pipe, 65, "new.csv: is not a regular file"),
    ("NUL", "new.csv", b"text\na\0b\n", 65, "new.csv:2: NUL"),
)  # fmt: skip
CONTEXT = _cases(
    "context",
    ("pipe", "page.txt", pipe, 65, "page.txt: is not a regular file"),
    ("blank", "page.txt", b" \n", 65, "holds no text"),
    ("binary", "page.txt", b"\xff\xfe\0", 65, "page.txt: is not UTF-8"),
    ("/dev/zero", "page.txt", link("/dev/zero"), 65, "page.txt: is not a regular file"),
)  # fmt: skip
PAIRS = _cases(
    "pairs",
    ("not JSON", "p", spoilt("pairs", "p.jsonl", b'{"sentence_good"\n'), 65, "p.jsonl:1: is not valid JSON"),
    ("number of 10,000 digits", "p", spoilt("pairs", "p.jsonl", LONG_NUMBER + b"\n"), 65, "p.jsonl:1", "thousands of digits"),
    ("half a surrogate", "p", spoilt("pairs", "p.jsonl", b'{"sentence_good": "\\ud800", "sentence_bad": "a"}\n'), 65, "p.jsonl:1 holds half"),
    ("pipe", "p", spoilt("pairs", "p.jsonl", pipe), 65, "p.jsonl: is not a regular file"),
)  # fmt: skip
REPORT = _cases(
    "report",
    ("no metrics", "r", folder, 66, "metrics.jsonl: not there"),
    ("empty metrics", "r", spoilt("run", "metrics.jsonl", b""), 65, "metrics.jsonl: holds no JSON object"),
    ("metrics without a step", "r", spoilt("run", "metrics.jsonl", b'{"loss": 1}\n' + DEEP), 65, "metrics.jsonl: holds no JSON object"),
    ("metrics are a pipe", "r", spoilt("run", "metrics.jsonl", pipe), 65, "metrics.jsonl: is not a regular file"),
)  # fmt: skip
BAD = [
    case
    for group in (CORPUS, TOKENIZER, ROWS, CONFIG, GLUE, SQUADS, TAGS, TABLES, NUMBERS, RUN, EVALUATE, EXPORT, ENCODER, TUNED, PREDICT, CONTEXT, PAIRS, REPORT)
    for case in group
]  # fmt: skip


CANARY = "canary"
"""Made in the working folder by code that runs."""


class Runs:
    """An object whose unpickling touches the canary."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (CANARY,)


def torch_file() -> bytes:
    """A .pt file as torch writes it, its pickle replaced."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"a": Runs()}))
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return made.getvalue()


def object_array() -> bytes:
    made = io.BytesIO()
    np.save(made, np.array([Runs()], dtype=object), allow_pickle=True)
    return made.getvalue()


PICKLES = {"pickle": pickle.dumps({"a": Runs()}), "torch": torch_file(), "numpy": object_array()}
STEP = "checkpoints/step-00000004"
PLACES = (
    ("export", ONE, "model.safetensors"), ("export", ONE, "config.json"), ("export", ONE, "tokenizer.json"), ("export", ONE, "tokenizer_config.json"),
    ("run", "run", "config.json"), ("run", "run", "environment.json"), ("run", "run", "tokenizer/tokenizer.json"), ("run", "run", f"{STEP}/manifest.json"),
    ("run", "run", f"{STEP}/state.json"), ("run", "run", f"{STEP}/weights.safetensors"), ("run", "run", f"{STEP}/.metadata"), ("run", "run", "rng_state.pth"),
    ("rows", "data", "manifest.json"), ("rows", "data", "train.bin"), ("tuned", "tuned", "electra_task.json"), ("tuned", "tuned", "head.safetensors"),
    ("tuned", "tuned", "labels.pkl"), ("glue", "glue", "CoLA/train.tsv"), ("pairs", "pairs", "p.jsonl"), ("report", "run", "metrics.jsonl"),
    ("report", "run", "examples.jsonl"), ("corpus", None, "text.npy"), ("corpus", None, "text.txt"), ("tokenizer", None, "vocab.txt"),
    ("tokenizer", None, "tokenizer.json"), ("config", None, "c.json"), ("squad", None, "s.json"), ("tags", None, "t.conllu"), ("table", None, "t.csv"),
    ("table", None, "t.pkl"), ("predict", None, "new.jsonl"), ("context", None, "page.pt"),
)  # fmt: skip
"""(reader, sound folder, file in it that is replaced or added), or (reader, None, file)."""


def without_safetensors(place: Path, good: Path) -> None:
    """Only a pickle of weights, under the name that transformers looks for next."""
    spoilt(ONE, "pytorch_model.bin", torch_file())(place, good)
    (place / "model.safetensors").unlink()


def pickles() -> Iterator[Case]:
    """Each place with each kind of pickle; in the short form with one of them in turn."""
    for number, (reader, name, inner) in enumerate(PLACES):
        for kind in PICKLES if LONG else [list(PICKLES)[number % 3]]:
            make = PICKLES[kind] if name is None else spoilt(name, inner, PICKLES[kind])
            yield Case(reader, f"{kind} as {inner}", inner if name is None else "bad", make, None)
    yield Case(
        "export",
        "pickled weights alone",
        "bad",
        without_safetensors,
        66,
        ("has pytorch_model.bin and no model.safetensors",),
    )


def linked(name: str, inner: str) -> Make:
    """A sound folder in which one file is a link to a file outside, `../outside/kept`."""
    return spoilt(
        name, inner, lambda place, _: place.symlink_to(place.parents[len(Path(inner).parts)] / "outside" / "kept")
    )


def linked_pictures(place: Path, good: Path) -> None:
    shutil.copytree(good / "run", place)
    shutil.rmtree(place / "figures", ignore_errors=True)
    (place / "figures").symlink_to(place.parent / "outside")


ROW_FILES = (
    "train.bin",
    "valid.bin",
    "train.documents",
    "documents.jsonl",
    "manifest.json",
    "tokenizer/tokenizer.json",
    "tokenizer/vocab.txt",
)
ELSEWHERE = [
    *(Case("prepared", f"a link: {name}", "bad", linked("data", name), None) for name in ROW_FILES),
    *(Case("longer", f"a link: {name}", "bad", linked("run", name), None) for name in ("metrics.jsonl", "examples.jsonl", "log.txt", ".lock", "report.html")),
    Case("figures", "a link: pictures", "bad", linked_pictures, None),
    Case("tuned", "files elsewhere", "bad", spoilt("tuned", "electra_task.json", fields(files={"model.safetensors": "0", "../../outside/kept": "0", "/etc/hostname": "0"})), None),
    Case("exported", "a link: a tokenizer's", "bad", linked("run", "tokenizer/more.txt"), None),
]  # fmt: skip


def header(table: Any, *, data: bytes = b"", length: int | None = None) -> bytes:
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _tensor(**changes: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


TENSORS = [
    Case("export", kind, "bad", spoilt(ONE, "model.safetensors", content), 65, ("num_hidden_layers" if kind == "name twice" else "model.safetensors",))
    for kind, content in {
        "length beyond the file": header(_tensor(), data=b"\0" * 8, length=2**63 - 1),
        "length of all bits": header(_tensor(), data=b"\0" * 8, length=2**64 - 1),
        "header of 100 MB": header(b" " * (100 << 20)),
        "shape of 2**62": header(_tensor(shape=[2**31, 2**31])),
        "negative offsets": header(_tensor(data_offsets=[-8, 0]), data=b"\0" * 8),
        "offsets beyond": header(_tensor(data_offsets=[0, 2**40]), data=b"\0" * 8),
        "overlap": header({**_tensor(), "b": _tensor()["a"]}, data=b"\0" * 8),
        "hole": header(_tensor(), data=b"\0" * 64),
        "unknown type": header(_tensor(dtype="O"), data=b"\0" * 8),
        "name twice": header(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', data=b"\0" * 8),
        "deep": header(b"[" * 100_000),
        "no table": header([1]),
        "not UTF-8": header(b'{"\xff": 0}'),
    }.items()
]  # fmt: skip
BOMBS = _cases(
    "corpus",
    ("half a gigabyte of NUL", "a.txt.gz", bomb(b"a\n\n", b"\0", 500 << 20), 65),
    ("half a gigabyte of lists", "b.jsonl.gz", bomb(b"", b"[", 500 << 20), 65),
    ("a giant in memory alone", "c.jsonl", b'{"text": "a", "x": [' + b'{"a":1},' * 2_000_000 + b"0]}\n", 65),
)


def with_a_hole(name: str, *, fits: bool) -> Make:
    """A run of which one file of the only checkpoint has 700 MB that take no room on the disk; `fits`: with a manifest of that size."""

    def make(place: Path, good: Path) -> None:
        spoilt("run", f"{STEP}/{name}", sparse(700 << 20))(place, good)
        for other in {*(place / "checkpoints").iterdir()} - {place / STEP}:
            shutil.rmtree(other)
        if fits:
            path = place / STEP / "manifest.json"
            body = json.loads(path.read_bytes())
            del body["sha256"]
            body["files"][name]["bytes"] = 700 << 20
            path.write_bytes(sealed(body))

    return make


HOLES = [
    Case(reader, f"{name}{', sealed' * fits}", "bad", with_a_hole(name, fits=fits), 65, (name,))
    for reader in ("run", "again")
    for name in ("weights.safetensors", "optimizer.safetensors", "state.json", "manifest.json")
    for fits in ((False, True) if name != "manifest.json" and (LONG or reader == "again") else (False,))
]
