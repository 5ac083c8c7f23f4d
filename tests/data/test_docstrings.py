"""The embedded corpus: much text, prose, the same every time."""

import sys
from collections.abc import Iterator

import pytest

from electra_trainer.data import docstrings
from electra_trainer.data.corpus import CorpusReport, documents
from electra_trainer.data.docstrings import is_prose, paragraphs
from electra_trainer.data.document import Document

CACHES = (docstrings.documents, docstrings.files)


@pytest.fixture(scope="module")
def embedded() -> Iterator[list[Document]]:
    """A fifth of it: one package and the standard library. All of it, ten megabytes, is read by `electra demo` (cli/test_demo.py)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(docstrings, "PACKAGES", ("networkx",))
        patch.setattr(docstrings, "cores", lambda: 2)
        for cached in CACHES:
            cached.cache_clear()
        before = set(sys.modules)
        found = list(docstrings.documents())
        assert not [name for name in set(sys.modules) - before if name.startswith("networkx")]  # read, not imported
        yield found
    for cached in CACHES:
        cached.cache_clear()


def test_prose_and_nothing_twice(embedded: list[Document]) -> None:
    lines = [line for document in embedded for line in document]
    assert sum(map(len, lines)) + len(lines) > 1_000_000
    assert len(set(lines)) == len(lines)
    assert all("\n" not in line and line == line.strip() and is_prose(line) for line in lines)
    assert not any(">>>" in line for line in lines[::7])


def test_it_is_a_corpus_like_others(embedded: list[Document]) -> None:
    report = CorpusReport()
    assert list(documents(["docstrings"], report=report)) == embedded
    assert report.documents == len(embedded)
    assert report.files == len(docstrings.files())
    assert report.bytes > 1_000_000


DOCSTRING = """Fit the model to the data that is given here,
which may take a while.

.. versionadded:: 1.2

Parameters
----------
X : array-like of shape (n_samples, n_features)
    The input samples that are used for the :class:`~a.b.Tree` of
    the model, see `the guide <https://example.org>`_.
y : None
    Ignored.

>>> model.fit(the, list, of, all, the, examples)
the value of it is not for the reader

.. math::

    the sum of x and y is the z of the a

* An item of the list that
  goes on in the next line of it.
* And another one that is in the list too.

Args:
    first (int): The first of the numbers that are
        added to the other.
    second (int): The second of the numbers that are added.
"""


def test_paragraphs_by_hand() -> None:
    assert list(paragraphs(DOCSTRING)) == [
        "Fit the model to the data that is given here, which may take a while.",
        "The input samples that are used for the a.b.Tree of the model, see the guide.",
        "An item of the list that goes on in the next line of it.",
        "And another one that is in the list too.",
        "The first of the numbers that are added to the other.",
        "The second of the numbers that are added.",
    ]
