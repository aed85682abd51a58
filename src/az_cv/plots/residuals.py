"""Out-of-fold residuals against fitted values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from az_cv.plots.canvas import PLAIN_COLOUR, REDUCED_COLOUR, panel_axes, panel_title
from az_cv.plots.rows import draw_rows, read_draws, select

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arviz_base.labels import Labeller
    from matplotlib.axes import Axes

    from az_cv.labelled.integrands import Integrand


def plot_residuals(
    data: Any,
    fn: Integrand = None,
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: Literal["like", "regex"] | None = None,
    coords: dict[str, Any] | None = None,
    labeller: Labeller | None = None,
    ax: Axes | np.ndarray | None = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Draw what the control variate leaves of each draw against what it explains.

    Each point is a draw, predicted by a fit that has not seen it. Points on the horizontal line are
    explained in full. Bends say that a richer family would help, far-off points that few draws
    carry the error.

    Parameters
    ----------
    data : InferenceData or DataTree
        Data to which :func:`az_cv.summary` attached its results.
    fn : callable or dict of callables, optional
        What was summarised. ``None``: the variables of the posterior.
    var_names, filter_vars, coords
        Select quantities, as in ArviZ.
    labeller : arviz_base.labels.Labeller, optional
    ax : matplotlib Axes or array of them, optional
        One for each quantity.
    figsize : (float, float), optional
        In inches, for a new figure.

    Returns
    -------
    array of matplotlib Axes

    See Also
    --------
    plot_vrf : Gains as bars.
    az_cv.summary : Attaches what is drawn.

    Examples
    --------
    >>> import az_cv
    >>> data = az_cv.load_eight_schools().isel(draw=slice(100))
    >>> table = az_cv.summary(data, family="polynomial", var_names=["mu", "tau"])
    >>> len(az_cv.plots.plot_residuals(data))
    2
    """
    plain, adjusted = (select(d, var_names, filter_vars, coords) for d in read_draws(data, fn))
    rows = draw_rows(plain, labeller)
    axes = panel_axes(ax, figsize, len(rows))
    for panel, (label, values), (_, left) in zip(axes, rows, draw_rows(adjusted, labeller)):
        draws, residual = values.values.ravel(), (left - left.mean()).values.ravel()
        fitted = draws - residual
        panel.plot(
            fitted,
            residual,
            linestyle="none",
            marker=".",
            markersize=4,
            alpha=0.5,
            color=REDUCED_COLOUR,
            markeredgewidth=0,
            rasterized=len(draws) > 10_000,
        )
        panel.axhline(0, color=PLAIN_COLOUR, linewidth=1, zorder=0)
        panel_title(panel, label, f"sd {np.std(draws):.2g} → {np.std(residual):.2g}")
        if np.ptp(fitted) < 1e-6 * np.ptp(residual):
            # Nothing was fitted: without this the axis would show rounding errors.
            panel.set_xlim(fitted.mean() - np.ptp(residual), fitted.mean() + np.ptp(residual))
        panel.set_xlabel("fitted")
        panel.set_ylabel("residual, out of fold")
        panel.spines[["top", "right"]].set_visible(False)
    return axes
