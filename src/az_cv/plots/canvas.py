"""Axes, colours and labels that the figures share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLAIN_COLOUR = "#8c8c8c"
REDUCED_COLOUR = "#1769c4"
ALERT_COLOUR = "#c8441b"
MEMBER_COLOURS = [REDUCED_COLOUR, "#b5660b", "#3a8a4d", "#8a4fa3"]
ROW_HEIGHT = 0.32
MAX_PANELS = 40


def import_pyplot() -> Any:
    """Return ``matplotlib.pyplot``.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Figures need matplotlib: pip install 'az-cv[plots]'") from error
    return plt


def row_axes(ax: Axes | None, figsize: tuple[float, float] | None, rows: int) -> Axes:
    """Return axes with room for `rows` labelled rows, the first on top."""
    if ax is None:
        plt = import_pyplot()
        size = figsize or (7.5, 1.2 + ROW_HEIGHT * max(rows, 3))
        _, ax = plt.subplots(figsize=size, layout="constrained")
    ax.set_ylim(rows - 0.5, -0.5)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return ax


def panel_axes(
    ax: Axes | np.ndarray | None,
    figsize: tuple[float, float] | None,
    panels: int,
    *,
    per_row: int = 3,
    size: tuple[float, float] = (4.2, 3.0),
) -> np.ndarray:
    """Return `panels` axes as a flat array, from `ax` or on a new figure.

    Raises
    ------
    ValueError
        If `ax` holds another number of axes, or a figure of so many panels could not be read.
    """
    if ax is not None:
        given = np.ravel(np.asarray(ax, dtype=object))
        if len(given) != panels:
            raise ValueError(f"ax holds {len(given)} axes; {panels} are needed.")
        return given
    if panels > MAX_PANELS:
        raise ValueError(
            f"{panels} panels do not fit on a figure. Select at most {MAX_PANELS} quantities with "
            "var_names= or coords=."
        )
    plt = import_pyplot()
    columns = min(per_row, panels)
    rows = math.ceil(panels / columns)
    _, axes = plt.subplots(
        rows,
        columns,
        figsize=figsize or (size[0] * columns, size[1] * rows),
        squeeze=False,
        layout="constrained",
    )
    flat = axes.ravel()
    for unused in flat[panels:]:
        unused.remove()
    return flat[:panels]


def plain_log_ticks(axis: Any) -> None:
    """Write 1,000 and not 10³ on a logarithmic axis, as long as the numbers stay short."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    low, high = axis.get_view_interval()
    if 0.5 <= low and high < 1e7:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    # Minor labels are for ranges within one decade, where the major ones would be alone.
    if high > 10 * low:
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
