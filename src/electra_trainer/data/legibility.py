"""Count what a tokenizer cannot read of a text: letters that become [UNK], characters that vanish, tokens beyond the
end of a row.

All verbs that read text use it, so that their shares mean the same: of the letters, not of the tokens, since one [UNK]
may stand for a
whole line of Thai.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

UNREADABLE_IS_MUCH = 0.01
"""Share of the letters from which a vocabulary is not made for a text."""
_MOST_EXAMPLES = 10_000
_SHOWN = 4
_LINE = 2000
"""Characters of a line that are looked at in a sample."""
_REPLACEMENT = "\ufffd"


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

    texts: int = 0
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
    signs: Counter[str] = field(default_factory=Counter)
    """Pieces without letters that do: emoji, symbols."""

    def add(self, text: str, encoding: "Encoding", unk: int) -> None:
        """Count a text and its tokens."""
        self.words += len(text.split())
        self._add([text], encoding, unk)

    def add_words(self, words: Sequence[str], encoding: "Encoding", unk: int) -> None:
        """Count a text that is split into words (`is_pretokenized`)."""
        self.words += len(words)
        self._add(words, encoding, unk)

    def _add(self, parts: Sequence[str], encoding: "Encoding", unk: int) -> None:
        ids = encoding.ids
        self.texts += 1
        self.tokens += len(ids)
        self.letters += sum(map(is_letter, "".join(parts)))
        if not (unknown := ids.count(unk)):
            return
        self.unknown += unknown
        sequences = encoding.word_ids if len(parts) > 1 else [0] * len(ids)
        for token, part, (begin, end) in zip(ids, sequences, encoding.offsets, strict=True):
            if token == unk:
                text = parts[part or 0]
                while end < len(text) and unicodedata.category(text[end]) == "Mn":  # accents that were removed
                    end += 1
                piece = text[begin:end]
                letters = sum(map(is_letter, piece))
                self.unreadable += letters
                kind = self.examples if letters else self.signs
                if piece in kind or len(kind) < _MOST_EXAMPLES:
                    kind[piece] += 1

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
        if self.unreadable:
            line += f", for example {_listed(self.examples)}"
        if self.signs:
            many = self.signs.total()
            line += f"; so {'is 1 sign' if many == 1 else f'are {many:,} signs, such as'} {_listed(self.signs)}"
        return line

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


@dataclass
class Sampled:
    """Every n-th line of a text; n doubles whenever the sample is full."""

    most: int = 20_000
    lines: list[str] = field(default_factory=list)
    _every: int = 1
    _met: int = 0

    def add(self, lines: Sequence[str]) -> None:
        """Take those of some lines that belong to the sample."""
        self.lines += [line[:_LINE] for line in lines[-self._met % self._every :: self._every]]
        self._met += len(lines)
        while len(self.lines) > self.most:
            self.lines, self._every = self.lines[::2], 2 * self._every


def count_hidden(lines: Iterable[str], characters: Counter[str]) -> None:
    """Count characters that print nothing and are not spaces, which BERT's normaliser removes."""
    for line in lines:
        if not line.isprintable() or _REPLACEMENT in line:
            for character in set(line):
                if character == _REPLACEMENT or not (character.isprintable() or character.isspace()):
                    characters[character] += line.count(character)


def dropped_by(tokenizer: "Tokenizer", characters: Counter[str]) -> Counter[str]:
    """The characters of these that a tokenizer's normaliser removes without a trace."""
    normal = tokenizer.normalizer

    def vanishes(character: str) -> bool:
        return normal is not None and normal.normalize_str(f"a{character}a") == "aa"

    return Counter({character: count for character, count in characters.items() if vanishes(character)})


def dropped_line(characters: Counter[str]) -> str:
    """A sentence on characters that a vocabulary drops, by kind; empty without any."""
    kinds: Counter[str] = Counter()
    commonest: dict[str, str] = {}
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        kind = _KINDS.get(unicodedata.category(character), "others")
        kinds[kind] += count
        commonest.setdefault(kind, f"U+{ord(character):04X} {unicodedata.name(character, '')}".strip())
    some = ", ".join(f"{count:,} {kind} (mostly {commonest[kind]})" for kind, count in kinds.most_common())
    return f"dropped characters, which no token represents: {some}" if some else ""


_KINDS = {
    "Cf": "zero-width or formatting",
    "Co": "private-use",
    "Cc": "control",
    "Cn": "unassigned",
    "So": "replacement",
}


def percent(part: int, whole: int) -> str:
    """A share in percent, with more digits where it is small."""
    share = 100 * part / max(whole, 1)
    return f"{share:.1f} %" if share >= 1 or not part else f"{share:.3f} %" if share >= 0.001 else "below 0.001 %"


def _listed(pieces: Counter[str]) -> str:
    def shown(piece: str) -> str:
        return repr(piece if len(piece) <= 20 else piece[:20] + "…")

    return ", ".join(
        shown(piece) + (f" ({count:,} x)" if count > 1 else "") for piece, count in pieces.most_common(_SHOWN)
    )
