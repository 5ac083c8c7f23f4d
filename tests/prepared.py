"""Small real inputs for tests: the language reference that every Python carries, as text and as prepared rows; lines of the embedded corpus."""

import itertools
from pathlib import Path
from pydoc_data.topics import topics

from electra_trainer.data import docstrings
from electra_trainer.data.corpus import PrepareSettings
from electra_trainer.data.prepare import prepare, train_tokenizer_from
from electra_trainer.settings.config import BatchShape, Checkpoint, Config, Evaluation, Model, Optimizer, Schedule
from electra_trainer.settings.methods import Learned

VOCAB_SIZE = 400
LENGTH = 32
MOST_LINES = 10_000


def write_text(path: Path, *, documents: int | None = None) -> Path:
    """English prose, a blank line between documents."""
    texts = [topics[name] for name in sorted(topics)][:documents]
    path.write_text("\n\n".join(" ".join(text.split()) for text in texts), encoding="utf-8")
    return path


def write_store(folder: Path, *, vocab_size: int = VOCAB_SIZE, length: int = LENGTH) -> Path:
    """A prepared folder of that text."""
    text = write_text(folder.with_suffix(".txt"), documents=30)
    tokenizer, _ = train_tokenizer_from([text], vocab_size=vocab_size)
    settings = PrepareSettings(valid_fraction=0.1, workers=1)
    prepare([text], tokenizer=tokenizer, sequence_length=length, out=folder, settings=settings)
    return folder


def embedded_lines(count: int) -> list[str]:
    """The first lines of the embedded corpus, without the time that all of it takes: what was read is kept; fewer where it has no more."""
    assert count <= MOST_LINES
    files = docstrings.files()
    while len(_lines) < count and len(_read) < len(files):
        path, _ = files[len(_read)]
        _read.append(path)
        _lines.update(dict.fromkeys(docstrings._module_lines(path)))
    return list(itertools.islice(_lines, count))


_read: list[Path] = []
_lines: dict[str, None] = {}


def small_config(*, steps: int = 12, lanes: int = 2, layers: int = 2) -> Config:
    """A run of a second or two; dropout is on, so that resuming has something to get wrong."""
    return Config(
        preset="test",
        model=Model(
            vocab_size=VOCAB_SIZE, embedding_size=16, hidden_size=32, num_hidden_layers=layers, num_attention_heads=2,
            intermediate_size=64,
        ),
        generator=Learned(width=0.5),
        optimizer=Optimizer(learning_rate=1e-3),
        schedule=Schedule(steps=steps, warmup_steps=3),
        batch=BatchShape(size=8, sequence_length=LENGTH, lanes=lanes),
        evaluation=Evaluation(every=6, rows=16),
        checkpoint=Checkpoint(every=4, keep=2),
        precision="fp32",
        log_every=1,
    )  # fmt: skip
