"""Operations of steps and runs: published numbers, PyTorch's own counter, and brute force."""

import dataclasses
from typing import Any

import pytest
import torch
from tests.cost.narrow import OBJECTIVES, narrow
from torch.utils.flop_counter import FlopCounterMode

from electra_trainer import objectives
from electra_trainer.batch import Batch, Masked
from electra_trainer.cost.flops import (
    infer_flops,
    muon_products,
    paper_encoder,
    real_encoder,
    row_parts,
    run_flops,
    step_flops,
    steps_for_flops,
)
from electra_trainer.cost.parameters import parameters, single_output, slots
from electra_trainer.kernels.native import native_muon
from electra_trainer.presets import models
from electra_trainer.randomness import Rng
from electra_trainer.settings import methods
from electra_trainer.settings.config import Config, Optimizer, changed, generator_shape
from electra_trainer.train import optim


@pytest.mark.parametrize(
    ("width", "total"), [(32, 1.257), (64, 1.294), (96, 1.350), (128, 1.424), (192, 1.634), (256, 1.920)]
)
def test_paper_flops_of_small_follow_the_generator(width: int, total: float) -> None:
    """The authors' formulas for generators of other widths; units of 1e18."""
    config = dataclasses.replace(models.small(), generator=methods.Learned(width=width / 256))
    assert run_flops(config).paper / 1e18 == pytest.approx(total, abs=6e-4)


@pytest.mark.parametrize(
    ("width", "step", "ratio"),
    [
        (64, 7.782, 1.21),
        (128, 7.922, 1.23),
        (256, 8.387, 1.30),
        (384, 9.100, 1.42),
        (512, 10.059, 1.56),
        (768, 12.69, 1.97),
    ],
)
def test_paper_flops_of_base_follow_the_generator(width: int, step: float, ratio: float) -> None:
    """One step, in units of 1e13, and against BERT-Base's."""
    config = dataclasses.replace(models.base(), generator=methods.Learned(width=width / 768))
    counted = step_flops(config).paper
    assert counted / 1e13 == pytest.approx(step, abs=6e-4 if width < 768 else 6e-3)
    assert counted / step_flops(models.bert_base()).paper == pytest.approx(ratio, abs=6e-3)


@pytest.mark.parametrize(("name", "forward"), [("small", 3.677e9), ("base", 2.862e10), ("large", 8.747e10)])
def test_inference_flops_are_those_of_table_1(name: str, forward: float) -> None:
    assert infer_flops(models.preset(name)).paper == pytest.approx(forward, rel=2e-4)


@pytest.mark.parametrize(("name", "millions"), [("small", 70.2), ("base", 667.7), ("large", 2169)])
def test_real_flops_of_a_token(name: str, millions: float) -> None:
    config = models.preset(name)
    assert step_flops(config).real / config.tokens_per_step / 1e6 == pytest.approx(millions, rel=1e-3)


def counted_by_torch(config: Config, *, backward: bool) -> int:
    """Products of a whole step of full rows. With dropout on, attention is made of plain products, which the counter knows."""
    shape, vocabulary = config.batch, config.model.vocab_size
    network = objectives.build(dataclasses.replace(config, last_layer="all"))
    ids_BT = torch.randint(vocabulary, (shape.size, shape.sequence_length))
    zeros_BT = torch.zeros_like(ids_BT)
    position_BT = torch.arange(shape.sequence_length).expand_as(ids_BT)
    batch = Batch(ids_BT=ids_BT, segment_BT=zeros_BT, position_BT=position_BT, piece_BT=zeros_BT + 1)
    slots_K = (torch.arange(shape.size)[:, None] * shape.sequence_length + torch.arange(slots(config))).flatten()
    masked = Masked(batch=batch, input_BT=ids_BT, slots_K=slots_K)
    with torch.set_grad_enabled(backward), FlopCounterMode(display=False) as counter:
        losses = network(masked, Rng(seed=1, step=1, lane=0))
        if backward:
            losses.total(network.counts(masked)).backward()
    return int(counter.get_total_flops())


BLOCKS = pytest.mark.parametrize("block", ["bert", "modern"])


def with_block(config: Config, block: Any) -> Config:
    return changed(config, model={"block": block})


@pytest.mark.parametrize("generator", [methods.Learned(width=1.0, depth=0.5), methods.Unigram(), methods.Uniform()])
def test_real_flops_with_other_generators(generator: Any) -> None:
    config = narrow(generator=generator)
    assert counted_by_torch(config, backward=False) == config.batch.size * sum(p.real for p in row_parts(config))
    assert len(row_parts(config)) == (4 if isinstance(generator, methods.Learned) else 2)


@BLOCKS
@pytest.mark.parametrize("name", OBJECTIVES)
def test_real_flops_equal_the_products_of_a_step(name: str, block: str) -> None:
    """Forward and backward. Beside them: logits that are made again to save memory, and the baseline, whose input has no gradient."""
    config = with_block(narrow(objective=OBJECTIVES[name]), block)
    logits = 2 * config.model.embedding_size * config.model.vocab_size
    beside = 0
    if isinstance(config.objective, methods.AllTokensMLM):
        beside = config.batch.sequence_length * logits
    if isinstance(config.objective, methods.HardMLM):
        beside = slots(config) * logits
    if isinstance(config.objective, methods.Adversarial):
        width, read = single_output(config)
        beside = slots(config) * logits - 2 * width * read
    assert counted_by_torch(config, backward=True) == step_flops(config).real + config.batch.size * beside


@BLOCKS
@pytest.mark.parametrize("sharing", ["none", "embeddings", "all"])
def test_real_flops_have_muons_products(sharing: Any, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLOPs of Muon on the matrices that it moves, counted while it steps by PyTorch's products."""
    monkeypatch.setattr(native_muon, "fits", lambda *_, **__: False)
    generator = methods.Learned(width=1.0 if sharing == "all" else 0.5)
    config = with_block(narrow(sharing=sharing, generator=generator, optimizer=Optimizer(name="muon")), block)
    network = objectives.build(config)
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer = optim.build_optimizer(network, config.optimizer)
    with FlopCounterMode(display=False) as counter:
        optimizer.step()
    without = dataclasses.replace(config, optimizer=Optimizer())
    assert step_flops(config).real - step_flops(without).real == counter.get_total_flops() > 0
    assert step_flops(config).paper == step_flops(without).paper


def test_muon_moves_what_a_stage_trains() -> None:
    """The smaller generator alone, then the discriminator alone."""
    stages = two_stage(start="fresh")
    config = dataclasses.replace(stages, generator=methods.Learned(width=0.5), optimizer=Optimizer(name="muon"))
    first, second = (muon_products(config, stage) for stage in (True, False))
    assert 0 < first < second
    assert muon_products(dataclasses.replace(config, phases=narrow().phases)) == first + second


@pytest.mark.parametrize("name", ["small", "base", "mini"])
def test_the_modern_block_costs_what_berts_does(name: str) -> None:
    """Operations as the paper counts them, products and parameters of the layers, each within 3 %."""
    bert, modern = (with_block(models.preset(name), block) for block in ("bert", "modern"))
    assert step_flops(modern).paper == pytest.approx(step_flops(bert).paper, rel=0.03)
    assert step_flops(modern).real == pytest.approx(step_flops(bert).real, rel=0.03)
    assert parameters(modern).encoder == pytest.approx(parameters(bert).encoder, rel=0.03)


@pytest.mark.parametrize(("window", "length"), [(8, 40), (9, 5), (128, 128), (128, 64), (1, 7)])
def test_products_of_layers_with_windows(window: int, length: int) -> None:
    """Each token's scores and mixture with those that it sees, counted one by one; layers 0 and 3 of 5 see all."""
    whole = dataclasses.replace(models.preset("tiny").model, block="modern", num_hidden_layers=5)
    near = dataclasses.replace(whole, local_attention=window)
    hidden = sum(abs(i - j) > window // 2 for i in range(length) for j in range(length))
    less = 3 * 4 * whole.hidden_size * hidden
    assert real_encoder(near, length) == pytest.approx(real_encoder(whole, length) - less)
    assert (paper_encoder(near, length) < paper_encoder(whole, length)) == (hidden > 0)


def two_stage(**changes: Any) -> Config:
    return narrow(generator=methods.Learned(width=1.0), sharing="none", phases=methods.TwoStage(**changes))


def test_the_first_stage_costs_what_the_generator_alone_does() -> None:
    """A masked language model of its shape; in the second stage it is read, not trained."""
    config = two_stage()
    switch = config.first_stage_steps
    assert switch == config.schedule.steps // 2
    alone = step_flops(dataclasses.replace(narrow(objective=methods.MLM()), model=generator_shape(config)))
    joint = step_flops(dataclasses.replace(config, phases=narrow().phases))
    before, after = step_flops(config, step=switch - 1), step_flops(config, step=switch)
    assert before == step_flops(config) == alone
    assert after.paper == pytest.approx(joint.paper - alone.paper / 2)
    assert after.real == pytest.approx(joint.real - alone.real * 2 / 3)


@pytest.mark.parametrize("share", [0.5, 0.3, 0.77])
def test_flops_of_a_run_are_those_of_its_steps(share: float) -> None:
    config = changed(two_stage(share=share), schedule={"steps": 9, "warmup_steps": 0})
    for steps in range(10):
        each = [step_flops(config, step=step) for step in range(steps)]
        counted = run_flops(config, steps=steps)
        assert counted.paper == pytest.approx(sum(cost.paper for cost in each))
        assert counted.real == pytest.approx(sum(cost.real for cost in each))
    assert run_flops(config) == run_flops(config, steps=9)
    assert run_flops(narrow(), steps=7).real == 7 * step_flops(narrow()).real


@pytest.mark.parametrize("counting", ["paper", "real"])
@pytest.mark.parametrize("config", [narrow(), *(two_stage(share=share) for share in (0.5, 0.31, 0.9))], ids=str)
def test_steps_for_flops_are_the_most_that_fit(config: Config, counting: Any) -> None:
    """Against a search through whole runs of 0, 1, 2, … steps."""

    def whole(steps: int) -> float:
        return float(getattr(run_flops(changed(config, schedule={"steps": steps, "warmup_steps": 0})), counting))

    totals = [0.0] + [whole(steps) for steps in range(1, 40)]
    assert totals == sorted(set(totals))
    for steps, total in enumerate(totals[:-1]):
        between = (total + totals[steps + 1]) / 2
        for flops in (total, between):
            assert steps_for_flops(config, flops=max(flops, 1e-9), counting=counting) == steps


def test_steps_for_any_amount() -> None:
    assert steps_for_flops(models.small(), flops=1.0) == 0
    assert steps_for_flops(models.small(), flops=run_flops(models.small()).paper) == 1_000_000
    assert steps_for_flops(narrow(), flops=1e60) > 10**18


def test_an_objective_of_ones_own_is_counted_by_what_it_says(own_objective: type) -> None:
    """A discriminator that also sends the masked positions through the vocabulary."""
    mine = [part.name for part in row_parts(narrow(objective=own_objective()))]
    assert mine == [*(part.name for part in row_parts(narrow(objective=methods.RTD()))), "token head"]


def test_paper_flops_of_all_tokens_see_the_vocabulary_everywhere() -> None:
    """128 positions of 128 instead of 20, beside the copy layer."""
    few, all_tokens = (
        {part.name: part.paper for part in row_parts(models.preset(name))}
        for name in ("base_replace_mlm", "base_all_tokens_mlm")
    )
    assert all_tokens["token head"] == pytest.approx(6.4 * few["token head"])
    assert all_tokens["the objective's own layer"] == 512 * 2 * 768
