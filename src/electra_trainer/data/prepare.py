"""Turn text files into a folder of packed rows: read and packed here, tokenized in workers; the same bytes whatever
their number.

Documents whose text hashes low are held out, so that copies of a text are all on one side.
"""

import hashlib
import itertools
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from electra_trainer.data import encode, pack, store, text_files, vocabulary
from electra_trainer.data.corpus import DOCSTRINGS, CorpusReport, Input, PrepareSettings, Reading, documents, input_name
from electra_trainer.data.documents import DocumentsWriter
from electra_trainer.data.legibility import dropped_by
from electra_trainer.data.tokenizer import save_tokenizer, specials_of, tokenizer_sha256, vocab_size_of
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.files.processes import cores


@dataclass
class Progress:
    """Progress of a preparation."""

    report: CorpusReport
    documents: int = 0
    tokens: int = 0
    """Text tokens that were packed."""

    def add(self, document: encode.EncodedDocument) -> None:
        """Count a document that was packed."""
        self.documents += 1
        self.tokens += len(document.ids)

    @property
    def fraction(self) -> float | None:
        """Share of the input's bytes on disk that was read; None when unknown."""
        return self.report.disk_bytes / self.report.disk_total if self.report.disk_total else None


def prepare(
    paths: Sequence[Input],
    *,
    tokenizer: Tokenizer,
    sequence_length: int,
    out: str | Path,
    settings: PrepareSettings | None = None,
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
    shard: tuple[int, int] | None = None,
) -> store.Manifest:
    """Read text, tokenize, hold documents out, pack rows, write a store.

    Args:
        paths: files, folders, patterns, URLs, data sets, `docstrings`, or `remote.Texts`; see `documents`.
        tokenizer: with the five special tokens.
        sequence_length: tokens a row, 8 to 65,535.
        out: a new or empty folder, one that a stopped preparation left, or with `overwrite` a finished one.
        settings: how to read and split.
        overwrite: replace a finished store.
        progress: called after each document; be quick.
        shard: (I, N) reads every N-th file or data set, from the I-th on, into a folder in `out`, which `shards.merge`
            puts together with the others. A shard that is there already, of the same text and settings, is not made
            again.

    Raises:
        ConfigError, DataError, MissingInputError, StorageError: as `documents`, `claim_folder` and `specials_of` say;
            DataError
        also when fewer than two different documents with text are found.
    """
    settings, out = settings or PrepareSettings(), Path(out)
    if not 8 <= sequence_length < 1 << 16:
        raise ConfigError(f"sequence_length = {sequence_length}: expected 8 to 65,535 tokens.")
    specials_of(tokenizer)  # raises when one is missing
    state = Progress(report := CorpusReport())
    found = documents(paths, report=report, reading=settings, shard=shard or (1, 1))
    kept = _deciding(settings, paths, shard)
    if shard is None:
        found = _begun(found, paths)  # bad paths: before anything is written
    else:
        out /= "shard-{:05}-of-{:05}".format(*shard)
    sha256 = tokenizer_sha256(tokenizer)

    def is_same(old: store.Manifest) -> bool:
        return (old.settings, old.tokenizer_sha256, old.sequence_length) == (kept, sha256, sequence_length)

    is_made = shard is not None and not overwrite and (out / store.MANIFEST).exists()
    if is_made and is_same(made := store.read_manifest(out)):
        return store.tidied(out, made)
    encoded = encode.encode_documents(
        found, tokenizer, workers=settings.workers or cores(), seed=settings.seed, without_tokens=report.without_tokens
    )
    with store.claimed(out, overwrite=overwrite, is_same=is_same):
        save_tokenizer(tokenizer, out / "tokenizer", max_length=sequence_length)
        with closing(_Rows(out, sequence_length, tokenizer, settings.seed, shard)) as rows, closing(encoded):
            for split, document in split_documents(encoded, settings.valid_fraction, is_shard=shard is not None):
                rows.add(split, document)
                state.add(document)
                if progress is not None:
                    progress(state)
            manifest = rows.finish(report, settings=kept)
    store.publish(out, manifest)
    return manifest


def _deciding(settings: PrepareSettings, paths: Sequence[Input], shard: tuple[int, int] | None) -> dict[str, Any]:
    """The settings that decide the rows, as the manifest keeps them.

    Those of a shard have a hash of the names and sizes of all files: every shard has to see the same.
    """
    kept = asdict(settings) | {"inputs": [input_name(path) for path in paths]}
    del kept["workers"]
    if shard is None:
        return kept
    sources, _, _ = text_files.find_sources([path for path in paths if str(path) != DOCSTRINGS])
    names = [f"{Path(str(source)).name}\0{source.size}" for source in sources]
    digest = hashlib.sha256("\n".join(names).encode("utf-8", "surrogateescape")).hexdigest()
    return kept | {"shard": "{}/{}".format(*shard), "sources": digest}


def _begun(found: Iterator[text_files.Document], paths: Sequence[Input]) -> Iterator[text_files.Document]:
    """The same documents, the first of which is read already; DataError where there is none."""
    first = next(found, None)
    if first is None:
        raise DataError(f"{', '.join(map(str, paths))}: no text found. Give files with text.")
    return itertools.chain([first], found)


class _Rows:
    """The two files of rows, each with its packer, and those of their documents."""

    def __init__(
        self, folder: Path, sequence_length: int, tokenizer: Tokenizer, seed: int, shard: tuple[int, int] | None
    ) -> None:
        self._shard = shard
        self._first = (shard[0] - 1) << 40 if shard else 0  # index of the first document, which decides random choices
        self._folder, self._length, self._tokenizer = folder, sequence_length, tokenizer
        self._vocab_size = vocab_size_of(tokenizer)
        self._dtype = "<u2" if self._vocab_size <= 1 << 16 else "<u4"
        specials = specials_of(tokenizer)
        # documents without rows yet
        self._waiting: dict[store.Split, deque[text_files.Place]] = {split: deque() for split in store.SPLITS}
        self._packers = {
            split: pack.Packer(sequence_length=sequence_length, specials=specials, seed=seed, dtype=self._dtype)
            for split in store.SPLITS
        }
        self._writers = {
            split: store.SplitWriter(
                folder / f"{split}.bin", sequence_length=sequence_length, dtype=self._dtype, vocab_size=self._vocab_size
            )
            for split in store.SPLITS
        }
        self._documents = DocumentsWriter(folder)

    def add(self, split: store.Split, document: encode.EncodedDocument) -> None:
        packer = self._packers[split]
        packer.add(self._first + document.index, document.ids, document.line_lengths)
        self._waiting[split].append(document.place)
        self._write(split, packer.take())

    def _write(self, split: store.Split, rows: NDArray[np.generic]) -> None:
        """Write rows, and where the documents begin that are in them."""
        self._writers[split].write(rows)
        for start in self._packers[split].take_starts():
            self._documents.add(split, start, self._waiting[split].popleft())

    def finish(self, report: CorpusReport, *, settings: dict[str, Any]) -> store.Manifest:
        """Write the remaining rows, force them onto the disk; DataError when a split has no documents."""
        report.dropped = dropped_by(self._tokenizer, report.hidden)
        return store.Manifest(
            version=store.VERSION,
            sequence_length=self._length,
            vocab_size=self._vocab_size,
            dtype=self._dtype,
            specials=specials_of(self._tokenizer),
            tokenizer_sha256=tokenizer_sha256(self._tokenizer),
            train=self._finish("train"),
            valid=self._finish("valid"),
            documents=self._documents.close(),
            corpus=report.counts(),
            settings=settings,
        )

    def _finish(self, split: store.Split) -> store.SplitInfo:
        packer, writer = self._packers[split], self._writers[split]
        if not packer.documents and self._shard is None:
            raise DataError(
                f"{self._folder}: nothing is left to {'train on' if split == 'train' else 'hold out'}, the text holds "
                "fewer than "
                "two different documents. Give more text, or let every line be a document (--documents line)."
            )
        self._write(split, packer.finish())
        return writer.close(documents=packer.documents, text_tokens=packer.text_tokens, padding=packer.padding)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.abandon()
        self._documents.abandon()


@dataclass
class CorpusLines:
    """The lines of a corpus, to be iterated as often as needed: each time the files are read again."""

    paths: Sequence[Input]
    reading: Reading
    max_characters: int
    report: CorpusReport = field(default_factory=CorpusReport)

    def __iter__(self) -> Iterator[str]:
        self.report = CorpusReport()
        for document in documents(self.paths, report=self.report, reading=self.reading):
            yield from document
            if self.report.characters >= self.max_characters:
                return


def train_tokenizer_from(
    paths: Sequence[Input],
    *,
    vocab_size: int,
    reading: Reading | None = None,
    max_characters: int = 2_000_000_000,
    **options: Any,
) -> tuple[Tokenizer, CorpusReport]:
    """Train a vocabulary on files, read twice in constant memory; returns it with the report on the text.

    Args:
        paths: files, folders, patterns, URLs, data sets, `docstrings`, or `remote.Texts`; see `documents`.
        vocab_size: largest number of tokens.
        reading: how files are read.
        max_characters: later text is not used.
        options: cased, keep_accents, alphabet, nfc: as for `train_tokenizer`.

    Raises:
        ConfigError, DataError, MissingInputError, StorageError: as `documents` and `train_tokenizer` say.
    """
    lines = CorpusLines(paths, reading or Reading(), max_characters)
    tokenizer = vocabulary.train_tokenizer(lines, vocab_size=vocab_size, **options)
    lines.report.dropped = dropped_by(tokenizer, lines.report.hidden)
    return tokenizer, lines.report


def split_documents(
    found: Iterator[encode.EncodedDocument], fraction: float, *, is_shard: bool = False
) -> Iterator[tuple[store.Split, encode.EncodedDocument]]:
    """Assign each document to a split.

    If all shares are above `fraction`, the document with the least share is held out: it waits until the end is known.
    Of a shard the others are not known, so that none is held out then.
    """
    least: _Copies | None = None
    is_settled = is_shard
    for document in found:
        if document.share < fraction:
            is_settled = True
            yield "valid", document
        elif is_settled or (least and document.share > least.first.share):
            yield "train", document
        elif least and document.share == least.first.share:
            least.add(document)
        else:
            yield from (("train", waiting) for waiting in least or ())
            least = _Copies(document)
        if is_settled and least:
            yield from (("train", waiting) for waiting in least)
            least = None
    yield from (("valid", waiting) for waiting in least or ())


class _Copies:
    """A document and its copies, in 40 bytes each: a corpus may be made of copies."""

    def __init__(self, first: encode.EncodedDocument) -> None:
        self.first = first
        self._numbers, self._files = array("q"), dict[str, int]()

    def add(self, copy: encode.EncodedDocument) -> None:
        file, *place = copy.place
        self._numbers.extend((copy.index, self._files.setdefault(file, len(self._files)), *place))

    def __iter__(self) -> Iterator[encode.EncodedDocument]:
        yield self.first
        names = list(self._files)
        for at in range(0, len(self._numbers), 5):
            index, file, *place = self._numbers[at : at + 5]
            yield replace(self.first, index=index, place=text_files.Place(names[file], *place))
