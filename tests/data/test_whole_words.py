"""Whole-word masking: whole words or none, never more than k, by what each kind of tokenizer marks."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare
from tests.data.samples import trained
from tests.prepared import small_config, write_store
from tests.small import BEGINS_V, CLS, MASK, PAD, SEP, WORDS, batch, columns_chosen, config, masker, rows
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from electra_trainer.data.corpus import PrepareSettings
from electra_trainer.data.masking import MaskTokens
from electra_trainer.data.prepare import prepare
from electra_trainer.data.store import Store
from electra_trainer.data.tokenizer import word_starts
from electra_trainer.errors import ConfigError
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config, Masking
from electra_trainer.settings.methods import HardMLM
from electra_trainer.train.loop import pretrain
from electra_trainer.train.step import Feed


def words_masked(fraction: float = 0.25, **fields: object) -> MaskTokens:
    masking = Masking(unit="word", fraction=fraction, **fields)  # type: ignore[arg-type]
    return masker(dataclasses.replace(config(), masking=masking))


def words_of(row: NDArray[np.int64], begins_V: NDArray[np.bool_] = BEGINS_V) -> list[set[int]]:
    """The columns of each word of a row: a token that continues joins the one before it, unless that is special."""
    words: list[set[int]] = []
    before = PAD
    for column, token in enumerate(row.tolist()):
        if token not in (PAD, CLS, SEP, MASK):
            if begins_V[token] or before in (PAD, CLS, SEP, MASK):
                words.append(set())
            words[-1].add(column)
        before = token
    return words


@pytest.mark.parametrize("fraction", [0.15, 0.25, 0.5])
@pytest.mark.parametrize("rounding", ["nearest", "up"])
def test_whole_words_or_none(fraction: float, rounding: str) -> None:
    """And as many as fit: a word that was left out is longer than what is left of k."""
    made = rows(200, seed=3)
    made[5, 2] = MASK  # a literal [MASK] ends a word too
    whole, single = words_masked(fraction, rounding=rounding), Masking(fraction=fraction, rounding=rounding)  # type: ignore[arg-type]
    token_by_token = masker(dataclasses.replace(config(), masking=single))
    split = 0
    for step in range(5):
        data = batch(made)
        wanted = columns_chosen(token_by_token(data, Rng(1, step, 0)))
        for row, mine, k in zip(made, columns_chosen(whole(data, Rng(1, step, 0))), map(len, wanted), strict=True):
            assert mine == sorted(set(mine)) and len(mine) <= k
            words = words_of(row)
            assert set(mine) == set().union(*(word for word in words if word & set(mine)))
            assert all(len(word) > k - len(mine) for word in words if not word & set(mine))
            split += sum(len(word) > 1 for word in words if word & set(mine))
    assert split > 100


def test_the_rate_is_that_of_single_tokens() -> None:
    """Rows that have a word of one token to end with get exactly k; what a long word is passed over for is another word."""
    made, k = rows(64, full=True), 6
    counts = [len(row) for step in range(50) for row in columns_chosen(words_masked()(batch(made), Rng(1, step, 0)))]
    assert max(counts) == k and np.mean(counts) > 0.99 * k


def test_spans_are_longer_than_those_of_single_tokens() -> None:
    """At 15 % of 128: exactly k tokens, runs of 3.5 on average (some of 3.8 do not fit), of 1.2 by tokens."""
    data, runs = batch(np.array([[CLS, *[7] * 126, SEP]] * 100)), {}
    for unit in ("token", "span"):
        mask = masker(dataclasses.replace(config(), masking=Masking(unit=unit)))  # type: ignore[arg-type]
        found = columns_chosen(mask(data, Rng(1, 0, 0)))
        assert {len(row) for row in found} == {19}
        runs[unit] = np.mean([len(row) / (1 + np.count_nonzero(np.diff(row) > 1)) for row in found])
    assert runs["token"] < 1.3 and 3 < runs["span"] < 4.5


def test_words_of_equal_length_are_equally_likely() -> None:
    row = np.array([CLS, *([4 + 3, 6, 6] * 8), SEP])  # 7 begins a word, 6 continues it
    data, counts = batch(np.tile(row, (100, 1))), np.zeros(len(row), dtype=int)
    for step in range(20):
        np.add.at(counts, words_masked()(data, Rng(1, step, 0)).slots_K.numpy() % len(row), 1)
    words = counts[1:-1].reshape(8, 3)
    assert (words == words[:, :1]).all() and words.sum() == 2000 * 6
    assert chisquare(words[:, 0]).pvalue > 1e-4


def test_a_word_longer_than_k_is_never_masked() -> None:
    row = np.array([CLS, 7, *[6] * 15, 7, 8, 10, 11, SEP])
    found = {
        tuple(c) for step in range(200) for c in columns_chosen(words_masked(0.15)(batch(row[None]), Rng(1, step, 0)))
    }
    assert found == {(a, b, c) for a in range(17, 21) for b in range(a + 1, 21) for c in range(b + 1, 21)}


def test_rows_without_a_word_that_fits() -> None:
    made = np.full((3, 12), PAD)
    made[0, :2] = CLS, SEP
    made[1, :6] = CLS, 7, 6, 6, 6, SEP
    made[2, :4] = CLS, 6, 7, SEP  # a row may begin in the middle of a word
    assert [len(c) for c in columns_chosen(words_masked(0.15)(batch(made), Rng(1, 1, 1)))] == [0, 0, 1]


def test_masks_are_a_function_of_seed_step_and_lane_on_every_machine() -> None:
    data = batch(np.tile([CLS, *range(5, WORDS), SEP], (4, 1)))
    mask = words_masked(mask_share=0.8, random_share=0.1)

    def digest(*key: int) -> str:
        masked = mask(data, Rng(*key))
        found = masked.slots_K.numpy().astype("<i8").tobytes() + masked.input_BT.numpy().astype("<i8").tobytes()
        return hashlib.sha256(found).hexdigest()[:16]

    assert digest(1, 2, 3) == digest(1, 2, 3) == "847165443f733cee"
    assert len({digest(2, 2, 3), digest(1, 3, 3), digest(1, 2, 4), digest(1, 2, 3)}) == 4


def test_what_does_not_combine() -> None:
    with pytest.raises(ConfigError, match=r"with masking\.unit = word"):
        Masking(unit="word", draw="with-replacement")
    for other in ({"unit": "word"}, {"draw": "with-replacement"}):
        with pytest.raises(ConfigError, match="rarity"):
            Masking(rarity=0.5, **other)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="token with hard-mlm"):
        dataclasses.replace(config(), objective=HardMLM(), masking=Masking(unit="word"))


# --- tokenizers ---

TEXT = ["the unhappiness of the unbelievable, and the happiness of believers", "unbelievers believe the happy"] * 20
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=True)


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "byte level": (models.BPE(unk_token="[UNK]"), {"cut": BYTES}),
    "in a sequence": (
        models.BPE(unk_token="[UNK]"),
        {"cut": pre_tokenizers.Sequence([pre_tokenizers.Digits(), BYTES])},
    ),
    "metaspace": (models.Unigram(), {"cut": pre_tokenizers.Metaspace()}),
    "by the normaliser": (
        models.BPE(unk_token="[UNK]"),
        {"normal": normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])},
    ),
    "word pieces": (models.WordPiece(unk_token="[UNK]"), {"cut": pre_tokenizers.BertPreTokenizer()}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_tokenizer(kind: str) -> None:
    """Tokens from one start to the next spell a word of the text, or several that were merged; "," is a word for WordPiece alone."""
    model, parts = KINDS[kind]
    tokenizer = trained(model, TEXT, 36, **parts)
    starts = word_starts(tokenizer)
    encoding = tokenizer.encode(TEXT[0])
    assert starts[0] and len(encoding.ids) > 1.3 * len(TEXT[0].split())
    text, words = TEXT[0].replace(",", " ,") if kind == "word pieces" else TEXT[0], [""]
    for number, token in zip(encoding.ids, encoding.tokens, strict=True):
        words += [""] if starts[number] else []
        words[-1] += token.removeprefix("##").lstrip("Ġ▁")
    assert " ".join(words[1:]).replace("▁", " ") == text


def test_a_tokenizer_that_marks_no_words() -> None:
    with pytest.raises(ConfigError, match=r"does not mark where a word begins.*--masking\.unit token"):
        word_starts(Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")))
    with pytest.raises(ConfigError, match="no token of this tokenizer continues a word"):
        word_starts(Tokenizer(models.WordPiece({"a": 0, "b": 1}, unk_token="a")))


# --- runs ---


def run_config() -> Config:
    return dataclasses.replace(small_config(steps=3), masking=Masking(unit="word"))


def test_a_run_masks_the_words_of_its_text(tmp_path: Path) -> None:
    store = Store.open(write_store(tmp_path / "data"))
    pretrain(run_config(), store.folder, out=tmp_path / "run", device="cpu", quiet=True)
    words = [store.tokenizer().id_to_token(number) for number in range(store.vocab_size)]
    begins_V = np.array([not word.startswith("##") for word in words])
    feed = Feed.of(run_config(), store, device=batch(rows(1)).ids_BT.device, precision="fp32")
    masked, _ = feed.lanes(1)[1]
    for row, mine in zip(masked.batch.ids_BT.numpy(), columns_chosen(masked), strict=True):
        assert mine
        assert set(mine) == set().union(*(word for word in words_of(row, begins_V) if word & set(mine)))


def test_text_without_spaces_is_refused_before_a_run_begins(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    lines = ["".join(chr(0x4E00 + (7 * line + place * place) % 400) for place in range(60)) for line in range(200)]
    text.write_text("\n\n".join(lines))
    data = tmp_path / "data"
    settings = PrepareSettings(valid_fraction=0.1, workers=1)
    tokenizer = trained(models.BPE(unk_token="[UNK]"), lines, 300, cut=BYTES)
    prepare([text], tokenizer=tokenizer, sequence_length=32, out=data, settings=settings)
    with pytest.raises(ConfigError, match=r"it would mask 0\.8% of the tokens, masking\.fraction asks for 15\.0%"):
        pretrain(run_config(), data, out=tmp_path / "run", device="cpu", quiet=True)
    assert not (tmp_path / "run" / "config.json").exists()
