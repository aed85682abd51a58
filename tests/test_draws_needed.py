import numpy as np
import pytest

import az_cv
from az_cv.draws_needed import extrapolate
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


@pytest.mark.parametrize("power", [0.5, 0.8, 1.3])
def test_the_rate_of_a_power_law_is_found(power):
    counts = np.array([400, 100, 100, 100, 100, 200, 200])
    errors = 2.0 * counts[:, None] ** -power * np.ones(3)
    rate, needed = extrapolate(counts, errors, 2.0 * np.array([150.0, 200.0, 400.0]) ** -power)
    np.testing.assert_allclose(rate, power)
    np.testing.assert_allclose(needed, [150, 200, 400])


@pytest.mark.parametrize("power", [0.5, 1.3])
def test_beyond_the_pilot_run_three_quarters_of_the_rate_count(power):
    counts = np.array([400, 100, 200])
    errors = 2.0 * counts[:, None] ** -power * np.ones(3)
    half = 1.0 * 400.0**-power
    _, needed = extrapolate(counts, errors, np.full(3, half))
    np.testing.assert_allclose(needed, 400 * 2 ** (1 / (0.75 * power + 0.25 * 0.5)))


def test_errors_never_fall_slower_than_those_of_plain_averages():
    counts = np.array([400, 100, 200])
    rate, needed = extrapolate(counts, np.full((3, 1), 0.1), np.array([0.05]))
    assert rate[0] == 0.5
    assert needed[0] == pytest.approx(4 * 200)  # from the middle of the errors that were seen


def test_luck_of_the_whole_run_does_not_count_for_more_than_that_of_its_parts():
    counts = np.array([400, 200, 200, 100, 100, 100, 100])
    law = 2.0 / counts
    line = np.column_stack([np.ones(7), np.log(counts)])
    luck = np.array([0.5, -0.4, 0.1, 0.3, -0.2, 0.0, 0.2])
    luck -= line @ np.linalg.lstsq(line, luck, rcond=None)[0]
    _, lucky = extrapolate(counts, (law * np.exp(luck))[:, None], np.array([0.004]))
    assert abs(luck[0]) > 0.1
    assert lucky[0] == pytest.approx(400 * 1.25 ** (1 / 0.875))


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
