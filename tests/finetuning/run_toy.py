"""An experiment as a separate command, to be killed: `python -m tests.finetuning.run_toy SETTINGS.json`; exit codes are those of `electra`."""

import json
import sys
from pathlib import Path

from tests.finetuning import plans
from tests.finetuning.toy import Toy

from electra_trainer.errors import ElectraError


def main() -> int:
    settings = json.loads(Path(sys.argv[1]).read_text())
    tasks = tuple(Toy(**one) for one in settings["tasks"])
    try:
        seeds = tuple(settings["plan"].pop("seeds"))
        plan = plans.plan(settings["plan"].pop("model"), *tasks, seeds=seeds, **settings["plan"])
        plans.go(plan, Path(settings["out"]), parallel=settings["parallel"], quiet=False)
    except ElectraError as error:
        print(f"electra: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
