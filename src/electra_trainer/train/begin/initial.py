"""Trained weights that a new run begins with (`--init`): refuse those of other networks, and copy the others."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Protocol

import torch
from tokenizers import Tokenizer
from torch import Tensor

from electra_trainer.data.store import Store
from electra_trainer.errors import ConfigError
from electra_trainer.model.shared_table import SharedTable
from electra_trainer.objectives import Objective
from electra_trainer.settings import records
from electra_trainer.settings.config import Config, Model, generator_shape
from electra_trainer.settings.methods import Learned
from electra_trainer.train.weights import stored

_WINDOWS = ("local_attention", "global_attn_every_n_layers", "local_rotary_theta")
_SHAPE = (
    "vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "block", "rotary_theta",
    *_WINDOWS,
)  # fmt: skip
"""Settings that must be equal for weights to mean the same."""
_ONE: dict[str, tuple[str, ...]] = {
    "all": ("",),
    "embeddings": ("embeddings.",),
    "tables": ("embeddings.word_embeddings.", "embeddings.position_embeddings."),
    "disentangled": (),
    "none": (),
}
"""Beginnings of the tensors of an encoder that are one for both networks, by `sharing`."""


class ReadsInitial(Protocol):
    """A place that trained weights can be read from."""

    flag: ClassVar[str]
    """Flag of the command line that gives it."""

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
    words = initial.name if records.is_run(initial.name) else "FOLDER"
    if theirs != mine:
        odd = sum(theirs.get(word) != number for word, number in mine.items())
        raise ConfigError(
            f"--init {initial.name}: {odd:,} of the {len(mine):,} words of {store.folder} have another number there, "
            "or none. Weights belong to their vocabulary: prepare the text with the tokenizer of that model, `electra "
            f"prepare … --tokenizer {words}`, or with one that `electra tokenizer {words} --add-words FILE` made of it."
        )
    if _reading(initial.tokenizer) != _reading(store.tokenizer()):
        raise ConfigError(
            f"--init {initial.name}: {store.folder} was prepared with the words of that model, and reads text "
            "otherwise (case, accents or where words are split). Prepare the text with the tokenizer of that model, "
            f"`electra prepare … --tokenizer {words}`."
        )
    if facts := shape_differences(initial.model, config.model):
        flags = " ".join(f"--model.{name.replace('_', '-')} {getattr(initial.model, name)}" for name in facts)
        remedy = f"Give its --preset or its --config, or {flags}."
        raise ConfigError(
            f"--init {initial.name}: the encoder has another shape: {', '.join(facts.values())}. {remedy}"
        )
    if config.objective.uses_generator and isinstance(config.generator, Learned) and "generator" in initial.networks:
        _check_generator(initial, config)


def _reading(tokenizer: Tokenizer) -> tuple[Any, Any]:
    """The settings that decide how a text is normalised and split."""
    parts: dict[str, Any] = json.loads(tokenizer.to_str())
    normalizer = parts["normalizer"] or {}
    if normalizer.get("type") == "BertNormalizer" and normalizer["strip_accents"] is None:
        normalizer["strip_accents"] = normalizer["lowercase"]
    return normalizer, parts["pre_tokenizer"]


def shape_differences(theirs: Model, mine: Model) -> dict[str, str]:
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
    if facts := shape_differences(initial.shapes["generator"], generator_shape(config)):
        raise ConfigError(
            f"--init {initial.name}: the generator has another shape: {', '.join(facts.values())}. Set "
            "--generator.width and --generator.depth as its run had them, or give the discriminator alone."
        )
    generator = initial.networks["generator"]
    for name, tensor in initial.encoder.items():
        other = generator.get(f"electra.{name}")
        if name.startswith(_ONE[config.sharing]) and (other is None or not torch.equal(other, tensor)):
            raise ConfigError(
                f"--init {initial.name}: the generator and the discriminator differ in what sharing = "
                f"{config.sharing!r} makes one, such as {name}. Set --sharing none."
            )


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
    for name in mine.keys() & found.keys():
        if (there := tuple(found[name].shape)) != (here := tuple(mine[name].shape)):
            raise ConfigError(
                f"--init {initial.name}: {name} has shape {there} there and {here} here. Give the settings of that run "
                "(--config), or the folder of the one network that you want."
            )
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
    if depth > theirs.num_hidden_layers or shape_differences(replace(theirs, num_hidden_layers=depth), mine):
        bias = "generator_lm_head.bias"
        return {bias: tensors[bias]}, "the output bias"
    return tensors, f"the token head and the first {depth} of {theirs.num_hidden_layers} layers"


def told_of(initial: Initial, fresh: list[str], objective: Objective) -> str:
    """For the log: which networks came, what both share, what is fresh (`begin_with`), and what the learning rate
    does.
    """
    config, parts = objective.config, [name for name in initial.networks if hasattr(objective, name)]
    main = [] if {"discriminator", "encoder"} & {*parts} else ["the encoder"]  # without its head
    facts = f"weights of {initial.name}: {' and '.join(main + parts)}"
    if {"discriminator", "generator"} <= set(parts):
        facts += f" (sharing: {config.sharing})"
    if initial.new_words:
        facts += f"; {initial.new_words:,} new words begin as the mean of their pieces"
    if for_generator := _for_generator(initial, config)[1]:
        facts += f", and for the generator {for_generator}"
    if (before := initial.model.max_position_embeddings) < (positions := config.model.max_position_embeddings):
        facts += f"; positions {before:,} to {positions - 1:,} begin as copies of those from 0 on"
    heads = sorted({".".join(name.split(".")[:2]) for name in fresh})
    peak, warmup = config.optimizer.learning_rate, config.schedule.warmup_steps
    return (
        f"{facts}; fresh: {', '.join([*heads, 'moments and step count of the optimizer'])}. The learning rate begins "
        f"anew: peak {peak:g} (--optimizer.learning-rate), warm-up {warmup:,} (--schedule.warmup-steps)."
    )
