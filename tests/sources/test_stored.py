"""Stored scores in every place where the generations of nutpie and PyMC put them."""

import numpy as np
import pytest
import xarray as xr

from az_cv.containers.idata import get_group, group_names
from az_cv.sources.finite import NonFiniteScoresWarning
from az_cv.sources.pymc_model import pymc_scores
from az_cv.sources.schema import scores_dataset
from az_cv.sources.stored import stored_gradient, stored_scores

pm = pytest.importorskip("pymc")
nutpie = pytest.importorskip("nutpie")

pytestmark = [
    pytest.mark.pymc,
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS"),
]


@pytest.fixture(scope="module")
def sampled(eight_schools):
    """Draws of nutpie itself, with everything that it can store."""
    compiled = nutpie.compile_pymc_model(eight_schools)
    return nutpie.sample(
        compiled,
        draws=30,
        tune=100,
        chains=2,
        cores=1,
        seed=1,
        store_gradient=True,
        store_unconstrained=True,
        progress_bar=False,
    )


def rearranged(data, *, drop=(), posterior=None, **groups):
    """Copy the groups that matter into a tree, without some sampling statistics."""
    stats = get_group(data, "sample_stats").drop_vars(list(drop))
    draws = get_group(data, "posterior")
    draws = draws[["mu", "tau", "z", "theta"]] if posterior is None else posterior
    return xr.DataTree.from_dict({"posterior": draws, "sample_stats": stats, **groups})


@pytest.fixture(scope="module")
def log_tau(sampled):
    tau = get_group(sampled, "posterior")["tau"]
    return np.log(tau).rename("tau_log__")


def test_gradients_stored_by_nutpie_are_those_of_the_model(sampled, schools_gradient):
    scores = stored_scores(sampled)

    expected = schools_gradient(scores.unconstrained_draw.values)
    np.testing.assert_allclose(scores.gradient, expected, rtol=1e-10, atol=1e-10)
    assert scores.gradient.shape == (2, 30, 10)
    assert scores.unconstrained_parameter.values.tolist()[:3] == ["mu", "tau_log__", "z_0"]


def test_unconstrained_draws_are_found_in_every_place(sampled, log_tau):
    expected = stored_scores(sampled)
    draws = get_group(sampled, "posterior")[["theta", "z", "mu", "tau"]]
    in_posterior = rearranged(
        sampled, drop=["unconstrained_draw"], posterior=draws.assign(tau_log__=log_tau)
    )
    in_own_group = rearranged(
        sampled, drop=["unconstrained_draw"], unconstrained_posterior=log_tau.to_dataset()
    )
    for data in (in_posterior, in_own_group):
        scores = stored_scores(data)
        xr.testing.assert_allclose(scores, expected, rtol=1e-12)


def test_stored_gradients_without_draws_spare_their_evaluation(sampled, eight_schools):
    data = rearranged(sampled, drop=["unconstrained_draw"])
    assert stored_scores(data) is None
    assert stored_gradient(data).sizes["unconstrained_parameter"] == 10

    scores = pymc_scores(data, model=eight_schools, progressbar=False)

    assert scores.gradient_backend == "stored"
    xr.testing.assert_allclose(scores, stored_scores(sampled), rtol=1e-12)


def test_stored_gradients_follow_a_thinned_posterior(sampled, eight_schools):
    thinned = get_group(sampled, "posterior").isel(draw=slice(None, None, 7))
    data = rearranged(sampled, drop=["unconstrained_draw"], posterior=thinned)

    scores = pymc_scores(data, model=eight_schools, progressbar=False)

    everything = stored_scores(sampled)
    xr.testing.assert_allclose(scores, everything.isel(draw=slice(None, None, 7)), rtol=1e-12)


def test_stored_gradients_of_another_model_are_not_used(sampled):
    with pm.Model() as model:
        pm.Normal("mu")
        pm.HalfNormal("tau")
        pm.Normal("z", shape=8)
        pm.Normal("theta", shape=8)
    scores = pymc_scores(rearranged(sampled), model=model, progressbar=False)
    assert scores.gradient_backend == "jax"


def test_scores_attached_earlier_come_first(sampled):
    attached = scores_dataset(np.ones((2, 30, 1)), np.zeros((2, 30, 1)))
    data = rearranged(sampled, cv_scores=attached)
    xr.testing.assert_identical(stored_scores(data), attached)


def test_nothing_stored_gives_none(sampled):
    without = rearranged(sampled, drop=["unconstrained_draw", "gradient"])
    assert stored_scores(without) is None
    assert stored_scores(get_group(sampled, "posterior")) is None
    # nutpie's other gradient belongs to coordinates of its own.
    stats = get_group(sampled, "sample_stats")
    other = stats[["gradient"]].rename(gradient="transformed_gradient")
    only_other = xr.DataTree.from_dict(
        {"posterior": get_group(sampled, "posterior"), "sample_stats": other}
    )
    assert stored_scores(only_other) is None


def test_labels_that_fit_two_variables_are_not_guessed(sampled, log_tau):
    draws = get_group(sampled, "posterior")[["mu", "tau", "z"]]
    ambiguous = draws.assign(tau_log__=log_tau, z_0=draws["mu"])
    data = rearranged(sampled, drop=["unconstrained_draw"], posterior=ambiguous)
    assert stored_scores(data) is None


def test_stored_values_that_are_not_finite_are_dropped(sampled):
    data = rearranged(sampled)
    gradient = data["sample_stats"]["gradient"].copy(deep=True)
    gradient[1, 4, 2] = np.nan
    data["sample_stats"]["gradient"] = gradient
    with pytest.warns(NonFiniteScoresWarning, match="1 of 60 draws .* z_0"):
        scores = stored_scores(data)
    assert 4 not in scores.draw


def test_scores_survive_a_file(sampled, tmp_path):
    pytest.importorskip("h5py")
    expected = stored_scores(sampled)
    path = tmp_path / "scores.nc"
    xr.DataTree.from_dict({"cv_scores": expected}).to_netcdf(path, engine="h5netcdf")
    with xr.open_datatree(path, engine="h5netcdf") as data:
        xr.testing.assert_equal(stored_scores(data).load(), expected)


@pytest.mark.filterwarnings("ignore")
def test_one_recipe_stores_gradients_in_both_generations(eight_schools, schools_gradient):
    data = pm.sample(
        draws=30,
        tune=100,
        chains=2,
        cores=1,
        random_seed=1,
        progressbar=False,
        model=eight_schools,
        nuts_sampler="nutpie",
        nuts_sampler_kwargs={"store_gradient": True},
        idata_kwargs={"include_transformed": True},
        compute_convergence_checks=False,
    )
    assert "sample_stats" in group_names(data)
    scores = stored_scores(data)
    if scores is None:
        scores = pymc_scores(data, model=eight_schools, progressbar=False)
        assert scores.gradient_backend == "stored"
    expected = schools_gradient(scores.unconstrained_draw.values)
    np.testing.assert_allclose(scores.gradient, expected, rtol=1e-10, atol=1e-10)
