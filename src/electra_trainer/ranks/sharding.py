"""FSDP2, `--shard`: a process keeps its part of every weight, gradient and moment, and a layer is gathered while it
computes.

The matrices of a layer are one unit. The rest is another: LayerNorms, embeddings, which both networks may share, and
heads, whose weights are read without a call of their module. So tied weights stay tied; that unit stays gathered from
the forward to the backward pass. With bf16 the matrices are sent and gathered in bf16, as autocast would round them,
without further rounded copies; the parts are fp32.
Gradients of all ranks are added in fp32, not averaged: they are already divided by the counts of all ranks. All ranks
make a forward or
backward pass together, or none. Checkpoints do not depend on it: rank 0 gets the whole, tensor by tensor.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch import Tensor, nn

from electra_trainer.errors import refuse_if
from electra_trainer.model.modern import AnyLayer, ModernLayer
from electra_trainer.ranks.failure import together
from electra_trainer.ranks.world import world
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import TwoStage

_sharded: WeakSet[nn.Module] = WeakSet()


def check_shard(config: Config, *, processes: int | None = None) -> None:
    """Refuse a config that cannot be divided among `processes` (by default those of this run).

    Raises:
        ConfigError: says what `--shard` cannot be combined with, and what to do.
    """
    size, lanes = processes or world().size, config.batch.lanes
    uneven = lanes % size != 0
    faults = {
        "--shard with --deterministic: gradients of parts are added up in an order that follows the number of "
        "processes. Leave one of the two out.": config.deterministic,
        f"--shard with optimizer.name = {config.optimizer.name!r}: it computes with whole tensors, and a process has a "
        "part of each. Set "
        "--optimizer.name adam or adamw, or leave --shard out.": config.optimizer.name in ("lamb", "muon"),
        "--shard with phases = two-stage: its stages compute with one of the networks, and the two are divided as one. "
        "Set --phases joint, or leave --shard out.": isinstance(config.phases, TwoStage),
        f"--shard with {size} processes and batch.lanes = {lanes}: processes compute together, so each has as many "
        f"lanes as the others. Start a divisor of {lanes} processes, or begin a run with a multiple of {size} as "
        "--batch.lanes.": uneven,
    }
    refuse_if(faults)


def place(network: nn.Module, device: torch.device, *, precision: str, shard: bool) -> None:
    """Move a network to its device, or, with `shard` and several processes, this process's part of it, unit by unit.

    Args:
        precision: fp32 or bf16, in which the forward pass computes.
    """
    if not shard or world().size == 1:
        network.to(device)
        return
    # Imported here: without them a process that divides nothing starts a second sooner
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device.type, (world().size,))
    rounded = torch.bfloat16 if precision == "bf16" else None
    policy = MixedPrecisionPolicy(param_dtype=rounded, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for layer in [module for module in network.modules() if isinstance(module, AnyLayer)]:
        fully_shard(_matrices(layer), mesh=mesh, mp_policy=policy)
    fully_shard(network, mesh=mesh, reshard_after_forward=False)
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    # A layer's last product is a view; FSDP warns of changes in place, and there are none
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    network.register_forward_hook(_put_away)
    _sharded.add(network)


def _matrices(layer: AnyLayer) -> list[nn.Module]:
    """A layer without its LayerNorms, in the order of the calls."""
    if isinstance(layer, ModernLayer):
        return [layer.attn, layer.mlp]
    return [layer.attention.self, layer.attention.output.dense, layer.intermediate, layer.output.dense]


def _put_away(network: nn.Module, *_: Any) -> None:
    """After a forward pass without a backward pass, keep only the part: parameters are then parts wherever they are
    read.
    """
    if not torch.is_grad_enabled():
        network.reshard()  # type: ignore[operator]


@contextmanager
def gathered_for_parts(network: nn.Module) -> Iterator[None]:
    """Within it a part of a network may be called by itself, after a forward pass of the whole; all ranks enter it
    together.
    """
    if is_sharded(network):
        with together():
            network.unshard()  # type: ignore[operator]
    yield
    if is_sharded(network):
        network.reshard()  # type: ignore[operator]


def is_sharded(network: nn.Module) -> bool:
    """Whether `place` has divided it."""
    return network in _sharded


def local(tensor: Tensor) -> Tensor:
    """The local part, in the same memory; the whole of a tensor that is not divided."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def part_of(full: Tensor, like: Tensor) -> Tensor:
    """The part of `full` that this process keeps, divided and placed as `like` is, in separate memory."""
    if not hasattr(like, "to_local"):
        return full.to(like.device, copy=True)
    from torch.distributed.tensor import distribute_tensor

    there = full.to(like.device)
    mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
    return distribute_tensor(there, mesh, placements, src_data_rank=None).clone()


@torch.no_grad()
def whole(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Divided tensors gathered, one after another, by all ranks: on rank 0 in the CPU's memory, elsewhere dropped.
    Others unchanged.
    """
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
        The norm before clipping, of all parts on all ranks: the same number everywhere, non-finite if any part is.
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
