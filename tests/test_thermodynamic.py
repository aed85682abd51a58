"""Evidence from ladders of temperatures: truth from algebra, schedules, and PyMC's own ladder."""

import numpy as np
import pytest
import scipy.stats

import az_cv
from az_cv.engine.ladder import next_temperature, quadrature_weights

Y = np.array([1.0, -0.5, 2.0])
TRUTH = scipy.stats.multivariate_normal.logpdf(Y, np.zeros(3), 5 * np.eye(3))


def ladder(temperatures, shape=(4, 100), seed=0):
    """Return independent draws of x ~ N(0, 4 I), y ~ N(x, I) at temperatures."""
    t = np.asarray(temperatures)[:, None, None, None]
    z = np.random.default_rng(seed).normal(size=(len(temperatures), *shape, 3))
    precision = 0.25 + t
    x = t * Y / precision + z / np.sqrt(precision)
    logs = scipy.stats.norm.logpdf(Y, x, 1).sum(axis=-1)
    return az_cv.ladder_dataset(temperatures, x, -x / 4, Y - x, logs)


def within(found, times=4):
    return abs(found.log_evidence - TRUTH) < times * found.mcse


def test_means_at_every_temperature_are_exact_and_the_rule_is_what_is_left():
    """The log likelihood has order 2 and its square order 4, so that plain noise is gone."""
    temperatures = np.linspace(0, 1, 17) ** 3
    found = az_cv.thermodynamic_evidence(ladder(temperatures), family=az_cv.Polynomial(4))
    assert within(found)
    assert found.mcse == pytest.approx(found.diagnostics["quadrature_error"], rel=0.3)
    assert found.mcse < 1e-3 < found.plain_mcse
    assert found.vrf > 100
    assert abs(found.plain_log_evidence - TRUTH) < 4 * found.plain_mcse


def test_the_correction_by_variances_is_closer():
    draws = ladder(np.linspace(0, 1, 17) ** 3)
    first, second = (az_cv.thermodynamic_evidence(draws, order=order) for order in (1, 2))
    assert within(first)
    assert abs(second.log_evidence - TRUTH) < 0.1 * abs(first.log_evidence - TRUTH)


def test_second_order_is_exact_for_cubics():
    """Its weights integrate polynomials of degree three, with the slopes at the ends."""
    t = np.array([0.0, 0.2, 0.7, 1.0])
    by_mean, by_variance = quadrature_weights(t, 2)
    assert by_mean @ t**3 + by_variance @ (3 * t**2) == pytest.approx(0.25)
    assert quadrature_weights(t, 1)[0] @ t == pytest.approx(0.5)


def test_sequential_monte_carlo_gives_the_same():
    draws = ladder(np.linspace(0, 1, 13) ** 3)
    found = az_cv.smc_evidence(draws, family=az_cv.Polynomial(4))
    assert within(found)
    assert found.vrf > 2
    assert abs(found.plain_log_evidence - TRUTH) < 4 * found.plain_mcse


def test_bridge_sampling_agrees():
    draws = ladder([0.0, 1.0], (4, 100))["unconstrained_draw"].values[1]
    import jax.numpy as jnp
    from jax.scipy.stats import norm

    def log_density(x):
        return norm.logpdf(x, 0, 2).sum() + norm.logpdf(jnp.asarray(Y), x, 1).sum()

    found = az_cv.log_evidence({"x": draws}, model=log_density, progressbar=False)
    assert found.log_evidence == pytest.approx(TRUTH, abs=1e-9)


def test_steps_shrink_to_the_efficiency_that_is_asked():
    logs = 3 * np.random.default_rng(0).normal(size=2000)
    step = next_temperature(logs, 0.25, 0.8) - 0.25
    weights = np.exp(step * logs)
    assert weights.sum() ** 2 / (weights**2).sum() / 2000 == pytest.approx(0.8)
    assert next_temperature(0.01 * logs, 0.25, 0.8) == 1.0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: az_cv.thermodynamic_evidence({}), TypeError, "ladder must be a Dataset"),
        (
            lambda: az_cv.thermodynamic_evidence(ladder([0.0, 1.0]), order=3),
            ValueError,
            "order must be 1 or 2",
        ),
        (lambda: az_cv.smc_evidence(ladder([0.1, 1.0])), ValueError, "begin with 0"),
        (lambda: az_cv.smc_evidence(ladder([0.0, 1.0, 1.0])), ValueError, "there twice"),
        (
            lambda: az_cv.smc_evidence(
                ladder([0.0, 0.5, 1.0]).assign_coords(temperature=[0.0, 0.05, 1.0])
            ),
            ValueError,
            "At temperature 0.05: The gradients do not belong",
        ),
        (
            lambda: az_cv.ladder_dataset([0, 1], *[np.zeros((2, 4, 10, 3))] * 4),
            ValueError,
            r"log_likelihood has shape \(2, 4, 10, 3\)",
        ),
    ],
)
def test_what_is_no_ladder_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.pymc
@pytest.mark.long
def test_pymc_ladder_has_the_evidence():
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        x = pm.Normal("x", 0, 2, shape=3)
        pm.Normal("y", x, 1, observed=Y)
    ladder = az_cv.temperature_ladder(model, draws=200, tune=200, chains=2, random_seed=1)
    assert ladder["temperature"].values[0] == 0
    assert ladder["temperature"].values[-1] == 1
    assert within(az_cv.thermodynamic_evidence(ladder))
    assert within(az_cv.smc_evidence(ladder))


@pytest.mark.pymc
def test_pymc_ladders_split_prior_and_likelihood():
    pm = pytest.importorskip("pymc")
    import pytensor
    import xarray as xr

    from az_cv.sources.tempered import split_scores, tempered_model

    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 2.0)
        pm.Normal("y", 0, scale, observed=Y)
    draws = xr.Dataset({"scale": (("chain", "draw"), np.array([[0.5, 1.5]]))})
    (x, prior, likelihood, logs), labels = split_scores(draws, model)
    sigma = draws["scale"].values
    np.testing.assert_allclose(x[..., 0], np.log(sigma))
    np.testing.assert_allclose(prior[..., 0], 1 - sigma**2 / 4)
    np.testing.assert_allclose(likelihood[..., 0], (Y**2).sum() / sigma**2 - len(Y))
    np.testing.assert_allclose(logs, scipy.stats.norm.logpdf(Y[:, None, None], 0, sigma).sum(0))
    assert labels == ["scale_log__"]
    tempered, power = tempered_model(model)
    power.set_value(np.array(0.25))
    with pytensor.config.change_flags(cxx=""):
        point = {"scale_log__": 0.3}
        expected = model.compile_logp(vars=model.free_RVs)(point)
        expected += 0.25 * model.compile_logp(vars=model.observed_RVs)(point)
        assert tempered.compile_logp()(point) == pytest.approx(float(expected))


@pytest.mark.pymc
def test_pymc_models_without_a_ladder_are_refused():
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("extra", -(x**2))
    with (
        pytest.warns(UserWarning, match="count as they are"),
        pytest.raises(ValueError, match="has potentials"),
    ):
        az_cv.temperature_ladder(model)
    with pytest.raises(ValueError, match="efficiency must be"):
        az_cv.temperature_ladder(model, efficiency=1.0)
