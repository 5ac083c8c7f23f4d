"""`python -m electra_trainer.supervise.torchrun …`: torchrun without its page of traceback when a process of the run fails.

The process itself printed its error; its exit code is in RUN/status.json, and a supervisor returns it.
"""

import logging
import os
import signal
import sys

from electra_trainer.errors import ElectraError, tell
from electra_trainer.runs.signals import STARTED_BY, stop_with_parent


def main() -> int:
    """Run torchrun with the arguments of the command line.

    Returns:
        0, or 70 where a process ended with another code.
    """
    stop_with_parent()
    os.environ[STARTED_BY] = str(os.getpid())
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    logging.disable(logging.ERROR)  # of this process, which trains nothing: the lines below report the same
    try:
        torchrun()
    except ChildFailedError as failed:
        for rank, failure in sorted(failed.failures.items()):
            if failure.exitcode < 0 and -failure.exitcode != signal.SIGTERM:  # that one is torchrun's own
                tell(f"the process of rank {rank} was killed by {signal.Signals(-failure.exitcode).name}")
        return ElectraError.exit_code
    except SignalException as told:
        tell(f"{told.sigval.name}: the processes have ended")
        return ElectraError.exit_code
    except Exception as error:
        tell(f"torchrun cannot start the processes: {str(error).strip() or type(error).__name__}")
        return ElectraError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
