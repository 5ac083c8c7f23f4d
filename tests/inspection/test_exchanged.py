"""Sentences with a word exchanged, as the demo shows them: what is exchanged, and that finding it is counted right."""

import pytest
import torch
from tests.prepared import embedded_lines
from torch import Tensor

from electra_trainer.batch import Batch
from electra_trainer.data.batches import word_counts
from electra_trainer.data.corpus import PrepareSettings
from electra_trainer.data.prepare import prepare, train_tokenizer_from
from electra_trainer.data.store import Store
from electra_trainer.inspection.exchanged import FREQUENT, Exchanged, exchange_words, suspect
from electra_trainer.model.networks import Discriminator
from electra_trainer.settings.config import Model


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Fifteen hundred lines of the embedded corpus, ten a document, half of them held out."""
    folder, lines = tmp_path_factory.mktemp("exchanged"), embedded_lines(1500)
    text = folder / "text.txt"
    text.write_text("\n\n".join("\n".join(lines[i : i + 10]) for i in range(0, len(lines), 10)), encoding="utf-8")
    tokenizer, _ = train_tokenizer_from([text], vocab_size=1500)
    settings = PrepareSettings(valid_fraction=0.5, workers=1)
    prepare([text], tokenizer=tokenizer, sequence_length=64, out=folder / "data", settings=settings)
    return Store.open(folder / "data")


@pytest.fixture(scope="module")
def sentences(store: Store) -> list[Exchanged]:
    found = exchange_words(store, count=50)
    assert len(found) >= 10
    return found


def in_rows(store: Store, ids: list[int]) -> bool:
    text = " ".join(map(str, ids))
    return any(text in " ".join(map(str, row)) for row in store.rows("valid"))


def test_one_word_of_a_held_out_sentence_is_another(store: Store, sentences: list[Exchanged]) -> None:
    """A whole, frequent word in the place of a whole word, in a sentence that is held out."""
    tokenizer, counts = store.tokenizer(), word_counts(store)
    for one in sentences:
        inner, special = one.ids[1:-1], store.specials
        assert (one.ids[0], one.ids[-1]) == (special.cls, special.sep)
        assert tokenizer.id_to_token(inner[-1]) == "."
        original, other = tokenizer.token_to_id(one.original), one.ids[one.place]
        assert original != other
        assert all(word.isalpha() for word in (one.original, tokenizer.id_to_token(other)))
        assert int((counts > counts[other]).sum()) < 2 * FREQUENT
        assert not tokenizer.id_to_token(one.ids[one.place + 1]).startswith("##")
        assert in_rows(store, [*inner[: one.place - 1], original, *inner[one.place :]])


def test_a_seed_decides(store: Store, sentences: list[Exchanged]) -> None:
    assert exchange_words(store, count=50) == sentences
    assert exchange_words(store, count=50, seed=2) != sentences


class Knows(Discriminator):
    """Suspects the tokens of the sentences that it was told."""

    def __init__(self, told: list[Exchanged]) -> None:
        super().__init__(
            Model(vocab_size=8, embedding_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
        )
        self.places = {tuple(one.ids): one.place for one in told}

    def forward(self, ids_BT: Tensor, batch: Batch) -> Tensor:
        logits_BT = torch.full(ids_BT.shape, -3.0)
        logits_BT[:, 1] = 1.0
        place = self.places.get(tuple(ids_BT[0].tolist()))
        if place is not None:
            logits_BT[0, place] = 2.0
        return logits_BT


def test_finding_is_counted(store: Store, sentences: list[Exchanged]) -> None:
    late = [one for one in sentences if one.place > 1]
    half = late[: len(late) // 2]
    found = suspect(Knows(half), store, late)
    assert [one.found for one in found] == [True] * len(half) + [False] * (len(late) - len(half))
    for one in found:
        expected = one.sentence.place - 1 if one.found else 0
        assert one.suspect == one.scored.tokens[expected]
        assert max(one.scored.replaced_probability) == one.scored.replaced_probability[expected]
