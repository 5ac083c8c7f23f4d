"""Two different commands at once on one output: one wins whole, the other is refused; nothing of a lock stays."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import shutil
from contextvars import Context
from dataclasses import fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.command import Electra
from tests.reliability.children import in_a_child
from tests.reliability.figures import LONG
from tests.reliability.killed import tree
from tests.reliability.operations import Operation, Operations
from tests.reliability.works import KINDS, LONGER, Work, longer_works, works

from electra_trainer.cli import main as cli
from electra_trainer.errors import ConfigError, ElectraError, StorageError
from electra_trainer.experiments.cell import declaring
from electra_trainer.files import durable
from electra_trainer.runs.run_folder import RunFolder

PAIRS = 10 if LONG else 2
REFUSED = ConfigError.exit_code


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Work, Work]]:
    folder = tmp_path_factory.mktemp("two")
    return works(folder) | (longer_works(folder / "longer") if LONG else {})


def code_of(work: Work, out: Path) -> int:
    """The exit code, in a separate context: a child of this process would have what this one holds."""
    try:
        Context().run(work, out)
    except ElectraError as error:
        return error.exit_code
    return 0


def settled(folder: Path) -> dict[str, object]:
    """Parts that are equal from one run to the next."""
    timed = ("environment.json", "log.txt", "metrics.jsonl", "status.json", "timing.json")
    return {
        name: None if "checkpoints/" in name or "/cells/" in name or name.endswith(timed) else content
        for name, content in tree(folder).items()
    }


def wholes(works: tuple[Work, Work], place: Path) -> list[dict[str, object]]:
    """Files that each command leaves alone."""
    for number, work in enumerate(works):
        (place / f"whole-{number}").mkdir()
        work(place / f"whole-{number}" / "out")
    return [settled(place / f"whole-{number}") for number in range(len(works))]


@pytest.mark.parametrize("kind", [*KINDS, *LONGER * LONG])
def test_one_wins_whole(
    kind: str, pairs: dict[str, tuple[Work, Work]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is typed before some change of the first one's, and again when that is done."""
    monkeypatch.setattr(durable, "BRIEF", 0.02)
    first, other = pairs[kind]
    whole, met = wholes(pairs[kind], tmp_path), list[Operation]()
    (tmp_path / "counted").mkdir()
    with Operations(tmp_path / "counted", met.append, sync=False):
        first(tmp_path / "counted" / "out")
    for moment in sorted({5 + (len(met) - 10) * number // (PAIRS - 1) for number in range(PAIRS)}):
        place, codes, count = tmp_path / str(moment), list[int](), itertools.count(1)
        place.mkdir()

        def meet(
            _: Operation, place: Path = place, codes: list[int] = codes, moment: int = moment, count: Any = count
        ) -> None:
            if next(count) == moment:
                codes.append(in_a_child(lambda: code_of(other, place / "out")))

        with Operations(place, meet, sync=False):
            codes.append(code_of(first, place / "out"))
        assert sorted(codes) == [0, REFUSED], (moment, met[moment - 1])
        assert settled(place) == whole[codes[0] == 0]
        assert code_of(first, place / "out") + code_of(other, place / "out") == REFUSED
        shutil.rmtree(place)


def test_every_verb_with_an_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, electra: Electra) -> None:
    """Refused while another command has it, a file or a folder, by any name of it; a new verb too."""
    monkeypatch.setattr(durable, "BRIEF", 0.02)
    verbs = {name: {one.name for one in fields(verb)} for name, verb in cli.VERBS.items() if is_dataclass(verb)}
    found = [name for name, options in verbs.items() if "out" in options]
    assert {"tokenizer", "merge", "export", "embed", "predict", "report", "table", "figure", "demo"} <= set(found)
    written = make_dataclass("Written", ["out"], namespace={"run": lambda self: self.out.write_text("mine") and None})
    (tmp_path / "link").symlink_to("out", target_is_directory=True)
    for name in [*(set(found) - {*cli._SHARING}), "new"]:
        monkeypatch.setitem(cli.VERBS, name, cli.VERBS.get(name, written))
        for path in (tmp_path / "out", tmp_path / "link"):
            monkeypatch.setattr(cli, "read", lambda *_, path=path: written(path))
            with durable.alone(tmp_path / "out"):
                code, _, told = Context().run(electra, name)
            assert (code, path.exists()) == (REFUSED, False), name
            assert told == f"electra: --out {path}: another command is at work there. Wait for it or stop it.\n"
    assert electra("new")[0] == 0 and sorted(os.listdir(tmp_path)) == ["link", "out"]


def test_a_file_system_without_locks(
    pairs: dict[str, tuple[Work, Work]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sentence with the folder's name; nothing is written there."""

    def refuse(*_: object) -> None:
        raise OSError(met[-1], os.strerror(met[-1]))

    met = list[int]()
    monkeypatch.setattr(fcntl, "flock", refuse)
    works = {kind: work for kind, (work, _) in pairs.items()} | {
        "experiment": lambda out: declaring(out).__enter__(),
        "run": lambda out: RunFolder(out).open_for_writing(),
    }
    for code in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
        met.append(code)
        for kind, work in works.items():
            with pytest.raises(StorageError, match=rf"{tmp_path}.*: this file system has no locks .* another --out\."):
                work(tmp_path / "out")
            assert not any(path.is_file() for path in tmp_path.rglob("*")), kind


def test_the_same_again(
    pairs: dict[str, tuple[Work, Work]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A result exists already: nothing is written; other settings or another input are refused."""
    for kind in ("tokenizer", "prepare", "a shard", "merge", "export"):
        (first, other), out = pairs[kind], tmp_path / kind
        first(out)
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        capsys.readouterr()
        first(out)
        assert "is there already" in capsys.readouterr().err, kind
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.parent != tmp_path} == {
            path: time for path, time in before.items() if path.parent != tmp_path
        }
        with pytest.raises(ConfigError):
            other(out)


def test_a_file_that_comes_meanwhile(pairs: dict[str, tuple[Work, Work]], tmp_path: Path) -> None:
    """An export removes nothing of somebody else's, also where its folder was empty when it began."""
    out, count = tmp_path / "out", itertools.count(1)
    out.mkdir()

    def meet(_: Operation) -> None:
        if next(count) == 20:
            (out / "vectors.npy").write_text("mine")

    with Operations(tmp_path, meet, sync=False), pytest.raises(ConfigError, match="is not an empty folder"):
        pairs["export"][0](out)
    assert list(tree(tmp_path)) == ["out", "out/vectors.npy"]


def test_a_folder_that_alone_can_be_written(
    pairs: dict[str, tuple[Work, Work]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock is in it, as in a mounted volume, which has other names in other containers."""
    monkeypatch.setattr(durable, "BRIEF", 0.02)
    for patch in (("access", lambda path, _: path != tmp_path), ("path.ismount", lambda path: path != tmp_path)):
        out = tmp_path / patch[0]
        out.mkdir()
        with monkeypatch.context() as patched:
            patched.setattr(f"os.{patch[0]}", patch[1])
            with durable.alone(out):
                assert len(os.listdir(out)) == 1
                assert code_of(pairs["prepare"][0], out) == REFUSED
            for kind, folder in (("tokenizer", out), ("prepare", out / "inner")):
                pairs[kind][0](folder)
        assert not [path for path in tmp_path.rglob("*") if durable.is_temporary(path.name)]
