"""Gaps between modes in one dimension, against their algebra and against truth."""

import numpy as np
import pytest

from az_cv.engine.engine import run_engine
from az_cv.engine.gaps import gap_error
from az_cv.solvers.error_model import ERROR_MODEL


def test_a_shoulder_by_hand():
    """A score of -1 before, -2 behind a gap of width 1: a step of 1 or 2, odds that move by e."""
    x = np.concatenate([np.arange(20) / 10, np.arange(20) / 10 + 2.9])
    before = np.arange(40) < 20
    error = gap_error(x, np.where(before, -1.0, -2.0), 3.0 * before[:, None], ERROR_MODEL)
    np.testing.assert_allclose(error, 3 * (np.e / (1 + np.e) - 0.5), rtol=1e-12)


@pytest.mark.parametrize("edge", [0.5, -0.5], ids=["past the peaks", "before the peaks"])
def test_shares_of_modes_far_apart_are_unknown(edge):
    """With 4 of 44 draws in the other mode, its share may be anything up to one."""
    left = -20 + np.linspace(-1, edge, 4)
    right = 20 + np.linspace(-1, 1, 40)
    x = np.concatenate([left, right])
    error = gap_error(x, 20 * np.sign(x) - x, np.sign(x)[:, None], ERROR_MODEL)
    np.testing.assert_allclose(error, 2 * 40 / 44, rtol=1e-12)


@pytest.mark.parametrize("n", [50, 500, 4000])
def test_one_mode_has_no_gaps(n, rng):
    t, gamma = rng.standard_t(4, size=n), rng.gamma(2.0, size=n)
    gaussian = rng.normal(size=n)
    for x, s in (
        (gaussian, -gaussian),
        (np.append(t, 60.0), -5 * np.append(t, 60.0) / (4 + np.append(t, 60.0) ** 2)),
        (np.log(gamma), 2 - gamma),
    ):
        np.testing.assert_array_equal(gap_error(x, s, np.stack([x, x**2], axis=1), ERROR_MODEL), 0)


# Weights, means and sds of three Gaussians.
MIXTURES = {
    "valley between modes": ([0.28, 0.11, 0.61], [1.6, 0.0, -1.6], [0.66, 0.47, 0.31]),
    "narrow on wide": ([0.04, 0.77, 0.19], [-2.2, 1.1, -1.7], [1.0, 0.37, 1.01]),
}


def mixture(rng, n, name="valley between modes"):
    """Return draws, scores and the expectation of the cosine."""
    weights, means, sds = map(np.array, MIXTURES[name])
    which = rng.choice(3, size=n, p=weights)
    x = means[which] + sds[which] * rng.normal(size=n)
    logs = np.log(weights / sds) - 0.5 * ((x[:, None] - means) / sds) ** 2
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    truth = weights @ (np.exp(-0.5 * sds**2) * np.cos(means))
    return x, (shares * (means - x[:, None]) / sds**2).sum(axis=1), truth


def test_order_and_repetition_of_draws_do_not_matter(rng):
    x, s, _ = mixture(rng, 200)
    outputs = np.stack([x, np.cos(x)], axis=1)
    error = gap_error(x, s, outputs, ERROR_MODEL)
    assert (error > 0).all()
    order = rng.permutation(np.repeat(np.arange(200), 3))
    np.testing.assert_allclose(
        gap_error(x[order], s[order], outputs[order], ERROR_MODEL), error, rtol=1e-12
    )


def test_more_draws_close_a_gap(rng):
    errors = [
        gap_error(x, s, x[:, None], ERROR_MODEL)[0]
        for x, s, _ in (mixture(rng, n) for n in (100, 10_000))
    ]
    assert errors[1] < 0.1 * errors[0]


@pytest.mark.parametrize("name", MIXTURES)
def test_errors_of_mixtures_are_honest(name):
    """Without the error from gaps the worst of these is beyond ten standard errors."""
    z = []
    for seed in range(20):
        x, s, truth = mixture(np.random.default_rng(seed), 100, name)
        estimate = run_engine(x[None, :, None], s[None, :, None], np.cos(x)[None, :, None]).estimate
        z.append((estimate.mean[0] - truth) / estimate.mcse[0])
    assert np.abs(z).max() < 4
    assert np.mean(np.square(z)) < 1.6**2
