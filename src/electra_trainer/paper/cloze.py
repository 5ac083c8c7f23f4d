"""ELECTRA as a masked language model (Appendix G): how often is a held-out word predicted, one masked word at a time.

generator    argmax of p_G(x | c), c the row with that one word masked
appendix-g   argmax of D p_G / (a (1 - D) + p_G) over the generator's top words; D with x put into the row
encoder      argmax of an MLM run's own encoder (or of what replace-mlm and all-tokens-mlm keep)
against      the same of another run, at the very same words

Which words of held-out rows are predicted one at a time: a pure function of the seed and the row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from electra_trainer.data.store import Store
from electra_trainer.data.tokenizer import tokenizer_sha256
from electra_trainer.errors import ConfigError, DataError, require
from electra_trainer.experiments.statistics import Estimate, clustered_mean
from electra_trainer.paper.appendix_g import masked_share, sampling_temperature
from electra_trainer.paper.predict_words import Sites, choose_sites, predict, predict_with_discriminator
from electra_trainer.paper.sentence_scores import own_generator
from electra_trainer.pretrained.pretrained import Pretrained
from electra_trainer.settings.methods import Learned

TOP = 100
"""Candidates a word (Appendix G)."""
ROWS = 256
PER_ROW = 4


@dataclass(frozen=True, kw_only=True)
class Cloze:
    """Accuracies at the same held-out words. Standard errors take a row's words together (clustered_mean.py)."""

    accuracy: dict[str, Estimate]
    """By who predicts: see the top of cloze.py."""
    difference: dict[str, Estimate]
    """Paired differences of accuracies, "appendix-g - generator"."""
    among_top: Estimate | None
    """Share of the words among the generator's top ones: the bound of Appendix G's accuracy (footnote 12)."""
    top: int
    positions: int
    rows: int
    per_row: int
    """The most words of one row."""
    p_mask: float | None
    """Of the formula; None where it was not used."""
    notes: tuple[str, ...]
    row_K: NDArray[np.int64]
    """Row of each word in DATA's held-out rows."""
    column_K: NDArray[np.int64]
    truth_K: NDArray[np.int64]
    """Id of each word."""
    predicted: dict[str, NDArray[np.int64]]
    """Ids that were predicted."""


def cloze(
    pretrained: Pretrained,
    data: str | Path,
    *,
    against: Pretrained | None = None,
    rows: int = ROWS,
    per_row: int = PER_ROW,
    top: int = TOP,
    seed: int = 0,
    p_mask: float | None = None,
) -> Cloze:
    """Predict held-out words, on the device where the networks are.

    Args:
        pretrained: a run or an exported folder. An MLM run gives its accuracy alone.
        data: a prepared folder with the same tokenizer.
        against: another run with a token predictor.
        rows: random held-out rows that are read, at most all.
        per_row: words of each, never special tokens nor [UNK].
        top: the generator's words that Appendix G chooses among. A word takes so many forward passes of the discriminator.
        seed: of rows and words.
        p_mask: share of masked tokens in the formula; None: the run's (appendix_g.py).

    Raises:
        ConfigError: nothing here predicts words, or rows longer than a network's positions. DataError: another tokenizer, or no
        held-out words. MissingInputError: no such folder.
    """
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
    predicted, among_K = _predictions(pretrained, sites, top=top, p_mask=share.p_mask)
    if against is not None:
        kept = against.encoder or against.generator
        assert kept is not None
        predicted["against"] = predict(kept, sites).numpy()
    correct = {name: words_K == sites.truth_K for name, words_K in predicted.items()}
    return Cloze(
        accuracy={name: clustered_mean(correct_K, sites.row_K) for name, correct_K in correct.items()},
        difference=_differences(correct, sites.row_K),
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


def _predictions(
    pretrained: Pretrained, sites: Sites, *, top: int, p_mask: float | None
) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.bool_] | None]:
    """Predicted ids by name, and whether the true word was among the generator's top ones."""
    found: dict[str, NDArray[np.int64]] = {}
    among_K = None
    generator = own_generator(pretrained)
    if generator is not None:
        temperature = sampling_temperature(pretrained.config)
        words = predict_with_discriminator(
            generator, pretrained.discriminator, sites, top=top, p_mask=p_mask, temperature=temperature
        )
        found["generator"], among_K = words.generator_K.numpy(), words.among_top_K.numpy()
        if words.appendix_g_K is not None:
            found["appendix-g"] = words.appendix_g_K.numpy()
    if pretrained.encoder is not None:
        found["encoder"] = predict(pretrained.encoder, sites).numpy()
    return found, among_K


def _differences(correct: Mapping[str, NDArray[np.bool_]], row_K: NDArray[np.int64]) -> dict[str, Estimate]:
    """Of neighbours in the order of names: appendix-g - generator, against - appendix-g."""
    return {
        f"{second} - {first}": clustered_mean(correct[second].astype(int) - correct[first], row_K)
        for first, second in pairwise(correct)
    }


def _require_predictor(pretrained: Pretrained, what: str) -> None:
    if pretrained.generator is not None:
        return
    config = pretrained.config
    if config is not None and not isinstance(config.generator, Learned):
        kind = type(config.generator).__name__.lower()
        raise ConfigError(
            f"cloze: the generator of {what} is {kind}, no network, so nothing here predicts a word from its context. "
            "Give a run that was trained with --generator learned, or an MLM run."
        )
    raise ConfigError(
        f"cloze: {what} has no generator. Give the run, or the export's folder that holds discriminator and generator."
    )


def _require_same_words(pretrained: Pretrained, store: Store) -> None:
    if tokenizer_sha256(pretrained.tokenizer) != store.manifest.tokenizer_sha256:
        raise DataError(
            f"{store.folder}: was prepared with another tokenizer than the run's. Prepare it with the run's folder `tokenizer`."
        )
    for network in (pretrained.discriminator, pretrained.generator, pretrained.encoder):
        if network is None:
            continue
        positions = network.electra.embeddings.position_embeddings.num_embeddings
        if store.sequence_length > positions:
            raise ConfigError(
                f"{store.folder}: has rows of {store.sequence_length} tokens, the networks have {positions} positions. "
                f"Prepare it with --seq-len {positions} or less."
            )
