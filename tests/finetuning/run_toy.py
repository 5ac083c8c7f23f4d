"""An experiment as a command of its own, to be killed: `python -m tests.finetuning.run_toy SETTINGS.json`; exit codes are those of `electra`."""

import json
import sys
from pathlib import Path

from tests.finetuning.toy import Toy

from electra_trainer.errors import ElectraError
from electra_trainer.finetuning.experiment import Plan, run_plan


def main() -> int:
    settings = json.loads(Path(sys.argv[1]).read_text())
    tasks = tuple(Toy(**one) for one in settings["tasks"])
    plan = Plan(**{**settings["plan"], "tasks": tasks, "seeds": tuple(settings["plan"]["seeds"])})
    try:
        run_plan(plan, out=Path(settings["out"]), device="cpu", parallel=settings["parallel"])
    except ElectraError as error:
        print(f"electra: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
