"""Variance reduction factor of every quantity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from az_cv.display.digits import gain_text
from az_cv.plots.canvas import PLAIN_COLOUR, REDUCED_COLOUR, plain_log_ticks, row_axes
from az_cv.plots.forest import forest_data
from az_cv.plots.rows import ordered_rows, scalar_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arviz_base.labels import Labeller
    from matplotlib.axes import Axes


def plot_vrf(
    data: Any,
    *,
    statistic: Literal["mean", "sd"] = "mean",
    var_names: str | Sequence[str] | None = None,
    filter_vars: Literal["like", "regex"] | None = None,
    coords: dict[str, Any] | None = None,
    sort: Literal["gain"] | None = None,
    max_rows: int | None = None,
    labeller: Labeller | None = None,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Axes:
    """Draw the variance reduction factor of every quantity.

    The factor is plain MCSE² over new MCSE²: how many times as many draws the plain average would
    need for the same error.

    Parameters
    ----------
    data : ControlVariateResult, InferenceData or DataTree
        What :func:`az_cv.fit` returned, or data to which :func:`az_cv.summary` attached results.
    statistic : {"mean", "sd"}
        Show the factor of the mean, or that of the sd.
    var_names, filter_vars, coords
        Select quantities, as in ArviZ.
    sort : "gain", optional
        Draw the quantity with the largest gain first. ``None`` keeps the order of the table.
    max_rows : int, optional
        Draw no more rows than this; the axis says how many are not shown.
    labeller : arviz_base.labels.Labeller, optional
    ax : matplotlib Axes, optional
    figsize : (float, float), optional
        In inches, for a new figure.

    Returns
    -------
    matplotlib Axes

    See Also
    --------
    plot_forest : Means with their errors.
    forest_data : What the figure shows, as a Dataset.

    Examples
    --------
    >>> import az_cv
    >>> data = az_cv.load_eight_schools().isel(draw=slice(100))
    >>> result = az_cv.fit(data, family="polynomial", var_names=["mu", "tau"])
    >>> az_cv.plots.plot_vrf(result).get_xscale()
    'log'
    """
    if statistic not in ("mean", "sd"):
        raise ValueError(f"statistic is {statistic!r}. Choose from ['mean', 'sd'].")
    estimates = forest_data(data, var_names=var_names, filter_vars=filter_vars, coords=coords)
    rows, more = ordered_rows(scalar_rows(estimates, labeller), sort, max_rows, statistic)
    ax = row_axes(ax, figsize, [label for label, _ in rows])
    gains = np.array([float(values.sel(summary=f"vrf_{statistic}")) for _, values in rows])
    shown = np.where(np.isfinite(gains), gains, 1.0)
    position = np.arange(len(rows))
    colours = [REDUCED_COLOUR if gain > 1 else PLAIN_COLOUR for gain in shown]
    ax.set_xscale("log")
    ax.barh(position, shown - 1, left=1, height=0.62, color=colours)
    for row, (gain, end) in enumerate(zip(gains, shown)):
        ax.annotate(
            f"{gain_text(gain)}×",
            (end, row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
        )
    # Room for the numbers beyond the longest bar; at least one decade.
    ax.set_xlim(1, max(10.0, float(shown.max()) ** 1.18))
    plain_log_ticks(ax.xaxis)
    ax.axvline(1, color=PLAIN_COLOUR, linewidth=1)
    ax.set_xlabel(f"times as many draws a plain {statistic} would need (vrf_{statistic}){more}")
    return ax
