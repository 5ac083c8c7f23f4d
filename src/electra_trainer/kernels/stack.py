"""The one door between the model and its kernels: run a stack of layers by the fastest path that computes the same
function.
"""

from typing import Any

from torch import Tensor

from electra_trainer.kernels.native import layers as native


def run_layers(layers: Any, hidden_BTD: Tensor, places: Any, slots_K: Tensor | None = None) -> Tensor:
    """Output of `layers` (model/encoder.py: Layers) on hidden states [B, T, D]; `places`: what the stack itself takes,
    pieces [B, T] or Places; `slots_K`: as `Layers` has it.
    """
    if native.fits(layers, hidden_BTD):
        return native.run_layers(layers, hidden_BTD, places, slots_K)
    out: Tensor = layers(hidden_BTD, places, slots_K)
    return out
