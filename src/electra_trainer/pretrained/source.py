"""Where trained weights come from, to fine-tune or to begin with: a run, a folder that `transformers` loads, or the
Hub.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import safetensors.torch
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from electra_trainer.data import tokenizer as words
from electra_trainer.errors import ConfigError, MissingInputError
from electra_trainer.model.encoder import Encoder
from electra_trainer.model.initial_weights import initialize
from electra_trainer.model.networks import build_encoder
from electra_trainer.pretrained import as_modern, embedding, read_back
from electra_trainer.pretrained.located import EXPECTED, located
from electra_trainer.pretrained.pretrained import kept_encoder, load, trained_length
from electra_trainer.randomness import key
from electra_trainer.settings import records
from electra_trainer.settings.config import Model
from electra_trainer.train.begin.initial import Initial


@dataclass(frozen=True, kw_only=True)
class Source:
    """An encoder's shape, weights and tokenizer, on the CPU in fp32."""

    name: str
    """Name that was given."""
    model: Model
    weights: Mapping[str, Tensor]
    """Tensors by the encoder's own parameter names, `embeddings.word_embeddings.weight` and so on."""
    tokenizer: Tokenizer
    specials: words.Specials
    length: int
    """Longest row that it was trained on, in tokens."""
    digest: str | None = None
    """SHA-256 of weights and tokenizer, where these weights were made from those."""
    folder: Path | None = None
    """Where it was read from, for how it makes one vector of a text; None for a run."""

    def encoder(self, *, dropout: float, attention_dropout: float) -> Encoder:
        """A new encoder with these weights."""
        model = replace(self.model, hidden_dropout_prob=dropout, attention_probs_dropout_prob=attention_dropout)
        encoder = build_encoder(model)
        encoder.load_state_dict(dict(self.weights))
        return encoder

    def text(self, max_length: int) -> words.Text:
        """Text -> ids for rows of at most `max_length` tokens, or of as many as the encoder was trained on."""
        return words.Text.of(self.tokenizer, length=min(max_length, self.length))

    def embedder(self) -> embedding.Embedder:
        """The encoder that gives one vector for each text."""
        encoder, form = self.encoder(dropout=0.0, attention_dropout=0.0), embedding.read_form(self.folder)
        return embedding.Embedder(encoder=encoder, text=self.text(self.length), form=form)

    @cached_property
    def sha256(self) -> str:
        """Digest of weights and tokenizer, on which scores depend; kept, since a base model has 440 MB."""
        if self.digest is not None:
            return self.digest
        digest = hashlib.sha256(words.tokenizer_sha256(self.tokenizer).encode())
        digest.update(safetensors.torch.save(dict(self.weights)))
        return digest.hexdigest()


def load_source(name: str | Path) -> Source:
    """Load the encoder of a run (`RUN` or `RUN@STEP`), of any folder of an ELECTRA, a ModernBERT or a BERT, or of a Hub
    name such as `google/electra-small-discriminator`.

    An export with several networks gives the discriminator's encoder, or that of the main token predictor. In the
    modern block a narrower word table is multiplied with its projection, as in an export, so
    that a run and its export are fine-tuned alike.

    Raises:
        MissingInputError: there is no such folder and no such Hub name, or the Hub cannot be reached. CheckpointError:
            it does not verify, or is another architecture.
    """
    source = _as_it_is(name)
    if source.model.block == "bert" or source.model.embedding_size == source.model.hidden_size:
        return source
    model = replace(source.model, embedding_size=source.model.hidden_size)
    return replace(source, model=model, weights=as_modern.folded(source.weights), digest=source.sha256)


def _as_it_is(name: str | Path) -> Source:
    if records.is_run(name):
        run = load(name)
        encoder, model, folder = kept_encoder(run), run.networks[0].model, None
        tokenizer, length = run.tokenizer, run.length
    else:
        folder = located(name)
        bare = folder / "encoder"  # of a fine-tuned model whose head transformers does not have
        without = bare if (bare / "config.json").is_file() else folder
        folder = next(iter(read_back.network_folders(folder).values()), without)
        if not (folder / "config.json").is_file():
            meant = f"Did you mean {folder / 'model'}? " if (folder / "model" / "config.json").is_file() else ""
            raise MissingInputError(f"{name}: holds neither a run nor an encoder (no config.json). {meant}{EXPECTED}")
        encoder, model = read_back.read_encoder(folder)
        tokenizer = words.load_tokenizer(folder)
        words.require_rows(tokenizer, model.vocab_size, where=folder)
        length = trained_length(folder, model.max_position_embeddings)
    return Source(
        name=str(name),
        model=model,
        weights=_tensors(encoder),
        tokenizer=tokenizer,
        specials=words.specials_of(tokenizer, where=str(name)),
        length=length,
        folder=folder,
    )


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().contiguous() for name, tensor in network.state_dict().items()}


def untrained(source: Source, *, seed: int) -> Source:
    """A source of equal shape and tokenizer with fresh weights, the baseline of every score: `fan-in`, since an export
    does not say how its run began, and a narrow encoder computes little at a standard deviation of 0.02.
    """
    fresh = replace(source.model, initializer="fan-in")
    encoder = initialize(
        build_encoder(fresh), fresh, lambda name: torch.Generator().manual_seed(key(seed, f"weights/untrained/{name}"))
    )
    return replace(source, name=f"untrained ({source.name})", weights=encoder.state_dict())


@dataclass(frozen=True, kw_only=True)
class InitFrom:
    """Trained weights to begin pre-training with (`--init`).

    A run, an ELECTRA or BERT folder that `transformers` loads, or a Hub name; or a discriminator and its generator with
    a comma between them.
    """

    flag: ClassVar = "--init"
    name: str

    def read(self) -> Initial:
        """Read its networks. A folder of one network gives that one; without a pre-training head, the encoder alone.

        Raises:
            MissingInputError, CheckpointError, ConfigError: as `load_source`. ConfigError: the two are not a
                discriminator and a generator, or have other vocabularies.
        """
        whole = Path(self.name).exists() or records.is_run(self.name)
        read = {name: _networks(name) for name in ([self.name] if whole else self.name.split(","))}
        main, found = self.name, read.get(self.name, {})
        if len(read) > 1:
            places = {role: name for name, networks in read.items() for role in networks}
            if sorted(role for networks in read.values() for role in networks) != ["discriminator", "encoder"]:
                raise ConfigError(
                    f"--init {self.name}: expected a discriminator and its generator, such as google/electra-small-"
                    "discriminator,google/electra-small-generator. A run or an export that holds both is given alone."
                )
            main, other = places["discriminator"], places["encoder"]
            found = read[main] | {"generator": read[other]["encoder"]}
            first, second = (_as_it_is(name).tokenizer.get_vocab() for name in (main, other))
            if first != second:
                raise ConfigError(
                    f"--init {self.name}: {other} has another vocabulary than {main}. Give two of one model."
                )
        source = _as_it_is(main)
        networks = {name: _tensors(network) for name, (network, _) in found.items()}
        digest = hashlib.sha256(source.sha256.encode())
        for name, tensors in networks.items():
            digest.update(name.encode() + safetensors.torch.save(dict(tensors)))
        return Initial(
            name=self.name,
            sha256=digest.hexdigest(),
            model=source.model,
            tokenizer=source.tokenizer,
            encoder=source.weights,
            networks=networks,
            shapes={name: model for name, (_, model) in found.items()},
        )


def _networks(name: str) -> dict[str, tuple[nn.Module, Model]]:
    """Networks of a run or folder with a pre-training head, and their shapes, by role. A folder with one network yields
    the main network.
    """
    if records.is_run(name):
        return {exported.name: (exported.network, exported.model) for exported in load(name).networks}
    read = {role: read_back.read_network(part) for role, part in read_back.network_folders(located(name)).items()}
    return {role: one for role, one in read.items() if not isinstance(one[0], Encoder)}
