"""Word embeddings that begin from co-occurrence in the training rows, where the settings say so.

Their directions are computed once, when a run begins, and kept in its folder, since an SVD's bits differ between
machines.
"""

import hashlib

import safetensors.torch
import torch
from torch import Tensor, nn

from electra_trainer.data.store import Store
from electra_trainer.errors import CheckpointError, MissingInputError
from electra_trainer.files.durable import replace_durably
from electra_trainer.files.reading import MOST_TEXT, read_file
from electra_trainer.model.encoder import Embeddings
from electra_trainer.objectives import Objective
from electra_trainer.runs.run_folder import WORDS, RunFolder
from electra_trainer.settings.config import Config

_TENSOR = "directions_VE"


def keep_directions(folder: RunFolder, config: Config, store: Store) -> dict[str, str]:
    """Write the directions that word embeddings begin with, if they begin from co-occurrence.

    Returns:
        What environment.json records: the file's SHA-256.
    """
    if config.model.word_initializer == "random":
        return {}
    from electra_trainer.data.co_occurrence import word_directions  # scipy and scikit-learn load slowly

    model = config.model
    directions_VE = word_directions(
        store.rows("train"), store.specials, vocab_size=model.vocab_size, width=model.embedding_size
    )
    content = safetensors.torch.save({_TENSOR: torch.from_numpy(directions_VE)})
    replace_durably(folder.path / WORDS, content)
    return {"words_sha256": hashlib.sha256(content).hexdigest()}


def _directions(folder: RunFolder, config: Config) -> Tensor:
    """Vectors of the run, [V, E], verified. Raises CheckpointError or StorageError."""
    path, shape = folder.path / WORDS, (config.model.vocab_size, config.model.embedding_size)
    remedy = "Restore it from a backup, or start again in another --out."
    try:
        content = read_file(path, limit=MOST_TEXT, error=CheckpointError)
    except MissingInputError:
        raise CheckpointError(
            f"{path}: the vectors that its word embeddings begin with are missing. {remedy}"
        ) from None
    intact = hashlib.sha256(content).hexdigest() == folder.fact(str, "words_sha256")
    found: Tensor | None = safetensors.torch.load(content)[_TENSOR] if intact else None
    if found is None or found.shape != shape:
        raise CheckpointError(f"{path}: is not as it was written when the run began, in shape {shape}. {remedy}")
    return found


@torch.no_grad()
def begin_words(objective: Objective, folder: RunFolder) -> None:
    """Give fresh networks of a run their first word embeddings, as its settings say.

    A word's embedding keeps the length of its random one, which LayerNorm sees beside the positions; words without a
    direction keep all of it.

    Raises:
        CheckpointError, StorageError: the run's directions are missing, changed or cannot be read.
    """
    if objective.config.model.word_initializer == "random":
        return
    directions_VE = _directions(folder, objective.config)
    for module in objective.modules():
        if isinstance(module, Embeddings) and isinstance(module.word_embeddings, nn.Embedding):
            random_VE = module.word_embeddings.weight.cpu()  # a run begins on the CPU, a replay may be on a GPU
            turned_VE = directions_VE * random_VE.norm(dim=1, keepdim=True)
            first_VE = torch.where(directions_VE.any(1, keepdim=True), turned_VE, random_VE)
            module.word_embeddings.weight.copy_(first_VE)
