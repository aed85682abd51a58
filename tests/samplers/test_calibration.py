"""Every sampler end to end: draw, summarise, and compare with a truth found without draws.

Both models are Gaussian given one scale, so that every posterior expectation is an integral over
one number: the truth has no error of its own. Runs twenty times as long are compared, too, in units
of both errors together.
"""

import importlib.util
import logging
import warnings
from pathlib import Path

import numpy as np
import pytest
from arviz_stats import mcse

import az_cv
from az_cv.containers.idata import as_idata, get_group

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS"),
]

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
CHAINS, DRAWS = 4, 1000  # what PyMC and Stan draw by default
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


def errors(table, expected, *, unit):
    """Return the errors of the means and of the sds, in units of a column of the table."""
    return np.array(
        [
            (table.loc[name, column] - value) / unit(table.loc[name], column)
            for name, values in expected.items()
            for column, value in zip(("mean", "sd"), values)
        ]
    )


def reported(row, column):
    return row[f"mcse_{column}"]


def plain(row, column):
    """Return the error of the plain average; vrf is the ratio of the squared errors."""
    return row[f"mcse_{column}"] * np.sqrt(row[f"vrf_{column}"])


def root_mean_square(z):
    return np.sqrt(np.mean(z**2))


def differences(table, longer, labels):
    """Return differences from plain averages of a longer run, in units of both errors together."""
    z = []
    for label in labels:
        name, _, index = label.removesuffix("]").partition("[")
        draws = get_group(longer, "posterior")[name].values
        draws = draws[..., int(index)] if index else draws
        # Delta method: the error of an sd is that of the mean square over twice the sd.
        values = {"mean": draws, "sd": (draws - draws.mean()) ** 2 / (2 * draws.std())}
        for column, value in (("mean", draws.mean()), ("sd", draws.std())):
            error = float(np.squeeze(mcse(values[column], method="mean")))
            total = np.hypot(error, table.loc[label, f"mcse_{column}"])
            z.append((table.loc[label, column] - value) / total)
    return np.array(z)


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


def sample_numpyro(draws, seed):
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
        num_samples=draws,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(seed), EFFECTS, ERRORS)
    return mcmc


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


SAMPLERS = [
    *(pytest.param(name, marks=pytest.mark.pymc) for name in ("pymc", "nutpie", "numpyro")),
    pytest.param("blackjax", marks=pytest.mark.pymc),
    "numpyro-mcmc",
    pytest.param("cmdstan", marks=pytest.mark.stan),
]


@pytest.fixture(scope="module", params=SAMPLERS)
def run(request):
    """Return the table of a short run, the draws of one twenty times longer, and the truth."""
    sampler = request.param
    with warnings.catch_warnings(action="ignore"):  # of the samplers' own dependencies
        if sampler == "cmdstan":
            sample = request.getfixturevalue("stan_run")
            data, model, names, expected = sample(DRAWS, 5), None, ["~trend"], regression_truth()
            longer = as_idata(sample(LONGER * DRAWS, 6))
        elif sampler == "numpyro-mcmc":
            data, model = sample_numpyro(DRAWS, 5), None
            names, expected = ["mu", "tau", "theta"], schools_truth()
            longer = as_idata(sample_numpyro(LONGER * DRAWS, 6))
        else:
            if sampler != "pymc":
                pytest.importorskip(sampler)
            model = request.getfixturevalue("pymc_model")
            data = sample_pymc(model, sampler, DRAWS, seed=5)
            names, expected = ["mu", "tau", "theta"], schools_truth()
            longer = sample_pymc(model, sampler, LONGER * DRAWS, seed=6)
            # nutpie's gradients are stored: they need no model.
            model = None if sampler == "nutpie" else model
        table = az_cv.summary(data, model=model, var_names=names, round_to="none")
    return table, longer, expected


def test_estimates_are_much_closer_to_the_truth_than_plain_averages(run):
    table, _, expected = run
    # Plain averages would have about one. Sds gain less, too little for a bar with few draws, and
    # nothing is promised where the density has a kink, as Laplace's prior of delta has.
    smooth = {name: values for name, values in expected.items() if name != "delta[0]"}
    of_means = errors(table, smooth, unit=plain)[::2]
    assert root_mean_square(of_means) < 0.35, of_means
    assert table["vrf_mean"].median() > 20


def test_estimates_agree_with_a_run_twenty_times_longer(run):
    table, longer, expected = run
    z = differences(table, longer, expected)
    assert root_mean_square(z) < 1.6, z
    assert np.abs(z).max() < 4, z
