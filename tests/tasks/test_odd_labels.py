"""Labels and numbers that are not what they look like get one true sentence, and ordinary ones none."""

import csv
import json
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from electra_trainer.errors import ConfigError, DataError
from electra_trainer.tasks.multi_label import MultiLabelTask
from electra_trainer.tasks.own_files import OwnTask, RegressionTask

DELIMITERS = {"a.csv": ",", "a.tsv": "\t", "semicolons.csv": ";"}
ALWAYS = "columns: ", "rows were held out to be scored", "no development file: ", "Fewer than 20 rows"


def write(path: Path, answers: Sequence[Any], rows: int) -> Path:
    table = [(f"text {n}", answer) for n, answer in enumerate(islice(cycle(answers), rows))]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text, "label": answer}) + "\n" for text, answer in table))
        return path
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=DELIMITERS[path.name]).writerows([("text", "label"), *table])
    return path


def said(path: Path, **arguments: Any) -> list[str]:
    """The notes on labels, or the refusal, without the path."""
    source = arguments.pop("source", MultiLabelTask if "label_separator" in arguments else OwnTask)
    try:
        notes = source(train=path, **arguments).load().notes
    except (ConfigError, DataError) as error:
        return [str(error).replace(str(path.parent), "")]
    return [note for note in notes if not any(words in note for words in ALWAYS)][:-1]


COMMA, REGRESSION = {"label_separator": ","}, {"source": RegressionTask}
PRINTED = "a printed list"
LOOK = "classes look like lists, such as {}. For several labels of a text give --label-separator"
KINDS: list[tuple[str, Sequence[Any], dict[str, Any], str]] = [
    # file, its labels in turn, arguments, words that must be said ("": nothing is)
    *(("a.csv", labels, COMMA, f"/a.csv:2: column 'label' holds {labels[0]!r}, {kind}. Write labels with") for labels, kind in (
        (["['bad']", "['good', 'short']"], PRINTED), (['["bad"]', '["good", "short"]'], PRINTED), (["('bad',)", "('good', 'short')"], PRINTED),
        (["{'bad'}", "{'good', 'short'}"], PRINTED), (["[1, 0, 0]", "[0, 1, 1]"], PRINTED), (["[1, 0]", "[0, 1]"], PRINTED), (["[1. 0. 1.]"], PRINTED),
        (["[True False]"], PRINTED), (["[pos, a]", "[neg]"], PRINTED), (["[]", "[pos]"], PRINTED), (["()"], PRINTED),
        (["array([1, 0])"], PRINTED), (["Index(['a'], dtype='object')"], PRINTED), (["[]", "[np.str_('a')]"], PRINTED),
        (["1,0,0", "0,1,1"], "a mark for each label"),
    )),
    ("a.csv", ["pos", "[pos, a]"], COMMA, "/a.csv:3: column 'label' holds '[pos, a]', a printed list"),
    ("a.jsonl", ['["a"]'], COMMA, f"/a.jsonl:1: column 'label' holds '[\"a\"]', {PRINTED}. Write"),
    ("a.jsonl", [[1, 0, 0], [0, 1, 1]], COMMA, "/a.jsonl:1: column 'label' holds [1, 0, 0], a mark for each label"),
    ("a.jsonl", [["a"], ["b"]], {}, "holds ['a'], expected one label: a short text, a whole number or a truth value. For several labels of a text give --label-separator"),
    ("a.csv", [str([0] * 90), str([1] * 90)], {}, "expected one label: a short text, a whole number or a truth value. For several labels of a text give"),
    ("a.csv", [f"['{n}']" for n in range(60)], {}, "60 different labels in 60 rows, for example \"['0']\" and \"['1']\". For several labels of a text give"),
    ("a.csv", ["['bad']", "['good', 'short']"], {}, "warning: 2 of 2 " + LOOK.format("['bad']")),
    ("a.tsv", ["pos", "[]"], {}, "warning: 1 of 2 " + LOOK.format("[]")),
    ("a.csv", ["[27]", "[5, 3]"], {}, "warning: 2 of 2 " + LOOK.format("[27]")),
    *(("a.csv", labels, arguments, "") for arguments in ({}, COMMA) for labels in (
        ["[Music]", "[Applause]"], ["(unknown)", "pos"], ["(1)", "(2)"], ["[ ]", "[x]"], ["C (old)", "(new) C"],
    )),
    *(("a.csv", labels, {}, "") for labels in (
        ["[18, 25]", "[26, 40]"], ["(0, 10]", "(10, 20]"], ["(a, b)", "c"], ["01", "02", "12"], ["1", "2", "3", "4", "5"], ["1", "-1"],
        [str(n / 2) for n in range(2, 11)], [f"{n:02}" for n in range(30)], [str(n) for n in range(20)], ["12345678901234567890", "12345678901234567891"],
    )),
    ("a.csv", ["0", "1", "0.0", "1.0"], {}, "warning: '0' and '0.0', '1' and '1.0' look alike, and are classes of their own."),
    ("a.tsv", ["1", "01", "+1", "1e0", "2"], {}, "warning: '+1' and '01' and '1' and '1e0' look alike"),
    ("a.jsonl", ["0", "00", " 1"], {}, "warning: '0' and '00' look alike"),
    ("a.csv", ["\uff11", "1", "2"], {}, "warning: '1' and '\uff11' look alike"),
    ("a.csv", ["Pos", "pos", "NEG", "neg"], {}, "warning: 'NEG' and 'neg', 'Pos' and 'pos' look alike"),
    ("a.csv", ["a b", "a\u00a0b", "ab", "a\u200bb", "\uff21", "A"], {}, "'A' and '\uff21', 'a b' and 'a\\xa0b', 'ab' and 'a\\u200bb' look alike, and are classes of their own."),
    ("a.csv", ["yes", "no", "NA"], {}, "warning: 'NA' is a class like the others. Delete such rows if no label is meant."),
    ("a.csv", ["caf\u00e9", "cafe\u0301", "tea"], {}, ""),
    ("a.csv", [f"{n / 10:.1f}" for n in range(31)], {}, "31 of 31 classes are numbers, such as '0.0'. If their size matters, use --task regression."),
    ("a.csv", [str(n) for n in range(30)], {}, "30 of 30 classes are numbers, such as '0'. If"),
    ("a.csv", [f"{n / 4}" for n in range(13)], {}, "13 of 13 classes are numbers, such as '0.0'."),
    ("a.csv", ["none of it", *(f"{n}" for n in range(29))], {}, "29 of 30 classes are numbers, such as '0'. If their size matters, use --task regression."),
    ("a.csv", ["\u2764\ufe0f", "\u2764", "x"], {}, "look alike, and are classes of their own."),
    ("a.csv", ["10,50", "3"], REGRESSION, "holds '10,50', expected a finite number such as 3, 0.5 or 1e-3. Write a decimal point: 10.50."),
    ("a.csv", ["3", "N/A"], REGRESSION, "holds 'N/A', expected a finite number such as 3, 0.5 or 1e-3. Delete the row if"),
    ("a.csv", ["1%", "2%"], REGRESSION, "holds '1%', expected a finite number such as 3, 0.5 or 1e-3. Remove the unit."),
    ("semicolons.csv", ["1.036", "850"], REGRESSION, "warning: 30 of 60 numbers, such as 1.036, have a decimal point. Remove points that part thousands."),
    ("semicolons.csv", ["1.036", "0", "-1.250"], REGRESSION, "warning: 40 of 60 numbers, such as 1.036, have a decimal point."),
    ("semicolons.csv", ["1,036", "850", "0"], REGRESSION, "warning: 20 of 60 numbers, such as 1,036, have a decimal comma. Remove commas that part thousands."),
    ("semicolons.csv", ["1,036", "1.036"], REGRESSION, "warning: 30 of 60 numbers have signs between thousands: 1,036 is read as 1036."),
    ("semicolons.csv", ["1.036,5", "1,036.5"], REGRESSION, "holds '1,036.5', and others a decimal comma. Write one of 0,5 and 0.5 everywhere."),
    ("semicolons.csv", ["1.000", "2.125"], REGRESSION, "warning: 1.000 and all others have a decimal point. Remove points that part thousands."),
    ("a.csv", ["1.036", "850"], REGRESSION, "warning: 30 of 60 numbers, such as 1.036, have a decimal point."),
    ("a.csv", ["1,036", "850"], REGRESSION, "warning: 30 of 60 numbers have signs between thousands: 1,036 is read as 1036."),
    *(("semicolons.csv", numbers, REGRESSION, "") for numbers in (["1,036", "0,5", "-3"], ["0.250", "1.036", "850"], ["3", "\u22124"], ["2,125", "1,500"])),
    *(("a.csv", numbers, REGRESSION, "") for numbers in (["1.333", "2", "3.667"], ["1.036", "2.125"], ["0.125", "1.036", "850"])),
    ("a.jsonl", [1.036, 850, 3], REGRESSION, ""),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(KINDS)))
def test_kinds(case: int, tmp_path: Path) -> None:
    name, labels, arguments, words = KINDS[case]
    found = said(write(tmp_path / name, labels, 120 if 20 < len(labels) < 60 else 60), **arguments)
    assert bool(found) == bool(words), found
    assert words in "".join(found) and "\n" not in "".join(found)


def test_thousands_are_removed_where_the_column_shows_them(tmp_path: Path) -> None:
    for name, first, others, value in (
        ("semicolons.csv", "1.036,50", ["850"], 1036.5), ("semicolons.csv", "1,036.50", ["850"], 1036.5), ("semicolons.csv", "1.036", ["0,5"], 1036),
        ("semicolons.csv", "-1.036.000", ["850"], -1036000), ("semicolons.csv", "1\u202f036,5", ["850"], 1036.5), ("a.tsv", "1 036", ["0.5"], 1036),
        ("a.csv", "12\u2019340.5", ["850"], 12340.5), ("a.csv", "1,036", ["0.5"], 1036), ("a.csv", "1,036,000", ["850"], 1036000),
    ):  # fmt: skip
        data = RegressionTask(train=write(tmp_path / name, [first, *others], 60)).load()
        assert {row.value for row in data.train} == {value, float(others[0].replace(",", "."))}
        assert any("30 of 60 numbers have signs between thousands: " in note for note in data.notes)


def test_the_spelling_of_training_is_named(tmp_path: Path) -> None:
    train = write(tmp_path / "a.csv", ["1", "true", "caf\u00e9", "x"], 60)
    for label, like in (("1.0", "1"), ("01", "1"), ("True", "true"), ("x\u200b", "x")):
        found = said(train, dev=write(tmp_path / "a.tsv", [label], 1))
        assert f"never occurs in the training file, where {like!r} does. Its labels: '1', 'café'," in found[0]
    dev = OwnTask(train=train, dev=write(tmp_path / "a.tsv", ["cafe\u0301"], 1)).load().dev["dev"]
    assert [row.label for row in dev] == ["caf\u00e9"]


def test_numbers_of_a_test_file_are_noted(tmp_path: Path) -> None:
    train = write(tmp_path / "semicolons.csv", ["0,5", "3"], 60)
    (tmp_path / "test").mkdir()
    found = said(train, source=RegressionTask, test=write(tmp_path / "test" / "semicolons.csv", ["1,036", "850"], 60))
    assert any("30 of 60 numbers, such as 1,036, have a decimal comma" in note for note in found)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bombs/columns.csv", "'c10', 'c11' and 5,988 more. Name it: --label COLUMN"),
        ("bombs/keys.jsonl", "over 50 columns for each value. Write the same keys in every line."),
    ],
)
def test_files_of_many_columns(name: str, words: str, shared: Path) -> None:
    if not (shared / "faults" / name).exists():
        pytest.skip(f"needs shared/faults/{name}")
    assert words in "".join(said(shared / "faults" / name))
