"""Both ArviZ generations: InferenceData (0.x) and DataTree (1.x)."""

import importlib.metadata

import numpy as np
import pytest
import xarray as xr

import az_cv
from az_cv.containers.idata import add_groups, as_idata, get_group, group_names

# What `test_generations_give_the_same_numbers` computes under Python 3.11 with ArviZ 0.23 and,
# equal to 15 digits, under Python 3.13 with ArviZ 1.3.
REFERENCE_MEAN, REFERENCE_MCSE = 4.411186597499859, 0.01992721256903907
LEGACY = importlib.metadata.version("arviz").startswith("0.")


@pytest.fixture
def data():
    """Eight schools in the container that the installed ArviZ hands out."""
    tree = az_cv.load_eight_schools().isel(draw=slice(150))
    if not LEGACY:
        return tree
    import arviz

    return arviz.InferenceData(
        posterior=tree["posterior"].to_dataset(), cv_scores=tree["cv_scores"].to_dataset()
    )


def read_netcdf(path):
    if LEGACY:
        import arviz

        return arviz.from_netcdf(path)
    return xr.open_datatree(path, engine="h5netcdf").load()


def test_groups_are_read_and_added(data):
    assert as_idata(data) is data
    assert set(group_names(data)) == {"posterior", "cv_scores"}
    assert isinstance(get_group(data, "posterior"), xr.Dataset)
    add_groups(data, {"extra": xr.Dataset({"a": 1.0})})
    assert float(get_group(data, "extra")["a"]) == 1.0
    with pytest.raises(KeyError, match="There is no group 'prior' in data"):
        get_group(data, "prior")


def test_summary_attaches_and_survives_a_file(data, tmp_path):
    table = az_cv.summary(data, var_names=["mu", "tau"], round_to="none")
    assert {"cv_scores", "cv_draws", "cv_summary"} <= set(group_names(data))
    data.to_netcdf(str(tmp_path / "draws.nc"))
    reloaded = read_netcdf(str(tmp_path / "draws.nc"))
    stored = get_group(reloaded, "cv_summary")
    assert float(stored["mu"].sel(summary="mean")) == table.loc["mu", "mean"]
    again = az_cv.summary(reloaded, var_names=["mu", "tau"], round_to="none", attach=False)
    np.testing.assert_allclose(again, table, rtol=1e-9)


def test_generations_give_the_same_numbers(data):
    table = az_cv.summary(
        data,
        var_names=["mu"],
        family=az_cv.Polynomial(2, degree_scale=1.0),
        solver=az_cv.Exact(ridge=1e-6),
        folds="chain",
        round_to="none",
    )
    assert table.loc["mu", "mean"] == pytest.approx(REFERENCE_MEAN, rel=1e-8)
    assert table.loc["mu", "mcse_mean"] == pytest.approx(REFERENCE_MCSE, rel=1e-6)


def test_arrays_and_datasets_are_converted():
    tree = as_idata({"a": np.zeros((2, 5))})
    assert get_group(tree, "posterior")["a"].shape == (2, 5)
    assert group_names(as_idata(xr.Dataset({"a": (("chain", "draw"), np.zeros((2, 5)))})))


@pytest.mark.parametrize("data", [[1, 2], None, {"a": 1.0}, np.zeros(3)])
def test_what_holds_no_draws_is_refused_with_what_does(data):
    with pytest.raises(ValueError, match=rf"this {type(data).__name__}\. Pass InferenceData"):
        as_idata(data)
