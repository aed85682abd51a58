"""Densities of one variable from a table of their logarithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True)
class LogLinear:
    """A density of one variable whose logarithm is linear between points and beyond the ends.

    Attributes
    ----------
    left : array of shape (k,)
        Where the pieces begin; that of the first, where it ends.
    log_density, slope : arrays of shape (k,)
        Of each piece where it begins.
    length : array of shape (k,)
        Infinite for the first, which goes to the left, and the last.
    mass : array of shape (k,)
        They sum to one.
    """

    left: Float[np.ndarray, " k"]
    log_density: Float[np.ndarray, " k"]
    slope: Float[np.ndarray, " k"]
    length: Float[np.ndarray, " k"]
    mass: Float[np.ndarray, " k"]

    @classmethod
    def through(
        cls, grid: Float[np.ndarray, " k"], log_density: Float[np.ndarray, " k"]
    ) -> LogLinear:
        """Return the density, normalised.

        Examples
        --------
        >>> grid = np.linspace(-6, 6, 61)
        >>> found = LogLinear.through(grid, -0.5 * grid**2)
        >>> x, log_density = found.sample(np.linspace(0.005, 0.995, 100))
        >>> np.allclose(log_density, -0.5 * x**2 - 0.5 * np.log(2 * np.pi), atol=0.01)
        True
        """
        slope = np.diff(log_density) / np.diff(grid)
        left = np.concatenate([grid[:1], grid])
        at = np.concatenate([log_density[:1], log_density])
        # The first piece runs to the left: its slope there is that of the mirror image.
        slope = np.concatenate([-slope[:1], slope, slope[-1:]])
        length = np.concatenate([[np.inf], np.diff(grid), [np.inf]])
        if slope[0] >= 0 or slope[-1] >= 0:
            raise ValueError("The density of one variable does not fall at both of its ends.")
        # A slope of zero would divide by zero.
        slope = np.where(np.abs(slope) < 1e-8, 1e-8, slope)
        mass = np.exp(at) * np.expm1(slope * length) / slope
        return cls(left, at - np.log(mass.sum()), slope, length, mass / mass.sum())

    def sample(
        self, uniform: Float[np.ndarray, " n"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Return the values below which so much of the probability lies, and log densities.

        The first piece counts from its right end.
        """
        ends = np.cumsum(self.mass)
        piece = np.minimum(np.searchsorted(ends, uniform, side="right"), len(ends) - 1)
        share = np.clip((uniform - (ends - self.mass)[piece]) / self.mass[piece], 0, 1 - 1e-16)
        slope = self.slope[piece]
        along = np.log1p(share * np.expm1(slope * self.length[piece])) / slope
        sign = np.where(piece == 0, -1.0, 1.0)
        return self.left[piece] + sign * along, self.log_density[piece] + slope * along
