"""Column files are read whole, or an error says which line and what to do."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from electra_trainer.errors import ConfigError, DataError, ElectraError, MissingInputError
from electra_trainer.tasks.tagged_files import Tagged, read_tagged


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def pairs(read: Tagged) -> list[list[tuple[str, str | None]]]:
    return [list(zip(sentence.words, sentence.labels, strict=True)) for sentence in read.sentences]


def test_conll_2003(tmp_path: Path) -> None:
    """Spaces, documents, a file without a last line end; "#" is a word where it has as many columns."""
    text = (
        "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\n-DOCSTART- -X- O O\n\n# # I-NP O\n1 CD I-NP _"
    )
    path = write(tmp_path / "eng.train", text)
    found = read_tagged(path)
    assert pairs(found) == [[("EU", "I-ORG"), ("rejects", "O")], [("#", "O"), ("1", None)]]
    assert [sentence.lines for sentence in found.sentences] == [(3, 4), (9, 10)]
    assert (found.sentences[1].place, found.sentences[1].place_of(1)) == (f"{path}:9", f"{path}:10")
    assert pairs(read_tagged(path, column=2))[0] == [("EU", "NNP"), ("rejects", "VBZ")]
    assert pairs(read_tagged(path, words=2, column="3"))[0] == [("NNP", "I-NP"), ("VBZ", "I-VP")]
    assert pairs(read_tagged(path, labelled=False))[0] == [("EU", None), ("rejects", None)]


def test_tabs_comments_and_line_ends(tmp_path: Path) -> None:
    """A byte-order mark, CRLF, comments before sentences, words with spaces and line separators in them, columns before the word."""
    text = "\ufeff# id 7\tdomain=en\r\n# made by hand\r\n1\t10 000\tNUM\r\n2\t\u2028\tX\r\n \r\n#\r\n3\t#tag\tX\r\n4\t\xa0\tX \r\n"
    assert pairs(read_tagged(write(tmp_path / "x.tsv", text), words=2)) == [
        [("10 000", "NUM"), ("\u2028", "X")],
        [("#tag", "X"), ("\xa0", "X")],
    ]


@pytest.mark.parametrize(
    "comment",
    [
        "# a b",
        "#",
        "# sent_id = 1",
        "#text=x",
        "# id 5239d808-f300 domain=en",
        "# id 5239d808-f300\tdomain=en",
        "# = y z",
    ],
)
def test_comments(comment: str, tmp_path: Path) -> None:
    """Also those with as many fields as there are columns."""
    path = write(tmp_path / "x", f"{comment}\nthe _ _ O\ncat _ _ O\n\n{comment}\na _ _ O\n")
    assert [sentence.words for sentence in read_tagged(path).sentences] == [("the", "cat"), ("a",)]


def test_words_alone_can_be_predicted(tmp_path: Path) -> None:
    path = write(tmp_path / "x", "# a comment\nthe\n#\n\ncat\n")
    assert pairs(read_tagged(path, labelled=False, words=2)) == [[("the", None), ("#", None)], [("cat", None)]]


HEADS: dict[str, tuple[str, bool, list[str], int]] = {
    "a label of no other line": ("#Ernte B-EVT\nam O\n\nAnn B-PER\n", True, ["#Ernte am", "Ann"], 0),
    "a word without a label": ("#Ernte _\nam O\n\nAnn B-PER\n", True, ["#Ernte am", "Ann"], 0),
    "# alone": ("# B-EVT\nam O\n\nAnn B-PER\n", True, ["# am", "Ann"], 0),
    "parts of speech": ("#Ernte HASH\nam ADP\n\n#harvest HASH\nAnn N\n", True, ["#Ernte am", "#harvest Ann"], 0),
    "words alone": ("#Ernte\nam\n\n#\nAnn\n", False, ["#Ernte am", "# Ann"], 0),
    "all begin with #": ("#Ernte\n#harvest\n\n#x\n", False, ["#Ernte #harvest", "#x"], 0),
    "comments": ("# s1\nAnn B-PER\nis O\n\n#id=2 x\n#text=Bonn is big\nBonn B-LOC\n", True, ["Ann is", "Bonn"], 3),
    "numbered comments": ("#id 1\nAnn N\n\n#id 2\nBonn N\n", True, ["Ann", "Bonn"], 2),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_line_that_begins_with_hash_is_a_word_if_it_can_be_one(name: str, tmp_path: Path) -> None:
    text, labelled, sentences, comments = HEADS[name]
    read = read_tagged(write(tmp_path / "x.txt", text), labelled=labelled)
    assert [" ".join(one.words) for one in read.sentences] == sentences
    assert read.comments == comments and ("comment" in read.counted()) == (comments > 0)


@pytest.mark.parametrize("end", ["\r", "\r\n", "\r\r\n"])
def test_ends_of_lines(end: str, tmp_path: Path) -> None:
    text = "Ann B-PER\nis O\n\nBonn B-LOC\n".replace("\n", end)
    assert pairs(read_tagged(write(tmp_path / "x", text))) == [[("Ann", "B-PER"), ("is", "O")], [("Bonn", "B-LOC")]]
    treebank = conllu("go/VERB", "on/ADP") + conllu("stop/VERB")
    assert len(read_tagged(write(tmp_path / "x.conllu", treebank.replace("\n", end))).sentences) == 2


def test_a_missing_blank_line_is_named_and_its_command_adds_it(tmp_path: Path) -> None:
    """Where full stops end sentences; -DOCSTART- and lines of spaces part them too."""
    sentence = "Ann B-PER\nsaw O\nBonn B-LOC\n. O\n"
    numbered = "".join(f"{at // 4} {line}\n" for at, line in enumerate((sentence * 20).splitlines()))
    tabbed = (sentence * 20).replace(" ", "\t").replace("saw", "has seen")
    for number, (text, words) in enumerate([(sentence * 20, 1), (numbered, 2), (tabbed, 1)]):
        path = write(tmp_path / f"{number}.txt", text)
        with pytest.raises(
            DataError, match=r"no blank line in 80 lines, 20 full stops.* with full stops: awk"
        ) as caught:
            read_tagged(path, words=words)
        command = str(caught.value).partition("full stops: ")[2]
        subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
        found = read_tagged(tmp_path / "NEW.txt", words=words)
        assert [len(one.words) for one in found.sentences] == [4] * 20 and not found.notes
        assert [len(one.words) for one in read_tagged(path, words=words, labelled=False).sentences] == [80]
    (note,) = read_tagged(write(tmp_path / "b.txt", (sentence * 20 + "\n") * 3)).notes
    assert "warning:" in note and "3 blocks between blank lines in 240 lines, 60 full stops" in note
    for gap in ("\n", " \n", "\t \n", "-DOCSTART- O\n"):
        assert not read_tagged(write(tmp_path / "c.txt", (sentence + gap) * 20)).notes


def conllu(*words: str) -> str:
    lines = ["1-2\tx\t_\t_\t_\t_\t_\t_\t_\t_"]
    lines += [
        f"{index}\t{word}\t_\t{tag}\t_\tNumber=Sing\t0\troot\t_\t_"
        if index == 1
        else f"{index}\t{word}\t_\t{tag}\tNN\t_\t1\tdep\t_\t_"
        for index, (word, tag) in enumerate((word.split("/") for word in words), start=1)
    ]
    return "\n".join(["# text", *lines, "", ""])


def test_treebanks(tmp_path: Path) -> None:
    path = write(tmp_path / "x.conllu", conllu("do/AUX", "n't/PART") + conllu("go/VERB", "on/_"))
    found = read_tagged(path)
    assert pairs(found) == [[("do", "AUX"), ("n't", "PART")], [("go", "VERB"), ("on", None)]]
    assert [sentence.lines for sentence in found.sentences] == [(3, 4), (8, 9)]
    assert [read_tagged(path, column=name).sentences[0].labels for name in ("xpos", "feats", "deprel")] == [
        (None, "NN"), ("Number=Sing", "_"), ("root", "dep"),
    ]  # fmt: skip
    assert read_tagged(path, column="7", labelled=False).sentences[1].labels == (None, None)
    with pytest.raises(ConfigError, match="label column 'UPOS': expected upos"):
        read_tagged(path, column="UPOS")
    with pytest.raises(ConfigError, match="label column '4': expected upos"):
        read_tagged(path, column=4)


WRONG: dict[str, tuple[str, list[str]]] = {
    "too few": ("a O\nb\n", [":2: expected 2 columns, as line 1 has, found 1"]),
    "too many": ("a O\nNew York B-LOC\n", [":2: expected 2 columns", "found 3", "a word with a space needs tabs"]),
    "spaces for tabs": (
        "# x\na\tO\n\nb    O\n",
        [":4: expected 2 columns, as line 2 has, found 1", "Tabs separate them"],
    ),
    "a tab too many": ("a\tO\nb\tO\t\n", [":2: expected 2 columns", "found 3"]),
    "a comment within": ("a O\n# one two\n", [":2: expected 2 columns", "before a sentence only"]),
    "empty label": ("a\tO\nb\t\n", [":2: expected 2 columns", "none may be empty", "an unknown label is _"]),
    "an empty last column": ("a\tb\tO\t\n", [":1: expected 4 columns, as line 1 has, but column 4 is empty"]),
    "empty word": ("a\tO\n\tO\n", [":2: expected 2 columns", "none may be empty"]),
    "one column": ("a\nb\n", [":1: has 1 column;", "expected on each line"]),
    "names of columns": ("Token\tUPOS\na\tDET\n", [":1: 'Token', 'UPOS' are names of columns. Delete the line."]),
    "names of columns, spans": ("word tag\na O\n", ["are names of columns"]),
    "commas": ("a,O\nb,O\n", [":1: has 1 column;", "with tabs or spaces between, no commas."]),
    "commas and spaces, .csv": ("Sentence: 1,a,O\nSentence: 1,b,O\n", [":1: has 1 column;", "no commas."]),
    "nothing": ("", ["holds no sentences", "a word a line"]),
    "blank": (" \n\t\n\r\n", ["holds no sentences"]),
    "documents only": ("-DOCSTART- -X- O O\n\n", ["holds no sentences"]),
    "comments only": ("# a\n# b\n", ["holds no sentences"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_says_what_is_wrong_and_where(name: str, tmp_path: Path) -> None:
    text, words = WRONG[name]
    path = write(tmp_path / ("x.csv" if name.endswith(".csv") else "x.txt"), text)
    with pytest.raises(DataError) as caught:
        read_tagged(path)
    assert str(caught.value).startswith(str(path))
    for word in words:
        assert word in str(caught.value)


def test_names_of_columns_in_a_file_to_be_tagged(tmp_path: Path) -> None:
    path = write(tmp_path / "x.conll", "word\ttag\na\tO\n")
    with pytest.raises(DataError, match="are names of columns"):
        read_tagged(path, labelled=False)
    assert read_tagged(write(path, "word\tO\na\tO\n")).sentences[0].words == ("word", "a")
    with pytest.raises(DataError, match=":2: expected 1 columns"):  # a table of texts has no words to be tagged
        read_tagged(write(tmp_path / "x.csv", "text,label\nAnn is here,x\n"), labelled=False)


def test_columns_that_cannot_be(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", "\na O\n")
    for wrong in ({"column": 3}, {"words": 4}, {"words": 2}):
        with pytest.raises(
            DataError, match=r"x\.txt:2: has 2 columns; expected on each line the word in .* --words 1 --label 2"
        ):
            read_tagged(path, **wrong)  # type: ignore[arg-type]
    for column in ("0", "-1", "first", "²", 1.5, "upos"):
        with pytest.raises(ConfigError, match="expected a number counted from 1"):
            read_tagged(path, column=column)  # type: ignore[arg-type]


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


PIECES = st.sampled_from([b"a", b"O", b"B-X", b" ", b"\t", b"\n", b"\n\n", b"\r\n", b"#", b"# x = y", b"=", b"_", b"-DOCSTART-",
                          b"\xef\xbb\xbf", b"\xc3\xa4", b"\xff", b"\x00", b"1\tw\t_\tNOUN\t_\t_\t0\troot\t_\t_\n"])  # fmt: skip


@given(
    data=st.one_of(st.binary(max_size=60), st.lists(PIECES, max_size=14).map(b"".join)),
    name=st.sampled_from(["x.txt", "x.conllu"]),
    labelled=st.booleans(),
)
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_are_sentences_or_an_error(data: bytes, name: str, labelled: bool, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    try:
        found = read_tagged(path, labelled=labelled).sentences
    except ElectraError as error:
        assert str(path) in str(error)
        return
    lines = [part for line in data.decode().split("\n") for part in line.rstrip("\r").split("\r")]
    assert found and all(sentence.words for sentence in found)
    for sentence in found:
        for word, number, label in zip(sentence.words, sentence.lines, sentence.labels, strict=True):
            assert word.strip(" ") == word != "" and word in lines[number - 1]
            assert label is None or (labelled and label in lines[number - 1])


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
