"""The Gaussian at the mode of a density."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
import scipy.optimize

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float

    Points = Float[np.ndarray, "n d"]
    # Log densities and gradients at many points.
    Density = Callable[[Points], tuple[Float[np.ndarray, " n"], Points]]

STEP = 1e-4  # of differences of the gradient, in units of each coordinate's scale
LEAST_CURVATURE = 1e-6  # at the start, relative to the largest
GOOD_ENOUGH = 1e-3  # of a gradient; steps of Newton's method do the rest
NEWTON_STEPS = 20
CONVERGED = 1e-6  # of a Newton step, in sds


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian proposal.

    Attributes
    ----------
    mean : array of shape (d,)
    factor : array of shape (d, d)
        Lower Cholesky factor of the covariance.
    """

    mean: Float[np.ndarray, " d"]
    factor: Float[np.ndarray, "d d"]

    def sample(
        self, rng: np.random.Generator, chains: int, draws: int
    ) -> tuple[Float[np.ndarray, "chain draw d"], Float[np.ndarray, "chain draw"]]:
        """Return draws and their log densities."""
        noise = rng.normal(size=(chains, draws, len(self.mean)))
        constant = np.log(np.diag(self.factor)).sum() + 0.5 * len(self.mean) * np.log(2 * np.pi)
        return self.mean + noise @ self.factor.T, -0.5 * (noise**2).sum(axis=2) - constant


def gaussian_at_mode(density: Density, start: Float[np.ndarray, " d"]) -> Gaussian:
    """Return the Gaussian whose mean is the mode, and whose precision is minus the Hessian there.

    Parameters
    ----------
    density : callable
        Maps points of shape (n, d) to log densities and gradients.
    start : array of shape (d,)

    Raises
    ------
    ValueError
        If no mode is found where the density falls in every direction.

    Examples
    --------
    >>> found = gaussian_at_mode(lambda x: (-2 * (x**2).sum(axis=1), -4 * x), np.ones(2))
    >>> np.allclose(found.mean, 0), np.allclose(found.factor, np.eye(2) / 2)
    (True, True)
    """

    def downhill(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = density(x[None])
        if not (np.isfinite(value[0]) and np.isfinite(gradient[0]).all()):
            return 1e300, np.zeros_like(x)
        return -float(value[0]), -np.asarray(gradient[0], dtype=float)

    options: Any = {"gtol": GOOD_ENOUGH, "hess_inv0": _covariance(density, start)}
    found = scipy.optimize.minimize(downhill, start, jac=True, method="BFGS", options=options)
    mode, scale = found.x, np.sqrt(np.abs(np.diag(np.asarray(found.hess_inv))))
    for _ in range(NEWTON_STEPS):
        gradient, precision = _curvature(density, mode, scale)
        try:
            factor = scipy.linalg.cholesky(precision, lower=True)
        except (scipy.linalg.LinAlgError, ValueError):
            raise ValueError(
                "No mode was found at which the log density falls in every direction: it may be "
                "flat, unbounded or without a maximum. A Gaussian there makes no sense; sample "
                "the model with MCMC, or pass another start=."
            ) from None
        scale = np.sqrt(np.diag(scipy.linalg.cho_solve((factor, True), np.eye(len(mode)))))
        step = scipy.linalg.cho_solve((factor, True), gradient)
        if np.abs(step / scale).max() < CONVERGED:
            break
        mode = mode + step / max(1.0, np.abs(step / scale).max())
    else:
        raise ValueError(
            f"The mode was not found in {NEWTON_STEPS} Newton steps: the last one was "
            f"{np.abs(step / scale).max():.1g} sds long. Sample the model with MCMC, or pass "
            "another start=."
        )
    covariance = scipy.linalg.cho_solve((factor, True), np.eye(len(mode)))
    return Gaussian(mode, scipy.linalg.cholesky(covariance, lower=True))


def _covariance(density: Density, start: np.ndarray) -> Float[np.ndarray, "d d"] | None:
    """Return the inverse of minus the Hessian, with the absolute values of its eigenvalues."""
    _, precision = _curvature(density, start, np.ones_like(start))
    if not np.isfinite(precision).all():
        return None
    values, vectors = scipy.linalg.eigh(precision)
    sizes = np.abs(values)
    if not sizes.min() > LEAST_CURVATURE * sizes.max():
        return None
    covariance = (vectors / sizes) @ vectors.T
    return np.asarray(covariance + covariance.T) / 2


def _curvature(
    density: Density, at: np.ndarray, scale: np.ndarray
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
    """Return the gradient, and minus the Hessian from central differences of the gradient."""
    steps = STEP * np.diag(np.where(scale > 0, scale, 1.0))
    slopes = density(np.concatenate([at - steps, at + steps, at[None]]))[1]
    down, up = np.split(slopes[:-1], 2)
    precision = (down - up) / (2 * np.diag(steps)[:, None])
    return slopes[-1], (precision + precision.T) / 2
