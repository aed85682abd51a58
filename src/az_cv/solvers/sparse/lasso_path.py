"""The lasso for many outputs along a path of penalties, from the features' second moments.

Every output has few features that count. From one penalty to the next their set changes little, and
a few rounds find it, each a small linear system. Where they do not, coordinate descent does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse

from az_cv.solvers.linear.linear_fit import solve_symmetric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Bool, Float, Int

    Coefficients = Float[np.ndarray, "p q"]

# Of active sets; outputs that need more may go round in circles, and descend instead.
MAX_ROUNDS = 10
EDGE = 1e-9
MAX_SWEEPS = 200
# Of the correlation matrices of several outputs' features: 80 MB.
MAX_ELEMENTS = 1e7
# Share of coefficients that are not zero below which a sparse product is faster.
SPARSE = 0.05
# Steps along the path that an output goes on beyond the best by generalised cross-validation.
PATIENCE = 4


@dataclass(frozen=True)
class Moments:
    """Second moments of standardised features, and their covariances with outputs.

    Attributes
    ----------
    gram : array of shape (p, p)
        Correlations of the features.
    right : array of shape (p, q)
        Covariances of features and outputs.
    variance : array of shape (q,)
        Variances of the outputs.
    draws : int
    """

    gram: Float[np.ndarray, "p p"]
    right: Coefficients
    variance: Float[np.ndarray, " q"]
    draws: int


def lasso_path(
    moments: Moments,
    penalties: Float[np.ndarray, " l"],
    *,
    max_features: int | None = None,
    tolerance: float = 1e-3,
) -> Iterator[tuple[Int[np.ndarray, " k"], Coefficients]]:
    """Minimise ``|y - Phi b|^2 / 2n + penalty * largest * |b|_1`` for falling penalties.

    Parameters
    ----------
    moments : Moments
    penalties : array of shape (l,)
        Falling, in units of the smallest penalty that leaves every feature out, which each output
        has for itself.
    max_features : int, optional
        An output with as many goes no further, nor does one that gains nothing more, by generalised
        cross-validation. Without it every output goes to the end.
    tolerance : float
        A step below this, in units of the penalty, counts as none.

    Yields
    ------
    outputs : array of shape (k,)
        Those that still go on.
    coefficients : array of shape (p, k)
    """
    # On the way to a minimum sets are larger than there.
    limit = len(moments.gram) if max_features is None else 2 * max_features
    largest = np.maximum(np.abs(moments.right).max(axis=0), np.finfo(float).tiny)
    outputs = np.arange(len(largest))
    coefficients, gradient = np.zeros_like(moments.right), moments.right.copy()
    best, since = np.full(len(outputs), np.inf), np.zeros(len(outputs), dtype=int)
    for fraction in penalties:
        penalty = fraction * largest
        left, beyond = _active_sets(
            moments, outputs, coefficients, gradient, penalty, tolerance * penalty, limit
        )
        if len(left):
            b, c = coefficients[:, left], gradient[:, left]
            _descend(moments, outputs[left], b, c, penalty[left], tolerance * penalty[left])
            coefficients[:, left], gradient[:, left] = b, c
        reached = ~np.isin(np.arange(len(outputs)), beyond)
        yield outputs[reached], coefficients[:, reached]
        if max_features is None:
            continue
        used = np.count_nonzero(coefficients, axis=0)
        error = _generalised_cross_validation(moments, outputs, coefficients, gradient, used)
        is_better = error < best
        best, since = np.where(is_better, error, best), np.where(is_better, 0, since + 1)
        going_on = (since < PATIENCE) & (used < max_features) & reached
        if not going_on.any():
            return
        outputs, best, since = outputs[going_on], best[going_on], since[going_on]
        largest = largest[going_on]
        coefficients, gradient = coefficients[:, going_on], gradient[:, going_on]


def _generalised_cross_validation(
    moments: Moments,
    outputs: Int[np.ndarray, " k"],
    coefficients: Coefficients,
    gradient: Coefficients,
    used: Int[np.ndarray, " k"],
) -> Float[np.ndarray, " k"]:
    """Return the mean squared residual, enlarged by the degrees of freedom.

    Those of the lasso are as many as it has features. Uncertain by rounding where nothing is left.
    """
    explained = (coefficients * (moments.right[:, outputs] + gradient)).sum(axis=0)
    left = np.maximum(moments.variance[outputs] - explained, 0)
    return left / np.maximum(1 - used / moments.draws, 1 / moments.draws) ** 2


def _active_sets(
    moments: Moments,
    outputs: Int[np.ndarray, " k"],
    coefficients: Coefficients,
    gradient: Coefficients,
    penalty: Float[np.ndarray, " k"],
    tolerance: Float[np.ndarray, " k"],
    limit: int,
) -> tuple[Int[np.ndarray, " r"], Int[np.ndarray, " t"]]:
    """Go to the minimum in place by primal-dual active sets.

    Returned are the outputs for which that failed, and those that met more features than `limit`.

    At the minimum ``b + c``, with the gradient c, tells which features are in and with which sign;
    given that, b solves a linear system. From the minimum at a close penalty a few rounds do.
    """
    pending, failed, beyond = np.arange(len(outputs)), list[int](), list[int]()
    b, c = coefficients.copy(), gradient.copy()
    signs = _signs(b, c, penalty)
    for _ in range(MAX_ROUNDS):
        is_large = np.count_nonzero(signs[:, pending], axis=0) > limit
        beyond += list(pending[is_large])
        pending = pending[~is_large]
        for k in pending:
            rows = np.flatnonzero(signs[:, k])
            b[:, k] = 0.0
            if len(rows):
                right = moments.right[rows, outputs[k]] - penalty[k] * signs[rows, k]
                b[rows, k] = solve_symmetric(moments.gram[np.ix_(rows, rows)], right)
        c[:, pending] = moments.right[:, outputs[pending]] - _product(moments.gram, b[:, pending])
        implied = _signs(b[:, pending], c[:, pending], penalty[pending])
        changed = (implied != signs[:, pending]).any(axis=0)
        settled = pending[~changed]
        right = moments.right[:, outputs[settled]]
        met = _is_minimum(b[:, settled], c[:, settled], right, penalty[settled], tolerance[settled])
        done = settled[met]
        coefficients[:, done], gradient[:, done] = b[:, done], c[:, done]
        failed += list(settled[~met])
        pending = pending[changed]
        if not len(pending):
            break
        signs[:, pending] = implied[:, changed]
    return np.array([*failed, *pending], dtype=int), np.array(beyond, dtype=int)


def _is_minimum(
    coefficients: Coefficients,
    gradient: Coefficients,
    right: Coefficients,
    penalty: Float[np.ndarray, " k"],
    tolerance: Float[np.ndarray, " k"],
) -> Bool[np.ndarray, " k"]:
    """Tell whether the gradient is the penalty where coefficients are, and the objective low.

    With more features than draws the system is singular, and huge coefficients solve it.
    """
    misfit = np.abs(gradient - penalty * np.sign(coefficients)) * (coefficients != 0)
    gained = 0.5 * (coefficients * (right + gradient)).sum(axis=0)
    return (misfit <= tolerance).all(axis=0) & (
        gained >= penalty * np.abs(coefficients).sum(axis=0)
    )


def _signs(
    coefficients: Coefficients, gradient: Coefficients, penalty: Float[np.ndarray, " k"]
) -> Int[np.ndarray, "p k"]:
    """Return the signs that coefficients ought to have, zero for those that ought to be."""
    target = coefficients + gradient
    # Rounding at the edge is no change of mind.
    edge = penalty * (1 + EDGE * np.where(coefficients == 0, 1, -1))
    return np.where(np.abs(target) > edge, np.sign(target), 0).astype(np.int8)


def _descend(
    moments: Moments,
    outputs: Int[np.ndarray, " k"],
    coefficients: Coefficients,
    gradient: Coefficients,
    penalty: Float[np.ndarray, " k"],
    tolerance: Float[np.ndarray, " k"],
) -> None:
    """Descend to the minimum in place, each output among features of its own.

    Features whose gradient is below the penalty stay out until the others are done.
    """
    active = (coefficients != 0) | (np.abs(gradient) > penalty)
    pending = np.flatnonzero(active.any(axis=0))
    while len(pending):
        # Outputs of about as many features together waste little on filling up.
        order = pending[np.argsort(active[:, pending].sum(axis=0), kind="stable")]
        for part in _parts(active[:, order].sum(axis=0)):
            own = order[part]
            coefficients[:, own] = _among_own_features(
                moments,
                active[:, own],
                coefficients[:, own],
                gradient[:, own],
                penalty[own],
                tolerance[own],
            )
        explained = _product(moments.gram, coefficients[:, pending])
        gradient[:, pending] = moments.right[:, outputs[pending]] - explained
        wrong = np.abs(gradient[:, pending]) > (penalty + tolerance)[pending]
        wrong &= ~active[:, pending]
        active[:, pending] |= wrong
        pending = pending[wrong.any(axis=0)]


def _parts(counts: Int[np.ndarray, " k"]) -> Iterator[slice]:
    """Yield outputs whose correlation matrices, of so many features each, fit in memory."""
    start = 0
    while start < len(counts):
        # Counts rise, so that the last of a part has the largest matrix.
        sizes = np.arange(1, len(counts) - start + 1) * counts[start:].astype(float) ** 2
        stop = start + max(1, int(np.searchsorted(sizes, MAX_ELEMENTS, side="right")))
        yield slice(start, stop)
        start = stop


def _product(gram: Float[np.ndarray, "p p"], coefficients: Coefficients) -> Coefficients:
    """Return ``gram @ coefficients``, whose time grows with the coefficients that are not zero."""
    if np.count_nonzero(coefficients) > SPARSE * coefficients.size:
        return gram @ coefficients
    return (scipy.sparse.csr_array(coefficients.T) @ gram).T


def _among_own_features(
    moments: Moments,
    active: Bool[np.ndarray, "p k"],
    coefficients: Coefficients,
    gradient: Coefficients,
    penalty: Float[np.ndarray, " k"],
    tolerance: Float[np.ndarray, " k"],
) -> Coefficients:
    """Return coefficients after coordinate descent, all outputs side by side.

    The j-th active feature of every output is visited at the same time.
    """
    counts = active.sum(axis=0)
    rows = np.argsort(~active, axis=0, kind="stable")[: counts.max()]
    filled = np.arange(len(rows))[:, None] < counts
    b = np.where(filled, np.take_along_axis(coefficients, rows, axis=0), 0.0).T.copy()
    c = np.take_along_axis(gradient, rows, axis=0).T.copy()
    inner = moments.gram[rows[:, :, None], rows.T[None]]
    # What only fills up never moves.
    bound = np.where(filled, penalty, np.inf)
    pending = np.arange(len(penalty))
    for _ in range(MAX_SWEEPS):
        before = b[pending]
        own, own_c = before.copy(), c[pending]
        for feature, (matrix, limit) in enumerate(zip(inner, bound)):
            full = own_c[:, feature] + own[:, feature]
            step = full - np.minimum(np.maximum(full, -limit), limit) - own[:, feature]
            if step.any():
                own[:, feature] += step
                own_c -= step[:, None] * matrix
        b[pending], c[pending] = own, own_c
        going_on = np.abs(own - before).max(axis=1) > tolerance[pending]
        pending = pending[going_on]
        if not len(pending):
            break
        if not going_on.all():
            inner, bound = inner[:, going_on], bound[:, going_on]
    found = np.zeros_like(coefficients)
    np.put_along_axis(found, rows, np.where(filled, b.T, 0.0), axis=0)
    return found


def least_squares(
    moments: Moments, outputs: Int[np.ndarray, " k"], used: Bool[np.ndarray, "p k"]
) -> Coefficients:
    """Return the coefficients without penalty, each output on the features that it uses."""
    found = np.zeros(used.shape)
    for column, output in enumerate(outputs):
        rows = np.flatnonzero(used[:, column])
        if len(rows):
            matrix, right = moments.gram[np.ix_(rows, rows)], moments.right[rows, output]
            found[rows, column] = solve_symmetric(matrix, right)
    return found
