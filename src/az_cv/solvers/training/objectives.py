"""What training minimises, on a minibatch of residuals ``r = f - g``.

Each function returns one number per output, half a mean square, so that its Hessian with respect to
the coefficients of a linear family is the covariance of the features.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Int

OBJECTIVES = ("least_squares", "variance", "batch_means")


def least_squares(residual: Any, intercept: Any) -> Any:
    """Return ``mean (r - c)^2 / 2`` with the trained intercept c.

    Examples
    --------
    >>> float(least_squares(np.array([[1.0], [3.0]]), np.array([1.0]))[0])
    1.0
    """
    return 0.5 * ((residual - intercept) ** 2).mean(axis=0)


def pairwise_variance(residual: Any) -> Any:
    """Return half the average of ``(r_i - r_j)^2 / 2`` over pairs: half the sample variance.

    The paper sums ``2 / (b (b - 1)) (r_i - r_j)^2`` over the same pairs, four times this.

    Examples
    --------
    >>> float(pairwise_variance(np.array([[1.0], [3.0]]))[0])
    1.0
    """
    b = residual.shape[0]
    return 0.5 * ((residual - residual.mean(axis=0)) ** 2).sum(axis=0) / (b - 1)


def batch_means(residual: Any, intercept: Any, window: int) -> Any:
    """Return half the asymptotic variance of the mean of a chain, by batch means.

    The rows are runs of `window` successive draws; `window` times the mean square of their averages
    estimates the variance of ``sqrt(n)`` times the mean of the whole chain.
    """
    runs = residual.reshape(-1, window, residual.shape[1])
    return 0.5 * window * ((runs.mean(axis=1) - intercept) ** 2).mean(axis=0)


def default_window(draws: int) -> int:
    """Return the length of the runs of `batch_means`: ``sqrt(draws)``.

    Examples
    --------
    >>> default_window(1000)
    32
    """
    return max(2, min(math.ceil(math.sqrt(draws)), draws // 2))


def run_starts(rows: Int[np.ndarray, " m"], draws: int, window: int) -> Int[np.ndarray, " k"]:
    """Return the rows at which a run of successive draws of one chain begins, within `rows`.

    Examples
    --------
    >>> run_starts(np.array([0, 1, 2, 4, 5, 6]), draws=4, window=2)
    array([0, 1, 4, 5])
    """
    ordered = np.sort(rows)
    last = ordered[window - 1 :]
    first = ordered[: len(last)]
    return first[(last - first == window - 1) & (first // draws == last // draws)]
