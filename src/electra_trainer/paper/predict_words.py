"""What networks predict at single masked words: by a token predictor alone, and by Appendix G with the discriminator."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra_trainer.batch import Batch
from electra_trainer.data.batches import to_batch
from electra_trainer.data.tokenizer import Specials
from electra_trainer.model.networks import Discriminator, TokenPredictor, at
from electra_trainer.objectives.vocabulary_softmax import CHUNK_ELEMENTS
from electra_trainer.paper import appendix_g
from electra_trainer.paper.appendix_g import device_of, log_likelihood, passes
from electra_trainer.randomness import Rng


@dataclass(frozen=True, kw_only=True)
class Sites:
    """K words, each in a row of its own."""

    rows_BT: NDArray[np.integer]
    row_K: NDArray[np.int64]
    """Row of each word, ascending."""
    column_K: NDArray[np.int64]
    specials: Specials

    @property
    def truth_K(self) -> NDArray[np.int64]:
        """The word that stands there."""
        return self.rows_BT[self.row_K, self.column_K].astype(np.int64)

    def contexts(self, part: slice) -> Batch:
        """Rows of some sites, [k, T], the words not masked; a token attends to its own piece as in training."""
        specials = self.specials
        return to_batch(self.rows_BT[self.row_K[part]], pad=specials.pad, cls=specials.cls, sep=specials.sep)


def choose_sites(rows_BT: NDArray[np.integer], *, rows: int, per_row: int, seed: int, specials: Specials) -> Sites:
    """`per_row` random words of each of `rows` random rows; all that there are where there are fewer.

    [PAD], [CLS], [SEP], [MASK] and [UNK] are never chosen. A row's words do not depend on how many rows are taken.
    """
    order = np.argsort(Rng(seed, 0, 0).bits("cloze rows").random_raw(len(rows_BT)), kind="stable")
    never = [specials.pad, specials.unk, specials.cls, specials.sep, specials.mask]
    row_K, column_K = [], []
    for row in np.sort(order[:rows]):
        columns = np.flatnonzero(~np.isin(rows_BT[row], never))
        keys = Rng(seed, 0, int(row)).bits("cloze columns").random_raw(len(columns))
        chosen = np.sort(columns[np.argsort(keys, kind="stable")[:per_row]])
        row_K += [int(row)] * len(chosen)
        column_K += chosen.tolist()
    return Sites(
        rows_BT=rows_BT,
        row_K=np.array(row_K, dtype=np.int64),
        column_K=np.array(column_K, dtype=np.int64),
        specials=specials,
    )


class Words(NamedTuple):
    """The most probable words at K sites, in the order of probability."""

    words_Kk: Tensor
    """int64."""
    log_p_Kk: Tensor
    """Log probability under the single-mask context, fp32."""


class Predictions(NamedTuple):
    """Predicted words at K sites, int64 [K]."""

    generator_K: Tensor
    appendix_g_K: Tensor | None
    among_top_K: Tensor
    """bool, whether the true word is among the candidates: no choice among them can be right otherwise."""


@torch.no_grad()
def predict(network: TokenPredictor, sites: Sites) -> Tensor:
    """The most probable word at each site, int64 [K]."""
    parts = [likeliest(network, sites, part, top=1).words_Kk[:, 0].cpu() for part in _parts(network, sites)]
    return torch.cat(parts)


@torch.no_grad()
def predict_with_discriminator(
    generator: TokenPredictor,
    discriminator: Discriminator | None,
    sites: Sites,
    *,
    top: int,
    p_mask: float | None,
    temperature: float = 1.0,
) -> Predictions:
    """The generator's prediction, and Appendix G's among the generator's `top` words.

    Memory does not grow with the number of sites, nor with `top`: candidates are put into their contexts some rows at a time.

    Args:
        generator, discriminator: of one run; without a discriminator or `p_mask` there is no prediction by Appendix G.
        sites: the words to predict.
        top: candidates a site, at most the vocabulary.
        p_mask: share of masked tokens (appendix_g.py).
        temperature: that the generator sampled with; p_G of the formula is what was sampled from.
    """
    best, chosen, among = [], [], []
    truth_K = torch.from_numpy(sites.truth_K)
    for part in _parts(generator, sites):
        words_kk, log_p_kk = likeliest(generator, sites, part, top=top, temperature=temperature)
        best.append(words_kk[:, 0].cpu())
        among.append((words_kk.cpu() == truth_K[part, None]).any(1))
        if discriminator is not None and p_mask is not None:
            logits_kk = candidate_logits(discriminator, sites, part, words_kk)
            place_k1 = log_likelihood(logits_kk, log_p_kk, p_mask=p_mask).argmax(1, keepdim=True)
            chosen.append(words_kk.gather(1, place_k1)[:, 0].cpu())
    return Predictions(torch.cat(best), torch.cat(chosen) if chosen else None, torch.cat(among))


def likeliest(network: TokenPredictor, sites: Sites, part: slice, *, top: int, temperature: float = 1.0) -> Words:
    """The `top` most probable words at some sites, each masked alone in its row, with their log probabilities."""
    batch = sites.contexts(part).to(device_of(network))
    slots_k = _slots(batch, sites, part)
    input_kT = batch.ids_BT.clone()
    input_kT.view(-1)[slots_k] = sites.specials.mask
    log_p_kV = (network(input_kT, batch, slots_k) / temperature).log_softmax(-1)
    found = log_p_kV.topk(min(top, log_p_kV.shape[1]))
    return Words(found.indices, found.values)


def candidate_logits(discriminator: Discriminator, sites: Sites, part: slice, words_kk: Tensor) -> Tensor:
    """The discriminator's logit of "replaced" for each candidate, put at its site; fp32, of the shape of `words_kk`."""
    batch = sites.contexts(part).to(words_kk.device)
    slots_k, tokens = _slots(batch, sites, part), batch.ids_BT.shape[1]
    # one candidate at one site is one row
    items_M = torch.arange(words_kk.numel(), device=words_kk.device)
    found = []
    for one_pass in passes(len(items_M), tokens):
        items_m = items_M[one_pass]
        site_m = items_m // words_kk.shape[1]
        copies = Batch(
            ids_BT=batch.ids_BT[site_m],
            segment_BT=batch.segment_BT[site_m],
            position_BT=batch.position_BT[site_m],
            piece_BT=batch.piece_BT[site_m],
        )
        slots_m = torch.arange(len(items_m), device=items_m.device) * tokens + slots_k[site_m] % tokens
        copies.ids_BT.view(-1)[slots_m] = words_kk.flatten()[items_m]
        hidden_mD = at(discriminator.electra(copies.ids_BT, copies), slots_m)
        found.append(discriminator.replaced(hidden_mD))
    return torch.cat(found).view(words_kk.shape)


def _parts(network: TokenPredictor, sites: Sites) -> list[slice]:
    """Sites that are predicted together: their rows and their logits over the vocabulary are both bounded."""
    logits = len(network.output()[0]) * appendix_g.TOKENS_TOGETHER // CHUNK_ELEMENTS
    return passes(len(sites.row_K), max(sites.rows_BT.shape[1], logits))


def _slots(batch: Batch, sites: Sites, part: slice) -> Tensor:
    """Flat index of some sites in the batch of their rows, int64 [k]."""
    column_k = torch.from_numpy(sites.column_K[part]).to(batch.ids_BT.device)
    return torch.arange(len(column_k), device=column_k.device) * batch.ids_BT.shape[1] + column_k
