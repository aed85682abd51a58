import pickle
import re

import numpy as np
import pandas as pd
import pytest

import az_cv
from az_cv.display.cells import formatted, reading_order
from az_cv.display.table import SummaryTable, summary_table


@pytest.fixture
def schools():
    return az_cv.load_eight_schools().isel(draw=slice(None, 60))


def estimates(**columns):
    """Return a table as `summary` makes one, with these numbers instead of 1 and 0.1."""
    names = ("mean", "sd", "low", "high", "mcse_mean", "mcse_sd", "r_hat", "vrf_mean", "vrf_sd")
    values = {name: 0.1 if name.startswith("mcse") else 1.0 for name in names} | columns
    return pd.DataFrame({name: [values[name]] for name in names}, index=["mu"])


def shown(table, column):
    return formatted(table).loc["mu", column]


def test_trailing_zeros_are_kept():
    ends = {"low": np.array([0.05]), "high": np.array([0.0031])}
    table = summary_table(
        estimates(mean=6.29996, mcse_mean=0.0102, low=-6.0003, high=9.00001), ends, None, "full"
    )
    assert shown(table, "mean") == "6.300"
    assert shown(table, "mcse_mean") == "0.010"
    assert (shown(table, "low"), shown(table, "high")) == ("-6.000", "9.0000")
    # Without the column of errors, too.
    assert shown(table[["mean"]], "mean") == "6.300"


def test_large_numbers_have_no_false_decimals():
    ends = {"low": np.array([900.0]), "high": np.array([9.0])}
    table = summary_table(
        estimates(mean=96012.3, mcse_mean=131.0, low=-123.0, high=4321.0), ends, None, "full"
    )
    assert [shown(table, name) for name in ("mean", "mcse_mean", "low")] == ["96010", "130", "-120"]
    assert shown(table, "high") == "4321.0"  # its error is 9.0
    assert "96010.0" not in str(table)


def test_the_decimals_that_were_asked_for_are_shown():
    ends = {"low": np.array([0.05]), "high": np.array([0.05])}
    table = summary_table(estimates(mean=6.2996, low=2.0), ends, 3, "full")
    assert (shown(table, "mean"), shown(table, "low")) == ("6.300", "2.000")


def test_numbers_computed_from_the_table_have_their_own_digits():
    ends = {"low": np.array([0.5]), "high": np.array([0.5])}
    table = summary_table(estimates(low=2.0), ends, None, "full")
    assert shown(table, "low") == "2.00"
    assert shown(table / 3, "low") == "0.666667"


def test_the_gain_stands_beside_the_error_it_explains(schools):
    table = az_cv.summary(schools, family="polynomial", var_names=["mu"])
    first = str(table).splitlines()[0].split()
    assert first[:6] == ["mean", "mcse_mean", "vrf_mean", "sd", "mcse_sd", "vrf_sd"]
    assert set(first) == set(table.columns)
    # The columns themselves are ArviZ's, in its order, as code that counts on them expects.
    assert list(table.columns[:2]) == ["mean", "sd"]
    assert list(table.columns[-2:]) == ["vrf_mean", "vrf_sd"]


def test_a_selection_is_shown_in_the_order_chosen():
    assert reading_order(["vrf_mean", "sd", "mean"]) == ["vrf_mean", "sd", "mean"]


def test_the_short_table_has_what_people_need(schools):
    short = az_cv.summary(schools, family="polynomial", var_names=["mu"], kind="stats")
    full = az_cv.summary(schools, family="polynomial", var_names=["mu"])
    assert list(short.columns[:6]) == ["mean", "mcse_mean", "vrf_mean", "sd", "mcse_sd", "vrf_sd"]
    assert list(short.columns[6:]) == [*full.columns[2:4], "r_hat"]
    pd.testing.assert_frame_equal(pd.DataFrame(short), pd.DataFrame(full)[list(short.columns)])
    assert {"ess_bulk", "ess_tail"} <= set(full.columns) - set(short.columns)
    with pytest.raises(ValueError, match=r"kind 'long' is unknown. Choose from \['full', 'stats'"):
        az_cv.summary(schools, kind="long")


def test_selections_are_summary_tables(schools):
    table = az_cv.summary(schools, family="polynomial", var_names=["mu", "tau"])
    for part in (
        table[["mean", "vrf_mean"]],
        table.loc[["mu"]],
        table.sort_values("vrf_mean"),
        table.head(1),
        pickle.loads(pickle.dumps(table)),
    ):
        assert isinstance(part, SummaryTable)
        assert "Control variates: " in str(part)
        assert "class='az-cv'" in part._repr_html_()


def test_the_footer_is_in_words(schools):
    table = az_cv.summary(schools, family="polynomial", var_names=["mu"])
    words = " ".join(str(table).splitlines()[2:])
    assert re.search(r"Control variates: .*polynomial of order \d", words)
    assert re.search(
        r"Errors are judged on draws left out of each fit, (one|\d+) at a time\.", words
    )
    assert "The gradients are those that were given; the sampler stored no log density" in words


def test_a_probability_has_no_interval(schools):
    table = az_cv.summary(
        schools,
        {"event": lambda post: post["mu"] > 4, "mu": lambda post: post["mu"]},
        family="polynomial",
    )
    ends = list(table.columns[2:4])
    assert table.loc["event", ends].isna().all()
    assert table.loc["mu", ends].notna().all()
    assert np.isfinite(table.loc["event", "mean"])
    assert formatted(table).loc["event", ends].tolist() == ["–", "–"]
    stored = schools["cv_summary"]["event"]
    assert np.isnan(stored.sel(summary=["lower", "upper"])).all()
