"""Curved and heavy-tailed densities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from az_cv.testing.target import coordinate_moments, named_moments

if TYPE_CHECKING:
    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n d"]


@dataclass(frozen=True)
class Banana:
    """A Gaussian bent along a parabola: ``x1 = z1 + bend (z0^2 - 1)``.

    Parameters
    ----------
    bend : float
        How strongly it is bent; 0 is a standard Gaussian.

    See Also
    --------
    az_cv.testing.as_datatree : Draws of it, with their gradients.

    Examples
    --------
    >>> from az_cv.testing import Banana
    >>> Banana(bend=1.0).expectations()["x1^2"]
    3.0
    """

    bend: float = 1.0

    def sample(self, rng: np.random.Generator, n: int) -> Matrix:
        """Draw n independent samples."""
        x = rng.normal(size=(n, 2))
        x[:, 1] += self.bend * (x[:, 0] ** 2 - 1)
        return x

    def score(self, x: Matrix) -> Matrix:
        """Return the gradient of the log density at each row."""
        straight = x[:, 1] - self.bend * (x[:, 0] ** 2 - 1)
        return np.column_stack([-x[:, 0] + 2 * self.bend * x[:, 0] * straight, -straight])

    def integrands(self, x: Matrix) -> dict[str, np.ndarray]:
        """Return first and second moments of every coordinate."""
        return coordinate_moments(x)

    def expectations(self) -> dict[str, float]:
        """Return the expectation of each integrand."""
        return named_moments(np.zeros(2), np.array([1.0, 1 + 2 * self.bend**2]))


@dataclass(frozen=True)
class Funnel:
    """Neal's funnel: ``x0 ~ N(0, scale^2)`` and ``x_j ~ N(0, exp(x0))``.

    Parameters
    ----------
    d : int
        Number of dimensions, the first included.
    scale : float
        Standard deviation of the first coordinate. The larger it is, the narrower is the neck.

    See Also
    --------
    az_cv.testing.as_datatree : Draws of it, with their gradients.

    Examples
    --------
    >>> from az_cv.testing import Funnel
    >>> round(Funnel(d=2, scale=1.0).expectations()["x1^2"], 4)
    1.6487
    """

    d: int = 3
    scale: float = 1.0

    def sample(self, rng: np.random.Generator, n: int) -> Matrix:
        """Draw n independent samples."""
        x = rng.normal(size=(n, self.d))
        x[:, 0] *= self.scale
        x[:, 1:] *= np.exp(x[:, :1] / 2)
        return x

    def score(self, x: Matrix) -> Matrix:
        """Return the gradient of the log density at each row."""
        precision = np.exp(-x[:, :1])
        first = -x[:, 0] / self.scale**2 + 0.5 * (
            (x[:, 1:] ** 2 * precision).sum(axis=1) - (self.d - 1)
        )
        return np.column_stack([first, -x[:, 1:] * precision])

    def integrands(self, x: Matrix) -> dict[str, np.ndarray]:
        """Return first and second moments of every coordinate."""
        return coordinate_moments(x)

    def expectations(self) -> dict[str, float]:
        """Return the expectation of each integrand."""
        second = np.full(self.d, math.exp(self.scale**2 / 2))
        second[0] = self.scale**2
        return named_moments(np.zeros(self.d), second)


@dataclass(frozen=True)
class StudentT:
    """A spherical Student-t; `freedom` above 4 gives second moments a finite variance.

    Parameters
    ----------
    d : int
        Number of dimensions.
    freedom : float
        Degrees of freedom. Second moments exist above 2.

    See Also
    --------
    az_cv.testing.as_datatree : Draws of it, with their gradients.

    Examples
    --------
    >>> from az_cv.testing import StudentT
    >>> round(StudentT(d=1, freedom=5).expectations()["x0^2"], 4)
    1.6667
    """

    d: int = 2
    freedom: float = 5.0

    def sample(self, rng: np.random.Generator, n: int) -> Matrix:
        """Draw n independent samples."""
        mixing = rng.chisquare(self.freedom, size=(n, 1)) / self.freedom
        return rng.normal(size=(n, self.d)) / np.sqrt(mixing)

    def score(self, x: Matrix) -> Matrix:
        """Return the gradient of the log density at each row."""
        return -(self.freedom + self.d) * x / (self.freedom + (x**2).sum(axis=1, keepdims=True))

    def integrands(self, x: Matrix) -> dict[str, np.ndarray]:
        """Return first and second moments of every coordinate."""
        return coordinate_moments(x)

    def expectations(self) -> dict[str, float]:
        """Return the expectation of each integrand."""
        second = np.full(self.d, self.freedom / (self.freedom - 2))
        return named_moments(np.zeros(self.d), second)
