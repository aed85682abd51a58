"""The Stein kernel made of functions of single coordinates and of their interactions.

With ``k(a, b) = 1 / (1 + (a - b)^2 / l^2)`` component j of the vector field has the kernel
``k(x_j, y_j) prod_{i != j} (1 + c k(x_i, y_i))``: a function of coordinate j, and with weight c of
each further coordinate. ``s`` and ``t`` are the scores at ``x`` and ``y``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from az_cv.families.arrays import namespace

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n d"]
    Column = Float[np.ndarray, " n"]
    Gram = Float[np.ndarray, "n m"]


def anova_first_order(
    x: Matrix, s: Matrix, y: Matrix, t: Matrix, length: float, interaction: float
) -> Gram:
    """Return ``sum_j S_j prod_{i != j} (1 + c k_i)``, S_j the Stein kernel in coordinate j."""
    xp = namespace(x)
    total = xp.zeros((len(x), len(y)))
    product = xp.ones_like(total)
    for j in range(x.shape[1]):
        stein, k = _in_one_coordinate(x[:, j], s[:, j], y[:, j], t[:, j], length)
        k *= interaction
        k += 1
        stein /= k
        total += stein
        product *= k
    total *= product
    return total


def _in_one_coordinate(
    x: Column, s: Column, y: Column, t: Column, length: float
) -> tuple[Gram, Gram]:
    """Return ``k (s t + (2 k / l^2) (4 k - 3 + (s - t) (x - y)))``, and k."""
    stein = x[:, None] - y
    k = stein * stein
    k *= length**-2
    k += 1
    k **= -1
    stein *= s[:, None] - t
    stein += 4 * k
    stein -= 3
    stein *= k
    stein *= 2 / length**2
    stein += s[:, None] * t
    stein *= k
    return stein, k
