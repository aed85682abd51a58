"""Regularised least squares in the dual: one equation per draw, from a Stein kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from scipy.linalg import blas, lapack

from az_cv.solvers.linear.linear_fit import (
    LinearFit,
    Outskirts,
    beyond_the_draws,
    fold_intercepts,
    leave_draws_out,
    solve_symmetric,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Float, Int

    Outputs = Float[np.ndarray, "n q"]
    Folds = Sequence[Int[np.ndarray, " b"]]

TILE = 128


@dataclass(frozen=True)
class Unpenalised:
    """The part of a fit that carries no penalty: ones, and features on whose span it is exact.

    Attributes
    ----------
    basis : array of shape (n, r)
        ``Psi``, ones first.
    solved : array of shape (n, r)
        ``A^-1 Psi`` with ``A = K + ridge``.
    factor : array of shape (r, r)
        Lower Cholesky factor of ``Psi' A^-1 Psi``.
    low_rank : array of shape (n, r)
        ``P = A^-1 - low_rank low_rank'`` is the residual operator.
    """

    basis: Float[np.ndarray, "n r"]
    solved: Float[np.ndarray, "n r"]
    factor: Float[np.ndarray, "r r"]
    low_rank: Float[np.ndarray, "n r"]


@dataclass(frozen=True)
class DualSystem:
    """``A = K + ridge`` factorised: what the fits of all outputs, now and later, have in common.

    Attributes
    ----------
    inverse : array of shape (n, n), Fortran order
        Inverse of the lower Cholesky factor; zero above the diagonal.
    diagonal : array of shape (n,)
        Diagonal of the inverse of the matrix.
    log_determinant : float
    folds : sequence of index arrays that partition the rows
    parts : list of Unpenalised
        One fit is made with each.
    """

    inverse: Float[np.ndarray, "n n"]
    diagonal: Float[np.ndarray, " n"]
    log_determinant: float
    folds: Folds
    parts: list[Unpenalised]

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self.inverse.nbytes + sum(3 * part.basis.nbytes for part in self.parts)

    def fit(
        self,
        outputs: Outputs,
        *,
        outskirts: Outskirts | None = None,
        distinct: Folds | None = None,
    ) -> list[LinearFit]:
        """Solve ``f = Psi b + K a`` with ridge on a, once for each ``Psi``.

        Parameters
        ----------
        outputs : array of shape (n, q)
        outskirts : Outskirts, optional
            To gauge the region beyond the draws.
        distinct : sequence of index arrays, optional
            Draws that are equal: for the mean that leaves out less than the folds.
        """
        solved = _solve(self.inverse, outputs)
        return [self._fit(outputs, solved, part, outskirts, distinct) for part in self.parts]

    def _fit(
        self,
        outputs: Outputs,
        solved: Outputs,
        part: Unpenalised,
        outskirts: Outskirts | None,
        distinct: Folds | None,
    ) -> LinearFit:
        basis, low_rank, factor = part.basis, part.low_rank, (part.factor, True)
        coefficients = scipy.linalg.cho_solve(factor, basis.T @ solved)
        weights = scipy.linalg.cho_solve(factor, part.solved.T)[0]
        projected = solved - part.solved @ coefficients

        def residual_operator(rows: Int[np.ndarray, " b"]) -> Float[np.ndarray, "b b"]:
            return self._inverse_block(rows) - low_rank[rows] @ low_rank[rows].T

        diagonal = self.diagonal - np.einsum("nr,nr->n", low_rank, low_rank)
        if max(map(len, self.folds)) == 1:
            residual = projected / diagonal[:, None]
        else:
            residual = self._leave_folds_out(projected, low_rank)
        unit_variance = scipy.linalg.cho_solve(factor, np.eye(len(part.factor), 1))[0, 0]
        degrees = len(outputs) - basis.shape[1]
        amplitude = np.maximum(np.einsum("nq,nq->q", outputs, projected) / degrees, 0)
        tail_sd, tail_shift = beyond_the_draws(
            outskirts, outputs, residual, projected, residual_operator, weights, unit_variance
        )
        log_information = 2 * np.log(np.diag(part.factor)).sum()
        log_amplitude = np.log(np.maximum(amplitude, np.finfo(float).tiny))
        return LinearFit(
            intercept=coefficients[0],
            residual=residual,
            adjusted=residual + fold_intercepts(coefficients[0], weights, residual, self.folds),
            leave_one_out=leave_draws_out(
                distinct,
                coefficients[0],
                projected,
                diagonal,
                residual_operator,
                weights,
            ),
            tail_sd=tail_sd,
            tail_shift=tail_shift,
            log_evidence=-0.5 * (degrees * log_amplitude + self.log_determinant + log_information),
        )

    def _inverse_block(self, rows: Int[np.ndarray, " b"]) -> Float[np.ndarray, "b b"]:
        # Columns of the inverse factor are zero above the diagonal.
        columns = self.inverse[rows.min() :, rows]
        return columns.T @ columns

    @cached_property
    def _fold_blocks(self) -> list[tuple[Int[np.ndarray, "m b"], Float[np.ndarray, "m b b"]]]:
        """The folds and their blocks of ``(K + ridge)^-1``, folds of one size together."""
        by_size: dict[int, list[np.ndarray]] = {}
        for rows in self.folds:
            by_size.setdefault(len(rows), []).append(rows)
        return [
            (np.stack(group), np.stack([self._inverse_block(rows) for rows in group]))
            for group in by_size.values()
        ]

    def _leave_folds_out(self, projected: Outputs, low_rank: Float[np.ndarray, "n r"]) -> Outputs:
        residual = np.zeros_like(projected)
        for rows, block in self._fold_blocks:
            correction = low_rank[rows]
            operators = block - correction @ np.swapaxes(correction, -1, -2)
            try:
                residual[rows] = np.linalg.solve(operators, projected[rows])
            except np.linalg.LinAlgError:
                for fold, operator in zip(rows, operators):
                    residual[fold] = solve_symmetric(operator, projected[fold])
        return residual


def factorise_dual(
    gram: Float[np.ndarray, "n n"],
    folds: Folds,
    *,
    ridge: float,
    exact_features: Sequence[Float[np.ndarray, "n r"] | None] = (None,),
) -> DualSystem | None:
    """Factorise ``K + ridge``.

    Parameters
    ----------
    gram : array of shape (n, n), Fortran order
        Stein kernel; the lower triangle is read, and the matrix is overwritten.
    folds : sequence of index arrays that partition the rows
    ridge : float
        Relative to the mean diagonal of `gram`.
    exact_features : sequence of (array of shape (n, r) or None)
        Features that are not penalised (semi-exact control functional); a fit is made with each of
        these sets.

    Returns
    -------
    DualSystem or None
        ``None`` when the matrix is not numerically positive definite, or every set of unpenalised
        features collinear.
    """
    diagonal = np.einsum("ii->i", gram)
    diagonal += ridge * diagonal.mean()
    factor, failed = lapack.dpotrf(gram, lower=1, overwrite_a=1)
    if failed:
        return None
    log_determinant = 2 * float(np.log(np.diag(factor)).sum())
    inverse, _ = lapack.dtrtri(factor, lower=1, overwrite_c=1)
    inverse_diagonal = _column_norms(inverse)
    parts = [_unpenalised(inverse, inverse_diagonal, features) for features in exact_features]
    usable = [part for part in parts if part is not None]
    return DualSystem(inverse, inverse_diagonal, log_determinant, folds, usable) if usable else None


def _unpenalised(
    inverse: Float[np.ndarray, "n n"],
    diagonal: Float[np.ndarray, " n"],
    features: Float[np.ndarray, "n r"] | None,
) -> Unpenalised | None:
    """Return the unpenalised part with ones and these features, ``None`` if they are collinear."""
    ones = np.ones((len(inverse), 1))
    basis = ones if features is None else np.column_stack([ones, features])
    solved = _solve(inverse, basis)
    try:
        factor = scipy.linalg.cholesky(basis.T @ solved, lower=True)
    except scipy.linalg.LinAlgError:
        return None
    low_rank = scipy.linalg.solve_triangular(factor, solved.T, lower=True).T
    if (diagonal - np.einsum("nr,nr->n", low_rank, low_rank)).min() <= 0:
        return None  # rounding: the unpenalised features interpolate a draw
    return Unpenalised(basis, solved, factor, low_rank)


def _solve(
    inverse: Float[np.ndarray, "n n"], columns: Float[np.ndarray, "n r"]
) -> Float[np.ndarray, "n r"]:
    """Return ``A^-1 columns`` from the inverse of the lower Cholesky factor of A."""
    solved = blas.dtrmm(1.0, inverse, np.asfortranarray(columns), lower=1)
    return blas.dtrmm(1.0, inverse, solved, lower=1, trans_a=1, overwrite_b=1)


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


def _column_norms(lower: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " n"]:
    """Return the squared norms of the columns of a lower-triangular matrix."""
    n = len(lower)
    norms = np.empty(n)
    for start in range(0, n, TILE):
        columns = lower[start:, start : start + TILE]
        norms[start : start + TILE] = np.einsum("ij,ij->j", columns, columns)
    return norms
