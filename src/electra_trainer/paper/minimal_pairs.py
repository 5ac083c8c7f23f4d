"""Minimal pairs (BLiMP): in how many does a run score the acceptable sentence above the other one.

The scores are those of appendix_g.py. A tie is wrong. The files have BLiMP's format: one JSON object a line, one
file a paradigm.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra_trainer.data.tokenizer import as_plain_text
from electra_trainer.errors import ConfigError, DataError, MissingInputError, did_you_mean
from electra_trainer.files import wording
from electra_trainer.files.reading import MOST_TEXT, encodable, json_object, read_file, short
from electra_trainer.paper.appendix_g import SentenceScores, most_positions
from electra_trainer.pretrained.pretrained import Pretrained

_ROUNDING = 1e-6
"""Scores that differ by less than this share of their size are equal: fp32 is not more precise."""
_FIELDS = ("sentence_good", "sentence_bad", "UID", "field", "linguistics_term")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An acceptable sentence and an unacceptable one that differs from it as little as possible."""

    good: str
    bad: str
    paradigm: str
    field: str
    """BLiMP's `field`, such as "syntax"; "" where the file has none."""
    term: str
    """BLiMP's `linguistics_term`, such as "island_effects"; "" where the file has none."""
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
    fields: dict[str, float]
    """Mean over the paradigms of each field, such as "syntax"."""
    terms: dict[str, float]
    """Mean over the paradigms of each linguistic term, such as "island_effects"."""
    margin_P: NDArray[np.float64]
    """Score of the good sentence minus that of the bad one, for each pair in the order of the files; 0: a tie."""


@dataclass(frozen=True, kw_only=True)
class PairScores:
    """A run's results on minimal pairs."""

    scores: dict[str, PairScore]
    pairs: int
    limit: int | None
    """Pairs read of each paradigm, at most; None: all."""
    identical: int
    """Pairs whose two sentences are the same tokens: a tie for every score."""
    long: int
    """Sentences longer than the rows of training, whose last positions were hardly trained."""
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The scores, without the margins."""
        kept = ("mean", "standard_error", "paradigms", "fields", "terms")
        return {
            "scores": {name: {key: getattr(score, key) for key in kept} for name, score in self.scores.items()},
            "ties": {name: score.ties for name, score in self.scores.items()},
            **{name: vars(self)[name] for name in ("pairs", "identical", "long", "limit", "notes")},
        }

    def text(self) -> str:
        """A table of paradigms, terms and fields, and remarks."""
        scores = list(self.scores.values())
        rows: list[list[str]] = []
        for group in ("paradigms", "terms", "fields"):
            tables = [getattr(score, group) for score in scores]
            rows += [[name, *(f"{100 * table[name]:.1f}" for table in tables)] for name in tables[0]] + [[]]
        means = [f"{100 * score.mean:.2f} ± {100 * score.standard_error:.2f}" for score in scores]
        rows += [["mean over paradigms", *means], ["ties, counted wrong", *(f"{score.ties:,}" for score in scores)]]
        part = "" if self.limit is None else f", the first {self.limit:,} or fewer of each paradigm"
        lines = [
            wording.Table(head=["accuracy, %", *self.scores], rows=rows, words=1).text(least=18),
            f"{self.pairs:,} pairs of {len(scores[0].paradigms)} paradigms{part}; ± is one standard error",
        ]
        if self.identical:
            lines.append(f"{self.identical:,} pairs are two times the same tokens: a tie for every score")
        if self.long:
            lines.append(
                f"{self.long:,} sentences are longer than the rows of training; the positions beyond were not trained"
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def minimal_pairs(
    pretrained: Pretrained,
    folder: str | Path,
    *,
    paradigms: Sequence[str] | None = None,
    limit: int | None = None,
    scores: Sequence[str] | None = None,
    p_mask: float | None = None,
) -> PairScores:
    """Score minimal pairs, on the device of the networks.

    Args:
        pretrained: a run or an exported folder.
        folder: a folder of BLiMP's files, or one of them.
        paradigms: only these; None: all.
        limit: only the first `limit` pairs of each paradigm; None: all.
        scores: only these; None: all that the run has.
        p_mask: share of masked tokens for `appendix-g`; None: the run's.

    Raises:
        MissingInputError: no such folder. DataError: a line that is not a pair, a sentence without tokens or with more
        of them than the networks have positions, with file:line. ConfigError: an unknown paradigm or score.
    """
    given = SentenceScores(pretrained, p_mask=p_mask, chosen=scores)
    pairs = read_pairs(folder, paradigms=paradigms, limit=limit)
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
        identical=int((good_P == bad_P).sum()),
        long=sum(len(row) > pretrained.length for row in encoded),
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
        if not encoding.ids:
            raise DataError(f"{where}: sentence {texts[number]!r} has no tokens. Remove the pair.")
        if len(encoding.ids) + 2 > most:
            raise DataError(
                f"{where}: a sentence has {len(encoding.ids)} tokens, the networks have positions for {most - 2}. "
                "Remove the pair."
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

    def means(group: Callable[[Pair], str]) -> dict[str, float]:
        members: dict[str, list[float]] = {}
        for name, paradigm in dict.fromkeys((group(pair), pair.paradigm) for pair in pairs if group(pair)):
            members.setdefault(name, []).append(paradigms[paradigm])
        return {name: float(np.mean(shares)) for name, shares in members.items()}

    return PairScore(
        mean=float(np.mean(list(paradigms.values()))),
        standard_error=float(np.sqrt(variance)) / len(paradigms),
        ties=int(tied_P.sum()),
        paradigms=paradigms,
        fields=means(lambda pair: pair.field),
        terms=means(lambda pair: pair.term),
        margin_P=margin_P,
    )


def read_pairs(folder: str | Path, *, paradigms: Sequence[str] | None = None, limit: int | None = None) -> list[Pair]:
    """All pairs of the .jsonl files of a folder (or of one file), in the order of names and lines.

    A line must have `sentence_good` and `sentence_bad`. `UID` names the paradigm, otherwise the file's name does.

    Args:
        paradigms: only these; None: all.
        limit: only the first `limit` of each paradigm; None: all.

    Raises:
        MissingInputError: no such folder. DataError: no pairs, or a line that is not a pair, with file:line.
        StorageError: cannot be read. ConfigError: an unknown paradigm, or a limit below 1.
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
    expected = 'Expected a JSON object a line with "sentence_good" and "sentence_bad".'
    lines = [(n, line) for n, line in enumerate(read_file(path, limit=MOST_TEXT).split(b"\n"), start=1) if line.strip()]
    if not lines:
        raise DataError(f"{path}: is empty, expected one minimal pair a line.")
    for number, line in lines:
        where = f"{path}:{number}"
        row = json_object(line, where=where, remedy=expected)
        for name in ("sentence_good", "sentence_bad"):
            if name not in row:
                raise DataError(f"{where}: has no {name!r}.{did_you_mean(name, row)} {expected}")
        row = {"UID": path.stem, "field": "", "linguistics_term": "", **row}
        texts = [row[name] for name in _FIELDS]
        for name, text in zip(_FIELDS, texts, strict=True):
            if not isinstance(text, str):
                raise DataError(f"{where}: {name} = {short(text)}, expected a text. Correct or remove the line.")
            encodable(text, f"{where}: {name}")
        good, bad, paradigm, field, term = texts
        field = field.replace("/", "_")  # BLiMP writes one of its fields in both ways
        yield Pair(good=good, bad=bad, paradigm=paradigm, field=field, term=term, where=where)
