"""The conditional normal distribution of many coordinates, chosen by draws left out.

Its thousands of coefficients would follow the noise of the scores. Several shapes are fitted to
three quarters of the draws: each global coordinate may change precisions or not, upwards or
downwards, and coefficients may be drawn to zero. The shape that predicts the scores of the others
best is fitted to all. Then precisions change in as few directions as serve nearly as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from az_cv.families.hierarchy.conditional import RIDGE, ConditionalNormal, exponentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jaxtyping import Bool, Float

    Matrix = Float[np.ndarray, "n r"]

# Precisions change by exp(-2 c x) and exp(2 c x) with a standardised global coordinate x. With c
# its sd, up to this, that is exact where the coordinate is the logarithm of a scale.
LONGEST_STEP = 0.6
# How strongly coefficients of standardised products are drawn to zero. Next to nothing is exact
# where the distribution is normal; elsewhere thousands of coefficients would follow the noise.
RIDGES = (RIDGE, 1e-3, 1e-2, 3e-2)
USUAL_RIDGE = 1e-2
# Draws for each coefficient of the regression of a score.
DRAWS_PER_COEFFICIENT = 2
# One draw in so many judges what the others have taught.
JUDGED = 4
# In what share of the directions precisions may change, and how much worse that may predict than
# all of them do. Matrices for all take so long that they must be twice as good.
SHARES = {1 / 16: 1.1, 1 / 8: 1.1, 1 / 4: 1.1, 1 / 2: 2.0}


@dataclass(frozen=True)
class Shape:
    """What kind of conditional distribution is fitted.

    Attributes
    ----------
    used : array of bool, of shape (1 + 2 h,)
        Which of 1 and the exponentials of the global coordinates multiply precisions.
    ridge : float
    """

    used: Bool[np.ndarray, " p"]
    ridge: float = USUAL_RIDGE


def fit_chosen(
    top: Float[np.ndarray, "n h"],
    rest: Matrix,
    rest_score: Matrix,
    functions: Float[np.ndarray, "n k"],
    sds: Float[np.ndarray, " h"],
    max_draws: int = 100,
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
        Number of draws by which shapes are judged, at most.
    """
    n, r = rest.shape
    steps = np.minimum(sds, LONGEST_STEP)
    judges = np.arange(0, n, JUDGED)
    taught = np.delete(np.arange(n), judges)
    judges = judges[:: -(-len(judges) // max_draws)]
    early, whole = (
        _Regression(steps, top[rows], rest[rows], rest_score[rows])
        for rows in (taught, slice(None))
    )

    def misfit(found: ConditionalNormal) -> float:
        return found.misfit(top[judges], rest[judges], rest_score[judges])

    best = Shape(np.arange(1 + 2 * len(sds)) == 0)
    least = misfit(early.fit(best))
    for further in [*(_with_coordinate(h) for h in range(len(sds))), _with_ridges]:
        for shape in further(best):
            is_known = n >= DRAWS_PER_COEFFICIENT * shape.used.sum() * r
            if is_known and (size := misfit(early.fit(shape))) < least:
                best, least = shape, size
    found, final = early.fit(best), whole.fit(best, functions)
    if best.used.sum() == 1:
        return of_few_directions(final, whole.weights, 0)
    for share, as_good in SHARES.items():
        count = int(share * r)
        if misfit(of_few_directions(found, early.weights, count)) <= as_good * least:
            return of_few_directions(final, whole.weights, count)
    return final


def _with_coordinate(h: int) -> Callable[[Shape], Iterator[Shape]]:
    """Return what gives the shapes in which one more global coordinate changes precisions."""

    def further(best: Shape) -> Iterator[Shape]:
        for kinds in ((True, False), (False, True), (True, True)):
            used = best.used.copy()
            used[[1 + 2 * h, 2 + 2 * h]] = kinds
            yield replace(best, used=used)

    return further


def _with_ridges(best: Shape) -> Iterator[Shape]:
    """Return the shape with other ridges."""
    return (replace(best, ridge=ridge) for ridge in RIDGES if ridge != best.ridge)


class _Regression:
    """Regressions of scores on the rest, all coefficients depending on the global coordinates.

    Every shape uses some of the same features, whose products are made once.
    """

    def __init__(
        self, steps: Float[np.ndarray, " h"], top: np.ndarray, rest: Matrix, score: Matrix
    ) -> None:
        self.steps, self.top, self.rest = steps, top, rest
        self.weights = exponentials(top, steps)
        n, self.size = rest.shape
        products = (self.weights[:, :, None] * rest[:, None]).reshape(n, -1)
        self.features = np.hstack([self.weights, top, products])
        self.scale = np.sqrt((self.features**2).mean(axis=0)) + np.finfo(float).tiny
        self.features /= self.scale
        self.normal = self.features.T @ self.features / n
        self.moments = self.features.T @ score / n
        self.of_scores = score.T @ score / n
        self.of_rest = rest.T @ rest / n

    def fit(
        self, shape: Shape, functions: Float[np.ndarray, "n k"] | None = None
    ) -> ConditionalNormal:
        """Return the distribution of a shape."""
        r, (h, p) = self.size, (len(self.steps), len(shape.used))
        used = np.flatnonzero(shape.used)
        free = np.concatenate([used, np.arange(p, p + h)])
        products = (p + h + used[:, None] * r + np.arange(r)).ravel()
        columns = np.concatenate([free, products])
        ridges = np.repeat([RIDGE, shape.ridge], [len(free), len(products)])
        found = self._solve(columns, self.moments[columns], ridges)
        explained = found.T @ self.moments[columns]
        left = self.of_scores - explained - explained.T
        left += found.T @ self.normal[np.ix_(columns, columns)] @ found
        rows = (found / self.scale[columns, None])[len(free) :].reshape(len(used), r, r)
        precisions = _symmetric(-rows, left, self.of_rest)
        pulls = self.scale[products, None] * precisions.reshape(-1, r)
        targets = self.moments[free] + self.normal[np.ix_(free, products)] @ pulls
        linear = self._solve(free, targets, RIDGE) / self.scale[free, None]
        shifts, slopes = linear[: len(used)], linear[len(used) :]
        gradients = self._gradients(shape, functions)
        if len(used) == 1:
            return ConditionalNormal(0 * self.steps, precisions, shifts, slopes, gradients)
        whole = np.zeros((p, r, r)), np.zeros((p, r))
        whole[0][used], whole[1][used] = precisions, shifts
        return ConditionalNormal(self.steps, *whole, slopes, gradients)

    def _gradients(
        self, shape: Shape, functions: Float[np.ndarray, "n k"] | None
    ) -> Float[np.ndarray, "p r k"]:
        """Regress functions on the rest, with coefficients that depend on what precisions do."""
        n, r, (h, p) = len(self.rest), self.size, (len(self.steps), len(shape.used))
        count = p if shape.used.sum() > 1 else 1
        if functions is None or not functions.shape[1]:
            return np.zeros((count, r, 0))
        used = count if n >= DRAWS_PER_COEFFICIENT * count * r else 1
        free = np.concatenate([np.arange(count), np.arange(p, p + h)])
        columns = np.concatenate([free, p + h + np.arange(used * r)])
        ridges = np.repeat([RIDGE, shape.ridge], [len(free), used * r])
        moments = self.features[:, columns].T @ functions / n
        found = self._solve(columns, moments, ridges) / self.scale[columns, None]
        gradients = np.zeros((count, r, functions.shape[1]))
        gradients[:used] = found[len(free) :].reshape(used, r, -1)
        return gradients

    def _solve(
        self, columns: np.ndarray, moments: np.ndarray, ridge: float | np.ndarray
    ) -> np.ndarray:
        """Return the coefficients of some of the features."""
        normal = self.normal[np.ix_(columns, columns)]
        normal[np.diag_indices_from(normal)] += ridge
        return scipy.linalg.solve(normal, moments, assume_a="pos")


def of_few_directions(
    found: ConditionalNormal, weights: Float[np.ndarray, "n p"], count: int
) -> ConditionalNormal:
    """Let the precision change in some directions only: those in which it changes most.

    Parameters
    ----------
    found : ConditionalNormal
    weights : array of shape (n, p)
        What precisions are multiplied by at the draws.
    count : int
        Number of directions.
    """
    r = found.shifts.shape[1]
    weights = weights[:, : len(found.precisions)]
    centre = weights.mean(axis=0)
    typical = np.tensordot(centre, found.precisions, 1) + RIDGE * np.eye(r)
    inverse = np.linalg.inv(np.linalg.cholesky(typical))
    relative = inverse @ found.precisions @ inverse.T
    covariance = (weights - centre).T @ (weights - centre) / len(weights)
    changes = np.tensordot(covariance, relative, 1)
    directions = scipy.linalg.eigh(sum(a @ b for a, b in zip(relative, changes)))[1][:, ::-1]
    first = directions[:, :count]
    basis = inverse.T @ directions
    return ConditionalNormal(
        found.steps,
        first.T @ relative @ first,
        found.shifts @ basis,
        found.slopes @ basis,
        basis.T @ found.gradients,
        basis,
    )


def _symmetric(
    rows: Float[np.ndarray, "p r r"],
    left: Float[np.ndarray, "r r"],
    of_rest: Float[np.ndarray, "r r"],
) -> Float[np.ndarray, "p r r"]:
    """Return symmetric matrices without negative eigenvalues from regressions of each score.

    An element is known from the scores of both its coordinates. In the basis in which the noise of
    scores has no correlations the two are averaged by how well they are known. Otherwise the scores
    with most noise would spoil the directions in which the precision is small.

    Parameters
    ----------
    rows : array of shape (p, r, r)
        Column j has the coefficients of score j.
    left, of_rest : arrays of shape (r, r)
        Second moments of what the regression leaves of the scores, and of the rest.
    """
    inverse = np.linalg.inv(of_rest + RIDGE * np.eye(len(of_rest)))
    noise, basis = scipy.linalg.eigh((left + left.T) / 2, (inverse + inverse.T) / 2)
    noise = np.maximum(noise, 1e-12 * noise[-1]) + np.finfo(float).tiny
    share = noise[:, None] / (noise[:, None] + noise)
    back = np.linalg.inv(basis)
    found = []
    for row in basis.T @ rows @ basis:
        values, vectors = scipy.linalg.eigh(share * row + share.T * row.T)
        half = (back.T @ vectors) * np.sqrt(np.maximum(values, 0.0))
        found.append(half @ half.T)
    return np.stack(found)
