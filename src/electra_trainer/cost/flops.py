"""Count the operations of a step, of a run and of inference, for every objective, generator and training algorithm. No
torch here.

They are counted in two ways, and every number says which:

    paper  as the authors' script for Table 1 and Figure 2 (Appendix E): a product of [m, k] and [k, n] is 2mkn
    operations, embeddings
           are looked up by products with one-hot vectors, pointwise functions count some operations an element,
           backward = forward. Only for comparison with the paper.
    real   matrix products alone, as they are needed here, 2mkn each; look-ups are free, backward = 2 x forward.
    Attention counts as if
           every token saw its whole row, or its whole window; rows of several pieces need less, as does a last layer
           that is read at masked positions alone. For hours and hardware utilisation.

Recomputation in the backward pass to save memory is not counted. Of the optimizer Muon's products are, as real: they
are a sixth of a small step, and a comparison at equal operations would otherwise favour it.
"""

import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from electra_trainer.cost import parameters
from electra_trainer.settings.config import Config, Model
from electra_trainer.settings.methods import Adversarial, TwoStage

# The authors' constants: operations per element of each pointwise function
_DROPOUT, _LAYER_NORM, _GELU, _SOFTMAX = 4, 5, 8, 5

OUTPUT_SHARE = 20 / 128
"""Share of the positions that masked language models send through the vocabulary, whatever is masked: 20 of 128, 80 of
512.
"""

_MOST_STEPS = 2**62
"""More steps than any run has, and few enough for a bisection."""


@dataclass(frozen=True, kw_only=True)
class Flops:
    """Operations, counted as the paper did and as they are needed; see the top of this file."""

    paper: float
    real: float


class Part(NamedTuple):
    """A part of the work on one row."""

    name: str
    paper: float
    """Operations of its forward pass, as the authors count."""
    real: float
    """Matrix products of its forward pass."""
    trained: bool = True
    """Whether it has a backward pass."""


def step_flops(config: Config, *, step: int = 0) -> Flops:
    """Operations of one optimizer step, forward and backward over the whole batch.

    Args:
        config: the run.
        step: which; matters in two-stage training alone.
    """
    return _step(config, step < config.first_stage_steps)


def run_flops(config: Config, *, steps: int | None = None) -> Flops:
    """Operations of the first `steps` steps of a run, by default of the whole run."""
    done = config.schedule.steps if steps is None else steps
    first = min(done, config.first_stage_steps)
    early, late = (_step(config, stage) for stage in (True, False))
    after = done - first
    return Flops(paper=first * early.paper + after * late.paper, real=first * early.real + after * late.real)


def run_cost(config: Config, *, steps: int, began: Mapping[str, Any]) -> dict[str, float]:
    """Tokens (padding included) and operations of the first `steps` steps of a run: `tokens`, `flops` (as the paper
    counts them) and `flops_real`.

    Args:
        config: the run's.
        steps: counted from the first step, of the run that it continues if there is one.
        began: what environment.json says of that run (`--continue-from`): its `step` and its cost up to there. Empty
            for other runs.
    """
    earlier = began if "tokens" in began else {"step": 0, "tokens": 0, "flops": 0, "flops_real": 0}
    now, then = (run_flops(config, steps=count) for count in (steps, earlier["step"]))
    return {
        "tokens": earlier["tokens"] + (steps - earlier["step"]) * config.tokens_per_step,
        "flops": earlier["flops"] + now.paper - then.paper,
        "flops_real": earlier["flops_real"] + now.real - then.real,
    }


def steps_for_flops(config: Config, *, flops: float, counting: Literal["paper", "real"] = "paper") -> int:
    """The largest number of steps of a whole run like `config` that does not exceed `flops`; may be 0.

    `schedule.steps` does not matter; in two-stage training both stages keep their shares of the steps.
    """
    stages = [_step(config, stage) for stage in (True, False)]
    early, late = (stage.paper if counting == "paper" else stage.real for stage in stages)

    def total(steps: int) -> float:
        first = config.phases.first_steps(steps)
        return first * early + (steps - first) * late

    most = min(int(flops / min(early, late)) + 2, _MOST_STEPS)
    return max(0, bisect.bisect_right(range(most), flops, key=total) - 1)


def infer_flops(config: Config, *, sequence_length: int = 128) -> Flops:
    """Operations of one forward pass of the main network over one row, with a binary head as in Table 1's column."""
    model, length = config.model, sequence_length
    paper = paper_encoder(model, length) + paper_replaced_head(model, length)
    return Flops(paper=paper, real=float(real_encoder(model, length) + length * real_replaced_head(model)))


def _step(config: Config, first_stage: bool) -> Flops:
    parts = row_parts(config, first_stage)
    return Flops(
        paper=config.batch.size * sum(part.paper * (2 if part.trained else 1) for part in parts),
        real=config.batch.size * sum(part.real * (3.0 if part.trained else 1.0) for part in parts)
        + muon_products(config, first_stage),
    )


def row_parts(config: Config, first_stage: bool = True) -> list[Part]:
    """The work on one row in a step. In two-stage training first the generator alone, which is frozen afterwards."""
    generator = _generator_parts(config)
    if not isinstance(config.phases, TwoStage):
        return generator + _kept_parts(config)
    if first_stage:
        return generator
    return [part._replace(trained=False) for part in generator] + _kept_parts(config)


def _generator_parts(config: Config) -> list[Part]:
    """Unigram and uniform generators cost nothing."""
    model, length, chosen = parameters.learned_generator(config), config.batch.sequence_length, parameters.slots(config)
    if model is None:
        return []
    paper = paper_encoder(model, length)
    parts = [
        Part("generator's encoder", paper, real_encoder(model, length)),
        Part("generator's token head", paper_token_head(model, length), chosen * real_token_head(model)),
    ]
    if isinstance(config.objective, Adversarial):
        # the samples come first; only when they are judged does the gradient of their log p take a separate pass
        parts.append(Part("sampling before the reward", 0.0, chosen * real_vocabulary(model), trained=False))
    return parts


def _kept_parts(config: Config) -> list[Part]:
    model, length, objective = config.model, config.batch.sequence_length, config.objective
    parts = [Part("encoder", paper_encoder(model, length), real_encoder(model, length))]
    if (guesser := parameters.guesser_of(config)) is not None:
        paper = paper_encoder(guesser, length)
        parts.append(Part("guesser", paper, real_encoder(guesser, length)))
    if objective.keeps == "discriminator":
        real = length * real_replaced_head(model)
        parts.append(Part("discriminator's head", paper_replaced_head(model, length), real))
    if objective.predicts != "none":
        share = 1.0 if objective.predicts == "all" else OUTPUT_SHARE
        paper = paper_token_head(model, length, share=share)
        parts.append(Part("token head", paper, parameters.predicted(config) * real_token_head(model)))
    width, positions = parameters.single_output(config)
    if width:
        parts.append(Part("the objective's own layer", 2.0 * width * positions, 2.0 * width * positions))
    return parts


def muon_products(config: Config, first_stage: bool = True) -> float:
    """Products of Muon's Newton-Schulz steps over the matrices of the layers that are trained; 0 with another
    optimizer.
    """
    if config.optimizer.name != "muon":
        return 0.0
    generator = parameters.learned_generator(config) if config.sharing != "all" else None
    trained = [generator, config.model, parameters.guesser_of(config)]
    if isinstance(config.phases, TwoStage):
        trained = [generator if first_stage else config.model]
    total = 0
    for model in (model for model in trained if model is not None):
        h, i = model.hidden_size, model.inner_size
        # query, key, value, output; inside
        layer = 4 * _orthogonal(h, h) + parameters.inner_matrices(model) * _orthogonal(h, i)
        total += layer * model.num_hidden_layers
    return float(total)


def _orthogonal(rows: int, columns: int) -> int:
    """Five steps of three products: of the matrix with itself, of that with itself, of both with the matrix."""
    short, long = sorted((rows, columns))
    return 5 * (4 * short * short * long + 2 * short**3)


def paper_encoder(model: Model, length: int) -> float:
    """Embeddings and layers, over one row of `length` tokens."""
    e, h = model.embedding_size, model.hidden_size
    if model.block == "modern":
        embedding = 2 * e * model.vocab_size + (2 * h * e if e != h else 0) + (_LAYER_NORM + _DROPOUT) * h
        layers = sum(_paper_modern(model, _keys(model, layer, length)) for layer in range(model.num_hidden_layers))
        return length * (layers + embedding + _LAYER_NORM * h)
    look_ups = 2 * e * (model.vocab_size + length + 2)
    project = 2 * h * e + h if e != h else 0
    embedding = look_ups + (2 + _LAYER_NORM + _DROPOUT) * e + project
    return float(length * (model.num_hidden_layers * _paper_layer(model, length) + embedding))


def paper_token_head(model: Model, length: int, *, share: float = OUTPUT_SHARE) -> float:
    """A share of the positions, through a dense layer and the vocabulary."""
    h, e, v = model.hidden_size, model.embedding_size, model.vocab_size
    head = 2 * h * e + (1 + _GELU + _LAYER_NORM) * e
    if model.block == "modern":
        head = real_token_head(model) - real_vocabulary(model) + (_GELU + _LAYER_NORM) * h
    return length * share * (head + (2 * e + _SOFTMAX + 2) * v)


def paper_replaced_head(model: Model, length: int) -> float:
    """A discriminator's head at every position; also what the authors put on an encoder to count its inference."""
    h = model.hidden_size
    dense = 2 * h * h + (1 + _GELU) * h if model.replaced_head == "two-layers" else 0
    if model.block == "modern":
        dense = 2 * h * h + (_GELU + _LAYER_NORM) * h
    return float(length * (dense + 2 * h))


def _paper_layer(model: Model, length: int) -> int:
    """One token's."""
    h, i = model.hidden_size, model.intermediate_size
    products = 8 * h * h + 4 * h * length  # queries, keys, values and output; scores and mixture
    on_scores = (1 + _SOFTMAX + _DROPOUT) * length * model.num_attention_heads
    # the authors count this LayerNorm once a token, not once a channel
    attention = products + on_scores + 4 * h + (_DROPOUT + 1) * h + _LAYER_NORM
    return attention + 4 * h * i + (1 + _GELU) * i + h + (_DROPOUT + 1) * h + _LAYER_NORM * h


def _keys(model: Model, layer: int, length: int) -> float:
    """Tokens that a token of a row sees in that layer, on average: in a layer with a window fewer at the row's ends."""
    reach = model.local_attention // 2
    if not model.is_local(layer) or reach >= length - 1:
        return length
    return 2 * reach + 1 - reach * (reach + 1) / length


def _paper_modern(model: Model, keys: float) -> float:
    """One token's in a modern layer: without biases, and with turned queries and keys, a gate, and two dropouts in
    attention. It sees `keys` tokens.
    """
    h, i, rotation = model.hidden_size, model.inner_size, 3
    products = 8 * h * h + 4 * h * keys + 6 * h * i
    on_scores = (1 + _SOFTMAX + _DROPOUT) * keys * model.num_attention_heads
    pointwise = 2 * rotation * h + _DROPOUT * h + (_GELU + 1 + _DROPOUT) * i + 2 * (1 + _LAYER_NORM) * h
    return products + on_scores + pointwise


def real_encoder(model: Model, length: int) -> float:
    """Projection and layers, over one row."""
    h, e, count = model.hidden_size, model.embedding_size, model.num_hidden_layers
    keys = sum(_keys(model, layer, length) for layer in range(count))
    attention = count * 8 * h * h + 4 * h * keys  # queries, keys, values and output; scores and mixture
    inside = count * 2 * parameters.inner_matrices(model) * h * model.inner_size
    project = 2 * h * e if e != h else 0
    return length * (attention + inside + project)


def real_token_head(model: Model) -> int:
    """One position, through a dense layer and the vocabulary; in the modern block a layer of full width, and back to
    that of the words.
    """
    e, h = model.embedding_size, model.hidden_size
    dense = 2 * h * (h + (e if e != h else 0)) if model.block == "modern" else 2 * e * h
    return dense + real_vocabulary(model)


def real_vocabulary(model: Model) -> int:
    """One position's logits."""
    return 2 * model.embedding_size * model.vocab_size


def real_replaced_head(model: Model) -> int:
    """One token."""
    return 2 * model.hidden_size * (model.hidden_size + 1 if model.replaced_head == "two-layers" else 1)
