"""The test functions of Genz, under a normal distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.special

if TYPE_CHECKING:
    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n d"]


@dataclass(frozen=True)
class Genz:
    """The six functions of Genz on [0, 1], carried to a standard normal by its cdf.

    Parameters
    ----------
    a, u : float
        Difficulty and location.

    See Also
    --------
    az_cv.testing.as_datatree : Draws of it, with their gradients.

    Examples
    --------
    >>> from az_cv.testing import Genz
    >>> round(Genz().expectations()["corner peak"], 4)
    0.5
    """

    a: float = 1.0
    u: float = 0.5

    def sample(self, rng: np.random.Generator, n: int) -> Matrix:
        """Draw n independent samples."""
        return rng.normal(size=(n, 1))

    def score(self, x: Matrix) -> Matrix:
        """Return the gradient of the log density at each row."""
        return -x

    def integrands(self, x: Matrix) -> dict[str, np.ndarray]:
        """Return the six functions."""
        y, a, u = scipy.special.ndtr(x[:, 0]), self.a, self.u
        return {
            "continuous": np.exp(-a * np.abs(y - u)),
            "corner peak": (1 + a * y) ** -2.0,
            "discontinuous": np.where(y <= u, np.exp(a * y), 0.0),
            "gaussian peak": np.exp(-((a * (y - u)) ** 2)),
            "oscillatory": np.cos(2 * np.pi * u + a * y),
            "product peak": 1 / (a**-2 + (y - u) ** 2),
        }

    def expectations(self) -> dict[str, float]:
        """Return the six integrals."""
        a, u = self.a, self.u
        return {
            "continuous": (2 - math.exp(a * (u - 1)) - math.exp(-a * u)) / a,
            "corner peak": 1 / (1 + a),
            "discontinuous": (math.exp(a * u) - 1) / a,
            "gaussian peak": math.sqrt(math.pi)
            / (2 * a)
            * (math.erf(a * (1 - u)) + math.erf(a * u)),
            "oscillatory": (math.sin(2 * math.pi * u + a) - math.sin(2 * math.pi * u)) / a,
            "product peak": a * (math.atan((1 - u) * a) + math.atan(u * a)),
        }
