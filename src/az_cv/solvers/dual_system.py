"""Regularised least squares in the dual: one equation per draw, from a Stein kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from scipy.linalg import blas, lapack

from az_cv.solvers.linear_fit import (
    LinearFit,
    beyond_the_draws,
    fold_intercepts,
    solve_symmetric,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Float, Int

    Outputs = Float[np.ndarray, "n q"]
    Folds = Sequence[Int[np.ndarray, " b"]]

TILE = 128


@dataclass(frozen=True)
class DualSystem:
    """``K + ridge`` factorised: what the fits of all outputs, now and later, have in common.

    Attributes
    ----------
    inverse : array of shape (n, n), Fortran order
        Inverse of the lower Cholesky factor; zero above the diagonal.
    diagonal : array of shape (n,)
        Of the inverse of the matrix.
    log_determinant : float
    folds : sequence of index arrays that partition the rows
    outermost : index array or None
        Draws to leave out for `tail_sd` and `tail_shift`, farthest first.
    """

    inverse: Float[np.ndarray, "n n"]
    diagonal: Float[np.ndarray, " n"]
    log_determinant: float
    folds: Folds
    outermost: Int[np.ndarray, " k"] | None

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self.inverse.nbytes

    def fit(
        self, outputs: Outputs, exact_features: Float[np.ndarray, "n r"] | None = None
    ) -> LinearFit | None:
        """Solve ``f = c + Psi b + K a`` with ridge on a.

        Parameters
        ----------
        outputs : array of shape (n, q)
        exact_features : array of shape (n, r), optional
            ``Psi``, not penalised (semi-exact control functional).

        Returns
        -------
        LinearFit or None
            ``None`` when the unpenalised features are collinear.
        """
        n = len(outputs)
        ones = np.ones((n, 1))
        basis = ones if exact_features is None else np.column_stack([ones, exact_features])
        columns = np.asfortranarray(np.column_stack([basis, outputs]))
        solved = blas.dtrmm(1.0, self.inverse, columns, lower=1)
        solved = blas.dtrmm(1.0, self.inverse, solved, lower=1, trans_a=1, overwrite_b=1)
        solved_basis, solved_outputs = solved[:, : basis.shape[1]], solved[:, basis.shape[1] :]

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
            columns = self.inverse[rows.min() :, rows]
            return columns.T @ columns - low_rank[rows] @ low_rank[rows].T

        if all(len(rows) == 1 for rows in self.folds):
            diagonal_p = self.diagonal - np.einsum("nr,nr->n", low_rank, low_rank)
            if diagonal_p.min() <= 0:  # rounding: the unpenalised features interpolate a draw
                return None
            residual = projected / diagonal_p[:, None]
        else:
            residual = _leave_folds_out(projected, self.folds, residual_operator)
        unit_variance = scipy.linalg.cho_solve(
            (information_factor, True), np.eye(len(information))
        )[0, 0]
        degrees = n - basis.shape[1]
        amplitude = np.maximum(np.einsum("nq,nq->q", outputs, projected) / degrees, 0)
        tail_sd, tail_shift = beyond_the_draws(
            self.outermost, outputs, projected, residual_operator, weights, unit_variance
        )
        log_information = 2 * np.log(np.diag(information_factor)).sum()
        log_amplitude = np.log(np.maximum(amplitude, np.finfo(float).tiny))
        return LinearFit(
            intercept=coefficients[0],
            residual=residual,
            adjusted=residual + fold_intercepts(coefficients[0], weights, residual, self.folds),
            tail_sd=tail_sd,
            tail_shift=tail_shift,
            quadrature_sd=np.sqrt(amplitude * unit_variance),
            log_evidence=-0.5 * (degrees * log_amplitude + self.log_determinant + log_information),
        )


def factorise_dual(
    gram: Float[np.ndarray, "n n"],
    folds: Folds,
    *,
    ridge: float,
    outermost: Int[np.ndarray, " k"] | None = None,
) -> DualSystem | None:
    """Factorise ``K + ridge``.

    Parameters
    ----------
    gram : array of shape (n, n), Fortran order
        Stein kernel; the lower triangle is read, and the matrix is overwritten.
    folds : sequence of index arrays that partition the rows
    ridge : float
        Relative to the mean diagonal of `gram`.
    outermost : index array, optional
        Draws to leave out to gauge the region beyond them, farthest first.

    Returns
    -------
    DualSystem or None
        ``None`` when the matrix is not numerically positive definite.
    """
    diagonal = np.einsum("ii->i", gram)
    diagonal += ridge * diagonal.mean()
    factor, failed = lapack.dpotrf(gram, lower=1, overwrite_a=1)
    if failed:
        return None
    log_determinant = 2 * float(np.log(np.diag(factor)).sum())
    inverse, _ = lapack.dtrtri(factor, lower=1, overwrite_c=1)
    return DualSystem(inverse, _column_norms(inverse), log_determinant, folds, outermost)


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
        residual[rows] = solve_symmetric(residual_operator(rows), projected[rows])
    return residual


def _column_norms(lower: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " n"]:
    """Return the squared norms of the columns of a lower-triangular matrix."""
    n = len(lower)
    norms = np.empty(n)
    for start in range(0, n, TILE):
        columns = lower[start:, start : start + TILE]
        norms[start : start + TILE] = np.einsum("ij,ij->j", columns, columns)
    return norms
