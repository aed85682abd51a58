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
    precisions : array of shape (p, m, m), or (p, r) for diagonals
        What multiplies 1, and ``exp(-2 c x)`` and ``exp(2 c x)`` of each global coordinate, if any
        c is not zero; none has a negative eigenvalue. Of the first m directions; that of the
        others is one.
    shifts : array of shape (p, r)
        The same for b.
    slopes : array of shape (h, r)
        What of b is linear in the global coordinates.
    gradients : array of shape (p, r, k)
        The same for the gradients, in the rest, of k functions.
    basis : array of shape (r, r), optional
        The directions, columns, that all of these refer to. The axes if not given.
    """

    steps: Float[np.ndarray, " h"]
    precisions: np.ndarray
    shifts: Float[np.ndarray, "p r"]
    slopes: Float[np.ndarray, "h r"]
    gradients: Float[np.ndarray, "p r k"]
    basis: Float[np.ndarray, "r r"] | None = None

    def move(
        self,
        top: Float[np.ndarray, "n h"],
        top_score: Float[np.ndarray, "n h"],
        rest: Matrix,
        rest_score: Matrix,
    ) -> Moved:
        """Return draws and scores in the coordinates of the conditional distribution."""
        draws = (top, top_score, rest, rest_score)
        if self.precisions.ndim == 3:
            return self._move_dense(*draws)
        known = (self.steps, self.precisions, self.shifts, self.slopes, self.gradients)
        size = CHUNK_BYTES // (8 * rest.shape[1] * (1 + self.gradients.shape[2]))
        pieces = [
            _move_diagonal(*known, *(part[rows] for part in draws))
            for rows in _chunks(len(rest), size)
        ]
        return Moved(*(np.concatenate(parts) for parts in zip(*pieces)))

    def _move_dense(
        self, top: Matrix, top_score: Matrix, rest: Matrix, rest_score: Matrix
    ) -> Moved:
        """Move in the basis, in which all but the first directions are standard already."""
        m = self.precisions.shape[1]
        x, s, basis = self._turn(rest, rest_score)
        weights = exponentials(top, self.steps)
        shift = weights @ self.shifts + top @ self.slopes
        changing = self._move_changing(weights, shift[:, :m], x[:, :m], s[:, :m], basis[:, :m])
        first, variance, standard, standard_score, along, along_score, squares, pull = changing
        preconditioned = np.hstack([first, s[:, m:]])
        still, still_score = x[:, m:] - shift[:, m:], s[:, m:]
        for weight, gradient in zip(weights.T, self.gradients[:, m:]):
            along = along + weight[:, None] * (still @ gradient)
            along_score = along_score + weight[:, None] * (still_score @ gradient)
        products = np.einsum("pik,qik->pqk", self.gradients[:, m:], self.gradients[:, m:])
        pairs = (weights[:, :, None] * weights[:, None]).reshape(len(x), -1)
        squares = squares + pairs @ products.reshape(pairs.shape[1], -1)
        lengths = np.sqrt(np.maximum(squares, 0.0)) + np.finfo(float).tiny
        pull = pull + preconditioned @ self.shifts.T
        carried = preconditioned @ self.slopes.T
        for h, change in enumerate(_changes(top, weights, self.steps)):
            carried[:, h] += (change * pull).sum(axis=1)
        return Moved(
            top_score + carried,
            preconditioned @ basis.T,
            variance + (basis[:, m:] ** 2).sum(axis=1),
            np.hstack([standard, still]),
            np.hstack([standard_score, still_score]),
            along / lengths,
            along_score / lengths,
        )

    def _turn(self, x: Matrix, s: Matrix) -> tuple[Matrix, Matrix, Float[np.ndarray, "r r"]]:
        """Return draws and scores in the basis, and the basis."""
        if self.basis is None:
            return x, s, np.eye(x.shape[1])
        return x @ np.linalg.inv(self.basis).T, s @ self.basis, self.basis

    def _move_changing(
        self, weights: Matrix, shift: Matrix, x: Matrix, s: Matrix, basis: Matrix
    ) -> tuple[np.ndarray, ...]:
        """Return what the directions with changing precision give, see :func:`_move_changing`."""
        (n, m), (r, k) = x.shape, self.gradients.shape[1:]
        if not m:
            widths = (0, r, 0, 0, k, k, k, weights.shape[1])
            return tuple(np.zeros((n, width)) for width in widths)
        known = (self.precisions, self.gradients[:, :m], basis)
        draws = (weights, shift, x, s)
        if n >= WORTHWHILE and (card := find_accelerator()):
            return card.run(_compiled_move(), *known, *draws)
        pieces = [
            _move_changing(*known, *(part[rows] for part in draws))
            for rows in _chunks(n, CHUNK_BYTES // (8 * m * (m + r + k)))
        ]
        return tuple(np.concatenate(parts) for parts in zip(*pieces))

    def misfit(self, top: np.ndarray, rest: Matrix, rest_score: Matrix) -> float:
        """Return how far the scores are from those of the conditional distribution."""
        if self.precisions.ndim == 2:
            bare = replace(self, gradients=self.gradients[..., :0])
            moved = bare.move(top, np.zeros_like(top), rest, rest_score)
            return float(np.mean((moved.standard_score + moved.standard) ** 2))
        m = self.precisions.shape[1]
        x, s, _ = self._turn(rest, rest_score)
        weights = exponentials(top, self.steps)
        left = x + s - weights @ self.shifts - top @ self.slopes
        if m:
            precision = _weighted(weights, self.precisions)
            left[:, :m] += _times(precision, x[:, :m]) - x[:, :m]
            for factor, part in zip(np.linalg.cholesky(precision), left):
                part[:m] = lapack.dtrtrs(factor, part[:m], lower=1)[0]
        return float(np.mean(left**2))


def _chunks(n: int, size: int) -> Iterator[slice]:
    """Return pieces of the draws that bound the memory for matrices."""
    size = max(1, size)
    return (slice(start, start + size) for start in range(0, n, size))


@cache
def _compiled_move() -> Callable[..., tuple[np.ndarray, ...]]:
    import jax

    return jax.jit(_move_changing)


def _move_changing(
    precisions: Float[np.ndarray, "p m m"],
    gradients: Float[np.ndarray, "p m k"],
    basis: Float[np.ndarray, "r m"],
    weights: Float[np.ndarray, "n p"],
    shift: Float[np.ndarray, "n m"],
    x: Float[np.ndarray, "n m"],
    s: Float[np.ndarray, "n m"],
) -> tuple[np.ndarray, ...]:
    """Return what a matrix for each draw gives.

    Returns
    -------
    tuple of arrays
        The preconditioned score; what is added to the variances of all coordinates; the
        standardised draws and their scores; both times the gradients of the functions, and the
        squared lengths of these; what a change of each weight does to the log density.
    """
    xp = namespace(x)
    inverse, mean, standard, standard_score = _standardise(weights, precisions, shift, x, s)
    backwards = inverse.transpose(0, 2, 1)
    preconditioned = _times(backwards, standard_score)
    # What a change of each precision does to the log density, while e stays what it is: by the
    # derivative of a Cholesky factor, which is the factor times half of L^-1 dQ L'^-1.
    pushed = inverse * standard_score[..., None]
    half = standard[..., None] * (xp.cumsum(pushed, axis=1) - 0.5 * pushed) + 0.5 * inverse
    response = (backwards @ half).reshape(len(x), -1) @ precisions.reshape(len(precisions), -1).T
    turned = (mean @ precisions).transpose(1, 0, 2)
    ways = inverse @ xp.tensordot(weights, gradients, 1)
    return (
        preconditioned,
        ((inverse @ basis.T) ** 2).sum(axis=1),
        standard,
        standard_score,
        _times(ways.transpose(0, 2, 1), standard),
        _times(ways.transpose(0, 2, 1), standard_score),
        (ways**2).sum(axis=1),
        -_times(turned, preconditioned) - response,
    )


def _standardise(
    weights: Float[np.ndarray, "n p"], precisions: np.ndarray, shift: Matrix, x: Matrix, s: Matrix
) -> tuple[np.ndarray, Matrix, Matrix, Matrix]:
    """Return ``L^-1`` at each draw, conditional means, and the standardised rest and its score."""
    factor = namespace(x).linalg.cholesky(_weighted(weights, precisions))
    inverse = _inverse_of_lower(factor)
    mean = _times(inverse.transpose(0, 2, 1), _times(inverse, shift))
    return inverse, mean, _times(factor.transpose(0, 2, 1), x - mean), _times(inverse, s)


def _weighted(weights: Float[np.ndarray, "n p"], precisions: np.ndarray) -> np.ndarray:
    """Return the precision at each draw."""
    xp = namespace(weights)
    return xp.tensordot(weights, precisions, 1) + RIDGE * xp.eye(precisions.shape[1])


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
    constant = np.ones((len(top), 1))
    if not steps.any():
        return constant
    powers = (2 * steps * top).clip(-LARGEST_EXPONENT, LARGEST_EXPONENT)
    pairs = np.stack([np.exp(-powers), np.exp(powers)], axis=2)
    return np.hstack([constant, pairs.reshape(len(top), -1)])


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
    lengths = np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    return vectors / (lengths + np.finfo(float).tiny)
