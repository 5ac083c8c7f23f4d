"""How the processes of a run begin: their environment, and torchrun.

Two environment variables must be set before the process starts: 10 to 20 % of a training step on a CPU each.

Each step allocates and frees tensors of many megabytes. By default glibc returns their memory to the system each time
and takes it back page by page; these settings make it keep the memory and use huge pages. The variable is read once, at
the start of a process, so the command starts itself again with it, in the same process id. If you set GLIBC_TUNABLES,
even to nothing, it is respected.

By default OpenMP's threads spin for long between two parallel regions, which makes a step up to ten times slower on a
busy machine; if they sleep at once they take long to wake, which costs a small model a fifth. Here they spin for some
20 microseconds.

`python -m electra_trainer.runs.launcher …` is torchrun without its page of traceback when a process of the run
fails, whose exit code it returns: the process itself printed its error.
"""

import logging
import os
import platform
import signal
import sys
from collections.abc import Sequence

from electra_trainer.errors import ElectraError, Interrupted, tell
from electra_trainer.runs.signals import STARTED_BY, signals_held, stop_with_parent

_KEEP = 1 << 34  # bytes: never by mmap, never trimmed
_TUNABLES = f"hugetlb=1 mmap_threshold={_KEEP} trim_threshold={_KEEP} top_pad={1 << 28}"

THREADS = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "10000"}
"""How OpenMP's threads wait; read when torch is loaded."""


_TRAINING = frozenset({"demo", "pretrain", "finetune", "glue", "squad", "compare"})
"""Verbs that compute training steps."""


def trains(words: Sequence[str]) -> bool:
    """True if a command line computes training steps: worth restarting the process with a tuned allocator."""
    return bool(words) and words[0] in _TRAINING and not {"-h", "--help", "--help-all"} & set(words)


def tuned() -> dict[str, str]:
    """The variables of a training process: how threads wait and, with glibc, its allocator."""
    settings = dict(THREADS)
    if platform.libc_ver()[0] == "glibc":
        settings["GLIBC_TUNABLES"] = ":".join(f"glibc.malloc.{tunable}" for tunable in _TUNABLES.split())
    return settings


def restart_tuned() -> None:
    """Replace this process by itself with the allocator tuned; return where that is done already or has no use."""
    settings = tuned()
    if "GLIBC_TUNABLES" in os.environ or "GLIBC_TUNABLES" not in settings or not sys.orig_argv:
        return
    with signals_held():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**settings, **os.environ})


def torchrun() -> int:
    """Run torchrun with the arguments of the command line.

    Returns:
        0, or the exit code of the first process that failed by itself: 70 if it was killed, 75 if all were stopped.
    """
    stop_with_parent()
    os.environ[STARTED_BY] = str(os.getpid())
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as run

    logging.disable(logging.ERROR)  # of this process, which trains nothing: the lines below report the same
    try:
        run()
    except ChildFailedError as failed:
        for rank, failure in sorted(failed.failures.items()):
            if failure.exitcode < 0 and -failure.exitcode != signal.SIGTERM:  # that one is torchrun's own
                tell(f"the process of rank {rank} was killed by {signal.Signals(-failure.exitcode).name}")
        codes = [failure.exitcode for failure in sorted(failed.failures.values(), key=lambda one: one.timestamp)]
        code = next((code for code in codes if code != Interrupted.exit_code), Interrupted.exit_code)
        return code if code > 0 else ElectraError.exit_code
    except SignalException as reported:
        tell(f"{reported.sigval.name}: the processes have ended")
        return Interrupted.exit_code
    except Exception as error:
        tell(f"torchrun cannot start the processes: {str(error).strip() or type(error).__name__}")
    else:
        return 0
    return ElectraError.exit_code


if __name__ == "__main__":
    sys.exit(torchrun())
