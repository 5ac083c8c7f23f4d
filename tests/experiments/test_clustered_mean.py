"""Standard errors where the words of a row belong together."""

import numpy as np
import pytest

from electra_trainer.experiments.statistics import clustered_mean


def test_single_values_give_the_usual_standard_error() -> None:
    values = np.random.default_rng(0).random(50)
    found = clustered_mean(values, np.arange(50))
    assert found.value == pytest.approx(values.mean())
    assert found.standard_error == pytest.approx(values.std(ddof=1) / np.sqrt(50))
    assert found.high - found.low == pytest.approx(2 * 1.959964 * found.standard_error)


def test_repeating_a_cluster_brings_no_precision() -> None:
    values = np.random.default_rng(1).random(40)
    once = clustered_mean(values, np.arange(40))
    four = clustered_mean(values.repeat(4), np.arange(40).repeat(4))
    assert four.standard_error == pytest.approx(once.standard_error)


def test_against_simulation_with_clusters_of_different_size() -> None:
    """The spread of the mean over many samples of clusters is what the standard error says, and more than independence would."""
    random = np.random.default_rng(2)
    means, errors, naive = [], [], []
    for _ in range(400):
        sizes = random.integers(1, 7, 80)
        values = random.random(sizes.sum()) < random.beta(0.5, 0.5, 80).repeat(sizes)
        found = clustered_mean(values, np.arange(80).repeat(sizes))
        means.append(found.value)
        errors.append(found.standard_error)
        naive.append(values.std() / np.sqrt(len(values)))
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.1)
    assert np.mean(errors) > 1.3 * np.mean(naive)
    assert np.isnan(clustered_mean(np.ones(3), np.zeros(3, dtype=int)).standard_error)
