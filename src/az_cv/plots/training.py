"""Training curves of stochastic solvers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from az_cv.plots.canvas import MEMBER_COLOURS, panel_axes

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
        The result of a fit with a stochastic solver, or its training history with the columns
        ``epoch``, ``fold``, ``loss`` and ``held_out_variance``, and ``member`` where there are
        several families. Where training started again (``restart``) the last start is drawn.
    ax : array of two matplotlib Axes, optional
    figsize : (float, float), optional
        In inches, for a new figure.

    Returns
    -------
    array of two matplotlib Axes

    See Also
    --------
    az_cv.SGD : Trains families on minibatches.
    az_cv.NeuralNetwork : A family that is always trained.

    Examples
    --------
    >>> import az_cv, pandas as pd
    >>> history = pd.DataFrame(
    ...     {"epoch": [1, 2], "fold": [0, 0], "loss": [1.0, 0.4], "held_out_variance": [1.1, 0.5]}
    ... )
    >>> [panel.get_title(loc="left") for panel in az_cv.plots.plot_training(history)]
    ['training loss', 'variance on held-out draws']
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
    axes = panel_axes(ax, figsize, len(CURVES), per_row=2)
    for panel, (column, title) in zip(axes, CURVES.items()):
        curves = history.dropna(subset=[column])
        members = list(curves.groupby("member", sort=False))
        for (member, lines), colour in zip(members, MEMBER_COLOURS * len(members)):
            for _, fold in lines.groupby("fold"):
                panel.plot(fold["epoch"], fold[column], color=colour, alpha=0.35, linewidth=1)
            average = lines.groupby("epoch")[column].mean()
            panel.plot(average.index, average, color=colour, linewidth=2, label=member)
        if (curves[column] > 0).all():
            panel.set_yscale("log")
        panel.set_title(title, loc="left")
        panel.set_xlabel("epoch (thin: one line per fold)")
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    return axes


def _last_starts(history: pd.DataFrame) -> pd.DataFrame:
    """Return the history with a column ``member``, without runs that were given up."""
    if "member" not in history:
        history = history.assign(member="average")
    if "restart" in history:
        last = history.groupby(["member", "fold"])["restart"].transform("max")
        history = history[history["restart"] == last]
    return history
