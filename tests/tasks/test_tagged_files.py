"""Files of tagged words are read whole, in the layouts that annotators and programs write, or an error says which line and what to do."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from electra_trainer.errors import ConfigError, DataError, ElectraError, MissingInputError
from electra_trainer.tasks.examples import TaggedSentence
from electra_trainer.tasks.tagged_files import TagColumns, Tagged, read_tagged, splitting_of, word_places
from electra_trainer.tasks.tagging import Tagging, TaggingTask


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def pairs(read: Tagged) -> list[list[tuple[str, str | None]]]:
    return [list(zip(sentence.words, sentence.labels, strict=True)) for sentence in read.sentences]


def conllu(*words: str) -> str:
    lines = ["1-2\tx\t_\t_\t_\t_\t_\t_\t_\t_"]
    lines += [
        f"{index}\t{word}\t_\t{tag}\t_\tNumber=Sing\t0\troot\t_\t_"
        if index == 1
        else f"{index}\t{word}\t_\t{tag}\tNN\t_\t1\tdep\t_\t_"
        for index, (word, tag) in enumerate((word.split("/") for word in words), start=1)
    ]
    return "\n".join(["# text", *lines, "", ""])


CONLL_2003 = (
    "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\n-DOCSTART- -X- O O\n\n# # I-NP O\n1 CD I-NP _"
)
CONLL = "Ann B-PER\nis O\n\nBonn B-LOC\n"
TABS = "\ufeff# id 7\tdomain=en\r\n# made by hand\r\n1\t10 000\tNUM\r\n2\t\u2028\tX\r\n \r\n#\r\n3\t#tag\tX\r\n4\t\xa0\tX \r\n"
TREEBANK = conllu("do/AUX", "n't/PART") + conllu("go/VERB", "on/_")
COMMENTS = (
    "# a b",
    "#",
    "# sent_id = 1",
    "#text=x",
    "# id 5239d808-f300 domain=en",
    "# id 5239d808-f300\tdomain=en",
    "# = y z",
)
ANN = "Ann/B-PER lives/O in/O Bonn/B-LOC"
READ: list[tuple[str, str, dict[str, Any], str]] = [
    # file, text, arguments, words and labels; None is no label
    ("x.jsonl", lines({"id": "0", "tokens": ["Ann", "lives", "in", "Bonn"], "pos_tags": ["N", "V", "P", "N"], "ner_tags": ["B-PER", "O", "O", "B-LOC"]}), {}, ANN),
    ("x.jsonl", lines({"text": "Ann lives in Bonn", "label": [[0, 3, "PER"], [13, 17, "LOC"]]}), {}, ANN),
    ("x.jsonl", lines({"id": 3, "text": "Ann lives in Bonn", "entities": [{"label": "PER", "start_offset": 0, "end_offset": 3}, {"label": "LOC", "start_offset": 13, "end_offset": 17}], "Comments": []}), {}, ANN),
    ("x.jsonl", lines({"tokens": ["Ann", "lives"], "tags": ["B-PER", None]}), {}, "Ann/B-PER lives/None"),
    ("x.jsonl", lines({"text": "She lives.", "label": []}), {}, "She/O lives/O ./O"),
    ("x.jsonl", lines({"text": "in New York .", "label": [[2, 12, "LOC"]]}), {}, "in/O New/B-LOC York/I-LOC ./O"),
    # spaces, documents, no line end at the end; "#" is a word where it has as many columns
    ("eng.train", CONLL_2003, {}, "EU/I-ORG rejects/O | #/O 1/None"),
    ("eng.train", CONLL_2003.partition("\n\n\n")[0], {"column": 2}, "EU/NNP rejects/VBZ"),
    ("eng.train", CONLL_2003, {"words": 2, "column": "3"}, "NNP/I-NP VBZ/I-VP | #/I-NP CD/I-NP"),
    ("eng.train", CONLL_2003, {"labelled": False}, "EU/None rejects/None | #/None 1/None"),
    # a byte-order mark, CRLF, comments before sentences, words with spaces and line separators, columns before the word
    ("x.tsv", TABS, {"words": 2}, "10 000/NUM \u2028/X | #tag/X \xa0/X"),
    *(("x", CONLL.replace("\n", end), {}, "Ann/B-PER is/O | Bonn/B-LOC") for end in ("\r", "\r\n", "\r\r\n")),
    ("x", "# a comment\nthe\n#\n\ncat\n", {"labelled": False, "words": 2}, "the/None #/None | cat/None"),
    *(("x", f"{one}\nthe _ _ O\ncat _ _ O\n\n{one}\na _ _ O\n", {}, "the/O cat/O | a/O") for one in COMMENTS),
    # a line that begins with "#" is a word if it can be one
    ("x", "#Ernte B-EVT\nam O\n\nAnn B-PER\n", {}, "#Ernte/B-EVT am/O | Ann/B-PER"),
    ("x", "#Ernte _\nam O\n\nAnn B-PER\n", {}, "#Ernte/None am/O | Ann/B-PER"),
    ("x", "# B-EVT\nam O\n\nAnn B-PER\n", {}, "#/B-EVT am/O | Ann/B-PER"),
    ("x", "#Ernte\nam\n\n#\nAnn\n", {"labelled": False}, "#Ernte/None am/None | #/None Ann/None"),
    ("x", "# s1\nAnn B-PER\nis O\n\n#id=2 x\n#text=Bonn is big\nBonn B-LOC\n", {}, "Ann/B-PER is/O | Bonn/B-LOC"),
    ("x", "#id 1\nAnn N\n\n#id 2\nBonn N\n", {}, "Ann/N | Bonn/N"),
    ("x", "# s1\nAnn NOUN\nlives VERB\n\n# s2\nBonn NOUN\n", {}, "Ann/NOUN lives/VERB | Bonn/NOUN"),
    ("x", "# s1\nAnn PER\nlives O\n\n# s2\nBonn LOC\n# O\n", {}, "Ann/PER lives/O | Bonn/LOC #/O"),
    ("x", "# B-TAG\nlove O\n\n#a=b B-TAG\nworks O\n\nsee O\n#x=1 B-TAG\n", {}, "#/B-TAG love/O | #a=b/B-TAG works/O | see/O #x=1/B-TAG"),
    ("x.conllu", TREEBANK, {}, "do/AUX n't/PART | go/VERB on/None"),
    *(("x.conllu", TREEBANK.replace("\n", end), {}, "do/AUX n't/PART | go/VERB on/None") for end in ("\r", "\r\n", "\r\r\n")),
    ("x.conllu", TREEBANK.replace("AUX", "CONJ"), {}, "do/CONJ n't/PART | go/VERB on/None"),
    ("x.conllu", TREEBANK, {"column": "xpos"}, "do/None n't/NN | go/None on/NN"),
    ("x.conllu", TREEBANK, {"column": "feats"}, "do/Number=Sing n't/_ | go/Number=Sing on/_"),
    ("x.conllu", TREEBANK, {"column": "deprel"}, "do/root n't/dep | go/root on/dep"),
    ("x.conllu", TREEBANK, {"column": "7", "labelled": False}, "do/None n't/None | go/None on/None"),
    ("x.conll", "word\tO\na\tO\n", {"labelled": False}, "word/None a/None"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(READ)))
def test_layouts(case: int, tmp_path: Path) -> None:
    file, text, arguments, expected = READ[case]
    read = read_tagged(write(tmp_path / file, text), **arguments)
    assert " | ".join(" ".join(f"{word}/{label}" for word, label in one) for one in pairs(read)) == expected
    assert all(one.place_of(0).startswith(str(tmp_path)) for one in read.sentences)


def test_places(tmp_path: Path) -> None:
    path = write(tmp_path / "eng.train", CONLL_2003)
    first, second = read_tagged(path).sentences
    assert (first.lines, second.lines) == ((3, 4), (9, 10))
    assert (second.place_of(0), second.place_of(1)) == (f"{path}:9", f"{path}:10")
    treebank = read_tagged(write(tmp_path / "x.conllu", TREEBANK)).sentences
    assert [sentence.lines for sentence in treebank] == [(3, 4), (8, 9)]


WORD_COLUMN = "x.txt:2: has 2 columns; expected on each line the word in "
REFUSED: list[tuple[str, str, dict[str, Any], list[str]]] = [
    # file, text, arguments, words that must be said
    ("x.jsonl", lines({"tokens": ["a", "b"], "tags": ["A"]}), {}, ["x.jsonl:1: 2 words, labels ['A']. Expected {\"tokens\": [...]"]),
    ("x.jsonl", lines({"text": "a b", "label": "good"}), {}, ["x.jsonl:1: words 'a b'. Expected {"]),
    ("x.jsonl", lines({"text": "abc", "label": [[0, 9, "X"]]}), {}, ["x.jsonl:1: span [0, 9, 'X'] of 3 characters. Expected a start"]),
    ("x.jsonl", lines({"text": "abc", "label": [["a", 9, "X"]]}), {}, ["span ['a', 9, 'X'] of 3 characters. Expected a start"]),
    ("x.jsonl", lines({"id": 1, "tags": ["O"]}), {}, ["x.jsonl: has no column tokens or words or text or sentence, but 'id', 'tags'. Name one: --words COLUMN"]),
    ("x.jsonl", "[1]\n", {}, ["x.jsonl:1: invalid JSON: it is [1], not an object"]),
    ("x.jsonl", lines({"words": ["Ann", "lives"], "labels": "B-PER O"}), {}, ["x.jsonl:1: 2 words, labels 'B-PER O'. Expected {"]),
    ("x.conll", "1\tAnn\tB-PER\n2\tlives\tO\n\n1\tBonn\tB-LOC\n", {}, ["column 1 holds numbers or labels. Name the column of the words: --words N"]),
    ("x.txt", "a O\nNew York B-LOC\n", {}, [":2: expected 2 columns between spaces, as line 1 has, found 3", "a word with a space needs tabs"]),
    ("x.txt", "# x\na\tO\n\nb    O\n", {}, [":4: expected 2 columns between tabs, as line 2 has, found 1"]),
    ("x.txt", "a\tO\nb\tO\t\n", {}, [":2: expected 2 columns", "found 3"]),
    ("x.txt", "a O\n# one two\n", {}, [":2: expected 2 columns", "comments are before sentences"]),
    ("x.txt", "a\tO\nb\t\n", {}, [":2: expected 2 columns", "but column 2 is empty", "An unknown label is _"]),
    ("x.txt", "a\tb\tO\t\n", {}, [":1: expected 4 columns between tabs, as line 1 has, but column 4 is empty"]),
    ("x.txt", "a\tO\n\tO\n", {}, [":2: expected 2 columns", "but column 1 is empty"]),
    ("x.txt", "a,O\nb,O\n", {}, [":1: has 1 column;", "expected on each line", "with tabs or spaces between, no commas."]),
    *(("x.csv", "text,label\nAnn is here,x\n", {"labelled": labelled}, ["is a .csv", "no commas: save it as .tsv"]) for labelled in (True, False)),
    *(("x.txt", text, {}, ["holds no sentences"]) for text in ("", " \n\t\n\r\n", "-DOCSTART- -X- O O\n\n", "# a\n# b\n")),
    *(("x.txt", "\na O\n", wrong, [WORD_COLUMN, "--words 1 --label 2"]) for wrong in ({"column": 3}, {"words": 4}, {"words": 2})),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_faults_are_reported_with_their_place(case: int, tmp_path: Path) -> None:
    file, text, arguments, words = REFUSED[case]
    with pytest.raises(ElectraError) as caught:
        read_tagged(write(tmp_path / file, text), **arguments)
    assert str(tmp_path / file) in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_columns_that_cannot_be(tmp_path: Path) -> None:
    for file, column, said in (
        *(("x.txt", wrong, "expected a number counted from 1") for wrong in ("0", "-1", "first", "²", 1.5, "upos")),
        ("x.conllu", "UPOS", "label column 'UPOS': expected upos"),
        ("x.conllu", 4, "label column '4': expected upos"),
    ):
        path = write(tmp_path / file, "a O\n" if file == "x.txt" else TREEBANK)
        with pytest.raises(ConfigError, match=said):
            read_tagged(path, column=column)  # type: ignore[arg-type]


def test_a_missing_blank_line_is_named(tmp_path: Path) -> None:
    """Where full stops end sentences; -DOCSTART- and lines of spaces part them too."""
    sentence = "Ann B-PER\nsaw O\nBonn B-LOC\n. O\n"
    path = write(tmp_path / "a.txt", sentence * 20)
    with pytest.raises(DataError, match=r"no blank line in 80 lines, 20 full stops\. Put a blank line between"):
        read_tagged(path)
    assert [len(one.words) for one in read_tagged(path, labelled=False).sentences] == [80]
    (note,) = read_tagged(write(tmp_path / "b.txt", (sentence * 20 + "\n") * 3)).notes
    assert "warning:" in note and "3 blocks between blank lines in 240 lines, 60 full stops" in note
    for gap in ("\n", " \n", "\t \n", "-DOCSTART- O\n"):
        assert not read_tagged(write(tmp_path / "c.txt", (sentence + gap) * 20)).notes


def test_bytes_and_absence(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes("a O\n\nMüller B-PER\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"x:3: not UTF-8.*iconv"):
        read_tagged(tmp_path / "x")
    (tmp_path / "x").write_bytes("a O\n".encode("utf-16"))
    with pytest.raises(DataError, match=r"x: is UTF-16\. Save it as UTF-8"):
        read_tagged(tmp_path / "x")
    with pytest.raises(MissingInputError, match="none"):
        read_tagged(tmp_path / "none")
    with pytest.raises(DataError, match="is a folder"):
        read_tagged(tmp_path)


FIELD = st.text(
    st.characters(exclude_characters="\0\t\n\r #=", exclude_categories=["Cs"]), min_size=1, max_size=6
).filter(lambda field: field != "_" and not field.startswith(("-DOCSTART-", "\ufeff")))


@given(
    sentences=st.lists(st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=5), min_size=1, max_size=4),
    gap=st.sampled_from([" ", "\t", "   "]),
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_what_is_written_is_read(sentences: list[list[tuple[str, str]]], gap: str, tmp_path: Path) -> None:
    text = "\n\n".join("\n".join(f"{word}{gap}{label}" for word, label in sentence) for sentence in sentences)
    words = [[word for word, _ in sentence] for sentence in sentences]
    assume(not all(word.isdecimal() for sentence in words for word in sentence))
    assert pairs(read_tagged(write(tmp_path / "x", text), words=1)) == sentences


def test_spans_that_do_not_fit_the_words(tmp_path: Path) -> None:
    """The whole word is in a span that ends or begins within it; of two that overlap the longer one counts; UTF-16's
    places may hold no word. Notes say all.
    """
    row = {"text": "The Bonnites of New York", "label": [[4, 8, "LOC"], [16, 24, "LOC"], [16, 19, "X"]]}
    read = read_tagged(write(tmp_path / "x.jsonl", lines(row)))
    assert read.sentences[0].labels == ("O", "B-LOC", "O", "B-LOC", "I-LOC")
    assert read.notes[0] == "columns of x.jsonl: words = 'text', labels = 'label'."
    assert re.search(
        r"^warning: spans that share a word with a longer one, .*: 1, the first a X at .*x\.jsonl:1", read.notes[1]
    )
    assert re.search(r"^warning: spans that .* within a word .*: 1, the first a LOC at .*x\.jsonl:1", read.notes[2])
    assert len(read_tagged(write(tmp_path / "y.jsonl", lines({**row, "label": [[4, 12, "LOC"]] * 2}))).notes) == 1
    begins = read_tagged(write(tmp_path / "b.jsonl", lines({**row, "label": [[6, 12, "LOC"]]})))
    assert begins.sentences[0].labels[1] == "B-LOC" and "within a word" in begins.notes[1]
    utf16 = {"text": "Hello \U0001f600\U0001f600\U0001f600 a b c", "label": [[13, 14, "X"]]}
    assert "or hold none, are left out: 1" in read_tagged(write(tmp_path / "u.jsonl", lines(utf16))).notes[1]
    types = [f"T{number}" for number in range(20)]  # of equal spans the first counts, in every process
    read = read_tagged(write(tmp_path / "z.jsonl", lines({**row, "label": [[4, 12, one] for one in types]})))
    assert read.sentences[0].labels[1] == "B-T0"


def test_many_spans_take_linear_time(tmp_path: Path) -> None:
    """Quadratic work would take minutes."""
    places = range(10_000)
    spans = [[[2 * at, 2 * at + 1, "X"] for at in places], [[at, 20_000 - at, "X"] for at in places]]
    spans.append([[10_000, 20_000, "X"], *([at, 10_002 + at // 2, "X"] for at in range(9_000))])
    for number, own in enumerate(spans):
        path = write(tmp_path / f"{number}.jsonl", lines({"text": "a " * 10_000, "label": own}))
        began = time.process_time()
        labels = read_tagged(path).sentences[0].labels
        assert time.process_time() - began < 1.5
        assert labels.count("B-X") == (10_000, 1, 1)[number]
    assert word_places("a." * 50_000 + "." * 50_000)[0] == (0, 99_999)


def test_spans_in_a_text_without_spaces(tmp_path: Path) -> None:
    row = {"text": "张三在北京。Ann left.", "label": [[0, 2, "PER"], [3, 5, "LOC"], [6, 9, "PER"]]}
    read = read_tagged(write(tmp_path / "x.jsonl", lines(row)))
    assert read.sentences[0].words == ("张", "三", "在", "北", "京", "。", "Ann", "left", ".")
    assert read.sentences[0].labels == ("B-PER", "I-PER", "O", "B-LOC", "I-LOC", "O", "B-PER", "O", "O")
    assert splitting_of(read.sentences) == read.columns.split == "characters"
    mixed = {"text": "Ann left 李明在北京 in the month of May last year.", "label": [[9, 11, "PER"], [12, 14, "LOC"]]}
    read = read_tagged(write(tmp_path / "y.jsonl", lines(mixed)))
    assert read.columns.split == "characters" and len(read.notes) == 1
    assert read.sentences[0].labels[2:7] == ("B-PER", "I-PER", "O", "B-LOC", "I-LOC")
    thai = {"text": "ที่นี่กรุงเทพ", "label": [[6, 13, "LOC"]]}
    found = read_tagged(write(tmp_path / "z.jsonl", lines(thai))).sentences[0]
    assert found.words == ("ที่", "นี่", "ก", "รุ", "ง", "เ", "ท", "พ") and found.labels[1:3] == ("O", "B-LOC")


NUMBERS = lines(
    {"tokens": ["Ann", "in", "Bonn"], "ner_tags": [1, 0, 3]}, {"tokens": ["Bonn", "City"], "ner_tags": [3, -100]}
)


def test_numbers_get_names(tmp_path: Path) -> None:
    """From a flag; without it they stay numbers."""
    path = write(tmp_path / "x.jsonl", NUMBERS)
    write(tmp_path / "dev.jsonl", NUMBERS + "\n")

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
        train=write(tmp_path / "a.tsv", COLUMNS), dev=write(tmp_path / "b.tsv", COLUMNS + "\n"), words="2", label="3",
        predict=write(tmp_path / "raw.txt", "Ann lebt in Köln.\nAnn kommt aus Kiel.\n"),
    ).load()  # fmt: skip
    assert data.columns == TagColumns(words="2", label="3", columns=4, split="punctuation")
    assert [one.words for one in data.test["predict"]] == [
        ("Ann", "lebt", "in", "Köln", "."),
        ("Ann", "kommt", "aus", "Kiel", "."),
    ]
    split_up = "raw.txt: running text, a sentence a line, split into words like the training data (punctuation)."
    assert split_up in data.notes

    def read(name: str, text: str) -> Any:
        return data.task.examples_in(
            write(tmp_path / name, text), like=data.columns, pair=False, text=None, text_pair=None, as_json=False
        )

    def words(name: str, text: str) -> list[tuple[str, ...]]:
        return [one.words for one in read(name, text).examples]

    labelled = read("more.tsv", (COLUMNS + "\n") * 5 + "1\tneu\tC-NEW\tO\n")
    assert labelled.notes == ("more.tsv: 21 words in 11 sentences, 5 comment lines.",) and len(labelled.answers) == 11
    labelled = read("odd.tsv", COLUMNS.replace("B-", "X-"))
    assert not labelled.answers and "odd.tsv:2: 2 of 4 labels are not in training." in labelled.notes[-1]

    assert words("new.tsv", COLUMNS) == [("Ann", "lebt"), ("Köln", ".")]
    assert words("new.txt", "Ann\nlebt\n\nKöln\n") == [("Ann", "lebt"), ("Köln",)]
    assert words("new.txt", "Ann lebt hier heute\nBernd war gestern da\n") == [
        ("Ann", "lebt", "hier", "heute"), ("Bernd", "war", "gestern", "da"),
    ]  # fmt: skip
    assert words("new.jsonl", lines({"text": "Ann lebt."}, {"text": "Ja"})) == [("Ann", "lebt", "."), ("Ja",)]
    assert words("new.jsonl", lines({"tokens": ["Ann", "lebt."]})) == [("Ann", "lebt.")]


def split(text: str, like: str) -> str:
    trained = [TaggedSentence(words=tuple(like.split()), labels=(None,) * len(like.split()))]
    return " ".join(text[first:stop] for first, stop in word_places(text, splitting_of(trained)))


def test_running_text_is_split_like_the_training_words() -> None:
    text = "She's in the U.N., \"they\" don't say #MeToo... (3.5%)"
    assert split(text, "Well , yes .") == "She's in the U.N . , \" they \" don't say #MeToo ... ( 3.5 % )"
    assert split("हिंदी में।", "यह है ।") == "हिंदी में ।"
    assert split("我住在Bonn。", "我 们 在 。") == "我 住 在 Bonn 。"
    assert split("我们 在 学校", "我们 在 学校") == "我们 在 学校"
