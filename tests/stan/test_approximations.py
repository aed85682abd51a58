"""CmdStan's own approximations, corrected, against its sampler."""

import numpy as np
import pytest

import az_cv
from az_cv.sources import cmdstan_approximation

cmdstanpy = pytest.importorskip("cmdstanpy")
pytest.importorskip("prophet")
pytestmark = pytest.mark.stan


@pytest.fixture(scope="module")
def trend(executable, tmp_path_factory):
    """Return the executable's model and data with four parameters, none of them hierarchical."""
    t = np.linspace(0, 1, 60)
    data = {
        "T": 60,
        "K": 1,
        "S": 0,
        "t": t,
        "cap": np.zeros(60),
        "y": 1 + t + 0.1 * np.random.default_rng(0).normal(size=60),
        "t_change": np.zeros(0),
        "X": np.sin(6 * t)[:, None],
        "sigmas": np.ones(1),
        "tau": 0.5,
        "trend_indicator": 0,
        "s_a": np.ones(1),
        "s_m": np.zeros(1),
    }
    path = tmp_path_factory.mktemp("trend") / "data.json"
    cmdstanpy.write_stan_json(path, data)
    return cmdstanpy.CmdStanModel(exe_file=executable), str(path)


@pytest.fixture(scope="module")
def reference(trend, stan_model):
    model, data = trend
    fit = model.sample(
        data=data, chains=2, iter_sampling=300, seed=1, sig_figs=18, show_progress=False
    )
    draws = {name: values for name, values in fit.stan_variables().items() if name in NAMES}
    shaped = {name: values.reshape(2, 300, *values.shape[1:]) for name, values in draws.items()}
    return az_cv.summary(shaped, model=stan_model("prophet", data), round_to="none", attach=False)


NAMES = ("k", "m", "delta", "sigma_obs", "beta")


def approximate(kind, model, data):
    if kind == "laplace":
        return model.laplace_sample(data=data, draws=400, seed=1, sig_figs=18)
    if kind == "pathfinder":
        return model.pathfinder(data=data, draws=400, seed=1, sig_figs=18, psis_resample=False)
    return model.variational(
        data=data, algorithm="fullrank", draws=400, seed=1, sig_figs=18, require_converged=False
    )


def corrected(kind, trend, stan_model):
    model, data = trend
    tree = cmdstan_approximation(approximate(kind, model, data))
    tree["posterior"] = tree["posterior"].to_dataset()[[n for n in NAMES if n in tree["posterior"]]]
    return az_cv.summary(
        tree, model=stan_model("prophet", data), draws="approximate", round_to="none"
    )


def check(table, reference):
    error = np.hypot(table["mcse_mean"], reference["mcse_mean"])
    assert (np.abs(table["mean"] - reference["mean"]) < 4 * error).all()
    assert (table["mcse_mean"] < 0.02 * table["sd"]).all()


@pytest.mark.parametrize("kind", ["laplace", "pathfinder"])
def test_approximations_of_cmdstan_agree_with_its_sampler(kind, trend, reference, stan_model):
    check(corrected(kind, trend, stan_model), reference)


def test_variational_inference_of_cmdstan_is_corrected_or_refused(trend, reference, stan_model):
    try:
        table = corrected("variational", trend, stan_model)
    except ValueError as refusal:
        assert "too far from the posterior" in str(refusal)
    else:
        check(table, reference)


def test_other_fits_are_refused():
    with pytest.raises(TypeError, match="not an approximation"):
        cmdstan_approximation({"k": 1})
