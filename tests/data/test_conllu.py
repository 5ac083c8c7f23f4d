"""A treebank is read whole or not at all."""

from pathlib import Path

import pytest

from electra_trainer.data.conllu import UPOS, read_conllu, treebank_file
from electra_trainer.errors import DataError, MissingInputError


def line(name: str, form: str = "word", upos: str = "NOUN", xpos: str = "NN") -> str:
    return "\t".join([name, form, form, upos, xpos, "_", "0", "root", "_", "_"])


def write(path: Path, *lines: str, end: str = "\n\n") -> Path:
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return path


def test_reads_words_and_leaves_out_what_is_none(tmp_path: Path) -> None:
    """Multiword tokens and empty nodes are no words; "_" is no tag; a byte-order mark and CRLF do no harm."""
    lines = ["# text = don't go", line("1-2", "don't", "_", "_"), line("1", "do", "AUX"), line("2", "n't", "PART"), line("2.1", "x", "VERB"),
             line("3", "go", "_", "_"), "", "", "# a", "# b", line("1", "Straße"), ""]  # fmt: skip
    path = tmp_path / "x.conllu"
    path.write_bytes("\ufeff".encode() + "\r\n".join([*lines, ""]).encode())
    first, second = read_conllu(path)
    assert [(w.form, w.upos, w.xpos) for w in first] == [("do", "AUX", "NN"), ("n't", "PART", "NN"), ("go", None, None)]
    assert [w.form for w in second] == ["Straße"]
    assert (first[0].line, second[0].line) == (3, 11)


WRONG: dict[str, tuple[list[str], str, list[str]]] = {
    "columns": ([line("1"), "2\tword\tNOUN"], "\n\n", [":2:", "expected 10 fields", "found 3"]),
    "spaces": (["1  word  word  NOUN"], "\n\n", [":1:", "found 1", "no tabs"]),
    "number": ([line("1"), line("3")], "\n\n", [":2:", "word number '3'", "expected 2"]),
    "leading zero": ([line("01")], "\n\n", ["word number '01'"]),
    "begins at 0": ([line("0")], "\n\n", ["expected 1"]),
    "tag": ([line("1", upos="NOUNS")], "\n\n", [":1:", "'NOUNS'", "Did you mean 'NOUN'?"]),
    "xpos for upos": ([line("1", upos="vb")], "\n\n", ["unknown part of speech 'vb'"]),
    "empty field": ([line("1", form="")], "\n\n", [":1:", "field 2 is empty"]),
    "a missing blank line": ([line("1"), line("1")], "\n\n", [":2:", "word number '1': expected 2", "blank line"]),
    "cut in a line": ([line("1"), "", line("1")[:9]], "", [":3:", "expected 10 fields"]),
    "nothing": ([], "", ["holds no sentences"]),
    "blank": (["", ""], "\n", ["holds no sentences"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_says_what_is_wrong_and_where(name: str, tmp_path: Path) -> None:
    lines, end, words = WRONG[name]
    path = write(tmp_path / "x.conllu", *lines, end=end)
    with pytest.raises(DataError) as caught:
        read_conllu(path)
    assert str(path) in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_what_programs_write_is_read(tmp_path: Path) -> None:
    """No blank line and no line end at the end, numbers that continue or are _, words of spaces, parts of speech of their own."""
    lines = [line("1", "Dogs"), line("2", "bark", "VERB"), "", line("3", "Cats"), line("4-5", "can't"), line("4", "ca", "AUX"), line("5", "n't"), "",
             line("_", "and", "CONJ"), line("2", " ", "SPACE", "_SP"), line("2.1", "x"), line("3", "so", "_", "RB")]  # fmt: skip
    for end in ("", "\n", "\n\n", "\r\n"):
        found = read_conllu(write(tmp_path / "x.conllu", *lines, end=end), own_upos=True)
        assert [[word.form for word in one] for one in found] == [
            ["Dogs", "bark"],
            ["Cats", "ca", "n't"],
            ["and", " ", "so"],
        ]
        assert [word.upos for word in found[2]] == ["CONJ", "SPACE", None]
    with pytest.raises(DataError, match="unknown part of speech 'CONJ'"):
        read_conllu(tmp_path / "x.conllu")
    with pytest.raises(DataError, match=r":2: word number '5': expected 2, or a blank line before it"):
        read_conllu(write(tmp_path / "x.conllu", line("1"), line("5")))


def test_bytes_and_absence(tmp_path: Path) -> None:
    (tmp_path / "x.conllu").write_bytes(line("1").encode() + b"\n" + line("2").encode()[:4] + b"\xff\n\n")
    with pytest.raises(DataError, match=r"x\.conllu:2: not UTF-8 at byte 5 of the line"):
        read_conllu(tmp_path / "x.conllu")
    with pytest.raises(MissingInputError, match="none"):
        read_conllu(tmp_path / "none.conllu")


def test_finds_the_file_of_a_split(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="no such folder"):
        treebank_file(tmp_path / "none", "train")
    (tmp_path / "en_ewt-ud-train.conllu").touch()
    (tmp_path / "en_ewt-ud-dev.conllu").touch()
    (tmp_path / "constrained-ud-test.conllu").touch()
    assert treebank_file(tmp_path, "train").name == "en_ewt-ud-train.conllu"
    assert treebank_file(tmp_path, "test").name == "constrained-ud-test.conllu"
    (tmp_path / "de_gsd-ud-dev.conllu").touch()
    with pytest.raises(DataError, match="several dev files"):
        treebank_file(tmp_path, "dev")


def test_the_real_treebank(shared: Path) -> None:
    """The counts of UD English-EWT's own statistics."""
    folder = shared / "data" / "tagging" / "ud-english-ewt"
    if not folder.is_dir():
        pytest.skip("needs shared/data/tagging")
    sentences = read_conllu(treebank_file(folder, "dev"))
    words = [word for sentence in sentences for word in sentence]
    assert len(sentences) == 2001 and len(words) > 25_000
    assert {word.upos for word in words} == set(UPOS)
