"""PyMC scores: bad draws, bad models, and the draws of every sampler."""

import numpy as np
import pytest
import xarray as xr
from pymc_points import as_tree, build, random_points, relative_error

from az_cv.sources.finite import NonFiniteScoresWarning
from az_cv.sources.pymc_model import pymc_scores

pm = pytest.importorskip("pymc")

pytestmark = [
    pytest.mark.pymc,
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS"),
]
RNG = np.random.default_rng(7)


def centered():
    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfCauchy("tau", 5)
    pm.Normal("theta", mu, tau, shape=8)


def saturated():
    pm.Beta("probability", 1, 1)
    scale = pm.HalfNormal("scale")
    pm.Normal("y", 0, scale, observed=1.0)


def test_draws_saturated_at_a_boundary_are_dropped_with_a_warning():
    probability, scale = RNG.uniform(0.1, 0.9, size=(2, 2, 10))
    probability[0, 3] = 1.0  # rounded to the boundary: no finite logit
    scale[1, 5] = 0.0  # underflow: no finite logarithm
    scale[0, 7] = 5e-324  # finite logarithm of a subnormal, infinite gradient
    data = as_tree({"probability": probability, "scale": scale})

    with pytest.warns(
        NonFiniteScoresWarning, match=r"3 of 20 draws .*probability_logodds__, scale_log__"
    ):
        scores = pymc_scores(data, model=build(saturated), progressbar=False)

    assert scores.draw.values.tolist() == [0, 1, 2, 4, 6, 8, 9]
    assert scores.dropped_draws == 3
    assert np.isfinite(scores.to_dataarray()).all()


def test_a_posterior_with_no_finite_draw_is_refused():
    zeros = np.zeros((2, 10))
    data = as_tree({"probability": zeros, "scale": zeros})
    with pytest.raises(ValueError, match="20 of 20 draws have no finite score"):
        pymc_scores(data, model=build(saturated), progressbar=False)


def test_minibatch_models_are_refused():
    with pm.Model() as model:
        x, y = pm.Minibatch(RNG.normal(size=100), RNG.normal(size=100), batch_size=10)
        beta = pm.Normal("beta")
        pm.Normal("y", beta * x, 1, observed=y, total_size=100)
    with pytest.raises(ValueError, match="minibatches of its data"):
        pymc_scores(as_tree({"beta": np.zeros((2, 5))}), model=model)


def test_model_is_taken_from_the_context(eight_schools):
    data, _, _ = random_points(eight_schools)
    with eight_schools:
        scores = pymc_scores(data, progressbar=False)
    assert scores.sizes["unconstrained_parameter"] == 10


def test_input_is_unchanged_and_dimension_order_irrelevant(eight_schools):
    data, _, _ = random_points(eight_schools)
    before = data.copy(deep=True)
    expected = pymc_scores(data, model=eight_schools, progressbar=False)
    xr.testing.assert_identical(data, before)

    posterior = data["posterior"].to_dataset().transpose(..., "draw", "chain")
    transposed = pymc_scores(posterior, model=eight_schools, progressbar=False)
    xr.testing.assert_equal(transposed, expected)


def test_coordinates_of_the_draws_are_kept(eight_schools):
    data, _, _ = random_points(eight_schools)
    posterior = data["posterior"].to_dataset().isel(draw=[1, 3], chain=[1])
    scores = pymc_scores(posterior, model=eight_schools, progressbar=False)
    assert scores.draw.values.tolist() == [1, 3]
    assert scores.chain.values.tolist() == [1]


def test_errors_name_what_is_wrong(eight_schools):
    data, _, _ = random_points(eight_schools)
    posterior = data["posterior"].to_dataset()
    with pytest.raises(TypeError, match="There is no PyMC model"):
        pymc_scores(data)
    with pytest.raises(TypeError, match=r"must be a pymc.Model, not dict"):
        pymc_scores(data, model={})
    with pytest.raises(ValueError, match=r"The posterior lacks \['tau'\]"):
        pymc_scores(posterior.drop_vars("tau"), model=eight_schools)
    with pm.Model() as discrete:
        pm.Poisson("count", 3)
    with pytest.raises(ValueError, match=r"discrete: \['count'\]\. Control variates need"):
        pymc_scores(as_tree({"count": np.ones((2, 5), int)}), model=discrete)
    with pytest.raises(ValueError, match=r"shape \(3,\) per draw for 'theta'"):
        variables = {"mu": np.zeros((2, 5)), "tau": np.ones((2, 5)), "theta": np.zeros((2, 5, 3))}
        pymc_scores(as_tree(variables), model=build(centered))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sampler", ["pymc", "nutpie", "numpyro", "blackjax", "smc"])
def test_draws_of_every_sampler_have_scores(sampler, eight_schools, schools_gradient):
    settings = {"chains": 2, "cores": 1, "random_seed": 4, "progressbar": False}
    with eight_schools:
        if sampler == "smc":
            data = pm.sample_smc(50, compute_convergence_checks=False, **settings)
        else:
            if sampler != "pymc":
                pytest.importorskip(sampler)
            if sampler in ("numpyro", "blackjax"):
                # Chains in parallel need as many devices, set before JAX is first used.
                settings["nuts_sampler_kwargs"] = {"chain_method": "vectorized"}
            data = pm.sample(
                50, tune=50, nuts_sampler=sampler, compute_convergence_checks=False, **settings
            )
        scores = pymc_scores(data, progressbar=False)

    expected = schools_gradient(scores.unconstrained_draw.values)
    assert scores.gradient.shape == (2, 50, 10)
    assert relative_error(scores.gradient.values, expected) < 1e-10
