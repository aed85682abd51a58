"""Approximations of PyMC, NumPyro and BlackJAX, each corrected to the exact answer."""

import numpy as np
import pytest
import scipy.special

import az_cv
from az_cv.sources import guide_draws, pathfinder_draws

COUNTS = np.array([3, 5, 4, 8, 6])
# A gamma prior with shape 4 and rate 1, and Poisson counts: the posterior is a gamma distribution.
SHAPE, RATE = 4 + COUNTS.sum(), 1 + len(COUNTS)


def check(table, row="rate"):
    sd = np.sqrt(SHAPE) / RATE
    assert abs(table.loc[row, "mean"] - SHAPE / RATE) < 3 * table.loc[row, "mcse_mean"]
    assert table.loc[row, "mcse_mean"] < 0.01 * sd
    assert abs(table.loc[row, "sd"] - sd) < 3 * table.loc[row, "mcse_sd"]


@pytest.mark.pymc
@pytest.mark.parametrize("method", ["advi", "fullrank_advi"])
def test_variational_inference_of_pymc(method):
    pm = pytest.importorskip("pymc")
    import pytensor

    with pm.Model() as model:
        rate = pm.Gamma("rate", 4.0, 1.0)
        pm.Poisson("y", rate, observed=COUNTS)
        # Python's linker runs at once what C takes half a minute to compile.
        with pytensor.config.change_flags(cxx="", linker="py"):
            approximation = pm.fit(
                2000,
                method=method,
                obj_optimizer=pm.adam(learning_rate=0.02),
                random_seed=1,
                progressbar=False,
            )
            data = approximation.sample(400, random_seed=2)
    table = az_cv.summary(
        data, model=model, draws="approximate", round_to="none", progressbar=False
    )
    check(table)


@pytest.mark.pymc
@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS", "ignore:os.fork")
@pytest.mark.long
@pytest.mark.parametrize("method", ["laplace", "pathfinder"])
def test_approximations_of_pymc_extras(method):
    pm, extras = pytest.importorskip("pymc"), pytest.importorskip("pymc_extras")
    with pm.Model() as model:
        rate = pm.Gamma("rate", 4.0, 1.0)
        pm.Poisson("y", rate, observed=COUNTS)
        if method == "laplace":
            data = extras.fit_laplace(draws=400, random_seed=1, progressbar=False)
        else:
            data = extras.fit_pathfinder(num_draws=400, random_seed=1, progressbar=False)
    table = az_cv.summary(
        data, model=model, draws="approximate", round_to="none", progressbar=False
    )
    check(table)


@pytest.mark.pymc
def test_sequential_monte_carlo_of_pymc_counts_copies_once():
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        rate = pm.Gamma("rate", 4.0, 1.0)
        pm.Poisson("y", rate, observed=COUNTS)
        data = pm.sample_smc(
            draws=200,
            chains=2,
            cores=1,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    table = az_cv.summary(data, model=model, round_to="none", progressbar=False)
    check(table)


@pytest.mark.parametrize("kind", ["AutoNormal", "AutoMultivariateNormal"])
def test_guides_of_numpyro(kind):
    numpyro = pytest.importorskip("numpyro")
    import jax
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    def model(counts):
        rate = numpyro.sample("rate", numpyro.distributions.Gamma(4.0, 1.0))
        numpyro.sample("y", numpyro.distributions.Poisson(rate), obs=counts)

    guide = getattr(autoguide, kind)(model)
    run = SVI(model, guide, numpyro.optim.Adam(0.02), Trace_ELBO()).run(
        jax.random.key(0), 2000, COUNTS, progress_bar=False
    )
    data = guide_draws(guide, run.params, COUNTS, num_draws=400)
    check(az_cv.summary(data, draws="approximate", round_to="none", progressbar=False))


def log_gamma(x):
    import jax.numpy as jnp

    return SHAPE * x[0] - RATE * jnp.exp(x[0]) - 0.5 * (x[1] - 1) ** 2


@pytest.mark.long
def test_pathfinder_of_blackjax():
    pytest.importorskip("blackjax")
    data = pathfinder_draws(log_gamma, np.zeros(2), num_draws=400)
    table = az_cv.summary(
        data, model=log_gamma, log_weights="psis", round_to="none", progressbar=False
    )
    exact = np.array([scipy.special.digamma(SHAPE) - np.log(RATE), 1.0])
    assert (np.abs(table["mean"] - exact) < 3 * table["mcse_mean"]).all()
    assert (table["mcse_mean"] < 0.001).all()


@pytest.mark.parametrize("draws", [2, 10])
def test_number_of_draws_is_checked(draws):
    pytest.importorskip("blackjax")
    with pytest.raises(ValueError, match="multiple of 4"):
        pathfinder_draws(log_gamma, np.zeros(2), num_draws=draws)
