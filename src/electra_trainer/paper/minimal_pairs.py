"""Minimal pairs (BLiMP): in how many does a run score the acceptable sentence above the other one; a tie is wrong.

The files have BLiMP's format: one JSON object a line, one file a paradigm. The scores are those of likelihoods.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from electra_trainer.data.tokenizer import as_plain_text
from electra_trainer.errors import ConfigError, DataError, MissingInputError, require
from electra_trainer.files import wording
from electra_trainer.files.reading import MOST_TEXT, encodable, json_object, read_file, short
from electra_trainer.paper.likelihoods import loaded, most_positions, sentence_scores
from electra_trainer.pretrained.pretrained import Pretrained
from electra_trainer.settings.calls import checked

_ROUNDING = 1e-6
"""Scores that differ by less than this share of their size are equal: fp32 is not more precise."""
_EXPECTED = 'Expected a JSON object a line with "sentence_good" and "sentence_bad", both texts.'


class Pair(NamedTuple):
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
    pretrained = loaded(pretrained)
    pairs = read_pairs(folder, limit=limit)
    encoded = [*_encode(pretrained, pairs)]
    # Each row once: sentences that are the same tokens tie in any batch. Sorted: the pairs' order does not matter.
    rows = sorted(set(encoded), key=lambda row: (len(row), row))
    place = {row: number for number, row in enumerate(rows)}
    good_P, bad_P = np.array([place[row] for row in encoded]).reshape(-1, 2).T
    chosen = [scores] if isinstance(scores, str) else scores
    totals, notes = sentence_scores(pretrained, rows, p_mask=p_mask, chosen=chosen)
    found = {
        name: _summary(pairs, np.array(total_R)[good_P], np.array(total_R)[bad_P]) for name, total_R in totals.items()
    }
    return PairScores(scores=found, pairs=len(pairs), limit=limit, notes=notes)


def _encode(pretrained: Pretrained, pairs: Sequence[Pair]) -> Iterator[tuple[int, ...]]:
    """Rows `[CLS] … [SEP]` of all sentences, the good one of a pair before the bad one."""
    tokenizer, specials, most = as_plain_text(pretrained.tokenizer), pretrained.specials, most_positions(pretrained)
    if most is None:
        raise ConfigError("minimal-pairs: there is no network here to score with.")
    texts = [text for pair in pairs for text in (pair.good, pair.bad)]
    for number, encoding in enumerate(tokenizer.encode_batch(texts, add_special_tokens=False)):
        where = pairs[number // 2].where
        if not 0 < len(encoding.ids) <= most - 2:
            raise DataError(
                f"{where}: a sentence has {len(encoding.ids)} tokens, expected from 1 to {most - 2}, the positions of "
                "the networks. Remove the pair."
            )
        yield (specials.cls, *encoding.ids, specials.sep)


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
