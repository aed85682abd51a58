"""Summaries and results as HTML, for notebooks and files.

The colours come from the page: text and lines use ``currentColor`` and everything else is
translucent, so that the same markup is legible on light and on dark backgrounds. The first column
stays in view while the others scroll under it; it takes the background that JupyterLab, VS Code,
Furo or the PyData theme name in a variable, and elsewhere blurs what is below. The right edge fades
out while there are more columns to the right, in browsers that know timelines of scrolling.
"""

from __future__ import annotations

import math
import re
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr
from arviz_base import xarray_var_iter

from az_cv.containers.labels import scalar_labels
from az_cv.display.cells import GAIN_PREFIX, formatted, reading_order
from az_cv.display.footer import footer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_ROWS = 60
BAR_WIDTH = 48  # pixels at the largest gain of the table
WHOLE_NAME = 12  # letters of a name that stays in one line, also in a narrow window
STYLE = """
.az-cv{font-size:13px;line-height:1.4;
--page:var(--az-cv-page,var(--jp-layout-color0,var(--vscode-editor-background,
var(--color-background-primary,var(--pst-color-background,transparent)))))}
.az-cv table{border-collapse:separate;border-spacing:0;border:0;margin:0;display:table;
font-size:inherit;font-variant-numeric:tabular-nums}
.az-cv .sideways{overflow-x:auto}
@supports (animation-timeline:scroll()){
@keyframes az-cv-more{0%,97%{-webkit-mask-image:linear-gradient(to left,transparent,#000 2rem);
mask-image:linear-gradient(to left,transparent,#000 2rem)}
100%{-webkit-mask-image:none;mask-image:none}}
.az-cv .sideways{animation:az-cv-more linear;animation-timeline:scroll(self inline)}}
.az-cv th,.az-cv td{padding:3px 9px;text-align:right;border:0;background:none;color:inherit}
.az-cv thead th,.az-cv tbody th,.az-cv tbody td{white-space:nowrap}
@media (min-width:641px){.az-cv wbr{display:none}}
.az-cv thead th{border-bottom:1px solid currentColor;font-weight:600;vertical-align:bottom}
.az-cv tbody th,.az-cv thead th:first-child{position:sticky;left:0;z-index:1;text-align:left;
background-color:var(--page);backdrop-filter:blur(9px)}
.az-cv tbody th{font-weight:500}
.az-cv tbody tr:nth-child(even)>*{background-image:linear-gradient(rgba(127,127,127,.1),
rgba(127,127,127,.1))}
.az-cv tbody tr:hover>*{background-image:linear-gradient(rgba(46,134,222,.16),
rgba(46,134,222,.16))}
.az-cv .unit{display:block;font-weight:400;font-size:11px;opacity:.7}
.az-cv .minor{opacity:.68}
.az-cv .gain{display:flex;align-items:center;justify-content:flex-end;gap:7px;font-weight:600}
.az-cv .track{display:inline-block;height:9px;border-radius:2px;background:rgba(127,127,127,.2)}
.az-cv .bar{display:block;height:9px;border-radius:2px;background:#2e86de}
.az-cv .alert{color:#e8590c;font-weight:600;opacity:1}
.az-cv p{margin:6px 9px 0;font-size:12px;opacity:.85;max-width:60em}
@media (max-width:640px){.az-cv th,.az-cv td{padding:3px 5px}.az-cv .track{display:none}
.az-cv .unit{display:none}
.az-cv thead th,.az-cv tbody th{white-space:normal}
.az-cv tbody th{max-width:9em;overflow-wrap:break-word}}
"""
DOCUMENT = """\
<!doctype html><html lang="en"><!-- az_cv table --><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>Posterior summary</title>
<style>
:root{{color-scheme:light dark;--az-cv-page:#ffffff}}
@media (prefers-color-scheme:dark){{:root{{--az-cv-page:#131416}}body{{color:#e6e6e6}}}}
body{{background:var(--az-cv-page);font-family:Helvetica,Arial,sans-serif;margin:12px}}
</style></head>
<body>{table}</body></html>
"""
HINTS = {
    "mcse_mean": "error of mean",
    "mcse_sd": "error of sd",
    "ess_bulk": "plain draws",
    "ess_tail": "plain draws",
    "r_hat": "plain draws",
    "vrf_mean": "× as many draws",
    "vrf_sd": "× as many draws",
}
DIAGNOSTICS = ("ess_bulk", "ess_tail", "r_hat")
# Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), doi:10.1214/20-BA1221.
R_HAT_LIMIT = 1.01


def summary_html(table: pd.DataFrame) -> str:
    """Render a summary as an HTML table with the gains as bars.

    Bars are logarithmic and share one scale: the longest is the largest gain of the table.

    Parameters
    ----------
    table : DataFrame
        As :func:`az_cv.summary` returns it, with the settings and ``warnings`` in ``attrs``.

    Returns
    -------
    str
        A fragment with its own style, legible on light and dark pages.

    See Also
    --------
    az_cv.summary : Makes the table.

    Examples
    --------
    >>> import az_cv
    >>> from az_cv.display.html import summary_html
    >>> data = az_cv.load_eight_schools().isel(draw=slice(100))
    >>> html = summary_html(az_cv.summary(data, family="polynomial", var_names=["mu"]))
    >>> "× as many draws" in html and "class='bar'" in html
    True
    """
    gains = [str(name) for name in table.columns if str(name).startswith(GAIN_PREFIX)]
    scale = _log_scale(table[gains]) if gains else 1.0
    shown = table if len(table) <= MAX_ROWS else table.iloc[: MAX_ROWS - 1]
    texts = formatted(shown)
    head = "".join(f"<th>{_heading(name)}</th>" for name in texts.columns)
    body = "".join(
        f"<tr><th>{_breakable(_row_name(label))}</th>"
        + "".join(
            _cell(name, value, text, scale) for name, value, text in zip(texts.columns, row, words)
        )
        + "</tr>"
        for label, row, words in zip(
            shown.index,
            shown[reading_order(list(shown.columns))].itertuples(index=False, name=None),
            texts.itertuples(index=False, name=None),
        )
    )
    if len(shown) < len(table):
        body += (
            f"<tr><th class='minor'>… {len(table) - len(shown)} more rows</th>"
            f"<td colspan='{len(table.columns)}'></td></tr>"
        )
    return (
        f"<div class='az-cv'><style>{STYLE}</style><div class='sideways'><table>"
        f"<thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f"{_notes(table.attrs)}</div>"
    )


def _row_name(label: Any) -> str:
    """Return the label of a row; that of a pair is a tuple."""
    return ", ".join(map(str, label)) if isinstance(label, tuple) else str(label)


def _breakable(name: str) -> str:
    """Return a name that may break after underscores and brackets, if it is long."""
    if len(name) <= WHOLE_NAME:
        return escape(name)
    return re.sub(r"([_\[])(?=[^_\[])", r"\1<wbr/>", escape(name))


def summary_document(table: pd.DataFrame) -> str:
    """Render a summary as an HTML page of its own, light or dark as the reader's system is.

    Examples
    --------
    >>> page = summary_document(pd.DataFrame({"mean": [1.5]}, index=["mu"]))
    >>> page.startswith("<!doctype html>"), page.count("<table>")
    (True, 1)
    """
    return DOCUMENT.format(table=summary_html(table))


def result_html(estimates: xr.Dataset, settings: Mapping[str, str], notes: Sequence[str]) -> str:
    """Render a result: its estimates with their errors and gains, settings and warnings.

    Examples
    --------
    >>> import az_cv
    >>> data = az_cv.load_eight_schools().isel(draw=slice(100))
    >>> result = az_cv.fit(data, family="polynomial")
    >>> result_html(result.estimates, result.settings, result.warnings).count("<tr>")
    11
    """
    table = estimates_table(estimates)
    table.attrs.update(settings)
    table.attrs["warnings"] = list(notes)
    return summary_html(table)


def estimates_table(estimates: xr.Dataset) -> pd.DataFrame:
    """Return estimates as a table, one row for each scalar quantity."""
    columns = [str(name) for name in estimates["summary"].values]
    rows = [np.asarray(values) for *_, values in xarray_var_iter(estimates, skip_dims={"summary"})]
    labels = scalar_labels(estimates, skip_dims=("summary",))
    table = pd.DataFrame(rows, index=labels, columns=columns)
    order = ("mean", "mcse_mean", "vrf_mean", "sd", "mcse_sd", "vrf_sd")
    return table[[name for name in order if name in columns]]


def _heading(name: str) -> str:
    hint = HINTS.get(name)
    return _breakable(name) + (f"<span class='unit'>{hint}</span>" if hint else "")


def _cell(name: str, value: Any, text: str, scale: float) -> str:
    if pd.isna(value):
        return f"<td class='minor'>{text}</td>"
    if name.startswith(GAIN_PREFIX):
        share = min(max(math.log10(max(float(value), 1.0)) / scale, 0.0), 1.0)
        bar = f"<span class='bar' style='width:{round(share * BAR_WIDTH)}px'></span>"
        return (
            f"<td><span class='gain'>{text}"
            f"<span class='track' style='width:{BAR_WIDTH}px'>{bar}</span></span></td>"
        )
    if name in DIAGNOSTICS:
        bad = name == "r_hat" and float(value) > R_HAT_LIMIT
        return f"<td class='{'alert' if bad else 'minor'}'>{text}</td>"
    return f"<td>{escape(text)}</td>"


def _log_scale(gains: pd.DataFrame) -> float:
    values = gains.to_numpy(dtype=float)
    largest = float(np.nanmax(values, initial=1.0))
    # A table without a gain worth the name should not show long bars.
    return max(math.log10(largest), 1.0) if np.isfinite(largest) else 16.0


def _notes(attrs: Mapping[Any, Any]) -> str:
    lines = [f"<p>{escape(line)}</p>" for line in footer(attrs)]
    lines += [
        f"<p><span class='alert'>Warning:</span> {escape(str(warning))}</p>"
        for warning in attrs.get("warnings", [])
    ]
    return "".join(lines)
