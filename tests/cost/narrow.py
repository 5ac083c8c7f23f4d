"""A configuration narrow enough to build in milliseconds, with no two widths alike; all objectives and generators."""

from typing import Any

from electra_trainer.settings import methods
from electra_trainer.settings.config import BatchShape, Config, Masking, Model

OBJECTIVES = {
    "rtd": methods.RTD(),
    "electra-15": methods.RTD(loss_over="masked"),
    "electra-15-other": methods.RTD(loss_over="other"),
    "mlm": methods.MLM(),
    "hard-mlm": methods.HardMLM(pool=2.0),
    "replace-mlm": methods.ReplaceMLM(),
    "all-tokens-mlm": methods.AllTokensMLM(),
    "all-tokens-mlm plain": methods.AllTokensMLM(copy=False),
    "rtd-mlm": methods.RtdMLM(),
    "adversarial": methods.Adversarial(),
    "sentence-contrast": methods.SentenceContrast(),
}
GENERATORS = {
    "half as wide": methods.Learned(width=0.5),
    "half as deep": methods.Learned(width=1.0, depth=0.5),
    "same size": methods.Learned(width=1.0),
    "unigram": methods.Unigram(),
    "uniform": methods.Uniform(),
}


def narrow(**changes: Any) -> Config:
    """Two layers of width 32, rows of 20 tokens, 3 of them masked."""
    model = Model(
        vocab_size=101, embedding_size=24, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=40,
    )  # fmt: skip
    made: dict[str, Any] = {
        "model": model,
        "generator": methods.Learned(width=0.5),
        "batch": BatchShape(size=3, sequence_length=20),
        "masking": Masking(fraction=0.15),
    }
    return Config(**(made | changes))
