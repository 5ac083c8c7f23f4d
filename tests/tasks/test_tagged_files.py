"""Words and labels are read from the layouts that annotators and programs write; unreadable ones are refused in one sentence."""

import json
import re
import time
from pathlib import Path

import pytest

from electra_trainer.errors import DataError, ElectraError
from electra_trainer.tasks.tagged_files import TagColumns, read_tagged, splitting_of, word_places
from electra_trainer.tasks.tagging import Tagging, TaggingTask


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


ANN = "Ann/B-PER lives/O in/O Bonn/B-LOC"
READ: dict[str, tuple[str, str, str]] = {
    "Hub": ("x.jsonl", lines({"id": "0", "tokens": ["Ann", "lives", "in", "Bonn"], "pos_tags": ["N", "V", "P", "N"], "ner_tags": ["B-PER", "O", "O", "B-LOC"]}), ANN),
    "doccano": ("x.jsonl", lines({"text": "Ann lives in Bonn", "label": [[0, 3, "PER"], [13, 17, "LOC"]]}), ANN),
    "doccano, objects": ("x.jsonl", lines({"id": 3, "text": "Ann lives in Bonn", "entities": [{"label": "PER", "start_offset": 0, "end_offset": 3}, {"label": "LOC", "start_offset": 13, "end_offset": 17}], "Comments": []}), ANN),
    "no spans": ("x.jsonl", lines({"text": "She lives.", "label": []}), "She/O lives/O ./O"),
    "spaces in a span": ("x.jsonl", lines({"text": "in New York .", "label": [[2, 12, "LOC"]]}), "in/O New/B-LOC York/I-LOC ./O"),
    "comments like rows": ("x.txt", "# s1\nAnn B-PER\nlives O\n\n# s2\nBonn B-LOC\n", "Ann/B-PER lives/O | Bonn/B-LOC"),
    "comments like rows, plain": ("x.txt", "# s1\nAnn NOUN\nlives VERB\n\n# s2\nBonn NOUN\n", "Ann/NOUN lives/VERB | Bonn/NOUN"),
    "comments, types as labels": ("x.txt", "# s1\nAnn PER\nlives O\n\n# s2\nBonn LOC\n# O\n", "Ann/PER lives/O | Bonn/LOC #/O"),
    "words like comments": ("x.txt", "# B-TAG\nlove O\n\n#a=b B-TAG\nworks O\n\nsee O\n#x=1 B-TAG\n", "#/B-TAG love/O | #a=b/B-TAG works/O | see/O #x=1/B-TAG"),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_layouts(name: str, tmp_path: Path) -> None:
    file, text, expected = READ[name]
    read = read_tagged(written(tmp_path, file, text)).sentences
    both = [" ".join(f"{word}/{label}" for word, label in zip(one.words, one.labels, strict=True)) for one in read]
    assert " | ".join(both) == expected
    assert all(one.place.startswith(str(tmp_path)) for one in read)


REFUSED: dict[str, tuple[str, str, str]] = {
    "too few labels": ("x.jsonl", lines({"tokens": ["a", "b"], "tags": ["A"]}), "x.jsonl:1: 2 words, labels ['A']. Expected {\"tokens\": [...]"),
    "a label of the text": ("x.jsonl", lines({"text": "a b", "label": "good"}), "x.jsonl:1: words 'a b'. Expected {"),
    "outside of the text": ("x.jsonl", lines({"text": "abc", "label": [[0, 9, "X"]]}), "x.jsonl:1: span [0, 9, 'X'] of 3 characters. Expected a start"),
    "not a span": ("x.jsonl", lines({"text": "abc", "label": [["a", 9, "X"]]}), "span ['a', 9, 'X'] of 3 characters. Expected a start"),
    "no words": ("x.jsonl", lines({"id": 1, "tags": ["O"]}), "x.jsonl: has no column tokens or words or text or sentence, but 'id', 'tags'. Name one: --words COLUMN"),
    "a list": ("x.jsonl", "[1]\n", "x.jsonl:1: is [1], expected a JSON object"),
    "labels in a text": ("x.jsonl", lines({"words": ["Ann", "lives"], "labels": "B-PER O"}), "x.jsonl:1: 2 words, labels 'B-PER O'. Expected {"),
    "a column of numbers": ("x.conll", "1\tAnn\tB-PER\n2\tlives\tO\n\n1\tBonn\tB-LOC\n", "column 1 holds numbers. Name the column of the words: --words N"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_faults_are_reported_with_their_place(name: str, tmp_path: Path) -> None:
    file, text, message = REFUSED[name]
    with pytest.raises(ElectraError) as caught:
        read_tagged(written(tmp_path, file, text))
    assert message in str(caught.value) and str(tmp_path / file) in str(caught.value)


def test_spans_that_do_not_fit_the_words(tmp_path: Path) -> None:
    """The whole word is in a span that ends or begins within it; of two that overlap the longer one counts; UTF-16's
    places may hold no word. Notes say all.
    """
    row = {"text": "The Bonnites of New York", "label": [[4, 8, "LOC"], [16, 24, "LOC"], [16, 19, "X"]]}
    read = read_tagged(written(tmp_path, "x.jsonl", lines(row)))
    assert read.sentences[0].labels == ("O", "B-LOC", "O", "B-LOC", "I-LOC")
    assert read.notes[0] == "columns of x.jsonl: words = 'text', labels = 'label'."
    assert re.search(
        r"^warning: spans that share a word with a longer one, .*: 1, the first a X at .*x\.jsonl:1", read.notes[1]
    )
    assert re.search(r"^warning: spans that .* within a word .*: 1, the first a LOC at .*x\.jsonl:1", read.notes[2])
    assert len(read_tagged(written(tmp_path, "y.jsonl", lines({**row, "label": [[4, 12, "LOC"]] * 2}))).notes) == 1
    begins = read_tagged(written(tmp_path, "b.jsonl", lines({**row, "label": [[6, 12, "LOC"]]})))
    assert begins.sentences[0].labels[1] == "B-LOC" and "within a word" in begins.notes[1]
    utf16 = {"text": "Hello \U0001f600\U0001f600\U0001f600 a b c", "label": [[13, 14, "X"]]}
    assert "or hold none, are left out: 1" in read_tagged(written(tmp_path, "u.jsonl", lines(utf16))).notes[1]
    types = [f"T{number}" for number in range(20)]  # of equal spans the first counts, in every process
    read = read_tagged(written(tmp_path, "z.jsonl", lines({**row, "label": [[4, 12, one] for one in types]})))
    assert read.sentences[0].labels[1] == "B-T0"


def test_many_spans_take_linear_time(tmp_path: Path) -> None:
    """Quadratic work would take minutes."""
    places = range(10_000)
    spans = [[[2 * at, 2 * at + 1, "X"] for at in places], [[at, 20_000 - at, "X"] for at in places]]
    spans.append([[10_000, 20_000, "X"], *([at, 10_002 + at // 2, "X"] for at in range(9_000))])
    for number, own in enumerate(spans):
        path = written(tmp_path, f"{number}.jsonl", lines({"text": "a " * 10_000, "label": own}))
        began = time.process_time()
        labels = read_tagged(path).sentences[0].labels
        assert time.process_time() - began < 1.5
        assert labels.count("B-X") == (10_000, 1, 1)[number]
    assert word_places("a." * 50_000 + "." * 50_000)[0] == (0, 100_000)


def test_spans_in_a_text_without_spaces(tmp_path: Path) -> None:
    row = {"text": "张三在北京。Ann left.", "label": [[0, 2, "PER"], [3, 5, "LOC"], [6, 9, "PER"]]}
    read = read_tagged(written(tmp_path, "x.jsonl", lines(row)))
    assert read.sentences[0].words == ("张", "三", "在", "北", "京", "。", "Ann", "left", ".")
    assert read.sentences[0].labels == ("B-PER", "I-PER", "O", "B-LOC", "I-LOC", "O", "B-PER", "O", "O")
    assert splitting_of(read.sentences) == read.columns.split == "characters"
    mixed = {"text": "Ann left 李明在北京 in the month of May last year.", "label": [[9, 11, "PER"], [12, 14, "LOC"]]}
    read = read_tagged(written(tmp_path, "y.jsonl", lines(mixed)))
    assert read.columns.split == "characters" and len(read.notes) == 1
    assert read.sentences[0].labels[2:7] == ("B-PER", "I-PER", "O", "B-LOC", "I-LOC")
    thai = {"text": "ที่นี่กรุงเทพ", "label": [[6, 13, "LOC"]]}
    found = read_tagged(written(tmp_path, "z.jsonl", lines(thai))).sentences[0]
    assert found.words == ("ที่", "นี่", "ก", "รุ", "ง", "เ", "ท", "พ") and found.labels[1:3] == ("O", "B-LOC")


NUMBERS = lines(
    {"tokens": ["Ann", "in", "Bonn"], "ner_tags": [1, 0, 3]}, {"tokens": ["Bonn", "City"], "ner_tags": [3, -100]}
)


def test_numbers_get_names(tmp_path: Path) -> None:
    """From a flag; without it they stay numbers."""
    path = written(tmp_path, "x.jsonl", NUMBERS)
    written(tmp_path, "dev.jsonl", NUMBERS + "\n")

    def loaded(**fields: str) -> Tagging:
        task = TaggingTask(train=path, dev=tmp_path / "dev.jsonl", **fields).load().task  # type: ignore[arg-type]
        assert isinstance(task, Tagging)
        return task

    assert (loaded().labels, loaded().scheme) == (("0", "1", "3"), "none")
    task = loaded(tag_names="O, B-PER,I-PER,B-LOC")
    assert (task.labels, task.scheme) == (("B-LOC", "B-PER", "O"), "bio")
    with pytest.raises(DataError, match=r"x\.jsonl:1: label '3' has no name; --tag-names has 2, .* from 0 on"):
        loaded(tag_names="O,B-PER")


COLUMNS = "#\thttps://example.org/1\t[2009]\n1\tAnn\tB-PER\tO\n2\tlebt\tO\tO\n\n1\tKöln\tB-LOC\tO\n2\t.\tO\tO\n"


def test_what_reading_needed_is_used_again(tmp_path: Path) -> None:
    """A file like the training file gives its words' column; running text is split like the training words."""
    data = TaggingTask(
        train=written(tmp_path, "a.tsv", COLUMNS), dev=written(tmp_path, "b.tsv", COLUMNS + "\n"), words="2", column="3",
        predict=written(tmp_path, "raw.txt", "Ann lebt in Köln.\nAnn kommt aus Kiel.\n"),
    ).load()  # fmt: skip
    assert data.columns == TagColumns(words="2", label="3", columns=4, split="punctuation")
    assert [one.words for one in data.test["predict"]] == [
        ("Ann", "lebt", "in", "Köln", "."),
        ("Ann", "kommt", "aus", "Kiel", "."),
    ]
    assert (
        "raw.txt: running text, a sentence a line, split into words like the training data (punctuation)." in data.notes
    )

    other = (COLUMNS + "\n") * 5 + "1\tneu\tC-NEW\tO\n"
    labelled = data.task.examples_in(
        written(tmp_path, "more.tsv", other), like=data.columns, pair=False, text=None, text_pair=None, as_json=False
    )
    assert labelled.notes == (
        "more.tsv: 21 words in 11 sentences, 5 comment lines.",
        "the labels of 1 words do not occur in training (the first is 'C-NEW'): never right.",
    )

    def words(name: str, text: str) -> list[tuple[str, ...]]:
        read = data.task.examples_in(
            written(tmp_path, name, text), like=data.columns, pair=False, text=None, text_pair=None, as_json=False
        )
        return [one.words for one in read.examples]

    assert words("new.tsv", COLUMNS) == [("Ann", "lebt"), ("Köln", ".")]
    assert words("new.txt", "Ann\nlebt\n\nKöln\n") == [("Ann", "lebt"), ("Köln",)]
    assert words("new.txt", "Ann lebt hier heute\nBernd war gestern da\n") == [
        ("Ann", "lebt", "hier", "heute"), ("Bernd", "war", "gestern", "da"),
    ]  # fmt: skip
    assert words("new.jsonl", lines({"text": "Ann lebt."}, {"text": "Ja"})) == [("Ann", "lebt", "."), ("Ja",)]
    assert words("new.jsonl", lines({"tokens": ["Ann", "lebt."]})) == [("Ann", "lebt.")]


def split(text: str, like: str) -> str:
    from electra_trainer.tasks.examples import TaggedSentence

    trained = [TaggedSentence(words=tuple(like.split()), labels=(None,) * len(like.split()))]
    return " ".join(text[first:stop] for first, stop in word_places(text, splitting_of(trained)))


def test_running_text_is_split_like_the_training_words() -> None:
    text = "She's in the U.N., \"they\" don't say #MeToo... (3.5%)"
    assert split(text, "Well , yes .") == "She's in the U.N. , \" they \" don't say #MeToo ... ( 3.5 % )"
    assert split(text, "do n't , .") == "She 's in the U.N. , \" they \" do n't say #MeToo ... ( 3.5 % )"
    assert split(text, "Well, yes. No, no.") == text
    assert split("ka 's n't", "do n't") == "ka 's n't"
    assert split("हिंदी में।", "यह है ।") == "हिंदी में ।"
    assert split("我住在Bonn。", "我 们 在 。") == "我 住 在 Bonn 。"
    assert split("我们 在 学校", "我们 在 学校") == "我们 在 学校"
