"""A Gaussian kernel of one coordinate as a series, whose terms are features of single draws."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from az_cv.families.arrays import namespace

if TYPE_CHECKING:
    from jaxtyping import Float

# Terms below this, for draws up to so many sds away, are left out.
NEGLIGIBLE, FAR = 1e-3, 4.0


def gaussian_series(
    x: Float[np.ndarray, "n d"], length: float, count: int
) -> tuple[Float[np.ndarray, "n d terms"], Float[np.ndarray, "n d terms"]]:
    """Return terms ``(x/l)^m exp(-x^2 / 2 l^2) / sqrt(m!)`` and their derivatives.

    The products of all terms sum to the Gaussian kernel, those of a few to another kernel.

    Parameters
    ----------
    x : array of shape (n, d)
    length : float
        Length scale of the kernel.
    count : int
        Number of terms.

    Examples
    --------
    >>> values, _ = gaussian_series(np.array([[0.5], [1.5]]), 2.0, 12)
    >>> bool(np.isclose(values[0, 0] @ values[1, 0], np.exp(-1 / 8)))
    True
    """
    xp, z = namespace(x), x / length
    values = [xp.exp(-0.5 * z**2)]
    slopes = [-z * values[0]]
    for m in range(1, count):
        root = math.sqrt(m)
        values.append(values[-1] * z / root)
        slopes.append(root * values[-2] - z * values[-1])
    return xp.stack(values, axis=-1), xp.stack(slopes, axis=-1) / length


def number_of_terms(length: float) -> int:
    """Return how many terms of the series a length scale needs.

    Examples
    --------
    >>> [number_of_terms(length) for length in (2.0, 4.0, 8.0, 16.0)]
    [15, 7, 4, 3]
    """
    count, term = 0, 1.0
    while term >= NEGLIGIBLE:
        count += 1
        term *= (FAR / length) ** 2 / count
    return count
