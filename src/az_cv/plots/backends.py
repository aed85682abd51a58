"""Bokeh and Plotly, through the interface that arviz-plots has for both."""

from __future__ import annotations

import html
import math
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from az_cv.plots.canvas import (
    PANEL_CHARACTERS,
    REDUCED_COLOUR,
    ROW_CHARACTERS,
    check_panels,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

Backend = Literal["matplotlib", "bokeh", "plotly"]
BACKENDS = ("matplotlib", "bokeh", "plotly")
# Pixels: of an inch, a character, a line of text, a row, what stands around the rows, and a panel.
INCH = 100
CHARACTER = 7
LINE = 17
ROW = 30
AROUND = 130
DATA_WIDTH = 480
PANEL = (390, 290)
PANELS_PER_ROW = 3
FONT = 12
# Pixels that Plotly leaves above the titles, for its buttons and the legend, and below the plots.
# Beside the plots it makes room itself.
ABOVE = 70
BELOW = 60
INVISIBLE = "rgba(0, 0, 0, 0)"


def check_backend(backend: str, ax: Any) -> None:
    """Refuse names of backends that are not known, and axes that a backend cannot draw on."""
    if backend not in BACKENDS:
        raise ValueError(f"backend is {backend!r}. Choose from {list(BACKENDS)}.")
    if backend != "matplotlib" and ax is not None:
        raise ValueError(
            f"ax takes Axes of matplotlib, and backend={backend!r} makes a figure of its own. "
            "Leave one of the two out."
        )


def import_backend(backend: str) -> tuple[Any, Any]:
    """Return the class ``PlotCollection`` of arviz-plots, and its interface to a backend.

    Raises
    ------
    ImportError
        If arviz-plots or the backend is not installed.
    """
    try:
        from arviz_plots import PlotCollection

        return PlotCollection, import_module(f"arviz_plots.backend.{backend}")
    except ImportError as error:
        raise ImportError(
            f"backend={backend!r} is drawn through arviz-plots, and {error.name or error} is not "
            f"installed: pip install 'az-cv[{backend}]'"
        ) from error


def shown_text(backend: str, text: str) -> str:
    """Return a text as a backend reads it: that of Plotly is HTML."""
    return html.escape(text, quote=False).replace("\n", "<br>") if backend == "plotly" else text


def row_collection(
    data: xr.Dataset,
    backend: str,
    labels: Sequence[str],
    beside: Sequence[str],
    figsize: tuple[float, float] | None,
    *,
    title: str = "",
) -> tuple[Any, Any, Any]:
    """Return a collection with one plot of labelled rows, its interface and the plot.

    Parameters
    ----------
    data : Dataset
        What is drawn; the collection keeps it.
    backend : str
    labels : sequence of str
        Names of the rows, the first on top.
    beside : sequence of str
        What :func:`write_beside` will write at the right, for which there is room.
    figsize : (float, float), optional
        In inches.
    title : str
        What is written above the plot.
    """
    PlotCollection, interface = import_backend(backend)
    texts = [wrapped(label, ROW_CHARACTERS) for label in labels]
    longest = max((len(line) for text in texts for line in text.split("\n")), default=0)
    lines = max((text.count("\n") + 1 for text in texts), default=1)
    width = DATA_WIDTH + _room(beside) + CHARACTER * longest + 60
    height = max(ROW, LINE * lines + 8) * max(len(texts), 3) + AROUND
    collection = PlotCollection.wrap(
        data, backend=backend, figure_kwargs=_figure_kwargs(figsize or (width, height), figsize)
    )
    _set_margins(collection, backend, ABOVE + (LINE if title else 0))
    plot = collection.get_viz("plot")
    if title:
        interface.title(shown_text(backend, title), plot, size=FONT + 1)
        if backend == "plotly":
            # A distance in pixels: shares of a high figure would lift it into the legend.
            collection.get_viz("figure").layout.annotations[-1].update(y=1, yshift=2)
    ticks = [shown_text(backend, text) for text in texts]
    interface.yticks(np.arange(len(texts)), ticks, plot)
    interface.ticklabel_props(plot, axis="y", size=FONT)
    interface.ylim((len(texts) - 0.5, -0.5), plot)
    interface.grid(plot, "y", INVISIBLE)  # lines would cross the numbers
    if backend == "plotly":
        plot.update_yaxes(zeroline=False)
    return collection, interface, plot


def write_beside(
    backend: str,
    interface: Any,
    plot: Any,
    texts: Sequence[str],
    limits: tuple[float, float],
    ends: Any = None,
) -> None:
    """Set the limits of x such that a text fits into each row, and write it.

    Parameters
    ----------
    backend : str
    interface, plot
        As from :func:`row_collection`.
    texts : sequence of str
        One for each row.
    limits : (float, float)
        Of what is drawn.
    ends : array, optional
        Where each text starts. ``None``: in a column, beyond the limits.
    """
    low, high = limits
    room = (high - low) * _room(texts) / DATA_WIDTH
    gap = (high - low) * 8 / DATA_WIDTH
    start = np.full(len(texts), high) if ends is None else np.asarray(ends)
    interface.text(
        start + gap,
        np.arange(len(texts)),
        [shown_text(backend, text) for text in texts],
        plot,
        size=FONT,
        color=REDUCED_COLOUR,
        horizontal_align="left",
        **({"hoverinfo": "skip"} if backend == "plotly" else {}),
    )
    interface.xlim((low, high + room), plot)


def panel_collection(
    data: xr.Dataset,
    backend: str,
    labels: Sequence[str],
    notes: Sequence[str],
    figsize: tuple[float, float] | None,
    *,
    keep: tuple[str, ...],
) -> tuple[Any, Any, list[Any]]:
    """Return a collection with one plot for each quantity, its interface and the plots.

    Parameters
    ----------
    data : Dataset
        What is drawn; dimensions in `keep` are those within a plot.
    backend : str
    labels, notes : sequences of str
        What is written above each plot.
    figsize : (float, float), optional
        In inches.
    keep : tuple of str
    """
    PlotCollection, interface = import_backend(backend)
    check_panels(len(labels))
    titles = [_title(label, note) for label, note in zip(labels, notes)]
    rows = math.ceil(len(titles) / PANELS_PER_ROW)
    lines = max(title.count("\n") + 1 for title in titles)
    size = (PANEL[0] * min(PANELS_PER_ROW, len(titles)), (PANEL[1] + LINE * lines) * rows + 60)
    grid = _figure_kwargs(figsize or size, figsize)
    above = ABOVE + LINE * lines
    if backend == "plotly":
        # Ticks, the label of x and the title of the next row stand between the rows.
        width, height = grid["figsize"]
        between = (75 + LINE * lines) / (height - above - BELOW)
        grid["vertical_spacing"] = min(between, 0.9 / max(rows - 1, 1))
        grid["plot_hspace"] = min(90 / width, 0.2)
    dims = [dim for dim in data.dims if dim not in keep]
    collection = PlotCollection.wrap(
        # Two quantities with equal labels are two panels.
        data.drop_vars(
            [dim for dim in dims if dim in data.indexes and not data.indexes[dim].is_unique]
        ),
        cols=["__variable__", *dims],
        col_wrap=PANELS_PER_ROW,
        backend=backend,
        figure_kwargs=grid,
    )
    _set_margins(collection, backend, above)
    plots = [
        plot for values in collection.viz["plot"].data_vars.values() for plot in values.values.flat
    ]
    for plot, title in zip(plots, titles):
        interface.title(shown_text(backend, title), plot, size=FONT + 1)
    return collection, interface, plots


def _set_margins(collection: Any, backend: str, above: int) -> None:
    if backend == "plotly":
        margin = {"t": above, "b": BELOW, "l": 10, "r": 20}
        collection.get_viz("figure").update_layout(margin=margin)


def _figure_kwargs(size: tuple[float, float], inches: tuple[float, float] | None) -> dict[str, Any]:
    scale = 1 if inches is None else INCH
    return {"figsize": (scale * size[0], scale * size[1]), "figsize_units": "dots"}


def _room(texts: Sequence[str]) -> int:
    return CHARACTER * max((len(text) for text in texts), default=0) + 20


def _title(label: str, note: str) -> str:
    if not note:
        return wrapped(label, PANEL_CHARACTERS)
    short = len(label) + len(note) + 2 <= PANEL_CHARACTERS
    return f"{label}: {note}" if short else f"{wrapped(label, PANEL_CHARACTERS)}\n{note}"
