"""Sources of gradients: one module for each, with a function that returns the scores."""

from az_cv.sources.blackjax_pathfinder import pathfinder_draws
from az_cv.sources.cmdstan import cmdstan_scores, read_cmdstan_scores
from az_cv.sources.cmdstan_approximation import cmdstan_approximation
from az_cv.sources.cmdstan_store import cmdstan_to_zarr
from az_cv.sources.dispatch import scores
from az_cv.sources.laplace import laplace_draws
from az_cv.sources.log_density import log_density_scores
from az_cv.sources.numpyro_guide import guide_draws
from az_cv.sources.schema import scores_dataset
from az_cv.sources.stan_model import load_stan_model
from az_cv.sources.tempered import ladder_dataset
from az_cv.sources.written_scores import write_scores

__all__ = [
    "cmdstan_approximation",
    "cmdstan_scores",
    "cmdstan_to_zarr",
    "guide_draws",
    "ladder_dataset",
    "laplace_draws",
    "load_stan_model",
    "log_density_scores",
    "pathfinder_draws",
    "read_cmdstan_scores",
    "scores",
    "scores_dataset",
    "write_scores",
]
