"""Points, bars, legends and ticks of logarithms on the plots of Bokeh and Plotly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.plots.backends import ABOVE, BELOW, CHARACTER, PANELS_PER_ROW, shown_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What the libraries call the markers that matplotlib names by a character.
MARKERS = {
    "bokeh": {
        "o": "circle",
        "s": "square",
        "D": "diamond",
        "^": "triangle",
        "v": "inverted_triangle",
        "P": "plus",
    },
    "plotly": {
        "o": "circle",
        "s": "square",
        "D": "diamond",
        "^": "triangle-up",
        "v": "triangle-down",
        "P": "cross",
    },
}
# Pixels of Bokeh's legend: of a line, of what stands around the lines, and of a symbol.
LEGEND_LINE = 20
AROUND_LEGEND = 8
SYMBOL = 40


def add_legend(
    collection: Any,
    backend: str,
    entries: Mapping[str, tuple[str, str]],
    panels: Sequence[Any] = (),
) -> None:
    """Add a legend above the rows or the panels.

    Parameters
    ----------
    collection : PlotCollection
    backend : {"bokeh", "plotly"}
    entries : mapping
        Colour and marker of each name. An empty marker stands for a line.
    panels : sequence of plots
        The panels of the figure, if it has any.
    """
    if backend == "bokeh":
        _add_bokeh_legend(collection, entries, panels)
        return
    figure = collection.get_viz("figure")
    for name, (colour, marker) in entries.items():
        look: dict[str, Any] = {"mode": "lines", "line": {"color": colour, "width": 3}}
        if marker:
            symbol = MARKERS[backend][marker]
            look = {"mode": "markers", "marker": {"color": colour, "symbol": symbol, "size": 7}}
        label = shown_text(backend, name)
        figure.add_scatter(x=[None], y=[None], name=label, showlegend=True, **look)
    margin = figure.layout.margin
    legend = {
        "x": 0,
        "y": 1 + (margin.t - ABOVE + 4) / (figure.layout.height - margin.t - BELOW),
        "yanchor": "bottom",
        "orientation": "h",
        "traceorder": "normal",
    }
    figure.update_layout(showlegend=True, legend=legend)


def _add_bokeh_legend(
    collection: Any, entries: Mapping[str, tuple[str, str]], panels: Sequence[Any]
) -> None:
    """Add a legend to the first plot: Bokeh has none of whole figures."""
    from bokeh.models import Legend

    first = panels[0] if panels else collection.get_viz("plot")
    items = []
    for name, (colour, marker) in entries.items():
        if marker:
            glyph = first.scatter(marker=MARKERS["bokeh"][marker], size=7, color=colour)
        else:
            glyph = first.line(line_color=colour, line_width=3)
        items.append((name, [glyph]))
    side_by_side = sum(SYMBOL + CHARACTER * len(name) for name in entries) < first.width
    look = {"location": "top_left", "border_line_alpha": 0.0, "padding": 2, "margin": 2}
    look["spacing"] = 10 if side_by_side else 0
    direction = "horizontal" if side_by_side else "vertical"
    first.add_layout(Legend(items=items, orientation=direction, **look), "above")
    if panels:
        # The first panel grows by its legend, so that what is drawn in all panels stays equal.
        first.height += AROUND_LEGEND + LEGEND_LINE * (1 if side_by_side else len(entries))
        for neighbour in panels[1:PANELS_PER_ROW]:
            neighbour.align = "end"


def draw_points(
    backend: str,
    interface: Any,
    plot: Any,
    x: Any,
    y: Any,
    texts: Sequence[str],
    colour: str,
    *,
    alpha: float = 1.0,
    marker: str = "o",
) -> None:
    """Draw points that show a text when the mouse is over them."""
    look = {"color": colour, "alpha": alpha, "marker": MARKERS[backend][marker]}
    if backend == "plotly":
        shown = [shown_text(backend, text) for text in texts]
        # Sizes are those of matplotlib, areas.
        interface.scatter(x, y, plot, **look, size=49, hovertext=shown, hoverinfo="text")
        return
    from bokeh.models import HoverTool

    points = interface.scatter(x, y, plot, **look, size=7)
    points.data_source.data["text"] = list(texts)
    plot.add_tools(HoverTool(renderers=[points], tooltips="@text", visible=False))


def draw_bars(
    backend: str, interface: Any, plot: Any, low: Any, high: Any, y: Any, colour: str, width: float
) -> None:
    """Draw a horizontal bar in each row, all of them as one line with gaps."""
    gap = np.full(len(np.atleast_1d(y)), np.nan)
    interface.line(
        np.column_stack([low, high, gap]).ravel(),
        np.column_stack([y, y, gap]).ravel(),
        plot,
        color=colour,
        width=width,
        **({"hoverinfo": "skip"} if backend == "plotly" else {}),
    )


def log_ticks(low: float, high: float) -> tuple[np.ndarray, list[str]]:
    """Return positions of ticks between two numbers on a scale of log10, and what they say.

    The interfaces of arviz-plots have no logarithmic axes: logarithms are drawn.

    Examples
    --------
    >>> log_ticks(100, 4000)
    (array([2.     , 2.30103, 2.69897, 3.     , 3.30103]), ['100', '200', '500', '1,000', '2,000'])
    >>> log_ticks(1, 3e9)[1]
    ['1', '100', '10,000', '1e+06', '1e+08']
    >>> log_ticks(0.62, 0.87)[1]
    ['0.65', '0.7', '0.75', '0.8', '0.85']
    """
    decades = math.log10(high / low)
    steps = (1, 2, 5) if decades < 2.5 else (1,)
    every = max(1, round(decades / 5))
    first = math.floor(math.log10(low))
    values = [
        step * 10.0**k
        for k in range(first, first + math.ceil(decades) + 2, every)
        for step in steps
    ]
    shown = [value for value in values if low * 0.999 <= value <= high * 1.001]
    if len(shown) < 2:
        shown = _even_ticks(low, high)
    return np.log10(shown), [_tick_text(value) for value in shown]


def _even_ticks(low: float, high: float) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten, where a range has less than a decade."""
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10(high - low))
    step = next(s for s in (power / 5, power / 2, power, 2 * power) if (high - low) / s <= 6)
    return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _tick_text(value: float) -> str:
    if 1e-4 <= value < 1e6:
        return f"{value:,.6g}"
    return f"{value:.0e}"
