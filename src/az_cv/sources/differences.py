"""Is a gradient that of a log density? Differences of the one are integrals of the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.sources.batches import jax_float64

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Float

NUM_DRAWS, NUM_DIRECTIONS = 8, 4
STEP = 1e-4  # in sds of the draws; errors of differences are of its square
ALLOWED = 1e-3  # of the size of a typical derivative
NUM_PATHS, NUM_NODES = 64, 20


def require_gradient_of(
    log_density: Callable[[Any], Any],
    build: Callable[[Sequence[Any]], Any],
    rows: Sequence[np.ndarray],
    gradients: Sequence[np.ndarray],
) -> None:
    """Raise if differences of `log_density` are not those that the gradients foretell.

    Parameters
    ----------
    log_density : callable
        Log density of one draw, in NumPy or JAX.
    build : callable
        Makes the argument of `log_density` from its leaves.
    rows : sequence of array of shape (n, ...)
        The draws, leaf by leaf.
    gradients : sequence of array of shape (n, ...)
        The derivatives there.

    Raises
    ------
    ValueError
        With the place, both numbers, and what they may mean.
    """
    rng = np.random.default_rng(20261117)
    n = len(rows[0])
    spreads = [row.std(axis=0) for row in rows]

    def density(leaves: Sequence[np.ndarray]) -> float:
        with jax_float64():
            return float(log_density(build(leaves)))

    found, foretold = [], []
    for i in np.linspace(0, n - 1, min(n, NUM_DRAWS)).astype(int):
        for _ in range(NUM_DIRECTIONS):
            steps = [STEP * spread * rng.normal(size=spread.shape) for spread in spreads]
            up = density([row[i] + step for row, step in zip(rows, steps)])
            down = density([row[i] - step for row, step in zip(rows, steps)])
            found.append((up - down) / (2 * STEP))
            foretold.append(
                sum(float(np.sum(g[i] * step)) for g, step in zip(gradients, steps)) / STEP
            )
    seen, expected = np.array(found), np.array(foretold)
    usable = np.isfinite(seen) & np.isfinite(expected)
    size = float(np.sqrt(np.mean(seen[usable] ** 2))) if usable.any() else 0.0
    wrong = np.abs(seen - expected) > ALLOWED * np.maximum(size, np.abs(expected))
    # One pair may straddle a kink.
    if (wrong & usable).sum() > 1:
        k = int(np.argmax(np.where(usable, np.abs(seen - expected), 0.0)))
        raise ValueError(
            "gradient is not the gradient of log_density: in "
            f"{int((wrong & usable).sum())} of {int(usable.sum())} directions their differences "
            f"disagree, in one of them {seen[k]:.6g} by the log density and {expected[k]:.6g} by "
            "the gradient (per sd of the draws). Check its sign, its parts, and the log Jacobian."
        )


def integrate_gradient(
    x: Float[np.ndarray, "n d"],
    gradient: Callable[[Float[np.ndarray, "m d"]], Float[np.ndarray, "m d"]],
) -> tuple[Float[np.ndarray, " n"], float]:
    """Recover the log density at some draws, up to a constant, from its gradient alone.

    The gradient is integrated along straight lines from the mean of the draws.

    Parameters
    ----------
    x : array of shape (n, d)
    gradient : callable
        Gradients at many points.

    Returns
    -------
    log_density : array of shape (n,)
        NaN where it was not computed.
    error : float
        Largest change when half of the nodes are used.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(100, 2))
    >>> density, error = integrate_gradient(x, lambda points: -points)
    >>> known = np.isfinite(density)
    >>> difference = density[known] + 0.5 * (x[known] ** 2).sum(axis=1)
    >>> int(known.sum()), bool(np.ptp(difference) < 1e-12), error < 1e-12
    (64, True, True)
    """
    rows = np.linspace(0, len(x) - 1, min(len(x), NUM_PATHS)).astype(int)
    centre = x.mean(axis=0)
    steps = x[rows] - centre
    integrals = []
    for count in (NUM_NODES, NUM_NODES // 2):
        nodes, weights = np.polynomial.legendre.leggauss(count)
        points = centre + (nodes[:, None, None] + 1) / 2 * steps
        slopes = gradient(points.reshape(-1, x.shape[1])).reshape(points.shape)
        integrals.append(np.einsum("k,kij,ij->i", weights / 2, slopes, steps))
    change = np.abs(integrals[0] - integrals[1])
    density = np.full(len(x), np.nan)
    density[rows] = integrals[0]
    return density, float(np.nanmax(change)) if np.isfinite(change).any() else 0.0
