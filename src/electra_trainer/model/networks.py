"""The networks, heads and generators, under transformers' parameter names (§2).

Discriminator  =  transformers' ElectraForPreTraining
TokenPredictor =  transformers' ElectraForMaskedLM: ELECTRA's generator, and the whole of BERT

WordFrequencies is a generator without a network: it samples words by fixed frequencies (§3.2, "unigram"; in Google's
code "uniform").
"""

from collections.abc import Callable
from contextlib import suppress

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.kernels.stack import run_layers
from electra_trainer.model.encoder import Embeddings, Encoder
from electra_trainer.model.initial_weights import GlorotLinear, Weights, initialize
from electra_trainer.model.modern import ModernEncoder, ModernReplacedHead, PredictionHead
from electra_trainer.model.shared_table import SharedTable
from electra_trainer.settings.config import Config, Model, generator_shape
from electra_trainer.settings.methods import Learned

_TABLES = ("word_embeddings", "position_embeddings")
"""Embeddings that the paper shares; the modern block has the first alone."""


def build_encoder(model: Model, *, embeddings: Embeddings | None = None) -> Encoder:
    """An encoder of the block that `model` names, with these embeddings or new ones, run by the kernels that are
    there.
    """
    kind = ModernEncoder if model.block == "modern" else Encoder
    return kind(model, embeddings=embeddings, run=run_layers)


class Discriminator(nn.Module):
    """Says of each token whether it was replaced (§2)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.electra = build_encoder(model)
        bert = ReplacedHead if model.replaced_head == "two-layers" else PrintedReplacedHead
        self.discriminator_predictions = (ModernReplacedHead if model.block == "modern" else bert)(model)

    def forward(self, ids_BT: Tensor, batch: Batch) -> Tensor:
        """Logit of "replaced" for each token, fp32 [B, T]."""
        return self.replaced(self.electra(ids_BT, batch))

    def replaced(self, hidden_BTD: Tensor) -> Tensor:
        """Logit of "replaced" from hidden states; the head is computed in fp32, where its gradient survives."""
        return in_fp32(self.discriminator_predictions, hidden_BTD)


def in_fp32(layer: nn.Module, hidden: Tensor) -> Tensor:
    """Output of a layer without autocast."""
    with torch.autocast(hidden.device.type, enabled=False):
        out: Tensor = layer(hidden.float())
    return out


class TokenPredictor(nn.Module):
    """Predicts words at chosen positions (§2).

    Args:
        model: the shape.
        embeddings: the kept network's, to share them (§3.2); new ones if None.
        encoder: the kept network's whole encoder, to share it.
    """

    def __init__(self, model: Model, *, embeddings: Embeddings | None = None, encoder: Encoder | None = None) -> None:
        super().__init__()
        self.electra = encoder if encoder is not None else build_encoder(model, embeddings=embeddings)
        self.generator_predictions = (TokenHead if model.block == "bert" else PredictionHead)(model)
        self.generator_lm_head = VocabularyBias(model)

    def project(self, ids_BT: Tensor, batch: Batch, slots_K: Tensor) -> Tensor:
        """The flat positions `slots_K` in the space of word embeddings, [K, E]."""
        return self.as_words(self.electra(ids_BT, batch, slots_K))

    def as_words(self, hidden_ND: Tensor) -> Tensor:
        """Hidden states in the space of word embeddings, [N, E]; in the modern block the words' own projection leads
        back there.
        """
        found: Tensor = self.generator_predictions(hidden_ND)
        if isinstance(self.electra, ModernEncoder) and self.electra.embeddings_project is not None:
            found = found @ self.electra.embeddings_project.weight
        return found

    def output(self) -> tuple[Tensor, Tensor]:
        """Weight [V, E], tied to the word embeddings, and bias [V] of the softmax."""
        return self.electra.embeddings.word_embeddings.weight, self.generator_lm_head.bias

    def forward(self, ids_BT: Tensor, batch: Batch, slots_K: Tensor) -> Tensor:
        """Logits over the vocabulary at `slots_K`, fp32 [K, V]. Training does without them:
        kernels/vocabulary_softmax.py.
        """
        return F.linear(self.project(ids_BT, batch, slots_K), *self.output()).float()


def build_discriminator(config: Config, weights: Weights) -> Discriminator:
    """A freshly initialised discriminator."""
    return initialize(Discriminator(config.model), config.model, weights)


def build_masked_lm(config: Config, weights: Weights) -> TokenPredictor:
    """A freshly initialised BERT: a token predictor of the full shape."""
    return initialize(TokenPredictor(config.model), config.model, weights)


def build_generator(config: Config, kept: Encoder, weights: Weights) -> "TokenPredictor | WordFrequencies":
    """A fresh generator (§3.2), sharing with the encoder `kept` what the config says: the very same parameters."""
    if own := getattr(config.generator, "network", None):
        made: TokenPredictor = own(config, kept, weights)
        return made
    if not isinstance(config.generator, Learned):
        return WordFrequencies(config.model.vocab_size)
    shape = generator_shape(config)
    if config.sharing == "all":
        return initialize(TokenPredictor(shape, encoder=kept), shape, weights, leave=kept)
    if config.sharing == "embeddings":
        return initialize(TokenPredictor(shape, embeddings=kept.embeddings), shape, weights, leave=kept.embeddings)
    network = TokenPredictor(shape)
    if config.sharing == "none":
        return initialize(network, shape, weights)
    mine, theirs = network.electra.embeddings, kept.embeddings
    tables = {name: table for name, table in theirs.named_children() if name in _TABLES}
    for name, table in tables.items():
        setattr(mine, name, table)
        if config.sharing == "disentangled":
            assert isinstance(table, nn.Embedding)
            setattr(theirs, name, SharedTable(table))
    return initialize(network, shape, weights, leave=nn.ModuleList(tables.values()))


class TokenHead(nn.Module):
    """Hidden states -> the space of word embeddings: dense, GELU, LayerNorm. [N, D] -> [N, E]."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.dense = nn.Linear(model.hidden_size, model.embedding_size)
        self.LayerNorm = nn.LayerNorm(model.embedding_size, eps=model.layer_norm_eps)

    def forward(self, hidden_ND: Tensor) -> Tensor:
        projected: Tensor = self.LayerNorm(F.gelu(self.dense(hidden_ND)))
        return projected


class VocabularyBias(nn.Module):
    """The output bias of the tied softmax layer; its weight is the word embedding itself."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.bias = nn.Parameter(Tensor(model.vocab_size).zero_())


class ReplacedHead(nn.Module):
    """Hidden states -> the logit of "this token was replaced": dense, GELU, dense (released). [B, T, D] -> [B, T]."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.dense = nn.Linear(model.hidden_size, model.hidden_size)
        self.dense_prediction = GlorotLinear(model.hidden_size, 1)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        logits: Tensor = self.dense_prediction(F.gelu(self.dense(hidden_BTD)))
        return logits.squeeze(-1)


class PrintedReplacedHead(nn.Module):
    """The discriminator's head as the paper prints it, D = sigmoid(w·h): one linear layer without a bias. [B, T, D] ->
    [B, T].
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.prediction = GlorotLinear(model.hidden_size, 1, bias=False)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        logits: Tensor = self.prediction(hidden_BTD)
        return logits.squeeze(-1)

    @torch.no_grad()
    def as_released(self, model: Model) -> ReplacedHead:
        """The released head with the same output: gelu(z) - gelu(-z) = z, so its first layer holds w and -w, its second
        1 and -1.
        """
        head = ReplacedHead(model)
        for parameter in head.parameters():
            parameter.zero_()
        sign_2 = torch.tensor([1.0, -1.0])
        head.dense.weight[:2] = sign_2[:, None] * self.prediction.weight.cpu()
        head.dense_prediction.weight[0, :2] = sign_2
        return head


class WordFrequencies(nn.Module):
    """A distribution over the vocabulary that looks at nothing. It has no parameters; the frequencies are saved with
    the run.

    Args:
        vocab_size: V. Until `use` is called every word is as frequent as another.
    """

    cumulative_V: Tensor

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.register_buffer("cumulative_V", torch.arange(1, vocab_size + 1, dtype=torch.float64) / vocab_size)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "WordFrequencies":
        """Move to another device; stay on the CPU where that is a Mac's GPU, which has no fp64."""
        with suppress(TypeError):
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def use(self, counts_V: Tensor) -> None:
        """Take the frequencies of a corpus: occurrences of each word, [V]; a word that has none is never sampled."""
        sums_V = counts_V.double().cumsum(0)
        self.cumulative_V.copy_(sums_V / sums_V[-1])

    @property
    def probability_V(self) -> Tensor:
        """Probability of each word, fp64 [V]."""
        return self.cumulative_V.diff(prepend=self.cumulative_V.new_zeros(1))

    def sample(self, draws_K: Tensor, *, without_K: Tensor | None = None) -> Tensor:
        """The word at which the cumulative distribution passes each draw from [0, 1), int64 [K].

        Args:
            draws_K: uniform numbers.
            without_K: a word for each draw that is not to be sampled; the others keep their proportions.
        """
        device, draws_K = draws_K.device, draws_K.to(self.cumulative_V)
        if without_K is not None:
            without_K = without_K.to(draws_K.device)
            end_K = self.cumulative_V[without_K]
            start_K = torch.where(without_K > 0, self.cumulative_V[without_K - 1], 0.0)
            draws_K = draws_K * (1 - (end_K - start_K))
            # step over the word's own share
            draws_K = torch.where(draws_K >= start_K, draws_K - start_K + end_K, draws_K)
        # right=True finds the first entry above the draw, so a word of probability 0 is never taken
        found_K = torch.searchsorted(self.cumulative_V, draws_K, right=True).clamp(max=len(self.cumulative_V) - 1)
        return found_K.to(device)

    def entropy(self) -> Tensor:
        """Nats, fp64 scalar."""
        p_V = self.probability_V
        total: Tensor = -torch.special.xlogy(p_V, p_V).sum()
        return total
