"""The command `electra`, also as `python -m electra_trainer`."""

import sys

from electra_trainer.runs.launcher import restart_tuned, trains
from electra_trainer.runs.signals import leave_when_told, stop_with_parent


def main() -> int:
    """Run the command; returns its exit code. A process that trains restarts before it has loaded all verbs."""
    if trains(sys.argv[1:]):
        restart_tuned()
        leave_when_told()
        stop_with_parent()
    from electra_trainer.cli.main import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
