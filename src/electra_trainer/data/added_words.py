"""Add words to a WordPiece vocabulary: in place of its [unusedN] entries, then at its end. All other words keep their
ids.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from electra_trainer.data.tokenizer import vocab_size_of
from electra_trainer.data.tokenizer_folder import MAX_WORD_CHARS
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.files.reading import MOST_TEXT, lines, read_file, short

UNUSED = re.compile(r"\[unused\d+\]")
"""An entry of a vocabulary that no text gives, kept for words to come."""
_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class AddedWords:
    """A tokenizer with words added, and a summary of them."""

    tokenizer: Tokenizer
    replaced: int
    """Words in place of [unusedN]."""
    appended: int
    known: tuple[str, ...]
    """Words that the vocabulary had already."""
    split: tuple[str, ...]
    """Words that cannot be one token: the tokenizer splits them before it looks for words."""

    def summary(self) -> list[str]:
        """Lines for people."""
        told = [
            f"{self.replaced + self.appended:,} words added: {self.replaced:,} in place of [unusedN], "
            f"{self.appended:,} at the end"
        ]
        for words, why in (
            (self.known, "in the vocabulary already"),
            (self.split, "left out: the tokenizer splits them"),
        ):
            if words:
                told.append(f"{len(words):,} {why}, such as {', '.join(words[:_SHOWN])}")
        return told


def read_words(path: Path) -> list[str]:
    """The words of a file, one a line; blank lines are skipped.

    Raises:
        MissingInputError, StorageError: cannot be read. DataError: not UTF-8, no words.
    """
    words = [line.strip() for _, line in lines(read_file(path, limit=MOST_TEXT), str(path)) if line.strip()]
    if not words:
        raise DataError(f"{path}: holds no words. Expected one a line.")
    return words


def add_words(tokenizer: Tokenizer, words: Iterable[str]) -> AddedWords:
    """A copy of a tokenizer with these words in its vocabulary.

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
    known, split = [], []
    for word in words:
        piece = _piece(tokenizer, word)
        if piece is None:
            split.append(word)
        elif piece in vocab or piece in apart or piece in fresh:
            known.append(word)
        else:
            fresh[piece] = None
    if not fresh:
        told = f"{len(known):,} are known, {len(split):,} are split, such as {short((known + split)[0])}"
        raise DataError(f"--add-words: no word can be added. {told}. Give words that the vocabulary lacks.")
    appended = max(0, len(fresh) - len(places))
    end = vocab_size_of(tokenizer)
    if appended and len(vocab) != end:
        raise ConfigError(
            f"--add-words: {len(fresh):,} new words, {len(places):,} [unusedN] entries, and added tokens follow the "
            "vocabulary. Give at most "
            f"{len(places):,} new words."
        )
    for number, (word, place) in enumerate(zip(fresh, [*places, *[None] * appended], strict=False)):
        vocab[word] = end + number - len(places) if place is None else vocab.pop(place)
    model["vocab"] = dict(sorted(vocab.items(), key=lambda item: item[1]))
    return AddedWords(
        tokenizer=Tokenizer.from_str(json.dumps(parts)),
        replaced=len(fresh) - appended,
        appended=appended,
        known=tuple(known),
        split=tuple(split),
    )


def _piece(tokenizer: Tokenizer, word: str) -> str | None:
    """The token that a word becomes, or None if the tokenizer splits it or drops all of it."""
    prefix = "##" if word.startswith("##") else ""
    text = word.removeprefix(prefix)
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    found = tokenizer.pre_tokenizer.pre_tokenize_str(text) if tokenizer.pre_tokenizer is not None else [(text, None)]
    if len(found) != 1 or not 0 < len(found[0][0]) <= MAX_WORD_CHARS:
        return None
    return prefix + str(found[0][0])
