"""Eight schools in PyMC and in Stan: the same scores at the same draws, and the same summary."""

import numpy as np
import pytest
import xarray as xr

import az_cv

pytestmark = [pytest.mark.pymc, pytest.mark.stan]

EFFECT = [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]
ERROR = [15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]


@pytest.fixture(scope="module")
def posterior():
    draws = az_cv.load_eight_schools()["cv_scores"]["unconstrained_draw"].values[:, :100]
    dims = ("chain", "draw")
    variables = {
        "mu": (dims, draws[..., 0]),
        "tau": (dims, np.exp(draws[..., 1])),
        "z": ((*dims, "z_dim_0"), draws[..., 2:]),
    }
    return xr.Dataset(variables, coords={"chain": range(4), "draw": range(100)})


@pytest.fixture(scope="module")
def pymc_model():
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        z = pm.Normal("z", 0, 1, shape=8)
        pm.Normal("y", mu + tau * z, ERROR, observed=EFFECT)
    return model


def test_scores_and_summaries_are_the_same(posterior, pymc_model, stan_model):
    stan = stan_model("eight_schools", {"J": 8, "y": EFFECT, "sigma": ERROR})
    by_pymc = az_cv.scores(posterior, model=pymc_model, progressbar=False)
    by_stan = az_cv.scores(posterior, model=stan)
    shipped = az_cv.load_eight_schools()["cv_scores"].to_dataset().isel(draw=slice(100))
    for name in ("unconstrained_draw", "gradient"):
        np.testing.assert_allclose(by_pymc[name].values, by_stan[name].values, atol=1e-8)
        np.testing.assert_allclose(by_pymc[name].values, shipped[name].values, atol=1e-8)
    tables = [
        az_cv.summary(posterior, scores=scores, round_to="none", attach=False)
        for scores in (by_pymc, by_stan)
    ]
    np.testing.assert_allclose(tables[0], tables[1], rtol=1e-5)
