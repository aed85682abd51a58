"""Training curves of stochastic solvers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from az_cv.plots.canvas import PLAIN_COLOUR, REDUCED_COLOUR, panel_axes

if TYPE_CHECKING:
    import numpy as np

CURVES = {"loss": "training loss", "held_out_variance": "variance on held-out draws"}


def plot_training(
    result: Any,
    *,
    ax: np.ndarray | None = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Draw the loss and the held-out variance against the epoch, one line per fold.

    A held-out variance that turns up while the loss still falls means overfitting: a smaller
    network, more weight decay or fewer epochs.

    Parameters
    ----------
    result : ControlVariateResult or DataFrame
        Of a fit with a stochastic solver, or its training history with the columns ``epoch``,
        ``fold``, ``loss`` and ``held_out_variance``.
    ax : array of two matplotlib Axes, optional
    figsize : (float, float), optional
        In inches, for a new figure.

    Returns
    -------
    array of two matplotlib Axes

    Examples
    --------
    >>> import az_cv, pandas as pd
    >>> history = pd.DataFrame(
    ...     {"epoch": [1, 2], "fold": [0, 0], "loss": [1.0, 0.4], "held_out_variance": [1.1, 0.5]}
    ... )
    >>> [panel.get_title(loc="left") for panel in az_cv.plot_training(history)]
    ['training loss', 'variance on held-out draws']
    """
    history = result if isinstance(result, pd.DataFrame) else getattr(result, "history", None)
    if history is None or len(history) == 0:
        raise ValueError(
            "There is no training history: exact solvers do not train. Fit with a stochastic "
            "solver, az_cv.fit(data, solver=az_cv.SGD(...))."
        )
    missing = [name for name in ("epoch", "fold", *CURVES) if name not in history]
    if missing:
        raise ValueError(f"The history lacks {missing}. It has {list(history.columns)}.")
    axes = panel_axes(ax, figsize, len(CURVES), per_row=2)
    for panel, (column, title) in zip(axes, CURVES.items()):
        curves = history.dropna(subset=[column])
        for _, fold in curves.groupby("fold"):
            panel.plot(fold["epoch"], fold[column], color=PLAIN_COLOUR, alpha=0.6, linewidth=1)
        average = curves.groupby("epoch")[column].mean()
        panel.plot(average.index, average, color=REDUCED_COLOUR, linewidth=2, label="average")
        if (curves[column] > 0).all():
            panel.set_yscale("log")
        panel.set_title(title, loc="left")
        panel.set_xlabel("epoch (grey: one line per fold)")
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    return axes
