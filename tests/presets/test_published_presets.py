"""A preset for every published row: each is a whole run, as long as the paper says or as its compute allows."""

import dataclasses
import json
import math

import pytest

from electra_trainer.cost.flops import infer_flops, run_flops, step_flops
from electra_trainer.cost.parameters import learned_generator, parameters
from electra_trainer.presets import arms
from electra_trainer.presets.models import MODELS, PRESETS, SUMMARIES, preset
from electra_trainer.settings.config import Config, generator_shape
from electra_trainer.settings.methods import MLM, Learned, TwoStage, Unigram
from electra_trainer.settings.records import differences, read, to_dict

ROWS = [name for name in PRESETS if name not in MODELS]
EQUAL_COMPUTE = {
    "base_electra_15": "electra-15", "base_electra_15_other": "electra-15-other", "base_replace_mlm": "replace-mlm",
    "base_all_tokens_mlm": "all-tokens-mlm", "base_bert": "mlm", "base_bert_80_10_10": "mlm-80-10-10",
    "base_two_stage": "two-stage", "base_two_stage_fresh": "two-stage-fresh", "base_adversarial": "adversarial",
    "base_mlm_rare": "mlm-rare", "base_warm_sampling": "warm-sampling", "base_disallow_correct": "disallow-correct",
    "base_sentence_contrast": "sentence-contrast",
}  # fmt: skip


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_whole_run(name: str) -> None:
    config = preset(name)
    assert config.preset == name
    assert read(Config, json.loads(json.dumps(to_dict(config))), where="file") == config
    costs = dataclasses.astuple(run_flops(config)) + dataclasses.astuple(infer_flops(config))
    assert all(math.isfinite(cost) and cost > 0 for cost in costs)
    assert parameters(config).joint > 0
    assert SUMMARIES[name] and "\n" not in SUMMARIES[name]


@pytest.mark.parametrize("name", ROWS)
def test_heads_are_whole(name: str) -> None:
    config = preset(name)
    assert config.model.hidden_size // config.model.num_attention_heads == 64
    generator = learned_generator(config)
    if generator is not None:
        assert generator.hidden_size // generator.num_attention_heads == min(64, generator.hidden_size)
        assert generator.intermediate_size == 4 * generator.hidden_size


@pytest.mark.parametrize(("name", "arm"), EQUAL_COMPUTE.items())
def test_rows_at_equal_compute(name: str, arm: str) -> None:
    """The arm of that name on base, within one step of base's FLOPs as the paper counts them, and not above."""
    config, total = preset(name), run_flops(preset("base")).paper
    one = max(step_flops(config, step=step).paper for step in (0, config.schedule.steps))
    assert 0 <= total - run_flops(config).paper < one
    changed = differences(arms.arm(arm, preset("base")), config)
    assert {line.split(":")[0] for line in changed} <= {"preset", "schedule.steps"}


NEIGHBOURS = {
    "mlm-rare": ("mlm", ["masking.rarity: 0.0 -> 0.5"]),
    "mlm-hard": ("mlm", ["objective.kind: 'mlm' -> 'hard-mlm'"]),
    "warm-sampling": ("electra", ["generator.temperature: 1.0 -> 1.5"]),
    "disallow-correct": ("electra", ["generator.disallow_correct: False -> True"]),
    "electra-15": ("electra", ["objective.loss_over: 'all' -> 'masked'"]),
    "lucky-fakes": ("electra", ["objective.lucky: 'original' -> 'fake'"]),
    "all-tokens-mlm-plain": ("all-tokens-mlm", ["objective.copy: True -> False"]),
    "replace-mlm": ("mlm", ["objective.kind: 'mlm' -> 'replace-mlm'"]),
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_an_arm_differs_from_its_neighbour_by_its_field(name: str) -> None:
    neighbour, changed = NEIGHBOURS[name]
    found = differences(*(arms.arm(one, preset("small")) for one in (neighbour, name)))
    assert [line for line in found if "None" not in line] == changed


def test_steps_at_equal_compute() -> None:
    """ELECTRA 15 % costs what ELECTRA does; BERT has no generator; predicting every token takes more of the vocabulary."""
    steps = {name: preset(name).schedule.steps for name in EQUAL_COMPUTE}
    assert steps["base_electra_15"] == steps["base_warm_sampling"] == 766_000
    assert steps["base_all_tokens_mlm"] < steps["base_replace_mlm"] < 766_000 < steps["base_bert"] < 1_000_000
    assert steps["base_bert"] == steps["base_bert_80_10_10"] == steps["base_mlm_rare"]


@pytest.mark.parametrize(("name", "steps"), [("50", 500_000), ("25", 250_000), ("12_5", 125_000), ("6_25", 62_500)])
def test_table_1s_partly_trained_rows(name: str, steps: int) -> None:
    changed = differences(preset("small"), preset(f"small_{name}"))
    assert changed == [f"preset: 'small' -> 'small_{name}'", f"schedule.steps: 1000000 -> {steps}"]


def test_weight_sharing() -> None:
    for mode in ("none", "embeddings", "all"):
        config = preset(f"base_sharing_{mode}")
        assert (config.sharing, config.schedule.steps) == (mode, 500_000)
        assert generator_shape(config) == config.model


def test_figure_3_left() -> None:
    rows = [preset(name) for name in ROWS if SUMMARIES[name].startswith("Figure 3 left")]
    assert len(rows) == 16 and {config.schedule.steps for config in rows} == {500_000}
    sizes = {768: [], 512: [], 256: []}
    for config in rows:
        learned = learned_generator(config)
        sizes[config.model.hidden_size].append(learned.hidden_size if learned else None)
        assert isinstance(config.generator, Learned if learned else Unigram)
    assert sizes == {
        768: [64, 128, 256, 384, 512, 768, None],
        512: [64, 128, 256, 512, None],
        256: [64, 128, 256, None],
    }
    assert generator_shape(preset("base_generator_256")) == generator_shape(preset("base"))


def test_figure_3_right() -> None:
    for name, start in (("base_two_stage", "generator"), ("base_two_stage_fresh", "fresh")):
        assert preset(name).phases == TwoStage(share=0.5, start=start)


@pytest.mark.parametrize("hidden", [128, 256, 512])
def test_figure_4(hidden: int) -> None:
    electra, bert = preset(f"size_{hidden}"), preset(f"size_{hidden}_bert")
    assert electra.model == bert.model and electra.model.hidden_size == hidden
    assert isinstance(bert.objective, MLM) and generator_shape(electra).hidden_size == hidden // 4
    assert 0 <= run_flops(electra).paper - run_flops(bert).paper < step_flops(bert).paper


def test_bert_by_its_other_name() -> None:
    assert differences(preset("bert_large"), preset("bert_large_ours")) == ["preset: 'bert_large' -> 'bert_large_ours'"]


def test_every_arm_can_be_trained_from_a_preset_in_two_stages() -> None:
    """The paper's arms of it are joint unless their name says otherwise, and `preset` is the preset itself."""
    start = dataclasses.replace(MODELS["mini"](), phases=TwoStage(), sharing="none", generator=Learned(width=1.0))
    assert arms.arm("preset", start) == start
    staged = {name for name in arms.ARMS if isinstance(arms.arm(name, start).phases, TwoStage)}
    assert staged == {"two-stage", "two-stage-fresh"}
    assert arms.arm("electra", start).sharing == "embeddings"


def test_arms_of_mini() -> None:
    """Its embeddings are disentangled, and so are its ELECTRA's, which goes by that name; no other two arms are equal."""
    start = MODELS["mini"]()
    found = {name: arms.arm(name, start) for name in arms.ARMS}
    assert found.pop("electra") == found["disentangled"]
    assert {name: arms.arm_of(config) for name, config in found.items()} == {name: name for name in found}
    assert arms.arm_of(start) is None
    heavy = dataclasses.replace(start, objective=dataclasses.replace(start.objective, weight=10.0))
    assert {arms.arm(name, heavy).objective.weight for name in ("electra", "electra-15", "adversarial")} == {10.0}
