"""The layers on top of an encoder: one for words, texts and BERT's questions, and XLNet's for questions (§3.1).

Both heads that find an answer are read the same way: some columns at which an answer may begin (a beam), for each of
them a score of every end. Shape letters of their own: S starts in the beam, W the width of a hidden layer.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.model.modern import PredictionHead
from electra_trainer.settings.config import Model
from electra_trainer.tasks.squad_score import Spans

_NEVER = float("-inf")


class ModernHead(PredictionHead):
    """Dense, GELU, LayerNorm and a linear layer, [.., D] -> [.., outputs]: the head of transformers' ModernBERT for
    texts, tokens and questions.
    """

    def __init__(self, model: Model, outputs: int) -> None:
        super().__init__(model)
        self.classifier = nn.Linear(model.hidden_size, outputs)

    def forward(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.classifier(super().forward(hidden))
        return logits


def output_head(model: Model, outputs: int) -> nn.Module:
    """The head of the encoder's block, [.., D] -> [.., outputs]: one linear layer on BERT's, ModernBERT's own on the
    modern block.
    """
    return ModernHead(model, outputs) if model.block == "modern" else nn.Linear(model.hidden_size, outputs)


class JointHead(nn.Module):
    """The end given the start, and whether there is an answer.

        start(i)       = w·h_i                                                over the passage and [CLS]
        end(i | s)     = w·gelu(W [h_s; h_i])                                 the same; s is the true start in training
        no answer      = w·gelu(W [h_CLS; sum_i softmax(start)_i h_i])        a logit: positive without an answer

    As released, but that there the softmaxes of start and end also hold the last [SEP]; XLNet's own has hidden layers
    of the encoder's width, tanh and a LayerNorm.
    """

    def __init__(self, hidden_size: int, *, width: int, answerable: bool) -> None:
        super().__init__()
        self.start = nn.Linear(hidden_size, 1)
        self.end_dense = nn.Linear(2 * hidden_size, width)
        self.end = nn.Linear(width, 1)
        self.answerable_dense = nn.Linear(2 * hidden_size, width) if answerable else None
        self.answerable = nn.Linear(width, 1) if answerable else None

    def start_logits(self, hidden_BTD: Tensor, allowed_BT: Tensor) -> Tensor:
        """[B, T]; -inf where an answer cannot be."""
        logits_BT: Tensor = self.start(hidden_BTD).squeeze(-1)
        return logits_BT.masked_fill(~allowed_BT, _NEVER)

    def end_logits(self, hidden_BTD: Tensor, start_BS: Tensor, allowed_BT: Tensor) -> Tensor:
        """[B, S, T], given the columns of S starts. One start after another: together they would need S * T * W numbers
        a row.
        """
        of_start_DW, of_end_DW = self.end_dense.weight.t().chunk(2)
        ends_BTW = hidden_BTD @ of_end_DW + self.end_dense.bias
        index_BSD = start_BS[..., None].expand(-1, -1, hidden_BTD.shape[-1])
        starts_BSW = hidden_BTD.gather(1, index_BSD) @ of_start_DW
        logits_BST = torch.stack(
            [self.end(F.gelu(ends_BTW + start_BW[:, None])).squeeze(-1) for start_BW in starts_BSW.unbind(1)], dim=1
        )
        return logits_BST.masked_fill(~allowed_BT[:, None], _NEVER)

    def no_answer_logits(self, hidden_BTD: Tensor, start_logits_BT: Tensor) -> Tensor | None:
        """[B], or None without that classifier."""
        if self.answerable is None or self.answerable_dense is None:
            return None
        start_BD = torch.einsum("bt,btd->bd", start_logits_BT.softmax(-1), hidden_BTD)
        seen_B2D = torch.cat([hidden_BTD[:, 0], start_BD], dim=-1)
        logits_B: Tensor = self.answerable(F.gelu(self.answerable_dense(seen_B2D))).squeeze(-1)
        return logits_B


class Beam(NamedTuple):
    """A head's output for rows, before impossible spans are removed."""

    start_BS: Tensor
    """Columns of the best starts."""
    start_score_BS: Tensor
    end_score_BST: Tensor
    """Score of each end given each start; a span's score is the sum of two."""
    no_answer_B: Tensor
    """The larger, the less likely the row holds an answer."""


class Places(NamedTuple):
    """Columns that can be part of an answer, bool [B, T]."""

    allowed_BT: Tensor
    """The passage and [CLS]."""
    startable_BT: Tensor
    """Tokens of the passage at which an answer may begin in this row."""


def joint_loss(
    head: JointHead, hidden_BTD: Tensor, allowed_BT: Tensor, *, span_B2: Tensor, no_answer_B: Tensor, weight: float
) -> Tensor:
    """Sum over rows of the mean of start's and end's cross-entropy, and `weight` times that of answerability.

    Args:
        span_B2: columns of the first and last token of the answer; 0 and 0 where the row does not hold it.
        no_answer_B: fp32, 1 where the classifier should predict no answer.
    """
    start_BT = head.start_logits(hidden_BTD, allowed_BT)
    end_BT = head.end_logits(hidden_BTD, span_B2[:, :1], allowed_BT)[:, 0]
    loss = _span_loss(start_BT, end_BT, span_B2)
    if (logits_B := head.no_answer_logits(hidden_BTD, start_BT)) is not None:
        loss = loss + weight * F.binary_cross_entropy_with_logits(logits_B, no_answer_B, reduction="sum")
    return loss


def joint_beam(head: JointHead, hidden_BTD: Tensor, places: Places, *, beam: int) -> Beam:
    """Log-probabilities of starts and of ends given them.

    Without the classifier "no answer" is the log-odds of [CLS] as the start.
    """
    start_BT = head.start_logits(hidden_BTD, places.allowed_BT)
    if (no_answer_B := head.no_answer_logits(hidden_BTD, start_BT)) is None:
        most = torch.finfo(start_BT.dtype).max  # a context without tokens: JSON has no infinity
        no_answer_B = (start_BT[:, 0] - start_BT[:, 1:].logsumexp(-1)).clamp(max=most)
    score_BS, start_BS = _best(start_BT.log_softmax(-1), places.startable_BT, beam)
    end_BST = head.end_logits(hidden_BTD, start_BS, places.allowed_BT).log_softmax(-1)
    return Beam(start_BS, score_BS, end_BST, no_answer_B)


def independent_loss(head: nn.Module, hidden_BTD: Tensor, real_BT: Tensor, *, span_B2: Tensor) -> Tensor:
    """BERT's: one linear layer gives both logits of every token, over the whole row. [B, T, D] -> sum over rows."""
    start_BT, end_BT = _pair(head, hidden_BTD, real_BT)
    return _span_loss(start_BT, end_BT, span_B2)


def independent_beam(head: nn.Module, hidden_BTD: Tensor, places: Places, real_BT: Tensor, *, beam: int) -> Beam:
    """Logits as they are, so that windows can be compared; "no answer" is the span [CLS] to [CLS] (BERT)."""
    start_BT, end_BT = _pair(head, hidden_BTD, real_BT)
    score_BS, start_BS = _best(start_BT, places.startable_BT, beam)
    end_BST = end_BT[:, None].expand(-1, start_BS.shape[1], -1)
    return Beam(start_BS, score_BS, end_BST, start_BT[:, 0] + end_BT[:, 0])


def best_spans(beam: Beam, allowed_BT: Tensor, *, max_answer: int, count: int) -> list[Spans]:
    """The best `count` spans of each row, of at most `max_answer` tokens, all within the passage.

    The released code keeps as many ends of each start as starts, and throws away those that cannot be; here they are
    left out first, so a row never runs out of answers, and the best `count` of all can hold no more than `count` ends
    of one start.
    """
    columns_T = torch.arange(allowed_BT.shape[1], device=allowed_BT.device)
    length_BST = columns_T - beam.start_BS[..., None] + 1
    possible_BST = (length_BST >= 1) & (length_BST <= max_answer) & allowed_BT[:, None]
    score_BST = (beam.start_score_BS[..., None] + beam.end_score_BST).masked_fill(~possible_BST, _NEVER)
    best_BK, index_BK = score_BST.flatten(1).topk(min(count, score_BST[0].numel()), dim=-1)
    beam_BK, end_BK = index_BK // allowed_BT.shape[1], index_BK % allowed_BT.shape[1]
    start_BK = beam.start_BS.gather(1, beam_BK)
    each = start_BK, end_BK, best_BK, best_BK.isfinite().sum(-1), beam.no_answer_B
    return [
        Spans(starts[:number], ends[:number], scores[:number], no_answer)
        for starts, ends, scores, number, no_answer in zip(*(one.tolist() for one in each), strict=True)
    ]


def _span_loss(start_BT: Tensor, end_BT: Tensor, span_B2: Tensor) -> Tensor:
    start = F.cross_entropy(start_BT, span_B2[:, 0], reduction="sum")
    return (start + F.cross_entropy(end_BT, span_B2[:, 1], reduction="sum")) / 2


def _pair(head: nn.Module, hidden_BTD: Tensor, real_BT: Tensor) -> tuple[Tensor, Tensor]:
    logits_BT2: Tensor = head(hidden_BTD)
    start_BT, end_BT = logits_BT2.masked_fill(~real_BT[..., None], _NEVER).unbind(-1)
    return start_BT, end_BT


def _best(score_BT: Tensor, startable_BT: Tensor, beam: int) -> tuple[Tensor, Tensor]:
    """Scores and columns of the best starts, [B, S]; -inf where a row has fewer."""
    return score_BT.masked_fill(~startable_BT, _NEVER).topk(min(beam, score_BT.shape[1]))
