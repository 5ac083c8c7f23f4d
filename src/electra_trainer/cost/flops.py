"""Operations of a step, of a run and of inference, for every objective, generator and training algorithm. No torch here.

They are counted in two ways, and every number says which:

    paper  as the authors' script (paper.py): backward = forward. Only for comparison with the paper.
    real   matrix products alone, as they are needed here (products.py): backward = 2 x forward. For hours and hardware utilisation.

What is computed a second time in a backward pass to save memory is not counted, nor is the optimizer.
"""

import bisect
from dataclasses import dataclass, replace
from typing import Literal

from electra_trainer.cost import matrix_products, paper_flops
from electra_trainer.cost.parameters import learned_generator, predicted, single_output, slots
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import Adversarial, TwoStage

_MOST_STEPS = 2**62
"""More than any run has; what a bisection can count to."""


@dataclass(frozen=True, kw_only=True)
class Flops:
    """Operations, counted as the paper did and as they are needed; see the top of this file."""

    paper: float
    real: float


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the work on one row."""

    name: str
    paper: float
    """Operations of its forward pass, as the authors count."""
    real: float
    """Matrix products of its forward pass."""
    trained: bool = True
    """Whether it has a backward pass."""


def step_flops(config: Config, *, step: int = 0, norm_slip: bool = paper_flops.NORM_SLIP) -> Flops:
    """Operations of one optimizer step, forward and backward over the whole batch.

    Args:
        config: the run.
        step: which; matters in two-stage training alone.
        norm_slip: see paper.NORM_SLIP.
    """
    return _step(config, step < first_stage_steps(config), norm_slip)


def row_parts(config: Config, *, step: int = 0, norm_slip: bool = paper_flops.NORM_SLIP) -> list[Part]:
    """What one row goes through in a step. In two-stage training at first the generator alone, which then stays as it is."""
    return _parts(config, step < first_stage_steps(config), norm_slip)


def first_stage_steps(config: Config) -> int:
    """Steps of two-stage training that train the generator; 0 in joint training."""
    return _first_steps(config, config.schedule.steps)


def run_flops(config: Config, *, steps: int | None = None, norm_slip: bool = paper_flops.NORM_SLIP) -> Flops:
    """Operations of the first `steps` steps of a run, by default of the whole run."""
    done = config.schedule.steps if steps is None else steps
    first = min(done, first_stage_steps(config))
    early, late = (_step(config, stage, norm_slip) for stage in (True, False))
    return Flops(
        paper=first * early.paper + (done - first) * late.paper, real=first * early.real + (done - first) * late.real
    )


def steps_for_flops(config: Config, *, flops: float, counting: Literal["paper", "real"] = "paper") -> int:
    """The largest number of steps of a whole run like `config` that does not exceed `flops`; may be 0.

    `schedule.steps` does not matter; in two-stage training both stages keep their shares of the steps.
    """
    stages = [_step(config, stage, paper_flops.NORM_SLIP) for stage in (True, False)]
    early, late = (stage.paper if counting == "paper" else stage.real for stage in stages)

    def total(steps: int) -> float:
        first = _first_steps(config, steps)
        return first * early + (steps - first) * late

    most = min(int(flops / min(early, late)) + 2, _MOST_STEPS)
    return max(0, bisect.bisect_right(range(most), flops, key=total) - 1)


def infer_flops(config: Config, *, sequence_length: int = 128, norm_slip: bool = paper_flops.NORM_SLIP) -> Flops:
    """Operations of one forward pass of the kept encoder over one row, with a binary head as in Table 1's column."""
    model = config.model
    counted = paper_flops.encoder(model, sequence_length, norm_slip=norm_slip) + paper_flops.replaced_head(
        model, sequence_length
    )
    return Flops(
        paper=counted,
        real=float(
            matrix_products.encoder(model, sequence_length) + sequence_length * matrix_products.replaced_head(model)
        ),
    )


def _first_steps(config: Config, steps: int) -> int:
    """At least one step for each stage, where there are two."""
    if not isinstance(config.phases, TwoStage) or steps < 2:
        return 0
    return min(steps - 1, max(1, round(config.phases.share * steps)))


def _step(config: Config, first_stage: bool, norm_slip: bool) -> Flops:
    parts = _parts(config, first_stage, norm_slip)
    return Flops(
        paper=config.batch.size * sum(part.paper * (2 if part.trained else 1) for part in parts),
        real=config.batch.size * sum(part.real * (3.0 if part.trained else 1.0) for part in parts),
    )


def _parts(config: Config, first_stage: bool, norm_slip: bool) -> list[Part]:
    generator = _generator_parts(config, norm_slip)
    if not isinstance(config.phases, TwoStage):
        return generator + _kept_parts(config, norm_slip)
    if first_stage:
        return generator
    return [replace(part, trained=False) for part in generator] + _kept_parts(config, norm_slip)


def _generator_parts(config: Config, norm_slip: bool) -> list[Part]:
    """Unigram and uniform generators cost nothing."""
    model, length, chosen = learned_generator(config), config.batch.sequence_length, slots(config)
    if model is None:
        return []
    parts = [
        Part(
            name="generator's encoder",
            paper=paper_flops.encoder(model, length, norm_slip=norm_slip),
            real=matrix_products.encoder(model, length),
        ),
        Part(
            name="generator's token head",
            paper=paper_flops.token_head(model, length),
            real=chosen * matrix_products.token_head(model),
        ),
    ]
    if isinstance(config.objective, Adversarial):
        # the samples come first; only when they are judged does the gradient of their log p take a pass of its own
        again = Part(
            name="sampling before the reward", paper=0.0, real=chosen * matrix_products.vocabulary(model), trained=False
        )
        parts.append(again)
    return parts


def _kept_parts(config: Config, norm_slip: bool) -> list[Part]:
    model, length, objective = config.model, config.batch.sequence_length, config.objective
    kept = Part(
        name="encoder",
        paper=paper_flops.encoder(model, length, norm_slip=norm_slip),
        real=matrix_products.encoder(model, length),
    )
    parts = [kept]
    if objective.keeps == "discriminator":
        real = length * matrix_products.replaced_head(model)
        parts.append(Part(name="discriminator's head", paper=paper_flops.replaced_head(model, length), real=real))
    if objective.predicts != "none":
        share = 1.0 if objective.predicts == "all" else paper_flops.OUTPUT_SHARE
        counted = paper_flops.token_head(model, length, share=share)
        parts.append(Part(name="token head", paper=counted, real=predicted(config) * matrix_products.token_head(model)))
    width, positions = single_output(config)
    if width:
        own = 2.0 * width * positions
        parts.append(Part(name="the objective's own layer", paper=own, real=own))
    return parts
