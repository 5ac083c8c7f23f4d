"""Count what a tokenizer cannot read of a text: letters that become [UNK], tokens beyond the end of a row.

All verbs that read text use it, so that their shares mean the same: of the letters, not of the tokens, since one [UNK]
may stand for a whole line of Thai.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Encoding

UNREADABLE_IS_MUCH = 0.01
"""Share of the letters from which a vocabulary is not made for a text."""
_MOST_EXAMPLES = 10_000
_SHOWN = 4


@cache
def is_letter(character: str) -> bool:
    """Whether a character is part of words in some script: a letter, a mark on or around letters, a digit."""
    return unicodedata.category(character)[0] in "LMN"


def bare(text: str) -> str:
    """The text without accents and other marks that BERT's normaliser removes, composed again: Hangul stays as it
    is.
    """
    if text.isascii():
        return text
    kept = (one for one in unicodedata.normalize("NFD", text) if unicodedata.category(one) != "Mn")
    return unicodedata.normalize("NFC", "".join(kept))


@dataclass
class Legibility:
    """Counts of some texts and what a tokenizer, and rows of a certain length, left of them."""

    words: int = 0
    """Separated by spaces."""
    tokens: int = 0
    unknown: int = 0
    """Tokens that are [UNK]."""
    letters: int = 0
    unreadable: int = 0
    """Letters in [UNK]."""
    rows: int = 0
    cut: int = 0
    """Rows that end before their text does."""
    unread: int = 0
    """Tokens of texts that are beyond the end of their rows."""
    room: int = 0
    """Tokens of a text for which there is room."""
    kind: str = "texts"
    """Noun for the units that are cut: texts, questions, words."""
    examples: Counter[str] = field(default_factory=Counter)
    """Pieces of text with letters that become [UNK]."""

    def add(self, text: str | Sequence[str], encoding: "Encoding", unk: int) -> None:
        """Count a text, or one that is split into words (`is_pretokenized`), and its tokens."""
        parts, ids = [text] if isinstance(text, str) else text, encoding.ids
        self.words += sum(len(part.split()) for part in parts)
        self.tokens += len(ids)
        self.letters += sum(map(is_letter, "".join(parts)))
        self.unknown += ids.count(unk)
        sequences = encoding.word_ids if len(parts) > 1 else [0] * len(ids)
        for token, number, (begin, end) in zip(ids, sequences, encoding.offsets, strict=True):
            if token != unk:
                continue
            part = parts[number or 0]
            while end < len(part) and unicodedata.category(part[end]) == "Mn":  # accents that were removed
                end += 1
            piece = part[begin:end]
            letters = sum(map(is_letter, piece))
            self.unreadable += letters
            if letters and (piece in self.examples or len(self.examples) < _MOST_EXAMPLES):
                self.examples[piece] += 1

    def add_row(self, tokens: int, room: int, *, kind: str = "texts") -> None:
        """Count a row of at most `room` tokens for a text of `tokens`."""
        self.rows, self.room, self.kind = self.rows + 1, room, kind
        self.cut += tokens > room
        self.unread += max(0, tokens - room)

    @property
    def fertility(self) -> float:
        """Tokens a word."""
        return self.tokens / max(self.words, 1)

    @property
    def unreadable_rate(self) -> float:
        """Share of the letters that are in [UNK]."""
        return self.unreadable / max(self.letters, 1)

    @property
    def is_much(self) -> bool:
        """Whether the share of unreadable letters says that the vocabulary is not made for the text."""
        return self.unreadable_rate > UNREADABLE_IS_MUCH

    def unreadable_line(self) -> str:
        """The share of unreadable letters, with examples."""
        line = f"{percent(self.unreadable, self.letters)} of the letters are unreadable ([UNK])"
        shown = ", ".join(
            repr(piece if len(piece) <= 20 else f"{piece[:20]}…") + (f" ({count:,} x)" if count > 1 else "")
            for piece, count in self.examples.most_common(_SHOWN)
        )
        return f"{line}, for example {shown}" if shown else line

    def cut_line(self) -> str:
        """The share of texts that are cut, and of all tokens that are not read; empty if none is."""
        if not self.cut:
            return ""
        return (
            f"{percent(self.cut, self.rows)} of the {self.kind} are longer than {self.room} tokens and are cut: "
            f"{percent(self.unread, self.tokens)} of all tokens are not read"
        )

    def findings(self, *, reader: str, longer: str) -> list[str]:
        """Sentences on unreadable letters and cut texts; those that matter begin with "warning: ".

        Args:
            reader: whose vocabulary it is.
            longer: what to do about texts that are cut; questions and words have no remedy.
        """
        found = []
        if self.unreadable:
            remedy = (
                f": the vocabulary of {reader} is not made for them. Use an encoder of this language, or pre-train "
                "one: `electra tokenizer`"
            )
            mark = "warning: " if self.is_much else ""
            found.append(f"{mark}{self.unreadable_line()}{remedy if mark else ''}.")
        if line := self.cut_line():
            mark = "warning: " if self.unread > UNREADABLE_IS_MUCH * self.tokens else ""
            found.append(f"{mark}{line}." + (f" {longer}" if self.kind == "texts" else ""))
        return found

    @property
    def hinders(self) -> bool:
        """Whether so little is read that longer training cannot help."""
        return self.unreadable_rate > 0.2 or self.cut > 0.5 * self.rows


def percent(part: int, whole: int) -> str:
    """A share in percent, with more digits where it is small."""
    share = 100 * part / max(whole, 1)
    return f"{share:.1f} %" if share >= 1 or not part else f"{share:.3f} %" if share >= 0.001 else "below 0.001 %"
