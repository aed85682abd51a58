"""Figures of the estimates, their errors and what lies behind them.

matplotlib is imported when a figure is drawn, so that ``import az_cv`` stays light.

There is no ``backend=``. The figures of arviz-plots show draws, and those here show estimates and
their errors, for which arviz-plots has no figure that its backends could draw. :func:`forest_data`
and :func:`running_data` return what the figures show as a Dataset, for Bokeh, Plotly and others.
"""

from az_cv.plots.forest import forest_data, plot_forest
from az_cv.plots.gain import plot_vrf
from az_cv.plots.residuals import plot_residuals
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
    "running_data",
]
