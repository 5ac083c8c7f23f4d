"""Lines -> ids, in this process or in workers, one packet of documents at a time."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from electra_trainer.data.document import Document, Place
from electra_trainer.data.tokenizer import as_plain_text, from_json, specials_of
from electra_trainer.data.words import Words
from electra_trainer.data.workers import Workers, serve

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class Encoded:
    """The lines of a packet, one after another."""

    ids: NDArray[np.uint32]
    line_lengths: NDArray[np.uint32]  # tokens of each line; 0 for a line without any (control characters only)

    @classmethod
    def from_bytes(cls, data: bytes) -> Encoded:
        """Undo `encoder`."""
        lines = int.from_bytes(data[:8], "little")
        return cls(np.frombuffer(data, "<u4", offset=8 + 4 * lines), np.frombuffer(data, "<u4", count=lines, offset=8))


_PACKET_BYTES = 1 << 18
Encode = Callable[[Iterator[bytes]], Iterator[bytes]]


def encoder(tokenizer: Tokenizer) -> Callable[[bytes], bytes]:
    """A function from lines, in UTF-8 with LF between them, to their ids, as bytes that `Encoded.from_bytes` reads.

    A text can never give [PAD], [CLS], [SEP] or [MASK]: should the tokenizer split so that it does, it is [UNK].
    """
    plain = as_plain_text(tokenizer)
    split = Words(plain).lines if Words.can_cut(plain) else _by_library(plain)

    def answer(request: bytes) -> bytes:
        ids, lengths = split(request)
        return len(lengths).to_bytes(8, "little") + lengths.astype("<u4").tobytes() + ids.astype("<u4").tobytes()

    return answer


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


def _serve() -> None:
    serve(lambda setup: encoder(from_json(setup, where="tokenizer")))


@contextmanager
def _here(tokenizer: Tokenizer) -> Iterator[Encode]:
    answer = encoder(tokenizer)
    yield lambda requests: map(answer, requests)


@contextmanager
def _elsewhere(tokenizer: Tokenizer, workers: int) -> Iterator[Encode]:
    with Workers(f"{__name__}:_serve", setup=tokenizer.to_str().encode(), count=workers) as pool:
        yield pool.map


def encoding(tokenizer: Tokenizer, *, workers: int) -> AbstractContextManager[Encode]:
    """Encode packets in order, in so many worker processes; with one worker, in this process."""
    return _here(tokenizer) if workers <= 1 else _elsewhere(tokenizer, workers)


@dataclass(frozen=True)
class EncodedDocument:
    """A tokenized document."""

    share: float  # in [0, 1), a hash of its text: the same text is always held out or never
    index: int
    ids: NDArray[np.uint32]
    line_lengths: NDArray[np.uint32]  # tokens of each line, at least one
    place: Place


def encode_documents(
    found: Iterator[Document], tokenizer: Tokenizer, *, workers: int, seed: int
) -> Generator[EncodedDocument]:
    """Tokenize documents, in order, in so many processes; those without any token are left out."""
    # of each packet: index, share, number of lines and place of its documents
    waiting: deque[list[tuple[int, float, int, Place]]] = deque()
    salt = seed.to_bytes(8, "little")

    def packets() -> Iterator[bytes]:
        packet: list[bytes] = []
        about: list[tuple[int, float, int, Place]] = []
        size = 0
        for index, document in enumerate(found):
            text = "\n".join(document).encode()
            digest = hashlib.blake2b(text, digest_size=7, key=salt).digest()
            share = int.from_bytes(digest, "little") / 2**56
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

    with encoding(tokenizer, workers=workers) as encode:
        for answer in encode(packets()):
            packet = Encoded.from_bytes(answer)
            ends = np.concatenate([[0], np.cumsum(packet.line_lengths, dtype=np.int64)])
            line = 0
            for index, share, lines, place in waiting.popleft():
                lengths = packet.line_lengths[line : line + lines]
                ids = packet.ids[ends[line] : ends[line + lines]]
                line += lines
                if len(ids):
                    yield EncodedDocument(share, index, ids, lengths[lengths > 0], place)
