"""Figures of the estimates, their errors and what lies behind them.

Plotting libraries are imported when a figure is drawn, so that ``import az_cv`` stays light.

``backend="bokeh"`` and ``backend="plotly"`` draw through arviz-plots. For each figure there is a
function that returns what the figure shows as a Dataset, for other plotting libraries:
:func:`forest_data` for :func:`plot_forest`, and so on.
"""

from az_cv.plots.forest import forest_data, plot_forest
from az_cv.plots.gain import plot_vrf, vrf_data
from az_cv.plots.residuals import plot_residuals, residuals_data
from az_cv.plots.running import plot_running, running_data
from az_cv.plots.stein_check import plot_stein_check, stein_check_data
from az_cv.plots.structure import plot_structure, structure_data
from az_cv.plots.training import plot_training, training_data

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
    "stein_check_data",
    "structure_data",
    "training_data",
    "vrf_data",
]
