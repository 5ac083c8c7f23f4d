"""The sentence probe reads from an encoder what a sum of words does not say, and the baseline says what that does."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.prepared import small_config
from tests.tasks.glue_samples import tsv

from electra_trainer.data.tokenizer import word_piece
from electra_trainer.errors import MissingInputError
from electra_trainer.model.encoder import Encoder
from electra_trainer.objectives import build
from electra_trainer.paper.probes import METRICS, SENTENCE_SCORES, fingerprint, probe_sentences

WORDS = [f"w{letter}{other}" for letter in "abcdefghij" for other in "klmno"]
VOCAB = {word: i for i, word in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "good", "bad"))}
Words = list[str]


def in_order(random: np.random.Generator) -> tuple[Words, str]:
    """Only the order tells: which of two words comes first."""
    words, first = list(random.choice(WORDS, 4)), int(random.integers(2))
    return ["good", "bad"][:: 1 - 2 * first] + words, str(1 - first)


def by_word(random: np.random.Generator) -> tuple[Words, str]:
    """One word tells."""
    label = int(random.integers(2))
    words = [*random.choice(WORDS, 4), ("bad", "good")[label]]
    return list(random.permutation(words)), str(label)


def write(folder: Path, sentiment: Callable[[np.random.Generator], tuple[Words, str]]) -> Path:
    """STS-B whose similarity is the share of common words, and SST-2 by a rule."""
    random = np.random.default_rng(1)
    for split, rows in (("train", 600), ("dev", 200)):
        made = [sentiment(random) for _ in range(rows)]
        for task in ("SST-2", "STS-B"):
            (folder / task).mkdir(parents=True, exist_ok=True)
        lines = tsv(("sentence", "label"), *((" ".join(words), label) for words, label in made))
        (folder / "SST-2" / f"{split}.tsv").write_text(lines)
        pairs = []
        for _ in range(rows):
            common = int(random.integers(6))
            words = list(random.choice(WORDS, 10 - common, replace=False))
            one, two = words[:5], [*words[:common], *words[5:]]
            pairs.append((" ".join(one), " ".join(random.permutation(two)), common))
        head = "index genre filename year old_index source1 source2 sentence1 sentence2 score".split()
        lines = tsv(head, *((i, "g", "f", "2012", i, "none", "none", *pair) for i, pair in enumerate(pairs)))
        (folder / "STS-B" / f"{split}.tsv").write_text(lines)
    return folder


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    """Random weights, but large enough that a layer mixes neighbours into a word."""
    config = small_config()
    shape = {"vocab_size": len(VOCAB), "initializer": "fan-in", "hidden_size": 128, "embedding_size": 64}
    found = build(replace(config, model=replace(config.model, **shape))).exported()[0].network.electra  # type: ignore[arg-type]
    assert isinstance(found, Encoder)
    return found


def scores(encoder: Encoder, folder: Path, seed: int = 1) -> dict[str, float]:
    tokenizer = word_piece(VOCAB, cased=False, keep_accents=None)
    return probe_sentences(encoder, tokenizer, folder, length=32, seed=seed, device=torch.device("cpu"))


def test_order_is_read_from_the_layers_alone(encoder: Encoder, tmp_path: Path) -> None:
    """A mean of word vectors is the same in any order; overlap of words needs no encoder."""
    found = scores(encoder, write(tmp_path, in_order))
    assert found["sst2"] > 0.9 and 0.4 < found["sst2_random"] < 0.6
    assert found["stsb"] > 0.8 and found["stsb_random"] > 0.8


def test_words_are_read_by_both(encoder: Encoder, tmp_path: Path) -> None:
    folder = write(tmp_path, by_word)
    found = scores(encoder, folder)
    assert found["sst2"] > 0.95 and found["sst2_random"] > 0.95
    assert scores(encoder, folder) == found and set(found) == set(SENTENCE_SCORES)
    other = scores(encoder, folder, seed=2)
    assert (other["stsb"], other["sst2"]) == (found["stsb"], found["sst2"]) and other["stsb_random"] != found[
        "stsb_random"
    ]


def test_files_are_read_before_anything_is_trained(tmp_path: Path) -> None:
    folder = write(tmp_path, by_word)
    first = fingerprint("sentences", folder)
    dev = folder / "SST-2/dev.tsv"
    dev.write_text(dev.read_text().replace("good", "bad", 1))
    assert fingerprint("sentences", folder) not in (None, first)
    dev.unlink()
    with pytest.raises(MissingInputError, match=r"SST-2"):
        fingerprint("sentences", folder)
    assert METRICS["sentences"] == SENTENCE_SCORES
