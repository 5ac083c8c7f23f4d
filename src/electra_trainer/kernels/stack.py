"""The one door between the model and its kernels: run a stack of layers by the fastest path that computes the same
function.
"""

from typing import Any

from torch import Tensor

from electra_trainer.kernels.declared import Stack
from electra_trainer.kernels.gpu import gpu_stack
from electra_trainer.kernels.native import layers as native


def run_layers(layers: Stack, hidden_BTD: Tensor, places: Any) -> Tensor:
    """Output of `layers` on hidden states [B, T, D]; `places`: what the stack itself takes, pieces [B, T] or Places."""
    if native.fits(layers, hidden_BTD):
        return native.run_layers(layers, hidden_BTD, places)
    if on_a_gpu(hidden_BTD) and any(used := gpu_stack.choose(layers, hidden_BTD)):
        return gpu_stack.run_layers(layers, hidden_BTD, places, used)
    return layers(hidden_BTD, places)


def on_a_gpu(tensor: Tensor) -> bool:
    """True where kernels for GPUs may run; tests have it say so of CPUs."""
    return tensor.device.type == "cuda"
