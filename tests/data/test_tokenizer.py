"""Vocabularies: trained alike every time, read strictly, and the same ids in transformers."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.data.samples import SPECIALS, sentences
from tests.prepared import embedded_lines

from electra_trainer.data.encode import decoded, encoder
from electra_trainer.data.tokenizer import (
    SPECIAL_TOKENS,
    Specials,
    Text,
    as_plain_text,
    load_tokenizer,
    save_tokenizer,
    specials_of,
    statistics,
    tokenizer_sha256,
    vocab_size_of,
)
from electra_trainer.data.vocabulary import size_line, train_tokenizer
from electra_trainer.errors import ConfigError, DataError, MissingInputError

BERT = Specials(pad=0, unk=100, cls=101, sep=102, mask=103)


def test_the_same_text_gives_the_same_vocabulary(tokenizer: Any) -> None:
    """Also in other processes, whose hash tables are ordered otherwise, and with another number of threads."""
    code = (
        "from tests.data.samples import sentences\n"
        "from electra_trainer.data.vocabulary import train_tokenizer\n"
        "from electra_trainer.data.tokenizer import tokenizer_sha256\n"
        "print(tokenizer_sha256(train_tokenizer(sentences(800), vocab_size=256)))"
    )
    root = Path(__file__).parents[2]
    hashes = {tokenizer_sha256(tokenizer)}
    for threads in ("1", "3"):
        environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}", "RAYON_NUM_THREADS": threads}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        hashes.add(done.stdout.strip())
    assert len(hashes) == 1


def test_trained_vocabulary(tokenizer: Any) -> None:
    assert specials_of(tokenizer) == SPECIALS
    assert vocab_size_of(tokenizer) == tokenizer.get_vocab_size() == 256
    assert tokenizer.encode("Naïve BARA").tokens == tokenizer.encode("naive bara").tokens
    cased = train_tokenizer(sentences(800), vocab_size=256, cased=True)
    assert cased.encode("ba").ids != cased.encode("BA").ids
    assert cased.token_to_id("é") is not None
    assert tokenizer.token_to_id("é") is None
    kept = train_tokenizer(sentences(800), vocab_size=256, keep_accents=True)
    assert kept.token_to_id("é") is not None
    assert kept.encode("BA").ids == kept.encode("ba").ids


def test_vocabulary_sizes_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="at least 256"):
        train_tokenizer(["a b"], vocab_size=200)
    with pytest.raises(DataError, match="no characters"):
        train_tokenizer([" ", ""], vocab_size=1000)


def test_a_small_text_gives_a_smaller_vocabulary() -> None:
    small = train_tokenizer(["a b c d"], vocab_size=1000)
    assert small.get_vocab_size() == 13
    assert size_line(small, 1000, statistics(small, ["a b"])).startswith(
        "the vocabulary has 13 tokens instead of 1,000"
    )
    lines = [line for line in sentences(800) if "xxx" not in line]
    full = train_tokenizer(lines, vocab_size=256)
    assert size_line(full, 256, statistics(full, lines)) == ""


def test_a_vocabulary_that_cannot_read_its_text_is_not_called_usable() -> None:
    few = ["".join(map(chr, range(0x4E00, 0x4F00)))] * 3
    tokenizer = train_tokenizer(few, vocab_size=256)
    assert "give a larger --vocab-size" in size_line(tokenizer, 256, statistics(tokenizer, few))
    endless = ["ACGT" * 300] * 3
    tokenizer = train_tokenizer(endless, vocab_size=1000)
    assert "words of more than 1,000 letters" in size_line(tokenizer, 1000, statistics(tokenizer, endless))


def test_saved_and_loaded(tokenizer: Any, tmp_path: Path) -> None:
    save_tokenizer(tokenizer, tmp_path, max_length=128)
    for path in (tmp_path, tmp_path / "tokenizer.json", tmp_path / "vocab.txt"):
        assert tokenizer_sha256(load_tokenizer(path)) == tokenizer_sha256(tokenizer)
    with pytest.raises(ConfigError, match="--cased"):
        load_tokenizer(tmp_path, cased=True)
    (tmp_path / "tokenizer.json").unlink()
    assert tokenizer_sha256(load_tokenizer(tmp_path)) == tokenizer_sha256(tokenizer)
    assert tokenizer_sha256(load_tokenizer(tmp_path, cased=True)) != tokenizer_sha256(tokenizer)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(MissingInputError, match="electra tokenizer"):
        load_tokenizer(tmp_path)


def vocab(*lines: bytes, end: bytes = b"\n") -> bytes:
    return end.join([*(token.encode() for token in SPECIAL_TOKENS), *lines])


def test_line_numbers_are_ids_whatever_the_characters(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    for end in (b"\n", b"\r\n"):
        path.write_bytes(
            b"\xef\xbb\xbf" * (end == b"\n") + vocab("a\u2028".encode(), "\u0085".encode(), b"z", end=end) + end
        )
        assert load_tokenizer(path).token_to_id("z") == 7


@settings(max_examples=100, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.one_of(st.binary(max_size=200), st.text(max_size=100).map(str.encode)),
    name=st.sampled_from(["v.txt", "t.json"]),
)
def test_any_bytes_give_a_typed_error(tmp_path: Path, data: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError):
        load_tokenizer(tmp_path / name)


def test_text_never_gives_special_ids(tokenizer: Any) -> None:
    text = "ba [CLS] ra [MASK] [PAD] [SEP][UNK] ba"
    plain = as_plain_text(tokenizer)
    assert SPECIALS.mask in tokenizer.encode(text).ids
    assert not {0, 2, 3, 4} & set(plain.encode(text).ids)
    from tokenizers import pre_tokenizers

    tokenizer = as_plain_text(tokenizer)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # "[MASK]" stays whole, and it is in the vocabulary
    tokenizer.normalizer = None
    ids, line_lengths = decoded(encoder(tokenizer)(text.encode()))
    assert not {0, 2, 3, 4} & set(ids.tolist())
    assert line_lengths.tolist() == [len(ids)]


def test_statistics(tokenizer: Any) -> None:
    found = statistics(tokenizer, ["bara bara", "中" + "☃ bara"] * 700)
    assert (found.words, found.unknown) == (2800, 700)
    assert found.tokens == sum(len(tokenizer.encode(line).ids) for line in ["bara bara", "中☃ bara"]) * 700
    assert (found.unreadable, found.letters) == (0, 13 * 700)
    assert (found.unreadable_symbols, found.symbols) == (700, 700)
    symbols = "100.0 % of the symbols and punctuation marks are unreadable ([UNK]), for example '☃' (700 x)"
    assert found.unreadable_line() == f"0.0 % of the letters and {symbols}"


def test_released_tokenization(shared: Path) -> None:
    """18 strings x 3 settings, tokenized by Google's own code."""
    flags = {"lower+strip": (False, False), "lower": (False, True), "cased": (True, True)}
    for case in json.loads((shared / "reference/tf/tokenizer.json").read_text()):
        known = next((flag for name, flag in flags.items() if name == case["mode"]), None)
        if known is None:
            known = ("lower" not in case["mode"], "strip" not in case["mode"].replace("nostrip", ""))
        found = load_bert(shared, *known).encode(case["text"], add_special_tokens=False)
        assert found.tokens == case["tokens"], case
        assert found.ids == case["ids"], case


@functools.cache
def load_bert(shared: Path, cased: bool, keep_accents: bool) -> Any:
    tokenizer = load_tokenizer(
        shared / "data/vocab/bert-base-uncased-vocab.txt", cased=cased, keep_accents=keep_accents
    )
    assert specials_of(tokenizer) == BERT
    return as_plain_text(tokenizer)


@pytest.mark.parametrize("options", [{}, {"cased": True}, {"keep_accents": True}], ids=["uncased", "cased", "accents"])
def test_transformers_gives_the_same_ids(tmp_path: Path, options: dict[str, bool]) -> None:
    transformers = pytest.importorskip("transformers")
    lines = embedded_lines(10_000) + sentences(500)
    lines = [line for line in lines if "[" not in line] + ["y" * 150, "z" * 201, "möchte çağ İstanbul", "a\u0085b"]
    trained = train_tokenizer(lines, vocab_size=2048, **options)
    save_tokenizer(trained, tmp_path, max_length=128)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = trained.encode_batch(lines, add_special_tokens=False)
    assert [[2, *one.ids, 3] for one in ours] == theirs(lines)["input_ids"]
    pair = theirs("ba", "ra ra")
    assert pair["token_type_ids"] == [0] * pair["input_ids"].index(3) + [0] + [1] * (
        len(pair["input_ids"]) - pair["input_ids"].index(3) - 1
    )
    assert theirs.model_max_length == 128
    assert theirs.mask_token_id == 4


def test_encodings_of_many_texts_are_held_of_a_thousand_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = train_tokenizer(embedded_lines(1000), vocab_size=300)
    text = Text(tokenizer=as_plain_text(trained), specials=specials_of(trained), length=8)
    texts = [f"the cat {number}" for number in range(2500)]
    whole, counts, real = text.encode(texts), list[int](), Text.encode

    def noted(self: Text, some: list[str]) -> list[Any]:
        counts.append(len(some))
        return real(self, some)

    monkeypatch.setattr(Text, "encode", noted)
    assert text.ids(texts) == [one.ids for one in whole] and counts == [1000, 1000, 500]
