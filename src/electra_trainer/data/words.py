"""Text -> ids through a memory of words, exactly as the library would: most words of a text were met before.

BERT's normaliser looks at single characters and the marks on them, and its splitting ends a word at every space and around
every punctuation mark. So no token reaches over an ASCII space or the edge of ASCII punctuation: a line can be cut there, and its
ids are those of the parts, one after another. Each part is asked of the library once, then remembered. ("[MASK]" is cut at its
brackets, so a text gives no special id but [UNK].)
"""

from __future__ import annotations

import json
import re
from array import array
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_REMEMBERED = 1 << 16  # parts in a generation, of which two are kept: about 25 MB
_LONGEST = 24  # characters of a part that is remembered, so that text without spaces (Chinese) takes no memory
_PUNCTUATION = r"!-/:-@\[-`{-~"
_CUT = re.compile(f"[{_PUNCTUATION}]|[^{_PUNCTUATION}]+")
_LINE_END = 0xFFFFFFFF  # stands between the ids of two lines; no vocabulary has so many words


class Words(dict[str, bytes]):
    """Part of a line -> its ids, as bytes of uint32. Two generations: what the younger lacks the older may have.

    Args:
        tokenizer: one that `can_cut`, and takes special tokens in a text for plain text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__({"\n": array("I", [_LINE_END]).tobytes()})
        self._lowercase: bool = json.loads(tokenizer.to_str())["normalizer"]["lowercase"]
        self._encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
        self._tokenize = tokenizer.model.tokenize
        self._older: dict[str, bytes] = {}

    @staticmethod
    def can_cut(tokenizer: Tokenizer) -> bool:
        """Whether its lines can be cut: BERT's normaliser and splitting, WordPiece, and no added words but special ones."""
        parts = json.loads(tokenizer.to_str())
        kinds = [(parts.get(name) or {}).get("type") for name in ("normalizer", "pre_tokenizer", "model")]
        return kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"] and all(
            token["special"] for token in parts["added_tokens"]
        )

    def lines(self, text: bytes) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Ids of lines, in UTF-8 with LF between them, one after another; and how many each line has."""
        if self._lowercase:
            text = text.lower()  # of bytes: ASCII letters only, as the normaliser would; fewer parts to remember
        parts = text.replace(b"\n", b" \n ").decode().split(" ")
        found = np.frombuffer(b"".join(map(self.__getitem__, parts)), dtype=np.uint32)
        ends = np.flatnonzero(found == _LINE_END)
        lengths = np.diff(ends, prepend=-1, append=len(found)) - 1
        return np.delete(found, ends), lengths.astype(np.uint32)

    def __missing__(self, part: str) -> bytes:
        ids = self._older.get(part)
        if ids is None:
            smaller = _CUT.findall(part)
            ids = b"".join(map(self.__getitem__, smaller)) if len(smaller) > 1 else self._ask(part)
        if len(part) <= _LONGEST:
            if len(self) >= _REMEMBERED:
                self._older = dict(self)
                self.clear()
                self["\n"] = self._older["\n"]
            self[part] = ids
        return ids

    def _ask(self, part: str) -> bytes:
        if part.isascii() and part.isalnum():  # one word, and nothing for the normaliser to do
            ids = [token.id for token in self._tokenize(part)]
        else:
            ids = self._encode([part], add_special_tokens=False)[0].ids
        return array("I", ids).tobytes()
