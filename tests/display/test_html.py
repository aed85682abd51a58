import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest

import az_cv
from az_cv.display.cells import formatted
from az_cv.display.html import BAR_WIDTH, MAX_ROWS, result_html, summary_html


@pytest.fixture
def table():
    frame = pd.DataFrame(
        {
            "mean": [4.398123, 1.5],
            "mcse_mean": [0.0017, 0.25],
            "ess_bulk": [4444, 300],
            "r_hat": [1.0, 1.2],
            "vrf_mean": [1000.0, 1.0],
        },
        index=["mu", "<b>tau</b>"],
    )
    frame.attrs = {"family": "imq kernel 100%", "folds": "runs", "warnings": ["x < 3"]}
    return frame


def cells(html):
    root = ET.fromstring(html)
    return [[("".join(cell.itertext())) for cell in row] for row in root.iter("tr")]


def test_rows_and_columns_are_those_of_the_table(table):
    head, first, second = cells(summary_html(table))
    assert head[1] == "mean"
    assert head[2].startswith("mcse_mean")
    assert first == ["mu", "4.3981", "0.0017", "4,444", "1.00", "1,000"]
    # Labels are text, whatever they contain.
    assert second == ["<b>tau</b>", "1.50", "0.25", "300", "1.20", "1.0"]


def test_bars_are_logarithmic_and_end_at_the_largest_gain(table):
    root = ET.fromstring(summary_html(table))
    bars = [span.get("style") for span in root.iter("span") if span.get("class") == "bar"]
    assert bars == [f"width:{BAR_WIDTH}px", "width:0px"]


def test_footer_names_family_and_warnings(table):
    footer = [("".join(p.itertext())) for p in ET.fromstring(summary_html(table)).iter("p")]
    assert footer == [
        "Control variates: imq kernel. Errors are judged on draws left out of each fit (runs).",
        "Warning: x < 3",
    ]


def test_the_first_column_stays_in_view(table):
    style = next(ET.fromstring(summary_html(table)).iter("style")).text
    assert "tbody th,.az-cv thead th:first-child{position:sticky;left:0" in style


def test_long_names_may_break_after_underscores_and_brackets(table):
    table.index = ["mu__a[<b>, 2]", "theta[A_and_B"]
    html = summary_html(table)
    assert "<th>mu__<wbr/>a[<wbr/>&lt;b&gt;, 2]</th>" in html
    assert "<th>theta[<wbr/>A_<wbr/>and_<wbr/>B</th>" in html


def test_names_of_up_to_twelve_letters_stay_in_one_line(table):
    table.index = ["sigma_obs[2]", "theta[<>, 2]"]
    html = summary_html(table)
    assert "<wbr/>" not in html
    assert "<th>mcse_mean<" in html
    assert "<th>theta[&lt;&gt;, 2]</th>" in html


def test_names_break_in_narrow_windows_alone(table):
    style = next(ET.fromstring(summary_html(table)).iter("style")).text
    everywhere, wide, narrow = style.split("@media")
    assert "thead th,.az-cv tbody th,.az-cv tbody td{white-space:nowrap}" in everywhere
    # Browsers break at such a place also where white space does not wrap.
    assert wide.startswith(" (min-width:641px){.az-cv wbr{display:none}}")
    assert narrow.startswith(" (max-width:640px)")
    assert "thead th,.az-cv tbody th{white-space:normal}" in narrow


def test_the_right_edge_fades_out_while_there_are_more_columns(table):
    root = ET.fromstring(summary_html(table))
    style = next(root.iter("style")).text
    assert ".sideways{animation:az-cv-more linear;animation-timeline:scroll(self inline)}" in style
    (box,) = (part for part in root.iter("div") if part.get("class") == "sideways")
    # The lines below the table do not scroll.
    assert [part.tag for part in box] == ["table"]


def test_html_and_text_show_the_same_cells(table):
    head, *rows = cells(summary_html(table))
    texts = formatted(table)
    assert [row[1:] for row in rows] == texts.to_numpy().tolist()
    assert all(shown.startswith(name) for shown, name in zip(head[1:], texts.columns))


def test_poor_convergence_stands_out(table):
    root = ET.fromstring(summary_html(table))
    alerts = [cell.text for cell in root.iter("td") if cell.get("class") == "alert"]
    assert alerts == ["1.20"]


def test_missing_and_infinite_values(table):
    table.loc["mu", ["mean", "vrf_mean"]] = np.nan
    table.loc["<b>tau</b>", "vrf_mean"] = np.inf
    first = cells(summary_html(table))[1]
    assert first[1] == first[5] == "–"


def test_long_tables_are_cut():
    frame = pd.DataFrame({"mean": np.zeros(100), "mcse_mean": np.ones(100)})
    rows = cells(summary_html(frame))
    assert len(rows) == MAX_ROWS + 1
    assert rows[-1][0] == "… 41 more rows"


def test_results_have_short_reprs():
    data = az_cv.load_eight_schools().isel(draw=slice(None, 60))
    result = az_cv.fit(data, family="polynomial")
    assert repr(result).startswith("ControlVariateResult: 10 quantities, 4 chains x 60 draws")
    assert len(repr(result).splitlines()) < 20
    html = result_html(result.estimates, result.settings, result.warnings)
    assert result._repr_html_() == html
    assert len(cells(html)) == 11
