"""A line that is not UTF-8: the remedy that is named repairs the file, and damages no other line of it."""

import gzip
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
FORMS = {".txt": ("", "{}"), ".jsonl": ("", '{{"text": "{}"}}'), ".csv": ("text,label", "{},x"), ".tsv": ("text\tlabel", "{}\tx")}  # fmt: skip


def corpus(path: Path) -> object:
    return [*documents([path], report=CorpusReport(), reading=Reading(boundary="line"))]


def content(ending: str, lines: list[str]) -> tuple[bytes, bytes]:
    """The file with lines of `OLD` in CP1252, and all in UTF-8."""
    head, form = FORMS[ending]
    rows = [*[head] * bool(head), *map(form.format, lines)]
    old = [row.encode("cp1252" if OLD in row else "utf-8") for row in rows]
    return b"".join(row + b"\n" for row in old), "".join(row + "\n" for row in rows).encode()


@pytest.mark.parametrize(
    "lines",
    [[WIDE] * 60 + [OLD], [OLD, *[PLAIN] * 30, WIDE], [PLAIN, OLD] * 2 + [PLAIN] * 20 + [WIDE], [*[PLAIN] * 20, OLD]],
    ids=["one old line after others", "before all others", "some old lines", "old among plain lines"],
)
@pytest.mark.parametrize(
    ("read", "ending"), [(corpus, ".txt"), (corpus, ".jsonl"), (corpus, ".csv"), (read_rows, ".csv"), (read_rows, ".tsv")]
)  # fmt: skip
def test_the_remedy_works(tmp_path: Path, read: Callable[[Path], object], ending: str, lines: list[str]) -> None:
    path, (old, wanted) = tmp_path / f"a{ending}", content(ending, lines)
    path.write_bytes(old)
    with pytest.raises(DataError) as refused:
        read(path)
    said = str(refused.value)
    place = 1 + lines.index(OLD) + (ending in (".csv", ".tsv"))
    assert said.startswith(f"{path}:{place}: ") and ("--on-bad-text skip" in said) == (ending in (".txt", ".jsonl"))
    command = re.findall(r"`([^`]+)`", said)[0].replace("python ", f"{sys.executable} ", 1)
    subprocess.run(["bash", "-c", command], check=True, capture_output=True, timeout=60)
    assert (tmp_path / f"a-new{ending}").read_bytes() == wanted


def test_many_lines(tmp_path: Path) -> None:
    """Refused before any line is read; a compressed file is unpacked first."""
    (tmp_path / "a.txt").write_bytes(content(".txt", [WIDE, OLD, PLAIN] * 30)[0])
    with pytest.raises(DataError, match="not UTF-8 in many lines"):
        corpus(tmp_path / "a.txt")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(content(".txt", [WIDE] * 9 + [OLD])[0]))
    with pytest.raises(DataError, match=r"a.txt.gz:10: .*Unpack it first: `gzip -dk "):
        corpus(tmp_path / "a.txt.gz")
