"""Minimal pairs (BLiMP): in how many of them does a run score the acceptable sentence above the other one.

The scores are those of sentence_scores.py. What is not above is wrong, so a tie is wrong.

Files of minimal pairs, in the format of BLiMP: one JSON object a line, one file a paradigm.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from electra_trainer.data.tokenizer import as_plain_text
from electra_trainer.errors import ConfigError, DataError, MissingInputError, did_you_mean
from electra_trainer.files.reading import MOST_TEXT, parse_json, read_file, short
from electra_trainer.model.networks import Discriminator, TokenPredictor
from electra_trainer.paper.sentence_scores import SentenceScores
from electra_trainer.pretrained.pretrained import Pretrained

_ROUNDING = 1e-6
"""Scores that differ by less than this share of their size are equal: fp32 tells no more."""


@dataclass(frozen=True, kw_only=True)
class PairScore:
    """One score over all pairs. Accuracies are shares between 0 and 1."""

    mean: float
    """Mean over paradigms, each counted alike: BLiMP's figure."""
    standard_error: float
    """Of the mean, over other pairs of the same paradigms."""
    ties: int
    paradigms: dict[str, float]
    fields: dict[str, float]
    """Mean over the paradigms of each field, such as "syntax"."""
    terms: dict[str, float]
    """Mean over the paradigms of each linguistic term, such as "island_effects"."""
    margin_P: NDArray[np.float64]
    """Score of the good sentence minus that of the bad one, for each pair in the order of the files; 0: a tie."""


@dataclass(frozen=True, kw_only=True)
class MinimalPairs:
    """What a run makes of minimal pairs."""

    scores: dict[str, PairScore]
    pairs: int
    limit: int | None
    """The first so many of each paradigm were read; None: all."""
    identical: int
    """Pairs whose two sentences are the same tokens: a tie for every score."""
    long: int
    """Sentences longer than the rows of training, whose last positions were hardly trained."""
    notes: tuple[str, ...]


def minimal_pairs(
    pretrained: Pretrained,
    folder: str | Path,
    *,
    paradigms: Sequence[str] | None = None,
    limit: int | None = None,
    scores: Sequence[str] | None = None,
    p_mask: float | None = None,
) -> MinimalPairs:
    """Score minimal pairs, on the device where the networks are.

    Args:
        pretrained: a run or an exported folder.
        folder: a folder of BLiMP's files, or one of them.
        paradigms: only these; None: all.
        limit: the first so many pairs of each paradigm; None: all.
        scores: only these; None: all that the run has.
        p_mask: share of masked tokens for `appendix-g`; None: the run's.

    Raises:
        MissingInputError: no such folder. DataError: a line that is no pair, a sentence without tokens or with more of them than the
        networks have positions, with file:line. ConfigError: an unknown paradigm or score.
    """
    given = SentenceScores(pretrained, p_mask=p_mask, chosen=scores)
    pairs = read_pairs(folder, paradigms=paradigms, limit=limit)
    encoded = _encode(pretrained, pairs)
    # Each row once: sentences that are the same tokens tie whatever they are computed beside. Sorted: the pairs' order is no matter.
    rows = sorted(set(encoded), key=lambda row: (len(row), row))
    place = {row: number for number, row in enumerate(rows)}
    good_P, bad_P = np.array([place[row] for row in encoded]).reshape(-1, 2).T
    found = {}
    for name, totals in given.of(rows).items():
        score_R = np.array(totals)
        found[name] = _summary(pairs, score_R[good_P], score_R[bad_P])
    return MinimalPairs(
        scores=found,
        pairs=len(pairs),
        limit=limit,
        identical=int((good_P == bad_P).sum()),
        long=sum(len(row) > pretrained.length for row in encoded),
        notes=tuple(given.notes),
    )


def _encode(pretrained: Pretrained, pairs: "Sequence[Pair]") -> list[tuple[int, ...]]:
    """Rows `[CLS] … [SEP]` of all sentences, the good one of a pair before the bad one."""
    tokenizer, specials, most = as_plain_text(pretrained.tokenizer), pretrained.specials, _positions(pretrained)
    texts = [text for pair in pairs for text in (pair.good, pair.bad)]
    rows = []
    for number, encoding in enumerate(tokenizer.encode_batch(texts, add_special_tokens=False)):
        where = pairs[number // 2].where
        if not encoding.ids:
            raise DataError(f"{where}: sentence {texts[number]!r} has no tokens. Remove the pair.")
        if len(encoding.ids) + 2 > most:
            raise DataError(
                f"{where}: a sentence has {len(encoding.ids)} tokens, the networks have positions for {most - 2}. Remove the pair."
            )
        rows.append((specials.cls, *encoding.ids, specials.sep))
    return rows


def _positions(pretrained: Pretrained) -> int:
    """Longest row that every network can read."""
    networks: list[Discriminator | TokenPredictor | None] = [
        pretrained.discriminator, pretrained.generator, pretrained.encoder,
    ]  # fmt: skip
    counts = [n.electra.embeddings.position_embeddings.num_embeddings for n in networks if n is not None]
    if not counts:
        raise ConfigError("minimal-pairs: there is no network here to score with.")
    return min(counts)


def _summary(pairs: "Sequence[Pair]", good_P: NDArray[np.float64], bad_P: NDArray[np.float64]) -> PairScore:
    margin_P = good_P - bad_P
    tied_P = np.abs(margin_P) <= _ROUNDING * np.maximum(np.abs(good_P), np.abs(bad_P))
    margin_P[tied_P] = 0.0
    right: dict[str, list[bool]] = {}
    by_field: dict[str, dict[str, None]] = {}
    by_term: dict[str, dict[str, None]] = {}
    for pair, margin in zip(pairs, margin_P, strict=True):
        right.setdefault(pair.paradigm, []).append(bool(margin > 0))
        for group, name in ((by_field, pair.field), (by_term, pair.term)):
            if name:
                group.setdefault(name, {})[pair.paradigm] = None  # an ordered set
    paradigms = {name: float(np.mean(values)) for name, values in right.items()}
    variance = sum(share * (1 - share) / len(right[name]) for name, share in paradigms.items())

    def mean_over(names: Sequence[str]) -> float:
        return float(np.mean([paradigms[name] for name in names]))

    return PairScore(
        mean=mean_over(list(paradigms)),
        standard_error=float(np.sqrt(variance)) / len(paradigms),
        ties=int(tied_P.sum()),
        paradigms=paradigms,
        fields={name: mean_over(list(members)) for name, members in by_field.items()},
        terms={name: mean_over(list(members)) for name, members in by_term.items()},
        margin_P=margin_P,
    )


_SENTENCES = ("sentence_good", "sentence_bad")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An acceptable sentence and one that differs from it as little as can be, and is not."""

    good: str
    bad: str
    paradigm: str
    field: str
    """BLiMP's `field`, such as "syntax"; "" where the file has none."""
    term: str
    """BLiMP's `linguistics_term`, such as "island_effects"; "" where the file has none."""
    where: str
    """file:line, for messages."""


def read_pairs(folder: str | Path, *, paradigms: Sequence[str] | None = None, limit: int | None = None) -> list[Pair]:
    """All pairs of the .jsonl files of a folder (or of one file), in the order of names and lines.

    `sentence_good` and `sentence_bad` must be there. `UID` names the paradigm, otherwise the file's name does.

    Args:
        paradigms: only these; None: all.
        limit: the first so many of each paradigm; None: all.

    Raises:
        MissingInputError: no such folder. DataError: no pairs, or a line that is none, with file:line. StorageError: cannot be read.
        ConfigError: an unknown paradigm, or a limit below 1.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit {limit}: expected at least 1 pair a paradigm.")
    folder = Path(folder)
    if not folder.exists():
        raise MissingInputError(f"{folder}: no such folder. Give the folder with BLiMP's .jsonl files.")
    files = sorted(folder.glob("*.jsonl")) if folder.is_dir() else [folder]
    if not files:
        raise DataError(f"{folder}: holds no .jsonl file. Expected BLiMP's files, one a paradigm.")
    by_paradigm: dict[str, list[Pair]] = {}
    for path in files:
        for pair in _read_file(path):
            by_paradigm.setdefault(pair.paradigm, []).append(pair)
    for name in paradigms or ():
        if name not in by_paradigm:
            raise ConfigError(f"--paradigms {name}: {folder} has no such paradigm.{did_you_mean(name, by_paradigm)}")
    return [pair for name in by_paradigm if not paradigms or name in paradigms for pair in by_paradigm[name][:limit]]


def _read_file(path: Path) -> Iterator[Pair]:
    data = read_file(path, limit=MOST_TEXT)
    found = False
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            found = True
            yield _read_line(line, where=f"{path}:{number}", paradigm=path.stem)
    if not found:
        raise DataError(f"{path}: is empty, expected one minimal pair a line.")


def _read_line(line: bytes, *, where: str, paradigm: str) -> Pair:
    expected = 'Expected a JSON object a line with "sentence_good" and "sentence_bad".'
    row = parse_json(line, where=where, remedy=expected)
    if not isinstance(row, dict):
        raise DataError(f"{where}: is not a JSON object. {expected}")
    for name in _SENTENCES:
        if name not in row:
            raise DataError(f"{where}: has no {name!r}.{did_you_mean(name, row)} {expected}")
    texts = {"UID": paradigm, "field": "", "linguistics_term": "", **row}
    for name in (*_SENTENCES, "UID", "field", "linguistics_term"):
        if not isinstance(texts[name], str):
            raise DataError(f"{where}: {name} = {short(texts[name])}, expected a text. Mend or remove the line.")
        if not texts[name].isascii() and any("\ud800" <= character <= "\udfff" for character in texts[name]):
            raise DataError(f"{where}: {name} holds half of a surrogate pair. Mend or remove the line.")
    return Pair(
        good=texts["sentence_good"],
        bad=texts["sentence_bad"],
        paradigm=texts["UID"],
        field=texts["field"].replace("/", "_"),  # BLiMP writes one of its fields in both ways
        term=texts["linguistics_term"],
        where=where,
    )
