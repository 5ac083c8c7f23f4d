"""The probe reads from the layers what is in them, and no more."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.prepared import small_config

from electra_trainer.data.batches import encode_rows
from electra_trainer.data.conllu import UPOS, Sentence, Word
from electra_trainer.data.tokenizer import Text, word_piece
from electra_trainer.errors import DataError
from electra_trainer.model.encoder import Encoder
from electra_trainer.objectives import build
from electra_trainer.paper import probes
from electra_trainer.paper.probes import layer_outputs, probe_tags
from electra_trainer.pretrained.pretrained import kept_encoder, load
from electra_trainer.settings.config import Config, changed

WORDS = ("the", "dog", "cat", "run", "jump", "walk", "a")
VOCAB = {word: i for i, word in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", "."))}


def toy(count: int, *, seed: int) -> list[Sentence]:
    """A word is a NOUN after "the" and a VERB after "a", whichever word it is: only context tells. "." is PUNCT, unless untagged."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        words = []
        for _ in range(int(rng.integers(1, 5))):
            article, content = rng.choice(["the", "a"]), rng.choice(WORDS[1:6])
            words += [
                ("the" if article == "the" else "a", "DET"),
                (str(content), "NOUN" if article == "the" else "VERB"),
            ]
        words.append((".", "PUNCT"))
        found.append(tuple(Word(form=f, upos=u, xpos=None) for f, u in words))
    return found


def encoder_of(config: Config) -> Encoder:
    found = build(config).eval().exported()[0].network.electra
    assert isinstance(found, Encoder)
    return found


def probed(
    train: list[Sentence], dev: list[Sentence], *, sentences: int = 9, encoder: Encoder | None = None, seed: int = 1
) -> dict[str, float]:
    text = Text.of(word_piece(VOCAB, cased=False, keep_accents=None), length=32)
    return probe_tags(encoder or encoder_of(small_config()), text, train, dev, sentences=sentences, seed=seed)


def scores(encoder: Encoder, seed: int = 1) -> dict[str, float]:
    return probed(toy(400, seed=1), toy(150, seed=2), sentences=300, encoder=encoder, seed=seed)


@pytest.fixture
def wide() -> Encoder:
    """Random weights, but large enough that a layer mixes neighbours into a word."""
    large = {"initializer": "fan-in", "hidden_size": 128, "num_attention_heads": 4, "embedding_size": 32}
    return encoder_of(changed(small_config(), model=large))


def test_beats_chance_and_the_baseline_where_context_tells(wide: Encoder) -> None:
    """Without context a content word's tag is a coin: the baseline knows articles and the full stop only."""
    found = scores(wide)
    tags = [word.upos for sentence in toy(150, seed=2) for word in sentence]
    coin = 1 - 0.5 * sum(tag in ("NOUN", "VERB") for tag in tags) / len(tags)
    assert found["majority_accuracy"] == pytest.approx(coin, abs=0.03)
    assert found["accuracy"] > coin + 0.05


def test_is_a_function_of_the_seed(wide: Encoder) -> None:
    assert scores(wide) == scores(wide)
    assert scores(wide, seed=2) != scores(wide)


def test_the_probe_learns_which_layer_to_read() -> None:
    """Only one of three states has the tags; without a learned mix two thirds of what is read would be noise."""
    random = torch.Generator().manual_seed(1)
    tags_W = torch.randint(len(UPOS), (4000,), generator=random)
    states_WSD = torch.randn(4000, 3, 24, generator=random)
    states_WSD[:, 1] = torch.randn(len(UPOS), 24, generator=random)[tags_W]
    probe = probes._fit(states_WSD, tags_W, seed=1)
    assert float(probe.mix_S.detach().softmax(0)[1]) > 0.5


def test_majority_by_hand() -> None:
    """ "dog" was NOUN twice and VERB once, "run" is new: it gets the most frequent tag of all."""

    def sentence(*words: str) -> Sentence:
        pairs = [word.split("/") for word in words]
        return tuple(Word(form=f, upos=u if u != "_" else None, xpos=None) for f, u in pairs)

    train = [
        sentence("dog/NOUN", "dog/VERB", "the/DET"),
        sentence("dog/NOUN", "walk/VERB"),
        sentence("jump/VERB", "cat/_"),
    ]
    dev = [sentence("dog/NOUN", "run/VERB", "run/NOUN", "the/DET", "walk/_"), sentence("dog/VERB")]
    found = probed(train, dev)
    assert found["majority_accuracy"] == pytest.approx(3 / 5)


def test_layer_outputs_are_those_of_the_forward_pass() -> None:
    """Embeddings first, the result of the whole encoder last; no hook stays behind."""
    encoder = encoder_of(small_config())
    batch = encode_rows([[2, 5, 6, 3], [2, 7, 8, 3]])
    with torch.no_grad():
        found = layer_outputs(encoder, batch.ids_BT, batch)
        assert len(found) == 3
        assert encoder.embeddings_project is not None
        torch.testing.assert_close(found[0], encoder.embeddings_project(encoder.embeddings(batch.ids_BT, batch)))
        torch.testing.assert_close(found[-1], encoder(batch.ids_BT, batch))
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in encoder.encoder.layer)


def test_long_sentences_and_rows_of_words() -> None:
    """Cut into rows between words: every tagged word is there once, with its tokens; no row is too long."""
    tokenizer = word_piece(VOCAB, cased=False, keep_accents=None)
    forms = {"the": "thess", "dog": "dogs"}
    words = [replace(word, form=forms.get(word.form, word.form)) for word in toy(1, seed=3)[0] * 6]
    long = (*words, Word(form="cat", upos=None, xpos=None))
    text = Text.of(tokenizer, length=8)
    rows = [*probes._rows([long, long], text)]
    assert len(rows) > 1 and all(len(row.ids) <= 8 and row.ids[0] == 2 and row.ids[-1] == 3 for row in rows)
    tagged = [word for word in long if word.upos is not None]
    assert [word for row in rows for word, _, _ in row.place] == tagged * 2
    for row in rows:
        for word, start, stop in row.place:
            assert list(row.ids[start:stop]) == tokenizer.encode(word.form, add_special_tokens=False).ids
    assert {stop - start for row in rows for _, start, stop in row.place} >= {1, 3}


def test_without_tags_says_so() -> None:
    bare: list[Sentence] = [(Word(form="the", upos=None, xpos=None),)]
    with pytest.raises(DataError, match="no word of the treebank has a tag"):
        probed(bare, bare)


def test_the_kept_encoder_of_a_run(trained: Path) -> None:
    """The discriminator's, not the generator's."""
    loaded = load(trained / "electra")
    assert loaded.discriminator is not None and kept_encoder(loaded) is loaded.discriminator.electra
