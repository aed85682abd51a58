"""The conditional normal distribution, read off the scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from az_cv.families.hierarchy.conditional import RIDGE, ConditionalNormal, exponentials

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Bool, Float

    Matrix = Float[np.ndarray, "n r"]

# Precisions change by exp(-2 c x) and exp(2 c x) with a standardised global coordinate x. With c
# its sd this is exact where the coordinate is the logarithm of a scale; where that is not well
# known, smaller steps are safer.
STEPS = (0.6, 0.3, 0.15)
# How strongly coefficients of standardised products are drawn to zero. Next to nothing is exact
# where the distribution is normal; elsewhere thousands of coefficients would follow the noise.
RIDGES = (RIDGE, 1e-3, 1e-2, 3e-2)
USUAL_RIDGES = (RIDGE, 1e-2)
# Draws for each coefficient of the regression of a score.
DRAWS_PER_COEFFICIENT = 2
# Up to this dimension matrices are inverted at each draw; beyond it only their diagonals are.
DENSE_DIMENSION = 200
# One draw in so many judges what the others have taught.
JUDGED = 4


@dataclass(frozen=True)
class Shape:
    """What kind of conditional distribution is fitted.

    Attributes
    ----------
    steps : array of shape (h,)
        The c of each global coordinate.
    used : array of bool, of shape (1 + 2 h,)
        Which of 1 and the exponentials of the global coordinates multiply precisions.
    ridge : float
    """

    steps: Float[np.ndarray, " h"]
    used: Bool[np.ndarray, " p"]
    ridge: float = RIDGE


def fit_conditional(
    top: Float[np.ndarray, "n h"],
    rest: Matrix,
    rest_score: Matrix,
    functions: Float[np.ndarray, "n k"],
    sds: Float[np.ndarray, " h"],
    max_draws: int = 100,
) -> ConditionalNormal:
    """Fit the conditional distribution to the scores.

    Several shapes are fitted to three quarters of the draws. The one that predicts the scores of
    the others best is fitted to all.

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
        Number of draws by which shapes are judged, at most.
    """
    draws, r = (top, rest, rest_score, functions), rest.shape[1]
    is_dense = r <= DENSE_DIMENSION and len(rest) >= DRAWS_PER_COEFFICIENT * (r + 1)
    fit = _fit_dense if is_dense else _fit_diagonal
    judges = np.arange(0, len(rest), JUDGED)
    taught, taught_rest, taught_score = (np.delete(part, judges, axis=0) for part in draws[:3])
    judges = judges[:: -(-len(judges) // max_draws)]
    nothing = np.empty((len(taught), 0))

    def misfit(shape: Shape) -> float:
        found = fit(taught, taught_rest, taught_score, nothing, shape)
        return found.misfit(*(part[judges] for part in draws[:3]))

    constant = Shape(np.minimum(sds, STEPS[0]), np.arange(1 + 2 * len(sds)) == 0)
    best, least = constant, misfit(constant)
    for stage in range(len(sds) + len(STEPS)):
        for shape in _further(best, stage, sds, dense=is_dense):
            width = shape.used.sum() * (r if is_dense else 1)
            if len(rest) < DRAWS_PER_COEFFICIENT * width:
                continue
            if (size := misfit(shape)) < least:
                best, least = shape, size
    return fit(*draws, best)


def _further(
    best: Shape, stage: int, sds: Float[np.ndarray, " h"], *, dense: bool
) -> Iterator[Shape]:
    """Return shapes to try next: one global coordinate after the other, then smaller steps."""
    ridges = USUAL_RIDGES if dense else USUAL_RIDGES[:1]
    if stage < len(sds):
        for kinds in ((True, False), (False, True), (True, True)):
            used = best.used.copy()
            used[[1 + 2 * stage, 2 + 2 * stage]] = kinds
            yield from (Shape(best.steps, used, ridge) for ridge in ridges)
    elif stage < len(sds) + len(STEPS) - 1:
        steps = np.minimum(sds, STEPS[stage - len(sds) + 1])
        if best.used[1:].any() and (steps < best.steps).any():
            yield replace(best, steps=steps)
    elif dense:
        yield from (replace(best, ridge=ridge) for ridge in RIDGES if ridge != best.ridge)


def _fit_dense(
    top: np.ndarray, rest: Matrix, rest_score: Matrix, functions: np.ndarray, shape: Shape
) -> ConditionalNormal:
    """Regress scores and functions on the rest, all coefficients depending on the global ones."""
    n, r = rest.shape
    weights = exponentials(top, shape.steps)[:, shape.used]
    free = np.hstack([weights, top])
    products = (weights[:, :, None] * rest[:, None]).reshape(n, -1)
    ridge = np.repeat([RIDGE, shape.ridge], [free.shape[1], products.shape[1]])
    features = np.hstack([free, products])
    found = _least_squares(features, rest_score, ridge)
    left = rest_score - features @ found
    rows = found[free.shape[1] :].reshape(weights.shape[1], r, r)
    precisions = _symmetric(-rows, left, rest)
    pulled = np.einsum("np,pij,nj->ni", weights, precisions, rest, optimize=True)
    linear = _least_squares(free, rest_score + pulled)
    shifts, slopes = linear[: weights.shape[1]], linear[weights.shape[1] :]
    if shape.used.sum() == 1:
        gradients = _gradients(top, rest, functions, 0 * shape.steps, shape.ridge)
        return ConditionalNormal(0 * shape.steps, precisions, shifts, slopes, gradients)
    whole = np.zeros((len(shape.used), r, r)), np.zeros((len(shape.used), r))
    whole[0][shape.used], whole[1][shape.used] = precisions, shifts
    gradients = _gradients(top, rest, functions, shape.steps, shape.ridge)
    return ConditionalNormal(shape.steps, *whole, slopes, gradients)


def _gradients(
    top: np.ndarray,
    rest: Matrix,
    functions: Float[np.ndarray, "n k"],
    steps: Float[np.ndarray, " h"],
    ridge: float,
) -> Float[np.ndarray, "p r k"]:
    """Regress functions on the rest, with coefficients that depend on every global coordinate."""
    weights = exponentials(top, steps)
    (n, r), count = rest.shape, weights.shape[1]
    if not functions.shape[1]:
        return np.zeros((count, r, 0))
    used = count if n >= DRAWS_PER_COEFFICIENT * count * r else 1
    free = np.hstack([weights, top])
    products = (weights[:, :used, None] * rest[:, None]).reshape(n, -1)
    ridges = np.repeat([RIDGE, ridge], [free.shape[1], products.shape[1]])
    found = _least_squares(np.hstack([free, products]), functions, ridges)
    gradients = np.zeros((count, r, functions.shape[1]))
    gradients[:used] = found[free.shape[1] :].reshape(used, r, -1)
    return gradients


def _fit_diagonal(
    top: np.ndarray, rest: Matrix, rest_score: Matrix, functions: np.ndarray, shape: Shape
) -> ConditionalNormal:
    """Regress each score on its own coordinate alone."""
    r, h = rest.shape[1], top.shape[1]
    is_constant = shape.used.sum() == 1
    steps = 0 * shape.steps if is_constant else shape.steps
    used = shape.used[:1] if is_constant else shape.used
    weights = exponentials(top, steps)
    chosen = weights[:, used]
    count = chosen.shape[1]
    coefficients = np.column_stack(
        [
            _least_squares(np.hstack([chosen, top, -chosen * rest[:, [j]]]), rest_score[:, [j]])
            for j in range(r)
        ]
    )
    shifts, precisions = np.zeros((2, weights.shape[1], r))
    shifts[used] = coefficients[:count]
    precisions[used] = np.maximum(coefficients[count + h :], 0.0)
    gradients = np.zeros((weights.shape[1], r, functions.shape[1]))
    gradients[0] = _least_squares(np.hstack([top, rest]), functions)[h:]
    return ConditionalNormal(steps, precisions, shifts, coefficients[count : count + h], gradients)


def _least_squares(
    features: np.ndarray, targets: np.ndarray, ridge: float | np.ndarray = RIDGE
) -> np.ndarray:
    """Solve with the features scaled to unit variance."""
    scale = np.sqrt((features**2).mean(axis=0)) + np.finfo(float).tiny
    scaled = features / scale
    normal = scaled.T @ scaled / len(scaled)
    normal[np.diag_indices_from(normal)] += ridge
    moments = scaled.T @ targets / len(scaled)
    return scipy.linalg.solve(normal, moments, assume_a="pos") / scale[:, None]


def _symmetric(
    rows: Float[np.ndarray, "p r r"], left: Matrix, rest: Matrix
) -> Float[np.ndarray, "p r r"]:
    """Return symmetric matrices without negative eigenvalues from regressions of each score.

    An element is known from the scores of both its coordinates. In the basis in which the noise of
    scores has no correlations the two are averaged by how well they are known. Otherwise the scores
    with most noise would spoil the directions in which the precision is small.

    Parameters
    ----------
    rows : array of shape (p, r, r)
        Column j has the coefficients of score j.
    left : array of shape (n, r)
        What the regression leaves of the scores.
    rest : array of shape (n, r)
    """
    n, r = rest.shape
    inverse = np.linalg.inv(rest.T @ rest / n + RIDGE * np.eye(r))
    noise, basis = scipy.linalg.eigh(left.T @ left / n, (inverse + inverse.T) / 2)
    noise = np.maximum(noise, 1e-12 * noise[-1]) + np.finfo(float).tiny
    share = noise[:, None] / (noise[:, None] + noise)
    back = np.linalg.inv(basis)
    found = []
    for row in basis.T @ rows @ basis:
        values, vectors = scipy.linalg.eigh(share * row + share.T * row.T)
        half = (back.T @ vectors) * np.sqrt(np.maximum(values, 0.0))
        found.append(half @ half.T)
    return np.stack(found)
