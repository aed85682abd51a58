"""Stein identities, as averages over the draws with their standard errors.

If ``s`` is the score of the distribution that the draws ``x`` come from, then ``E[s] = 0`` and
``E[(x - E x) s'] = -I``.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import scipy.stats

from az_cv.engine.whitening import fit_whitening
from az_cv.notices import silenced

if TYPE_CHECKING:
    from jaxtyping import Float

    Chains = Float[np.ndarray, "chain draw d"]


def standardise(x: Chains, s: Chains) -> tuple[Chains, Chains]:
    """Whiten; scale only where the draws are too few to tell their covariance."""
    chains, draws, d = x.shape
    if chains * draws < 10 * d:
        sd = x.std(axis=(0, 1))
        scale = np.where(sd > 0, sd, 1.0)
        return (x - x.mean(axis=(0, 1))) / scale, s * scale
    with silenced():  # of a singular covariance: fitting reports it
        whitening = fit_whitening(x.reshape(-1, d))
    return (
        whitening.draws(x.reshape(-1, d)).reshape(chains, draws, -1),
        whitening.scores(s.reshape(-1, d)).reshape(chains, draws, -1),
    )


def identities(x: Chains, s: Chains) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    """Return ``E[s]`` and ``E[(x - E x) s']`` with standard errors by batch means.

    Returns
    -------
    mean, mean_error : arrays of shape (d,)
    slope, slope_error : arrays of shape (d, d)
    freedom : int
        Degrees of freedom of the errors.
    """
    centred = x - x.mean(axis=(0, 1))
    d = x.shape[2]
    first, second = np.zeros(d), np.zeros(d)
    first_slope, second_slope = np.zeros((d, d)), np.zeros((d, d))
    parts = list(batches(x.shape[0], x.shape[1]))
    for chain, rows in parts:
        mean = s[chain, rows].mean(axis=0)
        slope = centred[chain, rows].T @ s[chain, rows] / len(s[chain, rows])
        first, second = first + mean, second + mean**2
        first_slope, second_slope = first_slope + slope, second_slope + slope**2
    count = len(parts)

    def average(total: np.ndarray, squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        centre = total / count
        variance = np.maximum(squares / count - centre**2, 0) / (count - 1)
        return centre, np.sqrt(variance)

    return *average(first, second), *average(first_slope, second_slope), count - 1


def batches(chains: int, draws: int) -> itertools.product[tuple[int, slice]]:
    """Cut each chain into about as many batches as each batch has draws."""
    number = max(2, int(np.sqrt(draws)))
    length = draws // number
    slices = [slice(k * length, (k + 1) * length) for k in range(number)]
    return itertools.product(range(chains), slices)


def overall_slope(x: Chains, s: Chains) -> tuple[float, float]:
    """Return the average of ``(x - E x) s`` over all coordinates, and its standard error."""
    product = ((x - x.mean(axis=(0, 1))) * s).mean(axis=2)
    means = np.array([product[chain, rows].mean() for chain, rows in batches(*product.shape)])
    return float(means.mean()), float(means.std(ddof=1) / np.sqrt(len(means)))


def z_scores(deviation: np.ndarray, error: np.ndarray, freedom: int) -> np.ndarray:
    """Return normal z-scores with the tail probability of Student's t."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(error > 0, deviation / error, 0.0)
    # A mean score that is constant has no error; a deviation beyond rounding is then certain.
    t = np.where((error == 0) & (np.abs(deviation) > 1e-8), np.sign(deviation) * 1e6, t)
    tail = np.maximum(scipy.stats.t.sf(np.abs(t), freedom), 1e-300)
    return np.sign(t) * np.abs(scipy.stats.norm.isf(tail))
