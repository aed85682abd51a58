"""Variance-reduced posterior summaries through Stein control variates."""

from az_cv.datasets import load_eight_schools
from az_cv.families import (
    Ensemble,
    Kernel,
    NeuralNetwork,
    Polynomial,
    Potential,
    paper_kernels,
)
from az_cv.fit import fit
from az_cv.result import ControlVariateResult
from az_cv.scores.dispatch import scores
from az_cv.scores.schema import scores_dataset
from az_cv.solvers import SGD, Exact, inverse_schedule
from az_cv.summary import summary

__version__ = "0.1.0"

__all__ = [
    "SGD",
    "ControlVariateResult",
    "Ensemble",
    "Exact",
    "Kernel",
    "NeuralNetwork",
    "Polynomial",
    "Potential",
    "__version__",
    "fit",
    "inverse_schedule",
    "load_eight_schools",
    "paper_kernels",
    "scores",
    "scores_dataset",
    "summary",
]
