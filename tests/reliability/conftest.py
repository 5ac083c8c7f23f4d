"""A fixture for tests that start commands."""

import pytest
from tests.reliability.forking import UNTUNED


@pytest.fixture
def untuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands take the package and its tests from here, and do not start themselves again with another allocator."""
    for variable in UNTUNED.items():
        monkeypatch.setenv(*variable)
