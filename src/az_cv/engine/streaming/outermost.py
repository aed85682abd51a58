"""The draws farthest from the centre, where a fit to all others shows how far it reaches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    Columns = Float[np.ndarray, "p n"]
    Rows = Float[np.ndarray, "n k"]

NUMBER = 32
SHARE = 16  # no more than one of so many draws is outermost
# What a fit to all other draws misses at the outermost ones stands for the region beyond all draws,
# so many times, in errors and when a fit is chosen: 1.5 times, and in errors alone, second moments
# of a funnel had an rms z of 1.5, with 89% within 1.96.
BEYOND = 2.0
# Where it misses more than this share of what it should explain, and more than the errors that it
# claims over all draws, the factor grows with this power of the share. A target bent by Student's t
# with ten degrees of freedom has shares of 0.12 and more where errors would be too small by a
# factor of five; where a normal variable bends, means have 0.03 at most, and second moments up to
# 0.1 with few draws and 0.12 with a million. So a fit that misses little more loses little.
MISSED, STEEPNESS = 0.1, 3.0


@dataclass(frozen=True)
class Outermost:
    """Draws far from the centre.

    Attributes
    ----------
    squares : array of shape (n,)
        Squared distances of whitened draws from the centre.
    features : array of shape (p, n)
    values : array of shape (n, k)
        Functions.
    """

    squares: Float[np.ndarray, " n"]
    features: Columns
    values: Rows


def farthest(parts: Sequence[Outermost], number: int = NUMBER) -> Outermost:
    """Return the farthest of several sets of draws.

    Examples
    --------
    >>> near = Outermost(np.array([1.0, 2.0]), np.ones((3, 2)), np.zeros((2, 1)))
    >>> far = Outermost(np.array([4.0, 0.5]), np.ones((3, 2)), np.zeros((2, 1)))
    >>> farthest([near, far], 2).squares.tolist()
    [4.0, 2.0]
    """
    squares = np.concatenate([part.squares for part in parts])
    kept = np.argsort(-squares, kind="stable")[:number]
    if len(parts) == 1:
        return Outermost(squares[kept], parts[0].features[:, kept], parts[0].values[kept])
    features = np.concatenate([part.features for part in parts], axis=1)
    values = np.concatenate([part.values for part in parts])
    return Outermost(squares[kept], features[:, kept], values[kept])


def number_of(count: int) -> int:
    """Return how many of so many draws are outermost."""
    return max(min(NUMBER, count // SHARE), 1)


def missed_by(
    coefficients: Float[np.ndarray, "m k"], outermost: Outermost
) -> Float[np.ndarray, " k"]:
    """Return the sums of squares of what a fit leaves of the functions at the outermost draws."""
    fitted = outermost.features[: len(coefficients)].T @ coefficients
    return np.asarray(((outermost.values - fitted) ** 2).sum(axis=0))


def hidden_by(
    outermost: Outermost,
    constant: Float[np.ndarray, " k"],
    missed: Float[np.ndarray, " k"],
    error: Float[np.ndarray, " k"],
) -> Float[np.ndarray, " k"]:
    """Return the squared errors that the region beyond the outermost draws stands for.

    Parameters
    ----------
    outermost : Outermost
    constant : array of shape (k,)
        Of a fit that has not seen the outermost draws.
    missed : array of shape (k,)
        Its squared errors there.
    error : array of shape (k,)
        Squared errors over all draws, each of a fit that has seen others as far out.
    """
    size = ((outermost.values - constant) ** 2).sum(axis=0)
    share = np.sqrt(missed / np.maximum(size, np.finfo(float).tiny))
    wrong = np.where(missed < error, 1.0, np.maximum(share / MISSED, 1.0))
    return np.asarray((BEYOND * wrong**STEEPNESS) ** 2 * missed)
