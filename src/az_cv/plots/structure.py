"""Which parameters govern others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from az_cv.plots.backends import check_backend, row_collection
from az_cv.plots.canvas import PLAIN_COLOUR, REDUCED_COLOUR, label_rows, row_axes
from az_cv.plots.marks import add_legend, draw_bars, draw_points
from az_cv.sources.schema import PARAMETER

if TYPE_CHECKING:
    from arviz_plots import PlotCollection
    from matplotlib.axes import Axes

    from az_cv.plots.backends import Backend
    from az_cv.structure import Structure

XLABEL = "influence: shares of the other scores that it explains, summed"


def structure_data(structure: Structure, *, rows: int | None = None) -> xr.Dataset:
    """Return what :func:`plot_structure` draws, for other plotting libraries.

    Parameters
    ----------
    structure : Structure
        As from :func:`az_cv.structure`.
    rows : int, optional
        How many parameters to return. ``None``: all of them.

    Returns
    -------
    Dataset
        ``influence`` and ``is_global`` along ``unconstrained_parameter``, the largest influence
        first.

    See Also
    --------
    plot_structure : Draws it.

    Examples
    --------
    >>> import az_cv
    >>> found = az_cv.structure(az_cv.load_eight_schools())
    >>> az_cv.plots.structure_data(found, rows=2)["is_global"].to_series()
    unconstrained_parameter
    tau_log__         True
    theta_tilde_0    False
    Name: is_global, dtype: bool
    """
    if rows is not None and rows < 1:
        raise ValueError(f"rows must be at least 1; it is {rows}.")
    shown = structure.influence.iloc[:rows]
    names = [str(name) for name in shown.index]
    is_global = np.array([name in structure.top for name in names], dtype=bool)
    return xr.Dataset(
        {"influence": (PARAMETER, shown.to_numpy(float)), "is_global": (PARAMETER, is_global)},
        coords={PARAMETER: names},
    )


def plot_structure(
    structure: Structure,
    *,
    rows: int = 15,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    backend: Backend = "matplotlib",
) -> Axes | PlotCollection:
    """Draw the influence of the parameters that have most of it; global ones stand out in blue.

    Parameters
    ----------
    structure : Structure
        As from :func:`az_cv.structure`.
    rows : int
        How many parameters to show.
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
    structure_data : What the figure shows, as a Dataset.
    az_cv.structure : Finds what is drawn.
    az_cv.HierarchicalKernel : Uses it.

    Examples
    --------
    >>> import az_cv
    >>> found = az_cv.structure(az_cv.load_eight_schools())
    >>> ax = az_cv.plots.plot_structure(found, rows=3)
    >>> [label.get_text() for label in ax.get_yticklabels()][0]
    'tau_log__'
    """
    check_backend(backend, ax)
    shown = structure_data(structure, rows=rows)
    names = [str(name) for name in shown[PARAMETER].values]
    length = np.maximum(shown["influence"].values, 0.0)
    is_global = shown["is_global"].values
    if backend != "matplotlib":
        collection, interface, plot = row_collection(shown, backend, names, [], figsize)
        _draw_rows(backend, interface, plot, names, length, is_global)
        entries = {"global": (REDUCED_COLOUR, ""), "other": (PLAIN_COLOUR, "")}
        add_legend(collection, backend, entries)
        return collection
    ax = row_axes(ax, figsize, names)
    colours = np.where(is_global, REDUCED_COLOUR, PLAIN_COLOUR)
    ax.barh(np.arange(len(names)), length, height=0.62, color=list(colours))
    label_rows(ax, XLABEL)
    return ax


def _draw_rows(
    backend: str,
    interface: Any,
    plot: Any,
    names: list[str],
    length: np.ndarray,
    is_global: np.ndarray,
) -> None:
    """Draw the bars through an interface of arviz-plots."""
    for colour, chosen in ((REDUCED_COLOUR, is_global), (PLAIN_COLOUR, ~is_global)):
        (row,) = np.nonzero(chosen)
        if len(row):
            end = length[row]
            draw_bars(backend, interface, plot, 0 * end, end, row, colour, 16)
            texts = [f"{names[k]}: {length[k]:.2g}" for k in row]
            draw_points(backend, interface, plot, end, row, texts, colour, alpha=0.0)
    interface.xlim((0.0, 1.05 * float(length.max(initial=0.0)) or 1.0), plot)
    interface.xlabel(XLABEL, plot)
