"""Kernel control variates.

A base kernel ``k`` becomes a Stein kernel ``k0 = L_x L_y k``, whose sections ``k0(., y)`` have
posterior mean zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import scipy.linalg

from az_cv.families.anova import anova_first_order
from az_cv.families.inner_product import first_order, paper_partials, second_order
from az_cv.families.operators import OPERATORS
from az_cv.families.radial import (
    gaussian_derivatives,
    matern_derivatives,
    power_derivatives,
    radial_first_order,
    radial_second_order,
    squared_distances,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n d"]

BASES = ("imq", "gaussian", "rational_quadratic", "matern", "paper", "anova")

# Length scales tried, in units of the typical distance sqrt(2 d) between standardised draws. In few
# dimensions the draws resolve rough integrands, so short scales enter; in many they cannot.
LENGTH_FACTORS = (
    0.088,
    0.125,
    0.18,
    0.25,
    0.35,
    0.5,
    0.7,
    1.0,
    1.4,
    2.0,
    2.8,
    4.0,
    8.0,
    16.0,
    32.0,
)
LENGTH_FACTORS_BY_MIN_DIMENSION = (
    (4, (0.5, 1.0, 1.4, 2.0, 2.8, 4.0, 8.0, 16.0, 32.0)),
    (3, (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)),
    (2, (0.18, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 8.0, 16.0, 32.0)),
)
# The paper's kernel is finest at the centre by itself.
PAPER_FACTORS_IN_ONE_DIMENSION = (1.4, 2.0, 2.8, 4.0)
# Such long scales are chosen when all is smooth, and there a smoother kernel does twice as well.
SMOOTH_FACTOR = 16.0
SMOOTH_EXPONENT = 1.5
# Of each coordinate, in sds, whatever the dimension.
ANOVA_LENGTH_SCALES = (1.5, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Kernel:
    """Control variates spanned by a Stein kernel at the draws.

    Parameters
    ----------
    base : {"imq", "gaussian", "rational_quadratic", "matern", "paper", "anova"}
        ``imq``: ``(1 + r^2 / l^2)^-exponent``; ``gaussian``: ``exp(-r^2 / (2 l^2))``;
        ``rational_quadratic``: ``(1 + r^2 / (2 exponent l^2))^-exponent``; ``matern`` of smoothness
        `nu`; ``paper``: ``(1 + alpha_1 |x|^2 + alpha_1 |y|^2)^-1 exp(-r^2 / (2 l^2))``, the kernel
        of Si et al., where the length scale ``l`` is their alpha_2; ``anova``: functions of single
        coordinates, ``(1 + (x_j - y_j)^2 / l^2)^-1``, and of their interactions, for what is nearly
        a sum over coordinates in dimensions where all draws are at one distance.
    operator : {"langevin", "scalar_langevin"}
        First-order operator on vector fields, or second-order operator on potentials, which
        ``anova`` does not have.
    length_scale : float, "auto" or "median"
        In standardised units, where distances between draws are about ``sqrt(2 d)``, and in one
        coordinate ``sqrt(2)``. ``"auto"`` is chosen from the draws; ``"median"`` is
        ``sqrt(median(r^2) / 2)`` as in the paper.
    length_factor : float
        Multiplies the median heuristic; the paper's second kernel has ``sqrt(2)``.
    exponent : float or "auto"
        Exponent of ``imq`` and ``rational_quadratic``. ``"auto"`` is 1/2, but 3/2 for ``imq`` at
        the longest of the length scales that are tried.
    nu : float
        Smoothness of ``matern``, at least 5/2.
    alpha_1 : float
        Decay of the paper's kernel.
    centres : int, array of shape (m, 2, d), or None
        Number of draws that carry kernel sections (Nyström); ``None`` takes every draw.
    interaction : float
        For ``anova``: the weight of each further coordinate in an interaction, 0 for none.

    See Also
    --------
    az_cv.HierarchicalKernel : For hierarchical models.
    az_cv.Polynomial : Takes less time.

    Examples
    --------
    >>> from az_cv import Kernel
    >>> Kernel(base="matern", nu=3.5).nu
    3.5
    """

    base: Literal["imq", "gaussian", "rational_quadratic", "matern", "paper", "anova"] = "imq"
    operator: Literal["langevin", "scalar_langevin"] = "langevin"
    length_scale: float | Literal["auto", "median"] = "auto"
    length_factor: float = 1.0
    exponent: float | Literal["auto"] = "auto"
    nu: float = 2.5
    alpha_1: float = 1.0
    centres: int | np.ndarray | None = None
    interaction: float = 0.2

    def __post_init__(self) -> None:
        if self.base not in BASES:
            raise ValueError(f"base {self.base!r} is unknown. Choose from {list(BASES)}.")
        if self.operator not in OPERATORS:
            raise ValueError(
                f"operator {self.operator!r} is unknown. Choose from {list(OPERATORS)}."
            )
        if self.base == "anova" and self.operator != "langevin":
            raise ValueError(f"anova needs operator='langevin'; it is {self.operator!r}.")
        scale = self.length_scale
        if scale not in ("auto", "median") and not (isinstance(scale, int | float) and scale > 0):
            raise ValueError(
                f"length_scale must be positive, 'auto' or 'median'; it is {self.length_scale!r}."
            )
        if self.base == "matern" and self.nu < 2.5:
            raise ValueError(f"matern needs nu >= 2.5 to be differentiated twice; nu is {self.nu}.")
        for name, value in (
            ("exponent", self.power),
            ("alpha_1", self.alpha_1),
            ("length_factor", self.length_factor),
        ):
            if not value > 0:
                raise ValueError(f"{name} must be positive; it is {value}.")
        if not self.interaction >= 0:
            raise ValueError(f"interaction must not be negative; it is {self.interaction}.")
        if isinstance(self.centres, int) and self.centres < 1:
            raise ValueError(f"centres must be a positive number of draws; it is {self.centres}.")

    def variants(self, x: Matrix, s: Matrix) -> Sequence[Kernel]:
        """Return this kernel with its length scale resolved, or at each length scale to try."""
        kernel = self
        if isinstance(self.centres, int):
            rows = np.unique(np.linspace(0, len(x) - 1, min(self.centres, len(x))).astype(int))
            kernel = replace(self, centres=np.stack([x[rows], s[rows]], axis=1))
        d = x.shape[1]
        if self.length_scale == "median":
            return [replace(kernel, length_scale=self.length_factor * median_length_scale(x))]
        if self.length_scale == "auto" and self.base == "anova":
            return [replace(kernel, length_scale=length) for length in ANOVA_LENGTH_SCALES]
        if self.length_scale == "auto":
            return [kernel._at(factor, math.sqrt(2 * d)) for factor in length_factors(d, self.base)]
        return [kernel]

    def _at(self, factor: float, typical: float) -> Kernel:
        """Return this kernel at a length scale given in units of the typical distance."""
        smooth = self.base == "imq" and self.exponent == "auto" and factor >= SMOOTH_FACTOR
        exponent = SMOOTH_EXPONENT if smooth else self.exponent
        return replace(self, length_scale=factor * typical, exponent=exponent)

    @property
    def power(self) -> float:
        """The exponent as a number."""
        return 0.5 if self.exponent == "auto" else self.exponent

    def num_features(self, d: int) -> int | None:
        """Return the number of centres, ``None`` when every draw is one."""
        return len(self.centres) if isinstance(self.centres, np.ndarray) else None

    def features(self, x: Matrix, s: Matrix) -> Float[np.ndarray, "n m"]:
        """Return Nyström features, whose inner products approximate the kernel."""
        if not isinstance(self.centres, np.ndarray):
            raise TypeError("A kernel without centres has no finite set of features.")
        y, t = self.centres[:, 0], self.centres[:, 1]
        inner = self.gram(y, t, y, t)
        inner[np.diag_indices_from(inner)] += 1e-12 * np.trace(inner) / len(inner)
        factor = scipy.linalg.cholesky(inner, lower=True)
        return scipy.linalg.solve_triangular(factor, self.gram(x, s, y, t).T, lower=True).T

    @property
    def portable(self) -> bool:
        """Whether JAX has all functions of the formulas: all but the Bessel functions."""
        return self.base != "matern" or (2 * self.nu) % 2 == 1

    def gram(self, x: Matrix, s: Matrix, y: Matrix, t: Matrix) -> Float[np.ndarray, "n m"]:
        """Return the Stein kernel matrix between `x` and `y`."""
        if not isinstance(self.length_scale, int | float):
            raise TypeError(f"length_scale is {self.length_scale!r}; call `variants` first.")
        if self.base == "paper":
            assemble = first_order if self.operator == "langevin" else second_order
            return assemble(x, s, y, t, paper_partials(x, y, self.alpha_1, self.length_scale))
        if self.base == "anova":
            return anova_first_order(x, s, y, t, self.length_scale, self.interaction)
        r2 = squared_distances(x, y)
        if self.operator == "langevin":
            return radial_first_order(r2, x, s, y, t, self._radial_derivatives(r2, 2))
        return radial_second_order(r2, x, s, y, t, self._radial_derivatives(r2, 4))

    def _radial_derivatives(self, r2: np.ndarray, order: int) -> list[np.ndarray]:
        """Return ``phi`` and its derivatives with respect to ``r^2`` up to `order`."""
        length = float(self.length_scale)
        match self.base:
            case "imq":
                return power_derivatives(r2, length**2, self.power, order)
            case "rational_quadratic":
                width = 2 * self.power * length**2
                return power_derivatives(r2, width, self.power, order)
            case "matern":
                return matern_derivatives(r2, self.nu, length, order)
            case _:
                return gaussian_derivatives(r2, length, order)


def length_factors(d: int, base: str) -> tuple[float, ...]:
    """Return the length scales to try in d dimensions, in units of ``sqrt(2 d)``."""
    if d == 1 and base == "paper":
        return PAPER_FACTORS_IN_ONE_DIMENSION
    for smallest, factors in LENGTH_FACTORS_BY_MIN_DIMENSION:
        if d >= smallest:
            return factors
    return LENGTH_FACTORS


def median_length_scale(x: Matrix, max_draws: int = 2000) -> float:
    """Return the paper's median heuristic ``sqrt(median(|x_i - x_j|^2) / 2)``.

    Examples
    --------
    >>> import numpy as np
    >>> median_length_scale(np.array([[0.0], [2.0]]))
    1.4142135623730951
    """
    rows = x[:: max(1, len(x) // max_draws)]
    pairs = squared_distances(rows, rows)[np.triu_indices(len(rows), k=1)]
    return math.sqrt(0.5 * float(np.median(pairs[pairs > 0]))) if (pairs > 0).any() else 1.0
