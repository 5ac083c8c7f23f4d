"""The small reference in tests/google/mini (see its README): its files, its shape, and Google's weights in our networks."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.google.reference import Arrays, as_ours, fill, our_name
from torch import Tensor

from electra_trainer.model.initial_weights import initialize
from electra_trainer.model.networks import TokenPredictor
from electra_trainer.objectives.rtd import ReplacedTokenDetection
from electra_trainer.settings.config import BatchShape, Config, Masking, Model, Optimizer, Schedule
from electra_trainer.settings.methods import RTD, Learned

FOLDER = Path(__file__).parent / "mini"
MODEL = Model(
    vocab_size=257, embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
    max_position_embeddings=64,
)  # fmt: skip
GENERATOR = replace(MODEL, hidden_size=16, num_attention_heads=1)
"""As wide a feed-forward network as the discriminator's, by an override of Google's; our generators scale it."""


def read(name: str) -> Arrays:
    """One of the .npz files."""
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def table(name: str, *, delimiter: str = "\t") -> list[dict[str, str]]:
    """The rows of one of the other files."""
    with (FOLDER / name).open() as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def config(**changes: Any) -> Config:
    """Dropout of the training steps, switched off by `eval`."""
    given: dict[str, Any] = {
        "model": MODEL,
        "generator": Learned(width=0.5),
        "objective": RTD(weight=50.0),
        "masking": Masking(fraction=0.15, mask_share=0.85, draw="with-replacement"),
        "optimizer": Optimizer(learning_rate=1e-3),
        "schedule": Schedule(steps=10, warmup_steps=2),
        "batch": BatchShape(size=8, sequence_length=32),
    }
    return Config(preset="google_mini", **(given | changes))


def without_dropout(model: Model) -> Model:
    return replace(model, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def fresh(settings: Config) -> ReplacedTokenDetection:
    """New weights, drawn as a run draws them."""
    made = ReplacedTokenDetection(settings)
    shared, shape = made.discriminator.electra.embeddings, without_dropout(GENERATOR)
    generator = TokenPredictor(shape, embeddings=shared)
    made.generator = initialize(generator, shape, made.weights("generator"), leave=shared)
    return made


def objective(variant: str | None = None) -> ReplacedTokenDetection:
    """Google's trained networks in our objective: all parameters are given, dropout off.

    Args:
        variant: `tied`, `untied_embeddings` or `wide_embeddings`.
    """
    variables: dict[str, Any] = {**read("weights"), **_of_variant(variant)}
    if variant == "tied":
        variables = {name: values for name, values in variables.items() if not name.startswith("generator/")}
        made = ReplacedTokenDetection(config(generator=Learned(width=1.0), sharing="all"))
    else:
        wide = 32 if variant == "wide_embeddings" else 16
        shape, small = (replace(model, embedding_size=wide) for model in (MODEL, GENERATOR))
        made = ReplacedTokenDetection(config(model=shape))
        shared = None if variant == "untied_embeddings" else made.discriminator.electra.embeddings
        made.generator = TokenPredictor(small, embeddings=shared)
        if variant == "wide_embeddings":
            variables = {name: one for name, one in variables.items() if not name.startswith("electra/embeddings_pro")}
    fill(made, {our_name(name): as_ours(name, values) for name, values in variables.items()})
    return made.eval()


def _of_variant(variant: str | None) -> dict[str, Any]:
    """Its own variables; they take the place of those of the same name."""
    if variant is None:
        return {}
    flat, found = read("variants")[f"{variant}/variables"], {}
    for row in table("variables_variants.tsv"):
        if row["variant"] == variant:
            shape = [int(size) for size in row["shape"].split("x")]
            found[row["name"]], flat = np.split(flat, [int(np.prod(shape))])
            found[row["name"]] = found[row["name"]].reshape(shape)
    assert not len(flat)
    return found


def cut(flat: Any) -> dict[str, Tensor]:
    """A flat vector of train_steps.npz, by our names, in our layout."""
    found = {}
    for row in table("variables.tsv"):
        shape, first = [int(size) for size in row["shape"].split("x")], int(row["offset"])
        values = flat[first : first + int(row["size"])].reshape(shape)
        found[our_name(row["name"])] = as_ours(row["name"], values)
    return found
