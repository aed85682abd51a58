"""What has no evidence, or none that could be trusted, is refused or named."""

import sys
from types import ModuleType

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import xarray as xr

import az_cv
from az_cv.engine.bridge import proposal_densities
from az_cv.engine.bridge_sampling import bridge_sampling
from az_cv.engine.settings import Settings
from az_cv.sources.dispatch import log_density_of

POLYNOMIAL = Settings("polynomial", "exact", random_seed=1)


def normal(shape=(4, 100, 1), seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def normal_density(points):
    return scipy.stats.norm.logpdf(points).sum(axis=1)


def test_a_log_density_that_the_sampler_stored_decides():
    """A prior that is wider by 2% passes every identity."""
    draws = normal((4, 250, 1))

    def log_density(x, scale=1.0):
        return -0.5 * jnp.sum((x / scale) ** 2) - 0.5 * jnp.log(2 * jnp.pi * scale**2)

    dims = ("chain", "draw")
    tree = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset({"x": ((*dims, "k"), draws)}),
            "sample_stats": xr.Dataset({"lp": (dims, -0.5 * draws[..., 0] ** 2)}),
        }
    )
    found = az_cv.log_evidence(tree, model=log_density, progressbar=False)
    assert found.log_evidence == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match="not the one that was sampled"):
        az_cv.log_evidence(tree, model=lambda x: log_density(x, 1.02), progressbar=False)


def test_hard_edges_are_refused():
    with pytest.raises(ValueError, match=r"hard edges.* ends at 0"):
        az_cv.log_evidence(
            {"x": np.abs(normal())},
            model=lambda x: jnp.where(x[0] > 0, -0.5 * x[0] ** 2, -jnp.inf),
            progressbar=False,
        )


def test_impossible_draws_are_refused():
    x = normal()

    def log_density(points):
        return np.where(points[:, 0] > 1, -np.inf, normal_density(points))

    with pytest.raises(ValueError, match=r"not finite at \d+ of 400 draws of the posterior"):
        bridge_sampling(x, -x, log_density, POLYNOMIAL)


def test_densities_that_are_no_number_are_refused_or_named():
    points = np.linspace(-1, 1, 400)[:, None]
    with pytest.raises(ValueError, match="no number at 200 of 400 points near the posterior"):
        proposal_densities(points, lambda at: np.where(at[:, 0] > 0, np.nan, 0.0))
    with pytest.warns(UserWarning, match="no number at 2 of 400 draws of the proposal"):
        found = proposal_densities(points, lambda at: np.where(at[:, 0] > 0.994, np.nan, 0.0))
    assert np.isneginf(found).sum() == 2


def test_a_proposal_that_cannot_be_fitted_is_refused():
    x = normal((4, 8, 6))
    with pytest.raises(ValueError, match="No proposal of the kind 'mixture' could be fitted to"):
        bridge_sampling(x, -x, normal_density, POLYNOMIAL, proposal="mixture")


def test_halves_that_disagree_are_named():
    """Every second chain is in another place, and gradients that are all zero tell nothing."""
    x = normal((4, 400, 1))
    x[::2] *= 1.5
    x[1::2] += 1.0
    with pytest.warns(UserWarning, match="Both halves of the draws disagree by"):
        found = bridge_sampling(x, 0 * x, normal_density, POLYNOMIAL, proposal="gaussian")
    assert found.mcse > abs(found.halves[0] - found.halves[1]) / 2


def numpyro_run(model):
    """Return a run that knows its model, and was never run."""
    from numpyro.infer import MCMC, NUTS

    mcmc = MCMC(NUTS(model), num_warmup=1, num_samples=1, progress_bar=False)
    mcmc._args, mcmc._kwargs, mcmc._last_state = (), {}, object()
    return mcmc


def test_improper_priors_of_numpyro_are_refused():
    numpyro = pytest.importorskip("numpyro")
    from numpyro import distributions as dist

    def model():
        x = numpyro.sample("x", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("y", dist.Normal(x, 1), obs=1.0)

    with pytest.raises(ValueError, match=r"The priors of \['x'\] are improper"):
        az_cv.log_evidence({"x": normal((2, 20))}, model=numpyro_run(model), progressbar=False)


def test_discrete_sites_of_numpyro_that_were_sampled_are_refused():
    numpyro = pytest.importorskip("numpyro")
    from numpyro import distributions as dist

    def model():
        k = numpyro.sample("k", dist.Poisson(3.0))
        numpyro.sample("x", dist.Normal(k, 1))

    posterior = {"k": np.ones((2, 20), dtype=int), "x": normal((2, 20))}
    with pytest.raises(ValueError, match=r"The sites \['k'\] are discrete and were sampled"):
        log_density_of(posterior, model=numpyro_run(model))


def test_factors_of_numpyro_are_named():
    numpyro = pytest.importorskip("numpyro")
    from numpyro import distributions as dist

    def model():
        x = numpyro.sample("x", dist.Normal(0, 1))
        numpyro.factor("extra", -(x**2))

    with pytest.warns(UserWarning, match=r"The factors \['extra'\] count as they are"):
        log_density_of({"x": normal((2, 20))}, model=numpyro_run(model))


@pytest.mark.pymc
def test_minibatches_of_pymc_are_refused():
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        x = pm.Normal("x")
        batch = pm.Minibatch(np.ones(10), batch_size=2)
        pm.Normal("y", x, 1, observed=batch, total_size=10)
    with pytest.raises(ValueError, match="draws minibatches of its data"):
        log_density_of({"x": normal((2, 20))}, model=model)


@pytest.mark.pymc
def test_ladders_that_do_not_reach_the_posterior_are_refused():
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        x = pm.Normal("x", 0, 10)
        pm.Normal("y", x, 0.1, observed=[1.0, 2.0])
    with pytest.raises(ValueError, match="1 temperatures reach 0 and not 1"):
        az_cv.temperature_ladder(model, draws=50, chains=2, max_temperatures=1, random_seed=1)


def test_pystan_is_refused(monkeypatch):
    class Model:
        """Stands in for what ``stan.build`` returns."""

    module = ModuleType("stan.model")
    module.Model = Model
    monkeypatch.setitem(sys.modules, "stan", ModuleType("stan"))
    monkeypatch.setitem(sys.modules, "stan.model", module)
    with pytest.raises(TypeError, match="without the constants of statements with `~`"):
        az_cv.log_evidence({"x": normal()}, model=Model(), progressbar=False)


def test_ladders_with_numbers_that_are_none_are_refused():
    x = normal((2, 2, 20, 1))
    logs = np.where(x[..., 0] > 1, np.nan, 0.0)
    ladder = az_cv.ladder_dataset([0.0, 1.0], x, -x, 0 * x, logs)
    with pytest.raises(ValueError, match=r"log_likelihood has \d+ values that are not finite"):
        az_cv.thermodynamic_evidence(ladder)
