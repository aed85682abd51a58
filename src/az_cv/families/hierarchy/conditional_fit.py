"""The conditional normal distribution, read off the scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from az_cv.families.hierarchy.chosen_fit import DRAWS_PER_COEFFICIENT, fit_chosen
from az_cv.families.hierarchy.conditional import RIDGE, ConditionalNormal, exponentials

if TYPE_CHECKING:
    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n r"]

# Precisions change by exp(-2 c x) and exp(2 c x) with a standardised global coordinate x. With c
# its sd this is exact where the coordinate is the logarithm of a scale; where that is not well
# known, smaller steps are safer. Zero: they do not change.
STEPS = (0.6, 0.3, 0.15, 0.0)
# Up to this dimension matrices are inverted at each draw; beyond it only their diagonals are.
DENSE_DIMENSION = 200
# From this dimension on coefficients are so many that draws left out choose among distributions.
CHOICE_DIMENSION = 30


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
    if is_dense and r >= CHOICE_DIMENSION:
        return fit_chosen(top, rest, rest_score, functions, sds)
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
