"""Axes, colours and labels that the figures share."""

from __future__ import annotations

import math
import re
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

PLAIN_COLOUR = "#8c8c8c"
REDUCED_COLOUR = "#1769c4"
ALERT_COLOUR = "#c8441b"
# What plain averages and those of az_cv are called, and their colours.
KINDS = {"plain average": PLAIN_COLOUR, "az_cv": REDUCED_COLOUR}
MEMBER_COLOURS = [REDUCED_COLOUR, "#b5660b", "#3a8a4d", "#8a4fa3"]
WIDTH = 1.96  # standard errors: 95% of a normal distribution
ROW_HEIGHT = 0.32
MAX_PANELS = 40
# Characters in a line of a label; longer ones are wrapped, so that no two become the same.
ROW_CHARACTERS = 44
PANEL_CHARACTERS = 38
# What fits beside a number above a panel.
SHORT_TITLE = 20
# Inches, of a character and of a line of a small label.
CHARACTER = 0.085
LINE = 0.15
# Inches below which the panels of a row, and rows with a title and a legend side by side, are not
# readable any more.
PANEL_WIDTH = 2.4
ROW_WIDTH = 5.5


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


def wrapped(label: str, characters: int) -> str:
    """Return a label in lines of so many characters, broken where words or indices end.

    Examples
    --------
    >>> print(wrapped("effect_on_recovery[ward 5, Cornwall]", 20))
    effect_on_recovery[
    ward 5, Cornwall]
    """
    lines = [""]
    for word in re.findall(r"[^\s_,\[/]+[\s_,\[/]*|[\s_,\[/]+", label):
        # Names without any place to break are broken anywhere.
        for start in range(0, len(word), characters):
            piece = word[start : start + characters]
            if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > characters:
                lines.append("")
            lines[-1] += piece
    return "\n".join(line.strip() for line in lines)


def column_width() -> float:
    """Return the inches that new figures may be wide: no limit, unless matplotlib has a narrow one.

    Who sets ``figure.figsize`` of matplotlib below its own default has a narrow page in mind.
    """
    matplotlib = import_pyplot().matplotlib
    width, default = (
        settings["figure.figsize"][0]
        for settings in (matplotlib.rcParams, matplotlib.rcParamsDefault)
    )
    return float(width) if width < default else math.inf


def figure_width(ax: Axes) -> float:
    """Return the inches of the figure that axes are in, or of their part of a figure."""
    return float(ax.figure.bbox.width / ax.figure.dpi)


def is_narrow(ax: Axes) -> bool:
    """Return whether a figure of rows is too narrow for two things side by side above them."""
    return figure_width(ax) < ROW_WIDTH


def label_rows(ax: Axes, xlabel: str) -> None:
    """Write what the horizontal axis of rows shows, in lines that a narrow figure can hold."""
    if is_narrow(ax):
        ticks = ax.get_yticklabels()
        longest = max((len(line) for t in ticks for line in t.get_text().split("\n")), default=0)
        room = figure_width(ax) - CHARACTER * longest
        lines = [textwrap.wrap(line, max(int(room / CHARACTER), 16)) for line in xlabel.split("\n")]
        xlabel = "\n".join("\n".join(pieces) for pieces in lines)
    ax.set_xlabel(xlabel)


def row_axes(ax: Axes | None, figsize: tuple[float, float] | None, labels: Sequence[str]) -> Axes:
    """Return axes with a labelled row for each of `labels`, the first on top."""
    rows = len(labels)
    characters = ROW_CHARACTERS
    if ax is None:
        # A label has less than half of a narrow figure.
        room = (figsize[0] if figsize else column_width()) / CHARACTER
        characters = int(max(min(characters, 0.4 * room), 10))
    texts = [wrapped(label, characters) for label in labels]
    lines = max((text.count("\n") + 1 for text in texts), default=1)
    if ax is None:
        plt = import_pyplot()
        longest = max((len(line) for text in texts for line in text.split("\n")), default=0)
        width = min(7.5 + CHARACTER * max(longest - 20, 0), column_width())
        height = max(ROW_HEIGHT, LINE * lines + 0.1)
        size = figsize or (width, 1.2 + height * max(rows, 3))
        _, ax = plt.subplots(figsize=size, layout="constrained")
    ax.set_ylim(rows - 0.5, -0.5)
    ax.set_yticks(np.arange(rows), texts, fontsize="small" if lines > 1 else "medium")
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
    check_panels(panels)
    plt = import_pyplot()
    # In a narrow figure the panels stand below each other.
    limit = figsize[0] if figsize else column_width()
    columns = int(max(min(per_row, panels, limit // PANEL_WIDTH), 1))
    rows = math.ceil(panels / columns)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=figsize or (limit if limit < math.inf else size[0] * columns, size[1] * rows),
        squeeze=False,
        layout="constrained",
    )
    if rows > 1:
        # A title is closer to its own panel than to the one above.
        figure.get_layout_engine().set(h_pad=0.1)
    flat = axes.ravel()
    for unused in flat[panels:]:
        unused.remove()
    return flat[:panels]


def check_panels(panels: int) -> None:
    """Refuse a figure of so many panels that it could not be read."""
    if panels > MAX_PANELS:
        raise ValueError(
            f"{panels} panels do not fit on a figure. Select at most {MAX_PANELS} quantities with "
            "var_names= or coords=."
        )


def panel_title(panel: Axes, label: str, note: str) -> None:
    """Write a label above a panel and a note at its right, below a label that is long.

    All labels have one size, so that panels side by side look alike.
    """
    if len(label) > SHORT_TITLE:
        # The empty line is for the note.
        label = wrapped(label, PANEL_CHARACTERS) + "\n"
    panel.set_title(label, loc="left", fontsize="medium")
    panel.set_title(note, loc="right", fontsize="medium", color=REDUCED_COLOUR)


def panel_legend(axes: np.ndarray, *, outside: bool) -> None:
    """Add the legend of the first panel: above all panels, or in it if the figure is not ours."""
    handles, names = axes[0].get_legend_handles_labels()
    if not outside:
        axes[0].legend(handles, names, frameon=False, loc="best")
        return
    # Names that are too long to stand side by side stand below each other.
    figure = axes[0].figure
    fits = CHARACTER * sum(len(name) + 6 for name in names) < figure.get_size_inches()[0]
    options = {"loc": "outside upper left", "ncols": len(names) if fits else 1}
    figure.legend(handles, names, frameon=False, **options)


def label_panel(panel: Axes, xlabel: str, ylabel: str = "") -> None:
    """Write what the axes of a panel show, and leave its top and right open."""
    panel.set_xlabel(xlabel)
    panel.set_ylabel(ylabel)
    panel.spines[["top", "right"]].set_visible(False)


def plain_log_ticks(axis: Any) -> None:
    """Write 1,000 and not 10³ on a logarithmic axis, as long as the numbers stay short."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    if 0.5 <= low and high < 1e7:
        # No more numbers than stand side by side.
        width = axis.axes.get_position().width * figure_width(axis.axes)
        numbers = 0.9 * width / (CHARACTER * len(f"{high:,.0f}"))
        axis.set_major_locator(LogLocator(numticks=max(int(numbers), 2)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    # Minor labels are for ranges within one decade, where the major ones would be alone.
    if high > 10 * low:
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_minor_locator(LogLocator(subs=(2, 5)))
        axis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
