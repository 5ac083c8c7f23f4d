"""Presets against Table 5, config files there and back, and errors of wrong ones."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from electra_trainer.errors import ConfigError, MissingInputError
from electra_trainer.presets import models
from electra_trainer.presets.models import PRESETS
from electra_trainer.settings.config import BatchShape, Config, Model, Optimizer, generator_shape, with_steps
from electra_trainer.settings.methods import MLM, RTD, Learned
from electra_trainer.settings.records import differences, merge, overlay, read, read_table, to_dict

# Table 5: layers, hidden, feed-forward, heads, embedding; learning rate, batch, steps; Appendix A and released: row length, masked
TABLE_5 = {
    "small": (12, 256, 1024, 4, 128, 5e-4, 128, 1_000_000, 128, 0.15),
    "small_plus_plus": (12, 256, 1024, 4, 128, 5e-4, 128, 4_000_000, 512, 0.15),
    "base": (12, 768, 3072, 12, 768, 2e-4, 256, 766_000, 512, 0.15),
    "large": (24, 1024, 4096, 16, 1024, 2e-4, 2048, 400_000, 512, 0.25),
    "bert_small": (12, 256, 1024, 4, 128, 5e-4, 128, 1_450_000, 128, 0.15),
    "bert_base": (12, 768, 3072, 12, 768, 2e-4, 256, 1_000_000, 512, 0.15),
    "bert_large": (24, 1024, 4096, 16, 1024, 2e-4, 2048, 464_000, 512, 0.15),
}
GENERATORS = {  # multiplier -> hidden, feed-forward, heads
    "small": (1 / 4, 64, 256, 1),
    "small_plus_plus": (1.0, 256, 1024, 4),
    "base": (1 / 3, 256, 1024, 4),
    "large": (1 / 4, 256, 1024, 4),
}


def test_every_published_run_is_here() -> None:
    assert set(models.MODELS) == {*TABLE_5, "mini", "tiny", "demo"}
    assert all(models.preset(name).preset == name for name in PRESETS)


@pytest.mark.parametrize("name", TABLE_5)
def test_table_5(name: str) -> None:
    made = models.preset(name)
    model = made.model
    assert (
        model.num_hidden_layers, model.hidden_size, model.intermediate_size, model.num_attention_heads, model.embedding_size,
        made.optimizer.learning_rate, made.batch.size, made.schedule.steps, made.batch.sequence_length, made.masking.fraction,
    ) == TABLE_5[name]  # fmt: skip
    assert model.hidden_size // model.num_attention_heads == 64


@pytest.mark.parametrize("name", TABLE_5)
def test_what_all_published_runs_have_in_common(name: str) -> None:
    made = models.preset(name)
    model, optimizer = made.model, made.optimizer
    assert (model.hidden_dropout_prob, model.attention_probs_dropout_prob) == (0.1, 0.1)
    assert (model.vocab_size, model.max_position_embeddings, model.type_vocab_size) == (30522, 512, 2)
    assert (model.initializer, model.initializer_range, model.layer_norm_eps) == ("truncated-normal", 0.02, 1e-12)
    assert (optimizer.beta1, optimizer.beta2, optimizer.epsilon, optimizer.weight_decay) == (0.9, 0.999, 1e-6, 0.01)
    assert (optimizer.name, optimizer.clip_norm) == ("adam", 1.0)
    assert (made.schedule.warmup_steps, made.schedule.shape) == (10_000, "released")
    assert (made.masking.mask_share, made.masking.random_share) == (0.85, 0.0)
    assert made.objective == (MLM() if name.startswith("bert") else RTD(weight=50.0, generator_weight=1.0))


@pytest.mark.parametrize("name", models.MODELS)
def test_presets_are_complete(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each names its shape, objective, masking, optimizer, schedule and batch: none follows a default of `Config`."""
    given: list[set[str]] = []

    def made(**fields: Any) -> Config:
        given.append({*fields})
        return Config(**fields)

    expected = models.preset(name)
    monkeypatch.setattr("electra_trainer.settings.config.Config", made)
    assert models.preset(name) == expected
    assert given and all(
        fields >= {"model", "objective", "masking", "optimizer", "schedule", "batch"} for fields in given
    )


@pytest.mark.parametrize("name", sorted(set(models.MODELS) - {"mini", "tiny", "demo"}))
def test_a_preset_has_the_size_of_its_name(name: str) -> None:
    (size,) = (size for size in ("small", "base", "large") if size in name)
    mine, other = models.preset(name), models.preset(size)
    assert (mine.model, mine.optimizer) == (other.model, other.optimizer) and mine.batch.size == other.batch.size


@pytest.mark.parametrize("name", GENERATORS)
def test_generator_shapes(name: str) -> None:
    made = models.preset(name)
    width, hidden, inner, heads = GENERATORS[name]
    shape = generator_shape(made)
    assert made.generator.width == width
    assert (shape.hidden_size, shape.intermediate_size, shape.num_attention_heads) == (hidden, inner, heads)
    same = {"hidden_size", "intermediate_size", "num_attention_heads"}
    for field in dataclasses.fields(Model):
        if field.name not in same:
            assert getattr(shape, field.name) == getattr(made.model, field.name), field.name


def test_generator_of_half_the_depth() -> None:
    made = dataclasses.replace(models.small(), generator=Learned(width=1.0, depth=0.5))
    assert generator_shape(made).num_hidden_layers == 6


def test_an_impossible_generator_is_refused_with_a_proposal() -> None:
    with pytest.raises(ConfigError, match=r"generator\.width.*0\.25"):
        dataclasses.replace(models.small(), generator=Learned(width=0.51))


@pytest.mark.parametrize("name", PRESETS)
def test_there_and_back(name: str) -> None:
    """Through JSON text, as a run folder keeps it."""
    made = models.preset(name)
    text = json.dumps(to_dict(made))
    assert read(Config, json.loads(text), where="file") == made


def test_every_field_is_written() -> None:
    written = to_dict(models.small())
    assert written.keys() == {field.name for field in dataclasses.fields(Config)}
    own = {"kind": "rtd", "weight": 50.0, "generator_weight": 1.0, "loss_over": "all", "lucky": "original"}
    assert written["objective"] == own
    assert to_dict(models.bert_small())["objective"] == {"kind": "mlm"}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"sede": 1}, r"unknown field 'sede'\. Did you mean 'seed'\?"),
    "unknown below": ({"optimizer": {"learning_rte": 1}}, r"optimizer: unknown field .*Did you mean 'learning_rate'\?"),
    "word for number": ({"seed": "1"}, "seed = '1': expected int, found str"),
    "truth for number": ({"seed": True}, "expected int, found bool"),
    "number for table": ({"model": 3}, "model: expected a table"),
    "float for int": ({"schedule": {"steps": 1.5}}, "expected int, found float"),
    "list for float": ({"optimizer": {"learning_rate": [1]}}, "expected float, found list"),
    "no such choice": ({"precision": "fp16"}, "expected one of .*'bf16'"),
    "unknown kind": ({"objective": {"kind": "rdt"}}, r"unknown kind 'rdt'\. Did you mean 'rtd'\?"),
    "field of another kind": ({"objective": {"kind": "mlm", "weight": 1.0}}, "unknown field 'weight'"),
    "out of range": ({"masking": {"fraction": 1.5}}, r"masking\.fraction = 1\.5"),
    "a position drawn twice": (
        {"objective": {"kind": "adversarial"}, "masking": {"draw": "with-replacement"}},
        "drawn twice, .*--masking.draw distinct",
    ),
    "nothing": ({"seed": None}, "expected int, found NoneType"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_settings(case: str) -> None:
    data, message = WRONG[case]
    with pytest.raises(ConfigError, match=message) as caught:
        read(Config, data, where="my.toml")
    assert str(caught.value).startswith("my.toml: ")


@pytest.mark.parametrize(
    ("cls", "fields"),
    [
        (Model, {"hidden_size": 30, "num_attention_heads": 4}),
        (Model, {"num_hidden_layers": 0}),
        (Model, {"type_vocab_size": 1}),
        (Model, {"hidden_dropout_prob": 1.5}),
        (Optimizer, {"learning_rate": 0.0}),
        (Optimizer, {"learning_rate": float("nan")}),
        (Optimizer, {"beta2": 1.0}),
        (Optimizer, {"epsilon": 0.0}),
        (BatchShape, {"size": 10, "lanes": 3}),
        (RTD, {"weight": 0.0}),
        (Learned, {"width": float("nan")}),
        (Config, {"seed": -1}),
        (Config, {"batch": BatchShape(sequence_length=1024)}),
    ],
)
def test_impossible_values(cls: type, fields: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match=list(fields)[-1] if cls is not Config else "seed|sequence_length|hidden_size"
    ):
        cls(**fields)


def test_whole_numbers_stand_for_floats() -> None:
    assert read(Config, {"optimizer": {"learning_rate": 1}}, where="x").optimizer.learning_rate == 1.0


def test_merge_lays_tables_upon_tables() -> None:
    base = {"a": 1, "b": {"kind": "x", "c": 2, "d": 3}}
    assert merge(base, {"b": {"c": 9}}) == {"a": 1, "b": {"kind": "x", "c": 9, "d": 3}}
    assert merge(base, {"b": {"kind": "x", "c": 9}}) == {"a": 1, "b": {"kind": "x", "c": 9, "d": 3}}
    assert merge(base, {"b": {"kind": "y"}}) == {"a": 1, "b": {"kind": "y"}}
    assert base == {"a": 1, "b": {"kind": "x", "c": 2, "d": 3}}


def test_overlay_from_either_format(tmp_path: Path) -> None:
    toml, js = tmp_path / "a.toml", tmp_path / "a.json"
    toml.write_text('seed = 5\n[optimizer]\nlearning_rate = 1e-3\n[objective]\nkind = "mlm"\n')
    js.write_text('{"seed": 5, "optimizer": {"learning_rate": 1e-3}, "objective": {"kind": "mlm"}}')
    one, two = overlay(models.base(), toml), overlay(models.base(), js)
    assert one == two
    assert (one.seed, one.optimizer.learning_rate, one.objective) == (5, 1e-3, MLM())
    assert one.model == models.base().model
    assert sorted(line.split(":")[0] for line in differences(models.base(), one)) == [
        "objective.generator_weight", "objective.kind", "objective.loss_over", "objective.lucky", "objective.weight",
        "optimizer.learning_rate", "seed",
    ]  # fmt: skip


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_files_that_are_no_config(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=str(path)):
        read_table(path)
    with pytest.raises(MissingInputError):
        read_table(tmp_path / "none.json")


def test_another_number_of_steps() -> None:
    short = with_steps(models.small(), 200, defaults=models.small())
    assert (short.schedule.steps, short.schedule.warmup_steps, short.log_every) == (200, 20, 1)
    assert short.evaluation.every == short.checkpoint.every == 10
    long = with_steps(models.small(), 10_000_000, defaults=models.small())
    assert (long.schedule.warmup_steps, long.evaluation.every) == (10_000, models.small().evaluation.every)
    with pytest.raises(ConfigError):
        with_steps(models.small(), 0, defaults=models.small())
