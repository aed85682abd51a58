"""What is read from a posterior to choose hyper-parameters."""

import numpy as np
import pytest
import xarray as xr

import az_cv
from az_cv.labelled.stacking import power_of_two, sample_elements


@pytest.fixture
def posterior(rng):
    return xr.Dataset(
        {
            "a": (("chain", "draw"), rng.normal(size=(2, 50))),
            "b": (("draw", "row", "chain", "column"), rng.normal(size=(50, 3, 2, 4))),
            "b_log__": (("chain", "draw"), rng.normal(size=(2, 50))),
            "label": (("chain", "draw"), np.full((2, 50), "text")),
            "fixed": (("row",), np.arange(3.0)),
            "hit": (("chain", "draw"), rng.normal(size=(2, 50)) > 0),
        }
    )


def test_every_element_of_the_sampled_numbers_is_taken_when_they_are_few(posterior):
    found = sample_elements(posterior, 40)
    assert found.shape == (2, 50, 14)
    expected = posterior["b"].transpose("chain", "draw", "row", "column").values
    expected = expected.reshape(2, 50, 12)
    np.testing.assert_array_equal(found[..., 1:13] * power_of_two(expected), expected)
    np.testing.assert_array_equal(found[..., 13], posterior["hit"])


def test_many_elements_are_picked_evenly(posterior):
    found = sample_elements(posterior, 5)
    everything = sample_elements(posterior, 40)
    np.testing.assert_array_equal(found, everything[..., [0, 3, 6, 9, 13]])


def test_only_the_picked_elements_are_read(posterior):
    dask = pytest.importorskip("dask.array")
    read = []

    def block(values, block_info=None):
        read.append(block_info[0]["chunk-location"])
        return values

    lazy = dask.zeros((2, 50, 1000), chunks=(2, 50, 100)).map_blocks(block, dtype=float)
    sample_elements(xr.Dataset({"large": (("chain", "draw", "k"), lazy)}), 3)
    assert {place[2] for place in read if len(place) == 3} == {0, 4, 9}


def test_variables_that_are_not_numbers_do_not_stand_in_the_way_of_a_function_of_others(posterior):
    x = np.stack([posterior["a"].values, posterior["b"].values[:, 0, :, 0].T], axis=2)
    scores = az_cv.scores_dataset(x, -x)
    result = az_cv.fit(posterior, lambda p: p["a"] ** 2, scores=scores, progressbar=False)
    assert float(result.estimates["fn"].sel(summary="mean")) == pytest.approx(1, abs=1e-6)


def test_a_posterior_without_numbers_leaves_the_choice_to_the_coordinates(posterior):
    x = np.stack([posterior["a"].values, posterior["b"].values[:, 0, :, 0].T], axis=2)
    fixed = posterior[["label"]].assign(count=(("chain", "draw"), np.ones((2, 50))))
    result = az_cv.fit(
        fixed,
        lambda p: xr.DataArray((x[..., 0] - 1) ** 3, dims=("chain", "draw")),
        scores=az_cv.scores_dataset(x, -x),
        progressbar=False,
    )
    assert float(result.estimates["fn"].sel(summary="mean")) == pytest.approx(-4, abs=1e-6)
