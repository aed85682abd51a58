"""How the posterior differs from the density of draws that came from elsewhere.

``log pi / q`` at the draws, up to a constant, for a ``q`` that nobody knows: as if it were
Gaussian, or from the scores alone. Either is good enough to read residuals with, and neither is
believed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import scipy.stats
from arviz_stats.base import array_stats

from az_cv.engine.whitening import fit_whitening
from az_cv.families import Polynomial

if TYPE_CHECKING:
    from jaxtyping import Float

    Vector = Float[np.ndarray, " n"]
    Matrix = Float[np.ndarray, "n d"]

SUPPORT = 4  # draws for each coefficient of a cubic ratio
NOISE = 2.0  # coefficients within so many standard errors of zero are zero
UNLIKELY = 1e-3  # draws of a Gaussian are taken for others with this probability


def smooth_weights(log_weights: Vector) -> tuple[Vector, float]:
    """Smooth the tail of importance weights with a Pareto distribution.

    Returns
    -------
    weights : array of shape (n,)
        They sum to one.
    pareto_k : float
        Pareto k of the unsmoothed weights. Their variance exists below 1/2, their mean below 1.
        NaN for equal weights.

    Examples
    --------
    >>> weights, k = smooth_weights(np.random.default_rng(0).normal(size=1000))
    >>> bool(k < 0.7), round(float(weights.sum()), 12)
    (True, 1.0)
    """
    if np.ptp(log_weights) == 0:
        return np.full(len(log_weights), 1 / len(log_weights)), np.nan
    # ArviZ takes log likelihoods that were left out: weights are one over them.
    smoothed, k = array_stats.psislw(log_weights.max() - log_weights)
    weights = np.exp(smoothed - smoothed.max())
    return weights / weights.sum(), float(k)


def log_ratio(x: Matrix, s: Matrix, log_density: Vector | None) -> Vector:
    """Return ``log pi / q`` at draws from an unknown ``q``, up to a constant.

    Parameters
    ----------
    x, s : arrays of shape (n, d)
        Unconstrained draws, and scores of the posterior.
    log_density : array of shape (n,), optional
        Log density of the posterior, up to a constant. If it is given, draws that look Gaussian
        are treated as Gaussian.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(4000, 1))
    >>> found = log_ratio(x, -(x - 0.5), None)  # the posterior is N(1/2, 1)
    >>> bool(np.corrcoef(found, 0.5 * x[:, 0])[0, 1] > 0.999)
    True
    """
    whitening = fit_whitening(x)
    z = whitening.draws(x)
    if log_density is not None and np.isfinite(log_density).all() and is_gaussian(z):
        n, d = z.shape
        # The inverse of an estimated covariance is too large by this factor.
        return log_density + 0.5 * (z**2).sum(axis=1) * max(n - d - 2, 1) / n
    return _hermite_ratio(z, whitening.scores(s))


def curvatures(x: Matrix, s: Matrix) -> tuple[float, float]:
    """Return the least and largest curvature of the posterior at the draws, in units of theirs.

    ``-E[z s']`` of whitened draws is the identity for draws of the posterior. Where it is far from
    that, a region that the draws do not reach may decide, and their weights do not show it.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(2000, 2))
    >>> [round(value) for value in curvatures(x, -3 * x)]
    [3, 3]
    """
    whitening = fit_whitening(x)
    z, scores = whitening.draws(x), whitening.scores(s)
    slope = -z.T @ (scores - scores.mean(axis=0)) / (len(z) - 1)
    values = np.linalg.eigvalsh((slope + slope.T) / 2)
    return float(values[0]), float(values[-1])


def is_gaussian(z: Matrix) -> bool:
    """Tell whether whitened draws may come from a Gaussian, by skewness, kurtosis and radius."""
    n, d = z.shape
    skewness = (z**3).mean(axis=0) / math.sqrt(6 / n)
    kurtosis = ((z**4).mean(axis=0) - 3) / math.sqrt(24 / n)
    spread = ((z**2).sum(axis=1).var() - 2 * d) / math.sqrt((8 * d**2 + 48 * d) / n)
    worst = max(np.abs(skewness).max(), np.abs(kurtosis).max(), abs(float(spread)))
    return bool(2 * scipy.stats.norm.sf(worst) * (2 * d + 1) > UNLIKELY)


def _hermite_ratio(z: Matrix, s: Matrix) -> Vector:
    """Return the ratio as a polynomial, from the scores of the posterior alone.

    For draws from ``q`` and any ``u``, ``E_q[L u] = E_q[grad u . grad log pi/q]``: coefficients of
    Hermite polynomials, which are orthogonal under a Gaussian, are averages of ``L u``.
    """
    n, d = z.shape
    order = 3 if SUPPORT * math.comb(d + 3, 3) <= n else 2 if math.comb(d + 2, 2) <= n else 1
    family = Polynomial(order=order, degree_scale=1.0)
    features = family.features(z, s)
    means = features.mean(axis=0)
    clear = np.abs(means) > NOISE * features.std(axis=0) / math.sqrt(n)
    hermite = [np.ones_like(z), z, z**2 - 1, z**3 - 3 * z]
    ratio = np.zeros(n)
    for mean, index, counts in zip(means, family.multi_indices(d), clear):
        if not counts:
            continue
        powers = {j: index.count(j) for j in index}
        size = math.sqrt(math.prod(math.factorial(a) for a in powers.values()))
        term = np.ones(n)
        for j, a in powers.items():
            term = term * hermite[a][:, j]
        ratio += mean * term / size
    return ratio
