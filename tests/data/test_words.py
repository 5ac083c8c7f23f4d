"""The memory of words against the library: the very same ids, whatever the text."""

import itertools
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.samples import sentences
from tests.prepared import embedded_lines

from electra_trainer.data import encode
from electra_trainer.data.corpus import CorpusReport, documents
from electra_trainer.data.encode import Words, decoded, encoder
from electra_trainer.data.tokenizer import as_plain_text, load_tokenizer
from electra_trainer.data.vocabulary import train_tokenizer

MODES = {"uncased": {}, "cased": {"cased": True}, "accents": {"keep_accents": True}}
ODD = [
    "naïve", "e\u0301te\u0301", "\u0301", "\u0323\u0301a", "İstanbul", "ΟΔΟΣ", "ſ\u212a", "中文字符", "日本語、テスト。", "한국어", "😀👩\u200d👩\u200d👧",
    "a\u00a0b", "a\u2028b", "\u0085", "\t", "a\x01b", "\x7f", "\ufffd", "\u200b", "x" * 199, "x" * 201, "é" * 201, "a.b,c", "--", "[MASK]", "[UNK]",
    "\u226f", ">\u0338", "\u037e", "№5", "ﬁ", "don't", "3,14", "\U000e0001", "", " ", "İ", "ß", "ǅ", "$1.5m", "##s", "\u00ad", "𝔘𝔫𝔦", "١٢٣",
]  # fmt: skip


@pytest.fixture(scope="module", params=MODES)
def plain(request: Any) -> Any:
    """A small vocabulary that knows some of the odd characters, so that little is [UNK]."""
    lines = sentences(600) + ODD * 20
    return as_plain_text(train_tokenizer(lines, vocab_size=700, **MODES[request.param]))


def expected(plain: Any, lines: list[str]) -> tuple[list[int], list[int]]:
    found = [encoding.ids for encoding in plain.encode_batch(lines, add_special_tokens=False)]
    return [token for ids in found for token in ids], [len(ids) for ids in found]


def check(plain: Any, lines: list[str], memory: Words | None = None) -> int:
    assert Words.can_cut(plain)
    ids, lengths = (memory or Words(plain)).lines("\n".join(lines).encode())
    wanted_ids, wanted_lengths = expected(plain, lines)
    assert lengths.tolist() == wanted_lengths
    assert ids.tolist() == wanted_ids
    return len(wanted_ids)


@settings(max_examples=120, deadline=None, database=None)
@given(data=st.data())
def test_any_text(plain: Any, data: st.DataObject) -> None:
    piece = st.one_of(
        st.sampled_from([*ODD, *sentences(5), " ", "  ", ",", "("]),
        st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=12),
        st.text("aB1 .,-[]'é\u0301中\u00a0\t", max_size=12),
    )
    line = st.lists(piece, max_size=8).map("".join)
    check(plain, data.draw(st.lists(line, min_size=1, max_size=5)))


def test_every_character_beside_letters_marks_and_punctuation(plain: Any) -> None:
    """All of the first two planes, of those that Unicode has not assigned one in 16: inside of a word, after punctuation, alone."""
    characters = [
        chr(code)
        for code in range(0x20000)
        if code != 10 and unicodedata.category(chr(code)) not in ("Cs", *["Cn", "Co"][: 2 * (code % 16 > 0)])
    ]
    made = [f"a{one}B,{one}\u0301 {one}" for one in characters]
    check(plain, [" ".join(made[first : first + 40]) for first in range(0, len(made), 40)])


def test_real_text(plain: Any) -> None:
    assert check(plain, embedded_lines(4_000)) > 200_000


@pytest.mark.parametrize("cased", [False, True])
@pytest.mark.parametrize("name", ["wiki/valid", "books/valid", "german/novels"])
def test_corpora(shared: Path, name: str, cased: bool) -> None:
    """Wikipedia and novels, with Google's vocabularies."""
    vocab = shared / f"data/vocab/bert-base-{'cased' if cased else 'uncased'}-vocab.txt"
    tokenizer = as_plain_text(load_tokenizer(vocab, cased=cased))
    found = documents([shared / f"data/corpora/{name}.txt.xz"], report=CorpusReport())
    lines = list(itertools.islice((line for document in found for line in document), 2_000))
    assert check(tokenizer, lines) > 100_000


def test_little_memory(plain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgetting changes nothing, and there are never more than two generations."""
    monkeypatch.setattr(encode, "_REMEMBERED", 40)
    memory = Words(plain)
    for seed in range(20):
        check(plain, [*sentences(30, seed=seed), *ODD], memory)
        assert len(memory) <= 41 and len(memory._older) <= 41
    check(plain, ["one line"], memory)
    check(plain, ["", "a", "", ""], memory)
    assert max(map(len, memory)) <= encode._LONGEST


def test_tokenizers_that_look_at_whole_lines_go_to_the_library(tokenizer: Any) -> None:
    from tokenizers import AddedToken, normalizers, pre_tokenizers

    added, split, normal = (as_plain_text(tokenizer) for _ in range(3))
    added.add_tokens([AddedToken("bara lora", normalized=False)])
    split.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    normal.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    lines = [*sentences(50), "bara lora, bara", ""]
    for other in (added, split, normal):
        assert not Words.can_cut(other)
        found, found_lengths = decoded(encoder(other)("\n".join(lines).encode()))
        ids, lengths = expected(other, lines)
        assert found_lengths.tolist() == lengths
        assert np.isin(found, [0, 2, 3, 4]).sum() == 0
        assert [token for token in ids if token > 4] == [token for token in found.tolist() if token > 4]
