"""Several runs of one shape in one step: `electra compare --parallel stacked`.

Their weights lie one behind another, [R, ...], and torch.vmap computes the losses of all: where one run has a matrix
product, the stack has a batched one. Everything else is each run's own: batches, masks, samples, dropout, learning
rate, clipping, optimizer, evaluations, checkpoints and folder. So a run equals its lone one up to rounding, and whoever
opens its folder later sees no difference but a line in the log.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, stack_module_state

from electra_trainer.batch import Batch, Losses, Masked
from electra_trainer.errors import Diverged, Interrupted
from electra_trainer.kernels.vmapped import dropped_by
from electra_trainer.objectives import Objective
from electra_trainer.randomness import Rng
from electra_trainer.runs import checkpoint, progress, run_folder, signals
from electra_trainer.settings import methods
from electra_trainer.settings.config import Config, Optimizer
from electra_trainer.train import loop, measures, optim, plan
from electra_trainer.train.device import autocast, choose_device, choose_precision, use_threads
from electra_trainer.train.static_step import GivenDraws
from electra_trainer.train.step import StepResult, add_counts, update

_OBJECTIVES = (methods.MLM, methods.RTD, methods.ReplaceMLM, methods.RtdMLM)
_DRAWS = 8
"""Masks of dropout that are provided for each module of an objective, more than a pass makes."""


def shape_of(config: Config) -> Config:
    """`config` without what runs in a stack may differ in: seed, settings of the optimizer, and weights of losses,
    except that one of 0 leaves a loss out.
    """
    weights = {name: 1.0 for name, value in vars(config.objective).items() if name.endswith("weight") and value}
    return replace(config, seed=0, optimizer=Optimizer(), objective=replace(config.objective, **weights))


def why_not(config: Config, device: torch.device) -> str:
    """Reason why runs of a config are not stacked; empty if they are."""
    learned, joint = type(config.generator) is methods.Learned, config.first_stage_steps == 0
    if type(config.objective) not in _OBJECTIVES or not (learned and joint) or config.deterministic:
        return (
            "what is stacked is joint training by rtd, rtd-mlm, replace-mlm or mlm, with a learned generator and not "
            "--deterministic"
        )
    if device.type != "cpu":
        dropped = max(config.model.hidden_dropout_prob, config.model.attention_probs_dropout_prob)
        return "on a GPU runs with dropout are not stacked" if dropped else ""
    halved = choose_precision(config.precision, device) == "bf16"
    return "a CPU's kernels for bf16 take one run at a time; --precision fp32 stacks" if halved else ""


def pretrain_stacked(
    runs: Mapping[Path, Config], data: Path, *, device: str, report: Callable[[float], None]
) -> dict[Path, Diverged]:
    """Pre-train runs of one shape together, or resume those that were interrupted, each as `loop.pretrain` does.

    Args:
        runs: the config of each run folder; `shape_of` is the same for all.
        data: a folder that `prepare` made.
        device: as of `loop.pretrain`.
        report: called now and then with the share of the steps that is done.

    Returns:
        The runs that diverged; the others are done.

    Raises:
        Interrupted: a signal; all runs are saved, the same call resumes them. ElectraError: as `loop.pretrain`.
    """
    use_threads()
    with signals.StopRequest(at_once=True) as stop, ExitStack() as last:
        where, store, opened = choose_device(device), loop.open_rows(data), list[loop.Pretraining]()
        given: dict[str, Any] = {"device": where, "stop": stop, "length": plan.Length(), "init": None}
        for out, config in runs.items():
            folder = last.enter_context(closing(run_folder.RunFolder(out)))
            display = progress.Display(quiet=True)
            opened.append(loop.resumed(config, folder, store, display=display, stacked=True, **given))
            last.enter_context(opened[-1].fast)
            last.enter_context(opened[-1].saver or nullcontext())
            opened[-1].say(f"computed in one step with {len(runs) - 1} other runs")
        diverged = _train(opened, stop, report)
    return {opened[number].folder.path: error for number, error in diverged.items()}


def _train(
    runs: Sequence[loop.Pretraining], stop: signals.StopRequest, report: Callable[[float], None]
) -> dict[int, Diverged]:
    """Do the remaining steps of all runs, each from where it is; returns those that diverged."""
    turns = {number: run.turns(lambda: stop.name) for number, run in enumerate(runs)}
    step, diverged = StackedStep([]), dict[int, Diverged]()
    while True:
        logged, interrupted = list[bool](), None
        for number, turn in [*turns.items()]:
            try:
                logged.append(next(turn))
                continue
            except StopIteration:
                pass
            except Diverged as error:
                diverged[number] = error
            except Interrupted as error:
                interrupted = error
            del turns[number]
        going = [runs[number] for number in turns]
        if interrupted is not None:
            for run in going:  # the signal came after these had been asked
                run.save(checkpoint.Saver.finish)
            raise interrupted
        if not going:
            return diverged
        if len(going) != len(step.runs):
            step = StackedStep(going)
        for run, outcome in zip(going, step(diagnose=any(logged)), strict=True):
            run.outcome = outcome
        if any(logged):
            report(min((run.step + 1) / run.steps for run in going))


class StackedStep:
    """The next training step of each run, computed together: what `train_step` computes for each alone.

    The parameters of the runs become views of the stack.
    """

    def __init__(self, runs: Sequence[loop.Pretraining]) -> None:
        self.runs = runs
        self._terms = [_terms(run) for run in runs]
        self._weights: dict[str, Tensor] = stack_module_state([run.network for run in runs])[0] if runs else {}
        for number, run in enumerate(runs):
            for name, parameter in run.network.named_parameters():
                parameter.data = self._weights[name].data[number]

    def __call__(self, *, diagnose: bool) -> list[StepResult]:
        """Forward, backward and update of every run."""
        lanes = [run.feed.lanes(run.step) for run in self.runs]
        counts = [
            add_counts([run.network.counts(masked) for masked, _ in own])
            for run, own in zip(self.runs, lanes, strict=True)
        ]
        divisors = [measures.divisors(own, run.config) for run, own in zip(self.runs, counts, strict=True)]
        diagnosed = []
        for lane in zip(*lanes, strict=True):
            losses = self._lane(lane, divisors, diagnose=diagnose)
            diagnosed.append([measures.keep_measured(own) for own in losses] if diagnose else [])
        signals.finish_first()
        results = []
        for number, run in enumerate(self.runs):
            for name, parameter in run.network.named_parameters():
                gradient = self._weights[name].grad
                parameter.grad = None if gradient is None else gradient[number]
            rate = optim.rate_at(run.step, run.config)
            norm, finite = update(run.network, run.optimizer, clip_norm=run.config.optimizer.clip_norm, rate=rate)
            own = [lane[number] for lane in diagnosed] if diagnose and finite else []
            metrics = measures.measure(own, counts[number], divisors[number]) if own else {}
            tokens = run.config.tokens_per_step
            moved = StepResult(finite=finite, gradient_norm=norm, learning_rate=rate, metrics=metrics, tokens=tokens)
            results.append(moved)
        for weight in self._weights.values():
            weight.grad = None
        return results

    def _lane(
        self, lane: Sequence[tuple[Masked, Rng]], divisors: Sequence[Mapping[str, float]], *, diagnose: bool
    ) -> list[Losses]:
        """Forward and backward pass of a lane of each run; gradients add up over the lanes of a step."""
        network, feed = self.runs[0].network, self.runs[0].feed
        slots = max(len(masked.slots_K) for masked, _ in lane)
        inputs = [_inputs(network, masked, rng, slots=slots) for masked, rng in lane]

        def losses(weights: dict[str, Tensor], given: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
            batch = Batch(**{name: given[name] for name in vars(lane[0][0].batch)})
            masked = Masked(batch=batch, input_BT=given["input_BT"], slots_K=given["slots_K"])
            with dropped_by(given["dropout"]):
                # tied weights are one module here, and its parameters are named once
                arguments = (masked, GivenDraws(0, 0, 0, given))
                found = functional_call(network, weights, arguments, {"diagnose": diagnose}, tie_weights=False)
            return {name: term.sum for name, term in found.terms.items()}, found.diagnostics

        with autocast(feed.precision, feed.device):
            stacked = {name: torch.stack([one[name] for one in inputs]) for name in inputs[0]}
            sums, diagnostics = torch.vmap(losses)(self._weights, stacked)
        total_R = torch.zeros(len(lane), device=feed.device)
        for name, sum_R in sums.items():
            terms = zip([own[name] for own in self._terms], divisors, strict=True)
            total_R = total_R + sum_R * sum_R.new_tensor([one.weight / max(by[one.count], 1.0) for one, by in terms])
        # a run whose loss is not finite gets such a gradient, as in `backward`; the others do not
        (total_R * (1 + 0 * total_R.detach())).sum().backward()  # type: ignore[no-untyped-call]
        return [
            Losses(
                terms={name: replace(term, sum=sums[name][number].detach()) for name, term in own.items()},
                diagnostics={name: every[number].detach() for name, every in diagnostics.items()},
            )
            for number, own in enumerate(self._terms)
        ]


@torch.no_grad()
def _terms(run: loop.Pretraining) -> dict[str, Any]:
    """The terms of a run's loss, for their counts and weights."""
    with autocast(run.feed.precision, run.feed.device):
        return dict(run.network(*run.feed.lanes(run.step)[0]).terms)


def _inputs(network: Objective, masked: Masked, rng: Rng, *, slots: int) -> dict[str, Tensor]:
    """Tensors that a pass of one run reads, by name; masked slots are filled up with unused ones."""
    device, used = masked.input_BT.device, len(masked.slots_K)
    count = _DRAWS * sum(1 for _ in network.modules())
    return {
        **vars(masked.batch),
        "input_BT": masked.input_BT,
        "slots_K": F.pad(masked.slots_K, (0, slots - used), value=-1),
        "sample": F.pad(rng.uniform("sample", used, device), (0, slots - used)),
        **{purpose: rng.uniform(purpose, masked.input_BT.numel(), device) for purpose in network.draws},
        "dropout": torch.randint(2**63 - 1, (count,), generator=rng.generator("dropout")),
    }
