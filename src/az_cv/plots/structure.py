"""Which parameters govern others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from az_cv.plots.canvas import PLAIN_COLOUR, REDUCED_COLOUR, row_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from az_cv.structure import Structure


def plot_structure(
    structure: Structure,
    *,
    rows: int = 15,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Axes:
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

    Returns
    -------
    matplotlib Axes

    See Also
    --------
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
    if rows < 1:
        raise ValueError(f"rows must be at least 1; it is {rows}.")
    shown = structure.influence.iloc[:rows]
    ax = row_axes(ax, figsize, [str(name) for name in shown.index])
    colours = [REDUCED_COLOUR if name in structure.top else PLAIN_COLOUR for name in shown.index]
    position = np.arange(len(shown))
    ax.barh(position, np.maximum(shown.to_numpy(), 0.0), height=0.62, color=colours)
    ax.set_xlabel("influence: how many other scores' worth it explains")
    return ax
