"""Presets of every other published row, each a small change to `small`, `base`, `large` or `bert_large`. No torch here.

Steps of rows that the paper compares at equal compute are worked out with its own count of FLOPs (Appendix E). Every decay is tied to the
row's own steps: a run of half the steps is a whole run, not the first half of a longer one.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from electra_trainer.cost.flops import run_flops, steps_for_flops
from electra_trainer.errors import ConfigError, did_you_mean
from electra_trainer.presets import arms
from electra_trainer.presets.models import MODELS, base, bert_large, large, small
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import Learned

Preset = Callable[[], Config]
Change = Callable[[Config], Config]


class Row(NamedTuple):
    """A preset: its name, what it is in the paper, and how it is made from another."""

    name: str
    what: str
    start: Preset
    change: Change

    def make(self) -> Config:
        """The preset itself."""
        return replace(self.change(self.start()), preset=self.name)


def published_rows() -> list[Row]:
    """All rows."""
    released = partial(_with_steps, steps=1_750_000)
    return [
        *_partly_trained(),
        Row("large_1_75m", "ELECTRA-Large as released, 1.75M steps", large, released),
        Row("bert_large_ours", "Tables 2 and 3, BERT (ours): `bert_large` by another name", bert_large, replace),
        *_other_methods(),
        *_weight_sharing(),
        *_generator_sizes(),
        *_model_sizes(),
    ]


def _partly_trained() -> list[Row]:
    """Table 1's rows of ELECTRA-Small that were trained for less; warm-up stays as it is."""
    shares = {"small_50": 0.5, "small_25": 0.25, "small_12_5": 0.125, "small_6_25": 0.0625}
    return [
        Row(name, f"Table 1, ELECTRA-Small {100 * share:g} % trained", small, partial(_share_of_steps, share=share))
        for name, share in shares.items()
    ]


def _other_methods() -> list[Row]:
    """Other objectives and algorithms on ELECTRA-Base, as many steps as its FLOPs allow."""
    methods: list[tuple[str, str, Change]] = [
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
    ]
    return [Row(name, what, base, partial(_equal_compute, arm=arm)) for name, what, arm in methods]


def _weight_sharing() -> list[Row]:
    """§3.2: a generator of the discriminator's size, 500K steps."""
    modes: list[tuple[str, Change]] = [
        ("none", arms.sharing_none),
        ("embeddings", arms.same_size),
        ("all", arms.sharing_all),
    ]
    return [
        Row(f"base_sharing_{mode}", f"§3.2, weight sharing: {mode}", base, partial(_short_run, arm=arm))
        for mode, arm in modes
    ]


def _generator_sizes() -> list[Row]:
    """Figure 3 left: discriminators of some sizes, each with generators up to its own size and with unigrams; 500K steps."""
    sizes = {768: (64, 128, 256, 384, 512, 768), 512: (64, 128, 256, 512), 256: (64, 128, 256)}
    rows = []
    for hidden, generators in sizes.items():
        stem, what = "base" if hidden == 768 else f"size_{hidden}", f"Figure 3 left, discriminator {hidden}, "
        arms_of = [
            (f"generator_{width}", f"generator {width}", partial(_sized, hidden=hidden, generator=width))
            for width in generators
        ]
        for name, generator, arm in [*arms_of, ("unigram", "unigram generator", partial(_unigram, hidden=hidden))]:
            rows.append(Row(f"{stem}_{name}", what + generator, base, partial(_short_run, arm=arm)))
    return rows


def _model_sizes() -> list[Row]:
    """Figure 4: ELECTRA with base's steps and BERT with as many FLOPs; at 768 they are `base` and `base_bert`.

    The paper does not print these runs' settings: here all are base's, with a generator of a quarter of the width.
    """
    rows = []
    for hidden in (128, 256, 512):
        electra, bert = partial(_sized, hidden=hidden), partial(_sized_bert, hidden=hidden)
        rows.append(Row(f"size_{hidden}", f"Figure 4, ELECTRA of size {hidden}", base, electra))
        rows.append(Row(f"size_{hidden}_bert", f"Figure 4, BERT of size {hidden}", base, bert))
    return rows


def _sized(config: Config, *, hidden: int, generator: int | None = None) -> Config:
    """Another hidden size, embeddings as wide, heads of 64, and a generator of the given width or of a quarter."""
    model = replace(
        config.model,
        embedding_size=hidden,
        hidden_size=hidden,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )
    return replace(config, model=model, generator=Learned(width=(generator or hidden // 4) / hidden))


def _sized_bert(config: Config, *, hidden: int) -> Config:
    return _equal_compute(_sized(config, hidden=hidden), arm=arms.mlm)


def _unigram(config: Config, *, hidden: int) -> Config:
    return arms.unigram(_sized(config, hidden=hidden))


def _with_steps(config: Config, *, steps: int) -> Config:
    return replace(config, schedule=replace(config.schedule, steps=steps))


def _share_of_steps(config: Config, *, share: float) -> Config:
    return _with_steps(config, steps=round(share * config.schedule.steps))


def _short_run(config: Config, *, arm: Change) -> Config:
    """500K steps, as the experiments on weight sharing and on generator size (§3.2)."""
    return _with_steps(arm(config), steps=500_000)


def _equal_compute(config: Config, *, arm: Change) -> Config:
    """The arm over as many steps as the FLOPs of `config` allow."""
    changed = arm(config)
    return _with_steps(changed, steps=steps_for_flops(changed, flops=run_flops(config).paper))


_ROWS = published_rows()

PRESETS: dict[str, Preset] = MODELS | {row.name: row.make for row in _ROWS}
"""All presets: the models, and every other published row."""

SUMMARIES: dict[str, str] = {name: (function.__doc__ or "").split("\n")[0] for name, function in MODELS.items()} | {
    row.name: row.what for row in _ROWS
}
"""One line about each."""


def preset(name: str) -> Config:
    """The preset of that name; raises ConfigError with the nearest name otherwise."""
    if name not in PRESETS:
        known = f"{', '.join(MODELS)}; electra show all lists the {len(PRESETS) - len(MODELS)} others"
        raise ConfigError(f"Unknown preset {name!r}.{did_you_mean(name, PRESETS)} Known: {known}.")
    return PRESETS[name]()
