"""Does the mean exist? The tails of the draws tell, as far as draws can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from arviz_stats.base import array_stats

if TYPE_CHECKING:
    from jaxtyping import Float

# A tail with Pareto exponent k has moments below 1/k: a variance below 1/2, a mean below 1. From a
# thousand draws k is known to about 0.15, so that a Cauchy variable shows at least this. Fewer
# draws know less: the square of a coordinate of a banana showed 0.88 in two hundred.
HEAVY, SCATTER = 0.7, 3.0
MIN_DRAWS = 125  # of fewer, the tail has too few to tell
MAX_OUTPUTS = 500


def tail_exponents(matrix: Float[np.ndarray, "chain draw q"]) -> Float[np.ndarray, " q"]:
    """Return ArviZ's Pareto k of the draws of each quantity, the larger of both tails.

    Parameters
    ----------
    matrix : array of shape (chain, draw, q)

    Returns
    -------
    array of shape (q,)
        NaN for quantities that have no tail, as indicators, for those that are not finite, with
        few draws, and beyond the first few hundred quantities.
    """
    exponents = np.full(matrix.shape[2], np.nan)
    if matrix.shape[0] * matrix.shape[1] < MIN_DRAWS:
        return exponents
    for k in range(min(matrix.shape[2], MAX_OUTPUTS)):
        values = matrix[..., k]
        if not np.isfinite(values).all():
            continue
        try:
            with np.errstate(all="ignore"):
                exponents[k] = array_stats.pareto_khat(values, chain_axis=0, draw_axis=1, r_eff=1.0)
        except ValueError:  # all values of a tail are the same
            continue
    return exponents


def heavy_tails(matrix: Float[np.ndarray, "chain draw q"]) -> Float[np.ndarray, " q"]:
    """Return the Pareto k of quantities whose variance, or mean, may not exist; NaN for others.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> light, heavy = rng.normal(size=(4, 500)), rng.standard_cauchy(size=(4, 500))
    >>> draws = np.stack([light, heavy], axis=2)
    >>> np.isfinite(heavy_tails(draws))
    array([False,  True])
    """
    exponents = tail_exponents(matrix)
    threshold = HEAVY + SCATTER / np.sqrt(matrix.shape[0] * matrix.shape[1])
    return np.where(exponents > threshold, exponents, np.nan)
