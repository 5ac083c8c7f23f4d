"""Optimizers: the released Adam, PyTorch's AdamW, LAMB (Appendix A, Table 5), and Muon.

Also the learning rate of each step (Table 5; released optimization.py), and the part of an objective that it trains.
Joint training has one phase, two-stage training two (§3.2, "Training Algorithms"). A phase is an objective over some of
the networks; the optimizer holds all parameters and moves those that have a gradient.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from electra_trainer.kernels.native import native_muon
from electra_trainer.model.modern import AnyLayer, PackedLinear
from electra_trainer.objectives import Objective, rtd, two_stage
from electra_trainer.settings.config import Config, Schedule
from electra_trainer.settings.config import Optimizer as Settings
from electra_trainer.settings.methods import TwoStage

Share = Callable[[str], float]
"""Factors of the learning rate, by parameter name."""
_FULLY_CORRECTED = 1e9
"""A step count at which 1 - beta**step is exactly 1 in fp32, so bias correction has no effect."""
SLOTS = ("step", "exp_avg", "exp_avg_sq")
"""The state that an optimizer keeps for a parameter; Muon keeps only `exp_avg` for a matrix of a layer."""
_MUON_MOMENTUM = 0.95
_QUINTIC = (3.4445, -4.775, 2.0315)
"""Jordan's coefficients of a Newton-Schulz step: x <- a x + b (x x^T) x + c (x x^T)^2 x. Five steps bring singular
values into 0.7 to 1.2.
"""


def parameter_groups(network: nn.Module, weight_decay: float, share: Share | None = None) -> list[dict[str, Any]]:
    """Matrices and tables, which decay (and whose step LAMB adapts), and biases and LayerNorm, which do not. Each
    parameter is in one group, once.

    Args:
        share: of the learning rate, by parameter name (layer-wise decay in fine-tuning); None: 1 for all, in two
            groups.
    """
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {} if share else {(1.0, True): [], (1.0, False): []}
    for name, parameter in network.named_parameters():  # a shared parameter is named once
        if parameter.requires_grad:
            decays = parameter.ndim > 1
            groups.setdefault((share(name) if share else 1.0, decays), []).append(parameter)
    return [
        {"params": members, "weight_decay": weight_decay * decays, "adapts": decays, "share": portion}
        for (portion, decays), members in groups.items()
    ]


def build_optimizer(
    network: nn.Module, settings: Settings, share: Share | None = None, *, precision: str = "fp32"
) -> Optimizer:
    """The optimizer that `settings` names, over all parameters of `network`; call `set_rate` before each step.

    Args:
        share: as `parameter_groups` takes it.
        precision: fp32 or bf16, in which the networks compute, and Muon's products too. Everything else is fp32.
    """
    groups = parameter_groups(network, settings.weight_decay, share)
    betas = (settings.beta1, settings.beta2)
    if settings.name == "lamb":
        return Lamb(groups, betas=betas, eps=settings.epsilon)
    if settings.name == "muon":
        matrices, (weights, rest) = layer_matrices(network), groups
        moved = {
            **weights,
            "rounded": precision == "bf16",
            "share": settings.muon_learning_rate / settings.learning_rate,
        }
        mine = [
            {**moved, "params": [one for one in weights["params"] if matrices.get(one) == parts], "orthogonal": parts}
            for parts in sorted({*matrices.values()})
        ]
        weights["params"] = [one for one in weights["params"] if one not in matrices]
        return Muon([weights, rest, *mine], lr=0.0, betas=betas, eps=settings.epsilon, fused=True)
    optimizer = _AdamW(groups, lr=0.0, betas=betas, eps=settings.epsilon, fused=True)
    if settings.name == "adam":
        without_bias_correction(optimizer)
    return optimizer


class _AdamW(AdamW):
    """PyTorch's, not wrapped against the compiler (which never sees it here): the wrappers would import it, a second of
    every start.
    """

    step = torch.no_grad()(inspect.unwrap(AdamW.step))
    zero_grad = inspect.unwrap(AdamW.zero_grad)
    add_param_group = inspect.unwrap(AdamW.add_param_group)


def layer_matrices(network: nn.Module) -> dict[nn.Parameter, int]:
    """The weights that Muon moves, the matrices of every layer of every network, and how many matrices each of them
    holds.
    """
    layers = [module for module in network.modules() if isinstance(module, AnyLayer)]
    packed = {one.weight: one.parts for one in network.modules() if isinstance(one, PackedLinear)}
    return {one: packed.get(one, 1) for layer in layers for one in layer.parameters() if one.ndim == 2}


class Muon(_AdamW):
    """Muon (https://kellerjordan.github.io/posts/muon) for groups that are `orthogonal` (the number of matrices in a
    weight), AdamW for others.

    A matrix moves by the learning rate times sqrt(max(1, rows / columns)), Jordan's scale, in the direction of its
    averaged gradient with all singular values near 1; query, key and value each in their own. torch.optim.Muon has the
    same equations, but takes one matrix at a time, rounds it to bf16, and cannot skip a bad step inside a CUDA graph.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient; the gradients of the matrices are dropped, so that AdamW
        passes over them.
        """
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"] if group.get("orthogonal") else ():
                if parameter.grad is not None:
                    shapes.setdefault(parameter.shape, []).append(parameter)
            for matrices in shapes.values():
                self._move(matrices, group)
                for matrix in matrices:
                    matrix.grad = None
        super().step()

    def _move(self, matrices: list[Tensor], group: dict[str, Any]) -> None:
        """Update weights of one shape together, each one matrix [R, C] or several, one below another."""
        for matrix in matrices:
            if not self.state[matrix]:
                self.state[matrix]["exp_avg"] = torch.zeros_like(matrix)
        means = [self.state[matrix]["exp_avg"] for matrix in matrices]
        (rows, columns), parts = matrices[0].shape, group["orthogonal"]
        scale = max(1, rows / parts / columns) ** 0.5
        precision = "bf16" if group["rounded"] else "fp32"
        if not hasattr(self, "found_inf") and native_muon.fits(matrices, means, parts, precision=precision):
            native_muon.move(
                matrices,
                means,
                parts,
                precision=precision,
                momentum=_MUON_MOMENTUM,
                rate=group["lr"] * scale,
                decay=group["lr"] * group["weight_decay"],
                quintic=_QUINTIC,
            )
            return
        mean_NRC = torch.stack(means)
        gradient_NRC = torch.stack([matrix.grad for matrix in matrices if matrix.grad is not None])
        rate, pace = group["lr"], 1 - _MUON_MOMENTUM
        if hasattr(self, "found_inf"):  # read as the fused AdamW reads it: train/static_step.py
            scaled_NRC = gradient_NRC / self.grad_scale  # type: ignore[attr-defined]
            gradient_NRC = scaled_NRC.masked_fill(self.found_inf > 0, 0.0)
            rate, pace = rate * (1 - self.found_inf), pace * (1 - self.found_inf)
        mean_NRC.lerp_(gradient_NRC, pace)
        torch._foreach_copy_(means, list(mean_NRC))
        ahead_NRC = gradient_NRC.lerp(mean_NRC, _MUON_MOMENTUM).view(-1, rows // parts, columns)
        change_NRC = rate * scale * orthogonal(ahead_NRC, rounded=group["rounded"])
        change_NRC = change_NRC.reshape(-1, rows, columns)
        torch._foreach_mul_(matrices, 1 - rate * group["weight_decay"])
        torch._foreach_sub_(matrices, list(change_NRC))


def orthogonal(matrices_NRC: Tensor, *, rounded: bool = False) -> Tensor:
    """A matrix with the same singular vectors and singular values near 1, by five Newton-Schulz steps; 0 stays 0.

    Args:
        rounded: compute in bf16, as Jordan does: that moves singular values by some 1e-2.
    """
    turned = matrices_NRC.shape[1] > matrices_NRC.shape[2]  # products with the shorter side are the cheaper ones
    x = matrices_NRC.mT if turned else matrices_NRC
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)
    x = x.bfloat16().contiguous() if rounded else x
    a, b, c = _QUINTIC
    for _ in range(5):
        gram = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if turned else x).to(matrices_NRC.dtype)


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of the next step, each group's by its share."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("share", 1.0)


def without_bias_correction(optimizer: AdamW) -> None:
    """Turn a fresh AdamW into the released code's Adam: p -= lr * (m / (sqrt(v) + eps) + decay * p).

    AdamW divides m and v by 1 - beta**step. Started at a step where that is 1, it computes exactly this update, in one
    fused kernel.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter] = _moments(parameter, torch.tensor(_FULLY_CORRECTED, device=parameter.device))


def _moments(parameter: Tensor, step: Tensor) -> dict[str, Tensor]:
    return {"step": step, "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}


class Lamb(Optimizer):
    """LAMB (You et al., 2020), which the paper's Table 5 names: Adam's direction, scaled to each tensor's own norm.

    With bias correction, decay inside the direction, and a trust ratio of |p| / |update|, 1 where either is 0. Biases
    and LayerNorm
    have neither ratio nor decay: otherwise a bias that begins at 0 could not move.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], *, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": 0.0, "betas": betas, "eps": eps, "weight_decay": 0.0, "adapts": True})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            if moving := [parameter for parameter in group["params"] if parameter.grad is not None]:
                self._move(moving, group)

    def _move(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Update the tensors of a group together."""
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter].update(_moments(parameter, torch.tensor(0.0)))
        steps, means, squares = ([self.state[one][slot] for one in parameters] for slot in SLOTS)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        beta1, beta2 = group["betas"]
        torch._foreach_add_(steps, 1)
        step = float(steps[0])
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - beta2)
        divisors = torch._foreach_sqrt(torch._foreach_div(squares, 1 - beta2**step))
        torch._foreach_add_(divisors, group["eps"])
        updates = torch._foreach_div(torch._foreach_div(means, 1 - beta1**step), divisors)
        torch._foreach_add_(updates, torch._foreach_mul(parameters, group["weight_decay"]))
        length_N, size_N = (torch.stack(torch._foreach_norm(tensors)) for tensors in (parameters, updates))
        adapts_N = (length_N > 0) & (size_N > 0) & group["adapts"]
        trust_N = torch.where(adapts_N, length_N / size_N, torch.ones_like(length_N))
        torch._foreach_mul_(updates, list(group["lr"] * trust_N))
        torch._foreach_sub_(parameters, updates)


def optimizer_tensors(network: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as named tensors: `<parameter>/<slot>`; empty before the first step for AdamW and LAMB."""
    return {
        f"{name}/{slot}": value
        for name, parameter in network.named_parameters()
        for slot, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_tensors(network: nn.Module, optimizer: Optimizer, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Restore the tensors of `optimizer_tensors`, one after another as they come."""
    names = dict(network.named_parameters())
    for full, value in tensors:
        name, _, slot = full.rpartition("/")
        parameter = names[name]
        state = optimizer.state[parameter]
        state[slot] = value.clone() if slot == "step" else value.to(parameter.device, copy=True)
        if slot == "step" and optimizer.param_groups[0].get("fused"):
            state[slot] = state[slot].to(parameter.device)


def learning_rate(step: int, *, peak: float, schedule: Schedule, warmup: float | None = None) -> float:
    """Learning rate of optimizer step `step`, counted from 0.

    `released`: peak * (1 - t/T) * min(1, t/warmup): the decay starts at once, so the peak is never quite reached.
    `linear`: up to the peak over the warm-up, then linearly to 0 at T. In both t = step + 1, as the released code ran:
    the first step already moves the weights. `wsd`: up to the peak, flat, and down to 0 over the last `decay_share` of
    T.

    Args:
        warmup: steps of warm-up, if not a whole number; None: the schedule's.
    """
    done = step + 1
    rises = schedule.warmup_steps if warmup is None else warmup
    warm = min(1.0, done / rises) if rises else 1.0
    if schedule.shape == "released":
        return peak * warm * max(0.0, 1 - done / schedule.steps)
    if schedule.shape == "wsd":
        decay = (schedule.steps - done) / max(1.0, schedule.decay_share * schedule.steps)
        return peak * max(0.0, min(warm, decay))
    if done <= rises:
        return peak * warm
    return peak * max(0.0, (schedule.steps - done) / max(1, schedule.steps - rises))


def rate_at(step: int, config: Config) -> float:
    """Learning rate of step `step` of a run: its whole schedule, or in two-stage training that of the stage it falls
    in.

    A stage of one step has a rate of 0: what is there already stays as it is.
    """
    schedule, turn, peak = config.schedule, config.first_stage_steps, config.optimizer.learning_rate
    if not turn:
        return learning_rate(step, peak=peak, schedule=schedule)
    first, steps = (0, turn) if step < turn else (turn, schedule.steps - turn)
    stage = dataclasses.replace(schedule, steps=steps, warmup_steps=min(schedule.warmup_steps, steps - 1))
    return learning_rate(step - first, peak=peak, schedule=stage)


def flat_ends(config: Config) -> frozenset[int]:
    """The steps after which the rate of a `wsd` schedule falls, one a stage: from there the run can be trained longer
    (begin/continued.py).
    """
    if config.schedule.shape != "wsd":
        return frozenset()
    turn, flat = config.first_stage_steps, 1 - config.schedule.decay_share
    lengths = {first: int(flat * count + 1e-9) for first, count in ((0, turn), (turn, config.schedule.steps - turn))}
    return frozenset(first + length for first, length in lengths.items() if length)


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
        """The objective of step `step`, in training mode as the whole is; the first step of stage 2 copies the weights
        before it.
        """
        if self._switch and step == self._switch and self._copies:
            assert isinstance(self._objective, rtd.ReplacedTokenDetection)
            two_stage.begin_from_generator(self._objective)
        return self._stages[step >= self._switch]
