"""Legibility of texts to a tokenizer: letters and symbols in [UNK], words parted by control characters, cut texts."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from tokenizers import Encoding

from electra_trainer.errors import tell

UNREADABLE_IS_MUCH = 0.01
"""Share of the letters from which a vocabulary is not made for a text."""
SAID = 0.001
"""Smallest share of the letters and symbols, or of the words, that is worth a sentence."""
_MOST_EXAMPLES = 10_000
_SHOWN = 4
_CONTROL = r"\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
CONTROL = re.compile(f"[{_CONTROL}]")
"""A control character other than a tab and line ends."""
_EMOJI_MARKS = "\ufe0e\ufe0f\u20e3"
_IN_WORD = rf"[^\s!-/:-@\[-`{{-~{_CONTROL}]"
_GLUE = re.compile(f"(?<={_IN_WORD})[{_CONTROL}]++(?={_IN_WORD})")


@cache
def is_letter(character: str) -> bool:
    """Whether a character is part of words in some script: a letter, a mark on or around letters, a digit."""
    return unicodedata.category(character)[0] in "LMN"


@cache
def _kind(character: str) -> str:
    """`letter`, as `is_letter` says; `symbol`, an emoji or punctuation; or nothing."""
    category = unicodedata.category(character)  # Cn: not assigned yet, in this version of Unicode
    is_symbol = category[0] in "SP" or category == "Cn"
    return "symbol" if is_symbol else "letter" if is_letter(character) and character not in _EMOJI_MARKS else ""


def parted(text: str) -> str:
    """The text with a space in place of each control character.

    BERT's normaliser deletes them, and makes one word of two that a page break or another separator is between. All
    texts go through here on their way to a tokenizer, in training and in use. Offsets stay.
    """
    return CONTROL.sub(" ", text)


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
    """Counts of some texts and what a tokenizer, and rows of a certain length, left of them.

    All verbs that read text use it, so that their shares mean the same: of the letters and of the symbols, not of the
    tokens, since one [UNK] may stand for a whole line of Thai.
    """

    words: int = 0
    """Separated by spaces."""
    tokens: int = 0
    unknown: int = 0
    """Tokens that are [UNK]."""
    letters: int = 0
    unreadable: int = 0
    """Letters in [UNK]."""
    symbols: int = 0
    """Symbols, emoji and punctuation."""
    unreadable_symbols: int = 0
    """Symbols in [UNK]."""
    glued: int = 0
    """Places where only control characters are between two words."""
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
    """Pieces of text with letters or symbols that become [UNK]."""
    notes: list[str] = field(default_factory=list)
    """Other findings."""

    def add(self, text: str | Sequence[str], encoding: Encoding, unk: int) -> None:
        """Count a text, or one that is split into words (`is_pretokenized`), and its tokens."""
        parts, ids = [text] if isinstance(text, str) else text, encoding.ids
        self.words += sum(len(parted(part).split()) for part in parts)
        self.glued += sum(len(_GLUE.findall(part)) for part in parts)
        self.tokens += len(ids)
        kinds = Counter(map(_kind, "".join(parts)))
        self.letters, self.symbols = self.letters + kinds["letter"], self.symbols + kinds["symbol"]
        self.unknown += ids.count(unk)
        sequences = encoding.word_ids if len(parts) > 1 else [0] * len(ids)
        for token, number, (begin, end) in zip(ids, sequences, encoding.offsets, strict=True):
            if token != unk:
                continue
            part = parts[number or 0]
            while end < len(part) and unicodedata.category(part[end]) == "Mn":  # accents that were removed
                end += 1
            piece = part[begin:end]
            kinds = Counter(map(_kind, piece))
            self.unreadable += kinds["letter"]
            self.unreadable_symbols += kinds["symbol"]
            if kinds["letter"] + kinds["symbol"] and (piece in self.examples or len(self.examples) < _MOST_EXAMPLES):
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
        """The shares of unreadable letters and, if there are any, symbols, with examples."""
        symbols = f" and {percent(self.unreadable_symbols, self.symbols)} of the symbols and punctuation marks"
        share = f"{percent(self.unreadable, self.letters)} of the letters{symbols * (self.unreadable_symbols > 0)}"
        line = f"{share} are unreadable ([UNK])"
        shown = ", ".join(
            repr(piece if len(piece) <= 20 else f"{piece[:20]}…") + (f" ({count:,} x)" if count > 1 else "")
            for piece, count in self.examples.most_common(_SHOWN)
        )
        return f"{line}, for example {shown}" if shown else line

    def glued_line(self) -> str:
        """The share of words that only control characters are between; empty if it is next to nothing."""
        share = f"control characters alone part {percent(self.glued, self.words)} of the words and are read as spaces"
        line = f"{share}; BERT's tokenizers of transformers delete them, so write spaces there"
        return line if self.glued > SAID * self.words else ""

    def cut_line(self) -> str:
        """The share of texts that are cut, and of all tokens that are not read; empty if none is."""
        if not self.cut:
            return ""
        return (
            f"{percent(self.cut, self.rows)} of the {self.kind} are longer than {self.room} tokens and are cut: "
            f"{percent(self.unread, self.tokens)} of all tokens are not read"
        )

    def report(self, *, reader: str, longer: str) -> None:
        """Say the `findings`, on standard error or in the log."""
        for finding in self.findings(reader=reader, longer=longer):
            tell(finding)

    def findings(self, *, reader: str, longer: str) -> list[str]:
        """Sentences on unreadable letters and cut texts; those that matter begin with "warning: ".

        Args:
            reader: whose vocabulary it is.
            longer: what to do about texts that are cut; questions and words have no remedy.
        """
        found = [*self.notes]
        characters, remedy = self.letters + self.symbols, ""
        if self.unreadable_symbols > UNREADABLE_IS_MUCH * characters:
            remedy = ". Write those that matter as words"
        if self.is_much:
            remedy = (
                f": the vocabulary of {reader} is not made for them. Use an encoder of this language, or pre-train "
                "one: `electra tokenizer`"
            )
        if self.unreadable + self.unreadable_symbols > SAID * characters:
            found.append(f"{'warning: ' * bool(remedy)}{self.unreadable_line()}{remedy}.")
        if line := self.cut_line():
            mark = "warning: " if self.unread > UNREADABLE_IS_MUCH * self.tokens else ""
            found.append(f"{mark}{line}." + (f" {longer}" if self.kind == "texts" else ""))
        return found


def percent(part: int, whole: int) -> str:
    """A share in percent, with more digits where it is small."""
    share = 100 * part / max(whole, 1)
    return f"{share:.1f} %" if share >= 1 or not part else f"{share:.3f} %" if share >= 0.001 else "below 0.001 %"
