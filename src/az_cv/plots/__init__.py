"""Figures of the estimates, their errors and what lies behind them.

Plotting libraries are imported when a figure is drawn, so that ``import az_cv`` stays light.

``backend="bokeh"`` and ``backend="plotly"`` draw through arviz-plots. What such a figure shows is a
Dataset, from :func:`forest_data`, :func:`vrf_data`, :func:`running_data` or
:func:`residuals_data`, for other plotting libraries too. The other figures draw tables that you
have: ``result.history``, ``check_scores(data).table`` and ``structure(data).influence``, of which
``to_xarray()`` makes Datasets.
"""

from az_cv.plots.forest import forest_data, plot_forest
from az_cv.plots.gain import plot_vrf, vrf_data
from az_cv.plots.residuals import plot_residuals, residuals_data
from az_cv.plots.running import plot_running, running_data
from az_cv.plots.stein_check import plot_stein_check
from az_cv.plots.structure import plot_structure
from az_cv.plots.training import plot_training

__all__ = [
    "forest_data",
    "plot_forest",
    "plot_residuals",
    "plot_running",
    "plot_stein_check",
    "plot_structure",
    "plot_training",
    "plot_vrf",
    "residuals_data",
    "running_data",
    "vrf_data",
]
