"""Word embeddings that begin from co-occurrence in the training rows, where the settings say so: fresh ones take its
directions, trained ones (`--init`) go half-way towards them.

The directions are computed once, when a run begins, and kept in its folder, since an SVD's bits differ between
machines.
"""

import hashlib

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor

from electra_trainer.data.store import Store
from electra_trainer.errors import CheckpointError, MissingInputError
from electra_trainer.files.durable import replace_durably
from electra_trainer.files.reading import MOST_TEXT, read_file
from electra_trainer.model.encoder import Embeddings
from electra_trainer.model.shared_table import SharedTable
from electra_trainer.objectives import Objective
from electra_trainer.runs.run_folder import WORDS, RunFolder
from electra_trainer.settings.config import Config

_TENSOR, _WEIGHT = "directions_VE", "weight_V"


def keep_directions(folder: RunFolder, config: Config, store: Store) -> dict[str, str]:
    """Write the directions that word embeddings begin with, if they begin from co-occurrence.

    Returns:
        What environment.json records: the file's SHA-256.
    """
    if config.model.word_initializer == "random":
        return {}
    from electra_trainer.data.batches import word_counts
    from electra_trainer.data.co_occurrence import word_directions  # scipy and scikit-learn load slowly

    model = config.model
    directions_VE = word_directions(
        store.rows("train"), store.specials, vocab_size=model.vocab_size, width=model.embedding_size
    )
    weight_V = torch.from_numpy(word_counts(store)).log1p()
    content = safetensors.torch.save({_TENSOR: torch.from_numpy(directions_VE), _WEIGHT: weight_V})
    replace_durably(folder.path / WORDS, content)
    return {"words_sha256": hashlib.sha256(content).hexdigest()}


def _kept(folder: RunFolder, config: Config) -> dict[str, Tensor]:
    """Vectors of the run, [V, E], and what each counts for in a rotation, [V]; verified. Raises CheckpointError or
    StorageError.
    """
    path, shape = folder.path / WORDS, (config.model.vocab_size, config.model.embedding_size)
    remedy = "Restore it from a backup, or start again in another --out."
    try:
        content = read_file(path, limit=MOST_TEXT, error=CheckpointError)
    except MissingInputError:
        raise CheckpointError(
            f"{path}: the vectors that its word embeddings begin with are missing. {remedy}"
        ) from None
    intact = hashlib.sha256(content).hexdigest() == folder.fact(str, "words_sha256")
    found: dict[str, Tensor] = safetensors.torch.load(content) if intact else {}
    if not intact or found[_TENSOR].shape != shape:
        raise CheckpointError(f"{path}: is not as it was written when the run began, in shape {shape}. {remedy}")
    return found


@torch.no_grad()
def begin_words(objective: Objective, folder: RunFolder) -> str:
    """Give the word embeddings of a run their first values, as its settings say; the weights are trained or fresh.

    A fresh word's embedding keeps the length of its random one, which LayerNorm sees beside the positions; words
    without a direction keep all of it. Of trained weights each network's table is mixed with them.

    Returns:
        What trained weights were mixed with, for the log.

    Raises:
        CheckpointError, StorageError: the run's directions are missing, changed or cannot be read.
    """
    facts = folder.environment()
    trained = "init" in facts
    if objective.config.model.word_initializer == "random" or (trained and "words_sha256" not in facts):
        return ""  # the second began before trained words were mixed
    kept = _kept(folder, objective.config)
    tables = {module.word_embeddings for module in objective.modules() if isinstance(module, Embeddings)}
    begin = _mixed if trained else _turned
    first = {table: begin(table.weight.cpu(), **kept) for table in tables}  # a replay may be on a GPU
    for table, first_VE in first.items():
        if isinstance(table, SharedTable):
            table.delta.copy_(first_VE - first[table.base])
        else:
            table.weight.copy_(first_VE)
    line = "mixed into its word vectors, half and half: those of co-occurrence in the rows (not with "
    return f"{line}--model.word-initializer random)" if trained else ""


def _turned(random_VE: Tensor, *, directions_VE: Tensor, **_: Tensor) -> Tensor:
    """The directions with the lengths of random vectors."""
    turned_VE = directions_VE * random_VE.norm(dim=1, keepdim=True)
    return torch.where(directions_VE.any(1, keepdim=True), turned_VE, random_VE)


def _mixed(trained_VE: Tensor, *, directions_VE: Tensor, weight_V: Tensor) -> Tensor:
    """Trained vectors, [V, E], half-way turned towards directions that were counted in another text.

    The directions are first rotated as a whole to where they are nearest to the trained ones (orthogonal Procrustes),
    each word with its weight. Vectors are seen from their mean and keep their length; words without a direction keep
    their vector.
    """
    from scipy.linalg import orthogonal_procrustes

    mean_E = trained_VE.double().mean(0)  # in fp64: what another machine rounds otherwise does not reach fp32
    own_VE = trained_VE.double() - mean_E
    length_V1 = own_VE.norm(dim=1, keepdim=True)
    own_VE = own_VE / length_V1.clamp(min=1e-12)
    weighted_VE = directions_VE.double() * weight_V[:, None]
    rotation_EE, _ = orthogonal_procrustes(weighted_VE.numpy(), own_VE.numpy())
    both_VE = F.normalize(own_VE + directions_VE.double() @ torch.from_numpy(rotation_EE), dim=1)
    mixed_VE = (both_VE * length_V1 + mean_E).float()
    return torch.where(directions_VE.any(1, keepdim=True), mixed_VE, trained_VE)
