"""Predict held-out words, one masked word at a time (`electra cloze`, Appendix G).

    generator    argmax of p_G(x | c), c the row with that one word masked
    appendix-g   argmax of D p_G / (a (1 - D) + p_G) over the generator's top words; D with x put into the row
    encoder      argmax of an MLM run's own encoder, or of the encoder that replace-mlm, all-tokens-mlm and rtd-mlm
                 export
    against      the same by another run, at the very same words

The words are a pure function of the seed and the row.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra_trainer import randomness
from electra_trainer.batch import Batch
from electra_trainer.data.batches import to_batch
from electra_trainer.data.store import Store
from electra_trainer.data.tokenizer import Specials, tokenizer_sha256
from electra_trainer.errors import ConfigError, DataError, require
from electra_trainer.experiments.statistics import Estimate, clustered_mean
from electra_trainer.files import wording
from electra_trainer.kernels.vocabulary_softmax import CHUNK_ELEMENTS
from electra_trainer.model.attention import at
from electra_trainer.model.networks import Discriminator, TokenPredictor
from electra_trainer.paper import likelihoods
from electra_trainer.pretrained.pretrained import Pretrained
from electra_trainer.settings.calls import checked


@dataclass(frozen=True, kw_only=True)
class ClozeScores(wording.Printed):
    """Accuracies at the same held-out words. Standard errors treat a row's words as one cluster
    (statistics.clustered_mean).
    """

    accuracy: dict[str, Estimate]
    """Accuracy by predictor: see the top of cloze.py."""
    difference: dict[str, Estimate]
    """Paired differences of accuracies, "appendix-g - generator"."""
    among_top: Estimate | None
    """Share of the words among the generator's top ones: the bound of Appendix G's accuracy (footnote 12)."""
    top: int
    positions: int
    rows: int
    per_row: int
    """Most words in one row."""
    p_mask: float | None
    """The constant a of the formula; None where it was not used."""
    notes: tuple[str, ...]
    sites: "Sites"
    """The words, in DATA's held-out rows."""
    predicted: dict[str, NDArray[np.int64]]
    """Predicted ids, by predictor."""

    def as_json(self) -> dict[str, Any]:
        """The scores, without the words themselves; NaN, the standard error of a single row, is null."""
        shown = ("top", "positions", "rows", "per_row", "p_mask", "notes")
        return {
            "accuracy": {name: _plain(one) for name, one in self.accuracy.items()},
            "difference": {name: _plain(one) for name, one in self.difference.items()},
            "among_top": None if self.among_top is None else _plain(self.among_top),
            **{name: vars(self)[name] for name in shown},
        }

    def text(self) -> str:
        """The accuracies, a line each."""
        head = (
            f"{self.positions:,} held-out words in {self.rows:,} rows, at most {self.per_row} a row, each masked alone"
        )
        estimates = {**self.accuracy, **self.difference}
        if self.among_top is not None:
            estimates[f"in the generator's top {self.top:,}"] = self.among_top
        lines = [head, *(f"  {name:<26} {_percent(one)}" for name, one in estimates.items())]
        if self.p_mask is not None:
            lines.append(f"appendix-g: p_mask = {self.p_mask:g}, a = {(1 - self.p_mask) / self.p_mask:.4g}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def _plain(one: Estimate) -> dict[str, float | None]:
    return {name: None if isnan(value) else value for name, value in vars(one).items()}


def _percent(one: Estimate) -> str:
    value, error, low, high = (100 * number for number in (one.value, one.standard_error, one.low, one.high))
    return f"{value:6.2f} % ± {error:.2f}   95 %: {low:.2f} to {high:.2f}"


@dataclass(frozen=True, kw_only=True)
class Sites:
    """K words, each in its own copy of a row."""

    rows_BT: NDArray[np.integer]
    row_K: NDArray[np.int64]
    """Row of each word, ascending."""
    column_K: NDArray[np.int64]
    specials: Specials

    @property
    def truth_K(self) -> NDArray[np.int64]:
        """The true word at each site."""
        return self.rows_BT[self.row_K, self.column_K].astype(np.int64)

    def contexts(self, part: slice, device: torch.device) -> tuple[Batch, Tensor]:
        """Rows of some sites, [k, T], the words not masked, and the words' columns, int64 [k]. A token attends to its
        own piece as in training.
        """
        rows_kT, pad, cls, sep = self.rows_BT[self.row_K[part]], self.specials.pad, self.specials.cls, self.specials.sep
        return to_batch(rows_kT, pad=pad, cls=cls, sep=sep).to(device), torch.from_numpy(self.column_K[part]).to(device)


class Predictions(NamedTuple):
    """Predicted words at K sites, int64 [K]."""

    generator_K: Tensor
    appendix_g_K: Tensor | None
    among_top_K: Tensor
    """bool, whether the true word is among the candidates: otherwise no choice among them can be right."""


@checked
def cloze(
    pretrained: str | Path | Pretrained,
    data: str | Path,
    *,
    against: str | Path | Pretrained | None = None,
    rows: int = 256,
    per_row: int = 4,
    top: int = 100,
    seed: int = 0,
    p_mask: float | None = None,
) -> ClozeScores:
    """Predict held-out words, on the device of the networks.

    Args:
        pretrained: a run or an exported folder, loaded or its path. An MLM run gives only its own accuracy.
        data: a prepared folder with the same tokenizer.
        against: another run with a token predictor.
        rows, per_row: random held-out rows, at most all, and words of each, never special tokens nor [UNK].
        top: the generator's words that Appendix G chooses among; each takes a forward pass of the discriminator.
        seed: of rows and words.
        p_mask: share of masked tokens in the formula; None: the run's.

    Raises:
        ConfigError: no network here predicts words, or the rows are longer than a network's positions.
        DataError: another tokenizer, or no held-out words. MissingInputError: no such folder.
    """
    for name, value in (("--rows", rows), ("--per-row", per_row), ("--top", top)):
        require(value >= 1, name, value, "at least 1")
    pretrained, store = likelihoods.loaded(pretrained), Store.open(data)
    other = None if against is None else likelihoods.loaded(against)
    share = likelihoods.masked_share(pretrained.config, given=p_mask)
    _require_words(pretrained, "RUN", store)
    if other is not None:
        _require_words(other, "--against", store)
    sites = choose_sites(store.rows("valid"), rows=rows, per_row=per_row, seed=seed, specials=store.specials)
    if not len(sites.row_K):
        raise DataError(f"{data}: holds no held-out words. Prepare it with a --valid-fraction above 0.")
    predicted, among_K = _predicted(pretrained, other, sites, top=top, p_mask=share.p_mask)
    correct = {name: words_K == sites.truth_K for name, words_K in predicted.items()}
    return ClozeScores(
        accuracy={name: clustered_mean(correct_K, sites.row_K) for name, correct_K in correct.items()},
        difference={  # between neighbours: appendix-g - generator, against - appendix-g
            f"{second} - {first}": clustered_mean(correct[second].astype(int) - correct[first], sites.row_K)
            for first, second in pairwise(correct)
        },
        among_top=clustered_mean(among_K, sites.row_K) if among_K is not None else None,
        top=min(top, store.vocab_size),
        positions=len(sites.row_K),
        rows=len(np.unique(sites.row_K)),
        per_row=per_row,
        p_mask=share.p_mask if "appendix-g" in predicted else None,
        notes=(share.note,) if pretrained.discriminator is not None and share.note else (),
        sites=sites,
        predicted=predicted,
    )


def _require_words(pretrained: Pretrained, what: str, store: Store) -> None:
    """Refuse a model that predicts no words, or not those of the rows."""
    if pretrained.generator is None:
        raise ConfigError(
            f"cloze: {what} has no generator network, so nothing here predicts a word from its context (a unigram or "
            "uniform generator is not a network, and a discriminator's folder comes without). Give a run of "
            "--generator learned, or an MLM run."
        )
    positions = likelihoods.most_positions(pretrained)
    alike = tokenizer_sha256(pretrained.tokenizer) == store.manifest.tokenizer_sha256
    if not alike or (positions is not None and store.sequence_length > positions):
        raise DataError(
            f"{store.folder}: has rows of {store.sequence_length} tokens of {'the same' if alike else 'another'} "
            f"tokenizer. Prepare it with the run's folder `tokenizer` and --seq-len {positions} or less."
        )


def _predicted(
    pretrained: Pretrained, against: Pretrained | None, sites: Sites, *, top: int, p_mask: float | None
) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.bool_] | None]:
    """Predicted ids by predictor, and whether the true word is among the generator's top ones."""
    generator, found, among_K = likelihoods.own_generator(pretrained), dict[str, Tensor](), None
    if generator is not None:
        temperature = likelihoods.sampling_temperature(pretrained.config)
        words = predict_with_discriminator(
            generator, pretrained.discriminator, sites, top=top, p_mask=p_mask, temperature=temperature
        )
        found["generator"], among_K = words.generator_K, words.among_top_K.numpy()
        if words.appendix_g_K is not None:
            found["appendix-g"] = words.appendix_g_K
    others = {"encoder": pretrained.encoder, "against": (against.encoder or against.generator) if against else None}
    found |= {name: predict(network, sites) for name, network in others.items() if network is not None}
    return {name: words_K.numpy() for name, words_K in found.items()}, among_K


def choose_sites(rows_BT: NDArray[np.integer], *, rows: int, per_row: int, seed: int, specials: Specials) -> Sites:
    """`per_row` random words of each of `rows` random rows; all words or rows where there are fewer.

    [PAD], [CLS], [SEP], [MASK] and [UNK] are never chosen. A row's words do not depend on how many rows are taken.
    """
    order = np.argsort(randomness.Rng(seed, 0, 0).bits("cloze rows").random_raw(len(rows_BT)), kind="stable")
    never = [specials.pad, specials.unk, specials.cls, specials.sep, specials.mask]
    row_K, column_K = [], []
    for row in np.sort(order[:rows]):
        columns = np.flatnonzero(~np.isin(rows_BT[row], never))
        keys = randomness.Rng(seed, 0, int(row)).bits("cloze columns").random_raw(len(columns))
        chosen = np.sort(columns[np.argsort(keys, kind="stable")[:per_row]])
        row_K += [int(row)] * len(chosen)
        column_K += chosen.tolist()
    row, column = np.array(row_K, dtype=np.int64), np.array(column_K, dtype=np.int64)
    return Sites(rows_BT=rows_BT, row_K=row, column_K=column, specials=specials)


def predict(network: TokenPredictor, sites: Sites) -> Tensor:
    """The most probable word at each site, int64 [K]."""
    return predict_with_discriminator(network, None, sites, top=1, p_mask=None).generator_K


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

    Memory does not grow with the number of sites, nor with `top`: candidates are put into their contexts some rows at a
    time.

    Args:
        generator, discriminator: of one run; without a discriminator or `p_mask` there is no prediction by Appendix G.
        sites: the words to predict.
        top: candidates a site, at most the vocabulary.
        p_mask: share of masked tokens.
        temperature: of the generator's sampling; p_G of the formula is the distribution of the samples.
    """
    best, chosen, among = [], [], []
    truth_K = torch.from_numpy(sites.truth_K)
    # sites that are predicted together: both their rows and their logits over the vocabulary are bounded
    logits = len(generator.output()[0]) * likelihoods.TOKENS_TOGETHER // CHUNK_ELEMENTS
    for part in likelihoods.passes(len(sites.row_K), max(sites.rows_BT.shape[1], logits)):
        batch, column_k = sites.contexts(part, likelihoods.device_of(generator))
        row_k = torch.arange(len(column_k), device=column_k.device)
        masked, slots_k = likelihoods.put(batch, row_k, column_k, sites.specials.mask)
        log_p_kV = (generator(masked.ids_BT, masked, slots_k) / temperature).log_softmax(-1)
        log_p_kk, words_kk = log_p_kV.topk(min(top, log_p_kV.shape[1]))
        best.append(words_kk[:, 0].cpu())
        among.append((words_kk.cpu() == truth_K[part, None]).any(1))
        if discriminator is not None and p_mask is not None:
            logits_kk = _candidate_logits(discriminator, batch, column_k, words_kk)
            place_k1 = likelihoods.log_likelihood(logits_kk, log_p_kk, p_mask=p_mask).argmax(1, keepdim=True)
            chosen.append(words_kk.gather(1, place_k1)[:, 0].cpu())
    return Predictions(torch.cat(best), torch.cat(chosen) if chosen else None, torch.cat(among))


def _candidate_logits(discriminator: Discriminator, batch: Batch, column_k: Tensor, words_kk: Tensor) -> Tensor:
    """The discriminator's logit of "replaced" for each candidate, put at its site; fp32, of the shape of `words_kk`."""
    # one candidate at one site is one row
    row_M = torch.arange(len(words_kk), device=words_kk.device).repeat_interleave(words_kk.shape[1])
    column_M, word_M, found = column_k[row_M], words_kk.flatten(), []
    for part in likelihoods.passes(len(row_M), batch.ids_BT.shape[1]):
        copies, slots_m = likelihoods.put(batch, row_M[part], column_M[part], word_M[part])
        found.append(discriminator.replaced(at(discriminator.electra(copies.ids_BT, copies), slots_m)))
    return torch.cat(found).view(words_kk.shape)
