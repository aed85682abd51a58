"""Sds, quantiles, probabilities, correlations and log expectations against known answers."""

import warnings

import numpy as np
import pytest
import scipy.stats
import xarray as xr

import az_cv
from az_cv.sources.schema import scores_dataset

COVARIANCE = np.array([[1.0, 0.6], [0.6, 4.0]])


@pytest.fixture(scope="module")
def gaussian():
    rng = np.random.default_rng(11)
    x = rng.multivariate_normal([1.0, -2.0], COVARIANCE, size=(4, 500))
    s = -(x - [1.0, -2.0]) @ np.linalg.inv(COVARIANCE)
    data = xr.Dataset({"a": (("chain", "draw"), x[..., 0]), "b": (("chain", "draw"), x[..., 1])})
    return data, scores_dataset(x, s)


def within(value, truth, error, sigmas=4):
    return abs(value - truth) <= sigmas * error + 1e-9


@pytest.mark.parametrize("kind", ["eti", "hdi"])
def test_interval_ends_are_those_of_the_gaussian(gaussian, kind):
    data, scores = gaussian
    table = az_cv.summary(data, scores=scores, ci_prob=0.9, ci_kind=kind, round_to="none")
    lower, upper = table.columns[2:4]
    assert kind in lower
    for name, mean, sd in (("a", 1.0, 1.0), ("b", -2.0, 2.0)):
        # A highest-density interval keeps the noise of where the shortest one lies.
        slack = 0.02 if kind == "eti" else 0.15
        assert table.loc[name, lower] == pytest.approx(mean - 1.645 * sd, abs=slack * sd * 2)
        assert table.loc[name, upper] == pytest.approx(mean + 1.645 * sd, abs=slack * sd * 2)


def test_quantiles_are_within_their_errors_and_gain(gaussian):
    data, scores = gaussian
    tree = xr.DataTree.from_dict({"posterior": data})
    az_cv.summary(tree, scores=scores, ci_prob=0.9, ci_kind="eti")
    estimates = tree["cv_summary"].to_dataset()
    for name, mean, sd in (("a", 1.0, 1.0), ("b", -2.0, 2.0)):
        found = {str(k): float(estimates[name].sel(summary=k)) for k in estimates["summary"].values}
        for end, level in (("lower", 0.05), ("upper", 0.95)):
            truth = scipy.stats.norm.ppf(level, mean, sd)
            assert within(found[end], truth, found[f"mcse_{end}"])
            assert found[f"vrf_{end}"] > 1
        assert found["vrf_mean"] > 100
        assert found["vrf_sd"] > 100


def test_probabilities_gain(gaussian):
    data, scores = gaussian
    table = az_cv.summary(data, {"p": lambda post: post["a"] > 0}, scores=scores, round_to="none")
    assert within(table.loc["p", "mean"], scipy.stats.norm.cdf(1.0), table.loc["p", "mcse_mean"])
    assert table.loc["p", "vrf_mean"] > 1.5


def test_correlations_on_a_gaussian(gaussian):
    data, scores = gaussian
    table = az_cv.covariance(data, scores=scores)
    row = table.loc[("a", "b")]
    assert within(row["covariance"], 0.6, row["mcse_covariance"])
    assert within(row["correlation"], 0.3, row["mcse_correlation"])
    assert row["vrf_correlation"] > 100


def test_covariances_show_every_column_with_the_digits_of_their_errors():
    data = az_cv.load_eight_schools().isel(draw=slice(100))
    table = az_cv.covariance(data, pairs=[("mu", "tau")], family="polynomial")
    (row,) = table.to_dict("records")
    head, _, shown = str(table).splitlines()
    assert head.split() == list(table.columns)
    first, second, covariance, error, *_ = shown.split()
    assert (first, second) == ("mu", "tau")
    assert len(error.replace(".", "").lstrip("0")) == 2
    assert len(covariance.partition(".")[2]) == len(error.partition(".")[2])
    # What is shown is rounded, and what is kept is not.
    assert 0 < abs(float(covariance) - row["covariance"]) < row["mcse_covariance"]
    assert "<th>mu, tau</th>" in table._repr_html_()
    assert table.attrs["warnings"] == []


def test_correlations_on_a_curved_target():
    rng = np.random.default_rng(2)
    z = rng.normal(size=(4, 250, 2))
    x = np.stack([z[..., 0], z[..., 1] + 0.5 * z[..., 0] + 0.3 * (z[..., 0] ** 2 - 1)], axis=-1)
    straight = z[..., 1]
    s = np.stack([-x[..., 0] + straight * (0.5 + 0.6 * x[..., 0]), -straight], axis=-1)
    data = xr.Dataset({"x": (("chain", "draw", "k"), x)})
    table = az_cv.covariance(data, scores=scores_dataset(x, s), pairs=[("x[1]", "x[0]")])
    variance = 1 + 0.25 + 0.09 * 2
    row = table.iloc[0]
    assert within(row["covariance"], 0.5, row["mcse_covariance"])
    assert within(row["correlation"], 0.5 / np.sqrt(variance), row["mcse_correlation"])
    assert row["vrf_covariance"] > 10


def test_log_mean_exp_of_a_gaussian(gaussian):
    data, scores = gaussian
    logs = {"up": lambda post: 0.5 * post["a"], "far": lambda post: 800 + 0.1 * post["b"]}
    table = az_cv.log_mean_exp(data, logs, scores=scores)
    for name, truth in (("up", 0.5 + 0.125), ("far", 800 - 0.2 + 0.02)):
        assert within(table.loc[name, "log_mean_exp"], truth, table.loc[name, "mcse"])
    assert (table["vrf"] > 100).all()


def test_log_mean_exp_reads_the_log_likelihood(gaussian):
    data, scores = gaussian
    likelihood = xr.Dataset({"y": -0.5 * (data["a"] - xr.DataArray([0.0, 1.0], dims="obs")) ** 2})
    tree = xr.DataTree.from_dict({"posterior": data, "log_likelihood": likelihood})
    table = az_cv.log_mean_exp(tree, scores=scores)
    assert list(table.index) == ["y[0]", "y[1]"]
    # E exp(-(a - y)^2 / 2) with a ~ N(1, 1) is exp(-(1 - y)^2 / 4) / sqrt(2)
    for label, truth in (("y[0]", -0.25), ("y[1]", 0.0)):
        truth -= 0.5 * np.log(2)
        assert within(table.loc[label, "log_mean_exp"], truth, table.loc[label, "mcse"])


def test_unknown_pairs_are_named(gaussian):
    data, scores = gaussian
    with pytest.raises(KeyError, match=r"pairs name \['c'\]"):
        az_cv.covariance(data, scores=scores, pairs=[("a", "c")])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ci_prob": 1.5}, "ci_prob must be a number between 0 and 1; it is 1.5"),
        ({"ci_kind": "central"}, "ci_kind 'central' is unknown"),
        ({"round_to": "auto"}, "round_to must be"),
    ],
)
def test_impossible_tables_are_refused(gaussian, arguments, message):
    data, scores = gaussian
    with pytest.raises(ValueError, match=message):
        az_cv.summary(data, scores=scores, **arguments)


def test_unknown_variables_are_named(gaussian):
    data, scores = gaussian
    with pytest.raises(KeyError, match=r"not among the variables: \['a', 'b'\]"):
        az_cv.summary(data, scores=scores, var_names=["c"])


def test_means_that_may_not_exist_are_named():
    """Of a Cauchy distribution in two dimensions; the score is -3 x / (1 + |x|^2)."""
    rng = np.random.default_rng(5)
    normal, chi = rng.normal(size=(4, 250, 2)), np.abs(rng.normal(size=(4, 250, 1)))
    x = normal / chi
    scores = az_cv.scores_dataset(x, -3 * x / (1 + (x**2).sum(axis=2, keepdims=True)))
    functions = {
        "first": lambda post: post["x"][..., 0],
        "bounded": lambda post: np.tanh(post["x"][..., 0]),
        "sign": lambda post: post["x"][..., 0] > 0,
    }
    with pytest.warns(UserWarning, match=r"tails of first are very heavy \(Pareto k [01]"):
        table = az_cv.summary({"x": x}, functions, scores=scores, family="polynomial")
    assert len(table.attrs["warnings"]) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (az_cv.covariance, "corrected covariances of a and b lie up to"),
        (
            lambda data, **options: az_cv.log_mean_exp(
                data, lambda post: 2 * np.log(abs(post["b"])), **options
            ),
            "corrected expectations of .* lie up to",
        ),
    ],
    ids=["covariance", "log_mean_exp"],
)
def test_answers_that_contradict_plain_averages_are_named(gaussian, call, message):
    """Gradients of a posterior with twice the sds: means agree, and nothing else does."""
    data, scores = gaussian
    wide = scores.assign(gradient=scores["gradient"] / 4)
    with pytest.warns(UserWarning, match=f"{message} .* plain errors"):
        call(data, scores=wide, check=False, family="polynomial")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(data, scores=scores, family="polynomial")
