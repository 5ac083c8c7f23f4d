"""Each reader of a user's bytes takes CPU time in proportion to their number, whatever they are.

ELECTRA_RELIABILITY=long tries every content up to 4 MB; otherwise a growth is followed until a reading takes 0.05 s.
"""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.growth import STEEPEST, steepest

from electra_trainer.data.corpus import CorpusReport, Reading, documents
from electra_trainer.data.survey import survey
from electra_trainer.data.tokenizer import from_json, read_vocab
from electra_trainer.errors import ElectraError
from electra_trainer.files import tables
from electra_trainer.files.reading import parse_json
from electra_trainer.files.rows import read_rows
from electra_trainer.settings import records
from electra_trainer.tasks.glue_tasks import ROWS, parse
from electra_trainer.tasks.own_files import OwnRows, OwnTask, RegressionTask
from electra_trainer.tasks.squad_files import read_squad
from electra_trainer.tasks.tagged_files import read_tagged, word_places

LONG = os.environ.get("ELECTRA_RELIABILITY") == "long"
MOST, SECONDS = 1 << 22, 60.0 if LONG else 0.05
Make = Callable[[int], str]


def repeated(unit: str, *, before: str = "", after: str = "") -> Make:
    return lambda size: before + unit * (size // len(unit)) + after


def numbered(line: str, *, before: str = "", after: str = "", between: str = "") -> Make:
    """`line` with a number in place of {}, as often as fits."""
    return lambda size: (
        before + between.join(line.replace("{}", str(n)) for n in range(size // (len(line) + 5))) + after
    )


def squad(size: int) -> str:
    paragraph = {"context": "a " * (size // 3), "qas": [{"id": "1", "question": "a?", "answers": []}]}
    paragraph["qas"] = [
        {"id": "1", "question": "a?", "answers": [{"text": "a " * (size // 6) + "a", "answer_start": 1}]}
    ]
    return json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": [paragraph]}]})


LINES: dict[str, Make] = {
    "one line of =": repeated("=", after="x"), "one line of [[": repeated("[["), "one line of {{": repeated("{{"),
    "spaces": repeated(" ", before="[", after="x"), "quotes": repeated('"'), "commas": repeated(","),
    "semicolons and quotes": repeated('";'), "tabs": repeated("\t"), "#": repeated("#"), "line ends": repeated("\n"),
    "carriage returns": repeated("a\r"), "controls": repeated("\x0b\x1c"), "emoji": repeated("🎉 "),
    "one word": repeated("กา"), "lines": numbered("word {} O\n"), "words": repeated("Ab. "), "tags": repeated("<b>&#1"),
    "accents": repeated("e\u0301"), "addresses": repeated("www."), "columns": numbered("c{},"),
    "rows": numbered("text {},1.{}\n", before="text,label\n"), "quoted rows": numbered('"a ""b"" {}",x\n', before="text,label\n"),
    "classes": numbered("some text {}\tc{}\n", before="text\tlabel\n"),
    "numbers": numbered("some text {};1.00{}\n", before="text;label\n"),
    "lists": numbered("some text {};[{}, 1]\n", before="text;label\n"),
    "brackets": numbered("some text {};[ \n", before="text;label\n"),
    "one bracket": repeated(" ", before="text\tlabel\na b c\t[", after="'\nd e f\tx\n"),
    "words and tags": numbered("w{}\tB-PER\n"), "sentences": numbered("# text = a\n1\ta{}\t_\tNOUN\t_\t_\t0\t_\t_\t_\n\n"),
}  # fmt: skip
JSON: dict[str, Make] = {
    "keys": numbered('{"text": "a", "k{}": 1}\n'), "one object": numbered('"k{}": 1', before="{", after="}\n", between=", "),
    "open brackets": repeated("["), "nested": repeated('{"a":'), "strings": repeated('"a', before='{"text": "'),
    "escapes": repeated("\\u00e9", before='{"text": "', after='"}\n'), "texts": numbered('{"text": "a {}", "label": "b"}\n'),
    "spans": numbered("[{}, {}, \"X\"]", before='{"text": "' + "a " * 1000 + '", "label": [', after="]}\n", between=", "),
    "words and spans": lambda size: json.dumps(
        {"text": "a " * (size // 20), "label": [[2 * n, 2 * n + 1, "X"] for n in range(size // 20)]}
    ) + "\n",
    "tokens": lambda size: json.dumps({"tokens": ["a"] * (size // 10), "tags": ["B-X"] * (size // 10)}) + "\n",
}  # fmt: skip
VOCABULARIES: dict[str, Make] = {
    "words": numbered("w{}\n"),
    "continuations": numbered("##w{}\n"),
    "one word": repeated("a"),
}


def corpus(path: Path, **how: Any) -> None:
    for document in documents([path], report=CorpusReport(), reading=Reading(**how)):
        assert document


def own(path: Path, source: type[OwnRows]) -> None:
    source(train=path).load()


def table(path: Path) -> None:
    found = read_rows(path)
    for column in found.columns[:3]:
        for read in (tables.labels, tables.numbers, tables.texts, partial(tables.label_lists, separator=",")):
            with suppress(ElectraError):
                read(found, column)


READERS: dict[str, tuple[str, Callable[[Path], object], dict[str, Make], str]] = {
    "survey": (
        ".txt", lambda path: survey([path]).page(), LINES,
        "one line of =; one line of [[; one line of {{; tags; emoji; controls; accents; one word; addresses",
    ),
    "text": (".txt", corpus, LINES, "words; one word"),
    "text by lines": (".txt", partial(corpus, boundary="line"), LINES, "spaces; line ends; carriage returns; controls"),
    "text .csv": (".csv", corpus, LINES, "quotes; commas; columns; quoted rows"),
    "text .jsonl": (".jsonl", corpus, JSON, "keys; open brackets; escapes"),
    "table .csv": (".csv", table, LINES, "commas; columns; semicolons and quotes; quotes; spaces; rows"),
    "table .tsv": (".tsv", table, LINES, "tabs; one bracket"),
    "table .jsonl": (".jsonl", table, JSON, "keys; one object; nested; texts"),
    "classes .csv": (".csv", partial(own, source=OwnTask), LINES, "rows; numbers; lists; brackets; columns"),
    "classes .tsv": (".tsv", partial(own, source=OwnTask), LINES, "classes; one bracket"),
    "numbers .csv": (".csv", partial(own, source=RegressionTask), LINES, "rows; numbers"),
    "classes .jsonl": (".jsonl", partial(own, source=OwnTask), JSON, "texts; keys"),
    "tags": (".txt", read_tagged, LINES, "words and tags; #; lines; spaces; tabs"),
    "running text": (".txt", partial(read_tagged, labelled=False), LINES, "words; one word; controls"),
    "treebank": (".conllu", read_tagged, LINES, "sentences; #"),
    "tags .jsonl": (".jsonl", read_tagged, JSON, "spans; words and spans; tokens; keys"),
    "words of a text": (".txt", lambda path: word_places(path.read_text()), LINES, "words; one word; quotes"),
    "SQuAD": (".json", partial(read_squad, version=1), JSON | {"answers": squad}, "answers; strings; nested"),
    "GLUE": (
        ".tsv", lambda path: parse(path.read_bytes(), ROWS["rte"].layout, path=path, labelled=True), LINES, "tabs; classes",
    ),
    "JSON": (
        ".json", lambda path: parse_json(path.read_bytes(), where="x", remedy="y"), JSON,
        "one object; open brackets; nested; escapes",
    ),
    "settings": (".json", records.read_table, JSON, "one object; nested"),
    "vocabulary": (
        ".txt", lambda path: read_vocab(path.read_bytes(), where="x"), VOCABULARIES | LINES, "words; continuations; tabs",
    ),
    "tokenizer": (".json", lambda path: from_json(path.read_bytes(), where="x"), JSON, "one object; nested; strings"),
}  # fmt: skip
"""Suffix, what reads the file, contents, and those of them that the short form tries."""


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_is_linear(reader: str, tmp_path: Path) -> None:
    suffix, read, makes, few = READERS[reader]
    for name in makes if LONG else few.split("; "):

        def make(size: int, content: Make = makes[name]) -> Callable[[], None]:
            path = tmp_path / f"{size}{suffix}"
            path.write_text(content(size), encoding="utf-8", newline="")

            def run() -> None:
                with suppress(ElectraError):
                    read(path)

            return run

        growth, size = steepest(make, most=MOST, seconds=SECONDS)
        assert growth <= STEEPEST, f"{name}: {size:,} bytes take {growth:.1f} times the time of half of them"
