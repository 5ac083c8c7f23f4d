"""The batch of a reference; a test file's own `forward` says of which."""

import pytest
from tests.google import reference
from tests.google.reference import Arrays

from electra_trainer.batch import Corrupted, Masked
from electra_trainer.objectives.generation import corrupt


@pytest.fixture(scope="module")
def masked(forward: Arrays) -> Masked:
    return reference.masked(forward)


@pytest.fixture(scope="module")
def corrupted(forward: Arrays, masked: Masked) -> Corrupted:
    return corrupt(masked, reference.samples(forward))
