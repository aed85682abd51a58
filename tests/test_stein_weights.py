"""Weights that make averages of the draws estimates of expectations."""

import numpy as np
import pytest
import scipy.special

import az_cv
from az_cv.sources.schema import scores_dataset


def test_averages_of_draws_from_elsewhere_are_those_of_the_posterior():
    shape = 9.0  # the posterior is that of logarithms of gamma variables
    mode, sd = np.log(shape), 1 / np.sqrt(shape)
    x = mode + sd * np.random.default_rng(0).normal(size=(4, 75, 2))
    weights = az_cv.stein_weights({"x": x}, scores=scores_dataset(x, shape - np.exp(x)))
    found = (weights.values[..., None] * x).sum(axis=(0, 1))
    assert np.allclose(found, scipy.special.digamma(shape), atol=1e-4)
    second = (weights.values[..., None] * x**2).sum(axis=(0, 1))
    exact = scipy.special.polygamma(1, shape) + scipy.special.digamma(shape) ** 2
    assert np.allclose(second, exact, atol=1e-3)
    assert abs(x.mean() - scipy.special.digamma(shape)) > 0.02


def test_weights_annihilate_scores_and_sum_to_one():
    x = np.random.default_rng(1).normal(size=(2, 60, 3))
    scores = -(x**3)
    weights = az_cv.stein_weights({"x": x}, scores=scores_dataset(x, scores)).values[..., None]
    assert np.isclose(weights.sum(), 1)
    assert np.allclose((weights * scores).sum(axis=(0, 1)), 0, atol=1e-9)


def test_copies_share_the_weight_of_their_draw():
    x = np.random.default_rng(2).normal(size=(1, 50, 2))
    twice = np.concatenate([x, x], axis=1)
    once = az_cv.stein_weights({"x": x}, scores=scores_dataset(x, -x)).values
    shared = az_cv.stein_weights({"x": twice}, scores=scores_dataset(twice, -twice)).values
    assert np.allclose(shared[:, :50] + shared[:, 50:], once)


def test_too_many_draws_are_refused(monkeypatch):
    import sys

    monkeypatch.setattr(sys.modules["az_cv.stein_weights"], "MAX_DRAWS", 20)
    x = np.random.default_rng(3).normal(size=(1, 50, 2))
    with pytest.raises(ValueError, match="Thin the data"):
        az_cv.stein_weights({"x": x}, scores=scores_dataset(x, -x))
