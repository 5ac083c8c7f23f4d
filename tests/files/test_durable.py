"""Forcing bytes onto the disk, where systems differ."""

import fcntl
import os
from pathlib import Path

import pytest

from electra_trainer.files.durable import write_durably


def test_macos_flushes_the_memory_of_the_disk_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[object] = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda _, command: asked.append(command))
    monkeypatch.setattr(os, "fsync", lambda _: asked.append("fsync"))
    write_durably(tmp_path / "a", b"text")
    assert asked == [51]

    def refuse(_: int, command: int) -> None:
        raise OSError(45, "Operation not supported")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    write_durably(tmp_path / "b", b"text")
    assert asked == [51, "fsync"] and (tmp_path / "b").read_bytes() == b"text"


def test_linux_has_one_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[object] = []
    monkeypatch.delattr(fcntl, "F_FULLFSYNC", raising=False)
    monkeypatch.setattr(os, "fsync", lambda _: asked.append("fsync"))
    write_durably(tmp_path / "a", b"text")
    assert asked == ["fsync"]
