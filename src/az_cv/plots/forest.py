"""Forest of plain against variance-reduced estimates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from az_cv.display.digits import with_error
from az_cv.plots.backends import check_backend, row_collection, write_beside
from az_cv.plots.canvas import KINDS, REDUCED_COLOUR, WIDTH, is_narrow, label_rows, row_axes
from az_cv.plots.marks import add_legend, draw_bars, draw_points
from az_cv.plots.rows import ordered_rows, read_estimates, scalar_rows, select

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from arviz_base.labels import Labeller
    from arviz_plots import PlotCollection
    from matplotlib.axes import Axes

    from az_cv.plots.backends import Backend

RELATIVE = "distance from the az_cv mean, in posterior sd\n(bars: 95% Monte Carlo error)"
ABSOLUTE = "posterior mean (bars: 95% Monte Carlo error)"


def forest_data(
    data: Any,
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: Literal["like", "regex"] | None = None,
    coords: dict[str, Any] | None = None,
) -> xr.Dataset:
    """Return what :func:`plot_forest` and :func:`plot_vrf` draw, for other plotting libraries.

    Parameters
    ----------
    data : ControlVariateResult, InferenceData or DataTree
        What :func:`az_cv.fit` returned, or data to which :func:`az_cv.summary` attached results.
    var_names, filter_vars, coords
        Select quantities, as in ArviZ.

    Returns
    -------
    Dataset
        Each quantity along the dimension ``summary``: mean, sd, mcse_mean, mcse_sd, vrf_mean,
        vrf_sd, plain_mean, plain_mcse_mean.

    See Also
    --------
    plot_forest : Draws it.

    Examples
    --------
    >>> import az_cv
    >>> data = az_cv.load_eight_schools().isel(draw=slice(100))
    >>> result = az_cv.fit(data, family="polynomial", var_names=["mu"])
    >>> estimates = az_cv.plots.forest_data(result)
    >>> bool(estimates["mu"].sel(summary="vrf_mean") > 1)
    True
    """
    return select(read_estimates(data), var_names, filter_vars, coords)


def plot_forest(
    data: Any,
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: Literal["like", "regex"] | None = None,
    coords: dict[str, Any] | None = None,
    relative: bool = True,
    sort: Literal["gain"] | None = None,
    max_rows: int | None = None,
    labeller: Labeller | None = None,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    backend: Backend = "matplotlib",
) -> Axes | PlotCollection:
    """Draw plain and variance-reduced means with their Monte Carlo errors.

    Bars are 95% intervals of Monte Carlo error, 1.96 standard errors to each side: they say how
    well the mean is known, not how wide the posterior is.

    Parameters
    ----------
    data : ControlVariateResult, InferenceData or DataTree
        What :func:`az_cv.fit` returned, or data to which :func:`az_cv.summary` attached results.
    var_names, filter_vars, coords
        Select quantities, as in ArviZ.
    relative : bool
        Show the distance from the variance-reduced mean in posterior standard deviations, so that
        quantities of any scale share an axis; the means are written on the right. With ``False``
        the axis has the units of the quantities.
    sort : "gain", optional
        Draw the quantity with the largest gain first. ``None`` keeps the order of the table.
    max_rows : int, optional
        Draw no more rows than this; the axis says how many are not shown.
    labeller : arviz_base.labels.Labeller, optional
    ax : matplotlib Axes, optional
    figsize : (float, float), optional
        In inches, for a new figure.
    backend : {"matplotlib", "bokeh", "plotly"}
        The last two are drawn through arviz-plots, and show the numbers of a point when the mouse
        is over it.

    Returns
    -------
    matplotlib Axes
        Or, with another backend, an ``arviz_plots.PlotCollection``: its method ``show`` shows the
        figure, and ``savefig`` saves it.

    See Also
    --------
    plot_vrf : Gains as bars.
    forest_data : What the figure shows, as a Dataset.

    Examples
    --------
    >>> import az_cv
    >>> data = az_cv.load_eight_schools().isel(draw=slice(100))
    >>> result = az_cv.fit(data, family="polynomial", var_names=["mu", "tau"])
    >>> ax = az_cv.plots.plot_forest(result)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['mu', 'tau']
    """
    check_backend(backend, ax)
    estimates = forest_data(data, var_names=var_names, filter_vars=filter_vars, coords=coords)
    rows, more = ordered_rows(scalar_rows(estimates, labeller), sort, max_rows)
    labels = [label for label, _ in rows]
    kinds = [_read_kind(rows, kind, relative) for kind in KINDS]
    xlabel = (RELATIVE if relative else ABSOLUTE) + more
    if backend != "matplotlib":
        beside = kinds[1].texts if relative else []
        collection, interface, plot = row_collection(estimates, backend, labels, beside, figsize)
        _draw_rows(backend, interface, plot, labels, kinds, relative)
        interface.xlabel(xlabel, plot)
        add_legend(collection, backend, {kind.name: (kind.colour, "") for kind in kinds})
        return collection
    ax = row_axes(ax, figsize, labels)
    for kind in kinds:
        ax.errorbar(
            kind.centre,
            kind.position,
            xerr=kind.half,
            fmt="o",
            markersize=4,
            color=kind.colour,
            elinewidth=kind.width,
            label=kind.name,
        )
    label_rows(ax, xlabel)
    if is_narrow(ax):
        ax.locator_params(axis="x", nbins=4)
    if relative:
        ax.axvline(0, color=REDUCED_COLOUR, linewidth=0.6, alpha=0.5, zorder=0)
        means = ax.secondary_yaxis("right")
        means.set_yticks(np.arange(len(rows)), kinds[1].texts)
        size = "small" if is_narrow(ax) else "medium"
        means.tick_params(axis="y", length=0, labelcolor=REDUCED_COLOUR, labelsize=size)
        means.spines["right"].set_visible(False)
    handles, names = ax.get_legend_handles_labels()
    ax.legend(handles, names, ncols=2, frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
    return ax


@dataclass(frozen=True)
class Kind:
    """One kind of means as the forest shows it: centres and halves of bars, positions of rows."""

    name: str
    colour: str
    width: float
    centre: np.ndarray
    half: np.ndarray
    position: np.ndarray
    texts: list[str]


def _read_kind(rows: list[tuple[str, xr.DataArray]], name: str, relative: bool) -> Kind:
    def column(summary: str) -> np.ndarray:
        return np.array([float(values.sel(summary=summary)) for _, values in rows])

    prefix, offset, width = ("", 0.15, 2.5) if name == "az_cv" else ("plain_", -0.15, 1.5)
    mean, error, sd = column(f"{prefix}mean"), column(f"{prefix}mcse_mean"), column("sd")
    unit = np.where(sd > 0, sd, np.nan) if relative else 1.0
    origin = column("mean") if relative else 0.0
    return Kind(
        name=name,
        colour=KINDS[name],
        width=width,
        centre=(mean - origin) / unit,
        half=WIDTH * error / unit,
        position=np.arange(len(rows)) + offset,
        texts=[with_error(m, e) for m, e in zip(mean, error)],
    )


def _draw_rows(
    backend: str, interface: Any, plot: Any, labels: list[str], kinds: list[Kind], relative: bool
) -> None:
    """Draw the forest through an interface of arviz-plots."""
    ends = np.concatenate([kind.centre + sign * kind.half for kind in kinds for sign in (-1, 1)])
    ends = np.append(ends[np.isfinite(ends)], 0.0 if relative else [])
    low, high = (ends.min(), ends.max()) if len(ends) else (0.0, 1.0)
    pad = 0.04 * (high - low) or 1.0
    limits = (low - pad, high + pad)
    if relative:
        write_beside(backend, interface, plot, kinds[1].texts, limits)
    else:
        interface.xlim(limits, plot)
    for kind in kinds:
        low, high = kind.centre - kind.half, kind.centre + kind.half
        draw_bars(backend, interface, plot, low, high, kind.position, kind.colour, kind.width)
        texts = [f"{label}, {kind.name}: {text}" for label, text in zip(labels, kind.texts)]
        draw_points(backend, interface, plot, kind.centre, kind.position, texts, kind.colour)
    if relative:
        # Plotly draws no line across a plot that is empty, hence the last place.
        interface.vline(0, plot, color=REDUCED_COLOUR, alpha=0.5, width=0.8)
