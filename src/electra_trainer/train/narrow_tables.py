"""Weights of an export of the modern block for a run with a narrower word table: an export has the product of table and
projection, and a run has both.

A run's networks share a table, or one trains its difference from the other's, so all products are divided by one table.
"""

from dataclasses import replace

import torch
from torch import Tensor

from electra_trainer.settings.config import Config
from electra_trainer.train.weights import Initial

_WORDS, _PROJECTION = "embeddings.word_embeddings.weight", "embeddings_project.weight"
_CLOSE = 0.01
"""Largest relative difference of a product from the export's table. Rounding to bfloat16 makes 0.002."""


def fit_tables(initial: Initial, config: Config) -> Initial:
    """The weights with word tables as wide as those of `config`; a network stays as it is if its table has that width,
    or varies in more directions.
    """
    width, shapes = config.model.embedding_size, {"": initial.model, **initial.shapes}
    parts = {"": initial.encoder, **initial.networks}
    folded = [name for name, one in shapes.items() if one.block == "modern" and one.embedding_size == one.hidden_size]
    if config.model.block != "modern" or all(shapes[name].hidden_size == width for name in folded):
        return initial
    tables = {name: parts[name]["electra." * bool(name) + _WORDS].double() for name in folded}
    words_VE = next((one for one in tables.values() if one.shape[1] == width), None)
    if words_VE is None:  # the directions of most variation, as large as a table that is initialised by `fan-in`
        all_VD = torch.cat([*tables.values()], 1)
        vectors_DE = torch.linalg.eigh(all_VD.t() @ all_VD).eigenvectors.flip(1)[:, :width]
        words_VE = all_VD @ vectors_DE * (width / all_VD.shape[1]) ** 0.5
    keep = config.sharing not in ("none", "disentangled")
    for name, table_VD in tables.items():
        if table_VD.shape[1] != width and (divided := _divided(table_VD, words_VE, keep=keep)):
            parts[name] = {**parts[name], **{"electra." * bool(name) + part: one for part, one in divided.items()}}
            shapes[name] = replace(shapes[name], embedding_size=width)
    return replace(initial, encoder=parts.pop(""), model=shapes.pop(""), networks=parts, shapes=shapes)


def _divided(table_VD: Tensor, base_VE: Tensor, *, keep: bool) -> dict[str, Tensor]:
    """Words [V, E] and a projection [D, E] whose product is the table; empty if there are none. The words are
    `base_VE` with `keep`, near it without.
    """
    words_VE, projection_ED = base_VE, torch.linalg.pinv(base_VE.t() @ base_VE) @ base_VE.t() @ table_VD
    if not keep:
        words_VE = base_VE + (table_VD - base_VE @ projection_ED) @ torch.linalg.pinv(projection_ED)
    if (words_VE @ projection_ED - table_VD).norm() > _CLOSE * table_VD.norm():
        return {}
    return {_WORDS: words_VE.float(), _PROJECTION: projection_ED.t().float().contiguous()}
