"""Optimizers: the released Adam, PyTorch's AdamW, and LAMB (Appendix A, Table 5).

Also the learning rate of each step (Table 5; released optimization.py), and the part of an objective that it trains. Joint training has
one phase, two-stage training two (§3.2, "Training Algorithms"). A phase is an objective over some of the networks; the optimizer holds
all parameters and moves those that have a gradient.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from electra_trainer.errors import CheckpointError
from electra_trainer.objectives import Objective, rtd, two_stage
from electra_trainer.ranks.sharding import part_of
from electra_trainer.settings.config import Config, Schedule
from electra_trainer.settings.config import Optimizer as Settings
from electra_trainer.settings.methods import TwoStage

Share = Callable[[str], float]
"""Of the learning rate, by parameter name."""
_FULLY_CORRECTED = 1e9
"""A step count at which 1 - beta**step is exactly 1 in fp32, so bias correction has no effect."""
_SLOTS = {"step", "exp_avg", "exp_avg_sq"}
"""The state that each optimizer here keeps for a parameter."""


def parameter_groups(network: nn.Module, weight_decay: float, share: Share | None = None) -> list[dict[str, Any]]:
    """Weights, which decay (and whose step LAMB adapts), and biases and LayerNorm, which do not. Each parameter is in one group, once.

    Args:
        share: of the learning rate, by parameter name (layer-wise decay in fine-tuning); None: 1 for all, in two groups.
    """
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {} if share else {(1.0, True): [], (1.0, False): []}
    for name, parameter in network.named_parameters():  # a shared parameter is named once
        if parameter.requires_grad:
            decays = not ("LayerNorm" in name or name.endswith("bias"))
            groups.setdefault((share(name) if share else 1.0, decays), []).append(parameter)
    return [
        {"params": members, "weight_decay": weight_decay * decays, "adapts": decays, "share": portion}
        for (portion, decays), members in groups.items()
    ]


def build_optimizer(network: nn.Module, settings: Settings, share: Share | None = None) -> Optimizer:
    """The optimizer that `settings` names, over all parameters of `network`; call `set_rate` before each step."""
    groups = parameter_groups(network, settings.weight_decay, share)
    betas = (settings.beta1, settings.beta2)
    if settings.name == "lamb":
        return Lamb(groups, betas=betas, eps=settings.epsilon)
    optimizer = _AdamW(groups, lr=0.0, betas=betas, eps=settings.epsilon, fused=True)
    if settings.name == "adam":
        without_bias_correction(optimizer)
    return optimizer


class _AdamW(AdamW):
    """PyTorch's, not wrapped against the compiler (which never sees it here): the wrappers would import it, a second of every start."""

    step = torch.no_grad()(inspect.unwrap(AdamW.step))
    zero_grad = inspect.unwrap(AdamW.zero_grad)
    add_param_group = inspect.unwrap(AdamW.add_param_group)


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of the next step, each group's by its share."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("share", 1.0)


def without_bias_correction(optimizer: AdamW) -> None:
    """Turn a fresh AdamW into the released code's Adam: p -= lr * (m / (sqrt(v) + eps) + decay * p).

    AdamW divides m and v by 1 - beta**step. Started at a step where that is 1, it computes exactly this update, in one fused kernel.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter] = _moments(parameter, torch.tensor(_FULLY_CORRECTED, device=parameter.device))


def _moments(parameter: Tensor, step: Tensor) -> dict[str, Tensor]:
    return {"step": step, "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}


class Lamb(Optimizer):
    """LAMB (You et al., 2020), which the paper's Table 5 names: Adam's direction, scaled to each tensor's own norm.

    With bias correction, decay inside the direction, and a trust ratio of |p| / |update|, 1 where either is 0. Biases and LayerNorm
    have neither ratio nor decay: otherwise a bias that begins at 0 could not move.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], *, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": 0.0, "betas": betas, "eps": eps, "weight_decay": 0.0, "adapts": True})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state.update(_moments(parameter, torch.tensor(0.0)))
        beta1, beta2 = group["betas"]
        assert parameter.grad is not None
        state["step"] += 1
        step = float(state["step"])
        mean = state["exp_avg"].lerp_(parameter.grad, 1 - beta1)
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
        update = (mean / (1 - beta1**step)) / ((square / (1 - beta2**step)).sqrt() + group["eps"])
        update += group["weight_decay"] * parameter
        length, size = parameter.norm(), update.norm()
        adapts = (length > 0) & (size > 0) & group["adapts"]
        trust = torch.where(adapts, length / size, torch.ones_like(length))
        parameter -= group["lr"] * trust * update


def optimizer_tensors(network: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as named tensors: `<parameter>/<slot>`; empty before the first step for AdamW and LAMB."""
    return {
        f"{name}/{slot}": value
        for name, parameter in network.named_parameters()
        for slot, value in optimizer.state.get(parameter, {}).items()
    }


def check_optimizer_tensors(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not the state of an optimizer of this network.

    Raises:
        CheckpointError: a tensor belongs to no parameter, or has another shape or type; or a parameter lacks some of its slots.
    """
    names = dict(network.named_parameters())
    found: dict[str, set[str]] = {}
    for full, value in tensors.items():
        parameter = _parameter_of(full, value, names)
        name, _, slot = full.rpartition("/")
        found.setdefault(name, set()).add(slot)
        if value.dtype != parameter.dtype or (slot == "step" and value.shape != ()):
            told = f"{value.dtype} {tuple(value.shape)}"
            raise CheckpointError(f"the optimizer's tensor {full} in the checkpoint holds {told}.")
    for name, slots in found.items():
        if slots != _SLOTS:
            odd = ", ".join(sorted(slots ^ _SLOTS)[:3])
            raise CheckpointError(f"the checkpoint has not exactly the optimizer's tensors of {name}: {odd}.")


def _parameter_of(full: str, value: Tensor, names: Mapping[str, nn.Parameter]) -> nn.Parameter:
    name, _, slot = full.rpartition("/")
    if name not in names or (slot != "step" and value.shape != names[name].shape):
        raise CheckpointError(f"the optimizer's tensor {full} in the checkpoint fits no parameter of this config.")
    return names[name]


def load_optimizer_tensors(network: nn.Module, optimizer: Optimizer, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Restore the tensors of `optimizer_tensors`, one after another as they come.

    Raises:
        CheckpointError: a tensor belongs to no parameter, or has another shape.
    """
    names = dict(network.named_parameters())
    for full, value in tensors:
        slot, parameter = full.rpartition("/")[2], _parameter_of(full, value, names)
        state = optimizer.state[parameter]
        state[slot] = value.clone() if slot == "step" else part_of(value, parameter)
        if slot == "step" and optimizer.param_groups[0].get("fused"):
            state[slot] = state[slot].to(parameter.device)


def learning_rate(step: int, *, peak: float, schedule: Schedule, warmup: float | None = None) -> float:
    """Learning rate of optimizer step `step`, counted from 0.

    `released`: peak * (1 - t/T) * min(1, t/warmup): the decay starts at once, so the peak is never quite reached.
    `linear`: up to the peak over the warm-up, then linearly to 0 at T. In both t = step + 1, as the released code ran: the
    first step already moves the weights.

    Args:
        warmup: steps of warm-up, if not a whole number; None: the schedule's.
    """
    done = step + 1
    rises = schedule.warmup_steps if warmup is None else warmup
    warm = min(1.0, done / rises) if rises else 1.0
    if schedule.shape == "released":
        return peak * warm * max(0.0, 1 - done / schedule.steps)
    if done <= rises:
        return peak * warm
    return peak * max(0.0, (schedule.steps - done) / max(1, schedule.steps - rises))


def rate_at(step: int, config: Config) -> float:
    """Learning rate of step `step` of a run: its whole schedule, or in two-stage training that of the stage it falls in."""
    schedule, turn, peak = config.schedule, config.first_stage_steps, config.optimizer.learning_rate
    if not turn:
        return learning_rate(step, peak=peak, schedule=schedule)
    first, steps = (0, turn) if step < turn else (turn, schedule.steps - turn)
    stage = dataclasses.replace(schedule, steps=steps, warmup_steps=min(schedule.warmup_steps, steps))
    return learning_rate(step - first, peak=peak, schedule=stage)


class Phases:
    """The part of the objective that each step of a run trains.

    Args:
        config: the run.
        objective: all its networks.
    """

    def __init__(self, config: Config, objective: Objective) -> None:
        self._switch = config.first_stage_steps
        self._objective = objective
        self._copies = isinstance(config.phases, TwoStage) and config.phases.start == "generator"
        self._stages: tuple[Objective, Objective] = objective, objective
        if self._switch:
            assert isinstance(objective, rtd.ReplacedTokenDetection)
            self._stages = two_stage.GeneratorStage(objective), two_stage.DiscriminatorStage(objective)

    def at(self, step: int) -> Objective:
        """The objective of step `step`, in training mode as the whole is; the first step of stage 2 copies the weights before it."""
        if self._switch and step == self._switch and self._copies:
            assert isinstance(self._objective, rtd.ReplacedTokenDetection)
            two_stage.begin_from_generator(self._objective)
        return self._stages[step >= self._switch]
