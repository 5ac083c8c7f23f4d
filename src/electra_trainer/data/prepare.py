"""Turn text files into a folder of packed rows, whole or in shards; the same bytes for any number of workers.

Documents whose text hashes low are held out, so that copies of a text are all on one side. Shards are N folders, each
of every N-th file, prepared on as many machines as you have; the whole depends on the files, the settings and N only.
"""

import hashlib
import itertools
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from electra_trainer.data import docstrings, encode, pack, store, vocabulary
from electra_trainer.data.corpus import DOCSTRINGS, CorpusReport, Input, PrepareSettings, Reading, documents, input_name
from electra_trainer.data.document import Place
from electra_trainer.data.tokenizer import save_tokenizer, saved_tokenizer, specials_of, tokenizer_sha256, vocab_size_of
from electra_trainer.errors import DataError, MissingInputError, require, storage_error
from electra_trainer.files import sources
from electra_trainer.files.opening import TextFile, beginning
from electra_trainer.files.reading import HEAD
from electra_trainer.settings.records import hash_of

_NAME = re.compile(r"shard-\d{5}-of-(\d{5})")
_ROWS = 1 << 14


@dataclass
class Progress:
    """Progress of a preparation."""

    report: CorpusReport
    documents: int = 0
    tokens: int = 0
    """Text tokens that were packed."""

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
    progress: Callable[[Progress], None] | None = None,
    shard: tuple[int, int] | None = None,
) -> store.Manifest:
    """Read text, tokenize, hold documents out, pack rows, write a store.

    Args:
        paths: files, folders, patterns, URLs, data sets, `docstrings`, or `sources.Texts`; see `documents`.
        tokenizer: with the five special tokens.
        sequence_length: tokens a row, 8 to 65,535.
        out: a new or empty folder, or one that a stopped preparation left.
        settings: how to read and split.
        progress: called after each document; be quick.
        shard: (I, N) reads every N-th file or data set, from the I-th on, into a folder in `out`, which `merge`
            puts together with the others.

    Returns:
        The manifest; also of rows that are there already, of the same text and settings, which are not made again.

    Raises:
        ConfigError, DataError, MissingInputError, StorageError: as `documents`, `store.claimed` and `specials_of` say;
            DataError also when fewer than two different documents with text are found.
    """
    settings, out = settings or PrepareSettings(), Path(out)
    require(8 <= sequence_length < 1 << 16, "sequence_length", sequence_length, "8 to 65,535 tokens")
    specials_of(tokenizer)  # raises when one is missing
    state = Progress(report := CorpusReport())
    found = documents(paths, report=report, reading=settings, shard=shard or (1, 1))
    kept, latest = _deciding(settings, paths, shard)
    if shard is not None:
        out /= "shard-{:05}-of-{:05}".format(*shard)
    elif (first := next(found, None)) is None:  # bad paths: before anything is written
        raise DataError(f"{', '.join(map(str, paths))}: no text found. Give files with text.")
    else:
        found = itertools.chain([first], found)
    encoded = encode.encode_documents(found, tokenizer, settings, report)
    asked = (kept, tokenizer_sha256(tokenizer), sequence_length)
    with store.claimed(out, asked=asked, latest=latest) as made:
        if made is not None:
            return made
        save_tokenizer(tokenizer, out / "tokenizer", max_length=sequence_length)
        with closing(_Rows(out, sequence_length, tokenizer, settings.seed, shard)) as rows, closing(encoded):
            for split, document in split_documents(encoded, settings.valid_fraction, is_shard=shard is not None):
                rows.add(split, document)
                state.documents += 1
                state.tokens += len(document.ids)
                if progress is not None:
                    progress(state)
            manifest = rows.finish(report, settings=kept)
        return store.publish(out, manifest)


def _deciding(
    settings: PrepareSettings, paths: Sequence[Input], shard: tuple[int, int] | None
) -> tuple[dict[str, Any], float]:
    """The settings that decide the rows, as the manifest keeps them, and when the last of its large files changed.

    "sources" is a hash of the names and sizes of all files, since every shard has to see the same; without shards also
    of their first bytes. There is none of documents that a program gives.
    """
    kept = asdict(settings) | {"inputs": [input_name(path) for path in paths]}
    del kept["workers"]
    found, _ = sources.find_sources([path for path in paths if str(path) != DOCSTRINGS])
    names, latest = [f"{Path(str(source)).name}\0{source.size}" for source in found], 0.0
    if shard is not None:
        kept["shard"] = "{}/{}".format(*shard)
        latest = max([0.0, *(one.path.stat().st_ctime for one in found if isinstance(one, TextFile) and not one.url)])
    else:
        if any(str(path) == DOCSTRINGS for path in paths):
            found += [TextFile(path, path.stat().st_size) for path, _ in docstrings.files()]
        for source in found:
            if isinstance(source, sources.Texts):
                return kept, latest
            if isinstance(source, TextFile) and not source.url:
                names.append(hashlib.sha256(begins := beginning(source)).hexdigest())
                latest = max(latest, source.path.stat().st_ctime * (len(begins) == HEAD))
    kept["sources"] = hashlib.sha256("\n".join(names).encode("utf-8", "surrogateescape")).hexdigest()
    return kept, latest


class _Rows:
    """The files of a preparation, each split with its packer."""

    def __init__(
        self, folder: Path, sequence_length: int, tokenizer: Tokenizer, seed: int, shard: tuple[int, int] | None
    ) -> None:
        self._folder, self._shard, self._tokenizer, self._length = folder, shard, tokenizer, sequence_length
        self._dtype = "<u2" if vocab_size_of(tokenizer) <= 1 << 16 else "<u4"
        self._files = store.StoreWriter(
            folder, sequence_length=sequence_length, dtype=self._dtype, vocab_size=vocab_size_of(tokenizer)
        )
        self._first = (shard[0] - 1) << 40 if shard else 0  # index of the first document, which decides random choices
        # documents without rows yet
        self._waiting: dict[store.Split, deque[Place]] = {split: deque() for split in store.SPLITS}
        self._packers = {
            split: pack.Packer(
                sequence_length=sequence_length, specials=specials_of(tokenizer), seed=seed, dtype=self._dtype
            )
            for split in store.SPLITS
        }

    def close(self) -> None:
        self._files.close()

    def add(self, split: store.Split, document: encode.EncodedDocument) -> None:
        packer = self._packers[split]
        packer.add(self._first + document.index, document.ids, document.line_lengths)
        self._waiting[split].append(document.place)
        self._write(split, packer.take())

    def _write(self, split: store.Split, rows: NDArray[np.generic]) -> None:
        """Write rows, and where the documents begin that are in them."""
        self._files.write(split, rows)
        for start in self._packers[split].take_starts():
            self._files.add_document(split, start, self._waiting[split].popleft())

    def finish(self, report: CorpusReport, *, settings: dict[str, Any]) -> store.Manifest:
        """Write the remaining rows, force them onto the disk. Raises DataError when a split has no documents."""
        for split, packer in self._packers.items():
            if self._shard is None:
                _require_documents(self._folder, split, packer.documents)
            self._write(split, packer.finish())
        counts = {split: (one.documents, one.text_tokens, one.padding) for split, one in self._packers.items()}
        return store.Manifest(
            version=store.VERSION,
            sequence_length=self._length,
            vocab_size=vocab_size_of(self._tokenizer),
            dtype=self._dtype,
            specials=specials_of(self._tokenizer),
            tokenizer_sha256=tokenizer_sha256(self._tokenizer),
            corpus=report.counts(),
            settings=settings,
            **self._files.finish(counts),
        )


def _require_documents(folder: Path, split: store.Split, documents: int) -> None:
    if not documents:
        what = "train on" if split == "train" else "hold out"
        raise DataError(
            f"{folder}: nothing is left to {what}, the text holds fewer than two different documents. Give more text, "
            "end documents at each line with --documents line, or prepare shards again with a larger --valid-fraction."
        )


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
        paths: files, folders, patterns, URLs, data sets, `docstrings`, or `sources.Texts`; see `documents`.
        vocab_size: largest number of tokens.
        reading: how files are read.
        max_characters: later text is not used.
        options: cased, keep_accents, nfc: as for `train_tokenizer`.

    Raises:
        ConfigError, DataError, MissingInputError, StorageError: as `documents` and `train_tokenizer` say.
    """
    lines = CorpusLines(paths, reading or Reading(), max_characters)
    tokenizer = vocabulary.train_tokenizer(lines, vocab_size=vocab_size, **options)
    return tokenizer, lines.report


def split_documents(
    found: Iterator[encode.EncodedDocument], fraction: float, *, is_shard: bool = False
) -> Iterator[tuple[store.Split, encode.EncodedDocument]]:
    """Assign each document to a split.

    If all shares are above `fraction`, the document with the least share is held out: it waits until the end is known.
    Of a shard the others are not known, so that none is held out then.
    """
    waiting: list[encode.EncodedDocument] = []  # copies of the document with the least share
    is_settled = is_shard
    for document in found:
        if document.share < fraction:
            is_settled = True
            yield "valid", document
        elif is_settled or (waiting and document.share > waiting[0].share):
            yield "train", document
        elif waiting and document.share == waiting[0].share:
            waiting.append(document)
        else:
            yield from (("train", one) for one in waiting)
            waiting = [document]
        if is_settled and waiting:
            yield from (("train", one) for one in waiting)
            waiting = []
    yield from (("valid", one) for one in waiting)


def merge(folder: Path, *, out: Path) -> store.Manifest:
    """Write one store of all shards in a folder, in their order; every byte of theirs is verified. The shards stay.

    Args:
        folder: the `out` of their preparations.
        out: a new or empty folder, or one that a stopped merge left.

    Returns:
        The manifest; also of what is there already, of the same shards.

    Raises:
        MissingInputError: there are no shards. DataError: some are missing or damaged, or they are not of the same text
            and settings; no document is held out, or all are. ConfigError, StorageError: as `store.claimed` says.
    """
    folders = find_shards(folder)
    manifests = [store.read_manifest(one) for one in folders]
    like = manifests[0]
    for one, manifest in zip(folders, manifests, strict=True):
        if _about(manifest) != _about(like):
            raise DataError(
                f"{one}: is of other files, another tokenizer or other settings than {folders[0].name}. Delete it, "
                "and prepare it again."
            )
    length, counts = like.sequence_length, dict[store.Split, tuple[int, int, int]]()
    for split in store.SPLITS:
        infos: list[store.SplitInfo] = [getattr(one, split) for one in manifests]
        padding = sum(info.rows * length - info.tokens for info in infos)
        counts[split] = (sum(one.documents for one in infos), sum(one.text_tokens for one in infos), padding)
        _require_documents(folder, split, counts[split][0])
    settings = {name: value for name, value in like.settings.items() if name not in ("shard", "sources")}
    settings["sources"] = hash_of([asdict(one) for one in manifests])
    if len(folders) > 1:
        settings["shards"] = len(folders)
    with store.claimed(out, asked=(settings, like.tokenizer_sha256, length)) as made:
        if made is not None:
            return made
        save_tokenizer(saved_tokenizer(folders[0] / "tokenizer"), out / "tokenizer", max_length=length)
        writer = store.StoreWriter(out, sequence_length=length, dtype=like.dtype, vocab_size=like.vocab_size)
        with closing(writer):
            before = dict.fromkeys(store.SPLITS, 0)
            for one in folders:
                shard = store.Store.open(one, verify=True, is_shard=True)
                for split in store.SPLITS:
                    before[split] += _append(writer, shard, split, before[split])
            fields = writer.finish(counts)
        corpus = _summed([one.corpus for one in manifests])
        return store.publish(out, replace(like, corpus=corpus, settings=settings, **fields))


def find_shards(folder: Path) -> list[Path]:
    """The folders of the shards, all of them, in their order; errors as for `merge`."""
    try:
        found = {match[0]: int(match[1]) for one in folder.iterdir() if (match := _NAME.fullmatch(one.name))}
    except OSError as error:
        raise storage_error(error, folder) from None
    if not found:
        raise MissingInputError(
            f"{folder}: holds no shards. Make them: electra prepare FILES --tokenizer TOK --out {folder} --shard 1/N"
        )
    total = max(found.values())
    names = [f"shard-{number:05}-of-{total:05}" for number in range(1, total + 1)]
    missing = [name for name in names if not (folder / name / store.MANIFEST).exists()]
    if wrong := [*missing, *sorted(found.keys() - set(names))]:
        raise DataError(
            f"{folder}: expected {total} finished shards and no others. Type the commands of those that are missing or "
            f"not finished again, and remove others: {', '.join(wrong[:10])}."
        )
    return [folder / name for name in names]


def _about(manifest: store.Manifest) -> tuple[Any, ...]:
    """All that has to be the same in all shards."""
    settings = {name: value for name, value in manifest.settings.items() if name != "shard"}
    return manifest.tokenizer_sha256, manifest.sequence_length, manifest.dtype, settings


def _append(writer: store.StoreWriter, shard: store.Store, split: store.Split, before: int) -> int:
    """Add a shard's rows and documents after `before` rows; returns how many rows."""
    count: int = getattr(shard.manifest, split).rows
    if count:
        for start, place in shard.documents(split).all():
            writer.add_document(split, before * shard.sequence_length + start, place)
        rows = shard.rows(split)
        for first in range(0, count, _ROWS):
            writer.write(split, rows[first : first + _ROWS])
    return count


def _summed(counts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The counts of the whole corpus."""
    bad: Counter[str] = Counter()
    for one in counts:
        bad.update(one["bad_text"])
    numbers = {
        name: sum(one[name] for one in counts) for name in counts[0] if name not in ("bad_text", "skipped_files")
    }  # every shard counts the files that it leaves out of all folders
    numbers["skipped_files"] = counts[0]["skipped_files"]
    return numbers | {"bad_text": dict(sorted(bad.items()))}
