"""Google's own checkpoint in our objective: names, weights, and the batch that its numbers were computed on."""

from pathlib import Path

import numpy as np
import torch
from benchmarks.google_curve import config
from numpy.typing import NDArray

from electra_trainer.batch import Batch, Masked
from electra_trainer.objectives.rtd import ReplacedTokenDetection
from electra_trainer.settings.methods import RTD

Arrays = dict[str, NDArray[np.generic]]
_PARTS = {
    "generator_predictions/output_bias": "generator/generator_lm_head/bias",
    "discriminator_predictions/dense_1/": "discriminator/discriminator_predictions/dense_prediction/",
    "discriminator_predictions/dense/": "discriminator/discriminator_predictions/dense/",
    "generator_predictions/": "generator/generator_predictions/",
    "generator/": "generator/electra/",
    "electra/": "discriminator/electra/",
}
_LEAVES = {"kernel": "weight", "gamma": "weight", "beta": "bias", "output_bias": "bias"}


def read(shared: Path, name: str) -> Arrays:
    """One of the .npz files."""
    with np.load(shared / "reference" / "tf" / name, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def our_name(variable: str) -> str:
    """Name of our parameter for a TF variable."""
    prefix = next(prefix for prefix in _PARTS if variable.startswith(prefix))
    parts = (_PARTS[prefix] + variable.removeprefix(prefix)).replace("layer_", "layer/").split("/")
    if parts[-1].endswith("_embeddings"):
        parts.append("weight")
    return ".".join([*parts[:-1], _LEAVES.get(parts[-1], parts[-1])])


def as_ours(variable: str, values: NDArray[np.generic]) -> torch.Tensor:
    """A TF variable, or its gradient, in our layout: kernels are [in, out] there."""
    return torch.from_numpy(np.ascontiguousarray(values.T if variable.endswith("kernel") else values))


def trained(shared: Path) -> ReplacedTokenDetection:
    """Our objective with Google's trained weights, dropout off."""
    settings = config(seed=0)
    assert isinstance(settings.objective, RTD)
    objective = ReplacedTokenDetection(settings).eval()
    fill(objective, {our_name(name): as_ours(name, values) for name, values in read(shared, "weights.npz").items()})
    return objective


def fill(network: torch.nn.Module, given: dict[str, torch.Tensor]) -> None:
    """Copy tensors into the parameters of the same names: all of them, and nothing else."""
    parameters = dict(network.named_parameters())
    assert given.keys() == parameters.keys(), given.keys() ^ parameters.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            assert parameter.shape == given[name].shape, name
            parameter.copy_(given[name])


def masked(forward: Arrays) -> Masked:
    """The eight rows as the generator saw them; slots of weight 0 (which point at position 0) are dropped."""
    names = ("input_ids", "input_mask", "segment_ids", "masked_input_ids")
    ids_BT, real_BT, segment_BT, input_BT = (torch.from_numpy(forward[name]).long() for name in names)
    position_BT = torch.arange(ids_BT.shape[1]).expand_as(ids_BT)
    batch = Batch(ids_BT=ids_BT, segment_BT=segment_BT, position_BT=position_BT, piece_BT=real_BT)
    flat_BK = forward["masked_lm_positions"] + np.arange(ids_BT.shape[0])[:, None] * ids_BT.shape[1]
    return Masked(batch=batch, input_BT=input_BT, slots_K=torch.from_numpy(flat_BK[used(forward)]).long())


def used(forward: Arrays) -> NDArray[np.bool_]:
    """Mask of the [rows, 19] slots that count."""
    found: NDArray[np.bool_] = forward["masked_lm_weights"].astype(bool)
    return found


def samples(forward: Arrays) -> torch.Tensor:
    """Samples of Google's generator at the slots that count."""
    return torch.from_numpy(forward["sampled_tokids"][used(forward)]).long()


def worst(ours: torch.Tensor, theirs: NDArray[np.generic]) -> float:
    """Largest absolute difference."""
    assert ours.shape == theirs.shape
    return float((ours.double() - torch.from_numpy(theirs).double()).abs().max())
