"""The pair head's first weights: scikit-learn's own predictions from a linear layer, and what a run begins with."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from tests.finetuning import toy
from tests.finetuning.test_run import go
from tests.finetuning.toy import Toy

from electra_trainer.errors import Diverged
from electra_trainer.finetuning.run import (
    Batches,
    FineTunedNetwork,
    FineTuningRun,
    Job,
    build_batches,
    build_network,
    fit_head,
    outputs,
)
from electra_trainer.tasks import baselines, pair_head
from electra_trainer.tasks.pair_head import MATCHES, fitted

CPU = torch.device("cpu")


def rows(*, classes: int, count: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Features of unequal size and mean, and class numbers (or numbers) that three of them decide."""
    random = np.random.default_rng(3)
    matrix = (random.standard_normal((count, 12)) * np.linspace(0.1, 9, 12) + np.arange(12)).astype(np.float32)
    said = matrix[:, :3] @ random.standard_normal((3, max(classes, 1))) + 0.1 * random.standard_normal(
        (count, max(classes, 1))
    )
    return matrix, said.argmax(-1) if classes else said[:, 0]


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_the_layer_gives_what_the_regression_gives(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the features as they are: the regression has seen them with mean 0 and standard deviation 1."""
    matrix, answers = rows(classes=classes)
    monkeypatch.setattr(pair_head, "PENALTIES", (10.0,))
    weight, bias = fitted(matrix, answers, np.arange(len(answers)), classes=classes)
    scaled, found = (matrix - matrix.mean(0)) / matrix.std(0), torch.from_numpy(matrix @ weight.T + bias)
    if classes:
        expected = LogisticRegression(C=0.1, max_iter=300).fit(scaled, answers).predict_proba(scaled)
        assert found.softmax(-1).numpy() == pytest.approx(expected, abs=2e-3)
        assert (found.argmax(-1).numpy() == answers).mean() > 0.8
    else:
        assert found[:, 0].numpy() == pytest.approx(Ridge(alpha=10.0).fit(scaled, answers).predict(scaled), abs=1e-3)


def test_the_penalty_is_chosen_on_rows_that_were_not_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise wants the larger, a rule the smaller."""
    monkeypatch.setattr(pair_head, "PENALTIES", (10.0, 1e4))
    noise = np.random.default_rng(0)
    nothing = noise.standard_normal((200, 100)).astype(np.float32), noise.integers(0, 2, 200)
    something = rows(classes=2)
    chosen = [fitted(*given, np.arange(len(given[1])), classes=2)[0] for given in (nothing, something)]
    for given, found, penalty in zip((nothing, something), chosen, (1e4, 10.0), strict=True):
        monkeypatch.setattr(pair_head, "PENALTIES", (penalty,))
        assert found == pytest.approx(fitted(*given, np.arange(len(given[1])), classes=2)[0])


def test_classes_are_fitted_to_matches_rather_than_means_and_numbers_to_both() -> None:
    """A mean and a match tell the answer equally well, among 300 means that are noise."""
    noise = np.random.default_rng(0)
    answers = np.arange(400) % 2
    matrix = noise.standard_normal((400, 300 + MATCHES)).astype(np.float32)
    matrix[:, [0, -1]] += answers[:, None]
    for classes, low, high in ((2, 10, 100), (0, 0.5, 2)):
        weight, _ = fitted(matrix, answers, np.arange(400), classes=classes)
        assert low < abs(weight[-1, -1] / weight[-1, 0]) < high


def test_rare_classes() -> None:
    """One with one example, and one with none, which must not look likely for that."""
    matrix, answers = rows(classes=2)
    answers[0] = 2
    weight, bias = fitted(matrix, answers, np.arange(len(answers)), classes=4)
    scores = matrix @ weight.T + bias
    assert np.isfinite(scores).all()
    assert (scores[:, :2].max(-1) >= scores[:, 3]).mean() > 0.9


def test_folds_hold_out_examples_and_never_a_rare_class() -> None:
    """An example that occurs twice is held out in both; each common class is in every fold."""
    examples = np.tile(np.arange(30), 2)
    answers = np.where(examples < 2, 7, examples % 2)
    found = baselines.folds(answers, examples, classes=8)
    assert (found[:30] == found[30:]).all()
    assert (found[answers == 7] == -1).all()
    for answer in (0, 1):
        assert set(found[answers == answer]) == {0, 1, 2}
    numbers = baselines.folds(np.arange(60.0), examples, classes=0)
    assert (numbers[:30] == numbers[30:]).all() and np.bincount(numbers).tolist() == [20, 20, 20]
    assert (np.diff(numbers[:30]) < 0).any(), "drawn, not by the order of the file"


def started(job: Job) -> tuple[FineTunedNetwork, Batches]:
    """The network of a job as its first step finds it."""
    data, recipe = job.data.under(job.recipe)
    job = replace(job, data=data, recipe=recipe)
    batches, network = build_batches(job, device=CPU), build_network(job.source, data.task, recipe, seed=1)
    data.task.prepare(network.head, data.train, job.source.text(recipe.max_length))
    fit_head(network, batches)
    return network, batches


@torch.no_grad()
def loss(network: FineTunedNetwork, batches: Batches) -> float:
    total, job = 0.0, batches.job
    for indices, hidden_BTD, batch in outputs(
        network.eval(), batches.rows, specials=job.source.specials, device=CPU, precision="fp32"
    ):
        part = [batches.rows[index] for index in indices]
        total += float(job.data.task.loss(network.head, hidden_BTD, batch, part)[0])
    return total / len(batches.rows)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_run_begins_with_what_the_encoder_knows(kind: str) -> None:
    """Below the loss of the best constant; the encoder and all else of the head are as they were."""
    job = replace(toy.job(pooling="pair"), data=Toy(kind=kind, paired=True).load())
    network, batches = started(job)
    targets = np.array([row.target for row in batches.rows], dtype=np.float64)
    shares = np.bincount(targets.astype(int)) / len(targets) if kind == "classification" else np.ones(1)
    constant = -float(shares @ np.log(shares)) if kind == "classification" else float(targets.var())
    assert loss(network, batches) < 0.95 * constant
    drawn = build_network(job.source, batches.job.data.task, batches.job.recipe, seed=1).state_dict()
    changed = {name for name, tensor in network.state_dict().items() if not torch.equal(tensor, drawn[name])}
    assert changed == {"head.dense.weight", "head.dense.bias", "head.idf_V", "head.spelling_VS"}


def test_where_there_is_nothing_to_fit_the_head_stays_as_drawn() -> None:
    data = Toy(paired=True, rows=16).load()
    alike = replace(data, train=[replace(one, label=data.train[0].label) for one in data.train])
    for given in (alike, replace(data, train=data.train[:5])):
        network, batches = started(replace(toy.job(pooling="pair"), data=given))
        drawn = build_network(toy.source(), batches.job.data.task, batches.job.recipe, seed=1)
        assert torch.equal(network.head.dense.weight, drawn.head.dense.weight)  # type: ignore[union-attr]


def test_features_that_are_nan_end_the_run_as_diverged() -> None:
    job = replace(toy.job(pooling="pair"), data=Toy(paired=True, rows=16).load())
    broken = {name: torch.full_like(tensor, float("nan")) for name, tensor in job.source.weights.items()}
    with pytest.raises(Diverged, match="NaN or infinite"):
        started(replace(job, source=replace(job.source, weights=broken)))


def test_a_run_takes_it_once_and_learns_slowly_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its first step, and at a tenth of the rate of a drawn head; [CLS] has the paper's head."""
    seen: list[object] = []
    real, start = FineTuningRun.before_steps, pair_head.start_from_probe

    def noted(self: FineTuningRun, *stop: Any) -> None:
        seen.append(self.share("head.dense.weight"))
        real(self, *stop)

    monkeypatch.setattr(FineTuningRun, "before_steps", noted)
    monkeypatch.setattr("electra_trainer.tasks.texts.start_from_probe", lambda *of: seen.append("fit") or start(*of))
    go(replace(toy.job(pooling="pair"), data=Toy(paired=True, rows=16).load()), tmp_path / "pair")
    go(toy.job(rows=16), tmp_path / "cls")
    assert seen == [0.1, "fit", 1.0]
