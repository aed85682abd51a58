"""Every sampler end to end: draw, summarise, and compare with a truth found without draws.

Both models are Gaussian given one scale, so that every posterior expectation is an integral over
one number. This is a sharper judge than a longer run: it has no error of its own. Runs twenty times
as long are compared, too.
"""

import importlib.util
import logging
from pathlib import Path

import numpy as np
import pytest
from arviz_stats import mcse

import az_cv
from az_cv.idata import as_idata, get_group

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS"),
]

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
CHAINS, DRAWS = 4, 500
LONGER = 20

RNG = np.random.default_rng(8)
REGRESSORS = RNG.normal(size=(40, 6))
RESPONSE = 0.5 + REGRESSORS @ np.linspace(-0.5, 0.5, 6) + 0.3 * RNG.normal(size=40)


def moments(weight, first, second):
    """Return mean and sd of quantities from their first two moments given the scale."""
    weight = weight / weight.sum()
    result = {}
    for name in first:
        mean = weight @ first[name]
        result[name] = (mean, np.sqrt(weight @ second[name] - mean**2))
    return result


def schools_truth():
    """Integrate eight schools over tau; mu and theta are Gaussian given tau."""
    log_tau = np.linspace(np.log(1e-6), np.log(1e5), 40_001)
    tau = np.exp(log_tau)
    variance = tau[:, None] ** 2 + ERRORS**2
    precision = 1 / 25 + (1 / variance).sum(axis=1)
    mu = (EFFECTS / variance).sum(axis=1) / precision
    # y with theta and mu integrated out, a half-Cauchy prior of scale 5, the Jacobian of log.
    log_weight = (
        -0.5 * (np.log(variance) + EFFECTS**2 / variance).sum(axis=1)
        - 0.5 * np.log(precision)
        + 0.5 * precision * mu**2
        - np.log(25 + tau**2)
        + log_tau
    )
    pooling = tau[:, None] ** 2 / variance
    theta = pooling * EFFECTS + (1 - pooling) * mu[:, None]
    spread = pooling * ERRORS**2 + (1 - pooling) ** 2 / precision[:, None]
    first, second = {"mu": mu, "tau": tau}, {"mu": 1 / precision + mu**2, "tau": tau**2}
    for school in range(8):
        first[f"theta[{school}]"] = theta[:, school]
        second[f"theta[{school}]"] = spread[:, school] + theta[:, school] ** 2
    return moments(np.exp(log_weight - log_weight.max()), first, second)


def regression_truth():
    """Integrate prophet's flat model over the noise; the coefficients are Gaussian given it."""
    design = np.column_stack([np.ones(len(RESPONSE)), REGRESSORS])
    log_noise = np.linspace(np.log(0.05), np.log(3.0), 20_001)
    noise = np.exp(log_noise)
    prior = np.diag([1 / 25, *np.ones(6)])
    precision = design.T @ design / noise[:, None, None] ** 2 + prior
    covariance = np.linalg.inv(precision)
    moment = design.T @ RESPONSE / noise[:, None] ** 2
    mean = np.einsum("nij,nj->ni", covariance, moment)
    log_weight = (
        -len(RESPONSE) * log_noise
        - 0.5 * RESPONSE @ RESPONSE / noise**2
        + 0.5 * (mean * moment).sum(axis=1)
        - 0.5 * np.linalg.slogdet(precision)[1]
        - 0.5 * noise**2 / 0.5**2
        + log_noise
    )
    names = ["m", *(f"beta[{i}]" for i in range(6))]
    first = dict(zip(names, mean.T)) | {"sigma_obs": noise}
    variances = np.diagonal(covariance, axis1=1, axis2=2)
    second = dict(zip(names, (variances + mean**2).T)) | {"sigma_obs": noise**2}
    truth = moments(np.exp(log_weight - log_weight.max()), first, second)
    # k and delta have their priors, Normal(0, 5) and Laplace(0, 0.5).
    return truth | {"k": (0.0, 5.0), "delta[0]": (0.0, 0.5 * np.sqrt(2))}


def z_scores(table, expected):
    """Return the errors of means and sds in units of their reported standard errors."""
    return np.array(
        [
            (table.loc[name, column] - value) / table.loc[name, f"mcse_{column}"]
            for name, values in expected.items()
            for column, value in zip(("mean", "sd"), values)
        ]
    )


def assert_calibrated(z):
    assert np.sqrt(np.mean(z**2)) < 1.6, z
    assert np.abs(z).max() < 4, z


@pytest.fixture(scope="module")
def pymc_model():
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        z = pm.Normal("z", 0, 1, shape=8)
        theta = pm.Deterministic("theta", mu + tau * z)
        pm.Normal("y", theta, ERRORS, observed=EFFECTS)
    return model


def sample_pymc(model, sampler, draws, seed):
    import pymc as pm

    settings = {
        "draws": draws,
        "tune": 500,
        "chains": CHAINS,
        "cores": 1,
        "random_seed": seed,
        "progressbar": False,
        "compute_convergence_checks": False,
        "nuts_sampler": sampler,
        "target_accept": 0.95,
    }
    if sampler in ("numpyro", "blackjax"):
        # Chains in parallel need as many devices, set before JAX is first used.
        settings["nuts_sampler_kwargs"] = {"chain_method": "vectorized"}
    if sampler == "nutpie":
        settings["nuts_sampler_kwargs"] = {"store_gradient": True}
        settings["idata_kwargs"] = {"include_transformed": True}
    with model:
        return pm.sample(**settings)


@pytest.mark.pymc
@pytest.mark.filterwarnings("ignore")  # of the samplers' own dependencies
@pytest.mark.parametrize("sampler", ["pymc", "nutpie", "numpyro", "blackjax"])
def test_errors_of_pymc_samplers_are_as_reported(sampler, pymc_model):
    if sampler != "pymc":
        pytest.importorskip(sampler)
    data = sample_pymc(pymc_model, sampler, DRAWS, seed=11)
    # nutpie's gradients are stored: they need no model.
    table = az_cv.summary(
        data,
        model=None if sampler == "nutpie" else pymc_model,
        var_names=["mu", "tau", "theta"],
        round_to="none",
    )
    assert_calibrated(z_scores(table, schools_truth()))


@pytest.mark.filterwarnings("ignore")
def test_errors_of_numpyro_mcmc_are_as_reported():
    numpyro = pytest.importorskip("numpyro")
    import jax

    dist = numpyro.distributions

    def model(effects, errors):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([8]).to_event(1))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("y", dist.Normal(theta, errors), obs=effects)

    mcmc = numpyro.infer.MCMC(
        numpyro.infer.NUTS(model, target_accept_prob=0.95),
        num_warmup=500,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(3), EFFECTS, ERRORS)
    table = az_cv.summary(mcmc, var_names=["mu", "tau", "theta"], round_to="none")
    assert_calibrated(z_scores(table, schools_truth()))


@pytest.fixture(scope="module")
def stan_run(tmp_path_factory):
    """Sample prophet's model with a flat trend: the regression, two parameters with priors only."""
    cmdstanpy = pytest.importorskip("cmdstanpy")
    pytest.importorskip("prophet")
    folder = Path(importlib.util.find_spec("prophet").origin).parent / "stan_model"
    model = cmdstanpy.CmdStanModel(exe_file=folder / "prophet_model.bin")
    path = tmp_path_factory.mktemp("prophet") / "data.json"
    size = len(RESPONSE)
    data = {
        **{"T": size, "K": 6, "S": 1, "t": np.linspace(0, 1, size), "cap": np.zeros(size)},
        **{"y": RESPONSE, "X": REGRESSORS, "t_change": [0.5], "sigmas": np.ones(6), "tau": 0.5},
        **{"trend_indicator": 2, "s_a": np.ones(6), "s_m": np.zeros(6)},
    }
    cmdstanpy.write_stan_json(path, data)

    def sample(draws, seed):
        return model.sample(
            data=str(path),
            chains=CHAINS,
            parallel_chains=1,
            iter_warmup=500,
            iter_sampling=draws,
            seed=seed,
            sig_figs=18,
            output_dir=tmp_path_factory.mktemp("csv"),
            show_progress=False,
        )

    logging.getLogger("cmdstanpy").setLevel(logging.ERROR)
    return sample


@pytest.mark.stan
def test_errors_of_cmdstan_are_as_reported(stan_run):
    table = az_cv.summary(stan_run(DRAWS, seed=2), var_names=["~trend"], round_to="none")
    assert_calibrated(z_scores(table, regression_truth()))


def differences(table, longer, names):
    """Return differences from plain averages of a longer run, in units of both errors together."""
    z = []
    for label, name, index in names:
        draws = get_group(longer, "posterior")[name].values[(..., *index)]
        sd = draws.std()
        # Delta method: the error of an sd is that of the mean square over twice the sd.
        values = {"mean": draws, "sd": (draws - draws.mean()) ** 2 / (2 * sd)}
        for column, value in (("mean", draws.mean()), ("sd", sd)):
            error = float(np.squeeze(mcse(values[column], method="mean")))
            total = np.hypot(error, table.loc[label, f"mcse_{column}"])
            z.append((table.loc[label, column] - value) / total)
    return np.array(z)


@pytest.mark.pymc
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sampler", ["pymc", "nutpie", "numpyro", "blackjax"])
def test_a_pymc_run_agrees_with_one_twenty_times_longer(sampler, pymc_model):
    if sampler != "pymc":
        pytest.importorskip(sampler)
    short = sample_pymc(pymc_model, sampler, 100, seed=5)
    names = ["mu", "tau", "theta"]
    table = az_cv.summary(short, model=pymc_model, var_names=names, round_to="none")
    longer = sample_pymc(pymc_model, sampler, LONGER * 100, seed=6)
    schools = [(f"theta[{school}]", "theta", (school,)) for school in range(8)]
    z = differences(table, longer, [("mu", "mu", ()), ("tau", "tau", ()), *schools])
    assert_calibrated(z)


@pytest.mark.stan
def test_a_cmdstan_run_agrees_with_one_twenty_times_longer(stan_run):
    table = az_cv.summary(stan_run(100, seed=5), var_names=["~trend"], round_to="none")
    longer = as_idata(stan_run(LONGER * 100, seed=6))
    slopes = [(f"beta[{i}]", "beta", (i,)) for i in range(6)]
    z = differences(table, longer, [("m", "m", ()), ("sigma_obs", "sigma_obs", ()), *slopes])
    assert_calibrated(z)
