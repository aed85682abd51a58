"""Whitening of many draws, and of draws in so many dimensions that no covariance is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import scipy.linalg

from az_cv.engine.whitening import Whitening, fit_whitening, root_and_inverse
from az_cv.notices import notify, silenced

if TYPE_CHECKING:
    from jaxtyping import Float

    Rows = Float[np.ndarray, "n d"]

# From this dimension on the covariance is not estimated in full.
LARGE = 2000
PER_DIMENSION = 2  # draws that a full covariance takes


class Standardising(Protocol):
    """A linear map of draws, and of scores the other way."""

    def draws(self, x: Rows) -> Rows:
        """Standardise draws."""
        ...

    def scores(self, s: Rows) -> Rows:
        """Standardise scores."""
        ...


@dataclass(frozen=True)
class LowRankWhitening:
    """A covariance of few directions and a diagonal: ``C = D (I + U a U')``.

    Attributes
    ----------
    mean, sd : arrays of shape (d,)
    directions : array of shape (d, k)
        ``U``, orthonormal.
    stretch : array of shape (k,)
        ``1 + a``: the standard deviations along the directions, in units of `sd`.
    """

    mean: Float[np.ndarray, " d"]
    sd: Float[np.ndarray, " d"]
    directions: Float[np.ndarray, "d k"]
    stretch: Float[np.ndarray, " k"]

    def draws(self, x: Rows) -> Rows:
        """Standardise draws."""
        z = (x - self.mean) / self.sd
        return z + ((z @ self.directions) * (1 / self.stretch - 1)) @ self.directions.T

    def scores(self, s: Rows) -> Rows:
        """Standardise scores."""
        z = s * self.sd
        return z + ((z @ self.directions) * (self.stretch - 1)) @ self.directions.T


def first_whitening(x: Rows, n: int) -> Whitening | LowRankWhitening:
    """Whiten by the covariance of some of the draws.

    Parameters
    ----------
    x : array of shape (m, d)
        Spread over the chains.
    n : int
        Draws in all.
    """
    d = x.shape[1]
    if d <= LARGE and n >= PER_DIMENSION * d:
        with silenced():  # all draws will tell
            return fit_whitening(x)
    return low_rank_whitening(x)


def low_rank_whitening(x: Rows) -> LowRankWhitening:
    """Return the directions in which draws scatter by more than chance explains, and a diagonal.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(50, 400)) + 3 * rng.normal(size=(50, 1))
    >>> len(low_rank_whitening(x).stretch)
    1
    """
    n, d = x.shape
    mean, sd = x.mean(axis=0), x.std(axis=0, ddof=1)
    sd = np.where(sd > 0, sd, 1.0)
    _, singular, rows = scipy.linalg.svd((x - mean) / sd, full_matrices=False)
    values = singular**2 / (n - 1)
    ratio = d / n
    # Marchenko and Pastur: no sample eigenvalue of independent coordinates lies above the edge.
    # Above it the true one is smaller than that of the sample, by a known amount.
    beyond = values > (1 + np.sqrt(ratio)) ** 2 * 1.05
    b = values[beyond] + 1 - ratio
    spikes = (b + np.sqrt(np.maximum(b**2 - 4 * values[beyond], 0))) / 2
    return LowRankWhitening(mean, sd, rows[beyond].T, np.sqrt(np.maximum(spikes, 1.0)))


def refined(
    first: Whitening, mean: Float[np.ndarray, " r"], covariance: Float[np.ndarray, "r r"], d: int
) -> Whitening:
    """Return the whitening by all draws, whose moments are known in the coordinates of `first`."""
    factor, inverse = root_and_inverse(covariance)
    if factor.shape[1] < d:
        notify(
            f"The draws vary in {factor.shape[1]} of {d} unconstrained directions. The remaining "
            "directions are used."
        )
    scale, inverse = first.scale @ factor, inverse @ first.inverse
    if len(scale) == scale.shape[1]:
        # The symmetric root, on the scale of a correlation matrix: squares without interactions
        # have a mean of (d - 2 j) / n in the j-th coordinate of a Cholesky factor of these draws.
        left, _, right = np.linalg.svd(scale / np.linalg.norm(scale, axis=1)[:, None])
        scale, inverse = scale @ (left @ right).T, left @ right @ inverse
    return Whitening(first.mean + first.scale @ mean, scale, inverse)
