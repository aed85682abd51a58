"""Variance-reduced posterior summaries through Stein control variates."""

from az_cv.datasets import load_eight_schools
from az_cv.families import Ensemble, Kernel, Polynomial, paper_kernels
from az_cv.fit import fit
from az_cv.plots import (
    plot_forest,
    plot_residuals,
    plot_running,
    plot_stein_check,
    plot_training,
    plot_vrf,
)
from az_cv.result import ControlVariateResult
from az_cv.scores.dispatch import scores
from az_cv.scores.schema import scores_dataset
from az_cv.solvers import Exact
from az_cv.summary import summary

__version__ = "0.1.0"

__all__ = [
    "ControlVariateResult",
    "Ensemble",
    "Exact",
    "Kernel",
    "Polynomial",
    "__version__",
    "fit",
    "load_eight_schools",
    "paper_kernels",
    "plot_forest",
    "plot_residuals",
    "plot_running",
    "plot_stein_check",
    "plot_training",
    "plot_vrf",
    "scores",
    "scores_dataset",
    "summary",
]
