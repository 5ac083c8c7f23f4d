"""The one door between the model and its kernels: run a stack of layers by the fastest path that computes the same function."""

from typing import Literal

from torch import Tensor

from electra_trainer.kernels.declared import Stack
from electra_trainer.kernels.gpu import gpu_stack
from electra_trainer.kernels.native import layers as native

Path = Literal["native", "gpu", "plain"]


def run_layers(layers: Stack, hidden_BTD: Tensor, piece_BT: Tensor) -> Tensor:
    """Output of `layers` on hidden states [B, T, D]; a token attends to those of its own piece."""
    if native.fits(layers, hidden_BTD):
        return native.run_layers(layers, hidden_BTD, piece_BT)
    if on_a_gpu(hidden_BTD) and any(used := gpu_stack.choose(layers, hidden_BTD)):
        return gpu_stack.run_layers(layers, hidden_BTD, piece_BT, used)
    return layers(hidden_BTD, piece_BT)


def path_of(layers: Stack, hidden_BTD: Tensor) -> tuple[Path, str]:
    """The path that `run_layers` takes, and why it is not a faster one (empty: it is the fastest)."""
    if hidden_BTD.device.type == "cpu":
        reason = native.why_not(layers, hidden_BTD)
        return ("plain", reason) if reason else ("native", "")
    if on_a_gpu(hidden_BTD) and any(gpu_stack.choose(layers, hidden_BTD)):
        return "gpu", ""
    return "plain", f"no own kernel is in use on {hidden_BTD.device}"


def on_a_gpu(tensor: Tensor) -> bool:
    """True where kernels for GPUs may run; tests have it say so of CPUs."""
    return tensor.device.type == "cuda"
