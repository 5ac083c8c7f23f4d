"""A line that is not UTF-8: the remedy that is named repairs the file, and damages no other line of it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from electra_trainer.data.corpus import CorpusReport, Reading, documents
from electra_trainer.errors import DataError
from electra_trainer.files.rows import read_rows

PLAIN, WIDE, OLD = "all is plain", "un café là-bas", "déjà vu"


def corpus(path: Path) -> object:
    return [*documents([path], report=CorpusReport(), reading=Reading(boundary="line"))]


@pytest.fixture(params=[(corpus, "a.txt"), (corpus, "a.jsonl"), (corpus, "a.csv"), (read_rows, "a.csv"), (read_rows, "a.tsv")])  # fmt: skip
def reader(request: pytest.FixtureRequest) -> tuple[Callable[[Path], object], str]:
    return request.param  # type: ignore[no-any-return]


def content(name: str, lines: list[str]) -> tuple[bytes, bytes]:
    """The file with lines of `OLD` in CP1252, and all in UTF-8."""
    form = {".txt": "{}", ".jsonl": '{{"text": "{}"}}', ".csv": "{},x", ".tsv": "{}\tx"}[
        name[-4:].replace("sonl", ".jsonl")
    ]
    head = {".csv": ["text,label"], ".tsv": ["text\tlabel"]}.get(name[-4:], [])
    both = [*head, *map(form.format, lines)]
    return tuple(  # type: ignore[return-value]
        b"".join(line.encode("cp1252" if OLD in line and is_old else "utf-8") + b"\n" for line in both)
        for is_old in (True, False)
    )


MIXES = {  # lines, words of the message, whether the whole file may be converted
    "one old line after others": ([WIDE] * 60 + [OLD], "1 line is not UTF-8, and others hold", False),
    "an old line before all others": ([OLD, *[PLAIN] * 30, WIDE], "1 line is not UTF-8, and others hold", False),
    "some old lines": ([PLAIN, OLD, PLAIN, OLD, *[PLAIN] * 20, WIDE], "2 lines are not UTF-8, and others hold", False),
    "old among plain lines": ([*[PLAIN] * 20, OLD, OLD], "Save it as UTF-8 text: ", True),
}


@pytest.mark.parametrize(("lines", "words", "whole"), MIXES.values(), ids=[*MIXES])
def test_the_remedy_works(
    tmp_path: Path, reader: tuple[Callable[[Path], object], str], lines: list[str], words: str, whole: bool
) -> None:
    read, name = reader
    path, (old, wanted) = tmp_path / name, content(name, lines)
    path.write_bytes(old)
    with pytest.raises(DataError) as refused:
        read(path)
    said = str(refused.value)
    place = 1 + lines.index(OLD) + (path.suffix in (".csv", ".tsv"))
    assert said.startswith(f"{path}:{place}: ") and words in said and ("iconv" in said) == whole
    assert ("--on-bad-text skip" in said) == (path.suffix in (".txt", ".jsonl"))
    commands = re.findall(r"`([^`]+)`", said)
    command = commands[0].replace("python ", f"{sys.executable} ", 1)
    subprocess.run(["bash", "-c", command], check=True, capture_output=True, timeout=60)
    assert (tmp_path / name.replace("a.", "a-new.")).read_bytes() == wanted


def test_many_lines_of_both(tmp_path: Path) -> None:
    """Refused before any line is read; a file of another encoding alone is converted whole."""
    for lines, whole in (([WIDE, OLD, PLAIN] * 30, False), ([OLD, PLAIN] * 30, True)):
        (tmp_path / "a.txt").write_bytes(content("a.txt", lines)[0])
        with pytest.raises(DataError, match=r"not UTF-8 in many|another encoding in many") as refused:
            corpus(tmp_path / "a.txt")
        assert ("iconv" in str(refused.value)) == whole and ("python -c" in str(refused.value)) != whole


def test_a_compressed_file_is_unpacked_first(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(content("a.txt", [WIDE] * 9 + [OLD])[0]))
    with pytest.raises(DataError, match=r"a.txt.gz:10: .*Unpack it first: `gzip -dk "):
        corpus(tmp_path / "a.txt.gz")


def test_the_beginning_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file is not read again to its end."""
    (tmp_path / "a.txt").write_bytes(content("a.txt", [WIDE] + [PLAIN] * 60 + [OLD] * 2)[0])
    monkeypatch.setattr("electra_trainer.files.reading.MOST_LINE", 100)
    with pytest.raises(DataError, match="1 line is not UTF-8 in the first 0 MiB, and others"):
        corpus(tmp_path / "a.txt")
