"""Encode lines as ids, in this process or in workers, one packet of documents at a time.

Words are remembered, since most words of a text occurred before; the ids are exactly the library's.

BERT's normaliser looks at single characters and the marks on them, and its splitting ends a word at every space and
around every punctuation mark. So no token reaches over an ASCII space or the edge of ASCII punctuation: a line can be
cut there, and its ids are those of the parts, one after another. The library encodes each part once, then it is
remembered. ("[MASK]" is cut at its brackets, so a text gives no special id but [UNK].)
"""

import hashlib
import json
import re
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, normalizers

from electra_trainer.data.corpus import CorpusReport, PrepareSettings
from electra_trainer.data.document import Document, Place
from electra_trainer.data.legibility import parted
from electra_trainer.data.tokenizer import as_plain_text, from_json, specials_of
from electra_trainer.files.processes import Connection, Workers, cores, serve

_PACKET_BYTES = 1 << 18
Encode = Callable[[Iterator[bytes]], Iterator[bytes]]


def encoder(tokenizer: Tokenizer) -> Callable[[bytes], bytes]:
    """A function from lines, in UTF-8 with LF between them, to the number of lines, how many tokens each has, and their
    ids.

    A line may have none (control characters only). Each control character is read as a space.
    A text can never give [PAD], [CLS], [SEP] or [MASK]: should the tokenizer split so that it does, it is [UNK].
    """
    plain = as_plain_text(tokenizer)
    split = Words(plain).lines if Words.can_cut(plain) else _by_library(plain)

    def answer(request: bytes) -> bytes:
        ids, lengths = split(parted(request.decode()).encode())
        return len(lengths).to_bytes(8, "little") + lengths.astype("<u4").tobytes() + ids.astype("<u4").tobytes()

    return answer


def decoded(answer: bytes) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Undo `encoder`: the ids of all lines, and how many each has."""
    lines = int.from_bytes(answer[:8], "little")
    return np.frombuffer(answer, "<u4", offset=8 + 4 * lines), np.frombuffer(answer, "<u4", count=lines, offset=8)


def _by_library(plain: Tokenizer) -> Callable[[bytes], tuple[NDArray[np.uint32], NDArray[np.uint32]]]:
    """Ids of lines, and how many each has, for tokenizers that may look at whole lines."""
    encode = getattr(plain, "encode_batch_fast", plain.encode_batch)
    specials = specials_of(plain)
    forbidden = np.array([specials.pad, specials.cls, specials.sep, specials.mask], dtype=np.uint32)

    def lines(text: bytes) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        found = [encoding.ids for encoding in encode(text.decode().split("\n"), add_special_tokens=False)]
        lengths = np.fromiter(map(len, found), dtype=np.uint32, count=len(found))
        ids = np.fromiter(chain.from_iterable(found), dtype=np.uint32, count=int(lengths.sum()))
        ids[np.isin(ids, forbidden)] = specials.unk
        return ids, lengths

    return lines


def _serve(pipe: Connection) -> None:
    serve(pipe, lambda setup: encoder(from_json(setup, where="tokenizer")))


@contextmanager
def encoding(tokenizer: Tokenizer, *, workers: int) -> Iterator[Encode]:
    """Encode packets in order, in worker processes; with one worker, in this process."""
    if workers <= 1:
        answer = encoder(tokenizer)
        yield lambda requests: map(answer, requests)
        return
    with Workers(f"{__name__}:_serve", setup=tokenizer.to_str().encode(), count=workers) as pool:
        yield pool.map


@dataclass(frozen=True)
class EncodedDocument:
    """A tokenized document."""

    share: float  # in [0, 1), a hash of its text: the same text is always held out or never
    index: int
    ids: NDArray[np.uint32]
    line_lengths: NDArray[np.uint32]  # tokens of each line, at least one
    place: Place


def encode_documents(
    found: Iterator[Document], tokenizer: Tokenizer, settings: PrepareSettings, report: CorpusReport
) -> Generator[EncodedDocument]:
    """Tokenize documents, in order, in worker processes; documents without any token are left out, and counted in
    `report`.
    """
    # of each packet: index, share, number of lines and place of its documents
    waiting: deque[list[tuple[int, float, int, Place]]] = deque()
    salt = settings.seed.to_bytes(8, "little")

    def packets() -> Iterator[bytes]:
        packet: list[bytes] = []
        about: list[tuple[int, float, int, Place]] = []
        size = 0
        for index, document in enumerate(found):
            text = "\n".join(document).encode()
            share = int.from_bytes(hashlib.blake2b(text, digest_size=7, key=salt).digest(), "little") / 2**56
            about.append((index, share, len(document), document.place))
            packet.append(text)
            size += len(text)
            if size >= _PACKET_BYTES:
                waiting.append(about)
                yield b"\n".join(packet)
                packet, about, size = [], [], 0
        if packet:
            waiting.append(about)
            yield b"\n".join(packet)

    with encoding(tokenizer, workers=settings.workers or cores()) as encode:
        for answer in encode(packets()):
            packet_ids, line_lengths = decoded(answer)
            ends = np.concatenate([[0], np.cumsum(line_lengths, dtype=np.int64)])
            line = 0
            for index, share, lines, place in waiting.popleft():
                lengths = line_lengths[line : line + lines]
                ids = packet_ids[ends[line] : ends[line + lines]]
                line += lines
                if len(ids):
                    yield EncodedDocument(share, index, ids, lengths[lengths > 0], place)
                else:
                    report.tokenless_documents += 1


_REMEMBERED = 1 << 16  # parts in a generation, of which two are kept: about 25 MB
_LONGEST = 24  # characters of a part that is remembered, so that text without spaces (Chinese) takes no memory
_PUNCTUATION = r"!-/:-@\[-`{-~"
_CUT = re.compile(f"[{_PUNCTUATION}]|[^{_PUNCTUATION}]+")
_LINE_END = 0xFFFFFFFF  # between the ids of two lines; no vocabulary has so many words


class Words(dict[str, bytes]):
    """Part of a line -> its ids, as bytes of uint32. Two generations: what the younger lacks may be in the older.

    Args:
        tokenizer: one that `can_cut`, and takes special tokens in a text for plain text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__({"\n": array("I", [_LINE_END]).tobytes()})
        normal = json.loads(tokenizer.to_str())["normalizer"]
        self._compose = normalizers.NFC().normalize_str if normal["type"] == "Sequence" else None
        self._lowercase: bool = normal.get("normalizers", [normal])[-1]["lowercase"]
        self._encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
        self._tokenize = tokenizer.model.tokenize
        self._older: dict[str, bytes] = {}

    @staticmethod
    def can_cut(tokenizer: Tokenizer) -> bool:
        """Whether its lines can be cut: BERT's normaliser, perhaps after NFC, and splitting, WordPiece, and no added
        words but special ones.
        """
        parts = json.loads(tokenizer.to_str())
        normal = parts["normalizer"] or {}
        normals = [one["type"] for one in normal.get("normalizers", [normal] if normal else [])]
        kinds = [(parts.get(name) or {}).get("type") for name in ("pre_tokenizer", "model")]
        return (
            normals in (["BertNormalizer"], ["NFC", "BertNormalizer"])
            and kinds == ["BertPreTokenizer", "WordPiece"]
            and all(token["special"] for token in parts["added_tokens"])
        )

    def lines(self, text: bytes) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Ids of lines, in UTF-8 with LF between them, one after another; and how many each line has."""
        if self._compose is not None and not text.isascii():  # whole lines: a mark may follow what they are cut at
            text = self._compose(text.decode()).encode()
        if self._lowercase:
            text = text.lower()  # of bytes: ASCII letters only, as the normaliser would; fewer parts to remember
        parts = text.replace(b"\n", b" \n ").decode().split(" ")
        found = np.frombuffer(b"".join(map(self.__getitem__, parts)), dtype=np.uint32)
        ends = np.flatnonzero(found == _LINE_END)
        lengths = np.diff(ends, prepend=-1, append=len(found)) - 1
        return np.delete(found, ends), lengths.astype(np.uint32)

    def __missing__(self, part: str) -> bytes:
        if (ids := self._older.get(part)) is None:
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
