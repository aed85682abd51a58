"""`quick`: a summary without MCMC, or a refusal."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import az_cv
from az_cv.engine.laplace import gaussian_at_mode
from az_cv.sources import laplace_draws

SHAPES = np.array([9.0, 16.0])


def log_gamma(x):
    return (jnp.asarray(SHAPES) * x - jnp.exp(x)).sum()


def test_logarithms_of_gamma_variables_to_many_digits():
    table = az_cv.quick(log_gamma, start=np.zeros(2), num_draws=400, round_to="none")
    error = np.abs(table["mean"] - scipy.special.digamma(SHAPES))
    assert (error < 3 * table["mcse_mean"]).all()
    assert (table["mcse_mean"] < 1e-4).all()
    sd = np.sqrt(scipy.special.polygamma(1, SHAPES))
    assert (np.abs(table["sd"] - sd) < 3 * table["mcse_sd"]).all()


def test_parameters_may_come_as_a_dict():
    def density(point):
        return log_gamma(jnp.stack([point["a"], point["b"][0]]))

    start = {"a": np.zeros(()), "b": np.zeros(1)}
    table = az_cv.quick(density, {"sum": lambda post: post["a"] + post["b"][..., 0]}, start=start)
    truth = scipy.special.digamma(SHAPES).sum()
    assert abs(table.loc["sum", "mean"] - truth) < 3 * table.loc["sum", "mcse_mean"]


def test_mode_and_precision_are_found():
    mean, precision = np.array([1.0, -2.0]), np.array([[2.0, 0.5], [0.5, 1.0]])

    def density(x):
        slope = -(x - mean) @ precision
        return 0.5 * (slope * (x - mean)).sum(axis=1), slope

    found = gaussian_at_mode(density, np.zeros(2))
    assert np.allclose(found.mean, mean, atol=1e-6)
    assert np.allclose(found.factor @ found.factor.T, np.linalg.inv(precision), atol=1e-6)


def test_stored_proposal_density_is_that_of_the_draws():
    tree = laplace_draws(lambda x: -2 * (x**2).sum(), start=np.ones(2), num_draws=40)
    x = tree["posterior"]["x"].values
    expected = -2 * (x**2).sum(axis=2) + np.log(4 / (2 * np.pi))
    assert np.allclose(tree["sample_stats"]["log_proposal"], expected)


def test_scores_come_with_the_draws():
    def density(point):
        return log_gamma(jnp.stack([point["a"], point["b"][0]]))

    tree = laplace_draws(density, start={"a": np.zeros(()), "b": np.zeros(1)}, num_draws=40)
    computed = az_cv.scores(tree, model=density)
    stored = az_cv.scores(tree)
    for name in ("unconstrained_draw", "gradient", "log_density"):
        np.testing.assert_allclose(stored[name], computed[name], rtol=1e-12)
    assert stored["unconstrained_parameter"].values.tolist() == ["a", "b_0"]


@pytest.mark.pymc
def test_scores_of_a_pymc_model_come_with_the_draws():
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", beta.sum(), sigma, observed=np.linspace(-1, 2, 30))
    tree = laplace_draws(model, num_draws=40)
    stored, computed = az_cv.scores(tree), az_cv.scores(tree, model=model)
    for name in ("unconstrained_draw", "gradient", "log_density"):
        np.testing.assert_allclose(stored[name], computed[name], rtol=1e-9)
    labels = "unconstrained_parameter"
    assert stored[labels].values.tolist() == computed[labels].values.tolist()


@pytest.mark.pymc
def test_a_hard_edge_is_refused():
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        pm.TruncatedNormal("x", 0, 1, lower=-2, default_transform=None)
    with pytest.raises(ValueError, match="has bounds and no transform"):
        az_cv.quick(model)
    with pytest.raises(ValueError, match="ends"):
        az_cv.quick(lambda x: jnp.where(x[0] > -2, -0.5 * x[0] ** 2, -jnp.inf), start=np.zeros(1))


@pytest.mark.parametrize(
    ("model", "start", "error", "message"),
    [
        (log_gamma, None, TypeError, "pass start="),
        ("model.stan", np.zeros(2), TypeError, "JAX log density or a pymc.Model"),
        (lambda x: 0.0 * x.sum(), np.zeros(2), ValueError, "No mode was found"),
    ],
)
def test_what_has_no_mode_is_refused(model, start, error, message):
    with pytest.raises(error, match=message):
        az_cv.quick(model, start=start)


def test_number_of_draws_is_checked():
    with pytest.raises(ValueError, match="multiple of 4"):
        az_cv.quick(log_gamma, start=np.zeros(2), num_draws=10)


def test_funnel_is_refused():
    def funnel(x):
        return -0.5 * (x[0] / 3) ** 2 - 0.5 * (x[1:] ** 2).sum() * jnp.exp(-x[0]) - 2 * x[0]

    with pytest.raises(ValueError, match="MCMC"):
        az_cv.quick(funnel, start=np.zeros(5))


@pytest.mark.pymc
def test_pymc_model_agrees_with_algebra():
    pm = pytest.importorskip("pymc")
    counts = np.array([3, 5, 4, 8, 6])
    with pm.Model(coords={"group": ["a", "b"]}) as model:
        rate = pm.Gamma("rate", 4.0, 1.0)
        shift = pm.Normal("shift", [1.0, 2.0], 1.0, dims="group")
        pm.Deterministic("twice", 2 * shift, dims="group")
        pm.Poisson("y", rate, observed=counts)
    table = az_cv.quick(model, num_draws=400, round_to="none")
    shape, inverse_scale = 4 + counts.sum(), 1 + len(counts)
    assert (
        abs(table.loc["rate", "mean"] - shape / inverse_scale) < 3 * table.loc["rate", "mcse_mean"]
    )
    assert table.loc["rate", "mcse_mean"] < 1e-3
    assert np.isclose(table.loc["twice[b]", "mean"], 4.0, atol=1e-6)


@pytest.mark.pymc
def test_the_search_for_the_mode_starts_where_pymc_would():
    pm = pytest.importorskip("pymc")
    from az_cv.sources.pymc_laplace import _start

    with pm.Model() as model:
        pm.HalfNormal("scale", 2.0)
        pm.Normal("at", 3.0, 1.0, shape=2)
        pm.Gamma("rate", 2.0, 4.0, initval="prior")
    expected = model.initial_point(random_seed=0)
    found = _start(model)
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert np.array_equal(found[name], value)
