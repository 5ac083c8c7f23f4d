"""`electra tokenizer FILES… --vocab-size 8192 --out TOK`; `electra prepare FILES… --tokenizer TOK --seq-len 128 --out DATA`."""

import itertools
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from electra_trainer.data.corpus import Boundary, PrepareSettings, Reading
from electra_trainer.errors import ConfigError, DataError, MissingInputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from electra_trainer.data.prepare import Progress
    from electra_trainer.data.store import Manifest

_SECONDS_BETWEEN_LINES = 10.0
_CHARACTERS_MEASURED = 1_000_000
_LINES_MEASURED = 20_000
_UNKNOWN_IS_MUCH = 0.05
_HELD_OUT_IS_LITTLE = 2_000
"""Tokens: 300 of them are masked, so that an accuracy of 30 % has a standard error of 2.6 points."""


@dataclass(frozen=True, kw_only=True)
class ReadingFlags(Reading):
    """How text files are read."""

    boundary: Annotated[Boundary, tyro.conf.arg(name="documents")] = "blank"
    """What ends a document in .txt: a blank line, every line, or the end of the file."""
    max_document_chars: tyro.conf.Suppress[int] = Reading.max_document_chars
    """Longer documents become several, in characters."""


@dataclass(frozen=True, kw_only=True)
class PrepareFlags(ReadingFlags, PrepareSettings):
    """How text becomes rows."""


@dataclass(frozen=True, kw_only=True)
class PrepareArguments:
    """Turn text into rows of token ids: tokenized on every core, packed without dropping text, documents held out."""

    files: tyro.conf.Positional[tuple[str, ...]]
    """.txt .jsonl .json .csv .tsv .parquet .arrow or WET, also .gz .bz2 .xz .zst; folders; patterns; s3:// gs:// hf:// https://; OWNER/NAME of a
    data set of the Hub; or the word docstrings for the embedded corpus."""
    tokenizer: Path
    """Folder that `electra tokenizer` made; any tokenizer.json of the library tokenizers (WordPiece, BPE, Unigram, WordLevel) with
    [PAD] [UNK] [CLS] [SEP] [MASK]; or a vocab.txt as BERT's."""
    out: Path
    """A new or empty folder."""
    seq_len: int = 128
    """Tokens a row."""
    cased: bool = False
    """Only with --tokenizer vocab.txt: its words are cased."""
    keep_accents: bool = False
    """Only with --tokenizer vocab.txt: its words have accents."""
    overwrite: bool = False
    """Replace rows that are there already."""
    shard: str | None = None
    """I/N: prepare every N-th file, from the I-th on, into a folder in OUT; `electra merge OUT --out DATA` puts all N together."""
    settings: Annotated[PrepareFlags, tyro.conf.arg(name="")] = field(default_factory=PrepareFlags)


def run_prepare(arguments: PrepareArguments) -> None:
    """Prepare, and print what was made."""
    from electra_trainer.data.prepare import prepare
    from electra_trainer.data.tokenizer import load_tokenizer

    if not arguments.files:
        raise ConfigError("prepare: give at least one file, folder or pattern.")
    if not arguments.tokenizer.exists():
        raise MissingInputError(
            f"--tokenizer {arguments.tokenizer}: no such file or folder. Train one with `electra tokenizer FILES --out {arguments.tokenizer.name}`, "
            "or give a folder with the tokenizer of a model; names of the Hub are not taken here."
        )
    tokenizer = load_tokenizer(
        arguments.tokenizer, cased=arguments.cased or None, keep_accents=arguments.keep_accents or None
    )
    shard = None
    if arguments.shard is not None:
        from electra_trainer.experiments.folder import parse_shard

        shard = parse_shard(arguments.shard)
    start = time.monotonic()
    if shard is None:
        _print_fit(arguments, tokenizer)
    watch = _Watch()
    manifest = prepare(
        arguments.files, tokenizer=tokenizer, sequence_length=arguments.seq_len, out=arguments.out,
        settings=arguments.settings, overwrite=arguments.overwrite, progress=watch,
        shard=shard,
    )  # fmt: skip
    if watch.last is not None:
        print(*watch.last.report.summary(), sep="\n")
    _print_made(manifest)
    if shard is None:
        _warn_of_little(manifest)
    done = "ready" if shard is None else f"shard {arguments.shard} is ready"
    print(f"{arguments.out}: {done} in {time.monotonic() - start:.0f} s")


def _print_made(manifest: "Manifest") -> None:
    for name, split in (("train", manifest.train), ("valid", manifest.valid)):
        print(
            f"{name}: {split.rows:,} rows of {manifest.sequence_length}, {split.documents:,} documents, "
            f"{split.text_tokens:,} tokens of text, {100 * split.padding:.2f} % padding"
        )


def _warn_of_little(manifest: "Manifest") -> None:
    """Say where so little text is held out that what is measured on it means nothing."""
    held_out, whole = manifest.valid.text_tokens, manifest.train.text_tokens + manifest.valid.text_tokens
    if not 0 < held_out < _HELD_OUT_IS_LITTLE:
        return
    share = 1.2 * _HELD_OUT_IS_LITTLE / whole
    remedy = (
        f"Prepare with --valid-fraction {share:.2g}" if share <= 0.2 else "Give more text, and --valid-fraction 0.1"
    )
    print(
        f"electra: only {held_out:,} tokens are held out: numbers measured on them vary much. {remedy}.",
        file=sys.stderr,
    )


def _print_fit(arguments: PrepareArguments, tokenizer: "Tokenizer") -> None:
    """How well the vocabulary fits the beginning of the text."""
    from electra_trainer.data.prepare import CorpusLines
    from electra_trainer.data.tokenizer import statistics

    measured = statistics(tokenizer, CorpusLines(arguments.files, arguments.settings, _CHARACTERS_MEASURED))
    print(f"vocabulary: {measured.fertility:.2f} tokens a word, {100 * measured.unknown_rate:.3f} % unknown")
    if measured.unknown_rate > _UNKNOWN_IS_MUCH:
        print(
            f"electra: {100 * measured.unknown_rate:.0f} % of the tokens are unknown to {arguments.tokenizer}: it is not a vocabulary "
            "of this language or casing. Train one with `electra tokenizer`.",
            file=sys.stderr,
        )


class _Watch:
    """Prints progress every few seconds."""

    def __init__(self) -> None:
        self.last: Progress | None = None
        self._said = time.monotonic()

    def __call__(self, progress: "Progress") -> None:
        self.last = progress
        if time.monotonic() - self._said >= _SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            share = f"{100 * progress.fraction:.0f} %, " if progress.fraction is not None else ""
            print(f"{share}{progress.documents:,} documents, {progress.tokens:,} tokens", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class TokenizerArguments:
    """Train a WordPiece vocabulary. Prints how many tokens a word takes and how much of the text it does not know."""

    files: tyro.conf.Positional[tuple[str, ...]]
    """.txt .jsonl .json .csv .tsv .parquet .arrow or WET, also .gz .bz2 .xz .zst; folders; patterns; s3:// gs:// hf:// https://; OWNER/NAME of a
    data set of the Hub; or the word docstrings for the embedded corpus."""
    out: Path
    """A new or empty folder for tokenizer.json, tokenizer_config.json and vocab.txt."""
    vocab_size: int = 30522
    """Tokens in the vocabulary."""
    cased: bool = False
    """Keep capitals and accents. WITHOUT IT both are removed (Çağrı becomes cagri): for most languages give --cased or
    --keep-accents."""
    keep_accents: bool = False
    """Keep accents, and remove capitals only."""
    max_length: int = 512
    """Longest row that the tokenizer announces to transformers (model_max_length)."""
    reading: Annotated[ReadingFlags, tyro.conf.arg(name="")] = field(default_factory=ReadingFlags)


def run_tokenizer(arguments: TokenizerArguments) -> None:
    """Train and save."""
    from electra_trainer.data.prepare import CorpusLines, train_tokenizer_from
    from electra_trainer.data.survey import dropped_accents
    from electra_trainer.data.tokenizer import require_new, save_new_tokenizer, statistics

    if not arguments.files:
        raise ConfigError("tokenizer: give at least one file, folder or pattern.")
    require_new(arguments.out)
    tokenizer, report = train_tokenizer_from(
        arguments.files, vocab_size=arguments.vocab_size, cased=arguments.cased,
        keep_accents=True if arguments.keep_accents else None, reading=arguments.reading,
    )  # fmt: skip
    save_new_tokenizer(tokenizer, arguments.out, max_length=arguments.max_length)
    print(*report.summary(), sep="\n")
    sample = [*itertools.islice(CorpusLines(arguments.files, arguments.reading, 10_000_000), _LINES_MEASURED)]
    measured = statistics(tokenizer, sample)
    print(
        f"{tokenizer.get_vocab_size():,} tokens; {measured.fertility:.2f} tokens a word, {100 * measured.unknown_rate:.3f} % unknown"
    )
    words = Counter(word for line in sample for word in line.split())
    if not (arguments.cased or arguments.keep_accents) and (
        lost := dropped_accents((n, word) for word, n in words.items())
    ):
        print(lost)
    print(f"{arguments.out}: tokenizer.json, tokenizer_config.json, vocab.txt")


@dataclass(frozen=True, kw_only=True)
class CheckArguments:
    """Survey text before it is prepared: files that cannot be used, bad lines, copies, lengths, languages, scripts, capitals and accents
    that a vocabulary would drop, traces of bad conversion. Exit code 65 where a file cannot be used.
    """

    files: tyro.conf.Positional[tuple[str, ...]]
    """As for `electra prepare`."""
    reading: Annotated[ReadingFlags, tyro.conf.arg(name="")] = field(default_factory=ReadingFlags)


def run_check(arguments: CheckArguments) -> None:
    """Survey, and print the page."""
    from electra_trainer.data.survey import survey

    if not arguments.files:
        raise ConfigError("check: give at least one file, folder or pattern.")
    found = survey(arguments.files, arguments.reading)
    print(*found.page(), sep="\n")
    if found.unread:
        raise DataError(f"{len(found.unread):,} of the inputs cannot be used; what to do is said above.")


@dataclass(frozen=True, kw_only=True)
class MergeArguments:
    """Put the shards of `electra prepare --shard I/N` together: one folder of rows, every byte of the shards verified. The shards stay."""

    shards: tyro.conf.Positional[Path]
    """The OUT of the preparations."""
    out: Path
    """A new or empty folder."""
    overwrite: bool = False
    """Replace rows that are there already."""


def run_merge(arguments: MergeArguments) -> None:
    """Merge, and print what was made."""
    from electra_trainer.data.shards import merge

    manifest = merge(arguments.shards, out=arguments.out, overwrite=arguments.overwrite)
    _print_made(manifest)
    print(f"{arguments.out}: ready, of {manifest.settings.get('shards', 1)} shards")
