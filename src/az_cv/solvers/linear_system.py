"""Regularised least squares with an exact answer for every fold.

One factorisation gives, for all outputs together, the intercept (the estimate of each expectation),
and what the fit without a fold predicts for that fold. With ``P`` the residual operator of the fit
(``P f`` is proportional to its residuals), leaving out the rows ``B`` leaves the residuals
``P_BB^-1 (P f)_B``; no fold is ever refitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from scipy.linalg import blas, lapack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Float, Int

    Outputs = Float[np.ndarray, "n q"]
    Folds = Sequence[Int[np.ndarray, " b"]]

# Numbers of outermost draws left out together to gauge what lies beyond the sample, with the weight
# of the shift that each causes: the more are left out, the more it overstates what one more hides.
EXTREMES = {1: 1.0, 2: 1.0, 4: 1.0, 8: 0.5}
AMPLITUDE_DRAWS = 4
TILE = 128


@dataclass(frozen=True)
class LinearFit:
    """A control variate fitted to q outputs by one linear solve.

    Attributes
    ----------
    intercept : array of shape (q,)
        In-sample estimate of each expectation.
    residual : array of shape (n, q)
        ``f(x_i)`` minus what the fit without the fold of draw i predicts there.
    adjusted : array of shape (n, q)
        ``f - g`` with ``g`` fitted without the fold of draw i. Only its mean is meaningful.
    tail_sd : array of shape (q,)
        Quadrature error of the intercept with the amplitude seen at the outermost draws.
    tail_shift : array of shape (q,)
        How far the intercept moves when the outermost draws are left out.
    quadrature_sd : array of shape (q,)
        Bayesian-quadrature posterior sd of the intercept, amplitude by maximum likelihood.
    log_evidence : array of shape (q,)
        Log marginal likelihood, amplitude maximised. Comparable between kernels on the same draws.
    """

    intercept: Float[np.ndarray, " q"]
    residual: Outputs
    adjusted: Outputs
    tail_sd: Float[np.ndarray, " q"]
    tail_shift: Float[np.ndarray, " q"]
    quadrature_sd: Float[np.ndarray, " q"]
    log_evidence: Float[np.ndarray, " q"]


def solve_dual(
    gram: Float[np.ndarray, "n n"],
    outputs: Outputs,
    folds: Folds,
    *,
    ridge: float,
    exact_features: Float[np.ndarray, "n r"] | None = None,
    outermost: Int[np.ndarray, " k"] | None = None,
) -> LinearFit | None:
    """Solve ``f = c + Psi b + K a`` with ridge on a, in the dual.

    Parameters
    ----------
    gram : array of shape (n, n), Fortran order
        Stein kernel; the lower triangle is read, and the matrix is overwritten.
    outputs : array of shape (n, q)
    folds : sequence of index arrays that partition the rows
    ridge : float
        Relative to the mean diagonal of `gram`.
    exact_features : array of shape (n, r), optional
        ``Psi``, not penalised (semi-exact control functional).
    outermost : index array, optional
        Draws to leave out for `tail_sd` and `tail_shift`, farthest first.

    Returns
    -------
    LinearFit or None
        ``None`` when the matrix is not numerically positive definite.
    """
    n = len(gram)
    diagonal = np.einsum("ii->i", gram)
    diagonal += ridge * diagonal.mean()
    factor, failed = lapack.dpotrf(gram, lower=1, overwrite_a=1)
    if failed:
        return None
    basis = (
        np.ones((n, 1)) if exact_features is None else np.column_stack([np.ones(n), exact_features])
    )
    solved, _ = lapack.dpotrs(factor, np.asfortranarray(np.column_stack([basis, outputs])), lower=1)
    solved_basis, solved_outputs = solved[:, : basis.shape[1]], solved[:, basis.shape[1] :]
    log_det = 2 * np.log(np.diag(factor)).sum()
    inverse, _ = lapack.dtrtri(factor, lower=1, overwrite_c=1)

    # P = A^-1 - A^-1 Psi (Psi' A^-1 Psi)^-1 Psi' A^-1 = inverse' inverse - low_rank low_rank'
    information = basis.T @ solved_basis
    try:
        information_factor = scipy.linalg.cholesky(information, lower=True)
    except scipy.linalg.LinAlgError:
        return None
    low_rank = scipy.linalg.solve_triangular(information_factor, solved_basis.T, lower=True).T
    coefficients = scipy.linalg.cho_solve((information_factor, True), basis.T @ solved_outputs)
    weights = scipy.linalg.cho_solve((information_factor, True), solved_basis.T)[0]
    projected = solved_outputs - solved_basis @ coefficients

    def residual_operator(rows: Int[np.ndarray, " b"]) -> Float[np.ndarray, "b b"]:
        # Columns of the inverse factor are zero above the diagonal.
        columns = inverse[rows.min() :, rows]
        return columns.T @ columns - low_rank[rows] @ low_rank[rows].T

    if all(len(rows) == 1 for rows in folds):
        diagonal_p = _column_norms(inverse) - np.einsum("nr,nr->n", low_rank, low_rank)
        residual = projected / diagonal_p[:, None]
    else:
        residual = _leave_folds_out(projected, folds, residual_operator)
    intercept = coefficients[0]
    unit_variance = scipy.linalg.cho_solve((information_factor, True), np.eye(len(information)))[
        0, 0
    ]
    degrees = n - basis.shape[1]
    amplitude = np.maximum(np.einsum("nq,nq->q", outputs, projected) / degrees, 0)
    tail_sd, tail_shift = _beyond(
        outermost,
        lambda rows: _leave_folds_out(projected, [rows], residual_operator)[rows],
        projected,
        weights,
        unit_variance,
    )
    return LinearFit(
        intercept=intercept,
        residual=residual,
        adjusted=residual + _fold_intercepts(intercept, weights, residual, folds),
        tail_sd=tail_sd,
        tail_shift=tail_shift,
        quadrature_sd=np.sqrt(amplitude * unit_variance),
        log_evidence=-0.5
        * (
            degrees * np.log(np.maximum(amplitude, np.finfo(float).tiny))
            + log_det
            + 2 * np.log(np.diag(information_factor)).sum()
        ),
    )


def solve_primal(
    features: Float[np.ndarray, "n p"],
    outputs: Outputs,
    folds: Folds,
    *,
    ridge: float,
    outermost: Int[np.ndarray, " k"] | None = None,
) -> LinearFit | None:
    """Solve ``f = c + Phi a`` with ridge on a, in the primal.

    Parameters
    ----------
    features : array of shape (n, p)
    outputs : array of shape (n, q)
    folds : sequence of index arrays that partition the rows
    ridge : float
        Relative to the mean squared norm of a row of features.
    outermost : index array, optional
        Draws to leave out for `tail_sd` and `tail_shift`, farthest first.

    Returns
    -------
    LinearFit or None
        ``None`` when the normal equations are not numerically positive definite.
    """
    n, p = features.shape
    design = np.column_stack([np.ones(n), features])
    normal = blas.dsyrk(1.0, design, trans=1, lower=1)
    penalty = np.full(p + 1, ridge * np.einsum("np,np->", features, features) / n)
    penalty[0] = 0.0
    normal[np.diag_indices(p + 1)] += penalty
    # Scaling to unit diagonal makes the factorisation indifferent to the units of the features.
    scale = 1 / np.sqrt(np.maximum(np.diag(normal), np.finfo(float).tiny))
    normal *= scale[:, None] * scale
    design *= scale
    moments = design.T @ outputs
    factor, failed = lapack.dpotrf(normal, lower=1, overwrite_a=0)
    if failed:
        return None
    coefficients, _ = lapack.dpotrs(factor, np.asfortranarray(moments), lower=1)
    # One step of iterative refinement: normal equations square the condition number.
    misfit = (
        design.T @ (outputs - design @ coefficients) - (penalty * scale**2)[:, None] * coefficients
    )
    coefficients = coefficients + lapack.dpotrs(factor, np.asfortranarray(misfit), lower=1)[0]
    fitted_residual = outputs - design @ coefficients
    first_row = lapack.dpotrs(factor, np.eye(p + 1, 1, order="F"), lower=1)[0][:, 0]
    weights = design @ first_row * scale[0]
    intercept = scale[0] * coefficients[0]

    whitened = scipy.linalg.solve_triangular(factor, design.T, lower=True, overwrite_b=True)
    if np.einsum("pn,pn->n", whitened, whitened).max() >= 1:
        return None

    def leave_out(rows: Int[np.ndarray, " b"]) -> Outputs:
        block, seen = whitened[:, rows], fitted_residual[rows]
        if len(rows) <= p:
            return scipy.linalg.solve(np.eye(len(rows)) - block.T @ block, seen, assume_a="sym")
        # (I - Z' Z)^-1 = I + Z' (I - Z Z')^-1 Z: the fold's Gram matrix is subtracted.
        remainder = np.eye(p + 1) - block @ block.T
        return seen + block.T @ scipy.linalg.solve(remainder, block @ seen, assume_a="sym")

    if all(len(rows) == 1 for rows in folds):
        leverage = np.einsum("pn,pn->n", whitened, whitened)
        residual = fitted_residual / (1 - leverage)[:, None]
    else:
        residual = np.zeros_like(outputs)
        for rows in folds:
            residual[rows] = leave_out(rows)
    tail_sd, tail_shift = _beyond(
        outermost, leave_out, fitted_residual, weights, scale[0] ** 2 * first_row[0]
    )
    return LinearFit(
        intercept=intercept,
        residual=residual,
        adjusted=residual + _fold_intercepts(intercept, weights, residual, folds),
        tail_sd=tail_sd,
        tail_shift=tail_shift,
        quadrature_sd=np.full(outputs.shape[1], np.nan),
        log_evidence=np.full(outputs.shape[1], np.nan),
    )


def _beyond(
    outermost: Int[np.ndarray, " k"] | None,
    leave_out: Callable[[Int[np.ndarray, " b"]], Outputs],
    projected: Outputs,
    weights: Float[np.ndarray, " n"],
    unit_variance: float,
) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
    """Return `tail_sd` and `tail_shift`: two views of the region where there are no draws.

    What the outermost draws change when they are left out is what the next ones out there would
    have changed. One view takes the amplitude of the Gaussian process from them, the other the
    shift ``w_B . e_B`` of the intercept itself.
    """
    tail_sd, shift = np.zeros(projected.shape[1]), np.zeros(projected.shape[1])
    if outermost is None:
        return tail_sd, shift
    for count, weight in EXTREMES.items():
        rows = outermost[:count]
        left_out = leave_out(rows)
        shift = np.maximum(shift, weight * np.abs(weights[rows] @ left_out))
        if count == AMPLITUDE_DRAWS:
            amplitude = np.maximum((left_out * projected[rows]).mean(axis=0), 0)
            tail_sd = np.sqrt(amplitude * max(unit_variance, 0.0))
    return tail_sd, shift


def assemble_gram(
    gram: Callable[..., Float[np.ndarray, "n m"]],
    x: Float[np.ndarray, "n d"],
    s: Float[np.ndarray, "n d"],
) -> Float[np.ndarray, "n n"]:
    """Return the lower triangle of a Stein kernel matrix, in Fortran order.

    Tiles keep the elementwise work in cache, and halve it.
    """
    n = len(x)
    matrix = np.zeros((n, n), order="F")
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        matrix[start:, start:stop] = gram(x[start:stop], s[start:stop], x[start:], s[start:]).T
    return matrix


def _leave_folds_out(
    projected: Outputs, folds: Folds, residual_operator: Callable[..., np.ndarray]
) -> Outputs:
    residual = np.zeros_like(projected)
    for rows in folds:
        solved = _solve_positive(residual_operator(rows), projected[rows])
        # Rounding can make a block of a nearly singular P indefinite; least squares still answers.
        residual[rows] = (
            scipy.linalg.lstsq(residual_operator(rows), projected[rows])[0]
            if solved is None
            else solved
        )
    return residual


def _fold_intercepts(
    intercept: np.ndarray, weights: np.ndarray, residual: Outputs, folds: Folds
) -> Outputs:
    """Return the intercept of the fit without each draw's fold: ``c - w_B . e_B``."""
    if all(len(rows) == 1 for rows in folds):
        return intercept - weights[:, None] * residual
    without = np.empty_like(residual)
    for rows in folds:
        without[rows] = intercept - weights[rows] @ residual[rows]
    return without


def _solve_positive(matrix: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    try:
        return scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix, lower=True), right)
    except scipy.linalg.LinAlgError:
        return None


def _column_norms(lower: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " n"]:
    """Return the squared norms of the columns of a lower-triangular matrix."""
    n = len(lower)
    norms = np.empty(n)
    for start in range(0, n, TILE):
        columns = lower[start:, start : start + TILE]
        norms[start : start + TILE] = np.einsum("ij,ij->j", columns, columns)
    return norms
