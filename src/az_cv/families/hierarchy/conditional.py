"""The normal distribution that most resembles a posterior, given its global coordinates.

Given the coordinates ``x_H`` that govern the others, many posteriors are nearly normal in the rest,
with precision ``Q(x_H)`` and mean ``Q^-1 b``. Both are read off the scores, which in the normal
case are ``b - Q x``. Whatever they are, the fields made of them have exact Stein images: fields
that move the rest alone see ``x_H`` as a constant, and those that move ``x_H`` carry the rest along
so that its standardised values stay what they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import lapack

from az_cv.families.accelerator import WORTHWHILE, find_accelerator
from az_cv.families.arrays import namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n r"]

# Precisions change no more beyond this exponent: far out in a heavy tail they would overflow.
LARGEST_EXPONENT = 8.0
CHUNK_BYTES = 2**23
RIDGE = 1e-8


@dataclass(frozen=True)
class Moved:
    """Draws and scores as fields see them that follow the conditional normal distribution.

    Attributes
    ----------
    top_score : array of shape (n, h)
        Score of each global coordinate while the rest is carried along: while its standardised
        values ``e = L' (x - m)``, with ``Q = L L'``, stay what they are.
    preconditioned : array of shape (n, r)
        ``C s``, with C the conditional covariance: minus the deviation from the conditional mean
        where the posterior is normal.
    variance : array of shape (n, r)
        The diagonal of C.
    standard, standard_score : arrays of shape (n, r)
        The rest with conditional mean zero and covariance one, and its score.
    along, along_score : arrays of shape (n, k)
        The standardised rest, and its score, in the direction in which each function grows.
    """

    top_score: Matrix
    preconditioned: Matrix
    variance: Matrix
    standard: Matrix
    standard_score: Matrix
    along: Float[np.ndarray, "n k"]
    along_score: Float[np.ndarray, "n k"]


@dataclass(frozen=True)
class ConditionalNormal:
    """Precision and mean as functions of the global coordinates.

    Attributes
    ----------
    steps : array of shape (h,)
        c of each global coordinate; all zero where the precision is constant.
    precisions : array of shape (p, r, r), or (p, r) for diagonals
        What multiplies 1, and ``exp(-2 c x)`` and ``exp(2 c x)`` of each global coordinate, if any
        c is not zero; none has a negative eigenvalue.
    shifts : array of shape (p, r)
        The same for b.
    slopes : array of shape (h, r)
        What of b is linear in the global coordinates.
    gradients : array of shape (p, r, k)
        The same for the gradients, in the rest, of k functions.
    """

    steps: Float[np.ndarray, " h"]
    precisions: np.ndarray
    shifts: Float[np.ndarray, "p r"]
    slopes: Float[np.ndarray, "h r"]
    gradients: Float[np.ndarray, "p r k"]

    def move(
        self,
        top: Float[np.ndarray, "n h"],
        top_score: Float[np.ndarray, "n h"],
        rest: Matrix,
        rest_score: Matrix,
    ) -> Moved:
        """Return draws and scores in the coordinates of the conditional distribution."""
        if self.precisions.ndim == 3 and not self.steps.any():
            return self._move_alike(top, top_score, rest, rest_score)
        known = (self.steps, self.precisions, self.shifts, self.slopes, self.gradients)
        draws = (top, top_score, rest, rest_score)
        is_dense = self.precisions.ndim == 3
        if is_dense and len(rest) >= WORTHWHILE and (card := find_accelerator()):
            return Moved(*card.run(_compiled_move(), *known, *draws))
        move = _move_dense if is_dense else _move_diagonal
        pieces = [move(*known, *(part[rows] for part in draws)) for rows in self._chunks(len(rest))]
        return Moved(*(np.concatenate(parts) for parts in zip(*pieces)))

    def _move_alike(self, top: Matrix, top_score: Matrix, x: Matrix, s: Matrix) -> Moved:
        """Move with one precision for all draws: it is inverted once."""
        factor = np.linalg.cholesky(self.precisions[0] + RIDGE * np.eye(x.shape[1]))
        inverse = lapack.dtrtri(factor, lower=1)[0]
        mean = (self.shifts[0] + top @ self.slopes) @ inverse.T @ inverse
        standard, standard_score = (x - mean) @ factor, s @ inverse.T
        preconditioned = standard_score @ inverse
        (ways,) = _of_length_one((inverse @ self.gradients[0])[None])
        return Moved(
            top_score + preconditioned @ self.slopes.T,
            preconditioned,
            np.broadcast_to((inverse**2).sum(axis=0), x.shape),
            standard,
            standard_score,
            standard @ ways,
            standard_score @ ways,
        )

    def _chunks(self, n: int) -> Iterator[slice]:
        """Return pieces of the draws that bound the memory for matrices."""
        r = self.shifts.shape[1]
        columns = (r if self.precisions.ndim == 3 else 1) + self.gradients.shape[2]
        size = max(1, CHUNK_BYTES // (8 * r * columns))
        return (slice(start, start + size) for start in range(0, n, size))

    def misfit(self, top: np.ndarray, rest: Matrix, rest_score: Matrix) -> float:
        """Return how far the scores are from those of the conditional distribution."""
        if self.precisions.ndim == 3 and self.steps.any():
            weights = exponentials(top, self.steps)
            shift = weights @ self.shifts + top @ self.slopes
            standard, score = _standardise(weights, self.precisions, shift, rest, rest_score)[2:]
        else:
            bare = replace(self, gradients=self.gradients[..., :0])
            moved = bare.move(top, np.zeros_like(top), rest, rest_score)
            standard, score = moved.standard, moved.standard_score
        return float(np.mean((score + standard) ** 2))


@cache
def _compiled_move() -> Callable[..., tuple[np.ndarray, ...]]:
    import jax

    return jax.jit(_move_dense)


def _move_dense(
    steps: np.ndarray,
    precisions: np.ndarray,
    shifts: np.ndarray,
    slopes: np.ndarray,
    gradients: np.ndarray,
    top: Matrix,
    top_score: Matrix,
    x: Matrix,
    s: Matrix,
) -> tuple[np.ndarray, ...]:
    """Return what :class:`Moved` has, from arrays of NumPy or JAX."""
    xp, weights = namespace(x), _exponentials(top, steps)
    inverse, mean, standard, standard_score = _standardise(
        weights, precisions, weights @ shifts + top @ slopes, x, s
    )
    backwards = inverse.transpose(0, 2, 1)
    preconditioned = _times(backwards, standard_score)
    # What a change of each precision does to the log density, while e stays what it is: by the
    # derivative of a Cholesky factor, which is the factor times half of L^-1 dQ L'^-1.
    pushed = inverse * standard_score[..., None]
    half = standard[..., None] * (xp.cumsum(pushed, axis=1) - 0.5 * pushed) + 0.5 * inverse
    response = (backwards @ half).reshape(len(x), -1) @ precisions.reshape(len(precisions), -1).T
    turned = (mean @ precisions).transpose(1, 0, 2)
    pull = preconditioned @ shifts.T - _times(turned, preconditioned) - response
    carried = preconditioned @ slopes.T
    for h, change in enumerate(_changes(top, weights, steps)):
        carried += (change * pull).sum(axis=1)[:, None] * (np.arange(carried.shape[1]) == h)
    ways = _of_length_one(inverse @ xp.tensordot(weights, gradients, 1))
    return (
        top_score + carried,
        preconditioned,
        xp.einsum("nij,nij->nj", inverse, inverse),
        standard,
        standard_score,
        _times(ways.transpose(0, 2, 1), standard),
        _times(ways.transpose(0, 2, 1), standard_score),
    )


def _standardise(
    weights: Float[np.ndarray, "n p"], precisions: np.ndarray, shift: Matrix, x: Matrix, s: Matrix
) -> tuple[np.ndarray, Matrix, Matrix, Matrix]:
    """Return ``L^-1`` at each draw, conditional means, and the standardised rest and its score."""
    xp = namespace(x)
    precision = xp.tensordot(weights, precisions, 1) + RIDGE * xp.eye(x.shape[1])
    factor = xp.linalg.cholesky(precision)
    inverse = _inverse_of_lower(factor)
    mean = _times(inverse.transpose(0, 2, 1), _times(inverse, shift))
    return inverse, mean, _times(factor.transpose(0, 2, 1), x - mean), _times(inverse, s)


def _move_diagonal(
    steps: np.ndarray,
    precisions: np.ndarray,
    shifts: np.ndarray,
    slopes: np.ndarray,
    gradients: np.ndarray,
    top: Matrix,
    top_score: Matrix,
    x: Matrix,
    s: Matrix,
) -> tuple[np.ndarray, ...]:
    """Return the same with diagonal precisions."""
    weights = exponentials(top, steps)
    precision = weights @ precisions + RIDGE
    mean = (weights @ shifts + top @ slopes) / precision
    sd = np.sqrt(1 / precision)
    standard, standard_score = (x - mean) / sd, s * sd
    preconditioned = s / precision
    carried = preconditioned @ slopes.T
    for h, change in enumerate(_changes(top, weights, steps)):
        precision_change = change @ precisions
        drift = change @ shifts - precision_change * mean
        turn = 0.5 * precision_change / precision * (standard * standard_score + 1)
        carried[:, h] += (preconditioned * drift - turn).sum(axis=1)
    ways = _of_length_one(sd[..., None] * np.tensordot(weights, gradients, 1))
    return (
        top_score + carried,
        preconditioned,
        sd**2,
        standard,
        standard_score,
        _times(ways.transpose(0, 2, 1), standard),
        _times(ways.transpose(0, 2, 1), standard_score),
    )


def _changes(
    top: Float[np.ndarray, "n h"], weights: Float[np.ndarray, "n p"], steps: Float[np.ndarray, " h"]
) -> Iterator[Float[np.ndarray, "n p"]]:
    """Return the derivatives of the weights with respect to each global coordinate."""
    columns = np.arange(weights.shape[1])
    for h in range(len(steps) if len(columns) > 1 else 0):
        rate = 2 * steps[h] * (abs(2 * steps[h] * top[:, h]) < LARGEST_EXPONENT)
        sign = 1.0 * (columns == 2 + 2 * h) - (columns == 1 + 2 * h)
        yield rate[:, None] * weights * sign


def exponentials(
    top: Float[np.ndarray, "n h"], steps: Float[np.ndarray, " h"]
) -> Float[np.ndarray, "n p"]:
    """Return 1, and ``exp(-2 c x)`` and ``exp(2 c x)`` of each global coordinate if any c > 0."""
    return _exponentials(top, steps) if steps.any() else np.ones((len(top), 1))


def _exponentials(
    top: Float[np.ndarray, "n h"], steps: Float[np.ndarray, " h"]
) -> Float[np.ndarray, "n p"]:
    xp = namespace(top)
    powers = (2 * steps * top).clip(-LARGEST_EXPONENT, LARGEST_EXPONENT)
    pairs = xp.stack([xp.exp(-powers), xp.exp(powers)], axis=2)
    return xp.hstack([xp.ones((len(top), 1)), pairs.reshape(len(top), -1)])


def _inverse_of_lower(factors: Float[np.ndarray, "n r r"]) -> Float[np.ndarray, "n r r"]:
    """Return the inverses of lower-triangular matrices."""
    if isinstance(factors, np.ndarray):
        return np.stack([lapack.dtrtri(one, lower=1)[0] for one in factors])
    from jax.scipy.linalg import solve_triangular

    identity = namespace(factors).eye(factors.shape[1])
    return solve_triangular(factors, identity + 0 * factors, lower=True)


def _times(matrices: Float[np.ndarray, "n r r"], vectors: Matrix) -> Matrix:
    """Return the product of each matrix with its vector."""
    return (matrices @ vectors[..., None])[..., 0]


def _of_length_one(vectors: Float[np.ndarray, "n r k"]) -> Float[np.ndarray, "n r k"]:
    """Return the vectors, columns, divided by their lengths."""
    xp = namespace(vectors)
    lengths = xp.sqrt(xp.einsum("nrk,nrk->nk", vectors, vectors))
    return vectors / (lengths[:, None] + np.finfo(float).tiny)
