"""`electra prepare --dry-run`: its lines agree with the corpus."""

import gzip
import random
import unicodedata
from pathlib import Path

import pytest
from tests.command import Electra
from tests.data.samples import sentences

from electra_trainer.data.corpus import Sampled
from electra_trainer.data.survey import Sample, survey
from electra_trainer.errors import MissingInputError
from electra_trainer.files.sources import Texts


def page(*texts: str) -> str:
    return "\n".join(survey([Texts(texts)]).page())


def test_copies_and_repeated_lines() -> None:
    texts = [f"text {number}\nread more" for number in range(90)] + ["a copy"] * 10
    said = page(*texts)
    assert (
        "copies: 9.0 % of the documents are whole copies of an earlier one, 10 times the text at documents:91" in said
    )
    assert "the commonest: 90 x 'read more', 10 x 'a copy'" in said
    assert f"repeated lines: {100 * (190 - 92) / 190:.1f} %" in said


def test_what_a_vocabulary_would_drop() -> None:
    said = page(*["Das ist schön", "schon gut", "mußte", "der Bär"] * 5)
    assert "capitals: in 25.0 % of the words" in said
    assert "accents: in 25.0 % of the words" in said and "lose them unless you give --keep-accents" in said
    assert "accents: in fewer than one word of a thousand" in page("plain words")


def test_languages() -> None:
    english = [f"The dog number {n} ran over the road and barked at the children." for n in range(3)]
    said = page(*english, "Der Hund lief über die Straße und bellte die Kinder an.", "12 34")
    assert "languages, guessed from 4 documents: en 75.0 %, de 25.0 %" in said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("<p>a</p>", "HTML"), ("a &amp; b", "HTML"), ("schÃ¶n", "wrong encoding"), ("\ufffd", "wrong encoding"), ("[[Link]]", "wiki markup"),
        ("a\x07b", "control characters"), ("https://example.org/a", "addresses"),
    ],
)  # fmt: skip
def test_traces_of_bad_conversion(line: str, words: str) -> None:
    said = page("a sound line\n" * 3 + line)
    assert f"{words}" in said and ": 25.0 %; the first at documents:1: " in said
    assert words not in page("a < b > c & d, 3 == 3, ä ö [x] {y} https://example.org is here")


def test_a_full_sample_is_halved_and_says_the_same() -> None:
    """Shares of copies, measured on a fraction of the texts."""
    draw = random.Random(1)
    texts = [f"text {draw.randrange(20_000)}" for _ in range(30_000)]
    copies = 1 - len(set(texts)) / len(texts)
    small = Sample(1000)
    for text in texts:
        small.add(text, text)
    assert small.of >= 16 and len(small.values) <= 1000
    assert 1 - len(small.values) / sum(times for times, _ in small.values.values()) == pytest.approx(copies, abs=0.04)


def test_the_verb(electra: Electra, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\n\n".join(sentences(50)).encode() + b"\n\nna\xefve\n")
    code, out, _ = electra("prepare", tmp_path, "--dry-run")
    assert code == 0
    assert "1 lines with bad text: bytes that are not UTF-8 (first: " in out
    for word in ("documents, ", "copies: ", "repeated lines: ", "languages, guessed", "capitals: ", "accents: "):
        assert word in out
    (tmp_path / "b.txt").write_bytes(gzip.compress(b"text"))
    code, out, err = electra("prepare", tmp_path, "--dry-run")
    assert code == 65 and "cannot be used: " in out and "compressed, and its name" in out and "1 of the inputs" in err
    assert {one.name for one in tmp_path.iterdir()} == {"a.txt", "b.txt"}
    assert "50 documents" in out  # the others are read all the same
    code, _, err = electra("prepare", tmp_path, "--out", tmp_path / "data")
    assert code == 78 and "give --tokenizer TOK and --out DATA, or --dry-run" in err


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError):
        survey([tmp_path / "nothing"])


@pytest.mark.parametrize(
    ("text", "said", "unsaid"),
    [
        ("Işıklı kıyıda İzmir'in ılık akşamı çok güzel, kızlar şarkı söylüyor. ", "give --cased to `electra tokenizer`", "unless you give --keep-accents"),
        ("Das große Haus über dem Fluß ist schön und die Tür fährt früh auf. ", "unless you give --keep-accents or --cased", "lower-cases I"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_the_advice_for_a_language_in_both_normal_forms(form: str, text: str, said: str, unsaid: str) -> None:
    found = page(*[f"{number}: {unicodedata.normalize(form, text * 3)}" for number in range(9)])
    assert said in found and unsaid not in found
    assert "languages, guessed from 9 documents: tr 100.0 %" in found or "de 100.0 %" in found


def test_a_long_line_weighs_as_many_short_ones() -> None:
    """Half of the text in one line is half of the sample, whatever its size."""
    many = Sampled(most=100)
    many.add(["short words " * 100] * 100)
    many.add(["привет мир " * 12_000])
    shares = sum(line.startswith("short") for line in many.lines) / len(many.lines)
    assert 0.4 < shares < 0.7 and max(map(len, many.lines)) <= 2000


def test_a_ruler_is_not_a_heading() -> None:
    assert "wiki markup" not in page("=" * 4000 + "x") + page("=" * 80) + page("==")
    assert "wiki markup" in page("== Heading ==") and "wiki markup" in page("==A==")
