"""Questions, a tokenizer of letters and an encoder, small enough for a test."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from electra_trainer.data.tokenizer import SPECIAL_TOKENS, Text, specials_of, word_piece
from electra_trainer.model.encoder import Encoder
from electra_trainer.model.initial_weights import initialize
from electra_trainer.pretrained.source import Source
from electra_trainer.randomness import key
from electra_trainer.settings.config import Model
from electra_trainer.tasks.squad_files import Question, TrueAnswer

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,?!$-'"


def letters_tokenizer():
    """Every character is a token."""
    tokens = [*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    return word_piece({token: number for number, token in enumerate(tokens)}, cased=False, keep_accents=None)


def text(length: int) -> Text:
    return Text.of(letters_tokenizer(), length=length)


def question(
    context: str = "the chef cooked the meal.",
    asked: str = "who cooked?",
    answer: str | Sequence[str] | None = "chef",
    *,
    name: str = "q0",
    article: str = "a",
) -> Question:
    """Answers stand where they are first found."""
    texts = [] if answer is None else [answer] if isinstance(answer, str) else list(answer)
    answers = tuple(TrueAnswer(text=one, start=context.find(one) if one in context else None) for one in texts)
    return Question(id=name, question=asked, context=context, answers=answers, article=article, place=name)


def source(length: int = 96, *, seed: int = 1) -> Source:
    tokenizer = letters_tokenizer()
    model = Model(
        vocab_size=5 + 2 * len(LETTERS), embedding_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=length, initializer="fan-in",
    )  # fmt: skip
    encoder = initialize(Encoder(model), model, lambda name: torch.Generator().manual_seed(key(seed, name)))
    return Source(
        name="letters",
        model=model,
        weights=encoder.state_dict(),
        tokenizer=tokenizer,
        specials=specials_of(tokenizer),
        length=length,
    )


def passage(words: int, *, seed: int = 0) -> str:
    """Random words with a full stop now and then."""
    random_ = random.Random(seed)
    made = ["".join(random_.choices("abcdefgh", k=random_.randint(1, 6))) for _ in range(words)]
    return " ".join(word + "." if random_.random() < 0.1 else word for word in made)
