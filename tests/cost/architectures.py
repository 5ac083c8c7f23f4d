"""The operations of ELMo, XLNet, GPT and T5, counted from their architectures: where the numbers in published.toml come
from.
"""

from dataclasses import replace

from electra_trainer.cost import flops
from electra_trainer.paper.published import Cost
from electra_trainer.presets.models import preset
from electra_trainer.settings.config import Model

_INFER_LENGTH = 128
"""Tokens that Table 1's inference reads."""


def attention(width: int, joined: int, *, queries: int, keys: int) -> int:
    """Matrix products: queries and output of some tokens, keys and values of others or the same, scores and mixture.

    Args:
        width: of the hidden states.
        joined: of all heads together.
    """
    return 4 * width * joined * (queries + keys) + 4 * joined * queries * keys


def feed_forward(model: Model, tokens: int) -> int:
    """Matrix products."""
    return 4 * model.hidden_size * model.intermediate_size * tokens


def gpt() -> Cost:
    """GPT: BERT-Base's layers, 40,000 words, every one of 512 positions predicted; 960,800 steps of 128 rows.

    paper: with the dense layer before the softmax that BERT has and GPT has not. real: without.
    """
    model = replace(preset("bert_base").model, vocab_size=40000)
    length, rows = 512, 128 * 960_800
    counted = flops.paper_encoder(model, length) + flops.paper_token_head(model, length, share=1.0)
    needed = flops.real_encoder(model, length) + length * flops.real_vocabulary(model)
    return Cost(train_paper=2.0 * rows * counted, train_real=3.0 * rows * needed, infer_paper=_inference(model))


def t5_11b() -> Cost:
    """T5 11B: 24 + 24 layers of width 1,024, 128 heads of 128, feed-forward width 65,536, 32,000 words; 1M steps of
    2,048 rows.

    paper: both stacks read 512 tokens, the encoder has no softmax, the decoder one at every position, and the authors
    count mixture and output of attention as wide as the hidden states. real: heads at their width, no dense layer
    before the softmax, and a decoder that reads its 114 targets (15 % of 512 tokens in spans of 3, a sentinel each).
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

    width, joined = model.hidden_size, heads * head_size

    def paper_attention(tokens: int) -> int:
        """One token's: queries, keys and values; scores; mixture and output; biases; softmax and dropout; LayerNorm."""
        products = 6 * width * joined + 2 * joined * tokens + 2 * width * tokens + 2 * width * width
        return products + 3 * joined + width + (1 + 5 + 4) * tokens * heads + 5 * width + 5

    def stacks(tokens: int) -> float:
        """An encoder, and a decoder with a second attention in each layer."""
        inner = model.intermediate_size
        feed_forward = 4 * width * inner + 9 * inner + width + 5 * width + 5 * width
        embedding = 2 * width * (model.vocab_size + tokens + 2) + 11 * width
        layers = model.num_hidden_layers * (3 * paper_attention(tokens) + 2 * feed_forward)
        return float(tokens * (layers + 2 * embedding))

    counted = stacks(length) + flops.paper_token_head(model, length, share=1.0)
    encoder_layer = attention(width, joined, queries=length, keys=length)
    decoder_layer = attention(width, joined, queries=targets, keys=targets)
    decoder_layer += attention(width, joined, queries=targets, keys=length)
    layers = encoder_layer + decoder_layer + feed_forward(model, length + targets)
    needed = model.num_hidden_layers * layers + targets * flops.real_vocabulary(model)
    return Cost(
        train_paper=2.0 * rows * counted,
        train_real=3.0 * rows * needed,
        infer_paper=stacks(_INFER_LENGTH) + flops.paper_replaced_head(model, _INFER_LENGTH),
    )


def _inference(model: Model) -> float:
    return flops.paper_encoder(model, _INFER_LENGTH) + flops.paper_replaced_head(model, _INFER_LENGTH)


ELMO_MEASURED = 568_093_262_680
"""Operations of a forward pass over 20 rows of 128 words, as TensorFlow counted them for the authors."""


def elmo() -> Cost:
    """ELMo: 10 epochs over the 768,648,884 words of the One Billion Word Benchmark.

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

    Two directions of two LSTM layers with 4,096 cells, each layer projected to 512. The word is read from its 50
    characters, embedded in 16, by filters of width 1 to 7, then two highway layers of 2,048 and a projection to 512.
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


def xlnet() -> Cost:
    """XLNet-Large: 500,000 steps of 8,192 rows of 512 tokens.

    paper: the measured forward pass. Inference is not in the paper's tables: one stream, counted as BERT's, with
    relative positions.
    """
    model, rows = _xlnet_model(), 500_000 * 8192
    relative = model.num_hidden_layers * _relative_positions(model, length=_INFER_LENGTH, queries=_INFER_LENGTH)
    return Cost(
        train_paper=2.0 * rows * XLNET_MEASURED / 32,
        train_real=3.0 * rows * xlnet_row(),
        infer_paper=_inference(model) + relative,
    )


def xlnet_row() -> int:
    """Matrix products of one row in training.

    The content stream reads all 512 tokens as BERT-Large does, the query stream the 85 that are predicted (a sixth)
    with the content stream's keys and values. Both attend to relative positions as well. No memory of earlier segments.
    """
    model, length, targets = _xlnet_model(), 512, 85
    h = model.hidden_size
    content = attention(h, h, queries=length, keys=length) + feed_forward(model, length)
    content += _relative_positions(model, length=length, queries=length)
    query = 4 * h * h * targets + 4 * h * targets * length + feed_forward(model, targets)
    query += 2 * h * targets * 2 * length
    return model.num_hidden_layers * (content + query) + targets * flops.real_vocabulary(model)


def _relative_positions(model: Model, *, length: int, queries: int) -> int:
    """Keys of 2 x `length` distances in one layer, and the scores of some queries with them."""
    h = model.hidden_size
    return 2 * h * h * 2 * length + 2 * h * queries * 2 * length


def _xlnet_model() -> Model:
    return replace(preset("bert_large").model, vocab_size=32000)


ARCHITECTURES = {"elmo": elmo, "xlnet": xlnet, "gpt": gpt, "t5_11b": t5_11b}
