"""Train a WordPiece vocabulary, the same every time; add words to one.

The trainer of `tokenizers` numbers characters in the order of a hash table and breaks ties by those numbers, so two
runs on the same text differ. Here the alphabet is counted first and given to the trainer in a fixed order, with the
continuing form of each character; the rest is deterministic, whatever the threads.

The alphabet follows the text: as many characters as 99.99 % of its letters need, as far as the vocabulary has room for
them. English
needs a hundred, Chinese five thousand.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, normalizers, trainers

from electra_trainer.data.legibility import Legibility, bare, is_letter, parted
from electra_trainer.data.tokenizer import MAX_WORD_CHARS, SPECIAL_TOKENS, vocab_size_of, word_piece
from electra_trainer.errors import ConfigError, DataError, require
from electra_trainer.files.reading import MOST_TEXT, lines, read_file, short

MIN_VOCAB_SIZE = 256
_COVERED = 0.9999
"""Share of the letters for which the alphabet has characters."""
_COMMON = 1000
"""Characters that have a place in a large vocabulary even if fewer cover the text."""
_ROOM = 7 / 8
"""Largest share of a vocabulary for the alphabet while there are longer pieces to be had."""
_RARE = 0.001
"""Share of the letters below which marks or long words are ignored."""
_LONG_WORD_CHARS = 1000
"""Limit for scripts without spaces and for proteins. The library takes 10 ms for a word as long as this, the cube of
that for longer ones.
"""
_SEQUENCES = 0.1
"""Share of the letters in long ASCII words from which a text holds sequences, such as proteins, and not English with
some base64.
"""
_LONG_WORDS_LOOKED_AT = 10_000
UNUSED = re.compile(r"\[unused\d+\]")
"""An entry of a vocabulary that no text gives, kept for words to come."""
_SHOWN = 3


def train_tokenizer(
    texts: Iterable[str], *, vocab_size: int, cased: bool = False, keep_accents: bool | None = None, nfc: bool = False
) -> Tokenizer:
    """Train BERT's tokenizer on lines of text; [PAD] [UNK] [CLS] [SEP] [MASK] have the ids 0 to 4.

    Args:
        texts: read twice, so an iterator is put into a list first; give an object that can be iterated again for much
            text.
        vocab_size: largest number of tokens, at least 256; a text that is too small for it gives fewer.
        cased: keep capitals.
        keep_accents: keep accents; None keeps them if `cased`, and where they are part of the script (`needs_marks`).
        nfc: compose letters and their marks first (Unicode's NFC), so that both spellings of a word are the same.

    Raises:
        ConfigError: a vocabulary that is too small. DataError: text without characters.
    """
    require(vocab_size >= MIN_VOCAB_SIZE, "vocab_size", vocab_size, f"at least {MIN_VOCAB_SIZE} tokens")
    if iter(texts) is texts:
        texts = list(texts)
    counted = _Counted.of(map(parted, texts), nfc=nfc)
    if keep_accents is None:
        keep_accents = cased or needs_marks(counted.characters)

    def made(vocab: dict[str, int]) -> Tokenizer:
        tokenizer = word_piece(vocab, cased=cased, keep_accents=keep_accents)
        if nfc:
            tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), tokenizer.normalizer])
        return tokenizer

    plain = made({name: index for index, name in enumerate(SPECIAL_TOKENS)})
    plain.encode_special_tokens = True
    letters = _Alphabet.of(counted.characters, plain)
    if not letters.common:
        raise DataError("The text holds no characters to make a vocabulary of. Give some text.")
    chosen = letters.choose(vocab_size)
    forms = letters.forms(chosen)
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[*SPECIAL_TOKENS, *forms[len(chosen) :]],
        initial_alphabet=forms[: len(chosen)],
        limit_alphabet=len(chosen),
        continuing_subword_prefix="##",
        show_progress=False,
    )
    plain.train_from_iterator(map(parted, texts), trainer)
    found = plain.get_vocab(with_added_tokens=False)
    merged = sorted(found.keys() - {*SPECIAL_TOKENS, *forms}, key=found.__getitem__)
    # a text with few longer pieces leaves room for rare characters
    forms = letters.forms(letters.fitting(vocab_size - len(SPECIAL_TOKENS) - len(merged)))
    tokenizer = made({token: number for number, token in enumerate([*SPECIAL_TOKENS, *forms, *merged])})
    if counted.has_long_words(plain):
        tokenizer.model.max_input_chars_per_word = _LONG_WORD_CHARS
    return tokenizer


def size_line(tokenizer: Tokenizer, asked: int, measured: Legibility) -> str:
    """A sentence if a vocabulary is smaller than was asked for, or cannot read its own text; else empty.

    Args:
        asked: number of tokens that were asked for.
        measured: what it reads of its text.
    """
    size = tokenizer.get_vocab_size()
    if measured.is_much:
        return (
            f"{asked:,} tokens cannot read this text: give a larger --vocab-size, and put spaces into words of more "
            f"than {tokenizer.model.max_input_chars_per_word:,} letters."
        )
    if size < asked:
        return f"the vocabulary has {size:,} tokens instead of {asked:,}: the text has no more pieces that occur twice."
    return ""


def needs_marks(characters: Mapping[str, int]) -> bool:
    """Whether removing accents, as BERT does by default without capitals, would take letters away from a script.

    It does so in Japanese (ga becomes ka), Hindi, Thai (vowels disappear), Arabic, Hebrew, Russian (й becomes и) and
    many others. In Latin and Greek it removes accents, which uncased vocabularies have always done; Hangul is only
    spelt in parts.

    Args:
        characters: how often each occurs.
    """
    total = lost = 0
    for character, count in characters.items():
        if is_letter(character):
            total += count
            lost += count * _loses_meaning(character)
    return lost > _RARE * total


def _loses_meaning(character: str) -> bool:
    if bare(character) == unicodedata.normalize("NFC", character) or "\u0300" <= character <= "\u036f":
        return False
    return not unicodedata.name(character, "").startswith(("LATIN", "GREEK", "VARIATION"))


@dataclass
class _Counted:
    """Counts of a text."""

    characters: Counter[str] = field(default_factory=Counter)
    long: list[str] = field(default_factory=list)
    """Some of the words that may be too long for the library, and how many characters were read for them."""
    looked_at: int = 0

    @staticmethod
    def of(texts: Iterable[str], *, nfc: bool) -> "_Counted":
        counted = _Counted()
        for text in texts:
            counted.characters.update(normalizers.NFC().normalize_str(text) if nfc else text)
            if len(counted.long) < _LONG_WORDS_LOOKED_AT:
                counted.looked_at += len(text)
                counted.long += [word for word in text.split() if len(word) > MAX_WORD_CHARS]
        return counted

    def has_long_words(self, tokenizer: Tokenizer) -> bool:
        """Whether more letters than a few are in words that are too long for BERT: in Thai a sentence may have no
        space, nor has a protein. In English a few are base64 or the like, for which nothing changes.
        """
        ascii_letters = letters = 0
        for word in self.long:
            for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(word)):
                if len(piece) > MAX_WORD_CHARS:
                    ascii_letters += len(piece) * piece.isascii()
                    letters += len(piece) * (not piece.isascii())
        return letters > _RARE * self.looked_at or ascii_letters > _SEQUENCES * self.looked_at


@dataclass(frozen=True)
class _Alphabet:
    """The characters of a text after normalisation, the commonest first."""

    common: Sequence[tuple[str, int]]
    continuing: frozenset[str]
    """Characters that can occur inside of a word: punctuation and Chinese characters cannot."""

    @staticmethod
    def of(characters: Mapping[str, int], tokenizer: Tokenizer) -> "_Alphabet":
        normal: Counter[str] = Counter()
        for character, count in characters.items():
            for part in tokenizer.normalizer.normalize_str(character):
                if not part.isspace():
                    normal[part] += count
        common = sorted(normal.items(), key=lambda item: (-item[1], item[0]))
        return _Alphabet(common, frozenset(one for one in normal if _continues(tokenizer, one)))

    def choose(self, vocab_size: int) -> list[str]:
        """The commonest characters: enough for nearly all letters, no more than fit."""
        least = min(_COMMON, max(80, vocab_size // 16))
        total = sum(count for character, count in self.common if is_letter(character))
        needed = met = 0
        for number, (character, count) in enumerate(self.common, 1):
            if is_letter(character) and met < _COVERED * total:
                needed, met = number, met + count
        return self.fitting(int(_ROOM * (vocab_size - len(SPECIAL_TOKENS))))[: max(least, needed)]

    def fitting(self, room: int) -> list[str]:
        """The commonest characters whose forms take no more than `room` entries of a vocabulary."""
        chosen: list[str] = []
        for character, _ in self.common:
            room -= 2 if character in self.continuing else 1
            if room < 0:
                break
            chosen.append(character)
        return chosen

    def forms(self, chosen: Iterable[str]) -> list[str]:
        """The entries of some characters, sorted by code point: those at the beginning of a word, then the continuing
        ones.
        """
        first = sorted(chosen)
        return [*first, *(f"##{character}" for character in first if character in self.continuing)]


def _continues(tokenizer: Tokenizer, character: str) -> bool:
    normal = tokenizer.normalizer.normalize_str(f"a{character}")
    return len(tokenizer.pre_tokenizer.pre_tokenize_str(normal)) == 1


def read_words(path: Path) -> list[str]:
    """The words of a file, one a line; blank lines are skipped.

    Raises:
        MissingInputError, StorageError: cannot be read. DataError: not UTF-8, no words.
    """
    words = [line.strip() for _, line in lines(read_file(path, limit=MOST_TEXT), str(path)) if line.strip()]
    if not words:
        raise DataError(f"{path}: holds no words. Expected one a line.")
    return words


def add_words(tokenizer: Tokenizer, words: Iterable[str]) -> tuple[Tokenizer, str]:
    """A copy of a tokenizer with these words in its vocabulary, and a line on them for people.

    A word is read as a text would be, so that "Corona" is added as "corona" to a lower-cased vocabulary. "##itis"
    continues a word.

    Raises:
        ConfigError: the tokenizer is not a WordPiece with ##, or has added words after its vocabulary. DataError: no
            word can be added.
    """
    parts: dict[str, Any] = json.loads(tokenizer.to_str())
    model = parts["model"]
    if model["type"] != "WordPiece" or model["continuing_subword_prefix"] != "##":
        raise ConfigError(f"--add-words: the tokenizer is a {model['type']}. Expected a WordPiece with the prefix ##.")
    vocab: dict[str, int] = model["vocab"]
    apart = {token["content"] for token in parts["added_tokens"]}
    places = [word for word in sorted(vocab, key=vocab.__getitem__) if UNUSED.fullmatch(word) and word not in apart]
    fresh: dict[str, None] = {}
    split: list[str] = []
    known = 0
    for word in words:
        if (piece := _token_of(tokenizer, word)) is None:
            split.append(word)
        elif piece in vocab or piece in apart or piece in fresh:
            known += 1
        else:
            fresh[piece] = None
    left_out = f"{known:,} are in the vocabulary already, the tokenizer splits {len(split):,}"
    left_out += f": {', '.join(map(short, split[:_SHOWN]))}{', ...' * (len(split) > _SHOWN)}" * bool(split)
    if not fresh:
        raise DataError(f"--add-words: no word can be added: {left_out}. Give words that the vocabulary lacks.")
    appended = max(0, len(fresh) - len(places))
    end = vocab_size_of(tokenizer)
    if appended and len(vocab) != end:
        raise ConfigError(
            f"--add-words: {len(fresh):,} new words, {len(places):,} [unusedN] entries, and added tokens follow the "
            f"vocabulary. Give at most {len(places):,} new words."
        )
    for number, (word, place) in enumerate(zip(fresh, [*places, *[None] * appended], strict=False)):
        vocab[word] = end + number - len(places) if place is None else vocab.pop(place)
    model["vocab"] = dict(sorted(vocab.items(), key=lambda item: item[1]))
    replaced = len(fresh) - appended
    line = f"{len(fresh):,} words added: {replaced:,} in place of [unusedN], {appended:,} at the end; {left_out}"
    return Tokenizer.from_str(json.dumps(parts)), line


def _token_of(tokenizer: Tokenizer, word: str) -> str | None:
    """The token that a word becomes, or None if the tokenizer splits it or drops all of it."""
    prefix = "##" if word.startswith("##") else ""
    text = word.removeprefix(prefix)
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(parted(text))
    found = tokenizer.pre_tokenizer.pre_tokenize_str(text) if tokenizer.pre_tokenizer is not None else [(text, None)]
    if len(found) != 1 or not 0 < len(found[0][0]) <= MAX_WORD_CHARS:
        return None
    return prefix + str(found[0][0])
