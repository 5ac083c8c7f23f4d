"""Words and labels are read from the layouts that annotators and programs write; what cannot be read is said in one sentence."""

import json
from pathlib import Path

import pytest

from electra_trainer.errors import ConfigError, DataError, ElectraError
from electra_trainer.finetuning.tagging.tagged_files import TagColumns, read_names, read_tagged, with_names
from electra_trainer.finetuning.tagging.tagging import Tagging, TaggingTask
from electra_trainer.finetuning.tagging.word_splitting import splitting_of, word_places


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


ANN = "Ann/B-PER lives/O in/O Bonn/B-LOC"
STUDIO = [
    {"value": {"start": 0, "end": 3, "text": "Ann", "labels": ["PER"]}, "type": "labels"},
    {"value": {"start": 13, "end": 17, "text": "Bonn", "labels": ["LOC"]}, "type": "labels"},
]
READ: dict[str, tuple[str, str, str]] = {
    "Hub": ("x.jsonl", lines({"id": "0", "tokens": ["Ann", "lives", "in", "Bonn"], "pos_tags": ["N", "V", "P", "N"], "ner_tags": ["B-PER", "O", "O", "B-LOC"]}), ANN),
    "doccano": ("x.jsonl", lines({"text": "Ann lives in Bonn", "label": [[0, 3, "PER"], [13, 17, "LOC"]]}), ANN),
    "doccano, objects": ("x.jsonl", lines({"id": 3, "text": "Ann lives in Bonn", "entities": [{"label": "PER", "start_offset": 0, "end_offset": 3}, {"label": "LOC", "start_offset": 13, "end_offset": 17}], "Comments": []}), ANN),
    "no spans": ("x.jsonl", lines({"text": "She lives.", "label": []}), "She/O lives/O ./O"),
    "spaCy 3": ("x.jsonl", lines({"text": "Bonn's", "ents": [{"start": 0, "end": 4, "label": "LOC"}], "tokens": [{"start": 0, "end": 4}, {"start": 4, "end": 6}]}), "Bonn/B-LOC 's/O"),
    "Prodigy": ("x.jsonl", lines({"text": "no", "spans": [], "answer": "reject"}, {"text": "Bonn!", "tokens": [{"text": "Bonn", "start": 0, "end": 4, "id": 0}, {"text": "!", "start": 4, "end": 5, "id": 1}], "spans": [{"start": 0, "end": 4, "label": "LOC"}], "answer": "accept"}), "Bonn/B-LOC !/O"),
    "Label Studio, short": ("x.json", json.dumps([{"text": "Ann lives in Bonn", "label": [one["value"] for one in STUDIO]}]), ANN),
    "spaces in a span": ("x.jsonl", lines({"text": "in New York .", "label": [[2, 12, "LOC"]]}), "in/O New/B-LOC York/I-LOC ./O"),
    "a row a word": ("x.csv", "sentence_id,words,labels\n1,Ann,B-PER\n1,lives,O\n2,Bonn,B-LOC\n", "Ann/B-PER lives/O | Bonn/B-LOC"),
    "the id once a sentence": ("x.csv", 'Sentence #,Word,POS,Tag\nSentence: 1,Ann,NNP,B-PER\n,",",",",O\nSentence: 2,Bonn,NNP,B-LOC\n', "Ann/B-PER ,/O | Bonn/B-LOC"),
    "blank lines": ("x.csv", "word,tag\nAnn,B-PER\nlives,O\n\nBonn,B-LOC\n", "Ann/B-PER lives/O | Bonn/B-LOC"),
    "empty rows": ("x.csv", "word,tag\nAnn,B-PER\nlives,O\n,\nBonn,B-LOC\n", "Ann/B-PER lives/O | Bonn/B-LOC"),
    "tabs and names": ("x.tsv", "sent_id\ttoken\tner\n1\tAnn\tB-PER\n1\tlives\tO\n2\tBonn\tB-LOC\n", "Ann/B-PER lives/O | Bonn/B-LOC"),
    "names of columns on top": ("x.conll", "word tag\nAnn B-PER\nlives O\n\nBonn B-LOC\n", "Ann/B-PER lives/O | Bonn/B-LOC"),
    "CoNLL-U by another name": ("x.conll", "# text = a\n1\tAnn\t_\tPROPN\tNNP\t_\t0\troot\t_\t_\n2\tlives\t_\tVERB\tVBZ\t_\t0\troot\t_\t_\n", "Ann/PROPN lives/VERB"),
    "comments like rows": ("x.txt", "# s1\nAnn B-PER\nlives O\n\n# s2\nBonn B-LOC\n", "Ann/B-PER lives/O | Bonn/B-LOC"),
    "comments like rows, plain": ("x.txt", "# s1\nAnn NOUN\nlives VERB\n\n# s2\nBonn NOUN\n", "Ann/NOUN lives/VERB | Bonn/NOUN"),
    "comments, types as labels": ("x.txt", "# s1\nAnn PER\nlives O\n\n# s2\nBonn LOC\n# O\n", "Ann/PER lives/O | Bonn/LOC #/O"),
    "words like comments": ("x.txt", "# B-A\nlove O\n\n#a=b B-TAG\nworks O\n\nsee O\n#x=1 B-TAG\n", "#/B-A love/O | #a=b/B-TAG works/O | see/O #x=1/B-TAG"),
    "words like comments, tabs": ("x.tsv", "#\tB-A\nlove\tO\n\n#1=\tB-TAG\nok\tO\n", "#/B-A love/O | #1=/B-TAG ok/O"),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_layouts(name: str, tmp_path: Path) -> None:
    file, text, expected = READ[name]
    read = read_tagged(written(tmp_path, file, text)).sentences
    both = [" ".join(f"{word}/{label}" for word, label in zip(one.words, one.labels, strict=True)) for one in read]
    assert " | ".join(both) == expected
    assert all(one.place.startswith(str(tmp_path)) for one in read)


REFUSED: dict[str, tuple[str, str, str]] = {
    "several labels": ("x.jsonl", lines({"tokens": ["a"], "tags": ["A"], "labels": ["B"]}), "'tags', 'labels' could all be the labels. Name one: --label tags"),
    "too few labels": ("x.jsonl", lines({"tokens": ["a", "b"], "tags": ["A"]}), "x.jsonl:1: 2 words and 1 labels. Expected {\"tokens\": [...]"),
    "a label of the text": ("x.jsonl", lines({"text": "a b", "label": "good"}), "x.jsonl:1: words 'a b', labels 'good'. Expected {"),
    "outside of the text": ("x.jsonl", lines({"text": "abc", "label": [[0, 9, "X"]]}), "x.jsonl:1: span 0 to 9 is 'abc', and the text has 3 characters"),
    "not a span": ("x.jsonl", lines({"text": "abc", "label": [["a", 9, "X"]]}), "expected a start, an end and one type"),
    "no words": ("x.jsonl", lines({"id": 1, "tags": ["O"]}), "which column has the words, or the text? Its columns: 'id', 'tags'. Name it: --words COLUMN"),
    "a list": ("x.jsonl", "[1]\n", "x.jsonl:1: is [1]. Expected an object"),
    "nothing": ("x.json", "[]", "x.json: holds no sentences"),
    "no sentences": ("x.csv", "word,tag\nAnn,B-PER\nlives,O\n", "no column that numbers the sentences. Name it: --sentence-id COLUMN. Or leave a line blank"),
    "no names": ("x.csv", "Ann,B-PER\nlives,O\n", "which column has the words, or the text? Its columns: 'Ann', 'B-PER'"),
    "texts in columns": ("x.tsv", "Ann lives\tgood\nin Bonn\tbad\n", "column 1 holds texts, expected a word a line"),
    "labels in a text": ("x.jsonl", lines({"words": ["Ann", "lives"], "labels": "B-PER O"}), "x.jsonl:1: 2 words and 'B-PER O' labels. Expected {"),
    "spaCy 2": ("x.json", json.dumps([["Ann lives", {"entities": [[0, 3, "PER"]]}]]), "is not a list of objects. Expected {"),
    "Label Studio, whole": ("x.json", json.dumps([{"data": {"text": "Ann lives in Bonn"}, "annotations": [{"result": STUDIO}]}]), "Export it as JSON_MIN or CONLL2003"),
    "UTF-16 offsets": ("x.jsonl", lines({"text": "\U0001f600 Ann", "label": [{"start": 3, "end": 6, "text": "Ann", "labels": ["PER"]}]}), "x.jsonl:1: span 3 to 6 is 'nn', and the text has 5 characters. Expected characters from 0 (of Unicode"),
    "a row a sentence": ("x.csv", "word,labels\nAnn lives,B-PER O\n\nBonn,B-LOC\n", "x.csv:2: label 'B-PER O'. Expected a word a row; for a sentence a row: Expected {"),
    "Python's lists": ("x.csv", "id,tokens,tags\n1,\"['Ann']\",\"['B-PER']\"\n1,\"['Bonn']\",\"['B-LOC']\"\n", "x.csv:2: label \"['B-PER']\". Expected a word a row"),
    "spans in a cell": ("x.csv", "text,entities\nAnn lives,\"[(0, 3, 'PER')]\"\n", "x.csv:2: label \"[(0, 3, 'PER')]\". Expected a word a row"),
    "word/TAG": ("x.txt", "Ann/B-PER lives/O\n1/2/O Bonn/B-LOC\n", "x.txt: has a sentence a line, as word/TAG, which is not read. Write a word a line"),
    "word_TAG": ("x.txt", "Ann_NNP lives_VBZ ._.\nBonn_NNP is_VBZ ._.\n", "as word_TAG, which is not read"),
    "a column of numbers": ("x.conll", "1\tAnn\tB-PER\n2\tlives\tO\n\n1\tBonn\tB-LOC\n", "column 1 holds the numbers of the words. Name the column of the words: --words N"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_said_with_its_place(name: str, tmp_path: Path) -> None:
    file, text, message = REFUSED[name]
    with pytest.raises(ElectraError) as caught:
        read_tagged(written(tmp_path, file, text))
    assert message in str(caught.value) and str(tmp_path / file) in str(caught.value)


def test_notes(tmp_path: Path) -> None:
    """What was decided is said: borders within words, comments, parts of speech, words of spaces."""
    row = {"text": "The Bonnites of New York", "label": [[4, 8, "LOC"], [16, 24, "LOC"], [16, 19, "X"]]}
    assert read_tagged(written(tmp_path, "x.jsonl", lines(row))).notes == (
        "columns of x.jsonl: words = 'text', labels = 'label'.",
        "1 of 3 spans of x.jsonl begin or end within a word: the whole word is in the span (first 'Bonn' LOC at x.jsonl:1).",
        "1 of 3 spans of x.jsonl overlap a longer one, or hold no word: left out (first 'New' X at x.jsonl:1).",
    )
    (note,) = read_tagged(written(tmp_path, "x", "# s1\na N\nb V\n")).notes
    assert note == (
        "lines of x that begin with # are taken for comments: 1 with 2 columns and a label that no other line has "
        "(first at x:1, '# s1')."
    )
    words = [(1, "and", "CONJ"), (2, "Ann", "PROPN"), (3, " ", "SPACE")]
    text = "".join(f"{at}\t{form}\t_\t{tag}\tX\t_\t0\troot\t_\t_\n" for at, form, tag in words)
    path = written(tmp_path, "x.conllu", text)
    assert read_tagged(path).sentences[0].words == ("and", "Ann")
    assert read_tagged(path).notes == (
        "words of x.conllu that are spaces alone, as spaCy writes them: 1, left out.",
        "parts of speech that UD 2 does not have: CONJ (1 of 2 words, first at x.conllu:1). Read as they are.",
    )
    assert len(read_tagged(path, column="xpos").notes) == 1


NUMBERS = lines(
    {"tokens": ["Ann", "in", "Bonn"], "ner_tags": [1, 0, 3]}, {"tokens": ["Bonn", "City"], "ner_tags": [3, -100]}
)


def test_numbers_get_names(tmp_path: Path) -> None:
    """From a flag or a file; without names they stay numbers, with a note."""
    path = written(tmp_path, "x.jsonl", NUMBERS)
    written(tmp_path, "dev.jsonl", NUMBERS + "\n")

    def loaded(**fields: str) -> tuple[Tagging, tuple[str, ...]]:
        data = TaggingTask(train=path, dev=tmp_path / "dev.jsonl", **fields).load()  # type: ignore[arg-type]
        assert isinstance(data.task, Tagging)
        return data.task, data.notes

    task, notes = loaded()
    assert (task.labels, task.scheme) == (("0", "1", "3"), "none")
    assert (
        "labels are numbers without names, 0 to 3, and stay numbers. Name them from 0 on: --tag-names O,B-PER,I-PER"
        in notes
    )
    named = ["O", "B-PER", "I-PER", "B-LOC"]
    files = {"names.txt": "\n".join(named), "list.json": json.dumps(named)}
    for given in (",".join(named), *(str(written(tmp_path, name, text)) for name, text in files.items())):
        task, notes = loaded(tag_names=given)
        assert (task.labels, task.scheme) == (("B-LOC", "B-PER", "O"), "bio"), given
    with pytest.raises(DataError, match=r"x\.jsonl:1: label 3 has no name; --tag-names has 2, from 0\. Add it"):
        loaded(tag_names="O,B-PER")
    with pytest.raises(
        DataError, match=r"info\.json: holds no names of labels. Expected a name a line, or a JSON list"
    ):
        loaded(tag_names=str(written(tmp_path, "info.json", json.dumps({"features": {}}))))
    with pytest.raises(ConfigError, match=r"--tag-names: labels of .* are not numbers, such as 'B'. Leave it out"):
        with_names(read_tagged(written(tmp_path, "y", "a B\n")), read_names("O,B"))


COLUMNS = "#\thttps://example.org/1\t[2009]\n1\tAnn\tB-PER\tO\n2\tlebt\tO\tO\n\n1\tKöln\tB-LOC\tO\n2\t.\tO\tO\n"


def test_what_reading_needed_is_used_again(tmp_path: Path) -> None:
    """A file like the training file gives its words' column; running text is split like the training words."""
    data = TaggingTask(
        train=written(tmp_path, "a.tsv", COLUMNS), dev=written(tmp_path, "b.tsv", COLUMNS + "\n"), words="2", column="3",
        predict=written(tmp_path, "raw.txt", "Ann lebt in Köln.\nAnn kommt aus Kiel.\n"),
    ).load()  # fmt: skip
    assert data.columns == TagColumns(words="2", label="3", columns=4, split="punctuation")
    assert [one.words for one in data.test["test"]] == [
        ("Ann", "lebt", "in", "Köln", "."),
        ("Ann", "kommt", "aus", "Kiel", "."),
    ]
    assert (
        "raw.txt: running text, a sentence a line, split into words like the training data (punctuation)." in data.notes
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
    assert words("new.csv", 'id,text\n1,"Ann, lebt."\n') == [("Ann", ",", "lebt", ".")]
    assert words("new.jsonl", lines({"text": "Ann lebt."}, {"text": "Ja"})) == [("Ann", "lebt", "."), ("Ja",)]
    assert words("new.jsonl", lines({"tokens": ["Ann", "lebt."]})) == [("Ann", "lebt.")]
    with pytest.raises(DataError, match="column 2 holds texts"):
        words("new.tsv", "1\tAnn lebt in Kiel\n2\tBernd lebt in Köln\n")


def split(text: str, like: str) -> str:
    from electra_trainer.finetuning.examples import TaggedSentence

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


def test_text_that_cannot_be_split_is_refused(tmp_path: Path) -> None:
    like = TagColumns(columns=2, split="unknown")
    path = written(tmp_path, "x.txt", "我们在学校。\n")
    with pytest.raises(
        DataError, match=r"x\.txt: is running text, and the model learned words of a script without spaces"
    ):
        read_tagged(path, labelled=False, like=like, known=("n", "v"))
    assert read_tagged(written(tmp_path, "x.txt", "我们\n在\n学校\n"), labelled=False, like=like).sentences[
        0
    ].words == ("我们", "在", "学校")
