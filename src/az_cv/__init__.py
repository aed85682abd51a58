"""Variance-reduced posterior summaries through Stein control variates.

Here is what a user of `summary` needs. More lies in

* :mod:`az_cv.plots`: figures;
* :mod:`az_cv.sources`: gradients from CmdStan files, Stan models and log densities;
* :mod:`az_cv.families` and :mod:`az_cv.solvers`: control variates, and ways to find them;
* :mod:`az_cv.diagnostics`: the Stein identities of each parameter;
* :mod:`az_cv.testing`: targets with known answers.
"""

import importlib
import warnings
from typing import Any

from az_cv import diagnostics, families, plots, solvers, sources
from az_cv.bayes_factor import BayesFactor, bayes_factor, compare_evidence
from az_cv.check_scores import check_scores
from az_cv.covariance import covariance
from az_cv.datasets import load_eight_schools
from az_cv.draws_needed import draws_needed
from az_cv.engine.cache import clear_cache
from az_cv.engine.score_check import ScoreWarning
from az_cv.families import Ensemble, HierarchicalKernel, Kernel, NeuralNetwork, Polynomial
from az_cv.fit import fit
from az_cv.labelled.evidence import Evidence
from az_cv.labelled.result import ControlVariateResult
from az_cv.log_evidence import log_evidence
from az_cv.log_mean_exp import log_mean_exp
from az_cv.quick import quick
from az_cv.solvers import SGD, Exact
from az_cv.sources import ladder_dataset, scores, scores_dataset
from az_cv.stein_weights import stein_weights
from az_cv.structure import structure
from az_cv.summary import summary
from az_cv.temperature_ladder import temperature_ladder
from az_cv.thermodynamic import smc_evidence, thermodynamic_evidence
from az_cv.version import __version__

__all__ = [
    "SGD",
    "BayesFactor",
    "ControlVariateResult",
    "Ensemble",
    "Evidence",
    "Exact",
    "HierarchicalKernel",
    "Kernel",
    "NeuralNetwork",
    "Polynomial",
    "ScoreWarning",
    "__version__",
    "bayes_factor",
    "check_scores",
    "clear_cache",
    "compare_evidence",
    "covariance",
    "diagnostics",
    "draws_needed",
    "families",
    "fit",
    "ladder_dataset",
    "load_eight_schools",
    "log_evidence",
    "log_mean_exp",
    "plots",
    "quick",
    "scores",
    "scores_dataset",
    "smc_evidence",
    "solvers",
    "sources",
    "stein_weights",
    "structure",
    "summary",
    "temperature_ladder",
    "thermodynamic_evidence",
]

# Names that were here in development versions, and the module where they are now.
_MOVED = {
    **dict.fromkeys((name for name in plots.__all__ if name.startswith("plot_")), "az_cv.plots"),
    **dict.fromkeys(set(sources.__all__) - set(__all__), "az_cv.sources"),
    **dict.fromkeys(("ScoreCheck", "stein_diagnostics"), "az_cv.diagnostics"),
    **dict.fromkeys(("Potential", "paper_kernels"), "az_cv.families"),
    "inverse_schedule": "az_cv.solvers",
}


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module 'az_cv' has no attribute {name!r}.")
    warnings.warn(f"az_cv.{name} is now {_MOVED[name]}.{name}.", DeprecationWarning, stacklevel=2)
    return getattr(importlib.import_module(_MOVED[name]), name)
