"""Pack documents of ids into rows: no token is dropped, padding stays under 1 %.

A row is one or more pieces, each `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` from one document, then [PAD] at its end
only. So
everything follows from the ids: a piece begins at each [CLS]; its segment is 0 up to and including its first [SEP],
then 1.

Rules of the released code (build_pretraining_dataset.py) that are kept: a tenth of the pieces has one segment;
otherwise A ends at the end of a line, near (length - 3) // 2 tokens; a twentieth of the pieces has a random length.
Three things differ: what the released code discards (the overflow of an example) begins the next piece; what it pads is
filled with the next piece; and once B has begun A gets no more lines, so the text stays in order.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from electra_trainer.data.tokenizer import Specials

Ids = NDArray[np.uint32]
"""Token ids, or lengths of lines in tokens."""

SINGLE_PROBABILITY = 0.1
SHORT_PROBABILITY = 0.05
_SHORTEST = 5  # tokens of the shortest random length (released)
_PADDING = 0.009  # share of positions that may be padding before text is cut into fragments instead
_FLUSH_TOKENS = 1 << 18
_MASK = (1 << 64) - 1


def mixed(number: int) -> int:
    """64 random bits from a number (splitmix64's finaliser)."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


@dataclass
class _Plan:
    """Where special tokens and padding go, as positions in one long line of rows."""

    cls: list[int] = field(default_factory=list)
    sep: list[int] = field(default_factory=list)
    pad: list[int] = field(default_factory=list)


class Packer:
    """Fills rows with documents, in the order in which they come.

    Args:
        sequence_length: tokens a row, at least 8.
        specials: ids of the special tokens; none of them but [UNK] and [MASK] may occur in the ids that are added.
        seed: with the index of a document it decides that document's random choices.
        dtype: of the rows.
        single_probability: share of the pieces that have one segment.
        short_probability: share of the pieces that get a random length.
    """

    def __init__(
        self,
        *,
        sequence_length: int,
        specials: Specials,
        seed: int,
        dtype: str = "<u2",
        single_probability: float = SINGLE_PROBABILITY,
        short_probability: float = SHORT_PROBABILITY,
    ) -> None:
        self._length = sequence_length
        self._specials = specials
        self._seed = mixed(seed)
        self._dtype = np.dtype(dtype)
        self._single = round(single_probability * 65536)
        self._short = round(short_probability * 65536)
        self._minimum = max(8, sequence_length // 8)
        self._pending: list[Ids] = []
        self._pending_lines: list[Ids] = []
        self._indices: list[tuple[int, int]] = []  # index of a document, number of its lines
        self._pending_tokens = 0
        self._carry: NDArray[np.generic] = np.empty(0, dtype=self._dtype)  # the row that is not full yet
        self._done: list[NDArray[np.generic]] = []
        self._ends: list[int] = []
        self._starts: list[int] = []
        self.documents = 0
        self.text_tokens = 0
        self.rows = 0
        self.padding = 0

    def add(self, index: int, ids: Ids, line_lengths: Ids) -> None:
        """Add a document: its ids, and how many of them each line has (every line at least one)."""
        self._pending.append(ids)
        self._pending_lines.append(line_lengths)
        self._indices.append((index, len(line_lengths)))
        self._pending_tokens += len(ids)
        self.documents += 1
        self.text_tokens += len(ids)
        if self._pending_tokens >= _FLUSH_TOKENS:
            self._flush()

    def take(self) -> NDArray[np.generic]:
        """Return the full rows, [rows, sequence_length], and forget them."""
        rows = np.concatenate(self._done) if self._done else np.empty((0, self._length), dtype=self._dtype)
        self._done = []
        return rows

    def take_starts(self) -> list[int]:
        """Return where documents begin, of those whose rows were settled since the last call, in order; and forget it.

        In positions of all rows so far: row times sequence_length plus column. A document ends where the next begins.
        """
        starts, self._starts = self._starts, []
        return starts

    def finish(self) -> NDArray[np.generic]:
        """The remaining rows; the last one is padded."""
        self._flush()
        if len(self._carry):
            row = np.full((1, self._length), self._specials.pad, dtype=self._dtype)
            row[0, : len(self._carry)] = self._carry
            self.padding += self._length - len(self._carry)
            self.rows += 1
            self._carry = self._carry[:0]
            self._done.append(row)
        return self.take()

    def _flush(self) -> None:
        if not self._pending:
            return
        text = np.concatenate(self._pending)
        self._ends = np.cumsum(np.concatenate(self._pending_lines), dtype=np.int64).tolist()
        plan, position, start, first = _Plan(), len(self._carry), 0, 0
        for index, lines in self._indices:
            last = first + lines
            self._starts.append(self.rows * self._length + position)
            position = self._place(plan, position, start, (first, last), index)
            start, first = self._ends[last - 1], last
        self._fill(plan, text, position)
        self._pending, self._pending_lines, self._indices, self._pending_tokens = [], [], [], 0

    def _place(self, plan: _Plan, position: int, start: int, lines: tuple[int, int], index: int) -> int:
        """Plan the pieces of one document, whose text begins at `start`; returns the position after them."""
        length, end = self._length, self._ends[lines[1] - 1]
        key = mixed(self._seed ^ index)
        while start < end:
            key = (key + 0x9E3779B97F4A7C15) & _MASK
            draw = mixed(key)
            limit = room = length - position % length
            if draw & 0xFFFF < self._short:
                limit = min(room, _SHORTEST + ((draw >> 16 & 0xFFFF) * (length - _SHORTEST + 1) >> 16))
            text, cut = min(end - start, limit - 2), 0
            if draw >> 32 & 0xFFFF >= self._single and limit >= _SHORTEST:
                pair_text = min(end - start, limit - 3)
                cut = self._cut(start, start + pair_text, (limit - 3) // 2, lines, bool(draw >> 63))
                text = pair_text if cut else text
            left = room - text - 2 - (cut > 0)
            may_pad = self.padding + left <= _PADDING * (self.rows * length + position + room)
            if 0 < left < 3 and not may_pad and text + left > 3:  # a fragment needs room for [CLS] x [SEP]
                text -= 3 - left
                cut = cut if cut < start + text else 0
                left = room - text - 2 - (cut > 0)
            plan.cls.append(position)
            if cut:
                plan.sep.append(position + 1 + cut - start)
            position += room - left
            plan.sep.append(position - 1)
            start += text
            if 0 < left < self._minimum and (may_pad or left < 3):
                plan.pad.extend(range(position, position + left))
                self.padding += left
                position += left
        return position

    def _cut(self, start: int, stop: int, target: int, lines: tuple[int, int], coin: bool) -> int:
        """Where in the text B begins: at the end of a line, as the released code chooses; 0 when all is A."""
        first = bisect_right(self._ends, start, *lines)
        whole = bisect_left(self._ends, start + target, first, lines[1]) - first  # lines that end before the target
        count = whole + coin if whole else 1
        if first + count > lines[1]:
            return 0
        cut = self._ends[first + count - 1]
        return cut if cut < stop else 0

    def _fill(self, plan: _Plan, text: Ids, size: int) -> None:
        """Put the text between the special tokens."""
        used = len(self._carry)
        out = np.full(size, self._specials.pad, dtype=self._dtype)
        is_text = np.ones(size, dtype=bool)
        is_text[:used] = False
        for positions in (plan.cls, plan.sep, plan.pad):
            is_text[positions] = False
        out[is_text] = text
        out[:used] = self._carry
        out[plan.cls] = self._specials.cls
        out[plan.sep] = self._specials.sep
        whole = size - size % self._length
        self._done.append(out[:whole].reshape(-1, self._length))
        self._carry = out[whole:].copy()
        self.rows += whole // self._length
