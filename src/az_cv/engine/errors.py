"""Standard errors of estimates, judged by residuals on draws that were left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.stats

from az_cv.engine.effective_size import effective_size
from az_cv.solvers.linear.extremes import sums_of_largest

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.solvers.error_model import ErrorModel

    PerOutput = Float[np.ndarray, " q"]
    Chains = Float[np.ndarray, "chain draw q"]


@dataclass(frozen=True)
class Scatter:
    """What residuals tell of an error, whatever lies beyond the draws.

    Attributes
    ----------
    error : array of shape (q,)
        The MCSE of the residual chains by ArviZ, with no credit for negative autocorrelation,
        widened by Student's t when few residuals carry most of the variance.
    told : array of shape (q,)
        Share of the variance that the largest residuals carry.
    """

    error: PerOutput
    told: PerOutput

    def with_tail(self, tail: PerOutput) -> PerOutput:
        """Return the standard errors of estimates with this error from beyond the draws."""
        return np.sqrt(self.error**2 + np.maximum(tail**2 - self.told * self.error**2, 0))


def scatter_of(adjusted: Chains, errors: ErrorModel) -> Scatter:
    """Return the scatter of out-of-fold residuals, an array of shape (chain, draw, q)."""
    chains, draws, _ = adjusted.shape
    n = chains * draws
    residual = adjusted - adjusted.mean(axis=(0, 1))
    squares = residual**2
    variance = squares.mean(axis=(0, 1))
    ess = np.minimum(effective_size(residual), errors.efficiency * n)
    with np.errstate(invalid="ignore", divide="ignore"):
        # Satterthwaite: the variance has as many degrees of freedom as its own spread says.
        share = np.einsum("cdq,cdq->q", squares, squares) / (n * variance) ** 2
        freedom = 2 / np.maximum(share - 1 / n, 2 / n)
    freedom = np.where(np.isfinite(freedom), freedom, n)
    scatter = np.sqrt(variance / ess) * _t_factor(freedom, errors.level)
    with np.errstate(invalid="ignore", divide="ignore"):
        told = sums_of_largest(squares.reshape(n, -1).T, errors.largest) / (n * variance)
    return Scatter(scatter, np.nan_to_num(told))


def standard_error(adjusted: Chains, tail: PerOutput, errors: ErrorModel) -> PerOutput:
    """Return the Monte Carlo standard error of estimates judged by out-of-fold residuals.

    Two parts, each there because the other misses it:

    * the scatter of the residuals;
    * the region beyond the outermost draws, where no residual speaks (`tail`), as far as it exceeds
      what the largest residuals, those of outermost draws when tails are heavy, already tell.

    Parameters
    ----------
    adjusted : array of shape (chain, draw, q)
    tail : array of shape (q,)
    errors : ErrorModel
    """
    return scatter_of(adjusted, errors).with_tail(tail)


def plain_standard_error(outputs: Chains) -> PerOutput:
    """Return ArviZ's MCSE of the mean of each output."""
    sd = outputs.std(axis=(0, 1), ddof=1)
    return sd / np.sqrt(effective_size(outputs))


def rounding_error(outputs: Chains) -> PerOutput:
    """Return the error below which no estimate from these outputs can go."""
    return np.finfo(float).eps * np.abs(outputs).max(axis=(0, 1))


def _t_factor(freedom: np.ndarray, level: float) -> np.ndarray:
    """Return by how much an interval widens when its variance has few degrees of freedom."""
    return np.asarray(scipy.stats.t.ppf(level, freedom)) / scipy.stats.norm.ppf(level)
