import sys

import numpy as np
import pytest
import xarray as xr

import az_cv
from az_cv.draws_needed import extrapolate
from az_cv.labelled.pipeline import fit_integrands
from az_cv.testing import Gaussian, as_datatree


@pytest.fixture(scope="module")
def pilot():
    return az_cv.load_eight_schools().isel(draw=slice(None, 100))


def test_plain_averages_need_four_times_the_draws_for_half_the_error(pilot):
    table = az_cv.draws_needed(pilot, var_names=["mu"], mcse=0.1, family="polynomial")
    plain = float(
        az_cv.fit(pilot, var_names=["mu"], family="polynomial")
        .estimates["mu"]
        .sel(summary="plain_mcse_mean")
    )
    assert table.loc["mu", "plain_draws"] == np.ceil(400 * (plain / 0.1) ** 2)
    assert table.loc["mu", "draws"] < table.loc["mu", "plain_draws"]
    assert table.attrs["draws"] == "4 x 100"


COUNTS = np.array([400, 200, 200, 100, 100, 100, 100])


def power_law(power, columns=1):
    return 2.0 * COUNTS[:, None] ** -power * np.ones(columns)


@pytest.mark.parametrize("power", [0.5, 0.8, 1.5])
def test_the_rate_lies_between_the_measured_one_and_the_usual_one(power):
    rate, _ = extrapolate(COUNTS, power_law(power, 3), np.full(3, 0.1))
    np.testing.assert_allclose(rate, 0.6 * power + 0.4 * 1.25)


def test_what_falls_at_the_usual_rate_is_found_within_the_pilot_run_and_beyond():
    wanted = np.array([150.0, 400.0, 1600.0])
    _, needed = extrapolate(COUNTS, power_law(1.25, 3), 2.0 * wanted**-1.25)
    np.testing.assert_allclose(needed, wanted)


def test_beyond_two_thousand_draws_errors_fall_more_slowly():
    _, needed = extrapolate(COUNTS, power_law(1.25), 2.0 * np.array([4000.0]) ** -1.25)
    np.testing.assert_allclose(needed, 2000 * 2 ** (1 / 0.6))


def test_errors_never_fall_slower_than_those_of_plain_averages():
    rate, needed = extrapolate(COUNTS, power_law(-1.0), np.array([0.1]))
    assert rate[0] == 0.5
    before = extrapolate(COUNTS, power_law(-1.0), np.array([1.0]))[1]
    longer = extrapolate(COUNTS, power_law(-1.0), np.array([0.05]))[1]
    assert needed[0] > max(2000, before[0])
    assert longer[0] == pytest.approx(4 * needed[0])


def test_luck_of_the_whole_run_counts_by_two_fifths():
    line = np.column_stack([np.ones(7), np.log(COUNTS)])
    luck = np.array([0.5, -0.4, 0.1, 0.3, -0.2, 0.0, 0.2])
    luck -= line @ np.linalg.lstsq(line, luck, rcond=None)[0]
    asked = np.array([2.0 * 800**-1.25])
    _, lucky = extrapolate(COUNTS, power_law(1.25) * np.exp(luck)[:, None], asked)
    assert abs(luck[0]) > 0.1
    assert lucky[0] == pytest.approx(800 * np.exp(0.4 * luck[0] / 1.25))


def test_errors_that_are_rounding_need_the_fewest_draws_that_were_tried():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, 120, 2))
    posterior = xr.Dataset({"x": (("chain", "draw", "k"), x + 1e-9)})
    scores = az_cv.scores_dataset(x, -x)
    table = az_cv.draws_needed(posterior, scores=scores, mcse=1e-18, family="polynomial")
    assert (table["mcse_mean"] < 1e-12).all()
    assert (table["draws"] == 120).all()


def test_short_and_long_runs_are_not_told_apart_by_how_their_errors_are_judged(monkeypatch):
    seen = []

    def fitted(prepared, stacked):
        seen.append((prepared.engine.shape[1], prepared.engine.settings.errors.judged_draws))
        return fit_integrands(prepared, stacked)

    monkeypatch.setattr(sys.modules["az_cv.draws_needed"], "fit_integrands", fitted)
    pilot = az_cv.load_eight_schools().isel(draw=slice(None, 100))
    table = az_cv.draws_needed(pilot, var_names=["mu"], mcse=0.1, family="polynomial")
    assert [draws for draws, _ in seen] == [100, 100, 50, 50, 25, 25, 25, 25]
    assert [judged > 0 for _, judged in seen] == [True, *[False] * 7]
    shown = az_cv.fit(pilot, var_names=["mu"], family="polynomial").estimates["mu"]
    assert table.loc["mu", "mcse_mean"] == float(shown.sel(summary="mcse_mean"))


def test_exact_means_need_the_fewest_draws_that_were_tried():
    data, scores = as_datatree(Gaussian(np.eye(2)), draws=100)
    posterior = data["posterior"].to_dataset()
    posterior["constant"] = 0 * posterior["x0"] + 2
    table = az_cv.draws_needed(
        posterior, scores=scores, var_names=["x0", "constant"], mcse=1e-6, family="polynomial"
    )
    assert table["draws"].tolist() == [100, 100]
    assert np.isnan(table.loc["constant", "rate"])
    assert table.loc["x0", "plain_draws"] > 1e10


def test_each_row_may_have_an_error_of_its_own(pilot):
    both = az_cv.draws_needed(
        pilot, var_names=["mu", "tau"], mcse={"mu": 0.1, "tau": 0.2}, family="polynomial"
    )
    one = az_cv.draws_needed(pilot, var_names=["mu", "tau"], mcse=0.1, family="polynomial")
    assert both.loc["mu"].equals(one.loc["mu"])
    assert both.loc["tau", "plain_draws"] == pytest.approx(one.loc["tau", "plain_draws"] / 4, abs=1)


@pytest.mark.parametrize(
    ("mcse", "message"),
    [
        (0.0, "mcse must be a positive number"),
        (float("nan"), "mcse must be a positive number"),
        ({"mu": 0.1}, "mcse has no error for tau"),
    ],
)
def test_errors_that_cannot_be_reached_are_refused(pilot, mcse, message):
    with pytest.raises(ValueError, match=message):
        az_cv.draws_needed(pilot, var_names=["mu", "tau"], mcse=mcse, family="polynomial")


def test_short_pilot_runs_are_refused(pilot):
    with pytest.raises(ValueError, match=r"have 60 draws; .* needs 100 at least"):
        az_cv.draws_needed(pilot.isel(draw=slice(60)), mcse=0.1)
