"""FSDP2, `--shard`: a process keeps its part of every weight, gradient and moment, and a layer is put together while it computes.

The matrices of a layer are a unit. The rest is one: LayerNorms, embeddings, which both networks may share, and heads, whose weights are
read without a call of their module. So what is tied stays tied; that unit is together from the forward to the backward pass. In a run in
bf16 the matrices travel and are put together in bf16, as autocast would round them, and it keeps no rounded copies; the parts are fp32.
Gradients of all ranks are added in fp32, not averaged: they are divided already, by the counts of all. All ranks make a forward or
backward pass together, or none. Checkpoints know nothing of this: rank 0 gets the whole, tensor by tensor.
"""

import warnings
from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch import Tensor, nn

from electra_trainer.errors import ConfigError
from electra_trainer.model.encoder import Layer
from electra_trainer.ranks.failure import together
from electra_trainer.ranks.world import world
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import TwoStage

_sharded: WeakSet[nn.Module] = WeakSet()


def check_shard(config: Config, *, processes: int | None = None) -> None:
    """Whether a run of this config can be divided among these processes, or among so many.

    Raises:
        ConfigError: what `--shard` cannot be combined with, and what to do.
    """
    if config.deterministic:
        raise ConfigError(
            "--shard with --deterministic: gradients of parts are added up in an order that follows the number of processes. Leave one of "
            "the two out."
        )
    if config.optimizer.name == "lamb":
        raise ConfigError(
            "--shard with optimizer.name = 'lamb': it scales each tensor by its norm, and a process has a part of it. Set --optimizer.name "
            "adam or adamw, or leave --shard out."
        )
    if isinstance(config.phases, TwoStage):
        raise ConfigError(
            "--shard with phases = two-stage: its stages compute with one of the networks, and the two are divided as one. Set --phases "
            "joint, or leave --shard out."
        )
    size, lanes = processes or world().size, config.batch.lanes
    if lanes % size:
        raise ConfigError(
            f"--shard with {size} processes and batch.lanes = {lanes}: processes compute together, so each has as many lanes as the others. "
            f"Start a divisor of {lanes} processes, or begin a run with a multiple of {size} as --batch.lanes."
        )


def place(network: nn.Module, device: torch.device, *, precision: str, shard: bool) -> None:
    """Move a network to its device, or, with `shard` and several processes, this process's part of it, unit by unit.

    Args:
        precision: fp32 or bf16, in which the forward pass computes.
    """
    if not shard or world().size == 1:
        network.to(device)
        return
    # Here, since a process that does not divide anything starts a second sooner without them
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device.type, (world().size,))
    rounded = torch.bfloat16 if precision == "bf16" else None
    policy = MixedPrecisionPolicy(param_dtype=rounded, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for layer in [module for module in network.modules() if isinstance(module, Layer)]:
        fully_shard(_matrices(layer), mesh=mesh, mp_policy=policy)
    fully_shard(network, mesh=mesh, reshard_after_forward=False)
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    # A layer's last product is a view of what it is computed as; nothing changes it in place, which is what FSDP warns of
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    network.register_forward_hook(_put_away)
    _sharded.add(network)


def _matrices(layer: Layer) -> list[nn.Module]:
    """All of a layer but its LayerNorms, by the modules that are called, in the order of their calls."""
    return [layer.attention.self, layer.attention.output.dense, layer.intermediate, layer.output.dense]


def _put_away(network: nn.Module, *_: Any) -> None:
    """After a forward pass that no backward pass follows, keep the part alone: parameters are then parts wherever they are read."""
    if not torch.is_grad_enabled():
        network.reshard()  # type: ignore[operator]


def is_sharded(network: nn.Module) -> bool:
    """Whether `place` has divided it."""
    return network in _sharded


def local(tensor: Tensor) -> Tensor:
    """The part that is here, in the same memory; all of a tensor that is not divided."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def part_of(full: Tensor, like: Tensor) -> Tensor:
    """What this process keeps of `full`, divided and placed as `like` is; in memory of its own."""
    if not hasattr(like, "to_local"):
        return full.to(like.device, copy=True)
    from torch.distributed.tensor import distribute_tensor

    there = full.to(like.device)
    return distribute_tensor(there, like.device_mesh, like.placements, src_data_rank=None).clone()  # type: ignore[attr-defined]


@torch.no_grad()
def whole(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Divided tensors put together, one after another, by all ranks: on rank 0 in the CPU's memory, elsewhere dropped. Others as they are."""
    found = {}
    for name, tensor in tensors.items():
        if not hasattr(tensor, "full_tensor"):
            found[name] = tensor
            continue
        with together():
            full: Tensor = tensor.full_tensor()
        if world().leads:
            found[name] = full.cpu()
    return found


@torch.no_grad()
def clip_gradients(network: nn.Module, limit: float) -> float:
    """Scale the gradients of a network down to a global norm of `limit`.

    Returns:
        The norm before, of all parts on all ranks: one number everywhere, and not finite where any part is not.
    """
    if not is_sharded(network):
        return float(nn.utils.clip_grad_norm_(network.parameters(), limit))
    parts = [local(parameter.grad) for parameter in network.parameters() if parameter.grad is not None]
    square = nn.utils.get_total_norm(parts).double().square()
    with together():
        dist.all_reduce(square)
    norm = square.sqrt().float()
    torch._foreach_mul_(parts, (limit / (norm + 1e-6)).clamp(max=1.0))
    return float(norm)
