"""Stein identities that the scores should fulfil."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from az_cv.check_scores import check_scores
from az_cv.engine.score_check import ScoreCheck
from az_cv.plots.backends import check_backend, row_collection
from az_cv.plots.canvas import (
    ALERT_COLOUR,
    PLAIN_COLOUR,
    REDUCED_COLOUR,
    is_narrow,
    label_rows,
    row_axes,
)
from az_cv.plots.marks import add_legend, draw_points
from az_cv.sources.schema import PARAMETER

if TYPE_CHECKING:
    from arviz_plots import PlotCollection
    from matplotlib.axes import Axes

    from az_cv.plots.backends import Backend

# Beyond four standard errors a z-score is no accident, even among hundreds of them.
LIMIT = 4.0
MAX_ROWS = 40
MARKERS = "osD^vP"
# Symmetric logarithmic scale: linear where all is well, and any disaster still fits. The part up to
# LIMIT is as long as this many decades beyond it.
DECADES = 2.5
TICKS = (0, 2, 4, 10, 100, 1e3, 1e4)


def stein_check_data(data: Any, scores: xr.Dataset | None = None) -> xr.Dataset:
    """Return what :func:`plot_stein_check` draws, for other plotting libraries.

    Parameters
    ----------
    data : report, InferenceData or DataTree
        What :func:`az_cv.check_scores` returned, or its first argument.
    scores : Dataset, optional
        Second argument of :func:`az_cv.check_scores`.

    Returns
    -------
    Dataset
        ``z``, the z-scores along ``unconstrained_parameter`` and ``identity``. The attribute
        ``verdict`` is that of the report.

    See Also
    --------
    plot_stein_check : Draws it.
    az_cv.check_scores : The same as a table, with a verdict.

    Examples
    --------
    >>> import az_cv
    >>> checked = az_cv.plots.stein_check_data(az_cv.load_eight_schools())
    >>> checked["identity"].values.tolist()
    ['mean_score', 'slope']
    >>> bool((abs(checked["z"]) < 4).all())
    True
    """
    report = data if isinstance(data, ScoreCheck) else check_scores(data, scores)
    table = report.table
    columns = [name for name in table.columns if name.startswith("z_")]
    return xr.Dataset(
        {"z": ((PARAMETER, "identity"), table[columns].to_numpy(float))},
        coords={
            PARAMETER: [str(label) for label in table.index],
            "identity": [name.removeprefix("z_") for name in columns],
        },
        attrs={"verdict": report.verdict},
    )


def plot_stein_check(
    data: Any,
    scores: xr.Dataset | None = None,
    *,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    backend: Backend = "matplotlib",
) -> Axes | PlotCollection:
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
    backend : {"matplotlib", "bokeh", "plotly"}
        As in :func:`plot_forest`.

    Returns
    -------
    matplotlib Axes or arviz_plots.PlotCollection

    See Also
    --------
    stein_check_data : What the figure shows, as a Dataset.
    az_cv.check_scores : The same as a table, with a verdict.

    Examples
    --------
    >>> import az_cv
    >>> az_cv.plots.plot_stein_check(az_cv.load_eight_schools()).get_title(loc="left")
    'Stein identities: pass'
    """
    check_backend(backend, ax)
    checked = stein_check_data(data, scores)
    shown = _worst(checked)
    count, total = shown.sizes[PARAMETER], checked.sizes[PARAMETER]
    left_out = f"; the {MAX_ROWS} worst of {total}" if count < total else ""
    xlabel = f"z-score of the Stein identity (shaded: 2 standard errors{left_out})"
    title = f"Stein identities: {checked.attrs['verdict']}"
    reach = max(1.5 * LIMIT, 1.3 * float(np.nanmax(np.abs(shown["z"].values), initial=0.0)))
    ticks = [sign * tick for tick in TICKS for sign in (-1, 1) if tick < reach]
    ticks = sorted(set(ticks))
    if backend != "matplotlib":
        collection, interface, plot = row_collection(
            shown, backend, list(shown[PARAMETER].values), [], figsize, title=title
        )
        _draw_rows(backend, interface, plot, shown)
        interface.xlim((_position(-reach), _position(reach)), plot)
        interface.xticks([_position(t) for t in ticks], [f"{tick:g}" for tick in ticks], plot)
        interface.xlabel(xlabel, plot)
        entries = {name: (REDUCED_COLOUR, marker) for name, marker, _ in _identities(shown)}
        add_legend(collection, backend, entries)
        return collection
    ax = row_axes(ax, figsize, list(shown[PARAMETER].values))
    ax.set_xscale("symlog", linthresh=LIMIT, linscale=DECADES)
    ax.axvspan(-2, 2, color=PLAIN_COLOUR, alpha=0.18, linewidth=0)
    for limit in (-LIMIT, LIMIT):
        ax.axvline(limit, color=ALERT_COLOUR, linestyle="--", linewidth=1)
    for name, marker, z in _identities(shown):
        colours = np.where(np.abs(z) > LIMIT, ALERT_COLOUR, REDUCED_COLOUR)
        ax.scatter(z, np.arange(count), c=colours, marker=marker, s=22, label=name, zorder=3)
    ax.set_xlim(-reach, reach)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    label_rows(ax, xlabel)
    identities = shown.sizes["identity"]
    if identities > 1:
        ax.legend(frameon=False, ncols=identities, loc="lower right", bbox_to_anchor=(1, 1))
    # In a narrow figure the title stands above the legend.
    above = 24 if is_narrow(ax) and identities > 1 else None
    ax.set_title(title, loc="left", fontsize="medium", wrap=True, pad=above)
    return ax


def _worst(checked: xr.Dataset) -> xr.Dataset:
    """Return the parameters to draw: all of them, or the worst where they are many."""
    if checked.sizes[PARAMETER] <= MAX_ROWS:
        return checked
    worst = np.nanmax(np.abs(checked["z"].values), axis=1, initial=0.0)
    return checked.isel({PARAMETER: np.argsort(-worst, kind="stable")[:MAX_ROWS]})


def _identities(shown: xr.Dataset) -> list[tuple[str, str, np.ndarray]]:
    """Return the name, the marker and the z-scores of each identity."""
    names = [str(name) for name in shown["identity"].values]
    z = shown["z"].values
    return [(name, MARKERS[k % len(MARKERS)], z[:, k]) for k, name in enumerate(names)]


def _position(z: Any) -> Any:
    """Return where z-scores are on a symmetric logarithmic scale.

    Examples
    --------
    >>> [float(_position(z)) for z in (-40, -4, 0, 4, 400)]
    [-3.5, -2.5, 0.0, 2.5, 4.5]
    """
    beyond = DECADES + np.log10(np.maximum(np.abs(z), LIMIT) / LIMIT)
    within = DECADES * np.asarray(z) / LIMIT
    return np.where(np.abs(z) > LIMIT, np.sign(z) * beyond, within)[()]


def _draw_rows(backend: str, interface: Any, plot: Any, shown: xr.Dataset) -> None:
    """Draw the points through an interface of arviz-plots."""
    labels = shown[PARAMETER].values
    interface.vspan(_position(-2), _position(2), plot, color=PLAIN_COLOUR, alpha=0.18)
    for name, marker, z in _identities(shown):
        failed = np.abs(z) > LIMIT
        for colour, chosen in ((REDUCED_COLOUR, ~failed), (ALERT_COLOUR, failed)):
            (row,) = np.nonzero(chosen)
            if len(row):
                texts = [f"{labels[k]}, {name}: {z[k]:.2f}" for k in row]
                x = _position(z[row])
                draw_points(backend, interface, plot, x, row, texts, colour, marker=marker)
    dashes = {"bokeh": "dashed", "plotly": "dash"}[backend]
    for limit in (-LIMIT, LIMIT):
        # Plotly draws no line across a plot that is empty, hence the last place.
        interface.vline(_position(limit), plot, color=ALERT_COLOUR, width=1, linestyle=dashes)
