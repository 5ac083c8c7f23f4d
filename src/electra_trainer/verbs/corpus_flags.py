"""The flags that say how text files are read, shared by `tokenizer` and `prepare`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from electra_trainer.data.corpus import CorpusReport
    from electra_trainer.data.prepare import PrepareSettings


@dataclass(frozen=True, kw_only=True)
class CorpusFlags:
    """How text files are read."""

    documents: Literal["blank", "line", "file"] = "blank"
    """What ends a document in .txt: a blank line, every line, or the end of the file."""
    text_field: str = "text"
    """Field of .jsonl that holds the text."""
    on_bad_text: Literal["error", "skip", "replace"] = "error"
    """Bytes that are not UTF-8, NUL bytes, unusable JSON: stop, leave the line out, or repair it."""


def settings(flags: CorpusFlags, **more: object) -> PrepareSettings:
    """The settings that the flags make."""
    from electra_trainer.data.prepare import PrepareSettings

    return PrepareSettings(
        boundary=flags.documents,
        text_field=flags.text_field,
        on_bad_text=flags.on_bad_text,
        **more,  # type: ignore[arg-type]
    )


def print_corpus(report: CorpusReport) -> None:
    """What was read, and what was wrong with it."""
    for line in report.summary():
        print(line)
