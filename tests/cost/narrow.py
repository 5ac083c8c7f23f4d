"""A configuration narrow enough to build in milliseconds, with no two widths alike; all objectives and generators."""

from __future__ import annotations

from typing import Any

from electra_trainer.settings.config import BatchShape, Config, Masking, Model
from electra_trainer.settings.methods import (
    MLM,
    RTD,
    Adversarial,
    AllTokensMLM,
    HardMLM,
    Learned,
    ReplaceMLM,
    RtdMLM,
    SentenceContrast,
    Uniform,
    Unigram,
)

OBJECTIVES = {
    "rtd": RTD(),
    "electra-15": RTD(loss_over="masked"),
    "electra-15-other": RTD(loss_over="other"),
    "mlm": MLM(),
    "hard-mlm": HardMLM(pool=2.0),
    "replace-mlm": ReplaceMLM(),
    "all-tokens-mlm": AllTokensMLM(),
    "all-tokens-mlm plain": AllTokensMLM(copy=False),
    "rtd-mlm": RtdMLM(),
    "adversarial": Adversarial(),
    "sentence-contrast": SentenceContrast(),
}
GENERATORS = {
    "half as wide": Learned(width=0.5),
    "half as deep": Learned(width=1.0, depth=0.5),
    "same size": Learned(width=1.0),
    "unigram": Unigram(),
    "uniform": Uniform(),
}


def narrow(**changes: Any) -> Config:
    """Two layers of width 32, rows of 20 tokens, 3 of them masked."""
    model = Model(
        vocab_size=101, embedding_size=24, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=40,
    )  # fmt: skip
    made: dict[str, Any] = {
        "model": model,
        "generator": Learned(width=0.5),
        "batch": BatchShape(size=3, sequence_length=20),
        "masking": Masking(fraction=0.15),
    }
    return Config(**(made | changes))
