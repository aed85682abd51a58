"""Normal distributions and mixtures of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from az_cv.testing.target import coordinate_moments, named_moments

if TYPE_CHECKING:
    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n d"]


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian with any covariance.

    Parameters
    ----------
    covariance : array of shape (d, d)
    mean : array of shape (d,), optional

    See Also
    --------
    az_cv.testing.as_datatree : Draws of it, with their gradients.

    Examples
    --------
    >>> import numpy as np
    >>> from az_cv.testing import Gaussian
    >>> Gaussian(np.diag([1.0, 4.0])).expectations()["x1^2"]
    4.0
    """

    covariance: np.ndarray
    mean: np.ndarray | None = None

    @cached_property
    def _mean(self) -> np.ndarray:
        return np.zeros(len(self.covariance)) if self.mean is None else np.asarray(self.mean)

    def sample(self, rng: np.random.Generator, n: int) -> Matrix:
        """Draw n independent samples."""
        factor = np.linalg.cholesky(self.covariance)
        return self._mean + rng.normal(size=(n, len(factor))) @ factor.T

    def score(self, x: Matrix) -> Matrix:
        """Return the gradient of the log density at each row."""
        return -np.linalg.solve(self.covariance, (x - self._mean).T).T

    def integrands(self, x: Matrix) -> dict[str, np.ndarray]:
        """Return first and second moments of every coordinate."""
        return coordinate_moments(x)

    def expectations(self) -> dict[str, float]:
        """Return the expectation of each integrand."""
        return named_moments(self._mean, np.diag(self.covariance) + self._mean**2)


@dataclass(frozen=True)
class GaussianMixture:
    """Two standard Gaussians in d dimensions, at plus and minus `offset` along the first axis.

    Parameters
    ----------
    d : int
        Number of dimensions.
    offset : float
        How far each lies from the origin.

    See Also
    --------
    az_cv.testing.as_datatree : Draws of it, with their gradients.

    Examples
    --------
    >>> from az_cv.testing import GaussianMixture
    >>> GaussianMixture(d=2, offset=1.5).expectations()["x0^2"]
    3.25
    """

    d: int = 2
    offset: float = 1.0

    def sample(self, rng: np.random.Generator, n: int) -> Matrix:
        """Draw n independent samples."""
        x = rng.normal(size=(n, self.d))
        x[:, 0] += self.offset * rng.choice([-1.0, 1.0], size=n)
        return x

    def score(self, x: Matrix) -> Matrix:
        """Return the gradient of the log density at each row."""
        s = -x
        s[:, 0] += self.offset * np.tanh(self.offset * x[:, 0])
        return s

    def integrands(self, x: Matrix) -> dict[str, np.ndarray]:
        """Return first and second moments of every coordinate."""
        return coordinate_moments(x)

    def expectations(self) -> dict[str, float]:
        """Return the expectation of each integrand."""
        second = np.ones(self.d)
        second[0] += self.offset**2
        return named_moments(np.zeros(self.d), second)
