"""Variance-reduced posterior summaries through Stein control variates."""

from az_cv.datasets import load_eight_schools
from az_cv.families import Ensemble, Kernel, Polynomial, paper_kernels
from az_cv.fit import fit
from az_cv.result import ControlVariateResult
from az_cv.scores.cmdstan import cmdstan_scores, read_cmdstan_scores
from az_cv.scores.dispatch import scores
from az_cv.scores.log_density import log_density_scores
from az_cv.scores.schema import scores_dataset
from az_cv.scores.stan_model import load_stan_model
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
    "cmdstan_scores",
    "fit",
    "load_eight_schools",
    "load_stan_model",
    "log_density_scores",
    "paper_kernels",
    "read_cmdstan_scores",
    "scores",
    "scores_dataset",
    "summary",
]
