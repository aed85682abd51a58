"""Affine whitening of draws and scores.

``x~ = C^-1 (x - m)`` and ``s~ = C' s`` with ``C C'`` the covariance of the draws. Any linear map
keeps the Stein identity, so a rough covariance costs accuracy and never correctness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from az_cv.notices import notify

if TYPE_CHECKING:
    from jaxtyping import Float

# Directions whose variance, on the scale of a correlation matrix, is below this are dropped: the
# covariance of double-precision draws holds no information there.
SINGULAR = 1e-13


@dataclass(frozen=True)
class Whitening:
    """A linear map to coordinates of mean zero and unit covariance.

    Attributes
    ----------
    mean : array of shape (d,)
    scale : array of shape (d, r)
        ``C``; r < d where directions without variance were dropped.
    inverse : array of shape (r, d)
        The left inverse of ``C``.
    """

    mean: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, "d r"]
    inverse: Float[np.ndarray, "r d"]

    def draws(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n r"]:
        """Standardise draws."""
        return (x - self.mean) @ self.inverse.T

    def scores(self, s: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n r"]:
        """Standardise scores."""
        return s @ self.scale


def fit_whitening(x: Float[np.ndarray, "n d"]) -> Whitening:
    """Whiten by the covariance of the draws.

    Constant and duplicated coordinates are dropped, and with fewer than two draws per dimension the
    covariance is shrunk towards its diagonal; both with a warning.

    Examples
    --------
    >>> import numpy as np
    >>> factor = np.array([[2.0, 0.0], [1.0, 0.1]])
    >>> x = np.random.default_rng(0).normal(size=(500, 2)) @ factor
    >>> np.allclose(np.cov(fit_whitening(x).draws(x).T), np.eye(2))
    True
    """
    n, d = x.shape
    mean = x.mean(axis=0)
    sd = x.std(axis=0, ddof=1)
    # A column of equal numbers has a rounding-sized sd, not always zero.
    moving = sd > 8 * np.finfo(float).eps * np.abs(x).max(axis=0)
    if not moving.any():
        raise ValueError(f"All {d} unconstrained parameters are constant over {n} draws.")
    sd = np.where(moving, sd, 1.0)
    correlation = np.corrcoef(((x - mean) / sd)[:, moving], rowvar=False).reshape(moving.sum(), -1)
    if n < 2 * d:
        correlation = 0.5 * correlation + 0.5 * np.eye(len(correlation))
        notify(
            f"{n} draws for {d} parameters: their covariance was shrunk halfway to its diagonal. "
            "More draws would standardise better."
        )
    factor, inverse = root_and_inverse(correlation)
    rank = factor.shape[1]
    if rank < d:
        notify(
            f"The draws vary in {rank} of {d} unconstrained directions "
            f"({d - int(moving.sum())} constant, {int(moving.sum()) - rank} linear combinations of "
            "others). The remaining directions are used."
        )
    scale, left_inverse = np.zeros((d, rank)), np.zeros((rank, d))
    scale[moving] = sd[moving, None] * factor
    left_inverse[:, moving] = inverse / sd[moving]
    return Whitening(mean, scale, left_inverse)


def root_and_inverse(
    covariance: Float[np.ndarray, "m m"],
) -> tuple[Float[np.ndarray, "m r"], Float[np.ndarray, "r m"]]:
    """Return a root of a covariance, in the directions that vary, and its left inverse."""
    try:
        factor = scipy.linalg.cholesky(covariance, lower=True)
        well_posed = np.diag(factor).min() ** 2 > SINGULAR
    except scipy.linalg.LinAlgError:
        well_posed = False
    if well_posed:
        return factor, scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True)
    values, vectors = scipy.linalg.eigh(covariance)
    kept = values > SINGULAR * values[-1]
    roots = np.sqrt(values[kept])
    return vectors[:, kept] * roots, (vectors[:, kept] / roots).T
