"""Forest of plain against variance-reduced estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from az_cv.display.digits import with_error
from az_cv.plots.canvas import PLAIN_COLOUR, REDUCED_COLOUR, row_axes
from az_cv.plots.rows import ordered_rows, read_estimates, scalar_rows, select

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from arviz_base.labels import Labeller
    from matplotlib.axes import Axes

# 95% of a normal distribution.
WIDTH = 1.96


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
) -> Axes:
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

    Returns
    -------
    matplotlib Axes

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
    estimates = forest_data(data, var_names=var_names, filter_vars=filter_vars, coords=coords)
    rows, more = ordered_rows(scalar_rows(estimates, labeller), sort, max_rows)
    ax = row_axes(ax, figsize, [label for label, _ in rows])
    summary = {
        name: np.array([float(values.sel(summary=name)) for _, values in rows])
        for name in ("mean", "sd", "mcse_mean", "plain_mean", "plain_mcse_mean")
    }
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = np.where(summary["sd"] > 0, summary["sd"], np.nan) if relative else 1.0
        origin = summary["mean"] if relative else 0.0
        position = np.arange(len(rows))
        for kind, offset, colour, label, width in (
            ("plain_", -0.15, PLAIN_COLOUR, "plain average", 1.5),
            ("", 0.15, REDUCED_COLOUR, "az_cv", 2.5),
        ):
            ax.errorbar(
                (summary[f"{kind}mean"] - origin) / unit,
                position + offset,
                xerr=WIDTH * summary[f"{kind}mcse_mean"] / unit,
                fmt="o",
                markersize=4,
                color=colour,
                elinewidth=width,
                label=label,
            )
    if relative:
        ax.axvline(0, color=REDUCED_COLOUR, linewidth=0.6, alpha=0.5, zorder=0)
        ax.set_xlabel(
            f"distance from the az_cv mean, in posterior sd\n(bars: 95% Monte Carlo error){more}"
        )
        means = ax.secondary_yaxis("right")
        texts = [with_error(m, e) for m, e in zip(summary["mean"], summary["mcse_mean"])]
        means.set_yticks(position, texts)
        means.tick_params(axis="y", length=0, labelcolor=REDUCED_COLOUR)
        means.spines["right"].set_visible(False)
    else:
        ax.set_xlabel(f"posterior mean (bars: 95% Monte Carlo error){more}")
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles, labels, ncols=2, frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
    return ax
