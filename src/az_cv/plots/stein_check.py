"""Stein identities that the scores should fulfil."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.check_scores import check_scores
from az_cv.engine.score_check import ScoreCheck
from az_cv.plots.canvas import ALERT_COLOUR, PLAIN_COLOUR, REDUCED_COLOUR, row_axes

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes

# Beyond four standard errors a z-score is no accident, even among hundreds of them.
LIMIT = 4.0
MAX_ROWS = 40
MARKERS = "osD^vP"


def plot_stein_check(
    data: Any,
    scores: xr.Dataset | None = None,
    *,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Axes:
    """Draw the z-scores of the Stein identities, parameter by parameter.

    If the gradients belong to the draws, the averages in question are zero within their Monte Carlo
    errors, and points scatter between the dashed lines. A wrong model or data set, a flipped sign,
    columns out of order, a missing Jacobian or unconverged chains put some far outside.

    Parameters
    ----------
    data : report, InferenceData or DataTree
        What :func:`az_cv.check_scores` returned, or its first argument.
    scores : Dataset, optional
        Second argument of :func:`az_cv.check_scores`.
    ax : matplotlib Axes, optional
    figsize : (float, float), optional
        In inches, for a new figure.

    Returns
    -------
    matplotlib Axes

    See Also
    --------
    az_cv.check_scores : The same as a table, with a verdict.

    Examples
    --------
    >>> import az_cv
    >>> az_cv.plots.plot_stein_check(az_cv.load_eight_schools()).get_title(loc="left")
    'Stein identities: pass'
    """
    report = data if isinstance(data, ScoreCheck) else check_scores(data, scores)
    table = _z_scores(report.table)
    worst = table.abs().max(axis=1)
    shown = table
    if len(table) > MAX_ROWS:
        shown = table.loc[worst.nlargest(MAX_ROWS).index]
    ax = row_axes(ax, figsize, [str(label) for label in shown.index])
    position = np.arange(len(shown))
    # Symmetric logarithmic scale: linear where all is well, and any disaster still fits.
    ax.set_xscale("symlog", linthresh=LIMIT, linscale=2.5)
    ax.axvspan(-2, 2, color=PLAIN_COLOUR, alpha=0.18, linewidth=0)
    for limit in (-LIMIT, LIMIT):
        ax.axvline(limit, color=ALERT_COLOUR, linestyle="--", linewidth=1)
    for name, marker in zip(shown.columns, MARKERS * len(shown.columns)):
        z = shown[name].to_numpy(float)
        colours = np.where(np.abs(z) > LIMIT, ALERT_COLOUR, REDUCED_COLOUR)
        ax.scatter(z, position, c=colours, marker=marker, s=22, label=str(name), zorder=3)
    reach = max(1.5 * LIMIT, 1.3 * float(np.nanmax(np.abs(shown.to_numpy(float)), initial=0.0)))
    ax.set_xlim(-reach, reach)
    ticks = [
        t for t in (-1e4, -1e3, -100, -10, -4, -2, 0, 2, 4, 10, 100, 1e3, 1e4) if abs(t) < reach
    ]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    left_out = f"; the {MAX_ROWS} worst of {len(table)}" if len(shown) < len(table) else ""
    ax.set_xlabel(f"z-score of the Stein identity (shaded: 2 standard errors{left_out})")
    if len(shown.columns) > 1:
        ax.legend(frameon=False, ncols=len(shown.columns), loc="lower right", bbox_to_anchor=(1, 1))
    ax.set_title(f"Stein identities: {report.verdict}", loc="left", fontsize="medium", wrap=True)
    return ax


def _z_scores(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of z-scores, under the names of what they judge."""
    named = {name: name.removeprefix("z_") for name in table.columns if name.startswith("z_")}
    return table[list(named)].rename(columns=named)
