"""Put the shards of a preparation together: N folders that `prepare` wrote, each of every N-th file, on as many
machines as you have.

The rows depend on the files, the settings and N, not on who made a shard, when, in what order, or how often: shard I is
a pure function of
its files. Held-out documents are chosen by a hash of their text, so they are the same for every N.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from electra_trainer.data import store
from electra_trainer.data.documents import DocumentsWriter
from electra_trainer.data.tokenizer import save_tokenizer, saved_tokenizer
from electra_trainer.errors import DataError, MissingInputError, storage_error

_NAME = re.compile(r"shard-(\d{5})-of-(\d{5})")
_ROWS = 1 << 14
_ONCE = ("skipped_files", "repeated_files")
"""Counts that every shard has of the whole corpus."""


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
        found = {match.groups(): one for one in folder.iterdir() if (match := _NAME.fullmatch(one.name))}
    except OSError as error:
        raise storage_error(error, folder) from None
    counts = sorted({of for _, of in found})
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
    missing = [number for number in range(1, total + 1) if (f"{number:05}", counts[0]) not in found]
    unfinished = [
        number
        for number in range(1, total + 1)
        if number not in missing and not (found[f"{number:05}", counts[0]] / store.MANIFEST).exists()
    ]
    if missing or unfinished:
        some = ", ".join(map(str, (missing + unfinished)[:10]))
        raise DataError(
            f"{folder}: {len(missing) + len(unfinished)} of {total} shards are missing or not finished ({some}). Type "
            "their commands again: "
            f"--shard {(missing + unfinished)[0]}/{total}"
        )
    return [found[f"{number:05}", counts[0]] for number in range(1, total + 1)]


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


class _Joined:
    """The files of the whole, as they grow."""

    def __init__(self, out: Path, like: store.Manifest) -> None:
        self._like = like
        self._rows = dict.fromkeys(store.SPLITS, 0)
        self._writers = {
            split: store.SplitWriter(
                out / f"{split}.bin", sequence_length=like.sequence_length, dtype=like.dtype, vocab_size=like.vocab_size
            )
            for split in store.SPLITS
        }
        self._documents = DocumentsWriter(out)

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

    def close(self) -> None:
        for writer in self._writers.values():
            writer.abandon()
        self._documents.abandon()


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
