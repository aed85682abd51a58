"""Draws that are not from the posterior: `log_weights`, `draws="approximate"`, and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.special
import xarray as xr
from arviz_stats.base import array_stats

import az_cv
from az_cv.sources.batches import jax_float64

OUTCOMES = np.array([1.0, 0, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1])
DESIGN = np.column_stack([np.ones(12), np.linspace(-1.5, 1.5, 12)])


def log_density(coefficients):
    """Logistic regression with two coefficients."""
    logits = jnp.asarray(DESIGN) @ coefficients
    likelihood = logits @ jnp.asarray(OUTCOMES) - jnp.logaddexp(0, logits).sum()
    return likelihood - 0.5 * (coefficients**2).sum()


def densities(points):
    logits = points @ DESIGN.T
    return logits @ OUTCOMES - np.logaddexp(0, logits).sum(-1) - 0.5 * (points**2).sum(-1)


def truth():
    """Return mean and sd by quadrature, and a Gaussian at the mode."""
    axes = np.linspace(-6, 6, 601)
    grid = np.stack(np.meshgrid(axes, axes, indexing="ij"), axis=-1).reshape(-1, 2)
    weights = np.exp(densities(grid) - densities(grid).max())
    weights /= weights.sum()
    mean = weights @ grid
    mode = grid[np.argmax(weights)]
    slope = scipy.special.expit(DESIGN @ mode)
    precision = (DESIGN.T * (slope * (1 - slope))) @ DESIGN + np.eye(2)
    return mean, np.sqrt(weights @ (grid - mean) ** 2), mode, np.linalg.inv(precision)


def laplace(n=400, seed=0):
    """Return draws of the Gaussian at the mode, and the logarithms of their weights."""
    _, _, mode, covariance = truth()
    noise = np.random.default_rng(seed).normal(size=(4, n // 4, 2))
    x = mode + noise @ np.linalg.cholesky(covariance).T
    ratio = densities(x) + 0.5 * (noise**2).sum(axis=2)
    coords = {"chain": range(4), "draw": range(n // 4)}
    return {"b": x}, xr.DataArray(ratio, coords, dims=("chain", "draw"))


def check(table, column="mean", reduction=20):
    mean, sd, mode, _ = truth()
    exact = mean if column == "mean" else sd
    error = table[f"mcse_{column}"].to_numpy()
    assert (np.abs(table[column].to_numpy() - exact) < 3 * error).all()
    assert (error < 0.005).all()
    if column == "mean":
        # The Gaussian itself is off by far more.
        assert (np.abs(mode - mean) > reduction * error).any()


def test_weights_correct_draws_of_a_gaussian_at_the_mode():
    data, log_weights = laplace()
    table = az_cv.summary(data, model=log_density, log_weights=log_weights, round_to="none")
    check(table)
    check(table, "sd")
    assert (table["vrf_mean"] > 100).all()
    assert "Pareto k" in table.attrs["weights"]


def test_tails_of_weights_and_of_weighted_residuals_are_reported():
    data, log_weights = laplace(n=200)
    options = {"model": log_density, "log_weights": log_weights, "family": "polynomial"}
    result = az_cv.fit(data, **options)
    residuals = result.draws["b"].to_numpy()
    worst = max(array_stats.pareto_khat(residuals[..., k], r_eff=1.0) for k in range(2))
    assert f"Pareto k of weighted residuals up to {worst:.2f} (b[" in result.settings["weights"]
    assert " of 200 draws effective, Pareto k" in " ".join(repr(result).split())


def test_approximate_draws_need_no_proposal_density():
    data, _ = laplace()
    table = az_cv.summary(data, model=log_density, draws="approximate", round_to="none")
    check(table)
    check(table, "sd")
    assert table["vrf_mean"].isna().all()


def test_approximate_draws_need_the_gradient_alone():
    data, _ = laplace()
    scores = az_cv.scores(data, model=log_density).drop_vars("log_density")
    check(az_cv.summary(data, scores=scores, draws="approximate", round_to="none"))


def test_psis_weights_come_from_the_two_densities():
    data, log_weights = laplace()
    coords = {"chain": range(4), "draw": range(100)}
    posterior = xr.Dataset({"b": (("chain", "draw", "k"), data["b"])}, coords)
    proposal = densities(data["b"]) - log_weights
    tree = xr.DataTree.from_dict(
        {"posterior": posterior, "sample_stats": xr.Dataset({"log_proposal": proposal})}
    )
    table = az_cv.summary(tree, model=log_density, log_weights="psis", round_to="none")
    check(table)
    assert table.attrs["weights"].startswith("Pareto-smoothed")


def test_equal_weights_give_exactly_what_no_weights_give():
    data = az_cv.load_eight_schools().isel(draw=slice(60))
    chains, draws = (data["posterior"].sizes[dim] for dim in ("chain", "draw"))
    flat = xr.DataArray(
        np.full((draws, chains), -1.5),
        {dim: data["posterior"][dim] for dim in ("draw", "chain")},
        dims=("draw", "chain"),
    )
    options = {"var_names": ["mu"], "round_to": "none", "attach": False}
    plain = az_cv.summary(data, **options)
    pd.testing.assert_frame_equal(az_cv.summary(data, log_weights=flat, **options), plain)


def test_order_of_dims_and_labels_of_weights_is_irrelevant():
    data, log_weights = laplace(n=80)
    first = az_cv.fit(data, model=log_density, log_weights=log_weights, family="polynomial")
    turned = log_weights.transpose("draw", "chain").isel(draw=slice(None, None, -1)) + 7.0
    second = az_cv.fit(data, model=log_density, log_weights=turned, family="polynomial")
    assert np.allclose(first.estimates["b"], second.estimates["b"], rtol=1e-9, equal_nan=True)


def test_covariance_and_log_mean_exp_take_weights():
    data, log_weights = laplace()
    options = {"model": log_density, "log_weights": log_weights}
    mean, _, _, _ = truth()
    axes = np.linspace(-6, 6, 601)
    grid = np.stack(np.meshgrid(axes, axes, indexing="ij"), axis=-1).reshape(-1, 2)
    weights = np.exp(densities(grid) - densities(grid).max())
    weights /= weights.sum()
    table = az_cv.covariance(data, **options)
    found = table.iloc[0]
    assert "Pareto k of weighted residuals up to" in table.attrs["weights"]
    assert "b[0] and b[1]" in repr(table)
    product = weights @ (grid - mean).prod(axis=1)
    assert abs(found["covariance"] - product) < 3 * found["mcse_covariance"] < 0.01
    found = az_cv.log_mean_exp(data, lambda post: -post["b"], **options)
    exact = np.log(weights @ np.exp(-grid))
    assert (np.abs(found["log_mean_exp"] - exact) < 3 * found["mcse"]).all()
    assert (found["mcse"] < 0.01).all()
    assert "Pareto k of weighted residuals up to" in " ".join(repr(found).split())


def test_derived_quantities_have_no_gain_without_a_proposal_density():
    data, _ = laplace(n=200)
    options = {"model": log_density, "draws": "approximate", "family": "polynomial"}
    table = az_cv.covariance(data, **options)
    assert table[["vrf_covariance", "vrf_correlation"]].isna().all(axis=None)
    assert np.isfinite(table["mcse_covariance"]).all()
    table = az_cv.log_mean_exp(data, lambda post: -post["b"], **options)
    assert table["vrf"].isna().all() and np.isfinite(table["mcse"]).all()
    assert "estimated weights" in table.attrs["weights"]


def test_eight_schools_at_the_mode_are_refused():
    schools = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    noise = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])

    def density(x):
        mu, log_tau, z = x[0], x[1], x[2:]
        residual = (jnp.asarray(schools) - mu - jnp.exp(log_tau) * z) / jnp.asarray(noise)
        prior = -0.5 * (mu / 5) ** 2 - 0.5 * (z**2).sum()
        return prior - jnp.log1p((jnp.exp(log_tau) / 5) ** 2) + log_tau - 0.5 * (residual**2).sum()

    with jax_float64():
        both = jax.jit(jax.value_and_grad(lambda x: -density(x)))
        found = scipy.optimize.minimize(both, np.zeros(10), jac=True)
        precision = -np.asarray(jax.hessian(density)(found.x))
    x = np.random.default_rng(0).multivariate_normal(
        found.x, np.linalg.inv(precision), size=(4, 250)
    )
    with pytest.raises(ValueError, match=r"too far from the posterior.*MCMC"):
        az_cv.summary({"x": x}, model=density, draws="approximate")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": "laplace"}, "draws 'laplace' is unknown"),
        ({"log_weights": "pareto"}, "must be a DataArray"),
        ({"draws": "approximate", "log_weights": "psis"}, "leave one of them out"),
        ({"log_weights": "psis"}, "log density of the proposal"),
        ({"log_weights": xr.DataArray(np.zeros(5), dims="draw")}, "must have dims"),
        ({"log_weights": xr.DataArray(np.zeros((4, 5)), dims=("chain", "draw"))}, "lacks 95 of"),
        (
            {"log_weights": xr.DataArray(np.full((4, 100), np.nan), dims=("chain", "draw"))},
            "NaN or infinite",
        ),
    ],
)
def test_choices_that_cannot_be_meant_are_refused(options, message):
    data, _ = laplace()
    with pytest.raises(ValueError, match=message):
        az_cv.fit(data, model=log_density, **options)


def test_arrays_without_labels_are_no_weights():
    data, log_weights = laplace()
    with pytest.raises(TypeError, match=r"xarray\.DataArray"):
        az_cv.fit(data, model=log_density, log_weights=log_weights.values)


def test_weights_on_few_draws_are_refused():
    data, log_weights = laplace()
    with pytest.raises(ValueError, match="too far from the posterior"):
        az_cv.fit(data, model=log_density, log_weights=40 * log_weights)


def test_gradients_of_the_wrong_sign_are_refused():
    data, log_weights = laplace()
    scores = az_cv.scores(data, model=log_density)
    scores["gradient"] = -scores["gradient"]
    with pytest.raises(ValueError, match="do not belong"):
        az_cv.fit(data, scores=scores, log_weights=log_weights)
