"""Weights of an objective: the tensors that a checkpoint stores, restoring them, and beginning with weights from
elsewhere.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from typing import Any, Protocol

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.optim import Optimizer

from electra_trainer.data.batches import uniform_counts, word_counts
from electra_trainer.data.store import Store
from electra_trainer.errors import CheckpointError, ConfigError
from electra_trainer.files.reading import short
from electra_trainer.model.networks import WordFrequencies
from electra_trainer.model.shared_table import SharedTable
from electra_trainer.objectives import Objective, build
from electra_trainer.runs.checkpoint import of_step
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.runs.verified import Saved
from electra_trainer.settings.config import Config, Model, generator_shape
from electra_trainer.settings.methods import Learned, Unigram
from electra_trainer.train.optim import optimizer_tensors

_WINDOWS = ("local_attention", "global_attn_every_n_layers", "local_rotary_theta")
_SHAPE = (
    "vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "block", "rotary_theta",
    *_WINDOWS,
)  # fmt: skip
"""Settings that must be equal for weights to mean the same."""
_ONE = {
    "all": ("",),
    "embeddings": ("embeddings.",),
    "tables": ("embeddings.word_embeddings.", "embeddings.position_embeddings."),
}
"""Beginnings of the tensors of an encoder that are one for both networks, by `sharing`, most first."""


def stored(network: nn.Module) -> dict[str, Tensor]:
    """The tensors of networks that a checkpoint stores: parameters, shared ones named once, and buffers such as word
    frequencies.
    """
    return {**dict(network.named_parameters()), **dict(network.named_buffers())}


def restore(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy a checkpoint's weights into networks of the same config.

    Raises:
        CheckpointError: names, shapes or types of numbers differ.
    """
    mine = stored(network)
    if mine.keys() != weights.keys():
        odd = sorted(mine.keys() ^ weights.keys())[:3]
        raise CheckpointError(f"the checkpoint's tensors are not those of this config, for example {', '.join(odd)}.")
    for name, tensor in mine.items():
        there, here = ((f"shape {tuple(one.shape)}", str(one.dtype)) for one in (weights[name], tensor))
        for theirs, ours in zip(there, here, strict=True):
            if theirs != ours:
                raise CheckpointError(f"tensor {name} has {theirs} in the checkpoint, {ours} in this config.")
    with torch.no_grad():
        for name, tensor in mine.items():
            tensor.copy_(weights[name])


def trained(folder: RunFolder, config: Config, *, step: int | None = None) -> tuple[Objective, int]:
    """The networks of a run with the weights of a checkpoint, by default the newest, and its step.

    They are built only when the checkpoint is known to be the run's: a config.json may ask for any size.

    Raises:
        MissingInputError, CheckpointError, StorageError: as checkpoint.of_step and `restore`.
    """
    built = cache(partial(build, config))
    saved = of_step(folder.checkpoints, step, origin=folder.origin, network=built)
    restore(built(), saved.weights)
    return built(), saved.step


def state_of(network: nn.Module, optimizer: Optimizer, *, step: int, seconds: float, bad_steps: int = 0) -> Saved:
    """The content of a checkpoint of a run."""
    moments, state = optimizer_tensors(network, optimizer), {"seconds": seconds, "bad_steps": bad_steps}
    return Saved(step=step, weights=stored(network), optimizer=moments, state=state)


def give_frequencies(objective: Objective, store: Store) -> None:
    """Give a generator that samples by word frequency those of the training rows."""
    for module in objective.modules():
        if isinstance(module, WordFrequencies):
            counts = word_counts if isinstance(objective.config.generator, Unigram) else uniform_counts
            module.use(torch.from_numpy(counts(store)))


class ReadsInitial(Protocol):
    """A place that trained weights can be read from."""

    @property
    def name(self) -> str:
        """As it was given."""

    def read(self) -> "Initial":
        """The weights; raises MissingInputError, CheckpointError or ConfigError."""


@dataclass(frozen=True, kw_only=True)
class Initial:
    """Trained weights that a new run begins with (`--init`)."""

    name: str
    """Where they are from, as it was given."""
    sha256: str
    """Hash of all weights."""
    model: Model
    """Shape of the encoder."""
    tokenizer: Tokenizer
    encoder: Mapping[str, Tensor]
    """The main encoder, by its own parameter names."""
    networks: Mapping[str, Mapping[str, Tensor]]
    """All networks by the name of their export: discriminator, generator, encoder."""
    shapes: Mapping[str, Model] = field(default_factory=dict)
    """Shapes of each of them, where they are known."""
    new_words: int = 0
    """Words that the run's vocabulary has in addition; see new_words.py."""

    @property
    def identity(self) -> dict[str, str]:
        """Facts that a run records of them."""
        return {"name": self.name, "sha256": self.sha256}


def check_initial(initial: Initial, config: Config, store: Store) -> None:
    """Refuse weights that a run of `config` on these rows cannot begin with.

    Raises:
        ConfigError: the vocabulary or a network's shape differs, or two networks differ in what `config` shares; says
            the flags to give.
    """
    theirs, mine = initial.tokenizer.get_vocab(), store.tokenizer().get_vocab()
    if theirs != mine:
        odd = sum(theirs.get(word) != number for word, number in mine.items())
        raise ConfigError(
            f"--init {initial.name}: {odd:,} of the {len(mine):,} words of {store.folder} have another number there, "
            "or none. Weights belong to their vocabulary: prepare the text with the tokenizer of that model, `electra "
            "prepare … --tokenizer FOLDER`, or with one that `electra tokenizer FOLDER --add-words FILE` made of it."
        )
    if apart := _read_apart(initial.tokenizer, store.tokenizer()):
        raise ConfigError(
            f"--init {initial.name}: {store.folder} was prepared with the words of that model, and reads text "
            f"otherwise ({apart}). Prepare the text with the tokenizer of that model, `electra prepare … --tokenizer "
            "FOLDER`."
        )
    if facts := _differences(initial.model, config.model):
        flags = " ".join(f"--model.{name.replace('_', '-')} {getattr(initial.model, name)}" for name in facts)
        remedy = f"Give its --preset or its --config, or {flags}."
        raise ConfigError(
            f"--init {initial.name}: the encoder has another shape: {', '.join(facts.values())}. {remedy}"
        )
    if config.objective.uses_generator and isinstance(config.generator, Learned) and "generator" in initial.networks:
        _check_generator(initial, config)


def _read_apart(one: Tokenizer, other: Tokenizer) -> str:
    """The first difference in how two tokenizers normalise or split a text, in words; empty if there is none."""
    first, second = (_reading(tokenizer) for tokenizer in (one, other))
    odd = next((name for name in sorted(first.keys() | second.keys()) if first.get(name) != second.get(name)), None)
    return "" if odd is None else f"{odd}: {short(first.get(odd))} there, {short(second.get(odd))} here"


def _reading(tokenizer: Tokenizer) -> dict[str, Any]:
    parts: dict[str, Any] = json.loads(tokenizer.to_str())
    normalizer = parts["normalizer"] or {}
    if normalizer.get("type") == "BertNormalizer" and normalizer["strip_accents"] is None:
        normalizer["strip_accents"] = normalizer["lowercase"]
    return {**normalizer, "type": normalizer.get("type"), "pre_tokenizer": parts["pre_tokenizer"]}


def _differences(theirs: Model, mine: Model) -> dict[str, str]:
    """Differences between two shapes, in words, by the name of the setting. More positions are allowed, see
    `begin_with`.
    """
    there, here = asdict(theirs), asdict(mine)
    there["max_position_embeddings"] = max(there["max_position_embeddings"], here["max_position_embeddings"])
    if theirs.block == mine.block == "modern":  # without a table of positions
        there["max_position_embeddings"] = here["max_position_embeddings"]
    if not (theirs.has_windows or mine.has_windows):  # a network of one layer
        there |= {name: here[name] for name in _WINDOWS}
    if theirs.block == mine.block and theirs.inner_size == mine.inner_size:
        here["intermediate_size"] = theirs.intermediate_size  # an export has the width as built
    return {name: f"{name} {there[name]} there and {here[name]} here" for name in _SHAPE if there[name] != here[name]}


def _check_generator(initial: Initial, config: Config) -> None:
    """Refuse a generator of another shape, or one that differs from the main encoder where `config` makes both one."""
    theirs = initial.shapes["generator"]
    if facts := _differences(theirs, generator_shape(config)):
        raise ConfigError(
            f"--init {initial.name}: the generator has another shape: {', '.join(facts.values())}. "
            f"{_generator_flags(theirs, config)}"
        )
    generator = initial.networks["generator"]
    odd = [name for name, tensor in initial.encoder.items() if not _same(generator.get(f"electra.{name}"), tensor)]
    if apart := [name for name in odd if name.startswith(_ONE.get(config.sharing, ()))]:
        fitting = (mode for mode, prefixes in _ONE.items() if not any(name.startswith(prefixes) for name in odd))
        raise ConfigError(
            f"--init {initial.name}: the generator and the discriminator differ in what sharing = {config.sharing!r} "
            f"makes one, such as {apart[0]}. Set --sharing {next(fitting, 'none')}."
        )


def _same(one: Tensor | None, other: Tensor) -> bool:
    return one is not None and torch.equal(one, other)


def _generator_flags(theirs: Model, config: Config) -> str:
    """The flags that give a generator of that shape."""
    assert isinstance(config.generator, Learned)
    width = theirs.hidden_size / config.model.hidden_size
    depth = theirs.num_hidden_layers / config.model.num_hidden_layers
    generator = replace(config.generator, width=width, depth=depth)
    with suppress(ConfigError):
        if not _differences(theirs, generator_shape(replace(config, generator=generator))):
            return f"Set --generator.width {width:.6g} --generator.depth {depth:.6g}."
    return "No --generator.width and --generator.depth give it: give the discriminator alone."


def begin_with(objective: Objective, initial: Initial) -> list[str]:
    """Copy trained weights into an objective: into its main encoder, whatever both call it, and into networks of equal
    name.

    A masked language model is also a generator of equal widths, which takes its first layers; a narrower one takes its
    output bias. Of disentangled tables the difference to the generator's is taken; without a trained generator they are
    its tables too. Positions beyond those of a trained table begin as copies of it, from its first position on, so that
    neighbours look alike everywhere (Longformer).

    Returns:
        Names of the tensors without trained weights, which stay freshly initialised.

    Raises:
        ConfigError: a network has another shape.
    """
    kept = getattr(objective.exported()[0].network, "electra", None)
    prefix = next(name for name, module in objective.named_modules() if module is kept)
    networks = {**initial.networks, prefix: initial.encoder}
    networks.setdefault("generator", _for_generator(initial, objective.config)[0])
    positions = objective.config.model.max_position_embeddings
    found = {
        f"{network}.{name}": _repeated(tensor, positions) if "position_embeddings." in name else tensor
        for network, tensors in networks.items()
        for name, tensor in tensors.items()
    }
    mine = stored(objective)
    for name, module in objective.named_modules():
        if isinstance(module, SharedTable) and (table := found.get(f"{name}.weight")) is not None:
            base = next(one for one, tensor in mine.items() if tensor is module.base.weight)
            found[f"{name}.delta"] = table - found.setdefault(base, table)
    for name, tensor in mine.items():
        if name in found and found[name].shape != tensor.shape:
            shapes = f"{tuple(found[name].shape)} there and {tuple(tensor.shape)} here"
            remedy = (
                "Give the settings of that run (--config), or export it and give the folder of the one network that "
                "you want."
            )
            raise ConfigError(f"--init {initial.name}: {name} has shape {shapes}. {remedy}")
    with torch.no_grad():
        for name in mine.keys() & found.keys():
            mine[name].copy_(found[name])
    return sorted(mine.keys() - found.keys())


def _repeated(table: Tensor, rows: int) -> Tensor:
    """The table, repeated until it has that many rows."""
    return table.repeat(-(-rows // len(table)), 1)[:rows] if rows > len(table) else table


def _for_generator(initial: Initial, config: Config) -> tuple[Mapping[str, Tensor], str]:
    """Tensors that the generator takes from a masked language model, and their name in words; none where `initial`
    brings a generator.
    """
    learned = config.objective.uses_generator and isinstance(config.generator, Learned)
    if not learned or "encoder" not in initial.networks or "generator" in initial.networks:
        return {}, ""
    tensors, theirs, mine = initial.networks["encoder"], initial.shapes["encoder"], generator_shape(config)
    depth = mine.num_hidden_layers
    if depth > theirs.num_hidden_layers or _differences(replace(theirs, num_hidden_layers=depth), mine):
        bias = "generator_lm_head.bias"
        return {bias: tensors[bias]}, "the output bias"
    return tensors, f"the token head and the first {depth} of {theirs.num_hidden_layers} layers"


def told_of(initial: Initial, fresh: list[str], objective: Objective) -> str:
    """For the log: which networks came, what both share, what is fresh (`begin_with`), and what the learning rate
    does.
    """
    config, parts = objective.config, [name for name in initial.networks if hasattr(objective, name)]
    facts = f"weights of {initial.name}: {' and '.join(parts) or 'the encoder'}"
    if {"discriminator", "generator"} <= set(parts):
        facts += f" (sharing: {config.sharing})"
    if initial.new_words:
        facts += f"; {initial.new_words:,} new words begin as the mean of their pieces"
    if for_generator := _for_generator(initial, config)[1]:
        facts += f", and for the generator {for_generator}"
    if (before := initial.model.max_position_embeddings) < (positions := config.model.max_position_embeddings):
        facts += f"; positions {before:,} to {positions - 1:,} begin as copies of those from 0 on"
    facts += f"; fresh: {', '.join([*parts_of(fresh), 'moments and step count of the optimizer'])}. "
    if any(name.startswith("generator.") for name in fresh) and parts == ["discriminator"]:
        facts += "--init DISCRIMINATOR,GENERATOR begins with a trained generator too. "
    moves, warmup = config.optimizer, config.schedule.warmup_steps
    rates = f"{moves.learning_rate:g} (--optimizer.learning-rate)"
    if moves.name == "muon":
        rates += f", for matrices {moves.muon_learning_rate:g} (--optimizer.muon-learning-rate)"
    facts += f"The learning rate begins anew: peak {rates}, warm-up {warmup:,} (--schedule.warmup-steps)."
    return facts


def parts_of(names: list[str]) -> list[str]:
    """Names of tensors reduced to parts of networks: `["generator.electra.a", "generator.electra.b"]` ->
    `["generator.electra"]`.
    """
    return sorted({".".join(name.split(".")[:2]) for name in names})
