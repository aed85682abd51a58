"""The normal distribution that most resembles a posterior, given its global coordinates.

Given the coordinates ``x_H`` that govern the others, many posteriors are nearly normal in the rest,
with precision ``Q(x_H)`` and mean ``Q^-1 b``. Both are read off the scores, which in the normal
case are ``b - Q x``. Whatever they are, the fields made of them have exact Stein images: fields
that move the rest alone see ``x_H`` as a constant, and those that move ``x_H`` carry the rest along
so that its standardised values stay what they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from scipy.linalg import lapack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n r"]

# Precisions change by exp(-2 c x) and exp(2 c x) with a standardised global coordinate x. With c
# its sd this is exact where the coordinate is the logarithm of a scale; where that is not well
# known, smaller steps are safer. Zero: they do not change.
STEPS = (0.6, 0.3, 0.15, 0.0)
# Precisions change no more beyond this exponent: far out in a heavy tail they would overflow.
LARGEST_EXPONENT = 8.0
# Draws for each coefficient of the regression of a score.
DRAWS_PER_COEFFICIENT = 2
# Up to this dimension matrices are inverted at each draw; beyond it only their diagonals are.
DENSE_DIMENSION = 200
CHUNK_BYTES = 2**25
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
        move = self._move_dense if self.precisions.ndim == 3 else self._move_diagonal
        pieces = [
            move(top[rows], top_score[rows], rest[rows], rest_score[rows])
            for rows in self._chunks(len(rest))
        ]
        return Moved(*(np.concatenate(parts) for parts in zip(*pieces)))

    def _move_dense(
        self, top: Matrix, top_score: Matrix, x: Matrix, s: Matrix
    ) -> tuple[np.ndarray, ...]:
        weights = exponentials(top, self.steps)
        precision = np.tensordot(weights, self.precisions, 1)
        precision += RIDGE * np.eye(x.shape[1])
        factor = np.linalg.cholesky(precision)
        inverse = np.stack([lapack.dtrtri(one, lower=1)[0] for one in factor])
        backwards = inverse.transpose(0, 2, 1)
        mean = _times(backwards, _times(inverse, weights @ self.shifts + top @ self.slopes))
        standard, standard_score = _times(factor.transpose(0, 2, 1), x - mean), _times(inverse, s)
        preconditioned = _times(backwards, standard_score)
        carried = preconditioned @ self.slopes.T
        for h, change in enumerate(self._changes(top, weights)):
            precision_change = np.tensordot(change, self.precisions, 1)
            drift = change @ self.shifts - _times(precision_change, mean)
            turn = inverse @ precision_change @ backwards
            diagonal = np.einsum("nii->ni", turn)
            turned = _times(np.tril(turn, -1), standard_score) + 0.5 * diagonal * standard_score
            carried[:, h] += (preconditioned * drift - standard * turned - 0.5 * diagonal).sum(
                axis=1
            )
        ways = _of_length_one(inverse @ np.tensordot(weights, self.gradients, 1))
        return (
            top_score + carried,
            preconditioned,
            np.einsum("nij,nij->nj", inverse, inverse),
            standard,
            standard_score,
            _times(ways.transpose(0, 2, 1), standard),
            _times(ways.transpose(0, 2, 1), standard_score),
        )

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

    def _move_diagonal(
        self, top: Matrix, top_score: Matrix, x: Matrix, s: Matrix
    ) -> tuple[np.ndarray, ...]:
        weights = exponentials(top, self.steps)
        precision = weights @ self.precisions + RIDGE
        mean = (weights @ self.shifts + top @ self.slopes) / precision
        sd = np.sqrt(1 / precision)
        standard, standard_score = (x - mean) / sd, s * sd
        preconditioned = s / precision
        carried = preconditioned @ self.slopes.T
        for h, change in enumerate(self._changes(top, weights)):
            precision_change = change @ self.precisions
            drift = change @ self.shifts - precision_change * mean
            turn = 0.5 * precision_change / precision * (standard * standard_score + 1)
            carried[:, h] += (preconditioned * drift - turn).sum(axis=1)
        ways = _of_length_one(sd[..., None] * np.tensordot(weights, self.gradients, 1))
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
        self, top: Float[np.ndarray, "n h"], weights: Float[np.ndarray, "n p"]
    ) -> Iterator[Float[np.ndarray, "n p"]]:
        """Return the derivatives of the weights with respect to each global coordinate."""
        for h, step in enumerate(self.steps if self.steps.any() else ()):
            rate = np.where(np.abs(2 * step * top[:, h]) < LARGEST_EXPONENT, 2 * step, 0.0)
            change = np.zeros_like(weights)
            change[:, 1 + 2 * h] = -rate * weights[:, 1 + 2 * h]
            change[:, 2 + 2 * h] = rate * weights[:, 2 + 2 * h]
            yield change

    def _chunks(self, n: int) -> Iterator[slice]:
        """Return pieces of the draws that bound the memory for matrices."""
        r = self.shifts.shape[1]
        columns = (r if self.precisions.ndim == 3 else 1) + self.gradients.shape[2]
        size = max(1, CHUNK_BYTES // (8 * r * columns))
        return (slice(start, start + size) for start in range(0, n, size))

    def misfit(self, top: np.ndarray, rest: Matrix, rest_score: Matrix) -> float:
        """Return how far the scores are from those of the conditional distribution."""
        bare = replace(self, gradients=self.gradients[..., :0])
        moved = bare.move(top, np.zeros_like(top), rest, rest_score)
        return float(np.mean((moved.standard_score + moved.standard) ** 2))


def fit_conditional(
    top: Float[np.ndarray, "n h"],
    rest: Matrix,
    rest_score: Matrix,
    functions: Float[np.ndarray, "n k"],
    sds: Float[np.ndarray, " h"],
    max_draws: int = 400,
) -> ConditionalNormal:
    """Fit the conditional distribution to the scores.

    Parameters
    ----------
    top, rest : arrays of shape (n, h) and (n, r)
        Standardised draws.
    rest_score : array of shape (n, r)
    functions : array of shape (n, k)
        Functions whose gradients are wanted, too.
    sds : array of shape (h,)
        Sds of the global coordinates before they were standardised.
    max_draws : int
        Number of draws on which several distributions are compared, at most.
    """
    n, r = rest.shape
    is_dense = r <= DENSE_DIMENSION and n >= DRAWS_PER_COEFFICIENT * (r + 1)
    rows = slice(None, None, -(-n // max_draws))
    best, least = None, np.inf
    tried = set()
    for most in STEPS:
        steps = np.minimum(sds, most)
        width = (1 + 2 * len(steps)) * (r if is_dense else 1)
        if tuple(steps) in tried or (most > 0 and n < DRAWS_PER_COEFFICIENT * width):
            continue
        tried.add(tuple(steps))
        found = _regress(top, rest, rest_score, functions, steps, dense=is_dense)
        misfit = found.misfit(top[rows], rest[rows], rest_score[rows])
        if best is None or misfit < least:
            best, least = found, misfit
    assert best is not None
    return best


def _regress(
    top: np.ndarray,
    rest: Matrix,
    rest_score: Matrix,
    functions: Float[np.ndarray, "n k"],
    steps: np.ndarray,
    *,
    dense: bool,
) -> ConditionalNormal:
    """Regress scores and functions on the rest, all coefficients depending on the global ones."""
    n, r = rest.shape
    weights = exponentials(top, steps)
    count = weights.shape[1]
    if dense:
        products = (weights[:, :, None] * rest[:, None]).reshape(n, -1)
        targets = np.hstack([rest_score, functions])
        found = _least_squares(np.hstack([weights, top, products]), targets)
        shifts, slopes, rows = np.split(found, [count, count + top.shape[1]])
        rows = rows.reshape(count, r, -1)
        precisions = np.stack([_without_negative(-q) for q in rows[..., :r]])
        return ConditionalNormal(steps, precisions, shifts[:, :r], slopes[:, :r], rows[..., r:])
    coefficients = np.column_stack(
        [
            _least_squares(np.hstack([weights, top, -weights * rest[:, [j]]]), rest_score[:, [j]])
            for j in range(r)
        ]
    )
    shifts, slopes, diagonals = np.split(coefficients, [count, count + top.shape[1]])
    gradients = np.zeros((count, r, functions.shape[1]))
    gradients[0] = _least_squares(np.hstack([top, rest]), functions)[top.shape[1] :]
    return ConditionalNormal(steps, np.maximum(diagonals, 0.0), shifts, slopes, gradients)


def exponentials(
    top: Float[np.ndarray, "n h"], steps: Float[np.ndarray, " h"]
) -> Float[np.ndarray, "n p"]:
    """Return 1, and ``exp(-2 c x)`` and ``exp(2 c x)`` of each global coordinate if any c > 0."""
    constant = np.ones((len(top), 1))
    if not steps.any():
        return constant
    powers = np.clip(2 * steps * top, -LARGEST_EXPONENT, LARGEST_EXPONENT)
    pairs = np.stack([np.exp(-powers), np.exp(powers)], axis=2)
    return np.hstack([constant, pairs.reshape(len(top), -1)])


def _least_squares(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Solve with the features scaled to unit variance and next to no ridge."""
    scale = np.sqrt((features**2).mean(axis=0)) + np.finfo(float).tiny
    scaled = features / scale
    normal = scaled.T @ scaled / len(scaled)
    normal[np.diag_indices_from(normal)] += RIDGE
    moments = scaled.T @ targets / len(scaled)
    return scipy.linalg.solve(normal, moments, assume_a="pos") / scale[:, None]


def _without_negative(matrix: Float[np.ndarray, "r r"]) -> Float[np.ndarray, "r r"]:
    """Return the nearest symmetric matrix without negative eigenvalues."""
    values, vectors = scipy.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


def _times(matrices: Float[np.ndarray, "n r r"], vectors: Matrix) -> Matrix:
    """Return the product of each matrix with its vector."""
    return (matrices @ vectors[..., None])[..., 0]


def _of_length_one(vectors: Float[np.ndarray, "n r k"]) -> Float[np.ndarray, "n r k"]:
    """Return the vectors, columns, divided by their lengths."""
    lengths = np.sqrt(np.einsum("nrk,nrk->nk", vectors, vectors))
    return vectors / (lengths[:, None] + np.finfo(float).tiny)
