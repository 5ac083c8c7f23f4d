"""ELECTRA as a masked language model (Appendix G): likelihoods of words, scores of sentences, cloze and minimal pairs.

For a context c with one token masked out, Appendix G writes the discriminator's loss as a sum over the vocabulary and
finds its critical point, D = p_data (a + p_G) / (a p_data + p_G). Solved for p_data it is

    p_data(x | c) = D(x, c) p_G(x | c) / (a (1 - D(x, c)) + p_G(x | c)),      a = (1 - p_mask) / p_mask

with D the probability that x is the original. A real discriminator is not optimal, so the sum over a vocabulary need
not be 1.

The networks read every token of many sentences, without padding. A sentence is a row of ids `[CLS] … [SEP]`.
Sentences of one length are computed together, at most `TOKENS_TOGETHER` tokens at a time, so memory does not
grow with their number.

Scores of whole sentences are sums over their own tokens ([CLS] and [SEP] are read, but not counted):

    discriminator      log D, the log probability that the token is an original; one forward pass a sentence
    appendix-g         log p_data(x_t | the others) by Appendix G: p_G with the token masked, D with the token in place
    pseudo-likelihood  log p(x_t | the others) by the encoder of an MLM run, each token masked in turn
    encoder            the same by the encoder of replace-mlm, all-tokens-mlm and rtd-mlm, which never read [MASK]
                       in training
    generator          the same by the generator

Appendix G's likelihood is not normalised over the vocabulary: that would take a forward pass of the discriminator for
each word at each place. With an optimal discriminator there would be nothing to normalise.

A held-out word is predicted (`electra cloze`), one masked word at a time, by

    generator    argmax of p_G(x | c), c the row with that one word masked
    appendix-g   argmax of D p_G / (a (1 - D) + p_G) over the generator's top words; D with x put into the row
    encoder      argmax of an MLM run's own encoder, or of the encoder that replace-mlm, all-tokens-mlm and rtd-mlm
                 export
    against      the same by another run, at the very same words

The words are a pure function of the seed and the row.

Minimal pairs (BLiMP): in how many does a run score the acceptable sentence above the other one; a tie is wrong. The
files have BLiMP's format: one JSON object a line, one file a paradigm.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import exp, isnan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from electra_trainer import randomness
from electra_trainer.batch import Batch
from electra_trainer.cost.parameters import slots
from electra_trainer.data.batches import encode_rows, to_batch
from electra_trainer.data.store import Store
from electra_trainer.data.tokenizer import Specials, as_plain_text, tokenizer_sha256
from electra_trainer.errors import ConfigError, DataError, MissingInputError, did_you_mean, require
from electra_trainer.experiments.statistics import Estimate, clustered_mean
from electra_trainer.files import wording
from electra_trainer.files.reading import MOST_TEXT, encodable, json_object, read_file, short
from electra_trainer.model.networks import Discriminator, TokenPredictor, at
from electra_trainer.objectives.vocabulary_softmax import CHUNK_ELEMENTS, log_probability
from electra_trainer.pretrained.pretrained import Pretrained, load
from electra_trainer.settings.calls import checked
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import RTD, Learned, SentenceContrast

TOKENS_TOGETHER = 1 << 14
"""Tokens in one forward pass; a longer row is computed alone."""


def log_likelihood(replaced_logit: Tensor, log_p_generator: Tensor, *, p_mask: float) -> Tensor:
    """Log p_data(x | c) by Appendix G, elementwise; in fp32 logarithms throughout, so that no small p_G is lost.

    Args:
        replaced_logit: the discriminator's logit of "x was replaced", with x put into the context: D = sigmoid(-logit).
        log_p_generator: log p_G(x | c), of the same shape.
        p_mask: share of the discriminator's tokens that were masked, above 0 and at most 1. At 1 (a = 0) the result is
        D itself.
    """
    odds = torch.tensor((1 - p_mask) / p_mask, dtype=replaced_logit.dtype, device=replaced_logit.device)
    log_fake = odds.log() + F.logsigmoid(replaced_logit)  # log a (1 - D)
    return F.logsigmoid(-replaced_logit) + log_p_generator - torch.logaddexp(log_fake, log_p_generator)


class MaskedShare(NamedTuple):
    """p_mask of a run, or why it has none."""

    p_mask: float | None
    note: str = ""
    """Empty where `p_mask` is simply the share of a full row that is chosen."""


def masked_share(config: Config | None, *, given: float | None = None) -> MaskedShare:
    """p_mask of Appendix G: the share of the tokens in the discriminator's loss that were masked in training.

    This is the share of a full row that the run's masking chooses (19 of 128 tokens, 4 of 32), lowered by the inputs
    that `sentence-contrast` leaves unchanged and by positions that are drawn twice. It is 1 for ELECTRA 15 %, whose
    loss counts masked tokens only, so that D is p_data itself.

    Args:
        config: the run's, None for an exported folder.
        given: a value that overrides it.

    Raises:
        ConfigError: `given` is not a share.
    """
    if given is not None:
        require(0 < given <= 1, "--p-mask", given, "a share above 0 and at most 1")
    if config is None:
        missing = "an exported folder does not say with what share it was masked: give --p-mask, or the run"
        return MaskedShare(given, "" if given is not None else missing)
    objective, generator, share = config.objective, config.generator, slots(config) / config.batch.sequence_length
    if not isinstance(generator, Learned):
        return MaskedShare(None, "Appendix G needs the probabilities of a generator that is a network")
    if generator.disallow_correct:
        return MaskedShare(None, "Appendix G assumes a generator that may sample the original word; this one never did")
    if isinstance(objective, RTD) and objective.lucky != "original":
        return MaskedShare(None, "Appendix G assumes that a sample equal to the original word counts as an original")
    if given is not None:
        return MaskedShare(given)
    if isinstance(objective, RTD) and objective.loss_over == "masked":
        return MaskedShare(1.0, "the discriminator's loss counted masked tokens only: p_mask = 1, a = 0")
    if config.masking.rarity:
        return MaskedShare(None, "Appendix G assumes that all words are masked equally often; masking.rarity was set")
    twice = config.masking.draw == "with-replacement"
    share = 1 - exp(-share) if twice else share
    if isinstance(objective, SentenceContrast):
        return MaskedShare(
            share * (1 - objective.unchanged), "inputs left unchanged lower p_mask by the factor 1 - unchanged"
        )
    return MaskedShare(share, "positions drawn twice lower p_mask from a share s to 1 - exp(-s)" if twice else "")


def sampling_temperature(config: Config | None) -> float:
    """The temperature at which the run's generator sampled: p_G is the distribution of the replacements."""
    generator = config.generator if config is not None else None
    return generator.temperature if isinstance(generator, Learned) else 1.0


def own_generator(pretrained: Pretrained) -> TokenPredictor | None:
    """The generator next to the exported network, if there is one (`Pretrained.generator` is an MLM run's encoder
    otherwise).
    """
    return pretrained.generator if pretrained.generator is not pretrained.encoder else None


def most_positions(pretrained: Pretrained) -> int | None:
    """Length of the longest row that every network can read; None: there is no network."""
    networks = (pretrained.discriminator, pretrained.generator, pretrained.encoder)
    counts = [n.electra.encoder.model.max_position_embeddings for n in networks if n is not None]
    return min(counts, default=None)


def passes(rows: int, tokens: int) -> list[slice]:
    """The rows of each forward pass, for `rows` rows of `tokens`."""
    size = max(1, TOKENS_TOGETHER // tokens)
    return [slice(first, min(first + size, rows)) for first in range(0, rows, size)]


def device_of(network: nn.Module) -> torch.device:
    """The device of a network's weights."""
    return next(network.parameters()).device


def put(batch: Batch, row_M: Tensor, column_M: Tensor, word_M: Tensor | int) -> tuple[Batch, Tensor]:
    """Copies of rows, each with one word put into a place: a batch [M, T], and the flat index of the places, [M]."""
    copies = Batch(**{name: values_BT[row_M] for name, values_BT in vars(batch).items()})
    slots_M = torch.arange(len(row_M), device=row_M.device) * copies.ids_BT.shape[1] + column_M
    copies.ids_BT.view(-1)[slots_M] = word_M
    return copies, slots_M


@torch.no_grad()
def replaced_logits(network: Discriminator, sentences: Sequence[Sequence[int]]) -> list[Tensor]:
    """The discriminator's logit of "replaced" for each token but [CLS] and [SEP]: fp32 [T - 2] for each sentence.

    One forward pass a sentence, read unchanged.
    """

    def compute(ids_NT: Tensor) -> Tensor:
        parts = [network(ids_NT[part], encode_rows(ids_NT[part])).cpu() for part in passes(*ids_NT.shape)]
        return torch.cat(parts)[:, 1:-1]

    return _by_length(sentences, device_of(network), compute)


@torch.no_grad()
def token_log_probabilities(
    network: TokenPredictor, sentences: Sequence[Sequence[int]], *, mask: int, temperature: float = 1.0
) -> list[Tensor]:
    """Log p(x_t | x without t) for each token but [CLS] and [SEP]: fp32 [T - 2] for each sentence.

    Each token is masked in turn, so a sentence takes T - 2 forward passes.

    Args:
        network: predicts the words.
        sentences: rows of ids, at least three each.
        mask: id of [MASK].
        temperature: divides the logits.
    """
    words_VE, bias_V = network.output()

    def compute(ids_NT: Tensor) -> Tensor:
        batch, (rows, tokens) = encode_rows(ids_NT), ids_NT.shape
        # one masked token of one sentence is one row
        row_M = torch.arange(rows, device=ids_NT.device).repeat_interleave(tokens - 2)
        column_M = torch.arange(1, tokens - 1, device=ids_NT.device).repeat(rows)
        parts = []
        for part in passes(len(row_M), tokens):
            masked, slots_m = put(batch, row_M[part], column_M[part], mask)
            projected_mE = network.project(masked.ids_BT, masked, slots_m)
            labels_m = ids_NT[row_M[part], column_M[part]]
            parts.append(log_probability(projected_mE / temperature, words_VE, bias_V / temperature, labels_m).cpu())
        return torch.cat(parts).view(rows, tokens - 2)

    return _by_length(sentences, words_VE.device, compute)


def _by_length(
    sentences: Sequence[Sequence[int]], device: torch.device, compute: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Results of `compute` for the sentences of each length, ids int64 [N, T], in the order of the sentences."""
    found: dict[int, Tensor] = {}
    for length in sorted({len(sentence) for sentence in sentences}):
        members = [index for index, sentence in enumerate(sentences) if len(sentence) == length]
        ids_NT = torch.tensor([sentences[index] for index in members], dtype=torch.int64).to(device)
        found.update(zip(members, compute(ids_NT), strict=True))
    return [found[index] for index in range(len(sentences))]


class SentenceScores:
    """The scores that a run can give.

    Args:
        pretrained: a run or an exported folder.
        p_mask: share of masked tokens for `appendix-g`; None: the run's.
        chosen: only these scores; None: all that the run has.

    Raises:
        ConfigError: this run does not have a chosen score.
    """

    def __init__(
        self, pretrained: Pretrained, *, p_mask: float | None = None, chosen: Sequence[str] | None = None
    ) -> None:
        self.pretrained = pretrained
        self.generator = own_generator(pretrained)
        self.p_mask, self.note = masked_share(pretrained.config, given=p_mask)
        has_discriminator, has_generator = pretrained.discriminator is not None, self.generator is not None
        available = {
            "discriminator": has_discriminator,
            "appendix-g": has_discriminator and has_generator and self.p_mask is not None,
            "encoder": pretrained.encoder is not None and has_generator,
            "pseudo-likelihood": pretrained.encoder is not None and not has_generator,
            "generator": has_generator,
        }
        known = [name for name, there in available.items() if there]
        if missing := [name for name in chosen or () if name not in known]:
            why = f" ({self.note})" if self.note else ""
            raise ConfigError(
                f"score {missing[0]!r}: this run does not have it{why}.{did_you_mean(missing[0], known)} It has: "
                f"{', '.join(known)}."
            )
        self.names = tuple(chosen or known)
        """The scores that are given, in order."""

    @property
    def notes(self) -> list[str]:
        """Remarks for a reader of the scores."""
        if self.pretrained.discriminator is None or not self.note:
            return []
        return [self.note] if "appendix-g" in self.names else [f"no appendix-g: {self.note}"]

    def of(self, rows: Sequence[Sequence[int]]) -> dict[str, list[float]]:
        """Each score of each row `[CLS] … [SEP]` of ids, at least three long; terms of two scores are computed once."""
        pretrained, generator, p_mask = self.pretrained, self.generator, self.p_mask

        @cache
        def judged() -> list[Tensor]:
            assert pretrained.discriminator is not None
            return replaced_logits(pretrained.discriminator, rows)

        @cache
        def predicted(network: TokenPredictor | None, temperature: float) -> list[Tensor]:
            assert network is not None
            return token_log_probabilities(network, rows, mask=pretrained.specials.mask, temperature=temperature)

        def by_appendix_g() -> list[Tensor]:
            assert p_mask is not None
            sampled = predicted(generator, sampling_temperature(pretrained.config))
            pairs = zip(judged(), sampled, strict=True)
            return [log_likelihood(logit_T, log_p_T, p_mask=p_mask) for logit_T, log_p_T in pairs]

        terms: dict[str, Callable[[], list[Tensor]]] = {
            "discriminator": lambda: [F.logsigmoid(-logit_T) for logit_T in judged()],
            "appendix-g": by_appendix_g,
            "encoder": lambda: predicted(pretrained.encoder, 1.0),
            "pseudo-likelihood": lambda: predicted(pretrained.encoder, 1.0),
            "generator": lambda: predicted(generator, 1.0),
        }
        return {name: [float(terms_T.double().sum()) for terms_T in terms[name]()] for name in self.names}


@dataclass(frozen=True, kw_only=True)
class ClozeScores(wording.Printed):
    """Accuracies at the same held-out words. Standard errors treat a row's words as one cluster
    (statistics.clustered_mean).
    """

    accuracy: dict[str, Estimate]
    """Accuracy by predictor: see the top of appendix_g.py."""
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
    row_K: NDArray[np.int64]
    """Row of each word in DATA's held-out rows."""
    column_K: NDArray[np.int64]
    truth_K: NDArray[np.int64]
    """Id of each word."""
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
    pretrained = pretrained if isinstance(pretrained, Pretrained) else load(pretrained)
    against = load(against) if isinstance(against, str | Path) else against
    for name, value in (("--rows", rows), ("--per-row", per_row), ("--top", top)):
        require(value >= 1, name, value, "at least 1")
    share = masked_share(pretrained.config, given=p_mask)
    store = Store.open(data)
    for what, model in (("RUN", pretrained), ("--against", against)):
        if model is not None:
            _require_predictor(model, what)
            _require_same_words(model, store)
    sites = choose_sites(store.rows("valid"), rows=rows, per_row=per_row, seed=seed, specials=store.specials)
    if not len(sites.row_K):
        raise DataError(f"{data}: holds no held-out words. Prepare it with a --valid-fraction above 0.")
    generator, predicted, among_K = own_generator(pretrained), {}, None
    if generator is not None:
        words = predict_with_discriminator(
            generator,
            pretrained.discriminator,
            sites,
            top=top,
            p_mask=share.p_mask,
            temperature=sampling_temperature(pretrained.config),
        )
        predicted["generator"], among_K = words.generator_K.numpy(), words.among_top_K.numpy()
        if words.appendix_g_K is not None:
            predicted["appendix-g"] = words.appendix_g_K.numpy()
    others = {"encoder": pretrained.encoder, "against": (against.encoder or against.generator) if against else None}
    predicted |= {name: predict(network, sites).numpy() for name, network in others.items() if network is not None}
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
        row_K=sites.row_K,
        column_K=sites.column_K,
        truth_K=sites.truth_K,
        predicted=predicted,
    )


def _require_predictor(pretrained: Pretrained, what: str) -> None:
    if pretrained.generator is None:
        raise ConfigError(
            f"cloze: {what} has no generator network, so nothing here predicts a word from its context (a unigram or "
            "uniform generator is not a network, and a discriminator's folder comes without). Give a run of "
            "--generator learned, or an MLM run."
        )


def _require_same_words(pretrained: Pretrained, store: Store) -> None:
    positions = most_positions(pretrained)
    alike = tokenizer_sha256(pretrained.tokenizer) == store.manifest.tokenizer_sha256
    if not alike or (positions is not None and store.sequence_length > positions):
        raise DataError(
            f"{store.folder}: has rows of {store.sequence_length} tokens of {'the same' if alike else 'another'} "
            f"tokenizer. Prepare it with the run's folder `tokenizer` and --seq-len {positions} or less."
        )


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
    chosen_K = np.array(row_K, dtype=np.int64), np.array(column_K, dtype=np.int64)
    return Sites(rows_BT=rows_BT, row_K=chosen_K[0], column_K=chosen_K[1], specials=specials)


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
    logits = len(generator.output()[0]) * TOKENS_TOGETHER // CHUNK_ELEMENTS
    for part in passes(len(sites.row_K), max(sites.rows_BT.shape[1], logits)):
        batch, column_k = sites.contexts(part, device_of(generator))
        row_k = torch.arange(len(column_k), device=column_k.device)
        masked, slots_k = put(batch, row_k, column_k, sites.specials.mask)
        log_p_kV = (generator(masked.ids_BT, masked, slots_k) / temperature).log_softmax(-1)
        log_p_kk, words_kk = log_p_kV.topk(min(top, log_p_kV.shape[1]))
        best.append(words_kk[:, 0].cpu())
        among.append((words_kk.cpu() == truth_K[part, None]).any(1))
        if discriminator is not None and p_mask is not None:
            logits_kk = _candidate_logits(discriminator, batch, column_k, words_kk)
            place_k1 = log_likelihood(logits_kk, log_p_kk, p_mask=p_mask).argmax(1, keepdim=True)
            chosen.append(words_kk.gather(1, place_k1)[:, 0].cpu())
    return Predictions(torch.cat(best), torch.cat(chosen) if chosen else None, torch.cat(among))


def _candidate_logits(discriminator: Discriminator, batch: Batch, column_k: Tensor, words_kk: Tensor) -> Tensor:
    """The discriminator's logit of "replaced" for each candidate, put at its site; fp32, of the shape of `words_kk`."""
    # one candidate at one site is one row
    row_M = torch.arange(len(words_kk), device=words_kk.device).repeat_interleave(words_kk.shape[1])
    column_M, word_M, found = column_k[row_M], words_kk.flatten(), []
    for part in passes(len(row_M), batch.ids_BT.shape[1]):
        copies, slots_m = put(batch, row_M[part], column_M[part], word_M[part])
        found.append(discriminator.replaced(at(discriminator.electra(copies.ids_BT, copies), slots_m)))
    return torch.cat(found).view(words_kk.shape)


_ROUNDING = 1e-6
"""Scores that differ by less than this share of their size are equal: fp32 is not more precise."""
_EXPECTED = 'Expected a JSON object a line with "sentence_good" and "sentence_bad", both texts.'


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An acceptable sentence and an unacceptable one that differs from it as little as possible."""

    good: str
    bad: str
    paradigm: str
    where: str
    """file:line, for messages."""


@dataclass(frozen=True, kw_only=True)
class PairScore:
    """One score over all pairs. Accuracies are shares between 0 and 1."""

    mean: float
    """Mean over paradigms, each counted alike: BLiMP's figure."""
    standard_error: float
    """Standard error of the mean, over other pairs of the same paradigms."""
    ties: int
    paradigms: dict[str, float]
    margin_P: NDArray[np.float64]
    """Score of the good sentence minus that of the bad one, for each pair in the order of the files; 0: a tie."""


@dataclass(frozen=True, kw_only=True)
class PairScores(wording.Printed):
    """A run's results on minimal pairs."""

    scores: dict[str, PairScore]
    pairs: int
    limit: int | None
    """Pairs read of each paradigm, at most; None: all."""
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The scores, without the margins."""
        kept = ("mean", "standard_error", "paradigms")
        return {
            "scores": {name: {key: vars(score)[key] for key in kept} for name, score in self.scores.items()},
            "ties": {name: score.ties for name, score in self.scores.items()},
            **{name: vars(self)[name] for name in ("pairs", "limit", "notes")},
        }

    def text(self) -> str:
        """A table of paradigms, and remarks."""
        scores = list(self.scores.values())
        rows = [[name, *(f"{100 * one.paradigms[name]:.1f}" for one in scores)] for name in scores[0].paradigms]
        means = [f"{100 * one.mean:.2f} ± {100 * one.standard_error:.2f}" for one in scores]
        rows += [[], ["mean over paradigms", *means], ["ties, counted wrong", *(f"{one.ties:,}" for one in scores)]]
        part = "" if self.limit is None else f", the first {self.limit:,} or fewer of each paradigm"
        lines = [
            wording.Table(head=["accuracy, %", *self.scores], rows=rows, words=1).text(least=18),
            f"{self.pairs:,} pairs of {len(scores[0].paradigms)} paradigms{part}; ± is one standard error",
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


@checked
def minimal_pairs(
    pretrained: str | Path | Pretrained,
    folder: str | Path,
    *,
    limit: int | None = None,
    scores: str | Sequence[str] | None = None,
    p_mask: float | None = None,
) -> PairScores:
    """Score minimal pairs, on the device of the networks.

    Args:
        pretrained: a run or an exported folder, loaded or its path.
        folder: a folder of BLiMP's files, or one of them.
        limit: only the first `limit` pairs of each paradigm; None: all.
        scores: only this one, or these; None: all that the run has.
        p_mask: share of masked tokens for `appendix-g`; None: the run's.

    Raises:
        MissingInputError: no such folder. DataError: a line that is not a pair, a sentence without tokens or with more
        of them than the networks have positions, with file:line. ConfigError: an unknown score.
    """
    pretrained = pretrained if isinstance(pretrained, Pretrained) else load(pretrained)
    given = SentenceScores(pretrained, p_mask=p_mask, chosen=[scores] if isinstance(scores, str) else scores)
    pairs = read_pairs(folder, limit=limit)
    encoded = _encode(pretrained, pairs)
    # Each row once: sentences that are the same tokens tie in any batch. Sorted: the pairs' order does not matter.
    rows = sorted(set(encoded), key=lambda row: (len(row), row))
    place = {row: number for number, row in enumerate(rows)}
    good_P, bad_P = np.array([place[row] for row in encoded]).reshape(-1, 2).T
    totals = {name: np.array(values) for name, values in given.of(rows).items()}
    return PairScores(
        scores={name: _summary(pairs, score_R[good_P], score_R[bad_P]) for name, score_R in totals.items()},
        pairs=len(pairs),
        limit=limit,
        notes=tuple(given.notes),
    )


def _encode(pretrained: Pretrained, pairs: Sequence[Pair]) -> list[tuple[int, ...]]:
    """Rows `[CLS] … [SEP]` of all sentences, the good one of a pair before the bad one."""
    tokenizer, specials, most = as_plain_text(pretrained.tokenizer), pretrained.specials, most_positions(pretrained)
    if most is None:
        raise ConfigError("minimal-pairs: there is no network here to score with.")
    texts = [text for pair in pairs for text in (pair.good, pair.bad)]
    rows = []
    for number, encoding in enumerate(tokenizer.encode_batch(texts, add_special_tokens=False)):
        where = pairs[number // 2].where
        if not 0 < len(encoding.ids) <= most - 2:
            raise DataError(
                f"{where}: a sentence has {len(encoding.ids)} tokens, expected from 1 to {most - 2}, the positions of "
                "the networks. Remove the pair."
            )
        rows.append((specials.cls, *encoding.ids, specials.sep))
    return rows


def _summary(pairs: Sequence[Pair], good_P: NDArray[np.float64], bad_P: NDArray[np.float64]) -> PairScore:
    margin_P = good_P - bad_P
    tied_P = np.abs(margin_P) <= _ROUNDING * np.maximum(np.abs(good_P), np.abs(bad_P))
    margin_P[tied_P] = 0.0
    right: dict[str, list[bool]] = {}
    for pair, margin in zip(pairs, margin_P, strict=True):
        right.setdefault(pair.paradigm, []).append(bool(margin > 0))
    paradigms = {name: float(np.mean(values)) for name, values in right.items()}
    variance = sum(share * (1 - share) / len(right[name]) for name, share in paradigms.items())
    return PairScore(
        mean=float(np.mean(list(paradigms.values()))),
        standard_error=float(np.sqrt(variance)) / len(paradigms),
        ties=int(tied_P.sum()),
        paradigms=paradigms,
        margin_P=margin_P,
    )


def read_pairs(folder: str | Path, *, limit: int | None = None) -> list[Pair]:
    """All pairs of the .jsonl files of a folder (or of one file), paradigm by paradigm, in the order of the lines.

    A line must have `sentence_good` and `sentence_bad`. `UID` names the paradigm, otherwise the file's name does.

    Args:
        limit: only the first `limit` of each paradigm; None: all.

    Raises:
        MissingInputError: no such folder. DataError: no pairs, or a line that is not a pair, with file:line.
        StorageError: cannot be read. ConfigError: a limit below 1.
    """
    require(limit is None or limit >= 1, "--limit", limit, "at least 1 pair a paradigm")
    folder = Path(folder)
    if not folder.exists():
        raise MissingInputError(f"{folder}: no such folder. Give the folder with BLiMP's .jsonl files.")
    files = sorted(folder.glob("*.jsonl")) if folder.is_dir() else [folder]
    by_paradigm: dict[str, list[Pair]] = {}
    for pair in (pair for path in files for pair in _read_file(path)):
        by_paradigm.setdefault(pair.paradigm, []).append(pair)
    if not by_paradigm:
        raise DataError(f"{folder}: holds no pairs. Expected BLiMP's .jsonl files, one pair a line.")
    return [pair for pairs in by_paradigm.values() for pair in pairs[:limit]]


def _read_file(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(read_file(path, limit=MOST_TEXT).split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        row = {"UID": path.stem, **json_object(line, where=where, remedy=_EXPECTED)}
        texts = [row.get(name) for name in ("sentence_good", "sentence_bad", "UID")]
        if not all(isinstance(text, str) for text in texts):
            raise DataError(f"{where}: {short(row)}: not a pair. {_EXPECTED}")
        good, bad, paradigm = (encodable(str(text), where) for text in texts)
        yield Pair(good=good, bad=bad, paradigm=paradigm, where=where)
