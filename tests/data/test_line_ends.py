"""Control characters part words, and LF, CR LF and CR end lines, wherever text is read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command import Electra
from tests.data.samples import sentences

from electra_trainer.data.corpus import CorpusReport, Reading, documents
from electra_trainer.data.encode import decoded, encoder
from electra_trainer.data.tokenizer import Text, load_tokenizer, save_tokenizer, statistics
from electra_trainer.data.vocabulary import add_words, train_tokenizer
from electra_trainer.files.sources import Texts

CONTROLS = [chr(code) for code in (*range(1, 9), 11, 12, *range(14, 32), *range(127, 160))]
LINES = ["the dog ran", "the cat sat on a mat", "end of the line"]


@pytest.fixture(scope="module")
def words() -> Any:
    return train_tokenizer(LINES * 5, vocab_size=256)


@pytest.mark.parametrize("nfc", [False, True])
def test_every_control_character_is_a_space(nfc: bool) -> None:
    """In rows, in texts and sentences of words, in counts, in training; offsets stay."""
    joined = [line.replace(" ", sign) for line in LINES for sign in CONTROLS]
    spaced = [line for line in LINES for _ in CONTROLS]
    words = train_tokenizer(joined, vocab_size=256, nfc=nfc)
    assert words.to_str() == train_tokenizer(spaced, vocab_size=256, nfc=nfc).to_str()
    for ours, wanted in zip(
        *(decoded(encoder(words)("\n".join(each).encode())) for each in (joined, spaced)), strict=True
    ):
        assert np.array_equal(ours, wanted)
    text = Text.of(words, length=9)
    assert text.ids(joined) == text.ids(spaced)
    assert text.encode(joined)[0].offsets == text.encode(spaced)[0].offsets
    assert [one.ids for one in text.encode_words([joined])] == [one.ids for one in text.encode_words([spaced])]
    found, wanted = statistics(words, joined), statistics(words, spaced)
    assert (found.words, found.tokens) == (wanted.words, wanted.tokens) and wanted.glued_line() == ""
    assert found.glued == len(CONTROLS) * sum(line.count(" ") for line in LINES)


def test_what_parts_no_words_is_passed_over(words: Any) -> None:
    lines = ["\x0cthe dog\x1f", "the\t\x0b dog.\x0cthe", "a\u00adb\u200bc \u2028 \u0085 d"]
    assert statistics(words, lines).glued == 0
    assert add_words(words, ["dogs"])[1].endswith("the tokenizer splits 0")
    split = add_words(words, ["dogs", "co\x0bvid", "x-1", "a b", "c d"])[1]
    assert split.endswith("the tokenizer splits 4: 'co\\x0bvid', 'x-1', 'a b', ...")


def test_the_verbs_say_it(electra: Electra, tmp_path: Path) -> None:
    glued = [line.replace(" ", "\x0b", 1) for line in sentences(80)]
    (tmp_path / "a.txt").write_text("\n\n".join(glued), encoding="utf-8")
    code, out, _ = electra("tokenizer", tmp_path / "a.txt", "--vocab-size", 1000, "--out", tmp_path / "tok")
    said = "of the words and are read as spaces; BERT's tokenizers of transformers delete them, so write spaces there"
    assert code == 0 and "control characters alone part " in out and said in out
    tokenizer = ("--tokenizer", tmp_path / "tok")
    code, out, _ = electra("prepare", tmp_path / "a.txt", *tokenizer, "--seq-len", 16, "--out", tmp_path / "data")
    assert code == 0 and said in out
    code, out, _ = electra("prepare", tmp_path / "a.txt", *tokenizer, "--dry-run")
    assert code == 0 and said in out and "lines with control characters: " in out


def test_spaces_give_the_ids_of_transformers(tmp_path: Path, words: Any) -> None:
    """An export has the ids of transformers on any line that has spaces where control characters were."""
    transformers = pytest.importorskip("transformers")
    save_tokenizer(words, tmp_path, max_length=16)
    lines = ["the\x0bdog\x85ran", "end\x0cthe"]
    mine = Text.of(load_tokenizer(tmp_path), length=16).ids(lines)
    for kind in (transformers.AutoTokenizer, transformers.BertTokenizer):
        theirs = kind.from_pretrained(tmp_path)
        spaced = [line.translate(dict.fromkeys(map(ord, CONTROLS), " ")) for line in lines]
        assert theirs(spaced, add_special_tokens=False)["input_ids"] == mine


ENDS = {
    "LF": ["\n"], "CR LF": ["\r\n"], "CR": ["\r"], "CR CR LF": ["\r\r\n"], "mixed": ["\n", "\r\n", "\r"],
}  # fmt: skip


@pytest.mark.parametrize("ends", ENDS.values(), ids=[*ENDS])
def test_line_ends(tmp_path: Path, ends: list[str]) -> None:
    """Documents are the same whatever ends the lines: in text, in JSON lines and in a text of a record."""
    lines = [f"line {number}, é" if number % 5 else "" for number in range(31)]
    each = [ends[number % len(ends) if number % 5 in (1, 2, 3) else 0] for number in range(31)]  # CR, LF is one end
    text = "".join(line + end for line, end in zip(lines, each, strict=True))
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    (tmp_path / "a.jsonl").write_bytes("".join(f'{{"text": "{line}"}}{ends[-1]}' for line in lines).encode())

    def read(what: Any, boundary: Any) -> list[tuple[str, ...]]:
        return [*map(tuple, documents([what], report=CorpusReport(), reading=Reading(boundary=boundary)))]

    kept = [line for line in lines if line]
    assert read(tmp_path / "a.txt", "line") == read(tmp_path / "a.jsonl", "line") == [(line,) for line in kept]
    assert read(tmp_path / "a.txt", "blank") == [tuple(kept[at : at + 4]) for at in range(0, len(kept), 4)]
    assert read(tmp_path / "a.txt", "file") == read(Texts([text]), "blank") == [tuple(kept)]
    places = [one.place.line for one in documents([tmp_path / "a.txt"], report=CorpusReport())]
    assert places == [2, 7, 12, 17, 22, 27]
