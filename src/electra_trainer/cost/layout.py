"""Which networks a configuration has, as far as their cost goes. No torch here."""

from __future__ import annotations

from electra_trainer.config import Config, Model, generator_shape
from electra_trainer.methods import Learned


def learned_generator(config: Config) -> Model | None:
    """Shape of the generator; None where there is none or where it is no network (`unigram`, `uniform`)."""
    learned = config.objective.uses_generator and isinstance(config.generator, Learned)
    return generator_shape(config) if learned else None


def slots(config: Config) -> int:
    """Positions of a full row that are chosen."""
    return max(1, round(config.masking.fraction * config.batch.sequence_length))


def predicted(config: Config) -> int:
    """Positions of a full row that the kept network sends through the vocabulary."""
    return {"none": 0, "masked": slots(config), "all": config.batch.sequence_length}[config.objective.predicts]


def single_output(config: Config) -> tuple[int, int]:
    """Width of an objective's own layer [width -> 1] and how many positions of a row it reads; (0, 0) where there is none.

    All-Tokens MLM copies at every token; the adversarial baseline reads the generator at the chosen ones; the sentence head reads
    the [CLS] of each input, counted as one a row.
    """
    width = config.model.hidden_size
    match config.objective.single_output:
        case "none":
            return 0, 0
        case "kept tokens":
            return width, config.batch.sequence_length
        case "kept inputs":
            return width, 1
        case "generator slots":
            return generator_shape(config).hidden_size, slots(config)
