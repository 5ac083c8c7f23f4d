"""Presets: one function per published model, and `tiny`. paper_rows.py has the paper's other rows, each a small change to one of these.

Tables and appendices are the paper's; where it is silent the released code decides (85/15 masking, Adam without bias
correction, clipping at 1.0, the schedule's shape). No torch here.
"""

from collections.abc import Callable

from electra_trainer.settings import config, methods

_SMALL = config.Model(
    embedding_size=128, hidden_size=256, num_hidden_layers=12, num_attention_heads=4, intermediate_size=1024
)
_BASE = config.Model(
    embedding_size=768, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072
)
_LARGE = config.Model(
    embedding_size=1024, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
)


def small() -> config.Config:
    """ELECTRA-Small (Table 5): 128 tokens, 1M steps, 14M parameters."""
    return config.Config(
        preset="small",
        model=_SMALL,
        generator=methods.Learned(width=1 / 4),
        objective=methods.RTD(),
        masking=config.Masking(fraction=0.15),
        optimizer=config.Optimizer(learning_rate=5e-4),
        schedule=config.Schedule(steps=1_000_000, warmup_steps=10_000),
        batch=config.BatchShape(size=128, sequence_length=128),
    )


def small_plus_plus() -> config.Config:
    """ELECTRA-Small++, the small model that Google released: 512 tokens, 4M steps, a generator of full width."""
    return config.Config(
        preset="small_plus_plus",
        model=_SMALL,
        generator=methods.Learned(width=1.0),
        objective=methods.RTD(),
        masking=config.Masking(fraction=0.15),
        optimizer=config.Optimizer(learning_rate=5e-4),
        schedule=config.Schedule(steps=4_000_000, warmup_steps=10_000),
        batch=config.BatchShape(size=128, sequence_length=512),
    )


def base() -> config.Config:
    """ELECTRA-Base (Table 5): 512 tokens, 766K steps, 110M parameters."""
    return config.Config(
        preset="base",
        model=_BASE,
        generator=methods.Learned(width=1 / 3),
        objective=methods.RTD(),
        masking=config.Masking(fraction=0.15),
        optimizer=config.Optimizer(learning_rate=2e-4),
        schedule=config.Schedule(steps=766_000, warmup_steps=10_000),
        batch=config.BatchShape(size=256, sequence_length=512),
    )


def large() -> config.Config:
    """ELECTRA-Large (Table 5): 512 tokens, 400K steps, 335M parameters; 25 % masked, as released."""
    return config.Config(
        preset="large",
        model=_LARGE,
        generator=methods.Learned(width=1 / 4),
        objective=methods.RTD(),
        masking=config.Masking(fraction=0.25),
        optimizer=config.Optimizer(learning_rate=2e-4),
        schedule=config.Schedule(steps=400_000, warmup_steps=10_000),
        batch=config.BatchShape(size=2048, sequence_length=512, lanes=16),
    )


def bert_small() -> config.Config:
    """BERT-Small, the paper's own baseline at equal compute (Table 5): 1.45M steps."""
    return config.Config(
        preset="bert_small",
        model=_SMALL,
        objective=methods.MLM(),
        masking=config.Masking(fraction=0.15),
        optimizer=config.Optimizer(learning_rate=5e-4),
        schedule=config.Schedule(steps=1_450_000, warmup_steps=10_000),
        batch=config.BatchShape(size=128, sequence_length=128),
    )


def bert_base() -> config.Config:
    """BERT-Base, the paper's own baseline at equal compute (Table 5): 1M steps."""
    return config.Config(
        preset="bert_base",
        model=_BASE,
        objective=methods.MLM(),
        masking=config.Masking(fraction=0.15),
        optimizer=config.Optimizer(learning_rate=2e-4),
        schedule=config.Schedule(steps=1_000_000, warmup_steps=10_000),
        batch=config.BatchShape(size=256, sequence_length=512),
    )


def bert_large() -> config.Config:
    """BERT-Large, the paper's own baseline at equal compute (Table 5): 464K steps."""
    return config.Config(
        preset="bert_large",
        model=_LARGE,
        objective=methods.MLM(),
        masking=config.Masking(fraction=0.15),
        optimizer=config.Optimizer(learning_rate=2e-4),
        schedule=config.Schedule(steps=464_000, warmup_steps=10_000),
        batch=config.BatchShape(size=2048, sequence_length=512, lanes=16),
    )


def tiny() -> config.Config:
    """Ours, for CPUs, the demo and the tests: rows of 32 tokens; every choice was measured (records/2026-11-20-tiny-choice)."""
    return config.Config(
        preset="tiny",
        model=config.Model(
            vocab_size=4096,
            embedding_size=128,
            hidden_size=128,
            num_hidden_layers=3,
            num_attention_heads=2,
            intermediate_size=512,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            initializer="fan-in",
            position_initializer="sinusoidal",
        ),
        generator=methods.Learned(width=1 / 2),
        objective=methods.RTD(),
        masking=config.Masking(fraction=0.25),
        optimizer=config.Optimizer(learning_rate=7e-4, beta2=0.98),
        schedule=config.Schedule(steps=3000, warmup_steps=130),
        batch=config.BatchShape(size=128, sequence_length=32),
        evaluation=config.Evaluation(every=150, rows=1024),
        checkpoint=config.Checkpoint(every=500),
        log_every=10,
    )


MODELS: dict[str, Callable[[], config.Config]] = {
    function.__name__: function
    for function in (small, small_plus_plus, base, large, bert_small, bert_base, bert_large, tiny)
}
"""The models that the paper compares, and `tiny`."""
