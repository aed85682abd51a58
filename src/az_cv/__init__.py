"""Variance-reduced posterior summaries through Stein control variates."""

from az_cv.check_scores import check_scores
from az_cv.covariance import covariance
from az_cv.datasets import load_eight_schools
from az_cv.diagnostics import stein_diagnostics
from az_cv.engine.cache import clear_cache
from az_cv.engine.score_check import ScoreCheck, ScoreWarning
from az_cv.families import (
    Ensemble,
    Kernel,
    NeuralNetwork,
    Polynomial,
    Potential,
    paper_kernels,
)
from az_cv.fit import fit
from az_cv.labelled.result import ControlVariateResult
from az_cv.log_mean_exp import log_mean_exp
from az_cv.plots import (
    plot_forest,
    plot_residuals,
    plot_running,
    plot_stein_check,
    plot_training,
    plot_vrf,
)
from az_cv.scores.cmdstan import cmdstan_scores, read_cmdstan_scores
from az_cv.scores.dispatch import scores
from az_cv.scores.log_density import log_density_scores
from az_cv.scores.schema import scores_dataset
from az_cv.scores.stan_model import load_stan_model
from az_cv.solvers import SGD, Exact, inverse_schedule
from az_cv.summary import summary
from az_cv.version import __version__

__all__ = [
    "SGD",
    "ControlVariateResult",
    "Ensemble",
    "Exact",
    "Kernel",
    "NeuralNetwork",
    "Polynomial",
    "Potential",
    "ScoreCheck",
    "ScoreWarning",
    "__version__",
    "check_scores",
    "clear_cache",
    "cmdstan_scores",
    "covariance",
    "fit",
    "inverse_schedule",
    "load_eight_schools",
    "load_stan_model",
    "log_density_scores",
    "log_mean_exp",
    "paper_kernels",
    "plot_forest",
    "plot_residuals",
    "plot_running",
    "plot_stein_check",
    "plot_training",
    "plot_vrf",
    "read_cmdstan_scores",
    "scores",
    "scores_dataset",
    "stein_diagnostics",
    "summary",
]
