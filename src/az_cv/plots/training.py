"""Training curves of stochastic solvers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from az_cv.plots.backends import check_backend, panel_collection
from az_cv.plots.canvas import MEMBER_COLOURS, label_panel, panel_axes, panel_legend
from az_cv.plots.marks import add_legend, draw_points, log_ticks

if TYPE_CHECKING:
    from collections.abc import Iterator

    import xarray as xr
    from arviz_plots import PlotCollection

    from az_cv.plots.backends import Backend

    Curve = tuple[np.ndarray, np.ndarray]

CURVES = {"loss": "training loss", "held_out_variance": "variance on held-out draws"}
LINES = ("member", "fold", "epoch")
XLABEL = "epoch (thin: one line per fold)"


def training_data(result: Any) -> xr.Dataset:
    """Return what :func:`plot_training` draws, for other plotting libraries.

    Parameters
    ----------
    result : ControlVariateResult or DataFrame
        As in :func:`plot_training`.

    Returns
    -------
    Dataset
        ``loss`` and ``held_out_variance`` along ``member``, ``fold`` and ``epoch``, NaN where there
        is none. Of a training that started again, it holds the last start.

    See Also
    --------
    plot_training : Draws it.

    Examples
    --------
    >>> import az_cv, pandas as pd
    >>> history = pd.DataFrame({"epoch": [1, 2], "fold": [0, 0], "loss": [1.0, 0.4]})
    >>> history["held_out_variance"] = [1.1, 0.5]
    >>> loss = az_cv.plots.training_data(history)["loss"]
    >>> loss.sel(fold=0, epoch=2).values.tolist()
    [0.4]
    """
    history = result if isinstance(result, pd.DataFrame) else getattr(result, "history", None)
    if history is None or len(history) == 0:
        raise ValueError(
            "There is no training history: exact solvers do not train. Fit with a stochastic "
            "solver, az_cv.fit(data, solver=az_cv.SGD(...))."
        )
    history = pd.DataFrame(history)
    missing = [name for name in ("epoch", "fold", *CURVES) if name not in history]
    if missing:
        raise ValueError(f"The history lacks {missing}. It has {list(history.columns)}.")
    history = _last_starts(history)
    members = list(history["member"].unique())
    curves = history.set_index(list(LINES))[list(CURVES)].to_xarray()
    return curves.sel(member=members)


def plot_training(
    result: Any,
    *,
    ax: np.ndarray | None = None,
    figsize: tuple[float, float] | None = None,
    backend: Backend = "matplotlib",
) -> np.ndarray | PlotCollection:
    """Draw the loss and the held-out variance against the epoch, one line per fold.

    A held-out variance that turns up while the loss still falls means overfitting: a smaller
    network, more weight decay or fewer epochs.

    Parameters
    ----------
    result : ControlVariateResult or DataFrame
        The result of a fit with a stochastic solver, or its training history with the columns
        ``epoch``, ``fold``, ``loss`` and ``held_out_variance``, and ``member`` where there are
        several families. Where training started again (``restart``) the last start is drawn.
    ax : array of two matplotlib Axes, optional
    figsize : (float, float), optional
        In inches, for a new figure.
    backend : {"matplotlib", "bokeh", "plotly"}
        As in :func:`plot_forest`.

    Returns
    -------
    array of two matplotlib Axes or arviz_plots.PlotCollection

    See Also
    --------
    training_data : What the figure shows, as a Dataset.
    az_cv.SGD : Trains families on minibatches.
    az_cv.NeuralNetwork : A family that is always trained.

    Examples
    --------
    >>> import az_cv, pandas as pd
    >>> history = pd.DataFrame({"epoch": [1, 2], "fold": [0, 0], "loss": [1.0, 0.4]})
    >>> history["held_out_variance"] = [1.1, 0.5]
    >>> axes = az_cv.plots.plot_training(history)
    >>> [panel.get_title(loc="left") for panel in axes]
    ['training loss', 'variance on held-out draws']
    """
    check_backend(backend, ax)
    curves = training_data(result)
    if backend != "matplotlib":
        return _draw_panels(curves, backend, figsize)
    axes = panel_axes(ax, figsize, len(CURVES), per_row=2)
    for panel, (column, title) in zip(axes, CURVES.items()):
        for member, colour, folds, average in _lines(curves[column]):
            for epoch, value in folds:
                panel.plot(epoch, value, color=colour, alpha=0.35, linewidth=1)
            panel.plot(*average, color=colour, linewidth=2, label=member)
        if _all_positive(curves[column]):
            panel.set_yscale("log")
        panel.set_title(title, loc="left")
        label_panel(panel, XLABEL)
    panel_legend(axes, outside=ax is None)
    return axes


def _lines(values: xr.DataArray) -> Iterator[tuple[str, str, list[Curve], Curve]]:
    """Return each member that has values: its name, its colour, its folds and their average."""
    known = values.dropna("member", how="all")
    for k, (member, colour) in enumerate(
        zip(known["member"].values, MEMBER_COLOURS * known.sizes["member"])
    ):
        lines = known.isel(member=k)
        folds = [_curve(lines.sel(fold=fold)) for fold in lines["fold"].values]
        average = _curve(lines.mean("fold"))
        yield str(member), colour, [fold for fold in folds if len(fold[0])], average


def _curve(line: xr.DataArray) -> Curve:
    known = line.dropna("epoch")
    return known["epoch"].values, known.values


def _all_positive(values: xr.DataArray) -> bool:
    return bool(((values > 0) | values.isnull()).all())


def _last_starts(history: pd.DataFrame) -> pd.DataFrame:
    """Return the history with a column ``member``, without runs that were given up."""
    if "member" not in history:
        history = history.assign(member="average")
    if "restart" in history:
        last = history.groupby(["member", "fold"])["restart"].transform("max")
        history = history[history["restart"] == last]
    return history


def _draw_panels(
    curves: xr.Dataset, backend: str, figsize: tuple[float, float] | None
) -> PlotCollection:
    """Draw the figure through an interface of arviz-plots, on a scale of log10 where there is one.

    Parameters
    ----------
    curves : Dataset
        As from :func:`training_data`.
    backend : str
    figsize : (float, float), optional
    """
    collection, interface, plots = panel_collection(
        curves, backend, list(CURVES.values()), ["", ""], figsize, keep=LINES
    )
    entries = {}
    for plot, column in zip(plots, CURVES):
        values = curves[column]
        logarithmic = _all_positive(values)
        scale = np.log10 if logarithmic else np.asarray
        for member, colour, folds, average in _lines(values):
            entries[member] = (colour, "")
            for epoch, value in folds:
                interface.line(epoch, scale(value), plot, color=colour, alpha=0.35, width=1)
            epoch, value = average
            interface.line(epoch, scale(value), plot, color=colour, width=2)
            texts = [f"epoch {e}, {member}: {v:.3g}" for e, v in zip(epoch, value)]
            draw_points(backend, interface, plot, epoch, scale(value), texts, colour, alpha=0.0)
        if logarithmic and values.notnull().any():
            interface.yticks(*log_ticks(float(values.min()), float(values.max())), plot)
        interface.xlabel(XLABEL, plot)
    add_legend(collection, backend, entries, plots)
    return collection
