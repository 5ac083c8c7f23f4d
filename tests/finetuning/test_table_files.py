"""Each way in which a table can be wrong has its sentence, with the line and what to do; what is right is read as it was meant."""

import csv
import io
import json
import os
import re
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from electra_trainer.errors import DataError, MissingInputError, StorageError
from electra_trainer.files.rows import read_rows
from electra_trainer.files.tables import Table, numbers

GOOD = b"text,label\nan apple,fruit\na saw,tool\n"

WRONG: dict[str, tuple[str, bytes, str, str]] = {
    # name of the case: file, content, where, words that must be said
    "empty file": ("a.csv", b"", "a.csv", "is empty. Expected column names on the first line"),
    "header only": ("a.csv", b"text,label\n", "a.csv", "is empty, or holds no rows with names of columns"),
    "duplicate column": ("a.csv", b"text,label,text\na,b,c\n", "a.csv:1", "column 'text' occurs 2 times. Rename or remove one"),
    "short row": ("a.csv", b"text,label\nan apple,fruit\na saw\n", "a.csv:3", "expected 2 fields (text, label), found 1. Put a field that holds a comma in double quotes"),
    "long row": ("a.csv", b"text,label\na saw, a drill,tool\n", "a.csv:2", "found 3. Put a field that holds a comma in double quotes"),
    "short row after a field of two lines": ("a.csv", b'text,label\n"an\napple",fruit\na saw\n', "a.csv:4", "found 1"),
    "unclosed quote": ("a.csv", b'text,label\na,b\n"an apple,fruit\na saw,tool\n', "a.csv:3", "the row is not CSV on line 4 (unexpected end of data). Put a field that holds a comma, a quote"),
    "text after a quote": ("a.csv", b'text,label\n"an apple,fruit\n"a saw",tool\n', "a.csv:2", 'the row is not CSV on line 3 (\',\' expected after'),
    "NUL byte": ("a.csv", b"text,label\nan app\0le,fruit\n", "a.csv:2", "NUL at byte 7 of the line"),
    "UTF-16 with its mark": ("a.csv", "text,label\na,b\n".encode("utf-16"), "a.csv", "is UTF-16. Save it as UTF-8: `iconv -f UTF-16"),
    "UTF-16 without its mark": ("a.csv", "text,label\na,b\n".encode("utf-16-le"), "a.csv:1", "NUL at byte 2 of the line: UTF-16, or not text at all"),
    "cut within a letter": ("a.csv", "text,label\na,é".encode()[:-1], "a.csv:2", "not UTF-8 at byte 3 of the line (0xc3)"),
    "short row next to semicolons": ("a.csv", b"text;label\nan apple\n", "a.csv:2", "expected 2 fields (text, label), found 1"),
    "tabs in a .csv": ("a.csv", b"text\tlabel\nan apple\tfruit\n", "a.csv:1", "'\\t' between the columns, expected commas or semicolons in a .csv. Rename the file"),
    "commas in a .tsv": ("a.tsv", GOOD, "a.tsv:1", "',' between the columns, expected tabs in a .tsv. Rename the file"),
    "bars": ("a.csv", b"text|label\na|b\n", "a.csv:1", "'|' between the columns, expected commas or semicolons in a .csv. Rename"),
    "no header, numbers": ("a.csv", b"0,an apple\n1,a saw\n", "a.csv:1", "'0' is not a column name. Put a line of column names on top of the file"),
    "no header, numbers with a point": ("a.tsv", b"an apple\t0.5\na saw\t1e3\n", "a.tsv:1", "'0.5' is not a column name"),
    "tab within a field": ("a.tsv", b"text\tlabel\nan\tapple\tfruit\n", "a.tsv:2", "found 3. Put a field that holds a comma in double quotes; a field of a .tsv can hold neither a tab"),
    "line end within a field": ("a.tsv", b'text\tlabel\n"an\napple"\tfruit\n', "a.tsv:2", "found 1. Put a field that holds a comma in double quotes; a field of a .tsv"),
    "a list in JSON": ("a.json", b'[{"text": "a"}]', "a.json", "is JSON over several lines, or in one array. Write an object a line: `jq -c"),
    "blank text file": ("a.txt", b"\n \n", "a.txt", "is empty, or holds no rows"),
    "Excel": ("a.xlsx", b"PK\3\4", "a.xlsx", "the name ends in '.xlsx', expected .txt, .jsonl"),
    "Excel by another name": ("a.csv", b"PK\3\4rest", "a.csv", "is an archive (zip, 7z, rar or tar). Unpack it"),
    "empty .jsonl": ("a.jsonl", b"\n\n", "a.jsonl", "is empty, or holds no rows with names of columns. Expected rows such as"),
    "no object": ("a.jsonl", b'{"text": "a"}\n"b"\n', "a.jsonl:2", "invalid JSON: it is 'b', not an object. Expected rows such as"),
    "list of objects": ("a.jsonl", b'[{"text": "a"}]\n', "a.jsonl", "is JSON over several lines, or in one array. Write an object a line"),
    "broken JSON": ("a.jsonl", b'{"text": "a"}\n\n{"text": "b"\n', "a.jsonl:3", "not valid JSON (Expecting"),
    "objects without keys": ("a.jsonl", b'{}\n{}\n', "a.jsonl", "holds no rows with names of columns. Expected"),
    "objects with a nameless key": ("a.jsonl", b'\n{"": 5}\n', "a.jsonl", "holds no rows with names of columns. Expected"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_faults_are_reported(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, content, where, words = WRONG[case]
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_rows(Path(name))
    message = str(caught.value)
    assert message.startswith(where + ": ")
    assert words in message
    assert len(message) < 600 and "\n" not in message


def test_a_column_of_a_million_digits_is_read_at_once(tmp_path: Path) -> None:
    """Whether a name is a number is decided in one pass over it: a pattern that backtracks would take hours."""
    path = tmp_path / "long.csv"
    path.write_text("9" * 999_999 + "x,label\na,b\n")
    began = time.process_time()
    assert len(read_rows(path).columns[0]) == 1_000_000
    assert time.process_time() - began < 10


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for name, kind, said in (
        ("no.csv", MissingInputError, r"no\.csv: no such file or folder. Check the path"),
        (".", DataError, "is a folder, a file was expected"),
        ("pipe.csv", DataError, "is not a regular file"),
        ("x" * 300 + ".csv", StorageError, "xxx"),
        ("a\0b.csv", MissingInputError, "is not a file name"),
    ):
        with pytest.raises(kind, match=said):
            read_rows(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(GOOD)
    (tmp_path / "a.csv").chmod(0)
    with pytest.raises(StorageError, match="permission denied"):
        read_rows(tmp_path / "a.csv")


def read(tmp_path: Path, name: str, content: bytes) -> Table:
    (tmp_path / name).write_bytes(content)
    return read_rows(tmp_path / name)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("last", [True, False])
def test_line_ends_and_byte_order_mark(tmp_path: Path, end: bytes, mark: bytes, last: bool) -> None:
    lines = [b"text,label", "ä apple, fruit".encode(), b"", b"a saw,tool"]
    table = read(tmp_path, "a.csv", mark + end.join(lines) + (end if last else b""))
    assert table.columns == ("text", "label")
    assert table.rows == [("ä apple", " fruit"), ("a saw", "tool")]
    assert table.lines == [2, 4]


def test_quoting_of_csv(tmp_path: Path) -> None:
    content = b'text , label\n"one\n\ntwo, three",x\n5" pipe,y\n"say ""hi""",z\n"",w\n"  padded ", "v"\n'
    table = read(tmp_path, "a.csv", content)
    assert table.rows[-1][1] == "v", "where the line of names has a space after a comma, it belongs to no field"
    assert read(tmp_path, "b.csv", b'label,text\npos, "Great" movie\n').rows == [("pos", ' "Great" movie')]
    assert table.columns == ("text", "label")
    assert table.column("text") == ["one\n\ntwo, three", '5" pipe', 'say "hi"', "", "  padded "]
    assert table.lines == [2, 5, 6, 7, 8]
    assert table.where(1).endswith("a.csv:5")


def test_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    """As spreadsheets write .csv where the comma is the decimal sign; a column has one decimal sign, or is refused."""
    content = '\ufefftext;score;other\n"one; ""two"", three";"0,5";1.5\nfour, five;-12;0,25\n'
    table = read(tmp_path, "a.csv", content.encode())
    assert table.columns == ("text", "score", "other") and table.lines == [2, 3]
    assert table.column("text") == ['one; "two", three', "four, five"]
    assert numbers(table, "score") == [0.5, -12.0]
    with pytest.raises(DataError, match=r"a\.csv:2: column 'other' holds '1.5', and others a decimal comma"):
        numbers(table, "other")
    with pytest.raises(DataError, match=r"b\.csv:2: column 'score' holds '1,5', expected a finite number"):
        numbers(read(tmp_path, "b.csv", b'text,score\na,"1,5"\n'), "score")  # 1.5, or 15?
    excel = read(tmp_path, "c.csv", b'\xef\xbb\xbfsep=;\r\ntext, long;score\r\none;"0,5"\r\n')
    assert excel.columns == ("text, long", "score") and excel.lines == [3] and numbers(excel, "score") == [0.5]
    assert read(tmp_path, "d.csv", b"sep=|\ntext|label\none|two\n").columns == ("text", "label")


def test_quoting_of_tsv(tmp_path: Path) -> None:
    content = (
        b'text\tlabel\n"Hello," he said, "you."\ta\n"all ""of"" it"\tb\n"\tc\n""\td\nan "inner" one\te\n"half\tf\n'
    )
    table = read(tmp_path, "a.tsv", content)
    assert table.column("text") == ['"Hello," he said, "you."', 'all "of" it', '"', "", 'an "inner" one', '"half']


def test_objects(tmp_path: Path) -> None:
    content = b'{"text": "a", "label": 1}\n{"label": true, "more": [1], "text": "b\\n"}\n{"text": null}\n'
    table = read(tmp_path, "a.jsonl", content)
    assert table.columns == ("text", "label", "more")
    assert table.column("text") == ["a", "b\n", None]
    assert table.column("label") == [1, True, None]
    assert table.column("more") == [None, [1], None]


def test_line_ends_of_old_macs(tmp_path: Path) -> None:
    """CR alone ends a row, and belongs to a field between quotes."""
    table = read(tmp_path, "a.csv", b'text,label\r"a\rb",x\r\rcd,y\r')
    assert table.rows == [("a\rb", "x"), ("cd", "y")]
    assert read(tmp_path, "a.tsv", b"text\tlabel\rab\tx\rcd\ty").rows == [("ab", "x"), ("cd", "y")]


CELLS = st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"], include_characters="\t\r\n"), max_size=12)
WRITTEN = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@WRITTEN
@given(rows=st.lists(st.tuples(CELLS, CELLS, st.just("x")), min_size=1, max_size=6))
def test_what_a_csv_writer_wrote_is_read(tmp_path: Path, rows: list[tuple[str, str, str]]) -> None:
    """The line of each row too: one more than the line ends before it, of which CRs in a row are one."""
    text, lines = "one,two,three\r\n", []
    for row in rows:
        buffer = io.StringIO(newline="")
        csv.writer(buffer, quoting=csv.QUOTE_ALL).writerow(row)
        lines.append(1 + len(re.findall(r"\r+\n?|\n", text)))
        text += buffer.getvalue()
    table = read(tmp_path, "a.csv", text.encode())
    assert table.rows == rows
    assert table.lines == lines


@WRITTEN
@given(
    rows=st.lists(st.dictionaries(CELLS, st.none() | st.booleans() | st.integers() | CELLS, max_size=4), min_size=1, max_size=5)
)  # fmt: skip
def test_what_json_wrote_is_read(tmp_path: Path, rows: list[dict[str, object]]) -> None:
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if not any(name for row in rows for name in row):
        with pytest.raises(DataError, match="no rows with names of columns"):
            read(tmp_path, "a.jsonl", content)
        return
    table = read(tmp_path, "a.jsonl", content)
    for number, row in enumerate(rows):
        for key in table.columns:
            assert table.column(key)[number] == row.get(key)
