"""Running estimates: what each number of draws would have given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from az_cv.containers.idata import as_idata, get_group
from az_cv.display.digits import with_error
from az_cv.fit import fit
from az_cv.labelled.validation import validate_scores
from az_cv.notices import silenced
from az_cv.plots.backends import check_backend, panel_collection
from az_cv.plots.canvas import (
    KINDS,
    WIDTH,
    label_panel,
    panel_axes,
    panel_legend,
    panel_title,
    plain_log_ticks,
)
from az_cv.plots.marks import add_legend, draw_points, log_ticks
from az_cv.plots.rows import scalar_rows
from az_cv.sources.dispatch import scores as find_scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arviz_base.labels import Labeller
    from arviz_plots import PlotCollection
    from matplotlib.axes import Axes

    from az_cv.families import LinearFamily
    from az_cv.labelled.integrands import Integrand
    from az_cv.plots.backends import Backend
    from az_cv.solvers.folds import FoldChoice

FIRST = 25  # draws per chain at the first point: fewer say nothing about autocorrelation
XLABEL = "draws used (bands: 95% Monte Carlo error)"
YLABEL = "posterior mean"


def plot_running(
    data: Any,
    fn: Integrand = None,
    *,
    model: Any = None,
    scores: xr.Dataset | None = None,
    var_names: str | Sequence[str] | None = None,
    filter_vars: Literal["like", "regex"] | None = None,
    coords: dict[str, Any] | None = None,
    family: LinearFamily | Literal["auto", "polynomial", "kernel"] = "auto",
    folds: FoldChoice = "auto",
    num_points: int = 10,
    labeller: Labeller | None = None,
    ax: Axes | np.ndarray | None = None,
    figsize: tuple[float, float] | None = None,
    backend: Backend = "matplotlib",
) -> np.ndarray | PlotCollection:
    """Draw plain and variance-reduced means against the number of draws used.

    At each of `num_points` numbers of draws the control variates are fitted anew to the first draws
    of every chain, so each point is what the user would have got from a run of that length.

    Parameters
    ----------
    data : InferenceData, DataTree or what ``arviz_base`` converts
    fn, model, scores, var_names, filter_vars, coords, family, folds
        As in :func:`az_cv.summary`.
    num_points : int
        Numbers of draws, evenly spaced on a logarithmic scale. Cost is about twice that of one
        summary.
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
    running_data : What the figure shows, as a Dataset.
    az_cv.draws_needed : Draws that a given error takes.

    Examples
    --------
    >>> import az_cv
    >>> data = az_cv.load_eight_schools().isel(draw=slice(100))
    >>> options = {"var_names": "mu", "family": "polynomial", "num_points": 3}
    >>> axes = az_cv.plots.plot_running(data, **options)
    >>> axes[0].get_title(loc="left")
    'mu'
    """
    check_backend(backend, ax)
    running = running_data(
        data,
        fn,
        model=model,
        scores=scores,
        var_names=var_names,
        filter_vars=filter_vars,
        coords=coords,
        family=family,
        folds=folds,
        num_points=num_points,
    )
    rows = scalar_rows(running, labeller, keep=("summary", "num_draws"))
    if backend != "matplotlib":
        return _draw_panels(running, rows, backend, figsize)
    axes = panel_axes(ax, figsize, len(rows))
    for panel, (label, values) in zip(axes, rows):
        _draw_panel(panel, label, values)
    panel_legend(axes, outside=ax is None)
    return axes


def running_data(
    data: Any,
    fn: Integrand = None,
    *,
    model: Any = None,
    scores: xr.Dataset | None = None,
    var_names: str | Sequence[str] | None = None,
    filter_vars: Literal["like", "regex"] | None = None,
    coords: dict[str, Any] | None = None,
    family: LinearFamily | Literal["auto", "polynomial", "kernel"] = "auto",
    folds: FoldChoice = "auto",
    num_points: int = 10,
) -> xr.Dataset:
    """Return what :func:`plot_running` draws, for other plotting libraries.

    Parameters
    ----------
    data : InferenceData, DataTree or what ``arviz_base`` converts
    fn, model, scores, var_names, filter_vars, coords, family, folds
        As in :func:`az_cv.summary`.
    num_points : int
        Numbers of draws, evenly spaced on a logarithmic scale.

    Returns
    -------
    Dataset
        Each quantity along ``num_draws``, the draws used over all chains, and ``summary``, with
        mean, mcse_mean, plain_mean and plain_mcse_mean among others.

    See Also
    --------
    plot_running : Draws it.

    Examples
    --------
    >>> import az_cv
    >>> data = az_cv.load_eight_schools().isel(draw=slice(100))
    >>> options = {"var_names": "mu", "family": "polynomial", "num_points": 3}
    >>> az_cv.plots.running_data(data, **options)["num_draws"].values.tolist()
    [100, 200, 400]
    """
    if not isinstance(num_points, int) or num_points < 2:
        raise ValueError(f"num_points must be an integer of at least 2; it is {num_points!r}.")
    idata = as_idata(data)
    if scores is None:
        scores = find_scores(idata, model=model)
    scores, posterior = validate_scores(scores, get_group(idata, "posterior"))
    chains, draws = scores.sizes["chain"], scores.sizes["draw"]
    lengths = np.unique(np.geomspace(min(FIRST, draws), draws, num_points).round().astype(int))
    estimates = []
    # Short runs warn of little use; the full one was warned about when it was summarised.
    with silenced():
        for length in lengths:
            first = {"draw": slice(None, int(length))}
            result = fit(
                xr.DataTree.from_dict({"posterior": posterior.isel(first)}),
                fn,
                scores=scores.isel(first),
                var_names=var_names,
                filter_vars=filter_vars,
                coords=coords,
                family=family,
                folds=folds,
            )
            estimates.append(result.estimates)
    return xr.concat(estimates, dim=xr.DataArray(chains * lengths, dims="num_draws")).assign_coords(
        num_draws=chains * lengths
    )


def _curves(values: xr.DataArray) -> list[tuple[str, str, np.ndarray, np.ndarray]]:
    """Return the name, the colour, the means and the errors of both kinds."""

    def curve(name: str) -> np.ndarray:
        return np.asarray(values.sel(summary=name).values, dtype=float)

    return [
        (name, colour, curve(f"{prefix}mean"), curve(f"{prefix}mcse_mean"))
        for (name, colour), prefix in zip(KINDS.items(), ("plain_", ""))
    ]


def _final(values: xr.DataArray) -> str:
    _, _, mean, error = _curves(values)[-1]
    return with_error(float(mean[-1]), float(error[-1]))


def _draw_panel(panel: Axes, label: str, values: xr.DataArray) -> None:
    used = values["num_draws"].values
    for zorder, (name, colour, mean, error) in enumerate(_curves(values), 2):
        low, high = mean - WIDTH * error, mean + WIDTH * error
        panel.fill_between(used, low, high, color=colour, alpha=0.22, linewidth=0, zorder=zorder)
        panel.plot(used, mean, color=colour, marker="o", markersize=3, label=name, zorder=zorder)
    panel.set_xscale("log")
    plain_log_ticks(panel.xaxis)
    panel_title(panel, label, _final(values))
    label_panel(panel, XLABEL, YLABEL)


def _draw_panels(
    running: xr.Dataset,
    rows: list[tuple[str, xr.DataArray]],
    backend: str,
    figsize: tuple[float, float] | None,
) -> PlotCollection:
    """Draw the figure through an interface of arviz-plots, on a scale of log10."""
    labels, notes = [label for label, _ in rows], [_final(values) for _, values in rows]
    collection, interface, plots = panel_collection(
        running, backend, labels, notes, figsize, keep=("summary", "num_draws")
    )
    used = running["num_draws"].values
    x, ticks = np.log10(used), log_ticks(used[0], used[-1])
    for plot, (_, values) in zip(plots, rows):
        for name, colour, mean, error in _curves(values):
            low, high = mean - WIDTH * error, mean + WIDTH * error
            interface.fill_between_y(x, low, high, plot, color=colour, alpha=0.22)
            interface.line(x, mean, plot, color=colour, width=2)
            texts = [f"{n:,} draws, {name}: {with_error(*v)}" for n, *v in zip(used, mean, error)]
            draw_points(backend, interface, plot, x, mean, texts, colour)
        interface.xticks(*ticks, plot)
        interface.xlabel(XLABEL, plot)
        interface.ylabel(YLABEL, plot)
    entries = {name: (colour, "") for name, colour in KINDS.items()}
    add_legend(collection, backend, entries, plots)
    return collection
