"""A machine of one core, as far as this process can see: no process is started for each core, which would import everything again."""

from __future__ import annotations

import os

import pytest


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the rest of the test."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
