"""Polynomial control variates of any total degree."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from az_cv.families.coordinates import Axes, axes_of, nearest_axes, positions_among
from az_cv.families.inner_product import monomial_partials, second_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n d"]

# A draw four sds away has a power of 1e7 at this degree; soon after no digits are left.
MAX_ORDER = 12
# How much smaller the coefficients of each further degree are expected to be. One penalty over all
# degrees loses the gain of the first once features outnumber draws.
DEGREE_SCALES = (0.01, 0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True)
class Polynomial:
    """Images of polynomials under the second-order Stein operator.

    The polynomials are Hermite products ``prod_j He_{a_j}(x_j)`` of total degree 1 to `order`, so
    that on a Gaussian posterior the features are uncorrelated and of unit variance. When features
    outnumber draws the same space is reached through the Stein kernel of ``(x . y)^k / k!``.

    Parameters
    ----------
    order : int
        Total degree. Order 1 is the score itself and makes every mean of a Gaussian posterior
        exact, order 2 every second moment.
    interactions : bool
        ``False`` keeps the powers of single coordinates, ``order * d`` features.
    degree_scale : float or "auto"
        Prior scale of the coefficients of degree k relative to degree k - 1.
    coordinates : sequence of str or int, optional
        Polynomials in these alone: names of unconstrained parameters, or their positions. All of
        them by default.
    axes : pair of arrays, optional
        Where these coordinates lie among whitened ones. Filled in when the family meets draws.

    See Also
    --------
    az_cv.Kernel : Follows curved posteriors.
    az_cv.Ensemble : Sums of families.

    Notes
    -----
    Polynomials in chosen coordinates move these together with all that correlates with them: their
    images take the scores of all parameters, weighted by the covariances. On a Gaussian posterior
    the means and second moments of the chosen coordinates are therefore exact, whatever they
    correlate with.

    Examples
    --------
    >>> from az_cv import Polynomial
    >>> Polynomial(order=2).num_features(10)
    65
    >>> Polynomial(order=3, interactions=False).num_features(10)
    30
    >>> Polynomial(order=3, coordinates=["mu", "tau_log__"]).num_features(10)
    9
    """

    order: int = 2
    interactions: bool = True
    degree_scale: float | Literal["auto"] = "auto"
    coordinates: Sequence[str | int] | None = None
    axes: Axes | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.order, int) or not 1 <= self.order <= MAX_ORDER:
            raise ValueError(
                f"order must be an integer from 1 to {MAX_ORDER}; it is {self.order!r}. Functions "
                "that need more are served better by Kernel()."
            )
        scale = self.degree_scale
        if scale != "auto" and not (isinstance(scale, int | float) and scale > 0):
            raise ValueError(f"degree_scale must be positive or 'auto'; it is {scale!r}.")
        if self.coordinates is None:
            return
        chosen = self.coordinates
        if isinstance(chosen, str) or not len(chosen) or len(set(chosen)) < len(chosen):
            raise ValueError(
                f"coordinates must be a list of different parameters; it is {chosen!r}."
            )
        object.__setattr__(self, "coordinates", tuple(chosen))

    def among(self, names: Sequence[str]) -> Polynomial:
        """Return the family with positions in place of names of unconstrained parameters."""
        if self.coordinates is None:
            return self
        return replace(self, coordinates=positions_among(self.coordinates, names, "coordinates"))

    def placed(self, scale: Float[np.ndarray, "d r"], s: Float[np.ndarray, "n r"]) -> Polynomial:
        """Return the family for whitened draws, which times `scale` are the original ones."""
        if self.coordinates is not None:
            return replace(self, axes=axes_of(self.coordinates, scale, s))
        # With interactions it makes no difference how whitened coordinates are turned.
        return self if self.interactions else replace(self, axes=nearest_axes(scale))

    def balanced(self, s: Matrix) -> Polynomial:
        """Return the family in coordinates whose draws and scores have the same covariance.

        On a Gaussian posterior every feature is then a Hermite polynomial, and what is asked has
        few of them. Draws whitened by an estimate of their covariance have scores that mix.
        """
        if self.coordinates is not None or self.axes is not None:
            return self
        every = tuple(range(s.shape[1]))
        return replace(self, coordinates=every, axes=axes_of(every, np.eye(s.shape[1]), s))

    def variants(self, x: Matrix, s: Matrix) -> Sequence[Polynomial]:
        """Return this family at each scale to try; one is enough for order 1 or many draws."""
        if self.degree_scale != "auto":
            return [self]
        if self.order == 1 or 4 * self.num_features(x.shape[1]) <= len(x):
            return [replace(self, degree_scale=1.0)]
        return [replace(self, degree_scale=scale) for scale in DEGREE_SCALES]

    def num_features(self, d: int) -> int:
        """Return the number of features in d dimensions."""
        k = self._dimension(d)
        return math.comb(k + self.order, self.order) - 1 if self.interactions else self.order * k

    def num_leading(self, d: int) -> int:
        """Return the number of features of the first degree, which come first."""
        return self._dimension(d)

    def features(self, x: Matrix, s: Matrix) -> Float[np.ndarray, "n p"]:
        """Return ``L He_a`` for every multi-index a, scaled to unit variance on a Gaussian."""
        x, s = self._along(x, s)
        hermite = _hermite(x, self.order)
        columns = [
            self.weight(len(index)) * _stein_of_hermite(hermite, s, index)
            for index in self._indices(x.shape[1])
        ]
        return np.stack(columns, axis=1)

    def gram(self, x: Matrix, s: Matrix, y: Matrix, t: Matrix) -> Float[np.ndarray, "n m"]:
        """Return the Stein kernel of the space, in any dimension at the cost of ``x @ y.T``."""
        if not self.interactions:
            return self.features(x, s) @ self.features(y, t).T
        x, s = self._along(x, s)
        y, t = self._along(y, t)
        total = np.zeros((len(x), len(y)))
        for k in range(1, self.order + 1):
            stein = second_order(x, s, y, t, monomial_partials(x, y, k))
            total += (self.weight(k) / k) ** 2 * stein
        return total

    def weight(self, degree: int) -> float:
        """Return the prior scale of the coefficients of one degree."""
        if self.degree_scale == "auto":
            raise TypeError("degree_scale is 'auto'; call `variants` first.")
        return float(self.degree_scale) ** (degree - 1)

    def multi_indices(self, d: int) -> list[tuple[int, ...]]:
        """Return multi-indices as sorted tuples of coordinates, degree by degree."""
        return self._indices(self._dimension(d))

    def _dimension(self, d: int) -> int:
        """Return in how many dimensions the polynomials live."""
        if self.axes is not None:
            return len(self.axes.of_draws)
        return d if self.coordinates is None else len(self.coordinates)

    def axes_in(self, d: int) -> Axes:
        """Return the maps to the chosen coordinates; draws never whitened have their own."""
        if self.axes is not None:
            return self.axes
        if self.coordinates is None:
            return Axes(np.eye(d), np.eye(d))
        return axes_of(self.coordinates, np.eye(d))

    def _along(self, x: Matrix, s: Matrix) -> tuple[Matrix, Matrix]:
        """Return draws and scores along the chosen coordinates."""
        if self.coordinates is None and self.axes is None:
            return x, s
        axes = self.axes_in(x.shape[1])
        return x @ axes.of_draws.T, s @ axes.of_scores.T

    def _indices(self, d: int) -> list[tuple[int, ...]]:
        degrees = range(1, self.order + 1)
        if not self.interactions:
            return [(j,) * k for k in degrees for j in range(d)]
        return [
            index for k in degrees for index in itertools.combinations_with_replacement(range(d), k)
        ]


def _hermite(x: Matrix, order: int) -> list[Matrix]:
    """Return ``He_0(x) ... He_order(x)``, element by element, and He_-1 = 0 at the end."""
    values = [np.ones_like(x), x]
    for k in range(1, order):
        values.append(x * values[k] - k * values[k - 1])
    return [*values[: order + 1], np.zeros_like(x)]


def _stein_of_hermite(
    hermite: list[Matrix], s: Matrix, index: tuple[int, ...]
) -> Float[np.ndarray, " n"]:
    """Return ``(laplacian + s . grad) prod_j He_{a_j}(x_j) / (|a| sqrt(a!))``."""
    powers = {j: index.count(j) for j in dict.fromkeys(index)}
    total = np.zeros(len(s))
    for j, a in powers.items():
        others = np.ones(len(s))
        for k, b in powers.items():
            if k != j:
                others = others * hermite[b][:, k]
        # He_a' = a He_{a-1}
        second = a * (a - 1) * hermite[a - 2][:, j] if a > 1 else 0.0
        total += others * (second + a * hermite[a - 1][:, j] * s[:, j])
    norm = len(index) * math.sqrt(math.prod(math.factorial(a) for a in powers.values()))
    return total / norm
