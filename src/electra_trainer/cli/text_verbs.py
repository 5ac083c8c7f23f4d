"""`electra tokenizer FILES… --vocab-size 8192 --out TOK`; `electra prepare FILES… --tokenizer TOK --seq-len 128 --out
DATA`.
"""

import shlex
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from electra_trainer.cli.shown import Shown, Ticks
from electra_trainer.data.corpus import Boundary, PrepareSettings, Reading
from electra_trainer.errors import ConfigError, DataError, tell
from electra_trainer.settings.records import is_run, run_and_step
from electra_trainer.settings.request import Request

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Words

    from electra_trainer.data.legibility import Legibility
    from electra_trainer.data.prepare import Progress
    from electra_trainer.data.store import Manifest

_SECONDS_BETWEEN_LINES = 10.0
_OF_TRAINING = ("vocab_size", "cased", "keep_accents", "nfc")
_CHARACTERS_MEASURED = 1_000_000
_HELD_OUT_TOKENS = 2_000
"""Fewer are warned of: a quarter becomes standard fakes, and an AUC on 500 has a standard error of 0.015."""


@dataclass(frozen=True, kw_only=True)
class ReadingFlags(Reading):
    """How text files are read."""

    boundary: Annotated[Boundary, tyro.conf.arg(name="documents")] = "blank"
    """End of a document in .txt: a blank line, every line, or the end of the file."""
    max_document_chars: tyro.conf.Suppress[int] = Reading.max_document_chars
    """Longer documents become several, in characters."""


@dataclass(frozen=True, kw_only=True)
class PrepareFlags(ReadingFlags, PrepareSettings):
    """How text becomes rows."""


@dataclass(frozen=True, kw_only=True)
class Prepare(Request):
    """Turn text into rows of token ids: tokenized on every core, packed without dropping text, documents held out.
    With --dry-run survey the text instead: unusable files (exit code 65), bad lines, copies, languages, capitals and
    accents that a vocabulary would drop, traces of bad conversion.
    """

    files: tyro.conf.Positional[tuple[str, ...]]
    """.txt .jsonl .json .csv .tsv .parquet .arrow or WET, also .gz .bz2 .xz .zst; folders; patterns; s3:// gs:// hf://
    https://; OWNER/NAME of a data set of the Hub; or the word docstrings for the embedded corpus."""
    tokenizer: Path | None = None
    """Required without --dry-run: folder that `electra tokenizer` made; for `pretrain --init` the run, exported folder
    or en-mini that it begins with; any tokenizer.json of the library tokenizers (WordPiece, BPE, Unigram, WordLevel)
    with [PAD] [UNK] [CLS] [SEP] [MASK]; or a vocab.txt as BERT's."""
    out: Path | None = None
    """Required without --dry-run: a new or empty folder."""
    dry_run: bool = False
    """Survey the text, and write nothing; with --tokenizer, also count the letters that it cannot read."""
    seq_len: int = 128
    """Tokens a row."""
    cased: bool = False
    """Only with --tokenizer vocab.txt: its words are cased."""
    keep_accents: bool = False
    """Only with --tokenizer vocab.txt: its words have accents."""
    shard: str | None = None
    """I/N: prepare every N-th file, from the I-th on, into a folder in OUT; `electra merge OUT --out DATA` puts all N
    together.
    """
    settings: Annotated[PrepareFlags, tyro.conf.arg(name="")] = field(default_factory=PrepareFlags)

    def run(self) -> Shown | None:
        """Prepare: the manifest of what was made; with `dry_run` print the survey."""
        from electra_trainer.cost.returns import enough
        from electra_trainer.data.prepare import CorpusLines, prepare
        from electra_trainer.data.tokenizer import statistics
        from electra_trainer.experiments.cell import parse_shard

        if not self.files:
            raise ConfigError("prepare: give at least one file, folder or pattern.")
        tokenizer = self._words()
        if self.dry_run:
            _survey(self, tokenizer)
            return None
        if self.tokenizer is None or tokenizer is None or self.out is None:
            raise ConfigError("prepare: give --tokenizer TOK and --out DATA, or --dry-run to survey the text.")
        shard = parse_shard(self.shard) if self.shard is not None else None
        start = time.monotonic()
        beginning = CorpusLines(self.files, self.settings, _CHARACTERS_MEASURED)  # before hours of work
        warn_of_unreadable(statistics(tokenizer, beginning), self.tokenizer)
        watch = _Watch()
        manifest = prepare(
            self.files,
            tokenizer=tokenizer,
            sequence_length=self.seq_len,
            out=self.out,
            settings=self.settings,
            progress=watch,
            shard=shard,
        )
        lines = []
        if watch.last is not None:
            measured = statistics(tokenizer, watch.last.report.sample.lines)
            lines = [*watch.last.report.summary(), f"vocabulary: {_fit(measured)}"]
        if shard is None and (held_out := manifest.valid.text_tokens) < _HELD_OUT_TOKENS:
            tell(
                f"only {held_out:,} tokens are held out: measurements on so few say little. Give more text or a "
                f"larger --valid-fraction (now {self.settings.valid_fraction:g})."
            )
        continues = shard is None and is_run(self.tokenizer)
        if shard is None and not continues:
            lines.append(enough(manifest.train.text_tokens))
        done = "ready" if shard is None else f"shard {self.shard} is ready"
        lines += [*_made(manifest), f"{self.out}: {done} in {time.monotonic() - start:.0f} s"]
        if continues:
            out, model = shlex.quote(str(self.out)), shlex.quote(str(self.tokenizer))
            lines.append(f"Next: electra pretrain {out} --init {model} --out NEW")
        return Shown(manifest, lines)

    def _words(self) -> "Words | None":
        """The tokenizer, if one is named."""
        from electra_trainer.data.tokenizer import load_tokenizer

        if self.tokenizer is None:
            return None
        cased, accents = self.cased or None, self.keep_accents or None
        return load_tokenizer(vocabulary_of(self.tokenizer), cased=cased, keep_accents=accents)


def _survey(request: Prepare, tokenizer: "Words | None") -> None:
    """Print the survey of the text. Raises DataError where an input cannot be used."""
    from electra_trainer.data.survey import survey
    from electra_trainer.data.tokenizer import statistics

    found = survey(request.files, request.settings)
    print(*found.page(), sep="\n")
    if tokenizer is not None:
        print(f"{request.tokenizer}: {_fit(statistics(tokenizer, found.report.sample.lines))}")
    if found.unread:
        raise DataError(f"{len(found.unread):,} of the inputs cannot be used; the reasons are listed above.")


def _made(manifest: "Manifest") -> list[str]:
    return [
        f"{name}: {split.rows:,} rows of {manifest.sequence_length}, {split.documents:,} documents, "
        f"{split.text_tokens:,} tokens of text, {100 * split.padding:.2f} % padding"
        for name, split in (("train", manifest.train), ("valid", manifest.valid))
    ]


def warn_of_unreadable(measured: "Legibility", tokenizer: object) -> None:
    """Warn if much of the text is unreadable."""
    if measured.is_much:
        named = tokenizer if isinstance(tokenizer, str | Path) else "the tokenizer"
        tell(
            f"{measured.unreadable_line()}: {named} is not a vocabulary of this language or casing. Train one with "
            "`electra tokenizer`."
        )


def _fit(measured: "Legibility") -> str:
    parts = [f"{measured.fertility:.2f} tokens a word", measured.unreadable_line(), measured.glued_line()]
    return "; ".join(filter(None, parts))


class _Watch:
    """Prints progress every few seconds."""

    def __init__(self) -> None:
        self.last: Progress | None = None
        self._ticks = Ticks(_SECONDS_BETWEEN_LINES)

    def __call__(self, progress: "Progress") -> None:
        self.last = progress
        if self._ticks.due():
            share = f"{100 * progress.fraction:.0f} %, " if progress.fraction is not None else ""
            print(f"{share}{progress.documents:,} documents, {progress.tokens:,} tokens", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class Tokenizer(Request):
    """Train a WordPiece vocabulary, or add words to one. Prints how many tokens a word takes and how much of the text
    it does not know.
    """

    files: tyro.conf.Positional[tuple[str, ...]]
    """.txt .jsonl .json .csv .tsv .parquet .arrow or WET, also .gz .bz2 .xz .zst; folders; patterns; s3:// gs:// hf://
    https://; OWNER/NAME of a data set of the Hub; or the word docstrings for the embedded corpus."""
    out: Path
    """A new or empty folder for tokenizer.json, tokenizer_config.json and vocab.txt."""
    vocab_size: int = 30522
    """Tokens in the vocabulary, at most."""
    cased: bool = False
    """Keep capitals and accents. WITHOUT IT both are removed (Çağrı becomes cagrı): for most languages give --cased or
    --keep-accents, for Turkish --cased. Marks that are part of a script (Hindi, Thai, Arabic, Japanese, Russian ...)
    are kept in any case."""
    keep_accents: bool = False
    """Keep accents, and remove capitals only."""
    add_words: Path | None = None
    """Words to add, one a line, to the tokenizer in the folder that FILES is: in place of its [unusedN] entries, then
    at its end. Its words keep their ids, so that `pretrain --init` takes the model's weights."""
    nfc: bool = False
    """Compose letters and their marks first (Unicode's NFC), for texts that spell the same word in two ways."""
    max_length: int = 512
    """Longest row that the tokenizer announces to transformers (model_max_length)."""
    reading: Annotated[ReadingFlags, tyro.conf.arg(name="")] = field(default_factory=ReadingFlags)

    def run(self) -> Shown:
        """Train and save: the tokenizer."""
        from electra_trainer.data.prepare import train_tokenizer_from
        from electra_trainer.data.survey import accents_line
        from electra_trainer.data.tokenizer import require_new, save_new_tokenizer, statistics
        from electra_trainer.data.vocabulary import size_line

        if not self.files:
            raise ConfigError("tokenizer: give at least one file, folder or pattern.")
        require_new(self.out)
        if self.add_words is not None:
            return _with_words(self, self.add_words)
        tokenizer, report = train_tokenizer_from(
            self.files,
            vocab_size=self.vocab_size,
            cased=self.cased,
            keep_accents=self.keep_accents or None,
            nfc=self.nfc,
            reading=self.reading,
        )
        save_new_tokenizer(tokenizer, self.out, max_length=self.max_length)
        measured = statistics(tokenizer, report.sample.lines)
        lines = [*report.summary(), f"{tokenizer.get_vocab_size():,} tokens; {_fit(measured)}"]
        if line := size_line(tokenizer, self.vocab_size, measured):
            tell(line)
        words = Counter(word for line in report.sample.lines for word in line.split())
        counts = ((count, word) for word, count in words.items())
        if not (self.cased or self.keep_accents) and (note := accents_line(counts)):
            lines.append(note)
        files = ", ".join(sorted(path.name for path in self.out.iterdir()))
        return Shown(tokenizer, [*lines, f"{self.out}: {files}"])


def vocabulary_of(name: str | Path) -> Path:
    """Folder of a tokenizer's files: in a run, an exported model or an encoder of this package, else `name` itself."""
    folder = run_and_step(name)[0]
    places = [folder / part for part in ("tokenizer", "discriminator", "encoder")]
    return next((place for place in places if place.is_dir()), folder)


def _with_words(request: Tokenizer, words: Path) -> Shown:
    """Add words to the tokenizer in a folder, also of a run or an exported model."""
    from electra_trainer.data.tokenizer import load_tokenizer, save_new_tokenizer
    from electra_trainer.data.vocabulary import add_words, read_words

    if any(getattr(request, name) != getattr(Tokenizer, name) for name in _OF_TRAINING):
        raise ConfigError("--add-words: only words are added; the tokenizer keeps the rest. Drop the other flags.")
    if len(request.files) > 1:
        raise ConfigError("--add-words: give the folder of one tokenizer.")
    (tokenizer, line), out = add_words(load_tokenizer(vocabulary_of(request.files[0])), read_words(words)), request.out
    save_new_tokenizer(tokenizer, out, max_length=request.max_length)
    then = f"`electra prepare FILES --tokenizer {out} --out DATA`; `electra pretrain DATA --init MODEL --out NEW`"
    return Shown(tokenizer, [line, f"{out}: {tokenizer.get_vocab_size():,} tokens", then])


@dataclass(frozen=True, kw_only=True)
class Merge(Request):
    """Put the shards of `electra prepare --shard I/N` together: one folder of rows, every byte of the shards verified.
    The shards stay.
    """

    shards: tyro.conf.Positional[Path]
    """The OUT of the preparations."""
    out: Path
    """A new or empty folder."""

    def run(self) -> Shown:
        """Merge: the manifest of what was made."""
        from electra_trainer.data.prepare import merge

        manifest = merge(self.shards, out=self.out)
        ready = f"{self.out}: ready, of {manifest.settings.get('shards', 1)} shards"
        return Shown(manifest, [*_made(manifest), ready])
