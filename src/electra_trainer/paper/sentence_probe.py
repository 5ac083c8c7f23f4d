"""Sentence probe: what a linear model reads of whole sentences from the frozen encoder, minutes of fine-tuning apart.

A text is read alone, and the mean over its tokens is taken of the embeddings and of every layer's output, each
normalised. From these a ridge regression predicts the similarity of two sentences (STS-B), and a ridge classifier
sentiment (SST-2). Their penalty is chosen by leave-one-out on the training rows. Beside each score stands that of the
same model upon random word vectors: a matching of words needs no encoder, and reaches much of STS-B.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from electra_trainer import randomness
from electra_trainer.data.tokenizer import Text, as_plain_text, specials_of
from electra_trainer.finetuning.examples import TextExample
from electra_trainer.finetuning.glue.glue_tasks import GlueTask
from electra_trainer.finetuning.search import TrainingRows
from electra_trainer.finetuning.task import Row, TaskData
from electra_trainer.finetuning.training_step import collate
from electra_trainer.model.encoder import Encoder
from electra_trainer.paper.part_of_speech import layer_outputs

_TASKS = {"stsb": None, "sst2": 10_000}
"""The tasks, and how many training rows are read of each (None: all)."""
_ROWS = 256
_PENALTIES = 10.0 ** np.arange(0, 7)

Represent = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts -> means of S states, [N, S, D]."""


@dataclass(frozen=True, kw_only=True)
class SentenceScores:
    """Scores on the development sets."""

    stsb: float
    """Spearman's correlation with people's similarity of two sentences."""
    stsb_random: float
    """The same from random word vectors."""
    sst2: float
    """Share of the sentences whose sentiment is told right."""
    sst2_random: float
    """The same from random word vectors."""


def probe_sentences(
    encoder: Encoder,
    tokenizer: Tokenizer,
    folder: Path,
    *,
    length: int,
    seed: int,
    device: torch.device,
    nested: bool = False,
) -> SentenceScores:
    """Fit the probe on GLUE's training rows and score it on its development rows.

    Args:
        encoder: is not changed.
        folder: GLUE's.
        length: longest row of the encoder; longer texts are cut.
        seed: of the random word vectors.
        nested: score on a tenth of the training rows, which is not trained on, instead of the development rows.

    Raises:
        MissingInputError, DataError: the tasks' files.
    """
    encoder = encoder.to(device).eval()
    text = Text(tokenizer=as_plain_text(tokenizer), specials=specials_of(tokenizer), length=length)
    table_VE = encoder.embeddings.word_embeddings.weight
    draws = torch.Generator().manual_seed(randomness.key(seed, "probe/sentences"))
    random_VE = torch.randn(table_VE.shape, generator=draws).to(device)
    ways: dict[str, Represent] = {
        "": lambda texts: _represent(texts, text, lambda rows: _states(encoder, rows, text, device)),
        "_random": lambda texts: _represent(texts, text, lambda rows: _words(random_VE, rows)),
    }
    tasks = sentence_tasks(folder)
    data = {task.task: (TrainingRows(source=task) if nested else task).load() for task in tasks}
    return SentenceScores(**{task + name: _score(data[task], way) for name, way in ways.items() for task in data})


def sentence_tasks(folder: Path) -> list[GlueTask]:
    """The tasks of the probe in GLUE's folder."""
    return [GlueTask(folder=str(folder), task=task, limit=limit, test=False) for task, limit in _TASKS.items()]


def _score(data: TaskData, represent: Represent) -> float:
    """Fit one task's linear model upon representations, and score it: a correlation for STS-B, a share for SST-2."""
    from scipy.stats import spearmanr
    from sklearn.linear_model import RidgeClassifierCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    dev = next(iter(data.dev.values()))
    regression = data.train[0].value is not None
    truths = [[one.value if regression else one.label for one in part] for part in (data.train, dev)]
    features = [_features(part, represent) for part in (data.train, dev)]
    kind = RidgeCV if regression else RidgeClassifierCV
    found = make_pipeline(StandardScaler(), kind(alphas=_PENALTIES)).fit(features[0], truths[0]).predict(features[1])
    return float(spearmanr(found, truths[1]).statistic if regression else np.mean(found == np.array(truths[1])))


def _features(examples: Sequence[TextExample], represent: Represent) -> NDArray[np.float32]:
    """One row an example: the means themselves, or of a pair |u - v|, u * v and the cosine for each state."""
    first_NSD = represent([one.text for one in examples])
    if examples[0].pair is None:
        return first_NSD.reshape(len(examples), -1)
    second_NSD = represent([one.pair or "" for one in examples])
    product_NSD = first_NSD * second_NSD
    lengths_NS1 = np.linalg.norm(first_NSD, axis=-1, keepdims=True) * np.linalg.norm(second_NSD, axis=-1, keepdims=True)
    cosine_NS1 = product_NSD.sum(-1, keepdims=True) / np.maximum(lengths_NS1, 1e-9)
    parts = (np.abs(first_NSD - second_NSD), product_NSD, cosine_NS1)
    return np.concatenate([part.reshape(len(examples), -1) for part in parts], axis=1)


def _represent(texts: Sequence[str], text: Text, states: Callable[[list[Row]], Tensor]) -> NDArray[np.float32]:
    """States of all texts, rows of similar length together."""
    rows = [Row(example=i, ids=text.row(one.ids)) for i, one in enumerate(text.encode(texts))]
    rows.sort(key=lambda row: len(row.ids))
    parts = [states(rows[first : first + _ROWS]).cpu() for first in range(0, len(rows), _ROWS)]
    found_NSD = torch.cat(parts).numpy()
    return np.asarray(found_NSD[np.argsort([row.example for row in rows])])


@torch.no_grad()
def _states(encoder: Encoder, rows: list[Row], text: Text, device: torch.device) -> Tensor:
    """Means over a text's tokens of each state, centred and normalised, [N, S, D]."""
    batch = collate(rows, text.specials, torch.device("cpu")).to(device)
    inner_BT = batch.real_BT & (batch.ids_BT != text.specials.cls) & (batch.ids_BT != text.specials.sep)
    weight_BT1 = (inner_BT / inner_BT.sum(1, keepdim=True).clamp(min=1))[..., None]
    outputs = layer_outputs(encoder, batch.ids_BT, batch)
    return torch.stack([(F.layer_norm(one, one.shape[-1:]) * weight_BT1).sum(1) for one in outputs], dim=1)


def _words(table_VE: Tensor, rows: list[Row]) -> Tensor:
    """Means of a text's word vectors, [N, 1, E]."""
    means = [table_VE[list(row.ids[1:-1])].mean(0) if len(row.ids) > 2 else table_VE[0] * 0 for row in rows]
    return torch.stack(means)[:, None]
