"""The rows of the authors' table of training costs (Appendix E), counted from each architecture. No torch here.

Eleven follow from the authors' formulas (paper.py); BERT's, ELECTRA's, RoBERTa's and ALBERT's are configurations like any other. GPT and T5 have
parts that ours have not. ELMo and XLNet the authors did not count but measured, with TensorFlow's own counter: for those the
measured forward pass stands here as a number, and `train_real` is worked out from the architecture, which explains 99.6 % of it.

`real` counts every row as it is needed: look-ups free, backward = 2 x forward, the vocabulary at predicted positions alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from electra_trainer.cost import matrix_products, paper_flops
from electra_trainer.cost.flops import infer_flops, run_flops
from electra_trainer.errors import ConfigError, did_you_mean
from electra_trainer.presets.paper_rows import PRESETS, preset
from electra_trainer.settings.config import BatchShape, Config, Model, Schedule
from electra_trainer.settings.methods import MLM

_INFER_LENGTH = 128
"""Tokens that Table 1's inference reads."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What `electra flops` prints of a row; operations."""

    train_paper: float
    train_real: float
    infer_paper: float
    """One row of 128 tokens through the encoder and a binary head."""


def cost_of(name: str, *, norm_slip: bool = paper_flops.NORM_SLIP) -> Cost:
    """Cost of a published row or of a preset; where both have a name, of the published row.

    Raises:
        ConfigError: no row and no preset has this name.
    """
    if name in PUBLISHED:
        return PUBLISHED[name](norm_slip)
    if name not in PRESETS:
        known = f"{', '.join(PUBLISHED)}, all, and every preset (electra show all)"
        raise ConfigError(f"Unknown name {name!r}.{did_you_mean(name, [*PUBLISHED, *PRESETS])} Known: {known}.")
    return of_config(preset(name), norm_slip)


def of_config(config: Config, norm_slip: bool = paper_flops.NORM_SLIP) -> Cost:
    """Cost of a configuration."""
    train = run_flops(config, norm_slip=norm_slip)
    infer = infer_flops(config, sequence_length=_INFER_LENGTH, norm_slip=norm_slip)
    return Cost(train_paper=train.paper, train_real=train.real, infer_paper=infer.paper)


def _bert_large(norm_slip: bool) -> Cost:
    """The original BERT-Large: 1M steps of 256 rows of 512 tokens. The preset `bert_large` is another run, "BERT (ours)"."""
    return of_config(_sized(preset("bert_large"), rows=256, steps=1_000_000), norm_slip)


def _roberta(norm_slip: bool) -> Cost:
    """RoBERTa: BERT-Large with 50,265 words; 500,000 steps of 8,000 rows of 512 tokens, 15 % masked."""
    large = preset("bert_large")
    config = replace(large, model=replace(large.model, vocab_size=50265))
    return of_config(_sized(config, rows=8000, steps=500_000), norm_slip)


def _albert(norm_slip: bool) -> Cost:
    """ALBERT xxlarge: 12 layers of width 4,096 with 64 heads (one set of weights, which saves no operation), embeddings of 128,
    30,000 words; 1.5M steps of 4,096 rows of 512 tokens, 15 % masked.
    """
    model = Model(
        vocab_size=30000,
        embedding_size=128,
        hidden_size=4096,
        num_hidden_layers=12,
        num_attention_heads=64,
        intermediate_size=16384,
    )
    return of_config(_sized(Config(model=model, objective=MLM()), rows=4096, steps=1_500_000), norm_slip)


def _sized(config: Config, *, rows: int, steps: int, length: int = 512) -> Config:
    return replace(config, batch=BatchShape(size=rows, sequence_length=length), schedule=Schedule(steps=steps))


def _gpt(norm_slip: bool) -> Cost:
    """GPT: BERT-Base's layers, 40,000 words, every one of 512 positions predicted; 960,800 steps of 128 rows.

    paper: with the dense layer before the softmax that BERT has and GPT has not. real: without.
    """
    model = replace(preset("bert_base").model, vocab_size=40000)
    length, rows = 512, 128 * 960_800
    counted = paper_flops.encoder(model, length, norm_slip=norm_slip) + paper_flops.token_head(model, length, share=1.0)
    needed = matrix_products.encoder(model, length) + length * matrix_products.vocabulary(model)
    return Cost(
        train_paper=2.0 * rows * counted, train_real=3.0 * rows * needed, infer_paper=_inference(model, norm_slip)
    )


def _t5_11b(norm_slip: bool) -> Cost:
    """T5 11B: 24 + 24 layers of width 1,024, 128 heads of 128, feed-forward width 65,536, 32,000 words; 1M steps of 2,048 rows.

    paper: both stacks read 512 tokens, the encoder has no softmax, the decoder one at every position, and the authors count
    mixture and output of attention as wide as the hidden states. real: heads at their width, no dense layer before the softmax, and a
    decoder that reads its 114 targets (15 % of 512 tokens in spans of 3, a sentinel each).
    """
    heads, head_size, length, targets, rows = 128, 128, 512, 114, 2048 * 1_000_000
    model = Model(
        vocab_size=32000,
        embedding_size=1024,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=heads,
        intermediate_size=65536,
    )

    def stacks(tokens: int) -> float:
        return sum(
            paper_flops.encoder(model, tokens, attentions=count, head_size=head_size, norm_slip=norm_slip)
            for count in (1, 2)
        )

    counted = stacks(length) + paper_flops.token_head(model, length, share=1.0)
    width, joined = model.hidden_size, heads * head_size
    encoder_layer = matrix_products.attention(width, joined, queries=length, keys=length)
    decoder_layer = matrix_products.attention(width, joined, queries=targets, keys=targets)
    decoder_layer += matrix_products.attention(width, joined, queries=targets, keys=length)
    layers = encoder_layer + decoder_layer + matrix_products.feed_forward(model, length + targets)
    needed = model.num_hidden_layers * layers + targets * matrix_products.vocabulary(model)
    return Cost(
        train_paper=2.0 * rows * counted,
        train_real=3.0 * rows * needed,
        infer_paper=stacks(_INFER_LENGTH) + paper_flops.replaced_head(model, _INFER_LENGTH),
    )


def _inference(model: Model, norm_slip: bool) -> float:
    return paper_flops.encoder(model, _INFER_LENGTH, norm_slip=norm_slip) + paper_flops.replaced_head(
        model, _INFER_LENGTH
    )


ELMO_MEASURED = 568_093_262_680
"""Operations of a forward pass over 20 rows of 128 words, as TensorFlow counted them for the authors."""


def _elmo(norm_slip: bool) -> Cost:
    """ELMo: 10 epochs over the 768,648,884 words of the One Billion Word Benchmark. It has no LayerNorm, so no slip.

    paper: the measured forward pass. Inference leaves out the sampled softmax, which is of training alone.
    """
    words, epochs, length = 768_648_884, 10, 128
    measured = ELMO_MEASURED / (20 * length)
    return Cost(
        train_paper=2.0 * epochs * words * measured,
        train_real=3.0 * epochs * words * (elmo_word() + elmo_softmax()),
        infer_paper=_INFER_LENGTH * (measured - elmo_softmax()),
    )


def elmo_word() -> int:
    """Matrix products of one word, softmax left out.

    Two directions of two LSTM layers with 4,096 cells, each layer projected to 512. The word is read from its 50 characters,
    embedded in 16, by filters of width 1 to 7, then two highway layers of 2,048 and a projection to 512.
    """
    cells, projected, characters, character_size = 4096, 512, 50, 16
    gates = 4 * cells * (projected + projected)
    recurrent = 2 * 2 * (gates + cells * projected)
    filters = {1: 32, 2: 32, 3: 64, 4: 128, 5: 256, 6: 512, 7: 1024}
    convolved = sum(wide * count * (characters - wide + 1) for wide, count in filters.items()) * character_size
    features = sum(filters.values())
    highway = 2 * 2 * features * features  # two layers; transform and carry gate
    return 2 * (recurrent + convolved + highway + features * projected)


def elmo_softmax() -> int:
    """Matrix products of one word's sampled softmax: 8,192 words in each of two directions."""
    return 2 * 2 * 512 * 8192


XLNET_MEASURED = 15_064_773_691_518
"""Operations of a forward pass over 32 rows of 512 tokens, as TensorFlow counted them for the authors."""


def _xlnet(norm_slip: bool) -> Cost:
    """XLNet-Large: 500,000 steps of 8,192 rows of 512 tokens.

    paper: the measured forward pass. Inference is not in the paper's tables: one stream, counted as BERT's, with relative positions.
    """
    model, rows = _xlnet_model(), 500_000 * 8192
    relative = model.num_hidden_layers * _relative_positions(model, length=_INFER_LENGTH, queries=_INFER_LENGTH)
    return Cost(
        train_paper=2.0 * rows * XLNET_MEASURED / 32,
        train_real=3.0 * rows * xlnet_row(),
        infer_paper=_inference(model, norm_slip) + relative,
    )


def xlnet_row() -> int:
    """Matrix products of one row in training.

    The content stream reads all 512 tokens as BERT-Large does, the query stream the 85 that are predicted (a sixth) with the content
    stream's keys and values. Both attend to relative positions as well. No memory of earlier segments.
    """
    model, length, targets = _xlnet_model(), 512, 85
    h = model.hidden_size
    content = matrix_products.attention(h, h, queries=length, keys=length) + matrix_products.feed_forward(model, length)
    content += _relative_positions(model, length=length, queries=length)
    query = 4 * h * h * targets + 4 * h * targets * length + matrix_products.feed_forward(model, targets)
    query += 2 * h * targets * 2 * length
    return model.num_hidden_layers * (content + query) + targets * matrix_products.vocabulary(model)


def _relative_positions(model: Model, *, length: int, queries: int) -> int:
    """Keys of 2 x `length` distances in one layer, and the scores of some queries with them."""
    h = model.hidden_size
    return 2 * h * h * 2 * length + 2 * h * queries * 2 * length


def _xlnet_model() -> Model:
    return replace(preset("bert_large").model, vocab_size=32000)


def _of_preset(name: str) -> Callable[[bool], Cost]:
    return lambda norm_slip: of_config(preset(name), norm_slip)


PUBLISHED: dict[str, Callable[[bool], Cost]] = {
    "elmo": _elmo,
    "xlnet": _xlnet,
    "gpt": _gpt,
    "bert_small": _of_preset("bert_small"),
    "bert_base": _of_preset("bert_base"),
    "bert_large": _bert_large,
    "electra_small": _of_preset("small"),
    "electra_base": _of_preset("base"),
    "electra_400k": _of_preset("large"),
    "electra_1.75M": _of_preset("large_1_75m"),
    "roberta": _roberta,
    "albert": _albert,
    "t5_11b": _t5_11b,
}
"""The authors' rows by their names."""
