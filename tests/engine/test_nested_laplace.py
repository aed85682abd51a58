"""Gaussians along the scale of a hierarchy, whose posterior given that scale is Gaussian."""

import numpy as np
import pytest
import scipy.special

import az_cv
from az_cv.engine.laplace import Gaussian, gaussian_at_mode
from az_cv.engine.log_linear import LogLinear
from az_cv.engine.nested_laplace import draws_near_mode, governing_coordinate, nested_gaussian

Y = np.array([1.9, 0.4, -0.6, 1.1, 0.2])
VARIANCE = 0.5


def hierarchy(x):
    """y ~ N(tau z, VARIANCE), z ~ N(0, 1), tau ~ half-normal; log(tau) is the last coordinate."""
    z, tau = x[:, :-1], np.exp(x[:, -1])
    e = (Y - tau[:, None] * z) / VARIANCE
    value = -0.5 * VARIANCE * (e**2).sum(axis=1) - 0.5 * (z**2).sum(axis=1)
    of_tau = tau * (e * z).sum(axis=1) - tau**2 + 1
    return value - 0.5 * tau**2 + x[:, -1], np.column_stack([tau[:, None] * e - z, of_tau])


def exact_means():
    """Sums over a grid: given tau, z is Gaussian, and the data are N(0, tau^2 + VARIANCE)."""
    log_tau = np.linspace(-12, 3, 6001)
    total = np.exp(2 * log_tau) + VARIANCE
    logs = -0.5 * len(Y) * np.log(total) - 0.5 * (Y @ Y) / total - 0.5 * np.exp(2 * log_tau)
    weights = scipy.special.softmax(logs + log_tau)
    return np.append(Y * (weights @ (np.exp(log_tau) / total)), weights @ log_tau)


@pytest.fixture(scope="module")
def at_mode():
    return gaussian_at_mode(hierarchy, np.zeros(6))


def test_the_scale_is_found(at_mode):
    assert governing_coordinate(hierarchy, at_mode) == 5


def test_a_posterior_that_is_gaussian_given_its_scale_has_equal_weights(at_mode):
    nested = nested_gaussian(hierarchy, at_mode)
    x, log_proposal = nested.sample(np.random.default_rng(0), 4, 500)
    log_weights = hierarchy(x.reshape(-1, 6))[0] - log_proposal.ravel()
    assert log_weights.std() < 0.1
    error = x.mean(axis=(0, 1)) - exact_means()
    assert (np.abs(error) < 4 * x.std(axis=(0, 1)) / np.sqrt(2000)).all()


def test_its_density_is_normalised_and_that_of_its_draws():
    density = LogLinear.through(np.array([-1.0, 0.0, 2.0]), np.array([0.0, 1.0, -0.5]))
    uniform = (np.arange(20_000) + 0.5) / 20_000
    x, log_density = density.sample(uniform)
    assert (np.diff(x[x > -1]) > 0).all()
    # Between neighbours lies 1 / 20,000 of the probability.
    inner = slice(5_000, 15_000)
    share = np.diff(x)[inner] * np.exp(log_density)[inner]
    assert np.allclose(share, 1 / 20_000, rtol=1e-3)


def test_draws_near_the_mode_of_a_hierarchy_are_nested():
    x, log_proposal = draws_near_mode(hierarchy, np.zeros(6), np.random.default_rng(1), 4, 100)
    log_weights = hierarchy(x.reshape(-1, 6))[0] - log_proposal.ravel()
    assert log_weights.std() < 0.1


def test_few_draws_and_funnels_are_left_to_the_gaussian_at_the_mode(at_mode):
    def funnel(x):
        v, rest = x[:, 0], x[:, 1:]
        squares = (rest**2).sum(axis=1) * np.exp(-v)
        value = -0.5 * (v / 2) ** 2 - 0.5 * squares - v
        return value, np.column_stack([-v / 4 + 0.5 * squares - 1, -rest * np.exp(-v)[:, None]])

    for density, size, draws in ((hierarchy, 6, 99), (funnel, 3, 100)):
        x, _ = draws_near_mode(density, np.zeros(size), np.random.default_rng(2), 4, draws)
        expected, _ = gaussian_at_mode(density, np.zeros(size)).sample(
            np.random.default_rng(2), 4, draws
        )
        assert np.array_equal(x, expected)


def test_a_density_without_an_end_is_refused():
    def slope(x):  # flat in its first coordinate, which sets the scale of the second
        return -0.5 * x[:, 1] ** 2, np.column_stack([np.zeros(len(x)), -x[:, 1]])

    with pytest.raises(ValueError, match="end"):
        nested_gaussian(slope, Gaussian(np.zeros(2), np.eye(2)))


def test_quick_answers_a_hierarchy():
    import jax.numpy as jnp

    def density(x):
        tau = jnp.exp(x[-1])
        e = jnp.asarray(Y) - tau * x[:-1]
        squares = (e**2).sum() / VARIANCE + (x[:-1] ** 2).sum() + tau**2
        return -0.5 * squares + x[-1]

    table = az_cv.quick(density, start=np.zeros(6), num_draws=400, round_to="none")
    error = np.abs(table["mean"] - exact_means())
    assert (error < 4 * table["mcse_mean"]).all()
    assert (table["mcse_mean"] < table["sd"] / 30).all()
