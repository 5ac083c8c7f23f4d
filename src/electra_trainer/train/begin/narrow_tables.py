"""Weights of an export of the modern block for a run with a narrower word table: an export has the product of table and
projection, and a run has both.

A run's networks share a table, or one trains its difference from the other's, so all products are divided by one table.
"""

from dataclasses import replace

import torch

from electra_trainer.settings.config import Config
from electra_trainer.train.begin.initial import Initial

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
    inverse_EV = torch.linalg.pinv(words_VE.t() @ words_VE) @ words_VE.t()
    for name, table_VD in tables.items():
        projection_ED, own_VE, prefix = inverse_EV @ table_VD, words_VE, "electra." * bool(name)
        if config.sharing in ("none", "disentangled"):
            own_VE = words_VE + (table_VD - words_VE @ projection_ED) @ torch.linalg.pinv(projection_ED)
        apart = (own_VE @ projection_ED - table_VD).norm() / table_VD.norm()
        if table_VD.shape[1] != width and apart <= _CLOSE:
            found = {_WORDS: own_VE, _PROJECTION: projection_ED.t()}
            parts[name] = {**parts[name], **{prefix + part: one.float().contiguous() for part, one in found.items()}}
            shapes[name] = replace(shapes[name], embedding_size=width)
    return replace(initial, encoder=parts.pop(""), model=shapes.pop(""), networks=parts, shapes=shapes)
