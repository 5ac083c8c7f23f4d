"""The peer: ELECTRA on `transformers` as people wire it, which is what our speed is compared with.

`transformers` ships the two networks, ElectraForMaskedLM and ElectraForPreTraining, and no pre-training. The public recipes
that put them together agree on these things, and so does this file, which is written anew from that description (for the
modern block with ModernBertForMaskedLM and ModernBertForTokenClassification, each with its own word table):

    - the embeddings (word, position, type, LayerNorm) are one module that both networks use, and the generator's output
      matrix is the word embedding;
    - the generator computes logits over the whole vocabulary at every position; the masked rows are then picked out by a
      boolean mask, for the cross-entropy and for the samples;
    - samples are the argmax of fp32 logits plus Gumbel noise over the whole vocabulary;
    - the discriminator's loss is the mean binary cross-entropy over all tokens that are not padding, times 50;
    - attention_mask and token_type_ids are given; dropout is that of the configuration (0.1); attention is transformers' choice;
    - torch.optim.Adam as it comes, gradients clipped to a norm of 1.0;
    - fp32, or bf16 by autocast, or bf16 with both networks under torch.compile.

The tuned peer is what somebody who knows PyTorch makes of that in an hour, ours being compared with the best that is near at hand: the
vocabulary at masked positions only, no attention_mask (rows are full), both losses and the samples in one function under torch.compile
with `reduce-overhead`, and the fused Adam.

In its favour: masks are made before the clock starts, so no data loading or masking is charged to it, and its whole batch goes
through at once, as where memory allows. Learning-rate schedule and logging, which cost little, are left out.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.batch import Masked
from electra_trainer.pretrained.as_modern import modern_table
from electra_trainer.settings.config import Config, Model, generator_shape
from electra_trainer.settings.methods import RTD
from electra_trainer.train.device import autocast
from electra_trainer.train.step import Feed

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is looked up: the networks begin with random weights
_BATCHES = 4


@dataclass(frozen=True)
class Examples:
    """A batch as the recipes hold it: all [B, T]."""

    labels_BT: Tensor  # int64, the original ids
    input_BT: Tensor  # int64, with [MASK]
    masked_BT: Tensor  # bool, the positions that are predicted
    attention_BT: Tensor  # int64, 1 on real tokens
    segment_BT: Tensor  # int64

    @classmethod
    def of(cls, masked: Masked) -> Examples:
        """The very masks of our own step."""
        chosen = torch.zeros_like(masked.input_BT, dtype=torch.bool)
        chosen.view(-1)[masked.slots_K] = True
        batch = masked.batch
        return cls(batch.ids_BT, masked.input_BT, chosen, batch.real_BT.long(), batch.segment_BT)


def electra_config(model: Model, **more: object) -> object:
    """transformers' configuration of the same shape."""
    from transformers import ElectraConfig

    fields = {name: value for name, value in asdict(model).items() if not name.endswith("initializer")}
    return ElectraConfig(**fields, **more)


class Modern(nn.Module):
    """A ModernBERT of transformers with the arguments and the logits of its ELECTRA; its own table, as wide as it is."""

    def __init__(self, model: Model, kind: str) -> None:
        super().__init__()
        import transformers

        table = modern_table(replace(model, embedding_size=model.hidden_size), pad_id=0) | {"num_labels": 1}
        self.network = getattr(transformers, kind)(transformers.ModernBertConfig(**table))

    def forward(self, *, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> SimpleNamespace:
        """Words of one segment, so that `token_type_ids` says nothing."""
        logits = self.network(input_ids=input_ids, attention_mask=attention_mask).logits
        return SimpleNamespace(logits=logits.squeeze(-1))


def build_networks(config: Config) -> nn.ModuleDict:
    """`generator` and `discriminator`, embeddings tied; of ModernBERT each with its own."""
    from transformers import ElectraForMaskedLM, ElectraForPreTraining

    if config.model.block == "modern":
        return nn.ModuleDict(
            {
                "generator": Modern(generator_shape(config), "ModernBertForMaskedLM"),
                "discriminator": Modern(config.model, "ModernBertForTokenClassification"),
            }
        )
    generator = ElectraForMaskedLM(electra_config(generator_shape(config)))
    discriminator = ElectraForPreTraining(electra_config(config.model))
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    return nn.ModuleDict({"generator": generator, "discriminator": discriminator})


def generator_loss(generator: nn.Module, examples: Examples) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy at the masked positions, and the logits there [K, V]."""
    logits_BTV = generator(
        input_ids=examples.input_BT, attention_mask=examples.attention_BT, token_type_ids=examples.segment_BT
    ).logits
    logits_KV = logits_BTV[examples.masked_BT]
    return F.cross_entropy(logits_KV.float(), examples.labels_BT[examples.masked_BT]), logits_KV


def gumbel_samples(logits_KV: Tensor) -> Tensor:
    """One draw from the softmax of each row, int64 [K]."""
    zero = torch.zeros((), device=logits_KV.device)
    noise_KV = torch.distributions.Gumbel(zero, zero + 1).sample(logits_KV.shape)
    return (logits_KV.detach().float() + noise_KV).argmax(-1)


def discriminator_loss(discriminator: nn.Module, examples: Examples, samples_K: Tensor) -> Tensor:
    """Mean binary cross-entropy of "replaced" over all tokens that are not padding."""
    corrupted_BT = examples.input_BT.clone()
    corrupted_BT[examples.masked_BT] = samples_K
    logits_BT = discriminator(
        input_ids=corrupted_BT, attention_mask=examples.attention_BT, token_type_ids=examples.segment_BT
    ).logits
    real_BT = examples.attention_BT.bool()
    replaced_BT = corrupted_BT != examples.labels_BT
    return F.binary_cross_entropy_with_logits(logits_BT[real_BT].float(), replaced_BT[real_BT].float())


def exponential(logits_KV: Tensor) -> Tensor:
    """Numbers of the exponential distribution; the negative logarithm of one is Gumbel noise."""
    return torch.empty_like(logits_KV, dtype=torch.float32).exponential_()


def tuned_loss(
    networks: nn.ModuleDict, weight: float, ids_BT: Tensor, input_BT: Tensor, segment_BT: Tensor, slots_K: Tensor
) -> Tensor:
    """Both losses over full rows; `slots_K` are the masked positions in the flat batch."""
    generator, discriminator = networks["generator"], networks["discriminator"]
    hidden_BTD = generator.electra(input_ids=input_BT, token_type_ids=segment_BT).last_hidden_state
    hidden_KD = hidden_BTD.flatten(0, 1)[slots_K]
    logits_KV = generator.generator_lm_head(generator.generator_predictions(hidden_KD)).float()
    samples_K = (logits_KV.detach() - exponential(logits_KV).log()).argmax(-1)
    corrupted_BT = input_BT.flatten().index_copy(0, slots_K, samples_K).view_as(input_BT)
    replaced_BT = (corrupted_BT != ids_BT).float()
    logits_BT = discriminator(input_ids=corrupted_BT, token_type_ids=segment_BT).logits.float()
    token_loss = F.cross_entropy(logits_KV, ids_BT.flatten()[slots_K])
    return token_loss + weight * F.binary_cross_entropy_with_logits(logits_BT, replaced_BT)


class Pretraining:
    """Whole training steps of the recipe."""

    def __init__(self, config: Config, feed: Feed, *, precision: str, compiled: bool, tuned: bool = False) -> None:
        assert isinstance(config.objective, RTD)
        self.weight, self.device, self.precision = config.objective.weight, feed.device, precision
        torch.manual_seed(config.seed)
        networks = build_networks(config).to(feed.device).train()
        self.parameters = list(networks.parameters())  # a shared one is listed once
        self.generator, self.discriminator = networks["generator"], networks["discriminator"]
        if compiled and not tuned:
            self.generator, self.discriminator = torch.compile(self.generator), torch.compile(self.discriminator)
        self.optimizer = torch.optim.Adam(self.parameters, lr=config.optimizer.learning_rate, fused=tuned)
        self.batches = [Examples.of(feed.lanes(step)[0][0]) for step in range(_BATCHES)]
        self.slots = [batch.masked_BT.flatten().nonzero().squeeze(1) for batch in self.batches] if tuned else []
        self.tuned = partial(tuned_loss, networks, self.weight)
        if tuned and compiled:
            self.tuned = torch.compile(self.tuned, mode="reduce-overhead")
        self.steps = 0

    def loss(self) -> Tensor:
        """Of the next batch."""
        number = self.steps % _BATCHES
        examples = self.batches[number]
        with autocast(self.precision, self.device):
            if self.slots:
                return self.tuned(examples.labels_BT, examples.input_BT, examples.segment_BT, self.slots[number])
            token_loss, logits_KV = generator_loss(self.generator, examples)
            samples_K = gumbel_samples(logits_KV)
            return token_loss + self.weight * discriminator_loss(self.discriminator, examples, samples_K)

    def step(self) -> None:
        self.loss().backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
