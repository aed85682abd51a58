"""Shapes and sizes that users bring."""

import numpy as np
import pytest
import xarray as xr

import az_cv
from az_cv.engine.cache import clear_cache
from az_cv.solvers.linear import judging, parts
from az_cv.sources.schema import scores_dataset
from az_cv.testing import Banana, as_datatree


def normal(chains, draws, d=1, seed=0):
    x = np.random.default_rng(seed).normal(size=(chains, draws, d))
    data = xr.Dataset({"x": (("chain", "draw", "k"), x)})
    return data, scores_dataset(x, -x)


@pytest.mark.parametrize(("chains", "draws", "d"), [(1, 200, 2), (4, 5, 1), (2, 10, 3), (1, 20, 1)])
def test_few_chains_and_few_draws(chains, draws, d):
    data, scores = normal(chains, draws, d)
    table = az_cv.summary(data, scores=scores, round_to="none")
    assert np.isfinite(table[["mean", "sd", "mcse_mean", "mcse_sd"]]).all(axis=None)
    assert (np.abs(table["mean"]) <= 4 * table["mcse_mean"] + 1e-9).all()
    assert (table["vrf_mean"] > 1e15).all()  # a Gaussian: exact to rounding


@pytest.mark.filterwarnings("ignore:The chains have not converged")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_one_stuck_chain():
    data, scores = normal(4, 200, 2)
    for value in (data["x"], scores["unconstrained_draw"], scores["gradient"]):
        value[0] = value.values[0, :1]
    table = az_cv.summary(data, scores=scores, check=False, round_to="none")
    assert np.isfinite(table[["mean", "mcse_mean"]]).all(axis=None)
    assert (table["vrf_mean"] > 1e15).all()  # a Gaussian: exact to rounding


def test_integers_booleans_and_constants():
    data, scores = normal(4, 100, 2)
    data["count"] = np.floor(data["x"].isel(k=0)).astype(int)
    data["flag"] = data["x"].isel(k=1) > 0
    data["fixed"] = xr.full_like(data["count"], 7)
    data["gone"] = data["x"].isel(k=0).where(data["x"].isel(k=0) < 1)
    with pytest.warns(UserWarning, match="1 of 6 quantities are not finite .* NaN: gone"):
        table = az_cv.summary(data, scores=scores, round_to="none")
    assert table.loc["fixed", "mean"] == 7
    assert np.isnan(table.loc["gone", "mean"])
    assert 0.3 < table.loc["flag", "mean"] < 0.7
    assert -0.8 < table.loc["count", "mean"] < -0.2


@pytest.mark.long
def test_ten_thousand_outputs():
    data, scores = normal(2, 50, 2)
    grid = xr.DataArray(np.linspace(0.1, 2, 10_000), dims="t")
    result = az_cv.fit(
        data,
        {"f": lambda post: grid * post["x"].isel(k=0)},
        scores=scores,
        family="polynomial",
        progressbar=False,
    )
    assert result.estimates["f"].sizes["t"] == 10_000
    np.testing.assert_allclose(result.estimates["f"].sel(summary="mean"), 0, atol=1e-10)
    np.testing.assert_allclose(result.estimates["f"].sel(summary="sd"), grid, rtol=1e-9)


def test_dask_posterior():
    pytest.importorskip("dask")
    data, scores = normal(4, 100, 2)
    lazy = az_cv.summary(data.chunk(chain=1), scores=scores.chunk(chain=1), round_to="none")
    eager = az_cv.summary(data, scores=scores, round_to="none")
    # Exact to rounding, the gains are noise of rounding itself.
    columns = ["mean", "sd", *lazy.columns[2:4], "ess_bulk"]
    np.testing.assert_allclose(lazy[columns], eager[columns], rtol=1e-9, atol=1e-9)


# Zarr 3 has no final word on strings of fixed length, in coordinates as ArviZ writes them too.
@pytest.mark.filterwarnings("ignore:The data type")
def test_zarr_round_trip(tmp_path):
    pytest.importorskip("zarr")
    data, scores = as_datatree(Banana(), draws=50)
    before = az_cv.summary(data, scores=scores, round_to="none")
    data.to_zarr(tmp_path / "draws.zarr", consolidated=False)
    with xr.open_datatree(tmp_path / "draws.zarr", engine="zarr", consolidated=False) as reloaded:
        after = az_cv.summary(reloaded, round_to="none", attach=False)
        assert reloaded["cv_summary"].attrs["az_cv_version"] == az_cv.__version__
    # Zarr stores variables by name, so rows may come back in another order.
    np.testing.assert_allclose(after.loc[before.index], before, rtol=1e-6, atol=1e-9)


def test_a_second_question_is_answered_at_once_and_the_same(monkeypatch):
    """Factorisations are what a first question pays for; one more question like it makes none."""
    data = az_cv.load_eight_schools().isel(draw=slice(None, 640))
    second = {"spread": lambda post: post["theta"].std("school")}
    clear_cache()
    fresh = az_cv.fit(data, second).estimates
    clear_cache()
    made, factorise = [], parts.factorise_dual

    def counted(gram, *arguments, **settings):
        made.append(len(gram))
        return factorise(gram, *arguments, **settings)

    for module in (parts, judging):
        monkeypatch.setattr(module, "factorise_dual", counted)
    az_cv.fit(data)
    first, made = made, []
    again = az_cv.fit(data, second).estimates
    assert 2560 in first
    assert not made
    xr.testing.assert_allclose(again, fresh, rtol=1e-10)
