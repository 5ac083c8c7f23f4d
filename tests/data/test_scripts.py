"""Own vocabularies read every script, and what they cannot read is counted by letters."""

import json
import random
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from tests.command import Electra
from tests.data.scripts import lines_of

from electra_trainer.data.corpus import Sampled
from electra_trainer.data.encode import Words, decoded, encoder
from electra_trainer.data.legibility import Legibility, is_letter
from electra_trainer.data.survey import survey
from electra_trainer.data.tokenizer import Text, as_plain_text, save_tokenizer, specials_of, statistics, tokenizer_files
from electra_trainer.data.vocabulary import train_tokenizer

SCRIPTS = ("chinese", "japanese", "korean", "thai", "hindi", "arabic", "hebrew", "russian")


@pytest.mark.parametrize(
    ("script", "mixed"), [*((script, False) for script in SCRIPTS), ("chinese", True), ("russian", True)]
)
def test_letters_are_readable(script: str, mixed: bool) -> None:
    """With the default settings, and with capitals in a smaller vocabulary; alone or with English."""
    own = lines_of(script, count=200)
    lines = own + (lines_of("english", count=100) if mixed else [])
    for options in ({"vocab_size": 30_522}, {"vocab_size": 4000, "cased": True}):
        tokenizer = train_tokenizer(lines, **options)
        found = statistics(tokenizer, own)
        assert tokenizer.get_vocab_size() <= options["vocab_size"]
        assert found.letters > 5_000 and found.unreadable_rate <= 0.01, options


def letters_lost(tokenizer: Any, text: str) -> int:
    """Letters that the normaliser removes; Hangul in parts is whole."""
    normal = unicodedata.normalize("NFC", tokenizer.normalizer.normalize_str(text))
    return sum(map(is_letter, unicodedata.normalize("NFC", text))) - sum(map(is_letter, normal))


@pytest.mark.parametrize("script", [*SCRIPTS, "english"])
def test_marks_that_are_part_of_a_script_are_kept(script: str) -> None:
    lines = [*lines_of(script, count=120), "naïve café"]
    tokenizer = train_tokenizer(lines, vocab_size=3000)
    assert [letters_lost(tokenizer, line) for line in lines] == [0] * len(lines)
    latin = tokenizer.normalizer.normalize_str("Naïve")
    keeps = script not in ("chinese", "korean", "hebrew", "english")
    assert latin == ("naïve" if keeps else "naive"), "uncased vocabularies of other scripts are as they were"
    assert train_tokenizer(lines, vocab_size=3000, keep_accents=False).normalizer.normalize_str("ïガ") in "iカ"


def test_rare_characters_are_read_where_there_is_room() -> None:
    """Chinese has no longer pieces, so its characters may have the whole vocabulary."""
    lines = lines_of("chinese", count=200)
    needed = 5 + len({character for line in lines for character in line})
    whole, small = (train_tokenizer(lines, vocab_size=size) for size in (needed, needed - 300))
    assert whole.get_vocab_size() == needed and statistics(whole, lines).unreadable == 0
    assert small.get_vocab_size() == needed - 300 and 0 < statistics(small, lines).unreadable_rate < 0.1


def test_a_sentence_without_spaces_is_read() -> None:
    """Thai writes whole sentences as one word; BERT's limit is 200 characters."""
    long = ["".join(line.split()) * 8 for line in lines_of("thai", count=40)]
    assert min(map(len, long)) > 200
    assert statistics(train_tokenizer(long, vocab_size=1000), long).unreadable == 0
    proteins = ["ACDEFGHIKLMNPQRSTVWY" * 15, "YWVTSRQPNMLKIHGFEDCA" * 20] * 3
    assert statistics(train_tokenizer(proteins, vocab_size=300), proteins).unreadable == 0
    english = ["a" * 300, *lines_of("english", count=300)] * 2
    assert train_tokenizer(english, vocab_size=400).model.max_input_chars_per_word == 100


def test_both_normal_forms_are_one_with_nfc() -> None:
    both = ["café über çağ", unicodedata.normalize("NFD", "café über çağ"), "= \u0338 x=\u0338 a.\u0301b >\u0338"] * 20
    tokenizer = train_tokenizer(both, vocab_size=400, cased=True, nfc=True)
    plain = as_plain_text(tokenizer)
    composed, decomposed = plain.encode(both[0]), plain.encode(both[1])
    assert composed.tokens == decomposed.tokens == ["café", "über", "çağ"]
    assert Words.can_cut(plain)
    config = json.loads(tokenizer_files(tokenizer, max_length=8)["tokenizer_config.json"])
    assert config["do_lower_case"] is config["strip_accents"] is False, "BERT's classes would lower-case it"
    ids, _ = decoded(encoder(tokenizer)("\n".join(both).encode()))
    assert ids.tolist() == [number for line in both for number in plain.encode(line, add_special_tokens=False).ids]
    other = as_plain_text(train_tokenizer(both, vocab_size=400, cased=True))
    assert other.encode(both[0]).tokens != other.encode(both[1]).tokens


def test_unreadable_letters_are_counted_not_tokens() -> None:
    tokenizer = train_tokenizer(["the cat sat on the mat"] * 20, vocab_size=256)
    line = "ภาษาไทยที่ยาว" * 5  # one token
    found = statistics(tokenizer, ["the cat", line, "the ☃"])
    assert (found.unknown, found.unreadable) == (2, len(line))
    assert found.letters == len(line) + 9 and found.is_much
    assert found.unreadable_line().endswith(
        "and 100.0 % of the symbols and punctuation marks are unreadable ([UNK]), for example 'ภาษาไทยที่ยาวภาษาไทย…', '☃'"
    )
    text = Text(
        tokenizer=as_plain_text(tokenizer), specials=specials_of(tokenizer), length=6, tally=(tally := Legibility())
    )
    text.encode_words([["the", "สวัสดี", "cat"], ["mat"]])
    assert (tally.unreadable, tally.letters, tally.words) == (6, 15, 4)
    for count in (3, 4, 5, 9):
        text.row([7] * count)
    text.row([7] * 2, [7] * 3)
    assert (tally.rows, tally.cut, tally.unread) == (5, 3, 1 + 5 + 2)


def test_a_sample_is_from_all_over_the_text() -> None:
    draw, sample, lines = random.Random(1), Sampled(most=100), [str(number) for number in range(5000)]
    start = 0
    while start < len(lines):
        step = draw.randint(1, 40)
        sample.add(lines[start : start + step])
        start += step
    numbers = [int(line) for line in sample.lines]
    every = numbers[1] - numbers[0]
    assert numbers == list(range(0, 5000, every)) and 50 <= len(numbers) <= 100


def test_what_has_no_token_is_counted(electra: Electra, tmp_path: Path) -> None:
    lines = [*lines_of("english", count=60), "\u200b\u200b \ufeff", "\ue001"]
    (tmp_path / "a.txt").write_text("\n\n".join(lines), encoding="utf-8")
    code, out, err = electra("tokenizer", tmp_path / "a.txt", "--vocab-size", 1000, "--out", tmp_path / "tok")
    assert code == 0 and "0.0 % of the letters are unreadable" in out
    assert "tokens instead of 1,000" in err
    code, out, _ = electra(
        "prepare", tmp_path / "a.txt", "--tokenizer", tmp_path / "tok", "--seq-len", 16, "--out", tmp_path / "data"
    )
    assert code == 0 and "62 documents" in out
    assert "2 documents without tokens left out: the tokenizer drops all their characters" in out


def test_a_dry_run_counts_unreadable_letters_and_normal_forms(electra: Electra, tmp_path: Path) -> None:
    save_tokenizer(train_tokenizer(lines_of("english", count=100), vocab_size=300), tmp_path / "tok", max_length=8)
    forms = ["café ici", unicodedata.normalize("NFD", "café là")] * 5
    (tmp_path / "a.txt").write_text("\n\n".join([*forms, "привет"]), encoding="utf-8")
    code, out, _ = electra("prepare", tmp_path / "a.txt", "--tokenizer", tmp_path / "tok", "--dry-run")
    assert code == 0 and "% of the letters are unreadable ([UNK]), for example 'привет'" in out


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["한국어 텍스트"], "accents: in fewer than one word"),
        (["हिन्दी में", "हिनदी"], "they are part of the script"),
        (["мой", "мои"], "they are part of the script"),
        (["plain"] * 900 + ["été", "ete"], "which lose them unless you give --keep-accents"),
    ],
)
def test_what_a_survey_says_of_marks(texts: list[str], said: str) -> None:
    from electra_trainer.files.sources import Texts

    assert said in "\n".join(survey([Texts(texts)]).page())
