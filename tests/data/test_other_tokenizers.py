"""A tokenizer.json of any model of the library `tokenizers` is trained with: text in BPE and Unigram, sequences of symbols as words."""

from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tests.data.samples import trained
from tests.prepared import small_config
from tokenizers import decoders, models, pre_tokenizers

from electra_trainer import api
from electra_trainer.data.store import Store
from electra_trainer.data.tokenizer import SPECIAL_TOKENS

TEXTS = [f"the old shop number {n} sells bread and {n * 7} kinds of tea" for n in range(120)]
ACIDS = "ACDEFGHIKLMNPQRSTVWY"
PROTEINS = [" ".join(ACIDS[(n * k) % 20] for k in range(1, 25)) for n in range(1, 120)]


def ran(tokenizer: tokenizers.Tokenizer, texts: list[str], folder: Path) -> tuple[list[list[int]], Path]:
    """Ids of the first rows that were prepared with its file, and a run of four steps on them."""
    tokenizer.save(str(folder / "tokenizer.json"))
    api.prepare(
        documents=texts, tokenizer=folder / "tokenizer.json", out=folder / "data", seq_len=32, valid_fraction=0.1
    )
    api.pretrain(folder / "data", out=folder / "run", preset=small_config(steps=4), device="cpu", quiet=True)
    rows: list[list[int]] = Store.open(folder / "data").rows("train")[:40].tolist()
    return rows, folder / "run"


@pytest.mark.parametrize(
    ("model", "size", "cut", "decoder"),
    [
        (models.BPE(unk_token="[UNK]"), 300, pre_tokenizers.ByteLevel(add_prefix_space=True), decoders.ByteLevel()),
        (models.Unigram(), 120, pre_tokenizers.Metaspace(), decoders.Metaspace()),
    ],
    ids=["BPE", "Unigram"],
)
def test_any_model_of_the_library(model: Any, size: int, cut: Any, decoder: Any, tmp_path: Path) -> None:
    """Rows hold its ids, and the run's score and its export in transformers cut a text as it does."""
    from transformers import AutoTokenizer

    tokenizer = trained(model, TEXTS, size, cut=cut, decoder=decoder)
    rows, run = ran(tokenizer, TEXTS, tmp_path)
    ids = [one for row in rows for one in row]
    assert 1 not in ids and "the old shop number" in tokenizer.decode(ids)
    text, expected = TEXTS[5], tokenizer.encode(TEXTS[5], add_special_tokens=False).ids
    scored = api.load(run).score(text)
    assert [tokenizer.token_to_id(token) for token in scored.tokens] == expected
    api.export(run, tmp_path / "exported")
    auto = AutoTokenizer.from_pretrained(tmp_path / "exported" / "discriminator")
    assert auto(text, add_special_tokens=False)["input_ids"] == expected


def test_sequences_of_symbols(tmp_path: Path) -> None:
    """A symbol is a token: none is unknown, none is cut, and a gap is filled with one of them."""
    symbols = tokenizers.Tokenizer(
        models.WordLevel({word: n for n, word in enumerate([*SPECIAL_TOKENS, *ACIDS])}, "[UNK]")
    )
    symbols.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    rows, run = ran(symbols, PROTEINS, tmp_path)
    assert {one for row in rows for one in row} <= {0, 2, 3, *range(5, 25)}
    assert len(api.load(run).score("A C D E F").tokens) == 5
    assert api.load(run).fill("A C [MASK] E", top=3)[0][0].token in ACIDS
