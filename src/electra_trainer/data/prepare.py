"""Turn text files into a folder of packed rows, whole or in shards; the same bytes for any number of workers.

Documents whose text hashes low are held out, so that copies of a text are all on one side. Shards are N folders, each
of every N-th file, prepared on as many machines as you have; the whole depends on the files, the settings and N only.
"""

import hashlib
import itertools
import re
from array import array
from collections import Counter, deque
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
from electra_trainer.data.tokenizer import save_tokenizer, saved_tokenizer, specials_of, tokenizer_sha256, vocab_size_of
from electra_trainer.errors import ConfigError, DataError, MissingInputError, storage_error
from electra_trainer.files.processes import cores

_NAME = re.compile(r"shard-\d{5}-of-(\d{5})")
_ROWS = 1 << 14
_ONCE = ("skipped_files", "repeated_files")
"""Counts that every shard has of the whole corpus."""


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
    """Documents, the first of which is read already; DataError where there is none."""
    first = next(found, None)
    if first is None:
        raise DataError(f"{', '.join(map(str, paths))}: no text found. Give files with text.")
    return itertools.chain([first], found)


class _Files:
    """The files of rows and of their documents, as they grow."""

    def __init__(self, folder: Path, sequence_length: int, *, dtype: str, vocab_size: int) -> None:
        self._folder, self._length, self._dtype, self._vocab_size = folder, sequence_length, dtype, vocab_size
        self._writers = {
            split: store.SplitWriter(
                folder / f"{split}.bin", sequence_length=sequence_length, dtype=dtype, vocab_size=vocab_size
            )
            for split in store.SPLITS
        }
        self._documents = DocumentsWriter(folder)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.abandon()
        self._documents.abandon()


class _Rows(_Files):
    """Files of rows, each with its packer."""

    def __init__(
        self, folder: Path, sequence_length: int, tokenizer: Tokenizer, seed: int, shard: tuple[int, int] | None
    ) -> None:
        vocab_size = vocab_size_of(tokenizer)
        super().__init__(
            folder, sequence_length, dtype="<u2" if vocab_size <= 1 << 16 else "<u4", vocab_size=vocab_size
        )
        self._shard, self._tokenizer, specials = shard, tokenizer, specials_of(tokenizer)
        self._first = (shard[0] - 1) << 40 if shard else 0  # index of the first document, which decides random choices
        # documents without rows yet
        self._waiting: dict[store.Split, deque[text_files.Place]] = {split: deque() for split in store.SPLITS}
        self._packers = {
            split: pack.Packer(sequence_length=sequence_length, specials=specials, seed=seed, dtype=self._dtype)
            for split in store.SPLITS
        }

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
                "fewer than two different documents. Give more text, or let every line be a document (--documents "
                "line)."
            )
        self._write(split, packer.finish())
        return writer.close(documents=packer.documents, text_tokens=packer.text_tokens, padding=packer.padding)


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


def merge(
    folder: Path, *, out: Path, overwrite: bool = False, progress: Callable[[int, int], None] | None = None
) -> store.Manifest:
    """Write one store of all shards in a folder, in their order; every byte of theirs is verified. The shards stay.

    Args:
        folder: the `out` of their preparations.
        out: a new or empty folder, one that a stopped merge left, or with `overwrite` a finished store.
        overwrite: replace a finished store.
        progress: called with how many shards are done, of how many.

    Raises:
        MissingInputError: there are no shards. DataError: some are missing or damaged, or they are not of the same text
            and settings; no
        document is held out, or all are. ConfigError, StorageError: as `store.claim_folder` says.
    """
    folders = find_shards(folder)
    manifests = [store.read_manifest(one) for one in folders]
    _require_same(folders, manifests)
    for split in store.SPLITS:
        if not any(getattr(one, split).rows for one in manifests):
            what = (
                "train on"
                if split == "train"
                else "hold out. Prepare all shards again with --overwrite and a larger --valid-fraction, or the text "
                "without --shard"
            )
            raise DataError(f"{folder}: no shard has a document to {what}.")
    with store.claimed(out, overwrite=overwrite):
        tokenizer = saved_tokenizer(folders[0] / "tokenizer")
        save_tokenizer(tokenizer, out / "tokenizer", max_length=manifests[0].sequence_length)
        with closing(_Joined(out, manifests[0])) as joined:
            for number, (shard, manifest) in enumerate(zip(folders, manifests, strict=True), 1):
                joined.add(shard, manifest)
                if progress is not None:
                    progress(number, len(folders))
            whole = joined.finish(manifests)
    store.publish(out, whole)
    return whole


def find_shards(folder: Path) -> list[Path]:
    """The folders of the shards, all of them, in their order; errors as for `merge`."""
    try:
        counts = sorted({match[1] for one in folder.iterdir() if (match := _NAME.fullmatch(one.name))})
    except OSError as error:
        raise storage_error(error, folder) from None
    if not counts:
        raise MissingInputError(
            f"{folder}: holds no shards. Make them: electra prepare FILES --tokenizer TOK --out {folder} --shard 1/N"
        )
    if len(counts) > 1:
        raise DataError(
            f"{folder}: holds shards of {' and of '.join(str(int(of)) for of in counts)}. Remove those that are not "
            "meant."
        )
    total = int(counts[0])
    folders = [folder / f"shard-{number:05}-of-{total:05}" for number in range(1, total + 1)]
    missing = [number for number, one in enumerate(folders, 1) if not (one / store.MANIFEST).exists()]
    if missing:
        raise DataError(
            f"{folder}: {len(missing)} of {total} shards are missing or not finished "
            f"({', '.join(map(str, missing[:10]))}). Type their commands again: --shard {missing[0]}/{total}"
        )
    return folders


def _require_same(folders: Sequence[Path], manifests: Sequence[store.Manifest]) -> None:
    """All but the shard's number is the same in all."""

    def about(manifest: store.Manifest) -> tuple[Any, ...]:
        settings = {name: value for name, value in manifest.settings.items() if name != "shard"}
        return manifest.tokenizer_sha256, manifest.sequence_length, manifest.dtype, settings

    for folder, manifest in zip(folders, manifests, strict=True):
        if about(manifest) != about(manifests[0]):
            raise DataError(
                f"{folder}: is of other files, another tokenizer or other settings than {folders[0].name}. Prepare it "
                "again with --overwrite."
            )


class _Joined(_Files):
    """The files of the whole."""

    def __init__(self, out: Path, like: store.Manifest) -> None:
        super().__init__(out, like.sequence_length, dtype=like.dtype, vocab_size=like.vocab_size)
        self._like, self._rows = like, dict.fromkeys(store.SPLITS, 0)

    def add(self, folder: Path, manifest: store.Manifest) -> None:
        """A shard."""
        shard = store.Store.open(folder, verify=True, is_shard=True)
        for split in store.SPLITS:
            if not getattr(manifest, split).rows:
                continue
            first = self._rows[split] * manifest.sequence_length
            for start, place in shard.documents(split).all():
                self._documents.add(split, first + start, place)
            rows = shard.rows(split)
            for begin in range(0, len(rows), _ROWS):
                self._writers[split].write(rows[begin : begin + _ROWS])
            self._rows[split] += len(rows)

    def finish(self, manifests: Sequence[store.Manifest]) -> store.Manifest:
        """The manifest of the whole."""
        settings = {name: value for name, value in self._like.settings.items() if name not in ("shard", "sources")}
        if len(manifests) > 1:
            settings["shards"] = len(manifests)
        corpus = _summed([one.corpus for one in manifests])
        train, valid = (self._finish(split, [getattr(one, split) for one in manifests]) for split in store.SPLITS)
        documents = self._documents.close()
        return replace(self._like, train=train, valid=valid, documents=documents, corpus=corpus, settings=settings)

    def _finish(self, split: store.Split, infos: Sequence[store.SplitInfo]) -> store.SplitInfo:
        positions = sum(info.rows for info in infos) * self._like.sequence_length
        return self._writers[split].close(
            documents=sum(info.documents for info in infos),
            text_tokens=sum(info.text_tokens for info in infos),
            padding=positions - sum(info.tokens for info in infos),
        )


def _summed(counts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The counts of the whole corpus."""
    bad: Counter[str] = Counter()
    for one in counts:
        bad.update(one["bad_text"])
    numbers = {
        name: max(one[name] for one in counts) if name in _ONCE else sum(one[name] for one in counts)
        for name in counts[0]
        if name != "bad_text"
    }
    return numbers | {"bad_text": dict(sorted(bad.items()))}
