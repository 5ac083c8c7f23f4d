"""Presets: one function per published model, ours, and the paper's other rows, each a small change to one of them.

Tables and appendices are the paper's; where it is silent the released code decides (85/15 masking, Adam without bias
correction, clipping at 1.0, the schedule's shape). Steps of rows that the paper compares at equal compute are worked
out with its own count of FLOPs (Appendix E). Every decay is tied to the row's own steps: a run of half the steps is a
whole run, not the first half of a longer one. No torch here.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from electra_trainer.cost.flops import run_flops, steps_for_flops
from electra_trainer.errors import ConfigError, did_you_mean
from electra_trainer.presets import arms
from electra_trainer.settings import config, methods
from electra_trainer.settings.calls import checked


class _Size(NamedTuple):
    """Settings that the models of one size share (Table 5)."""

    model: config.Model
    learning_rate: float
    batch: config.BatchShape


def _size(layers: int, hidden: int, *, embedding: int | None = None) -> config.Model:
    """Heads of 64, and a feed-forward network four times as wide."""
    return config.Model(
        embedding_size=embedding or hidden,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )


_SMALL = _Size(_size(12, 256, embedding=128), 5e-4, config.BatchShape(size=128, sequence_length=128))
_BASE = _Size(_size(12, 768), 2e-4, config.BatchShape(size=256, sequence_length=512))
_LARGE = _Size(_size(24, 1024), 2e-4, config.BatchShape(size=2048, sequence_length=512, lanes=32))


def _published(name: str, size: _Size, *, steps: int, **changes: Any) -> config.Config:
    plain = config.Config(
        preset=name,
        model=size.model,
        objective=methods.RTD(),
        masking=config.Masking(fraction=0.15),
        optimizer=config.Optimizer(learning_rate=size.learning_rate),
        schedule=config.Schedule(steps=steps, warmup_steps=10_000),
        batch=size.batch,
    )
    return replace(plain, **changes)


def small() -> config.Config:
    """ELECTRA-Small (Table 5): 128 tokens, 1M steps, 14M parameters."""
    return _published("small", _SMALL, steps=1_000_000, generator=methods.Learned(width=1 / 4))


def small_plus_plus() -> config.Config:
    """ELECTRA-Small++, the small model that Google released: 512 tokens, 4M steps, a generator of full width."""
    batch = config.BatchShape(size=128, sequence_length=512)
    return _published("small_plus_plus", _SMALL, steps=4_000_000, generator=methods.Learned(width=1.0), batch=batch)


def base() -> config.Config:
    """ELECTRA-Base (Table 5): 512 tokens, 766K steps, 110M parameters."""
    return _published("base", _BASE, steps=766_000, generator=methods.Learned(width=1 / 3))


def large() -> config.Config:
    """ELECTRA-Large (Table 5): 512 tokens, 400K steps, 335M parameters; 25 % masked, as released."""
    masking = config.Masking(fraction=0.25)
    return _published("large", _LARGE, steps=400_000, generator=methods.Learned(width=1 / 4), masking=masking)


def bert_small() -> config.Config:
    """BERT-Small, the paper's own baseline at equal compute (Table 5): 1.45M steps."""
    return _published("bert_small", _SMALL, steps=1_450_000, objective=methods.MLM())


def bert_base() -> config.Config:
    """BERT-Base, the paper's own baseline at equal compute (Table 5): 1M steps."""
    return _published("bert_base", _BASE, steps=1_000_000, objective=methods.MLM())


def bert_large() -> config.Config:
    """BERT-Large, the paper's own baseline at equal compute (Table 5): 464K steps."""
    return _published("bert_large", _LARGE, steps=464_000, objective=methods.MLM())


def tiny() -> config.Config:
    """Ours, for CPUs and tests: rows of 32 tokens; choices are measured (records/2026-11-23-demo-recipe,
    2026-11-24-demo-generator).
    """
    return config.Config(
        preset="tiny",
        model=replace(
            _size(3, 128),
            vocab_size=4096,
            num_attention_heads=4,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            initializer="fan-in",
            word_initializer="co-occurrence",
        ),
        generator=methods.Learned(width=1 / 2, depth=1 / 3),
        objective=methods.RTD(),
        masking=config.Masking(fraction=0.5),
        optimizer=config.Optimizer(name="muon", learning_rate=4e-3, beta2=0.98),
        schedule=config.Schedule(steps=6000, warmup_steps=260),
        batch=config.BatchShape(size=64, sequence_length=32),
        evaluation=config.Evaluation(every=300, rows=1024),
        checkpoint=config.Checkpoint(every=1000),
        log_every=10,
    )


def mini() -> config.Config:
    """Ours, for hours of a few CPU cores: ModernBERT's block, replaced token detection and corrective MLM in one
    network (records/2026-11-25-promise, docs/recipes.md).
    """
    start = tiny()
    return replace(
        start,
        preset="mini",
        model=replace(
            start.model,
            block="modern",
            vocab_size=16_384,
            hidden_size=256,
            num_hidden_layers=4,
            num_attention_heads=8,
            intermediate_size=1024,
        ),
        generator=methods.Learned(width=1 / 4),
        sharing="disentangled",
        objective=methods.RtdMLM(),
        masking=config.Masking(fraction=0.15),
        optimizer=replace(start.optimizer, learning_rate=7e-4),
        schedule=config.Schedule(steps=12_000, warmup_steps=100, shape="wsd"),
        batch=config.BatchShape(size=32, sequence_length=128),
        evaluation=config.Evaluation(every=500, rows=1024),
    )


def demo() -> config.Config:
    """Ours, for `electra demo`, minutes of two CPU cores: the size of `tiny` with the objective, block and sharing of
    `mini`, at higher rates (records/2026-11-23-demo-recipe).
    """
    start = tiny()
    return replace(
        start,
        preset="demo",
        model=replace(start.model, block="modern"),
        sharing="disentangled",
        objective=methods.RtdMLM(corrective_weight=2.0),
        masking=config.Masking(fraction=0.45),
        optimizer=replace(start.optimizer, learning_rate=0.008),
        schedule=replace(start.schedule, shape="wsd", decay_share=0.5),
    )


Preset = Callable[[], config.Config]
MODELS: dict[str, Preset] = {
    function.__name__: function
    for function in (small, small_plus_plus, base, large, bert_small, bert_base, bert_large, mini, tiny, demo)
}
"""The models that the paper compares, and ours: `mini`, `tiny` and `demo`."""


def _derived(
    start: Preset,
    *,
    name: str,
    hidden: int | None = None,
    generator: int | None = None,
    arm: Callable[[config.Config], config.Config] = replace,
    steps: int | None = None,
    equal_compute: bool = False,
) -> config.Config:
    """A model with some changes.

    Args:
        start: the model.
        name: of the preset.
        hidden: another hidden size, embeddings as wide, heads of 64.
        generator: with `hidden`, the generator's width; a quarter of `hidden` if None.
        arm: a change of method.
        steps: another length of the run; warm-up stays as it is.
        equal_compute: as many steps as the FLOPs of the model without the arm allow.
    """
    model = start()
    if hidden is not None:
        shape = _size(model.model.num_hidden_layers, hidden)
        model = replace(model, model=shape, generator=methods.Learned(width=(generator or hidden // 4) / hidden))
    changed = arm(model)
    if equal_compute:
        steps = steps_for_flops(changed, flops=run_flops(model).paper)
    return replace(changed, preset=name, schedule=replace(changed.schedule, steps=steps or changed.schedule.steps))


def _rows() -> Iterator[tuple[str, str, Preset, dict[str, Any]]]:
    """Name, what it is in the paper, the model it begins from, and the changes that `_derived` makes."""
    for share in (50, 25, 12.5, 6.25):
        name = f"small_{share:g}".replace(".", "_")
        yield name, f"Table 1, ELECTRA-Small {share:g} % trained", small, {"steps": round(share * 10_000)}
    yield "large_1_75m", "ELECTRA-Large as released, 1.75M steps", large, {"steps": 1_750_000}
    yield "bert_large_ours", "Tables 2 and 3, BERT (ours): `bert_large` by another name", bert_large, {}
    for name, what, arm in (  # other objectives and algorithms on ELECTRA-Base
        ("base_electra_15", "Table 4, ELECTRA 15 %", arms.electra_15),
        ("base_electra_15_other", "§3.5, footnote 8: loss over another random 15 %", arms.electra_15_other),
        ("base_replace_mlm", "Table 4, Replace MLM", arms.replace_mlm),
        ("base_all_tokens_mlm", "Table 4, All-Tokens MLM", arms.all_tokens_mlm),
        ("base_bert", "Table 4, BERT: 85 % [MASK], 15 % unchanged, as released", arms.mlm),
        ("base_bert_80_10_10", "§3.5, BERT with 80 % [MASK], 10 % random, 10 % unchanged", arms.mlm_80_10_10),
        ("base_two_stage", "Figure 3 right, two-stage training", arms.two_stage),
        ("base_two_stage_fresh", "§3.2, two-stage training without weight initialisation", arms.two_stage_fresh),
        ("base_adversarial", "Figure 3 right, adversarial training", arms.adversarial),
        ("base_mlm_rare", "Appendix H, BERT that masks rarer words more often", arms.mlm_rare),
        ("base_warm_sampling", "Appendix H, generator sampled at temperature 1.5", arms.warm_sampling),
        ("base_disallow_correct", "Appendix H, generator that never samples the original word", arms.disallow_correct),
        ("base_sentence_contrast", "Appendix H, sentence-level contrastive objective", arms.sentence_contrast),
    ):
        yield name, what, base, {"arm": arm, "equal_compute": True}
    # a generator of the discriminator's size
    for mode, arm in (("none", arms.sharing_none), ("embeddings", arms.same_size), ("all", arms.sharing_all)):
        yield f"base_sharing_{mode}", f"§3.2, weight sharing: {mode}", base, {"arm": arm, "steps": 500_000}
    # generators up to the discriminator's size, and unigrams
    for hidden, widths in {768: (64, 128, 256, 384, 512, 768), 512: (64, 128, 256, 512), 256: (64, 128, 256)}.items():
        stem, what = "base" if hidden == 768 else f"size_{hidden}", f"Figure 3 left, discriminator {hidden}, "
        short: dict[str, Any] = {"hidden": hidden, "steps": 500_000}
        for width in widths:
            yield f"{stem}_generator_{width}", f"{what}generator {width}", base, {**short, "generator": width}
        yield f"{stem}_unigram", f"{what}unigram generator", base, {**short, "arm": arms.unigram}
    # The paper does not print the settings of Figure 4's runs: here all are base's, with a generator of a quarter of
    # the width.
    for hidden in (128, 256, 512):  # at 768 they are `base` and `base_bert`
        yield f"size_{hidden}", f"Figure 4, ELECTRA of size {hidden}", base, {"hidden": hidden}
        bert = {"hidden": hidden, "arm": arms.mlm, "equal_compute": True}
        yield f"size_{hidden}_bert", f"Figure 4, BERT of size {hidden}", base, bert


PRESETS: dict[str, Preset] = dict(MODELS)
"""All presets: the models, and every other published row."""
SUMMARIES: dict[str, str] = {name: (function.__doc__ or "").split("\n")[0] for name, function in MODELS.items()}
"""One line about each."""
SIZES: dict[str, str] = {name: name.removeprefix("bert_") for name in MODELS}
"""Preset -> the model whose network it trains, by ELECTRA's name: small_50 -> small. Those of other widths are their
own.
"""
for _name, _what, _start, _changes in _rows():
    PRESETS[_name], SUMMARIES[_name] = partial(_derived, _start, name=_name, **_changes), _what
    SIZES[_name] = _name if "hidden" in _changes else SIZES[_start.__name__]


@checked
def preset(name: str) -> config.Config:
    """The preset of that name; raises ConfigError with the nearest name otherwise."""
    if name not in PRESETS:
        known = f"{', '.join(MODELS)}; electra show all lists the {len(PRESETS) - len(MODELS)} others"
        raise ConfigError(f"Unknown preset {name!r}.{did_you_mean(name, PRESETS)} Known: {known}.")
    return PRESETS[name]()
