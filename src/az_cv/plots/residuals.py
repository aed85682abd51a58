"""Out-of-fold residuals against fitted values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS
from az_cv.plots.backends import check_backend, panel_collection
from az_cv.plots.canvas import PLAIN_COLOUR, REDUCED_COLOUR, label_panel, panel_axes, panel_title
from az_cv.plots.rows import read_draws, scalar_rows, select

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arviz_base.labels import Labeller
    from arviz_plots import PlotCollection
    from matplotlib.axes import Axes

    from az_cv.labelled.integrands import Integrand
    from az_cv.plots.backends import Backend

PARTS = ["fitted", "residual"]
XLABEL = "fitted"
YLABEL = "residual, out of fold"
# Bokeh takes diameters, and Plotly the areas of matplotlib.
POINT_SIZE = {"bokeh": 3, "plotly": 9}


def residuals_data(
    data: Any,
    fn: Integrand = None,
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: Literal["like", "regex"] | None = None,
    coords: dict[str, Any] | None = None,
) -> xr.Dataset:
    """Return what :func:`plot_residuals` draws, for other plotting libraries.

    Parameters
    ----------
    data : InferenceData or DataTree
        Data to which :func:`az_cv.summary` attached its results.
    fn : callable or dict of callables, optional
        What was summarised. ``None``: the variables of the posterior.
    var_names, filter_vars, coords
        Select quantities, as in ArviZ.

    Returns
    -------
    Dataset
        Each quantity draw by draw, along the dimension ``part``: fitted, residual. Their sum is
        the draw.

    See Also
    --------
    plot_residuals : Draws it.

    Examples
    --------
    >>> import az_cv
    >>> data = az_cv.load_eight_schools().isel(draw=slice(100))
    >>> table = az_cv.summary(data, family="polynomial", var_names=["mu", "tau"])
    >>> parts = az_cv.plots.residuals_data(data)["mu"]
    >>> bool(parts.sel(part="residual").std() < parts.sel(part="fitted").std())
    True
    """
    plain, adjusted = (select(d, var_names, filter_vars, coords) for d in read_draws(data, fn))
    residual = adjusted - adjusted.mean(SAMPLE_DIMS)
    return xr.concat(
        [plain - residual, residual], dim=xr.DataArray(PARTS, dims="part", name="part")
    )


def plot_residuals(
    data: Any,
    fn: Integrand = None,
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: Literal["like", "regex"] | None = None,
    coords: dict[str, Any] | None = None,
    labeller: Labeller | None = None,
    ax: Axes | np.ndarray | None = None,
    figsize: tuple[float, float] | None = None,
    backend: Backend = "matplotlib",
) -> np.ndarray | PlotCollection:
    """Draw what the control variate leaves of each draw against what it explains.

    Each point is a draw, predicted by a fit that has not seen it. Points on the horizontal line are
    explained in full. Bends say that a richer family would help, far-off points that few draws
    carry the error.

    Parameters
    ----------
    data : InferenceData or DataTree
        Data to which :func:`az_cv.summary` attached its results.
    fn : callable or dict of callables, optional
        What was summarised. ``None``: the variables of the posterior.
    var_names, filter_vars, coords
        Select quantities, as in ArviZ.
    labeller : arviz_base.labels.Labeller, optional
    ax : matplotlib Axes or array of them, optional
        One for each quantity.
    figsize : (float, float), optional
        In inches, for a new figure.
    backend : {"matplotlib", "bokeh", "plotly"}
        As in :func:`plot_forest`.

    Returns
    -------
    array of matplotlib Axes or arviz_plots.PlotCollection

    See Also
    --------
    residuals_data : What the figure shows, as a Dataset.
    plot_vrf : Gains as bars.
    az_cv.summary : Attaches what is drawn.

    Examples
    --------
    >>> import az_cv
    >>> data = az_cv.load_eight_schools().isel(draw=slice(100))
    >>> table = az_cv.summary(data, family="polynomial", var_names=["mu", "tau"])
    >>> len(az_cv.plots.plot_residuals(data))
    2
    """
    check_backend(backend, ax)
    parts = residuals_data(data, fn, var_names=var_names, filter_vars=filter_vars, coords=coords)
    rows = []
    for label, values in scalar_rows(parts, labeller, keep=("part", *SAMPLE_DIMS)):
        fitted, residual = (values.sel(part=part).values.ravel() for part in PARTS)
        rows.append((label, fitted, residual))
    if backend != "matplotlib":
        return _draw_panels(parts, rows, backend, figsize)
    axes = panel_axes(ax, figsize, len(rows))
    for panel, (label, fitted, residual) in zip(axes, rows):
        panel.plot(
            fitted,
            residual,
            linestyle="none",
            marker=".",
            markersize=4,
            alpha=0.5,
            color=REDUCED_COLOUR,
            markeredgewidth=0,
            rasterized=len(fitted) > 10_000,
        )
        panel.axhline(0, color=PLAIN_COLOUR, linewidth=1, zorder=0)
        panel_title(panel, label, _spread(fitted, residual))
        if _nothing_was_fitted(fitted, residual):
            # Without this the axis would show rounding errors.
            panel.set_xlim(fitted.mean() - np.ptp(residual), fitted.mean() + np.ptp(residual))
        label_panel(panel, XLABEL, YLABEL)
    return axes


def _spread(fitted: np.ndarray, residual: np.ndarray) -> str:
    return f"sd {np.std(fitted + residual):.2g} → {np.std(residual):.2g}"


def _nothing_was_fitted(fitted: np.ndarray, residual: np.ndarray) -> bool:
    return bool(np.ptp(fitted) < 1e-6 * np.ptp(residual))


def _draw_panels(
    parts: xr.Dataset,
    rows: list[tuple[str, np.ndarray, np.ndarray]],
    backend: str,
    figsize: tuple[float, float] | None,
) -> PlotCollection:
    """Draw the figure through an interface of arviz-plots."""
    labels = [label for label, _, _ in rows]
    notes = [_spread(fitted, residual) for _, fitted, residual in rows]
    collection, interface, plots = panel_collection(
        parts, backend, labels, notes, figsize, keep=("part", *SAMPLE_DIMS)
    )
    for plot, (_, fitted, residual) in zip(plots, rows):
        size = POINT_SIZE[backend]
        interface.scatter(fitted, residual, plot, color=REDUCED_COLOUR, alpha=0.5, size=size)
        interface.hline(0, plot, color=PLAIN_COLOUR, width=1)
        if _nothing_was_fitted(fitted, residual):
            reach = np.ptp(residual)
            interface.xlim((fitted.mean() - reach, fitted.mean() + reach), plot)
        interface.xlabel(XLABEL, plot)
        interface.ylabel(YLABEL, plot)
    return collection
