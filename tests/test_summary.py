import re
import subprocess
import sys

import arviz
import numpy as np
import pytest
import xarray as xr

import az_cv
from az_cv.testing import Banana, Gaussian, LogisticRegression, as_datatree


@pytest.fixture(scope="module")
def schools():
    return az_cv.load_eight_schools().isel(draw=slice(None, 250))


@pytest.fixture
def small(rng):
    return as_datatree(Gaussian(np.eye(2)), draws=50)


def test_gaussian_moments_are_exact_by_default():
    target = Gaussian(np.array([[2.0, 0.3], [0.3, 0.5]]), mean=np.array([1.0, -1.0]))
    data, scores = as_datatree(target, draws=250)
    table = az_cv.summary(data, scores=scores, round_to="none")
    for name, truth in target.expectations().items():
        assert table.loc[name, "mean"] == pytest.approx(truth, abs=1e-8)
    assert table.loc["x0", "sd"] == pytest.approx(np.sqrt(2), abs=1e-8)
    assert (table["vrf_mean"] > 1e6).all()


@pytest.mark.parametrize("target", [Banana(), LogisticRegression()], ids=lambda t: type(t).__name__)
def test_curved_targets_are_within_their_errors(target):
    data, scores = as_datatree(target, draws=250, random_seed=3)
    table = az_cv.summary(data, scores=scores, round_to="none")
    for name, truth in target.expectations().items():
        # The logistic regression's truth has an error of its own, about 1e-3.
        assert abs(table.loc[name, "mean"] - truth) < 5 * table.loc[name, "mcse_mean"] + 3e-3
    assert (table["vrf_mean"] > 20).all()


def test_eight_schools_table(schools):
    table = az_cv.summary(schools, attach=False)
    assert list(table.index[:3]) == ["mu", "tau", "theta[Choate]"]
    is_legacy = arviz.__version__.startswith("0.")
    draws = schools["posterior"].to_dataset() if is_legacy else schools
    plain = arviz.summary(draws, round_to="none")
    assert list(table.index) == list(plain.index)
    assert list(table.columns) == [*plain.columns, "vrf_mean", "vrf_sd"]
    for diagnostic in ("r_hat", "ess_bulk", "ess_tail"):  # of the sampler, as ArviZ has them
        np.testing.assert_allclose(table[diagnostic], plain[diagnostic], rtol=5e-3)
    assert "kernel" in table.attrs["family"]
    assert table["vrf_mean"].median() > 50
    assert table["vrf_mean"].min() > 4
    assert table["vrf_sd"].median() > 5
    # A long run of the same model has mean 4.40 and 3.58.
    assert table.loc["mu", "mean"] == pytest.approx(4.40, abs=0.05)
    assert table.loc["tau", "mean"] == pytest.approx(3.58, abs=0.1)


def test_functions_of_the_posterior(schools):
    table = az_cv.summary(
        schools,
        {
            "largest": lambda post: post["theta"].max("school"),
            "P(mu > 0)": lambda post: post["mu"] > 0,
        },
        round_to="none",
        attach=False,
    )
    assert list(table.index) == ["largest", "P(mu > 0)"]
    assert 0.8 < table.loc["P(mu > 0)", "mean"] < 1
    assert table.loc["largest", "vrf_mean"] > 4
    assert table.loc["P(mu > 0)", "vrf_mean"] > 1.2


def test_rows_are_named_for_the_function(small):
    data, scores = small

    def largest(post):
        return post["x0"].where(post["x0"] > post["x1"], post["x1"])

    for fn, label in (
        (largest, "largest"),
        (lambda p: p["x0"] * 2, "fn"),
        (lambda p: p["x0"], "x0"),
    ):
        assert list(az_cv.fit(data, fn, scores=scores).estimates.data_vars) == [label]


def test_fn_may_return_datasets_and_dicts(small):
    data, scores = small
    by_dataset = az_cv.fit(data, lambda post: post[["x0"]] * 2, scores=scores)
    by_dict = az_cv.fit(data, lambda post: {"x0": post["x0"] * 2}, scores=scores)
    xr.testing.assert_allclose(by_dataset.estimates, by_dict.estimates)


def test_selection_follows_arviz(schools):
    regex = {"var_names": ["^t"], "filter_vars": "regex"}
    assert list(az_cv.fit(schools, **regex).estimates.data_vars) == ["tau", "theta"]
    chosen = az_cv.summary(schools, var_names="theta", coords={"school": ["Choate"]}, attach=False)
    assert list(chosen.index) == ["theta[Choate]"]


def test_attached_groups_spare_the_model(schools):
    data = schools.copy(deep=True)
    first = az_cv.summary(data, var_names=["mu"], round_to="none")
    assert {"cv_scores", "cv_draws", "cv_summary"} <= set(data.children)
    assert float(data["cv_summary"]["mu"].sel(summary="mean")) == first.loc["mu", "mean"]
    assert data["cv_draws"]["mu"].dims == ("chain", "draw")
    again = az_cv.summary(data, var_names=["mu"], round_to="none")
    assert again.loc["mu", "mean"] == first.loc["mu", "mean"]


def test_netcdf_round_trip(schools, tmp_path):
    data = schools.copy(deep=True)
    before = az_cv.summary(data, var_names=["mu"], round_to="none")
    data.to_netcdf(tmp_path / "draws.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "draws.nc", engine="h5netcdf") as reloaded:
        after = az_cv.summary(reloaded.load(), var_names=["mu"], round_to="none", attach=False)
    assert after.loc["mu", "mean"] == pytest.approx(before.loc["mu", "mean"], rel=1e-12)


def test_input_is_unchanged_without_attach(small):
    data, scores = small
    copies = data.copy(deep=True), scores.copy(deep=True)
    az_cv.summary(data, scores=scores, attach=False)
    az_cv.fit(data, scores=scores)
    xr.testing.assert_identical(data, copies[0])
    xr.testing.assert_identical(scores, copies[1])


def test_dimension_order_is_irrelevant(small):
    data, scores = small
    turned = xr.DataTree.from_dict(
        {"posterior": data["posterior"].to_dataset().transpose("draw", ...)}
    )
    one = az_cv.fit(data, scores=scores).estimates
    two = az_cv.fit(turned, scores=scores.transpose("unconstrained_parameter", ...)).estimates
    xr.testing.assert_allclose(one, two)


def test_constant_and_missing_values_are_reported_as_they_are(small):
    data, scores = small
    posterior = data["posterior"].to_dataset()
    posterior["constant"] = xr.full_like(posterior["x0"], 3.0)
    posterior["missing"] = posterior["x0"].where(posterior["draw"] > 0)
    posterior["count"] = (posterior["x0"] > 0).astype(int)
    with pytest.warns(UserWarning, match="1 of 7 quantities are not finite .* NaN: missing"):
        table = az_cv.summary(posterior, scores=scores, round_to="none")
    assert table.loc["constant", ["mean", "sd", "mcse_mean", "vrf_mean"]].tolist() == [3, 0, 0, 1]
    assert np.isnan(table.loc["missing", "mean"])
    assert table.loc["count", "mean"] == pytest.approx(0.5, abs=0.15)


def test_rounding_follows_the_errors(schools):
    full = az_cv.summary(schools, var_names=["mu"], round_to="none", attach=False)
    shown = az_cv.summary(schools, var_names=["mu"], attach=False)
    assert (
        abs(shown.loc["mu", "mean"] - full.loc["mu", "mean"]) < 0.06 * full.loc["mu", "mcse_mean"]
    )
    assert (
        az_cv.summary(schools, var_names=["mu"], round_to=1, attach=False).loc["mu", "mean"] == 4.4
    )


def broken(scores, name, value):
    scores = scores.copy(deep=True)
    scores[name][1, 7, 0] = value
    return scores


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda s: s.isel(chain=[0, 1]).assign_coords(chain=[7, 8]),
            ValueError,
            "disagree on 'chain'",
        ),
        (lambda s: s.drop_vars("gradient"), ValueError, r"scores lacks \['gradient'\]"),
        (
            lambda s: broken(s, "gradient", np.nan),
            ValueError,
            "gradient has 1 non-finite values, first at chain 1, draw 7, parameter x_0",
        ),
        (lambda s: broken(s, "unconstrained_draw", np.inf), ValueError, "chain 1, draw 7"),
        (lambda s: s.isel(chain=[0], draw=slice(5)), ValueError, "1 x 5 draws are too few"),
        (lambda s: s.rename(draw="step"), ValueError, "must have dims"),
        (lambda s: s["gradient"], TypeError, "must be an xarray.Dataset"),
    ],
)
def test_bad_scores_are_named(change, error, message, small):
    data, scores = small
    with pytest.raises(error, match=message):
        az_cv.summary(data, scores=change(scores))
    assert list(data.children) == ["posterior"]


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (lambda post: post["x0"].mean("draw"), ValueError, "'draw' is gone"),
        (lambda post: 3.0, TypeError, "must return a DataArray"),
        (lambda post: post["x0"].astype(str), TypeError, "only real numbers"),
        (lambda post: post["x0"].isel(draw=slice(3)), ValueError, "has 3 along 'draw'"),
        ({"a": 1}, TypeError, r"fn\['a'\] must be callable"),
        (4, TypeError, "fn must be None"),
    ],
)
def test_bad_functions_are_explained(fn, error, message, small):
    data, scores = small
    with pytest.raises(error, match=message):
        az_cv.summary(data, fn, scores=scores)


def test_no_scores_and_no_model_says_what_to_do(small):
    with pytest.raises(ValueError, match="holds no gradients and there is no model"):
        az_cv.summary(small[0])
    with pytest.raises(
        TypeError,
        match="which has no gradients to offer",
    ):
        az_cv.summary(small[0], model=3)


def test_shapes_that_disagree_are_refused():
    with pytest.raises(ValueError, match=r"they have \(4, 10, 2\) and \(4, 10, 3\)"):
        az_cv.scores_dataset(np.zeros((4, 10, 2)), np.zeros((4, 10, 3)))


def test_import_loads_no_front_end():
    code = (
        "import sys, az_cv; optional = ('pymc', 'pytensor', 'bridgestan', 'cmdstanpy', "
        "'matplotlib.pyplot', 'zarr'); print([m for m in optional if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_demo_prints_the_table(capsys):
    from az_cv.cli import main

    assert main(["demo"]) == 0
    printed = capsys.readouterr().out
    assert "theta[Choate]" in printed
    assert "vrf_mean" in printed
    before, _, after = printed.partition("plain average")
    assert "Control variates: " in before  # the table as it is printed, with its footer
    assert re.search(r"^mu +4\.39\d ± 0\.0\d\d +4\.39\d+ ± 0\.000\d+ +4\.3968$", after, re.M)


def test_traces_on_disk_are_read_when_needed(schools, tmp_path):
    pytest.importorskip("zarr")
    pytest.importorskip("dask")
    schools.to_zarr(tmp_path / "trace.zarr", zarr_format=2)
    stored = xr.open_datatree(tmp_path / "trace.zarr", engine="zarr", chunks={})
    table = az_cv.summary(stored, family="polynomial", var_names=["mu", "theta"])
    expected = az_cv.summary(schools, family="polynomial", var_names=["mu", "theta"], attach=False)
    assert np.allclose(table["mean"], expected["mean"])
    # Nothing but what was asked for has been read.
    assert stored["posterior"]["tau"].chunks is not None
