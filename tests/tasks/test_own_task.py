"""A task of one's own: what is taken for text and label, each way that this can go wrong, and the rows that are held out."""

import json
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.finetuning.own_files import rows, write_csv

from electra_trainer.errors import ConfigError, DataError, ElectraError, MissingInputError
from electra_trainer.files.rows import read_rows
from electra_trainer.files.tables import Table
from electra_trainer.finetuning.model_folder import task_from
from electra_trainer.tasks.examples import (
    WARNING,
    Columns,
    TextExample,
    choose_columns,
    choose_texts,
    contradictions,
    hold_out,
    overlap,
    same_text,
)
from electra_trainer.tasks.own_files import OwnRows, OwnTask, RegressionTask
from electra_trainer.tasks.task import Row
from electra_trainer.tasks.texts import Classification, Regression

MORE = "".join(f"text number {n},{'tool' if n % 2 else 'fruit'}\n" for n in range(20)).encode()
GOOD = b"text,label\n" + MORE
SCORED = b"text,score\n" + b"".join(b"text %d,%d.5\n" % (n, n) for n in range(20))
JSON = b"".join(b'{"text": "text %d", "label": "%s"}\n' % (n, b"ab"[n % 2 :][:1]) for n in range(20))
PAIRED = b"one,two,label\n" + b"".join(b"a %d,b %d,%d\n" % (n, n, n % 2) for n in range(20))

Case = tuple[dict[str, bytes], dict[str, object], type[ElectraError], str, str]
WRONG: dict[str, Case] = {
    # name of the case: files, arguments besides train, kind of error, how it begins, words that must be said
    "missing dev": ({"train.csv": GOOD}, {"dev": "dev.csv"}, MissingInputError, "dev.csv: ", "no such file"),
    "missing predict": ({"train.csv": GOOD}, {"predict": "new.csv"}, MissingInputError, "new.csv: ", "no such file"),
    "one column": ({"train.csv": b"text\na\nb\n"}, {}, DataError, "train.csv: ", "has one column ('text'), expected a text and a label"),
    "no such text column": ({"train.csv": GOOD}, {"text": "txt"}, ConfigError, "--text txt: train.csv ", "has no such column. Its columns: 'text', 'label'"),
    "no such pair column": ({"train.csv": GOOD}, {"text_pair": "other"}, ConfigError, "--text-pair other: ", "Its columns: 'text', 'label'"),
    "which is the label": ({"train.csv": b"id,text,kind\n1,a,b\n2,c,d\n"}, {}, ConfigError, "train.csv: ", "which column is the label? Its columns: 'id', 'text', 'kind'. Name it: --label COLUMN"),
    "which is the text": ({"train.csv": b"one,two,label\n1,a,b\n2,c,d\n"}, {}, ConfigError, "train.csv: ", "which column is the text? Its columns: 'one', 'two', 'label'. Name it: --text COLUMN"),
    "two label columns": ({"train.csv": b"text,label,class\na,b,c\n"}, {}, ConfigError, "train.csv: ", "which column is the label? Its columns: 'text', 'label', 'class'. Name it: --label COLUMN"),
    "text is label": ({"train.csv": GOOD}, {"text": "label", "label": "label"}, ConfigError, "--text and --label are both 'label'", "Name two different columns"),
    "text is its own pair": ({"train.csv": PAIRED}, {"text": "one", "text_pair": "one"}, ConfigError, "--text and --text-pair are both 'one'", ""),
    "empty text": ({"train.csv": GOOD + b",fruit\n"}, {}, DataError, "train.csv:22: ", "column 'text' is empty. Fill it in, or delete the row"),
    "blank texts": ({"train.csv": GOOD + b"  ,fruit\n" * 6}, {}, DataError, "train.csv:22: ", "is empty (as in 5 more rows). Fill it in, or delete the row."),
    "empty label": ({"train.csv": GOOD + b"a pear, \n"}, {}, DataError, "train.csv:22: ", "column 'label' is empty. Fill it in, or delete the row"),
    "empty pair": ({"train.csv": PAIRED + b"a,,0\n"}, {"text": "one", "text_pair": "two"}, DataError, "train.csv:22: ", "column 'two' is empty"),
    "a row for the header": ({"train.csv": MORE}, {}, DataError, "train.csv:1: ", "'fruit' is a label, not a column's name. Put a line of column names on top of the file"),
    "free text as label": ({"train.csv": b"text,label\n" + b"".join(b"a %d,this is writing %d\n" % (n, n) for n in range(9))}, {}, DataError, "train.csv: ", "9 different labels in 9 rows, for example 'this is writing 0'"),
    "long label": ({"train.csv": GOOD + b"a," + b"long " * 50 + b"\n"}, {}, DataError, "train.csv:22: ", "expected one label: a short text, a whole number or a truth value. Name the columns with --text and --label"),
    "numbers as labels": ({"train.csv": SCORED}, {}, DataError, "train.csv: ", "numbers are learned with --task regression"),
    "fractions as labels in JSON": ({"train.jsonl": b'{"text": "a", "label": 0.5}\n'}, {}, DataError, "train.jsonl:1: ", "holds 0.5, expected one label: a short text, a whole number or a truth value. Name the columns with --text and --label; for numbers, --task regression"),
    "unseen label in dev": ({"train.csv": GOOD, "dev.csv": b"text,label\na plum,fruits\n"}, {"dev": "dev.csv"}, DataError, "dev.csv:2: ", "label 'fruits' in column 'label' never occurs in the training file. Its labels: 'fruit', 'tool'"),
    "dev without the column": ({"train.csv": GOOD, "dev.csv": b"text,class\na plum,fruit\n"}, {"dev": "dev.csv"}, DataError, "dev.csv: ", "has no column 'label', which the training file has. Its columns: 'text', 'class'. Rename it"),
    "broken dev": ({"train.csv": GOOD, "dev.csv": b"text,label\na plum\n"}, {"dev": "dev.csv"}, DataError, "dev.csv:2: ", "expected 2 fields"),
    "predict without the text": ({"train.csv": GOOD, "new.csv": b"texts\na plum\n"}, {"predict": "new.csv"}, DataError, "new.csv: ", "has no column 'text', which the training file has. Its columns: 'texts'. Rename it; in a file to predict it can be named: --text COLUMN"),
    "an empty cell alone": ({"train.csv": GOOD, "new.csv": b'text\na plum\n\n""\n'}, {"predict": "new.csv"}, DataError, "new.csv:4: ", "column 'text' is empty"),
    "an empty cell alone in a .tsv": ({"train.csv": GOOD, "new.tsv": b'text\na plum\n\n""\n'}, {"predict": "new.tsv"}, DataError, "new.tsv:4: ", "column 'text' is empty"),
    "empty text to predict": ({"train.csv": GOOD, "new.csv": b"text,n\na plum,1\n,2\n"}, {"predict": "new.csv"}, DataError, "new.csv:3: ", "column 'text' is empty"),
    "no number": ({"train.csv": SCORED + b"a,high\n"}, {"source": RegressionTask}, DataError, "train.csv:22: ", "holds 'high', expected a finite number such as 3, 0.5 or 1e-3. For classes: --task classification"),
    "nan": ({"train.csv": SCORED + b"a,NaN\n"}, {"source": RegressionTask}, DataError, "train.csv:22: ", "holds 'NaN', expected a finite number"),
    "infinite": ({"train.csv": SCORED + b"a,-inf\n"}, {"source": RegressionTask}, DataError, "train.csv:22: ", "expected a finite number"),
    "too large": ({"train.csv": SCORED + b"a,1e999\n"}, {"source": RegressionTask}, DataError, "train.csv:22: ", "expected a finite number"),
    "too large together": ({"train.csv": SCORED + b"a,1e308\nb,-1e308\n"}, {"source": RegressionTask}, DataError, "train.csv: ", "values from -1e+308 to 1e+308. Expected numbers that differ, below 1e150"),
    "no number to learn": ({"train.csv": SCORED + b"a,\n"}, {"source": RegressionTask}, DataError, "train.csv:22: ", "is empty. Fill it in, or delete the row"),
    "constant": ({"train.csv": b"text,score\na,1\nb,1.0\nc,1\n"}, {"source": RegressionTask}, DataError, "train.csv: ", "values from 1 to 1. Expected numbers that differ"),
    "truth value as number": ({"train.jsonl": b'{"text": "a", "label": true}\n'}, {"source": RegressionTask}, DataError, "train.jsonl:1: ", "holds True, expected a finite number"),
    "key missing": ({"train.jsonl": JSON + b'{"text": "a"}\n'}, {}, DataError, "train.jsonl:21: ", "column 'label' is missing. Fill it in, or delete the row"),
    "null text": ({"train.jsonl": JSON + b'{"text": null, "label": "a"}\n'}, {}, DataError, "train.jsonl:21: ", "column 'text' is missing"),
    "text that is none": ({"train.jsonl": JSON + b'{"text": 5, "label": "a"}\n'}, {}, DataError, "train.jsonl:21: ", "column 'text' holds 5, expected a text (in JSON between double quotes)"),
    "half a surrogate pair": ({"train.jsonl": JSON + b'{"text": "c\\ud800", "label": "a"}\n'}, {}, DataError, "train.jsonl:21: ", "holds half of a surrogate pair at character 2. Repair the JSON"),
    "one text": ({"train.csv": b"text,label\na,b\nA ,c\n"}, {}, DataError, "train.csv: ", "has one text only, so none can be held out. Add rows, or give a --dev file"),
    "one row a class": ({"train.csv": b"text,label\na,b\nc,d\n"}, {}, DataError, "train.csv: ", "has too few rows to hold some out. Add rows, or give a --dev file"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_faults_are_reported(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, arguments, kind, begin, words = WRONG[case]
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        Path(name).write_bytes(content)
    paths = {name: Path(str(value)) if name in ("dev", "predict") else value for name, value in arguments.items()}
    train = Path(next((name for name in files if name.startswith("train")), "train.csv"))
    source: Any = paths.pop("source", OwnTask)
    with pytest.raises(kind) as caught:
        source(train=train, **paths).load()
    message = str(caught.value)
    assert message.startswith(begin)
    assert words in message
    assert len(message) < 400 and "\n" not in message


TAKEN: dict[str, tuple[str, dict[str, str], tuple[str, str | None, str]]] = {
    # header, flags, columns that are taken for text, pair, label
    "two columns": ("review,stars_given", {}, ("review", None, "stars_given")),
    "two columns, the label first": ("label,words", {}, ("words", None, "label")),
    "two columns in capitals": ("Sentiment,Words", {}, ("Words", None, "Sentiment")),
    "two columns, the text named": ("this,that", {"text": "that"}, ("that", None, "this")),
    "two columns, the label named": ("this,that", {"label": "this"}, ("that", None, "this")),
    "an index of pandas": (",words,kind", {}, ("words", None, "kind")),
    "known names among others": ("id,text,lang,label", {}, ("text", None, "label")),
    "the one that is left": ("words,label,", {"label": "label"}, ("words", None, "label")),
    "a known pair": ("id,sentence1,sentence2,label", {}, ("sentence1", "sentence2", "label")),
    "text and its pair": ("text,text_pair,label", {}, ("text", "text_pair", "label")),
    "a pair that was named": ("one,two,score", {"text_pair": "two"}, ("one", "two", "score")),
    "one text of a known pair": ("premise,hypothesis,label", {"text": "hypothesis"}, ("hypothesis", None, "label")),
    "named in other letters": ("Message,Kind,n", {"text": "message", "label": "KIND"}, ("Message", None, "Kind")),
    "two that differ in the case": ("a,A,label", {"text": "A"}, ("A", None, "label")),
    "all named": ("a,b,c", {"text": "c", "text_pair": "a", "label": "b"}, ("c", "a", "b")),
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_is_taken(case: str, tmp_path: Path) -> None:
    header, flags, (text, pair, label) = TAKEN[case]
    names = tuple(header.rstrip(",").split(","))
    write_csv(tmp_path / "train.csv", [tuple(f"{name} {n}" for name in names) for n in range(3)], names)
    named: dict[str, Any] = {"text": None, "text_pair": None, "label": None, **flags}
    columns = choose_columns(read_rows(tmp_path / "train.csv"), **named)
    assert (columns.text, columns.pair, columns.label) == (text, pair, label)


ASKED: dict[str, tuple[str, dict[str, object], tuple[str, str | None] | str]] = {
    # header of a file to predict, what is known, the columns that are taken or what is said
    "as in training": ("n,one,two", {"like": Columns(text="one", pair="two")}, ("one", "two")),
    "named otherwise": ("n,uno,two", {"like": Columns(text="one", pair="two"), "text": "uno"}, ("uno", "two")),
    "named in other letters": ("n,Text", {"like": Columns(text="one"), "text": "text"}, ("Text", None)),
    "the only column": ("anything", {"like": None}, ("anything", None)),
    "a usual name": ("n,Review", {"like": None}, ("Review", None)),
    "a pair, one named": ("one,two", {"like": None, "pair": True, "text_pair": "one"}, ("two", "one")),
    "no pair": ("text,n", {"like": None, "pair": True}, "which column is the second text? Its columns: 'text', 'n'. Name it: --text-pair COLUMN"),
    "no text": ("a,b", {"like": None}, "which column is the text?"),
    "a wrong name": ("text", {"like": None, "text": "txt"}, "--text txt: f.csv has no such column. Its columns: 'text'"),
    "the same twice": ("text,n", {"like": None, "text": "text", "text_pair": "text"}, "Name two different columns"),
    "a pair for single texts": ("text,n", {"like": Columns(text="text"), "text_pair": "n"}, "--text-pair n: the model was trained on single texts. Leave it out."),
    "not as in training": ("one,2nd", {"like": Columns(text="one", pair="two")}, "f.csv: has no column 'two', which the training file has"),
}  # fmt: skip


@pytest.mark.parametrize("case", ASKED)
def test_what_is_taken_to_predict(case: str) -> None:
    header, known, expected = ASKED[case]
    table = Table(path=Path("f.csv"), columns=tuple(header.split(",")), rows=[], lines=[], sha256="")
    if isinstance(expected, str):
        with pytest.raises(ElectraError) as caught:
            choose_texts(table, **known)  # type: ignore[arg-type]
        assert expected in str(caught.value)
    else:
        found = choose_texts(table, **known)  # type: ignore[arg-type]
        assert (found.text, found.pair, found.label) == (*expected, None)


def test_classification_without_flags(tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", rows(200))
    task = OwnTask(train=tmp_path / "train.csv", folds=False)
    data = task.load()
    assert isinstance(data.task, Classification)
    assert data.task.labels == ("fruit", "tool")
    assert data.task.metrics == ("accuracy", "macro_f1", "matthews")
    assert len(data.train) == 180 and len(data.dev["dev"]) == 20
    assert Counter(example.label for example in data.dev["dev"]) == {"fruit": 10, "tool": 10}
    assert data.notes[0] == "columns: text = 'text', label = 'label'."
    assert "20 of 200 rows were held out" in data.notes[1]
    assert pickle.loads(pickle.dumps(task)) == task
    again = task.load()
    assert again == data


def test_a_report_alone_needs_no_probabilities(tmp_path: Path) -> None:
    """A task of your own cannot be calibrated without them."""
    data = OwnTask(train=write_csv(tmp_path / "train.csv", rows(60)), folds=False).load()

    class Plain:
        def __getattr__(self, name: str) -> Any:
            return getattr(None if name == "with_shares" else data.task, name)

    fruit = {"label": "fruit", "probabilities": {"fruit": 0.9, "tool": 0.1}}
    found, _ = replace(data, task=Plain()).judged(lambda split, task: [fruit] * len(data.dev[split]))  # type: ignore[arg-type]
    assert found["scores"]["dev/accuracy"] == 0.5 and found["reports"]["dev"].temperature is None


def test_balanced_weights_are_inverse_to_the_frequencies(tmp_path: Path) -> None:
    """A row of a rare class has the larger loss, the linear baselines count classes alike, and a folder keeps the weights."""
    noisy = [("red" if n % 10 == 0 or n % 4 == 0 else "blue", "rare" if n % 10 == 0 else "often") for n in range(80)]
    path = write_csv(tmp_path / "noisy.csv", noisy)
    plain, weighted = (OwnTask(train=path, dev=path, class_weights=how).load() for how in (None, "balanced"))
    assert isinstance(weighted.task, Classification) and isinstance(plain.task, Classification)
    assert weighted.task.class_weights == pytest.approx((80 / 2 / 72, 80 / 2 / 8))
    assert task_from(weighted.task.described()) == weighted.task
    rows, output = [Row(ids=(1,), example=0, target=1)], torch.zeros(1, 2)
    losses = [data.task.losses(output, rows).item() for data in (plain, weighted)]
    assert losses[1] == pytest.approx(5 * losses[0], rel=1e-5)
    found = [
        data.task.baselines(data.train)["tf_idf"].predict([TextExample(text="red")])[0]["label"]
        for data in (plain, weighted)
    ]
    assert found == ["often", "rare"]  # 8 rare reds among 24: more than half by balanced weights


def test_labels_are_in_a_fixed_order(tmp_path: Path) -> None:
    texts = [(f"text {n}", str((n * 7) % 12 - 1)) for n in range(60)]
    data = OwnTask(train=write_csv(tmp_path / "train.csv", texts)).load()
    assert isinstance(data.task, Classification)
    assert data.task.labels == tuple(str(n) for n in range(-1, 11))


def test_labels_of_json(tmp_path: Path) -> None:
    lines = [{"text": f"text {n}", "label": bool(n % 2)} for n in range(20)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    task = OwnTask(train=tmp_path / "a.jsonl").load().task
    assert isinstance(task, Classification) and task.labels == ("false", "true")


def test_regression(tmp_path: Path) -> None:
    values = [(f"text {n}", str(10 + 3 * n)) for n in range(40)]
    data = RegressionTask(train=write_csv(tmp_path / "train.csv", values, ("text", "score")), folds=False).load()
    assert isinstance(data.task, Regression)
    learned = np.array([example.value for example in data.train])
    assert data.task.shift == pytest.approx(learned.mean()) and data.task.scale == pytest.approx(learned.std())
    assert data.task.metrics == ("spearman", "pearson")
    assert len(data.dev["dev"]) == 4
    assert np.ptp([example.value for example in data.dev["dev"]]) > 30  # of all ranges


def test_what_counts_is_in_the_hash(tmp_path: Path) -> None:
    table = [(f"a {n}", f"b {n}", str(n % 2)) for n in range(20)]
    train = write_csv(tmp_path / "train.csv", table, ("one", "two", "label"))
    one = OwnTask(train=train, text="one").load().sha256
    assert one == OwnTask(train=train, text="one", label="label").load().sha256
    assert one != OwnTask(train=train, text="two").load().sha256
    write_csv(train, table[1:], ("one", "two", "label"))
    assert one != OwnTask(train=train, text="one").load().sha256


def examples(pairs: list[tuple[str, str]]) -> list[TextExample]:
    return [TextExample(text=text, label=label) for text, label in pairs]


@settings(max_examples=200, deadline=None)
@given(
    pairs=st.lists(
        st.tuples(st.sampled_from(["a", "A", " a", "b", "c", "d e", "d  e", "f", "g"]), st.sampled_from("xyz")),
        max_size=30,
    )
)
def test_held_out_rows(pairs: list[tuple[str, str]]) -> None:
    """No text on both sides, every class on the learning side, no row lost; whatever repeats."""
    try:
        split = hold_out(examples(pairs), where="f", share=0.3) if pairs else None
    except DataError:
        return
    if split is None:
        return
    assert Counter(e.text + e.label for e in split[0] + split[1]) == Counter(a + b for a, b in pairs)  # type: ignore[operator]
    assert split is not None and all(split)
    assert not {same_text(e) for e in split[0]} & {same_text(e) for e in split[1]}
    assert {e.label for e in split[0]} == {label for _, label in pairs}


def test_the_order_of_rows_does_not_matter_for_what_is_held_out() -> None:
    pairs = rows(300)
    one = hold_out(examples(pairs), where="f")[1]
    two = hold_out(examples(pairs[::-1]), where="f")[1]
    assert {e.text for e in one} == {e.text for e in two} and len(one) == 30


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.text(alphabet='a b,"\n1.', max_size=60), source=st.sampled_from([OwnTask, RegressionTask]))
def test_any_table_gives_a_task_or_a_sentence(tmp_path: Path, content: str, source: type[OwnRows]) -> None:
    path = tmp_path / "train.csv"
    path.write_bytes(b"text,label\n" + content.encode())
    try:
        data = source(train=path).load()
    except ElectraError as error:
        assert str(error)
    else:
        assert data.train and all(data.dev.values())


def test_the_main_score_is_chosen_and_accuracy_is_doubted_where_one_class_is_large(tmp_path: Path) -> None:
    """With nine rows in ten of a class accuracy is 90 % without a model."""
    table = [(f"{'red' if n % 10 == 0 else 'blue'} {n} or so", "rare" if n % 10 == 0 else "often") for n in range(80)]
    path = write_csv(tmp_path / "train.csv", table)
    plain, chosen = (OwnTask(train=path, metric=one, folds=False).load() for one in (None, "macro_f1"))
    assert plain.task.metric == "accuracy" and chosen.task.metric == "macro_f1"
    assert any("warning: 90 % of the training rows have the same label" in note for note in plain.notes)
    assert not any("same label" in note for note in chosen.notes)
    score = chosen.task.score(
        chosen.dev["dev"], chosen.task.baselines(chosen.train)["majority"].predict(plain.dev["dev"])
    )
    assert next(iter(score)) == "macro_f1" and score["macro_f1"] < 0.5 < score["accuracy"]
    with pytest.raises(ConfigError, match="--metric f1: classification has accuracy, macro_f1, matthews"):
        OwnTask(train=path, metric="f1").load()


def test_the_same_pair_is_the_same_text_only_if_both_are() -> None:
    one, two, three = (TextExample(text="a", pair=pair, place="t:2") for pair in ("b", "c", "B "))
    assert overlap([one], [two]) == [] and len(overlap([one], [three])) == 1


def test_a_text_with_two_labels_is_reported() -> None:
    rows = [("a", "x"), ("b", "y"), ("A", "y"), ("b", "y")]
    train = [TextExample(text=text, label=label, place=f"d/train.csv:{n}") for n, (text, label) in enumerate(rows, 2)]
    assert contradictions(train[:2]) == []
    assert contradictions(train) == [
        f"{WARNING}1 of 4 training rows repeat the text of another with a different label: train.csv:4 ('y') and "
        "train.csv:2 ('x')."
    ]
