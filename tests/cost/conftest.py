"""An objective as a user would define it."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from electra_trainer.settings.methods import ObjectiveSettings


@pytest.fixture
def own_objective() -> Iterator[type[ObjectiveSettings]]:
    """Known while the test runs."""

    @dataclass(frozen=True, kw_only=True)
    class Own(ObjectiveSettings):
        uses_generator = True
        keeps = "discriminator"
        predicts = "masked"

    yield Own
    del ObjectiveSettings.kinds["own"]
