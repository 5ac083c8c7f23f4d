"""`torchrun … -m tests.reliability.rank_program WHAT pretrain …`: the command `electra`, with something happening to a rank.

GLIBC_TUNABLES has to be set, to nothing for example: otherwise the command starts itself again, without what is arranged here.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.reliability.moments import Signalled, just_before, signal_at

from electra_trainer.cli.main import main
from electra_trainer.errors import ConfigError
from electra_trainer.ranks import failure
from electra_trainer.runs import checkpoint
from electra_trainer.runs.signals import StopRequest

DEAF, UNWATCHED, SLOW = "deaf;", "memory, unwatched", "slow;"
OURS, TORCHRUN = "electra_trainer.runs.launcher", "torch.distributed.run"
TWO_HERE = ("--standalone", "--nproc-per-node=2")


def launch(what: str, words: list[str], *, by: str = OURS, where: Sequence[str] = TWO_HERE) -> list[str]:
    """The command that starts ranks of `electra WORDS`, with something happening to them."""
    return [sys.executable, "-m", by, *where, "-m", "tests.reliability.rank_program", what, *words]


def arrange(what: str) -> None:
    """`memory`, `settings`: rank 1 fails so (UNWATCHED: and tells nobody); `NOTES;MOMENT;NTH;SIGNAL;TARGET`: a signal (after DEAF: unheard); SLOW
    and seconds: the last save takes so long."""
    if what == UNWATCHED:
        failure.Watch.settled = lambda self, error: error
        failure.Watch._look = lambda self, store: None
    if what in ("memory", UNWATCHED) and os.environ["RANK"] == "1":
        just_before("step", 3, _no_memory)
    elif what == "settings" and os.environ["RANK"] == "1":
        from electra_trainer.cli import flags

        flags.settings_from = _no_file
    elif what.startswith(SLOW):
        _slow(float(what.removeprefix(SLOW)))
    elif ";" in what:
        if what.startswith(DEAF):
            StopRequest.__enter__ = lambda self: self
        notes, moment, nth, number, target = what.removeprefix(DEAF).split(";")
        signal_at(Signalled(moment, int(nth), signal.Signals(int(number)), target), Path(notes))


def _slow(seconds: float) -> None:
    last = checkpoint.Saver.finish
    write = checkpoint.write_durably

    def slow(path: Path, content: bytes) -> None:
        if path.name == "manifest.json":
            time.sleep(seconds)
        write(path, content)

    def finish(self: checkpoint.Saver, saved: checkpoint.Saved) -> None:
        checkpoint.write_durably = slow
        last(self, saved)

    checkpoint.Saver.finish = finish


def _no_memory() -> None:
    raise MemoryError


def _no_file(words: object) -> None:
    raise ConfigError("config.json: is not on this machine")


if __name__ == "__main__":
    arrange(sys.argv.pop(1))
    sys.exit(main())
