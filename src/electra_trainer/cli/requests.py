"""Verbs whose requests are in finetuning/request.py and paper/request.py."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from electra_trainer.cli.main import value_of
from electra_trainer.cli.pretrain import settings_from
from electra_trainer.errors import ConfigError
from electra_trainer.finetuning.request import Finetune as FinetuneArguments
from electra_trainer.finetuning.request import Glue as GlueArguments
from electra_trainer.finetuning.request import Squad as SquadArguments
from electra_trainer.paper.request import Cloze as ClozeArguments
from electra_trainer.paper.request import Compare
from electra_trainer.paper.request import Figure as FigureArguments
from electra_trainer.paper.request import MinimalPairs as MinimalPairsArguments
from electra_trainer.paper.request import Table as TableArguments

__all__ = [
    "ClozeArguments",
    "FigureArguments",
    "FinetuneArguments",
    "GlueArguments",
    "MinimalPairsArguments",
    "SquadArguments",
    "TableArguments",
]


@dataclass(frozen=True, kw_only=True)
class CompareArguments(Compare):
    __doc__ = Compare.__doc__

    @staticmethod
    def begin(words: Sequence[str]) -> dict[str, Any]:
        """Defaults by preset and file; ConfigError for settings that the arms or the seeds decide."""
        if value_of(words, "--seed") is not None:
            raise ConfigError("--seed: compare trains several. Give --seeds 3 or a list such as --seeds 1,2,5.")
        for flag in ("--objective", "--generator", "--phases", "--objective.loss-over"):
            if value_of(words, flag) is not None:
                raise ConfigError(f"{flag}: is what arms differ in. Name the arm that has it in --arms (see --help).")
        return {"settings": settings_from(words)}


def run_finetune(request: Any) -> Any:
    """Run a request, and print its result."""
    found = request.run()
    if getattr(request, "json", False):
        return found.as_json()
    print(found.text())


run_glue = run_squad = run_table = run_figure = run_cloze = run_minimal_pairs = run_compare = run_finetune
