"""What `structure` says of a model, in words and in a figure."""

import numpy as np
import pytest
import xarray as xr

import az_cv
from az_cv.plots import plot_structure


@pytest.fixture(scope="module")
def schools():
    return az_cv.structure(az_cv.load_eight_schools())


def test_the_scale_of_eight_schools_governs_them(schools):
    assert schools.top == ["tau_log__"]
    assert schools.influence.index[0] == "tau_log__"
    assert len(schools.governed("tau_log__")) >= 6
    assert str(schools).startswith("Global: tau_log__.\ntau_log__ governs")


def test_halves_of_the_draws_say_the_same():
    data = az_cv.load_eight_schools()
    for half in (data.isel(draw=slice(0, None, 2)), data.isel(chain=[0, 1])):
        assert az_cv.structure(half).top == ["tau_log__"]


def test_nothing_found_nothing_claimed(rng):
    x = rng.normal(size=(2, 300, 6))
    posterior = xr.Dataset({"x": (("chain", "draw", "k"), x)})
    found = az_cv.structure(posterior, scores=az_cv.scores_dataset(x, -x))
    assert found.top == []
    assert "No parameter stands out among 6" in str(found)


def test_the_figure_shows_what_was_found(schools):
    ax = plot_structure(schools, rows=4)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == list(schools.influence.index[:4])
    widths = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(widths, np.maximum(schools.influence.iloc[:4], 0))
    assert ax.patches[0].get_facecolor() != ax.patches[1].get_facecolor()
    with pytest.raises(ValueError, match="rows must be at least 1"):
        plot_structure(schools, rows=0)
