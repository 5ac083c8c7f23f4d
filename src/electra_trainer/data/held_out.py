"""Which documents are held out: those whose text hashes low, so that copies of a text are all on one side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from electra_trainer.data.encode import EncodedDocument
from electra_trainer.data.store import Split


def split_documents(found: Iterator[EncodedDocument], fraction: float) -> Iterator[tuple[Split, EncodedDocument]]:
    """Say of each document whether it is held out.

    When the shares of all are above `fraction`, the document with the least is held out: it waits until the end is known.
    """
    least: list[EncodedDocument] = []  # and its copies
    is_settled = False
    for document in found:
        if document.share < fraction:
            is_settled = True
            yield "valid", document
        elif is_settled or (least and document.share > least[0].share):
            yield "train", document
        elif least and document.share == least[0].share:
            least.append(replace(document, ids=least[0].ids, line_lengths=least[0].line_lengths))
        else:
            yield from (("train", waiting) for waiting in least)
            least = [document]
        if is_settled and least:
            yield from (("train", waiting) for waiting in least)
            least = []
    yield from (("valid", waiting) for waiting in least)
