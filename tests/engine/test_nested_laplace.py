"""Gaussians along the scale of a hierarchy, whose posterior given that scale is Gaussian."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import az_cv
from az_cv.engine.laplace import Gaussian, gaussian_at_mode
from az_cv.engine.log_linear import LogLinear
from az_cv.engine.near_mode import draws_near_mode
from az_cv.engine.nested_laplace import NestedGaussian, governing_coordinate, nested_gaussian
from az_cv.sources.laplace import laplace_draws

Y = np.array([1.9, 0.4, -0.6, 1.1, 0.2])
VARIANCE = 0.5


def hierarchy(x):
    """y ~ N(tau z, VARIANCE), z ~ N(0, 1), tau ~ half-normal; log(tau) is the last coordinate."""
    z, tau = x[:, :-1], np.exp(x[:, -1])
    e = (Y - tau[:, None] * z) / VARIANCE
    value = -0.5 * VARIANCE * (e**2).sum(axis=1) - 0.5 * (z**2).sum(axis=1)
    of_tau = tau * (e * z).sum(axis=1) - tau**2 + 1
    return value - 0.5 * tau**2 + x[:, -1], np.column_stack([tau[:, None] * e - z, of_tau])


def jax_hierarchy(x):
    tau = jnp.exp(x[-1])
    e = jnp.asarray(Y) - tau * x[:-1]
    squares = (e**2).sum() / VARIANCE + (x[:-1] ** 2).sum() + tau**2
    return -0.5 * squares + x[-1]


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


def test_a_density_without_an_end_is_refused():
    def slope(x):  # flat in its first coordinate, which sets the scale of the second
        return -0.5 * x[:, 1] ** 2, np.column_stack([np.zeros(len(x)), -x[:, 1]])

    with pytest.raises(ValueError, match="end"):
        nested_gaussian(slope, Gaussian(np.zeros(2), np.eye(2)))


@pytest.fixture(scope="module")
def nested(at_mode):
    return nested_gaussian(hierarchy, at_mode)


def places(nested):
    """Points within the table, and some whose tabulated coordinate is beyond either end."""
    x = nested.sample(np.random.default_rng(3), 1, 40)[0][0]
    x[0, nested.top] = nested.grid[0] - 0.3
    x[1, nested.top] = nested.grid[-1] + 0.3
    return x


def jacobian(nested, x, step=1e-6):
    """Derivatives of the coordinates at points, by differences, and of the log density there."""
    rows, slopes = [], []
    for k in range(x.shape[1]):
        move = np.zeros(x.shape[1])
        move[k] = step
        ends = [x + sign * move for sign in (1, -1)]
        (up, _, high), (down, _, low) = (nested.standardised(at, at) for at in ends)
        rows.append((up - down) / (2 * step))
        change = hierarchy(ends[0])[0] + high - hierarchy(ends[1])[0] - low
        slopes.append(change / (2 * step))
    return np.stack(rows, axis=2), np.stack(slopes, axis=1)


def test_gradients_in_its_own_coordinates_are_those_of_the_density_there(nested):
    x = places(nested)
    moves, slopes = jacobian(nested, x)
    _, gradient, log_jacobian = nested.standardised(x, hierarchy(x)[1])
    assert np.allclose(np.einsum("nzx,nz->nx", moves, gradient), slopes, rtol=1e-5, atol=1e-5)
    assert np.allclose(-np.linalg.slogdet(moves)[1], log_jacobian, atol=1e-6)


def test_a_posterior_that_is_gaussian_given_its_scale_is_standard_normal_there(nested):
    x = nested.sample(np.random.default_rng(4), 1, 500)[0][0]
    value, slope = hierarchy(x)
    z, gradient, log_jacobian = nested.standardised(x, slope)
    assert (value + log_jacobian + 0.5 * (z**2).sum(axis=1)).std() < 0.05
    assert np.sqrt(((gradient + z) ** 2).mean()) < 0.1
    # In its own coordinates it is not: that is what the change is for.
    standard = (x - x.mean(axis=0)) / x.std(axis=0)
    assert np.sqrt(((slope * x.std(axis=0) + standard) ** 2).mean()) > 1.0


def test_coordinates_that_fold_back_are_known():
    """Two lumps with nothing between them: the quantile is flat there, and its spline is not."""
    grid = np.linspace(-10, 10, 33)
    lumps = np.logaddexp(-8 * (grid + 5) ** 2, -8 * (grid - 5) ** 2)
    ones = np.ones((33, 1, 1))
    assert not NestedGaussian(0, grid, lumps, ones[:, 0], ones).is_smooth
    assert NestedGaussian(0, grid, -0.5 * grid**2, ones[:, 0], ones).is_smooth


def test_draws_near_the_mode_of_a_hierarchy_are_nested():
    drawn = draws_near_mode(hierarchy, np.zeros(6), np.random.default_rng(1), 4, 100)
    log_weights = hierarchy(drawn.x.reshape(-1, 6))[0] - drawn.log_proposal.ravel()
    assert log_weights.std() < 0.1
    assert drawn.nested is not None


def test_few_draws_and_funnels_are_left_to_the_gaussian_at_the_mode():
    def funnel(x):
        v, rest = x[:, 0], x[:, 1:]
        squares = (rest**2).sum(axis=1) * np.exp(-v)
        value = -0.5 * (v / 2) ** 2 - 0.5 * squares - v
        return value, np.column_stack([-v / 4 + 0.5 * squares - 1, -rest * np.exp(-v)[:, None]])

    for density, size, draws in ((hierarchy, 6, 99), (funnel, 3, 100)):
        drawn = draws_near_mode(density, np.zeros(size), np.random.default_rng(2), 4, draws)
        expected, _ = gaussian_at_mode(density, np.zeros(size)).sample(
            np.random.default_rng(2), 4, draws
        )
        assert np.array_equal(drawn.x, expected)
        assert drawn.nested is None


def test_what_folds_back_stays_as_it_is():
    drawn = draws_near_mode(hierarchy, np.zeros(6), np.random.default_rng(1), 4, 100)
    value, gradient = hierarchy(drawn.x.reshape(-1, 6))
    asked = value.reshape(4, 100), gradient.reshape(drawn.x.shape)
    assert not np.array_equal(drawn.standardised(*asked)[0], drawn.x)
    folded = replace(drawn.nested, log_density=-30.0 * np.cos(8 * drawn.nested.grid) ** 2)
    for own in (replace(drawn, nested=folded), replace(drawn, nested=None)):
        z, log_density, slope, log_proposal = own.standardised(*asked)
        assert z is drawn.x
        assert log_proposal is drawn.log_proposal
        assert (log_density is asked[0]) and (slope is asked[1])


@pytest.fixture(scope="module")
def tree():
    return laplace_draws(jax_hierarchy, start=np.zeros(6), num_draws=400)


def test_weights_do_not_depend_on_the_coordinates(tree):
    scores = tree["cv_scores"]
    x = tree["posterior"]["x"].values
    assert not np.allclose(scores["unconstrained_draw"], x)
    assert scores.attrs["coordinates"] == "of the proposal"
    own = scores["log_density"] - scores["log_proposal"]
    value, _ = hierarchy(x.reshape(-1, 6))
    of_draws = value.reshape(4, 100) - tree["sample_stats"]["log_proposal"]
    assert np.allclose(own - own.mean(), of_draws - of_draws.mean(), atol=1e-9)


def test_a_model_that_is_passed_again_gives_the_same_weighted_averages(tree):
    stored, anew = (
        az_cv.fit(tree, model=model, log_weights="psis", progressbar=False).estimates["x"]
        for model in (None, jax_hierarchy)
    )
    plain = [found.sel(summary="plain_mean") for found in (stored, anew)]
    assert np.allclose(*plain, atol=1e-9)
    # The coordinates of the proposal are worth having.
    errors = [found.sel(summary="mcse_mean") for found in (stored, anew)]
    assert (errors[0] < errors[1]).all()


def test_quick_answers_a_hierarchy():
    table = az_cv.quick(jax_hierarchy, start=np.zeros(6), num_draws=400, round_to="none")
    error = np.abs(table["mean"] - exact_means())
    assert (error < 4 * table["mcse_mean"]).all()
    assert (table["mcse_mean"] < table["sd"] / 300).all()
