"""Figures for narrow pages: phones, and columns of a paper."""

import dataclasses
import itertools

import matplotlib
import pytest

import az_cv

matplotlib.use("Agg")
import matplotlib.pyplot as plt


@pytest.fixture(scope="module")
def schools():
    data = az_cv.load_eight_schools().isel(draw=slice(None, 60))
    az_cv.summary(data, family="polynomial")
    return data


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def narrow():
    with matplotlib.rc_context({"figure.figsize": (4.6, 3.4)}):
        yield


def sticks_out(figure):
    """Return the inches by which something is beyond the left or right edge."""
    figure.canvas.draw()
    box = figure.get_tightbbox()
    return max(-box.x0, box.x1 - figure.get_size_inches()[0])


@pytest.mark.parametrize(
    "draw",
    [
        az_cv.plots.plot_forest,
        az_cv.plots.plot_vrf,
        az_cv.plots.plot_stein_check,
        lambda data: az_cv.plots.plot_structure(az_cv.structure(data)),
        lambda data: az_cv.plots.plot_residuals(data, var_names=["mu", "tau"])[0],
    ],
)
def test_figures_keep_to_a_narrow_page(draw, schools, narrow):
    figure = draw(schools).figure
    assert figure.get_size_inches()[0] == 4.6
    assert sticks_out(figure) < 0.02


def test_panels_stand_below_each_other_in_a_narrow_figure(schools):
    options = {"var_names": ["mu", "tau"]}
    wide, beside = az_cv.plots.plot_residuals(schools, **options)
    assert wide.get_subplotspec().rowspan == beside.get_subplotspec().rowspan
    first, second = az_cv.plots.plot_residuals(schools, figsize=(4.6, 6.0), **options)
    assert first.get_subplotspec().colspan == second.get_subplotspec().colspan


def test_numbers_of_large_gains_stand_apart_in_a_narrow_figure(schools, narrow):
    result = az_cv.fit(schools, family="polynomial", var_names=["mu"])
    gains = result.estimates["mu"].copy()
    gains.loc[{"summary": "vrf_mean"}] = 120_000.0
    ax = az_cv.plots.plot_vrf(dataclasses.replace(result, estimates=gains.to_dataset(name="mu")))
    ax.figure.canvas.draw()
    low, high = ax.get_xlim()
    boxes = [
        label.get_window_extent()
        for label, place in zip(ax.get_xticklabels(), ax.get_xticks())
        if low <= place <= high
    ]
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))
