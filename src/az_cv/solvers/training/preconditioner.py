"""Preconditioning and step sizes from the spectrum of the features on a subsample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

if TYPE_CHECKING:
    from jaxtyping import Float

# Beyond this many features the eigenvectors cost more than they save, and only variances are used.
MAX_ROTATED = 4096


@dataclass(frozen=True)
class Preconditioner:
    """A rotation of the features, and a step size for each rotated coefficient and penalty.

    In the rotated basis the covariance of the features on the subsample is diagonal, ``c_i``, and
    gradients are divided by ``c_i + penalty``: the step of Newton's method with the Hessian of the
    subsample, for several penalties at once.

    Attributes
    ----------
    rotation : array of shape (p, p) or None
        ``None`` leaves the features as they are.
    scales : array of shape (p, k)
        What gradients are multiplied by, for each of k penalties.
    penalties : array of shape (k,)
        What is added to the mean squared error.
    learning_rate : float
        Largest stable step on minibatches, halved.
    """

    rotation: Float[np.ndarray, "p p"] | None
    scales: Float[np.ndarray, "p k"]
    penalties: Float[np.ndarray, " k"]
    learning_rate: float


def fit_preconditioner(
    features: Float[np.ndarray, "m p"],
    strengths: Float[np.ndarray, " k"],
    *,
    num_draws: int,
    batch_size: int,
    enabled: bool = True,
) -> Preconditioner:
    """Take the preconditioner and the learning rate from features at a subsample of the draws.

    Parameters
    ----------
    features : array of shape (m, p)
    strengths : array of shape (k,)
        Ridges relative to the average variance of the family, as those of ``Exact``.
    num_draws : int
        Size of the whole training set.
    batch_size : int
    enabled : bool
        ``False`` leaves features and gradients as they are and only chooses the learning rate.

    Examples
    --------
    On features as uneven as 1 to 1000 every direction gets the same speed:

    >>> import numpy as np
    >>> features = np.random.default_rng(0).normal(size=(500, 2)) * [1.0, 1000.0]
    >>> found = fit_preconditioner(features, np.zeros(1), num_draws=500, batch_size=50)
    >>> rotated = features @ found.rotation
    >>> np.allclose(rotated.T @ rotated / 500 * found.scales, np.eye(2), atol=1e-6)
    True
    """
    m, p = features.shape
    total = float(np.einsum("mp,mp->", features, features)) / m
    penalties = np.asarray(strengths, dtype=float) * total / num_draws
    rotation = None
    variances = np.einsum("mp,mp->p", features, features) / m
    if enabled and p <= MAX_ROTATED:
        variances, rotation = scipy.linalg.eigh(features.T @ features / m)
        features = features @ rotation
    if enabled:
        # Below this share of the largest variance a direction is rounding error.
        floor = 1e-12 * variances.max()
        scales = 1 / (np.maximum(variances, floor)[:, None] + penalties)
    else:
        scales = np.ones((p, len(penalties)))
    # A step of SGD is stable when rate (top + E|phi|^4 / E|phi|^2 / b) < 2 for scaled features.
    largest = scales.max(axis=1)
    norms = np.einsum("mp,mp,p->m", features, features, largest)
    spread = float((norms**2).mean() / max(norms.mean(), np.finfo(float).tiny))
    top = 1.0 if rotation is not None else _largest_eigenvalue(features, np.sqrt(largest))
    return Preconditioner(rotation, scales, penalties, 0.5 / (top + spread / batch_size))


def _largest_eigenvalue(
    features: Float[np.ndarray, "m p"], scale: Float[np.ndarray, " p"], iterations: int = 30
) -> float:
    """Return the largest eigenvalue of the scaled features' covariance, by power iteration."""
    vector = np.ones(len(scale))
    value = 0.0
    for _ in range(iterations):
        vector = scale * (features.T @ (features @ (scale * vector))) / len(features)
        value = float(np.linalg.norm(vector))
        vector /= max(value, np.finfo(float).tiny)
    return value
