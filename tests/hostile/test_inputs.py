"""Bad and odd inputs to the Python functions, by name: refused, answered rightly, or warned of.

The posterior is a standard normal, whose means and sds a polynomial of order two knows exactly.
"""

import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import az_cv
from az_cv.containers.replacing import FileProblemError
from az_cv.families import Kernel, Polynomial


def normal(chains=4, draws=60, d=2, seed=0):
    """Return draws of a standard normal and their scores."""
    x = np.random.default_rng(seed).normal(size=(chains, draws, d))
    coords = {"chain": np.arange(chains), "draw": np.arange(draws), "k": list("abcdefghij"[:d])}
    return xr.Dataset({"x": (("chain", "draw", "k"), x)}, coords), az_cv.scores_dataset(x, -x)


DATA, SCORES = normal()
X = DATA["x"].values
OTHER = normal(seed=1)[0]
FIRST = {"f": lambda post: post["x"].isel(k=0)}


def summary(data=DATA, fn=None, *, scores=SCORES, family="polynomial", **settings):
    return az_cv.summary(
        data, fn, scores=scores, family=family, round_to="none", attach=False, **settings
    )


def with_variable(value, name="y", dims=("chain", "draw")):
    return DATA.assign({name: (dims, value)})


def scaled(factor):
    return {"f": lambda post: factor * post["x"]}


def repeated(times):
    return lambda post: post["x"].isel(k=0) * xr.DataArray(np.ones(times), dims="t")


def standard(table, scale=1.0, rows=None):
    """Check that every row, or these, has mean zero and the given sd."""
    chosen = table if rows is None else table.loc[rows]
    assert len(chosen)
    np.testing.assert_allclose(chosen["mean"] / scale, 0, atol=1e-9)
    np.testing.assert_allclose(chosen["sd"] / scale, 1, rtol=1e-9)
    assert (chosen["mcse_mean"] > 0).all()
    assert np.isfinite(chosen).all(axis=None)


def plain(table):
    """Check that the answer is the plain average."""
    assert (table["vrf_mean"] == 1).all()


masked = np.ma.array(X, mask=np.zeros(X.shape, bool))
masked[1, 2, 0] = np.ma.masked
EMPTY = np.zeros((4, 60, 0))
LIKELIHOOD = xr.DataTree.from_dict({"posterior": DATA, "log_likelihood": DATA * np.nan})
TREE = xr.DataTree.from_dict({"posterior": DATA, "cv_scores": SCORES})


def tree(posterior, scores=SCORES):
    return xr.DataTree.from_dict({"posterior": posterior, "cv_scores": scores})


# name: what is called, the exception, a part of its message
REFUSED = {
    # draws
    "no data": (lambda: summary(None), ValueError, "No draws can be read from this NoneType"),
    "a number for data": (lambda: summary(3.5), ValueError, "No draws can be read from this float"),
    "a table for data": (
        lambda: summary(DATA["x"][0].to_pandas()), ValueError, "No draws can be read"),
    "a file that is not there": (
        lambda: az_cv.summary("no.nc"), FileProblemError, "There is no file no.nc"),
    "an address for data": (
        lambda: az_cv.summary("https://example.org/a.nc"), FileProblemError, "Download the file"),
    "no posterior": (
        lambda: az_cv.summary(xr.DataTree.from_dict({"prior": DATA}), scores=SCORES), KeyError,
        "There is no group 'posterior' in data. Available: ['prior']"),
    "no gradients, no model": (lambda: az_cv.summary(DATA), ValueError, "holds no gradients"),
    "no chain dimension": (
        lambda: summary(DATA.isel(chain=0, drop=True)), ValueError, "no dimension 'chain'"),
    "no chains": (lambda: summary(DATA.isel(chain=slice(0, 0))), ValueError, "has no draws"),
    "no draws": (lambda: summary(DATA.isel(draw=slice(0, 0))), ValueError, "has no draws"),
    "two draws": (
        lambda: summary(DATA.isel(draw=slice(0, 2)), scores=SCORES.isel(draw=slice(0, 2))),
        ValueError, "4 x 2 draws are too few"),
    "draw labels twice": (
        lambda: summary(DATA.assign_coords(draw=[0] * 60)), ValueError,
        "posterior has the label 0 more than once along 'draw'"),
    "chain labels twice in scores": (
        lambda: summary(scores=SCORES.assign_coords(chain=[0, 1, 1, 2])), ValueError,
        "scores has the label 1 more than once along 'chain'"),
    "other draw labels": (
        lambda: summary(DATA.assign_coords(draw=np.arange(30, 90))), ValueError,
        "slice, thin or renumber the whole data"),
    "strings in the posterior": (
        lambda: summary(with_variable(np.full((4, 60), "a"))), TypeError, "'y' has dtype <U1"),
    "objects in the posterior": (
        lambda: summary(with_variable(np.full((4, 60), {}, dtype=object))), TypeError,
        "'y' has dtype object"),
    "dates in the posterior": (
        lambda: summary(with_variable(np.full((4, 60), np.datetime64("2020-01-01", "ns")))),
        TypeError, "only real numbers have expectations"),
    "a variable without chains": (
        lambda: summary(DATA.assign(c=("k", [1.0, 2.0]))), ValueError, "'chain' is gone"),
    "a variable called summary": (
        lambda: summary(DATA.rename(x="summary")), ValueError, "under the name 'summary'"),
    "a dimension called summary": (
        lambda: summary(DATA.rename(k="summary")), ValueError, "under the name 'summary'"),
    # scores
    "masked draws": (
        lambda: az_cv.scores_dataset(masked, -X), ValueError,
        "unconstrained_draw has 1 masked entries"),
    "masked gradients": (
        lambda: az_cv.scores_dataset(X, -masked), ValueError, "gradient has 1 masked entries"),
    "scores of another shape": (
        lambda: az_cv.scores_dataset(X, -X[:, :30]), ValueError, "(4, 60, 2) and (4, 30, 2)"),
    "scores without draws": (
        lambda: summary(scores=SCORES[["gradient"]]), ValueError,
        "scores lacks ['unconstrained_draw']"),
    "scores as an array": (lambda: summary(scores=-X), TypeError, "az_cv.scores_dataset builds"),
    "scores with odd dims": (
        lambda: summary(scores=SCORES.rename(draw="step")), ValueError, "must have dims"),
    "no unconstrained parameters": (
        lambda: summary(scores=az_cv.scores_dataset(EMPTY, EMPTY)), ValueError,
        "no unconstrained parameters"),
    "a gradient that is infinite": (
        lambda: summary(scores=SCORES.assign(gradient=SCORES["gradient"] / 0)),
        ValueError, "non-finite values, first at chain 0, draw 0, parameter x_0"),
    "complex gradients": (
        lambda: summary(scores=SCORES.astype(complex)), TypeError, "its dtype is complex128"),
    "gradients as text": (
        lambda: summary(scores=SCORES.astype(str)), TypeError, "must hold real numbers"),
    "draws of 1e200": (
        lambda: summary(scores=az_cv.scores_dataset(X * 1e200, -X / 1e200)), ValueError,
        "for parameter x_0, beyond what can be computed with"),
    "draws of 1e-200": (
        lambda: summary(scores=az_cv.scores_dataset(X * 1e-200, -X * 1e200)), ValueError,
        "in other units"),
    "chains and draws stacked": (
        lambda: summary(DATA.stack(sample=("chain", "draw"))), ValueError, "it has ['k', 'samp"),
    "gradients of the other sign": (
        lambda: summary(scores=az_cv.scores_dataset(X, X)), ValueError, "sign is flipped"),
    "gradients of zero": (
        lambda: summary(scores=az_cv.scores_dataset(X, 0 * X)), ValueError,
        "The gradients do not belong to these draws"),
    "draws that do not move": (
        lambda: summary(scores=az_cv.scores_dataset(0 * X, -X), check=False), ValueError,
        "constant over 240 draws"),
    "a model that is a name": (
        lambda: az_cv.summary(DATA, model="model.stan"), TypeError,
        "az_cv.sources.load_stan_model"),
    "a model that is a number": (lambda: az_cv.summary(DATA, model=3), TypeError, "Accepted: a"),
    # functions
    "fn as text": (lambda: summary(fn="x"), TypeError, "chosen with var_names="),
    "fn that is no function": (lambda: summary(fn={"a": 3}), TypeError, "fn['a'] must be callable"),
    "fn that is an empty dict": (lambda: summary(fn={}), ValueError, "nothing to estimate"),
    "fn that returns nothing": (
        lambda: summary(fn=lambda post: None), TypeError, "'fn' returned NoneType"),
    "fn that returns an array": (
        lambda: summary(fn=lambda post: post["x"].values), TypeError, "'fn' returned ndarray"),
    "fn that averages": (
        lambda: summary(fn=lambda post: post["x"].mean("draw")), ValueError, "'draw' is gone"),
    "fn that drops draws": (
        lambda: summary(fn=lambda post: post["x"].isel(draw=slice(5))), ValueError,
        "'fn' has 5 along 'draw'; the posterior has 60"),
    "fn with other draw labels": (
        lambda: summary(fn=lambda post: post["x"].assign_coords(draw=post["draw"] + 100)),
        ValueError, "other labels along 'draw'"),
    "fn that fails": (lambda: summary(fn=lambda post: post["nu"]), KeyError, "nu"),
    "fn of complex numbers": (
        lambda: summary(fn=lambda post: post["x"] * 1j), TypeError, "dtype complex128"),
    "fn without elements": (
        lambda: summary(fn=lambda post: post["x"].isel(k=slice(0, 0))), ValueError,
        "a dimension has no elements: {'fn': {'chain': 4, 'draw': 60, 'k': 0}}"),
    "fn called chain": (lambda: summary(fn={"chain": FIRST["f"]}), ValueError, "name 'chain'"),
    "fn called draw": (lambda: summary(fn={"draw": FIRST["f"]}), ValueError, "name 'draw'"),
    "fn called summary": (lambda: summary(fn={"summary": FIRST["f"]}), ValueError, "'summary'"),
    "fn without a name": (lambda: summary(fn={"": FIRST["f"]}), ValueError, "under the name ''"),
    "fn called .": (lambda: summary(fn={".": FIRST["f"]}), ValueError, "under the name '.'"),
    "fn called as its dimension": (
        lambda: summary(fn={"k": lambda post: post["x"]}), ValueError, "under the name 'k'"),
    "two functions, one name": (
        lambda: summary(fn={"a": lambda post: post[["x"]], "b": lambda post: {"x": post["x"]}}),
        ValueError, "two results the name 'x'"),
    "keys 1 and '1'": (
        lambda: summary(fn={1: FIRST["f"], "1": FIRST["f"]}), ValueError, "the name '1'"),
    "functions with other labels": (
        lambda: summary(fn={"u": lambda post: post["x"].isel(k=[0]),
                            "v": lambda post: post["x"].isel(k=[1])}),
        ValueError, "'v' and 'u' have other labels along 'k'"),
    "functions with other sizes": (
        lambda: summary(fn={"u": lambda post: post["x"].drop_vars("k"),
                            "v": lambda post: post["x"].drop_vars("k").isel(k=[0])}),
        ValueError, "Rename the dimension of one of them"),
    "100,000 quantities": (
        lambda: summary(fn=repeated(10**5)),
        ValueError, "100,000 quantities are asked for; one call answers at most 20,000"),
    # selection
    "an unknown variable": (
        lambda: summary(var_names="mu"), KeyError, "'mu' is not among the variables: ['x']"),
    "a misspelt variable": (
        lambda: summary(with_variable(1.5 * X[..., 0], "theta"), var_names=["x", "thta"]),
        KeyError, "var_names 'thta' is not among the variables: ['x', 'theta']. Did you mean 'the"),
    "two unknown variables": (
        lambda: summary(var_names=["mu", "x", "nu"]), KeyError, "['mu', 'nu'] are not among"),
    "a filter without a match": (
        lambda: summary(var_names="mu", filter_vars="like"), KeyError, "selects nothing from"),
    "a number for var_names": (lambda: summary(var_names=3), TypeError, "a name or a list of"),
    "an unknown filter": (
        lambda: summary(var_names="x", filter_vars="glob"), ValueError, "Choose 'like', 'regex'"),
    "coords of chains": (
        lambda: summary(coords={"chain": [0]}), ValueError, "slice the whole data: data.sel(chain"),
    "coords of draws": (lambda: summary(coords={"draw": 3}), ValueError, "not among draws"),
    "coords of an unknown dimension": (
        lambda: summary(coords={"school": "A"}), KeyError, "The quantities have ['k']"),
    "coords of an unknown label": (
        lambda: summary(coords={"k": "z"}), KeyError, "is not among its labels: ['a', 'b']"),
    "coords of a misspelt label": (
        lambda: summary(coords={"k": ["b", "A"]}), KeyError, "['a', 'b']. Did you mean 'a'?"),
    "coords of lists of labels": (
        lambda: summary(coords={"k": [["a"], "b"]}), KeyError, "is not among its labels"),
    "coords of nothing": (lambda: summary(coords={"k": []}), ValueError, "selects no element"),
    "coords as a list": (lambda: summary(coords=["k"]), TypeError, "a dict of dimension to labels"),
    # settings
    "a class for a family": (lambda: summary(family=Kernel), TypeError, "family=Kernel()"),
    "a class for a solver": (lambda: summary(solver=az_cv.Exact), TypeError, "solver=Exact()"),
    "a misspelt family": (lambda: summary(family="kernal"), ValueError, "'kernal' is unknown"),
    "a number for a family": (lambda: summary(family=2), TypeError, "family must be a name in"),
    "a misspelt solver": (lambda: summary(solver="adam"), ValueError, "'adam' is unknown"),
    "a list for a solver": (lambda: summary(solver=["sgd"]), ValueError, "is unknown. Choose from"),
    "folds in a list": (lambda: summary(folds=[2]), ValueError, "it is [2]"),
    "folds that are nan": (lambda: summary(folds=float("nan")), ValueError, "it is nan"),
    "folds that are infinite": (lambda: summary(folds=float("inf")), ValueError, "it is inf"),
    "folds that are true": (lambda: summary(folds=True), ValueError, "it is True"),
    "folds of one": (lambda: summary(folds=1), ValueError, "folds=1 blocks do not fit 60 draws"),
    "folds of more than the draws": (lambda: summary(folds=61), ValueError, "folds=61"),
    "a fraction of minus a half": (lambda: summary(folds=-0.5), ValueError, "leaves no draws"),
    "misspelt folds": (lambda: summary(folds="chains"), ValueError, "it is 'chains'"),
    "a seed in words": (lambda: summary(random_seed="one"), TypeError, "it is 'one'"),
    "a seed of 1.5": (lambda: summary(random_seed=1.5), TypeError, "it is 1.5"),
    "a seed that is true": (lambda: summary(random_seed=True), TypeError, "it is True"),
    "a generator for a seed": (
        lambda: summary(random_seed=np.random.default_rng()), TypeError, "must be an integer"),
    "a negative seed": (lambda: summary(random_seed=-1), ValueError, "must not be negative"),
    "a probability in words": (lambda: summary(ci_prob="0.9"), ValueError, "it is '0.9'"),
    "a probability in percent": (lambda: summary(ci_prob=94), ValueError, "it is 94"),
    "a probability of nan": (lambda: summary(ci_prob=float("nan")), ValueError, "it is nan"),
    "a probability that is true": (lambda: summary(ci_prob=True), ValueError, "it is True"),
    "an unknown interval": (lambda: summary(ci_kind="hpd"), ValueError, "['eti', 'hdi']"),
    "rounding in words": (
        lambda: az_cv.summary(DATA, scores=SCORES, round_to="two"), ValueError, "it is 'two'"),
    "rounding that is true": (
        lambda: az_cv.summary(DATA, scores=SCORES, round_to=True), ValueError, "it is True"),
    "an order of fifty": (lambda: Polynomial(order=50), ValueError, "an integer from 1 to 12"),
    "an order of zero": (lambda: Polynomial(order=0), ValueError, "it is 0"),
    "an order of 1.5": (lambda: Polynomial(order=1.5), ValueError, "it is 1.5"),
    "a ridge below zero": (lambda: az_cv.Exact(ridge=-1), ValueError, "at least 0; it is -1"),
    "an ensemble of classes": (lambda: az_cv.Ensemble([Kernel]), TypeError, "such as Kernel()"),
    "an ensemble of names": (lambda: az_cv.Ensemble(["kernel"]), TypeError, "'kernel' is none"),
    "systems of no draws": (lambda: az_cv.Exact(max_draws=0), ValueError, "max_draws must be"),
    "a search over no draws": (lambda: az_cv.Exact(search_draws=0), ValueError, "search_draws mus"),
    "a batch of nothing": (lambda: az_cv.SGD(batch_size=0), ValueError, "batch_size must be"),
    "a network without units": (
        lambda: az_cv.NeuralNetwork(widths=()), ValueError, "positive numbers of units"),
    "an activation with a kink": (
        lambda: az_cv.NeuralNetwork(activation="relu"), ValueError, "has a kink"),
    "a length below zero": (lambda: Kernel(length_scale=-1), ValueError, "must be positive"),
    "an empty ensemble": (lambda: az_cv.Ensemble([]), ValueError, "at least one member"),
    # other calls
    "covariance of equal labels": (
        lambda: az_cv.covariance(
            DATA.assign({"x[a]": DATA["x"].isel(k=1, drop=True)}), scores=SCORES),
        ValueError, "Two quantities have one label"),
    "covariance of one quantity": (
        lambda: az_cv.covariance(DATA, FIRST, scores=SCORES), ValueError, "no pair among ['f']"),
    "covariance of an unknown label": (
        lambda: az_cv.covariance(DATA, scores=SCORES, pairs=[("x[a]", "y")]), KeyError, "['y']"),
    "covariance of a name": (
        lambda: az_cv.covariance(DATA, scores=SCORES, pairs=["x[a]"]), ValueError, "is none"),
    "covariance of 1,000 quantities": (
        lambda: az_cv.covariance(DATA, repeated(10**3), scores=SCORES),
        ValueError, "1000 quantities make 499,500 pairs"),
    "log_mean_exp of other draws": (
        lambda: az_cv.log_mean_exp(
            xr.DataTree.from_dict({"posterior": DATA, "log_likelihood": DATA.isel(draw=slice(9))}),
            scores=SCORES),
        ValueError, "'log_likelihood' lacks some of the 60 labels"),
    "a plot of an unknown variable": (
        lambda: az_cv.plots.plot_forest(az_cv.fit(TREE, family="polynomial"), var_names="mu"),
        KeyError,
        "'mu' is not among the variables"),
    "a plot of an unknown label": (
        lambda: az_cv.plots.plot_forest(az_cv.fit(TREE, family="polynomial"), coords={"k": 7}),
        KeyError,
        "is not among its labels"),
    "a plot without results": (
        lambda: az_cv.plots.plot_residuals(TREE), ValueError, "There is no group 'cv_draws'"),
    "log_mean_exp without likelihood": (
        lambda: az_cv.log_mean_exp(TREE), KeyError, "There is no group 'log_likelihood'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=re.escape(message)):
        call()


def two_rows(table):
    assert list(table.index) == ["x[a]", "x[a]"]
    standard(table)


def reordered(table):
    standard(table)
    # Fits to numbers in another order than the scores would gain nothing.
    assert (table["vrf_mean"] > 1e10).all()


def impossible_draws(table):
    """E[exp(f)] with f = 0 above zero and -inf below is one half."""
    assert (np.abs(table["log_mean_exp"] - np.log(0.5)) < 5 * table["mcse"]).all()
    assert (table["mcse"] < 0.2).all()


def covariance_of(scale):
    def check(table):
        np.testing.assert_allclose(table["covariance"] / scale**2, 0, atol=1e-9)
        np.testing.assert_allclose(table["correlation"], 0, atol=1e-9)

    return check


# name: what is called, a check of what it returns
ANSWERED = {
    "element labels twice": (lambda: summary(DATA.assign_coords(k=["a", "a"])), two_rows),
    "an axis without elements beside others": (
        lambda: summary(with_variable(EMPTY, "y", ("chain", "draw", "z"))), standard),
    "strings that are not selected": (
        lambda: summary(with_variable(np.full((4, 60), "a")), var_names="x"), standard),
    "a tuple as a name": (
        lambda: summary(fn={("a", "b"): FIRST["f"]}),
        lambda table: standard(table, rows=["('a', 'b')"])),
    "a number as a name": (
        lambda: summary(fn={1: FIRST["f"]}), lambda table: standard(table, rows=["1"])),
    "a slash in a name": (
        lambda: summary(fn={"a/b": FIRST["f"]}), lambda table: standard(table, rows=["a/b"])),
    "a slash in a name, attached": (
        lambda: az_cv.summary(TREE.copy(), {"a/b": FIRST["f"]}, family="polynomial"),
        lambda table: standard(table, rows=["a/b"])),
    "markup in a name": (
        lambda: summary(fn={"<b>x</b>": FIRST["f"]})._repr_html_(),
        lambda html: "<b>" not in html or pytest.fail("markup of a name got through")),
    "draws in another order": (
        lambda: summary(fn=lambda post: post["x"].sortby("draw", ascending=False)), reordered),
    "chains in another order": (
        lambda: summary(fn=lambda post: post["x"].isel(chain=[2, 0, 3, 1])), reordered),
    "dims in another order": (lambda: summary(fn=lambda post: post["x"].transpose()), reordered),
    "elements in another order": (
        lambda: summary(fn={"u": lambda post: post["x"],
                            "v": lambda post: 2 * post["x"].isel(k=[1, 0])}),
        lambda table: standard(table.loc[["v[a]", "v[b]"]], scale=2.0)),
    "elements of one variable": (
        lambda: summary(fn={"u": lambda post: post["x"].sel(k="a"),
                            "v": lambda post: post["x"].sel(k="b"),
                            "x": lambda post: post["x"]}),
        standard),
    "scores in another order": (lambda: summary(scores=SCORES.isel(chain=[3, 1, 0, 2])), reordered),
    "scores with dims in another order": (lambda: summary(scores=SCORES.transpose()), reordered),
    "a posterior thinned alone": (lambda: summary(DATA.isel(draw=slice(None, None, 2))), reordered),
    "scores thinned alone": (lambda: summary(scores=SCORES.isel(draw=slice(0, 30))), reordered),
    "a mask without entries": (
        lambda: summary(scores=az_cv.scores_dataset(np.ma.array(X), -np.ma.array(X))), standard),
    "numbers of 1e-165": (lambda: summary(fn=scaled(1e-165)), lambda t: standard(t, 1e-165)),
    "numbers of 1e-200": (lambda: summary(fn=scaled(1e-200)), lambda t: standard(t, 1e-200)),
    "numbers of 1e-300": (lambda: summary(fn=scaled(1e-290)), lambda t: standard(t, 1e-290)),
    "numbers of 1e80": (lambda: summary(fn=scaled(1e80)), lambda t: standard(t, 1e80)),
    "numbers of 1e200": (lambda: summary(fn=scaled(1e200)), lambda t: standard(t, 1e200)),
    "numbers of 1e307": (lambda: summary(fn=scaled(1e307)), lambda t: standard(t, 1e307)),
    "numbers of 1e-200 by every default": (
        lambda: summary(fn=scaled(1e-200), family="auto"), lambda t: standard(t, 1e-200)),
    "a posterior of 1e-200": (lambda: summary(DATA * 1e-200), lambda t: standard(t, 1e-200)),
    "a posterior of 1e200": (lambda: summary(DATA * 1e200), lambda t: standard(t, 1e200)),
    "covariance of numbers of 1e-100": (
        lambda: az_cv.covariance(DATA, scaled(1e-100), scores=SCORES), covariance_of(1e-100)),
    "log_mean_exp of minus infinity": (
        lambda: az_cv.log_mean_exp(
            DATA, lambda post: xr.where(post["x"] > 0, 0.0, -np.inf), scores=SCORES),
        impossible_draws),
    "log_mean_exp of nothing but minus infinity": (
        lambda: az_cv.log_mean_exp(DATA, lambda post: post["x"] * 0 - np.inf, scores=SCORES),
        lambda table: np.testing.assert_array_equal(table["log_mean_exp"], -np.inf)),
    "log_mean_exp of 1e4": (
        lambda: az_cv.log_mean_exp(DATA, lambda post: post["x"] * 0 + 1e4, scores=SCORES),
        lambda table: np.testing.assert_array_equal(table["log_mean_exp"], 1e4)),
    "a constant": (
        lambda: summary(fn=lambda post: post["x"].isel(k=0) * 0 + 7),
        lambda table: np.testing.assert_array_equal(table[["mean", "sd"]], [[7, 0]])),
    "draws of half precision": (
        lambda: summary(DATA.astype("f2")),
        lambda table: np.testing.assert_allclose(table["mean"], 0, atol=1e-3)),
    "bytes in the other order": (lambda: summary(DATA.astype(">f8")), standard),
    "scores in the other byte order": (lambda: summary(scores=SCORES.astype(">f8")), standard),
    "labels that are words": (
        lambda: summary(DATA.assign_coords(chain=list("abcd")),
                        scores=SCORES.assign_coords(chain=list("abcd"))),
        standard),
    "labels of several levels": (
        lambda: summary(DATA.drop_vars("k").assign_coords(
            xr.Coordinates.from_pandas_multiindex(
                pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["u", "v"]), "k"))),
        standard),
    "400 decimals": (
        lambda: az_cv.summary(DATA, scores=SCORES, family="polynomial", round_to=400), standard),
    "a seed of NumPy": (lambda: summary(random_seed=np.int64(3)), standard),
    "folds of NumPy": (lambda: summary(folds=np.int64(4)), standard),
    "a fn that changes its argument": (
        lambda: summary(fn=lambda post: post["x"].__iadd__(0.0)), standard),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERED)
def test_answered(name):
    call, check = ANSWERED[name]
    check(call())


def nan_rows(table):
    assert table.filter(like="y", axis=0).isna().all(axis=None)
    standard(table, rows=["x[a]", "x[b]"])


# name: what is called, a part of the warning, a check of what it returns
WARNED = {
    "nan in a variable": (
        lambda: summary(with_variable(np.where(X[..., 0] > 0, X[..., 0], np.nan))),
        "1 of 3 quantities are not finite at every draw, and their rows are NaN: y.", nan_rows),
    "infinity in a variable": (
        lambda: summary(with_variable(np.where(X[..., 0] > 0, X[..., 0], -np.inf))),
        "1 of 3 quantities are not finite", nan_rows),
    "masked numbers in a variable": (
        lambda: summary(with_variable(masked[..., 0])), "1 of 3 quantities are not", nan_rows),
    "a masked posterior": (
        lambda: summary({"x": masked}), "1 of 2 quantities are not finite",
        lambda table: standard(table, rows=["x[1]"])),
    "a likelihood that is nan": (
        lambda: az_cv.log_mean_exp(LIKELIHOOD, scores=SCORES), "2 of 2 quantities are not finite",
        lambda table: table.isna().all(axis=None) or pytest.fail("a number came of NaN")),
    "a posterior that was replaced": (
        lambda: az_cv.summary(tree(OTHER), family="polynomial", round_to="none"),
        "nothing to do with the draws that the gradients belong to", lambda table: None),
    "a posterior thinned and renumbered": (
        lambda: summary(
            DATA.isel(draw=slice(None, None, 2)).assign_coords(draw=np.arange(30))),
        "Slice the whole data, not one of its groups", lambda table: None),
    "one chain that was replaced": (
        lambda: summary(
            xr.concat([DATA.isel(chain=[0, 1, 2]), OTHER.isel(chain=[3])], dim="chain")),
        "not in those at position [3]", lambda table: None),
    "gradients of zero, unchecked": (
        lambda: summary(scores=az_cv.scores_dataset(X, 0 * X), check=False),
        "All gradients are zero", plain),
    "gradients of zero, unchecked, by default": (
        lambda: summary(scores=az_cv.scores_dataset(X, 0 * X), check=False, family="auto"),
        "the plain averages are the answer", plain),
    "a parameter twice": (
        lambda: summary(
            scores=az_cv.scores_dataset(X[..., [0, 1, 1]], -X[..., [0, 1, 1]] / [1, 2, 2])),
        "vary in 2 of 3 unconstrained directions", standard),
}  # fmt: skip


@pytest.mark.parametrize("name", WARNED)
def test_warned(name):
    call, message, check = WARNED[name]
    with pytest.warns(UserWarning, match=re.escape(message)) as caught:
        table = call()
    check(table)
    # The warning names the line of the user, and the table keeps it.
    assert all(warning.filename == __file__ for warning in caught)
    if "warnings" in table.attrs:
        assert any(message in text for text in table.attrs["warnings"])


def test_nothing_of_the_data_was_changed():
    np.testing.assert_array_equal(DATA["x"], normal()[0]["x"])
    assert list(DATA.data_vars) == ["x"]
    np.testing.assert_array_equal(SCORES["gradient"], -X)
