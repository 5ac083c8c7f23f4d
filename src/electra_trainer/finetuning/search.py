"""`--search`: choose learning rate, layer decay and epochs of each task on a tenth of its training rows.

Every rate is tried with every decay, at the recipe's epochs; then the best of each task with more epochs and with
fewer. All trials are rows of one experiment of one seed in OUT/search; with baselines, fresh weights are searched the
same way. Dev sets are not looked at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from electra_trainer.errors import ConfigError
from electra_trainer.experiments import cell as cells
from electra_trainer.experiments import sweep
from electra_trainer.experiments.cell import SEARCH
from electra_trainer.files import durable
from electra_trainer.finetuning.experiment import FRESH, MOST_ROWS, RIVAL, Plan, Settings, run_plan

RATES = (1.0, 2.0, 10 / 3)
"""Learning rates, as multiples of the recipe's: 3e-4, 6e-4 and 1e-3 for Small."""
NO_DECAY = 1.0
"""Layer decay that is tried next to the recipe's own."""
EPOCHS = (3.0, 1 / 3)
"""Trials with other epochs than the recipe's, as multiples of them."""
_FIELDS = ("learning_rate", "layer_decay", "epochs")


def searched(plan: Plan) -> Plan:
    """The plan with the choices of the search for each task, and for fresh weights. Finished trials are read.

    Raises:
        ConfigError: all three are given, so there is nothing to search. ElectraError: as `run_plan`.
    """
    asked, given, begun = plan.request, plan.request.given, plan.request.out / SEARCH
    if given.keys() >= set(_FIELDS):
        raise ConfigError("--search: learning rate, layer decay and epochs are all given. Leave one of them out.")
    if cells.exists(asked.out) and not begun.is_dir():
        raise ConfigError(f"--out {asked.out}: the experiment there began without --search. Choose another --out.")
    # faults of the experiment are reported before hours of search
    declared = plan.declare(None)
    with cells.declaring(asked.out):
        durable.make_folder(begun)
    ends = ("", *[FRESH] * asked.baselines, *[RIVAL] * (asked.against is not None))
    rows = [f"{task.name}{end}" for task in plan.tasks for end in ends]
    first = dict[str, list[dict[str, float]]]()
    for row in rows:  # the other model's recipe is that of its own size
        base = Settings.of(declared.rows[row]).recipe
        rates = [float(f"{base.learning_rate * factor:.2g}") for factor in RATES]
        axes = {"learning_rate": rates, "layer_decay": [*dict.fromkeys((base.layer_decay, NO_DECAY))]}
        first[row] = [*sweep.combinations({name: values for name, values in axes.items() if name not in given})]
    chosen = _best(plan, first)
    longer = {
        row: [chosen[row], *({**chosen[row], "epochs": factor * usual["recipe"]["epochs"]} for factor in EPOCHS)]
        for row in chosen
        for usual in [declared.rows[row].settings]
        if usual["train_rows"] <= MOST_ROWS and "epochs" not in given
    }
    return replace(plan, chosen=chosen | (_best(plan, longer) if longer else {}))


def _best(plan: Plan, trials: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Mapping[str, float]]:
    """Run the trials of each row; the best of each, none where all diverged."""
    request = replace(plan.request, out=plan.request.out / SEARCH, baselines=False)
    asked = replace(plan, request=request, seeds=(1,), keep_weights=False, trials=trials)
    summary, found = run_plan(asked), dict[str, Mapping[str, float]]()
    for row, choices in trials.items():
        scores = [summary.main(sweep.named(row, one)) for one in choices]
        able = [(score.median, -place) for place, score in enumerate(scores) if score is not None]
        if able:
            found[row] = choices[-max(able)[1]]
    return found
