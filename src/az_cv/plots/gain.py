"""Variance reduction factor of every quantity."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from az_cv.display.digits import gain_text
from az_cv.plots.backends import check_backend, row_collection, write_beside
from az_cv.plots.canvas import PLAIN_COLOUR, REDUCED_COLOUR, label_rows, plain_log_ticks, row_axes
from az_cv.plots.forest import forest_data
from az_cv.plots.marks import draw_bars, draw_points, log_ticks
from az_cv.plots.rows import ordered_rows, scalar_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from arviz_base.labels import Labeller
    from arviz_plots import PlotCollection
    from matplotlib.axes import Axes

    from az_cv.plots.backends import Backend


def vrf_data(
    data: Any,
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: Literal["like", "regex"] | None = None,
    coords: dict[str, Any] | None = None,
) -> xr.Dataset:
    """Return what :func:`plot_vrf` draws, for other plotting libraries.

    Parameters
    ----------
    data : ControlVariateResult, InferenceData or DataTree
        What :func:`az_cv.fit` returned, or data to which :func:`az_cv.summary` attached results.
    var_names, filter_vars, coords
        Select quantities, as in ArviZ.

    Returns
    -------
    Dataset
        Each quantity along the dimension ``summary``: vrf_mean, vrf_sd.

    See Also
    --------
    plot_vrf : Draws it.
    forest_data : The means and their errors too.

    Examples
    --------
    >>> import az_cv
    >>> data = az_cv.load_eight_schools().isel(draw=slice(100))
    >>> result = az_cv.fit(data, family="polynomial", var_names=["mu"])
    >>> bool(az_cv.plots.vrf_data(result)["mu"].sel(summary="vrf_mean") > 1)
    True
    """
    estimates = forest_data(data, var_names=var_names, filter_vars=filter_vars, coords=coords)
    return estimates.sel(summary=["vrf_mean", "vrf_sd"])


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
    backend: Backend = "matplotlib",
) -> Axes | PlotCollection:
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
    backend : {"matplotlib", "bokeh", "plotly"}
        As in :func:`plot_forest`.

    Returns
    -------
    matplotlib Axes or arviz_plots.PlotCollection

    See Also
    --------
    plot_forest : Means with their errors.
    vrf_data : What the figure shows, as a Dataset.

    Examples
    --------
    >>> import az_cv
    >>> data = az_cv.load_eight_schools().isel(draw=slice(100))
    >>> result = az_cv.fit(data, family="polynomial", var_names=["mu", "tau"])
    >>> az_cv.plots.plot_vrf(result).get_xscale()
    'log'
    """
    check_backend(backend, ax)
    if statistic not in ("mean", "sd"):
        raise ValueError(f"statistic is {statistic!r}. Choose from ['mean', 'sd'].")
    gains = vrf_data(data, var_names=var_names, filter_vars=filter_vars, coords=coords)
    rows, more = ordered_rows(scalar_rows(gains, labeller), sort, max_rows, statistic)
    labels = [label for label, _ in rows]
    found = np.array([float(values.sel(summary=f"vrf_{statistic}")) for _, values in rows])
    texts = [f"{gain_text(gain)}×" for gain in found]
    # Where no gain is known there is no bar.
    shown = np.where(np.isfinite(found), found, 1.0)
    xlabel = f"times as many draws a plain {statistic} would need (vrf_{statistic}){more}"
    if backend != "matplotlib":
        collection, interface, plot = row_collection(gains, backend, labels, texts, figsize)
        _draw_rows(backend, interface, plot, labels, shown, texts)
        interface.xlabel(xlabel, plot)
        return collection
    ax = row_axes(ax, figsize, labels)
    position = np.arange(len(rows))
    colours = [REDUCED_COLOUR if gain > 1 else PLAIN_COLOUR for gain in shown]
    ax.set_xscale("log")
    ax.barh(position, shown - 1, left=1, height=0.62, color=colours)
    for row, (text, end) in enumerate(zip(texts, shown)):
        ax.annotate(text, (end, row), xytext=(4, 0), textcoords="offset points", va="center")
    # Room for the numbers beyond the longest bar; at least one decade.
    ax.set_xlim(1, max(10.0, float(shown.max()) ** 1.18))
    plain_log_ticks(ax.xaxis)
    ax.axvline(1, color=PLAIN_COLOUR, linewidth=1)
    label_rows(ax, xlabel)
    return ax


def _draw_rows(
    backend: str, interface: Any, plot: Any, labels: list[str], gains: np.ndarray, texts: list[str]
) -> None:
    """Draw the bars through an interface of arviz-plots, on a scale of log10."""
    ends, position = np.log10(gains), np.arange(len(gains))
    high = max(10.0, float(gains.max()))
    draw_bars(backend, interface, plot, 0 * ends, ends, position, REDUCED_COLOUR, 16)
    notes = [f"{label}: {text}" for label, text in zip(labels, texts)]
    draw_points(backend, interface, plot, ends, position, notes, REDUCED_COLOUR, alpha=0.0)
    write_beside(backend, interface, plot, texts, (0.0, math.log10(high)), ends)
    interface.vline(0, plot, color=PLAIN_COLOUR, width=1)
    interface.xticks(*log_ticks(1.0, high), plot)
