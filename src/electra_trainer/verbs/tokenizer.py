"""`electra tokenizer FILES… --vocab-size 8192 --out TOK`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from electra_trainer.verbs.corpus_flags import CorpusFlags, print_corpus, settings

_LINES_MEASURED = 20_000


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Train a WordPiece vocabulary. Prints how many tokens a word takes and how much of the text it does not know."""

    files: tyro.conf.Positional[tuple[str, ...]]
    """.txt or .jsonl, plain or .gz .bz2 .xz; folders; patterns; or the word docstrings for the embedded corpus."""
    out: Path
    """A new or empty folder for tokenizer.json, tokenizer_config.json and vocab.txt."""
    vocab_size: int = 30522
    """Tokens in the vocabulary."""
    cased: bool = False
    """Keep capitals, and accents too."""
    keep_accents: bool = False
    """Keep accents though capitals go."""
    max_length: int = 512
    """model_max_length for transformers."""
    corpus: Annotated[CorpusFlags, tyro.conf.arg(name="")] = field(default_factory=CorpusFlags)


def run(arguments: Arguments) -> None:
    """Train and save."""
    from electra_trainer.data.prepare import CorpusLines, train_tokenizer_from
    from electra_trainer.data.tokenizer import save_tokenizer, statistics
    from electra_trainer.errors import ConfigError, storage_error

    if not arguments.files:
        raise ConfigError("tokenizer: give at least one file, folder or pattern.")
    if arguments.out.exists() and (not arguments.out.is_dir() or any(arguments.out.iterdir())):
        raise ConfigError(f"--out {arguments.out}: is not an empty folder. Choose another one.")
    reading = settings(arguments.corpus)
    tokenizer, report = train_tokenizer_from(
        arguments.files,
        vocab_size=arguments.vocab_size,
        cased=arguments.cased,
        keep_accents=True if arguments.keep_accents else None,
        settings=reading,
    )
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
        save_tokenizer(tokenizer, arguments.out, max_length=arguments.max_length)
    except OSError as error:
        raise storage_error(error, arguments.out, writing=True) from None
    print_corpus(report)
    sample = itertools.islice(CorpusLines(arguments.files, reading, 10_000_000), _LINES_MEASURED)
    measured = statistics(tokenizer, sample)
    print(
        f"{tokenizer.get_vocab_size():,} tokens; {measured.fertility:.2f} tokens a word, {100 * measured.unknown_rate:.3f} % unknown"
    )
    print(f"{arguments.out}: tokenizer.json, tokenizer_config.json, vocab.txt")
