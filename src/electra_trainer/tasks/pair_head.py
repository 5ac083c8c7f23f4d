"""A head that compares two texts: the means of their tokens, and how well each token is matched in the other text
(`--pooling pair`); and its first weights, a linear model of its features, fitted while the encoder is as pre-trained.

Fine-tuning from a head that was drawn at random bends the encoder to that head before it is of any use, and forgets
features that a linear model can read at once; linear probing first, then fine-tuning, keeps them (Kumar et al., 2022).
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.errors import Diverged
from electra_trainer.model.attention import Dropout
from electra_trainer.model.encoder import Encoder
from electra_trainer.randomness import drawn
from electra_trainer.settings.config import Model
from electra_trainer.tasks.baselines import FOLDS, Array, Indices, chosen, inverse_frequency, spelling_vectors
from electra_trainer.tasks.task import ReadRows, Row

TEMPERATURE = 0.05
"""Temperature of the softmax over the tokens of the other text. With 0 the best one alone gets a gradient."""
SPELLING = 64
"""Numbers in a piece's spelling vector."""
DEPTHS = 4
"""Spelling, word vectors as they are in the table, the middle layer and the last one."""
SPREAD = 8.0
"""Matches are shares that differ by a tenth from pair to pair; as features they are centred and made as large as those
of a LayerNorm, or a learning rate of fine-tuning would not reach them in the 300 steps of a small task.
"""
MATCHES = 6 * DEPTHS + 1
"""Six numbers a depth, and the ratio of lengths."""
PENALTIES = (10.0, 100.0, 1e3, 1e4)
"""Weights of the squared norm (of its half, for classes) beside the sum of the losses, tried by cross-validation."""
POOLED = (1.0, 0.1)
"""Factors of the standardized features of the means in a fit of classes, tried with each penalty: with 0.1 a penalty
weighs a hundred times as much on these 4 D, which few rows cannot tell from noise, as on the `MATCHES`.
"""
MOST_ROWS = 20_000
"""Rows that are fitted, a fixed sample of larger sets: more move a thousand weights little, and take minutes."""


class PairHead(nn.Module):
    """`read_states` [B, T, S + E + 2 D] -> [B, outputs]: one linear layer on 4 D + `MATCHES` features of a row [CLS] A
    [SEP] B [SEP].

    With u and v the means of the last hidden states over the tokens of A and of B, the features are
    dropout(LayerNorm([u, v, |u - v|, u * v])) (Conneau et al., 2017, with a norm), then at each depth six numbers, see
    `alike`, and last how many times as long the longer text is, as min / max. The linear layer begins as a probe of the
    encoder as it is: see `start_from_probe`.
    """

    rate_share = 0.1
    """Share of the recipe's learning rate. The head starts from a fitted probe; full-size Adam steps would undo that.
    """
    idf_V: Tensor
    spelling_VS: Tensor

    def __init__(self, model: Model, outputs: int) -> None:
        super().__init__()
        self.widths = [SPELLING, model.embedding_size, model.hidden_size, model.hidden_size]
        self.LayerNorm = nn.LayerNorm(4 * model.hidden_size, eps=model.layer_norm_eps)
        self.dropout = Dropout(model.hidden_dropout_prob)
        self.dense = nn.Linear(4 * model.hidden_size + MATCHES, outputs)
        self.register_buffer("idf_V", torch.ones(model.vocab_size))
        self.register_buffer("spelling_VS", torch.zeros(model.vocab_size, SPELLING))

    def count(self, texts: Sequence[Sequence[int]], pieces: Mapping[str, int]) -> None:
        """Take the word pieces' idf from some texts, given as ids, and their spelling from the vocabulary (piece ->
        id).
        """
        seen_V = np.zeros(len(self.idf_V))
        for ids in texts:
            seen_V[list(set(ids))] += 1
        self.idf_V.copy_(torch.from_numpy(inverse_frequency(seen_V, len(texts))))
        spelled = [f"{piece[2:]}>" if piece.startswith("##") else f"<{piece}>" for piece in pieces]
        self.spelling_VS[list(pieces.values())] = torch.from_numpy(spelling_vectors(spelled, width=SPELLING)).float()

    def read_states(self, encoder: Encoder, batch: Batch) -> Tensor:
        """States that are read of each token: its spelling, its word vector, less the mean of all, and two hidden
        states; fp32 [B, T, S + E + 2 D].
        """
        table_VE = encoder.embeddings.word_embeddings.weight
        words_BTE = F.embedding(batch.ids_BT, table_VE) - table_VE.mean(0)
        middle_BTD, last_BTD = encoder.halves(batch.ids_BT, batch)
        spelling_BTS = F.embedding(batch.ids_BT, self.spelling_VS)
        return torch.cat([spelling_BTS, words_BTE, middle_BTD.float(), last_BTD.float()], -1)

    def features(self, states: Tensor, batch: Batch) -> Tensor:
        """Input of the linear layer, [B, 4 D + `MATCHES`]."""
        first_BT, second_BT = sides(batch)
        depths = torch.split(states, self.widths, -1)
        u_BD, v_BD = (_mean(depths[-1], side_BT) for side_BT in (first_BT, second_BT))
        pooled = torch.cat([u_BD, v_BD, (u_BD - v_BD).abs(), u_BD * v_BD], -1)
        idf_BT = self.idf_V[batch.ids_BT]
        matches = [alike(depth, first_BT, second_BT, idf_BT) for depth in depths]
        lengths_B2 = torch.stack([first_BT.sum(-1), second_BT.sum(-1)], -1)
        ratio_B1 = lengths_B2.amin(-1, keepdim=True) / lengths_B2.amax(-1, keepdim=True).clamp(min=1)
        shares = SPREAD * (torch.cat([*matches, ratio_B1], -1) - 0.5)
        return torch.cat([self.dropout(self.LayerNorm(pooled)), shares], -1)

    def forward(self, states: Tensor, batch: Batch) -> Tensor:
        out: Tensor = self.dense(self.features(states, batch))
        return out


def sides(batch: Batch) -> tuple[Tensor, Tensor]:
    """The tokens of A and of B in rows [CLS] A [SEP] B [SEP], without the special ones; two bool [B, T]."""
    segment_BT = batch.segment_BT.masked_fill(~batch.real_BT, -1)
    ends_BT = segment_BT != F.pad(segment_BT[:, 1:], (0, 1), value=-1)
    inner_BT = batch.real_BT & (batch.position_BT > 0) & ~ends_BT
    return inner_BT & (segment_BT == 0), inner_BT & (segment_BT == 1)


def alike(vectors: Tensor, first_BT: Tensor, second_BT: Tensor, idf_BT: Tensor) -> Tensor:
    """Six numbers of how alike A and B are by their tokens' vectors, [B, 6]; 0 where a text is empty.

    They are the soft best match of A in B, that of B in A, the smaller of the two, the mean of the two without idf, the
    cosine of the texts' idf-weighted means, and that of their means. A token's match is the mean of its cosines with
    the tokens of the other text, weighted by their softmax at `TEMPERATURE`; a text's is the idf-weighted mean of its
    tokens'.

    Args:
        vectors: of the tokens, [B, T, any].
        first_BT, second_BT: which tokens are of A and of B.
        idf_BT: of the tokens, above 0.
    """
    unit = F.normalize(vectors, dim=-1)
    cosine_BTT = unit @ unit.transpose(1, 2)
    weighted, plain = [], []
    for mine_BT, other_BT in ((first_BT, second_BT), (second_BT, first_BT)):
        other_B1T = other_BT.unsqueeze(1)
        weight_BTT = (cosine_BTT / TEMPERATURE).masked_fill(~other_B1T, -1e4).softmax(-1)  # finite: B may be empty
        match_BT1 = (weight_BTT * cosine_BTT * other_B1T).sum(-1, keepdim=True)
        weighted.append(_mean(match_BT1, idf_BT * mine_BT))
        plain.append(_mean(match_BT1, mine_BT))
    cosines = [
        F.cosine_similarity(
            _mean(vectors, weight_BT * first_BT), _mean(vectors, weight_BT * second_BT), dim=-1, eps=1e-6
        )
        for weight_BT in (idf_BT, torch.ones_like(idf_BT))
    ]
    both = [torch.minimum(*weighted), (plain[0] + plain[1]) / 2]
    return torch.cat([*weighted, *both, torch.stack(cosines, -1)], -1)


def _mean(values: Tensor, weight_BT: Tensor) -> Tensor:
    """[B, T, X] -> [B, X]; 0 where all weights are."""
    weight_BT1 = weight_BT.unsqueeze(-1)
    return (values * weight_BT1).sum(1) / weight_BT1.sum(1).clamp(min=1e-6)


def start_from_probe(head: PairHead, rows: Sequence[Row], read: ReadRows) -> None:
    """Fit the linear layer of `head` to the training rows: logistic regression for classes, ridge regression for
    numbers.

    Where the rows have one answer only, several labels, or are very few, it stays as it was drawn. The same for the
    same rows and number of threads.

    Raises:
        Diverged: a feature is NaN or infinite.
    """
    chosen = np.sort(drawn("rows of a probe", count=MOST_ROWS, total=len(rows)))
    rows = [rows[index] for index in chosen]
    answers = np.array([row.target for row in rows])
    if answers.ndim == 2 or len(np.unique(answers)) < 2 or len(rows) < 2 * FOLDS:
        return
    matrix = np.zeros((len(rows), head.dense.in_features), dtype=np.float32)
    for indices, states, batch in read(rows):
        matrix[indices] = head.features(states, batch).float().cpu().numpy()
    if not np.isfinite(matrix).all():
        raise Diverged("the encoder gives the pair head features that are NaN or infinite.")
    examples = np.array([row.example for row in rows])
    classes = head.dense.out_features if answers.dtype.kind == "i" else 0
    weight, bias = fitted(matrix, answers, examples, classes=classes)
    head.dense.weight.copy_(torch.from_numpy(weight))
    head.dense.bias.copy_(torch.from_numpy(bias))


def fitted(
    matrix: NDArray[np.float32], answers: NDArray[np.generic], examples: Indices, *, classes: int
) -> tuple[Array, Array]:
    """Weights [outputs, features] and biases [outputs] of a linear layer on the features as they are.

    Args:
        matrix: features of the means, then `MATCHES` others.
        examples: of which example each row is.
        classes: how many there are, `answers` being their numbers; 0: `answers` are numbers to be predicted.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler
    from threadpoolctl import threadpool_limits

    scaler = StandardScaler().fit(matrix)
    scaled = scaler.transform(matrix)
    linear: Any = LogisticRegression(max_iter=300) if classes else Ridge()
    model: Any = Pipeline([("pooled", FunctionTransformer(_with_pooled, kw_args={"factor": 1.0})), ("linear", linear)])
    tried: dict[str, list[Any]] = {"linear__alpha": list(PENALTIES)}
    if classes:
        factors = [{"factor": factor} for factor in POOLED]
        tried = {"linear__C": [1 / penalty for penalty in PENALTIES], "pooled__kw_args": factors}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is where training begins
        model = chosen(model, tried, scaled, answers, examples=examples, classes=bool(classes))
        model.fit(scaled, answers)
    weight = np.atleast_2d(linear.coef_) * model["pooled"].transform(np.ones_like(scaled[:1])) / scaler.scale_
    bias = np.atleast_1d(linear.intercept_)
    bias = bias - weight @ scaler.mean_
    if not classes:
        return weight, bias
    if len(weight) == 1:  # of two classes only the second has a score
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    all_weights, all_biases = np.zeros((classes, matrix.shape[1])), np.full(classes, bias.min())
    all_weights[model.classes_], all_biases[model.classes_] = weight, bias
    return all_weights, all_biases


def _with_pooled(matrix: NDArray[np.float32], *, factor: float) -> NDArray[np.float32]:
    """The features with those of the means times a factor."""
    out = matrix.copy()
    out[:, :-MATCHES] *= factor
    return out
