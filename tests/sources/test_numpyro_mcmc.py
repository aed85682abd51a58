"""NumPyro scores against hand-derived gradients and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from az_cv.sources.batches import jax_float64
from az_cv.sources.finite import NonFiniteScoresWarning
from az_cv.sources.numpyro_mcmc import numpyro_scores

numpyro = pytest.importorskip("numpyro")
dist = numpyro.distributions
infer = numpyro.infer

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools(effects, *, errors):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", 8):
        z = numpyro.sample("z", dist.Normal(0, 1))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("y", dist.Normal(theta, errors), obs=effects)


def constrained_sites(y):
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    inner = numpyro.sample("inner", dist.Uniform(0, tau))
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    corr = numpyro.sample("corr", dist.LKJCholesky(2, 2.0))
    loc = weights + corr[1, 0] * inner
    numpyro.sample("y", dist.Normal(loc, 1.0), obs=y)


def run(model, *args, kernel=infer.BarkerMH, num_warmup=50, num_samples=40, num_chains=2, **kwargs):
    mcmc = infer.MCMC(
        kernel(model) if isinstance(kernel, type) else kernel,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(1), *args, **kwargs)
    return mcmc


@pytest.fixture(scope="module")
def schools():
    return run(eight_schools, EFFECTS, errors=ERRORS, kernel=infer.NUTS)


def finite_differences(model, args, scores, step=1e-5):
    """Differentiate the potential energy numerically at one draw."""
    from numpyro.infer.util import potential_energy

    first = scores.isel(chain=0, draw=0)
    names = [str(label).split("_")[0] for label in scores.unconstrained_parameter.values]
    flat = first.unconstrained_draw.values

    def potential(vector):
        values = {}
        for name in dict.fromkeys(names):
            part = vector[np.array([other == name for other in names])]
            values[name] = part if f"{name}_0" in scores.unconstrained_parameter else part[0]
        return potential_energy(model, args, {}, values)

    with jax_float64():
        potential = jax.jit(potential)
        return np.array(
            [
                (potential(flat - step * row) - potential(flat + step * row)) / (2 * step)
                for row in np.eye(len(flat))
            ]
        )


def test_gradient_of_eight_schools_matches_the_one_derived_by_hand(schools, schools_gradient):
    before = jax.config.jax_enable_x64
    scores = numpyro_scores(schools, progressbar=False)

    draws = scores.unconstrained_draw
    np.testing.assert_allclose(
        scores.gradient, schools_gradient(draws.values), rtol=1e-9, atol=1e-9
    )
    tau = np.asarray(schools.get_samples(group_by_chain=True)["tau"], float)
    np.testing.assert_allclose(np.exp(draws.sel(unconstrained_parameter="tau")), tau, rtol=1e-12)
    assert scores.unconstrained_parameter.values.tolist()[:3] == ["mu", "tau", "z_0"]
    assert jax.config.jax_enable_x64 == before


@pytest.mark.filterwarnings("ignore:The gradients have single precision")
def test_data_may_be_global_to_the_model(schools_gradient):
    effects, errors = EFFECTS.copy(), ERRORS.copy()
    scores = numpyro_scores(run(lambda: eight_schools(effects, errors=errors)), progressbar=False)

    expected = schools_gradient(scores.unconstrained_draw.values)
    np.testing.assert_allclose(scores.gradient, expected, rtol=1e-4, atol=1e-4)


def test_an_error_of_the_model_itself_is_no_matter_of_precision(schools, monkeypatch):
    def broken(*args, **kwargs):
        raise TypeError("unsupported operand in the model")

    monkeypatch.setattr(schools.sampler, "_model", broken)
    with pytest.raises(TypeError, match="unsupported operand in the model"):
        numpyro_scores(schools, progressbar=False)


def test_draws_may_come_from_data(schools):
    from arviz_base import from_numpyro

    data = from_numpyro(schools)
    posterior = data["posterior"].to_dataset().isel(draw=slice(None, None, 3))
    thinned = numpyro_scores(schools, posterior, progressbar=False)

    everything = numpyro_scores(schools, progressbar=False)
    np.testing.assert_allclose(thinned.gradient, everything.gradient[:, ::3], rtol=1e-12)
    assert thinned.draw.values.tolist() == list(range(0, 40, 3))
    with pytest.raises(ValueError, match=r"The posterior lacks \['tau'\]"):
        numpyro_scores(schools, posterior.drop_vars("tau"))


def test_constrained_sites_round_trip_and_match_finite_differences():
    from numpyro.infer.util import constrain_fn

    observed = np.array([0.5, 1.0, -0.2])
    with jax_float64():
        mcmc = run(
            constrained_sites,
            observed,
            kernel=infer.SA,
            num_warmup=5,
            num_samples=20,
            num_chains=1,
        )
        scores = numpyro_scores(mcmc, progressbar=False)
        samples = mcmc.get_samples()
        draws = scores.unconstrained_draw[0]
        unconstrained = {
            "tau": draws.sel(unconstrained_parameter="tau").values,
            "inner": draws.sel(unconstrained_parameter="inner").values,
            "weights": draws.sel(unconstrained_parameter=["weights_0", "weights_1"]).values,
            "corr": draws.sel(unconstrained_parameter=["corr_0"]).values,
        }
        back = jax.vmap(lambda z: constrain_fn(constrained_sites, (observed,), {}, z))(
            unconstrained
        )
    for name, values in unconstrained.items():
        assert values.shape[0] == 20
        np.testing.assert_allclose(back[name], samples[name], atol=1e-10)
    expected = finite_differences(constrained_sites, (observed,), scores)
    np.testing.assert_allclose(scores.gradient[0, 0], expected, rtol=1e-7, atol=1e-8)


def test_discrete_sites_among_the_draws_are_held_fixed():
    def model(y):
        k = numpyro.sample("k", dist.Bernoulli(0.3))
        loc = numpyro.sample("loc", dist.Normal(3.0 * k, 2.0))
        numpyro.sample("y", dist.Normal(loc, 1.0), obs=y)

    mcmc = run(model, 1.5, kernel=infer.DiscreteHMCGibbs(infer.NUTS(model)))
    scores = numpyro_scores(mcmc, progressbar=False)

    k = np.asarray(mcmc.get_samples(group_by_chain=True)["k"])
    loc = scores.unconstrained_draw.values[..., 0]
    assert k.any() and not k.all()
    np.testing.assert_allclose(
        scores.gradient.values[..., 0], (3.0 * k - loc) / 4 + 1.5 - loc, rtol=1e-6, atol=1e-6
    )


def test_enumerated_sites_are_summed_over():
    def model(y):
        loc = numpyro.sample("loc", dist.Normal(0, 2.0))
        k = numpyro.sample("k", dist.Bernoulli(0.3), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(loc + 2.0 * k, 1.0), obs=y)

    pytest.importorskip("funsor")
    mcmc = run(model, 1.5, kernel=infer.NUTS)
    scores = numpyro_scores(mcmc, progressbar=False)

    loc = scores.unconstrained_draw.values[..., 0]
    parts = np.stack([0.7 * np.exp(-((1.5 - loc) ** 2) / 2), 0.3 * np.exp(-((loc + 0.5) ** 2) / 2)])
    slope = (parts[0] * (1.5 - loc) - parts[1] * (loc + 0.5)) / parts.sum(0)
    np.testing.assert_allclose(scores.gradient.values[..., 0], slope - loc / 4, rtol=1e-5)


def test_draws_that_rounded_to_the_boundary_are_dropped(schools):
    from arviz_base import from_numpyro

    posterior = from_numpyro(schools)["posterior"].to_dataset().copy(deep=True)
    posterior["tau"][0, 3] = 0.0
    with pytest.warns(NonFiniteScoresWarning, match="1 of 80 draws .* tau"):
        scores = numpyro_scores(schools, posterior, progressbar=False)
    assert 3 not in scores.draw


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match=r"Call mcmc.run"):
        numpyro_scores(infer.MCMC(infer.NUTS(eight_schools), num_warmup=5, num_samples=5))
    potential = infer.MCMC(infer.NUTS(potential_fn=lambda z: z**2), num_warmup=5, num_samples=5)
    with pytest.raises(ValueError, match="NUTS was built from a potential function"):
        numpyro_scores(potential)

    def subsampling(y):
        loc = numpyro.sample("loc", dist.Normal())
        with numpyro.plate("rows", 10, subsample_size=2) as rows:
            numpyro.sample("y", dist.Normal(loc, 1), obs=y[rows])

    kernel = infer.HMCECS(infer.NUTS(subsampling), num_blocks=2)
    mcmc = run(subsampling, jnp.zeros(10), kernel=kernel, num_samples=5)
    with pytest.raises(ValueError, match="'rows' subsamples 2 of 10 rows"):
        numpyro_scores(mcmc)
