"""`--init`: where trained weights to begin with are read from."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
from torch import Tensor, nn

from electra_trainer.model.networks import Discriminator
from electra_trainer.pretrained.export import holds_network
from electra_trainer.pretrained.pretrained import Pretrained, load
from electra_trainer.pretrained.source import load_source, located
from electra_trainer.train.weights import Initial


@dataclass(frozen=True, kw_only=True)
class InitFrom:
    """A run folder, an exported folder, any ELECTRA folder that `transformers` loads, or a Hub name."""

    name: str

    def read(self) -> Initial:
        """Its networks. A folder of one network gives that, and one without a pre-training head the encoder alone.

        Raises:
            MissingInputError, CheckpointError, ConfigError: as `load_source`.
        """
        source = load_source(self.name)
        folder = located(self.name)
        networks = {name: _tensors(network) for name, network in _networks(folder).items()}
        digest = hashlib.sha256(source.sha256.encode())
        for name, tensors in networks.items():
            digest.update(name.encode() + safetensors.torch.save(dict(tensors)))
        return Initial(
            name=self.name, sha256=digest.hexdigest(), model=source.model, tokenizer=source.tokenizer,
            encoder=source.weights, networks=networks,
        )  # fmt: skip


def _networks(folder: Path) -> dict[str, nn.Module]:
    if (folder / "config.json").is_file() and not (folder / "checkpoints").is_dir():  # one network
        if not holds_network(folder):
            return {}
        only = load(folder)
        kept = only.discriminator or only.generator
        assert kept is not None
        return {"discriminator" if isinstance(kept, Discriminator) else "encoder": kept}
    return _named(load(folder))


def _named(pretrained: Pretrained) -> dict[str, nn.Module]:
    if pretrained.networks:
        return {exported.name: exported.network for exported in pretrained.networks}
    parts = {
        "discriminator": pretrained.discriminator,
        "generator": pretrained.generator,
        "encoder": pretrained.encoder,
    }
    return {name: network for name, network in parts.items() if network is not None}


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().contiguous() for name, tensor in network.named_parameters()}
