"""Regularised least squares in the primal: one equation per feature."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from scipy.linalg import lapack

from az_cv.lapack import factorise, row_products, solve_triangle
from az_cv.solvers.linear.linear_fit import (
    LinearFit,
    Outskirts,
    adjusted_draws,
    beyond_the_draws,
    leave_draws_out,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int

    Outputs = Float[np.ndarray, "n q"]
    Folds = Sequence[Int[np.ndarray, " b"]]

# Solutions are refined where residuals are no larger than this many times what they are off.
REFINED = 1e6


@dataclass(frozen=True)
class PrimalSystem:
    """The normal equations of a set of features, factorised.

    Attributes
    ----------
    design : array of shape (n, p + 1)
        Ones and features, scaled so that the normal matrix has a unit diagonal.
    factor : array of shape (p + 1, p + 1)
        Lower Cholesky factor of the scaled normal matrix.
    whitened : array of shape (p + 1, n)
        ``factor^-1 design'``.
    penalty, scale : arrays of shape (p + 1,)
    folds : sequence of index arrays that partition the rows
    """

    design: Float[np.ndarray, "n r"]
    factor: Float[np.ndarray, "r r"]
    whitened: Float[np.ndarray, "r n"]
    penalty: Float[np.ndarray, " r"]
    scale: Float[np.ndarray, " r"]
    folds: Folds

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self.design.nbytes + self.factor.nbytes + self.whitened.nbytes

    def fit(
        self,
        outputs: Outputs,
        *,
        outskirts: Outskirts | None = None,
        distinct: Folds | None = None,
        most: int | None = None,
    ) -> list[LinearFit]:
        """Solve ``f = c + Phi a`` with ridge on a.

        Parameters
        ----------
        outputs : array of shape (n, q)
        outskirts : Outskirts, optional
            To gauge the region beyond the draws.
        distinct : sequence of index arrays, optional
            Draws that are equal: for the mean that leaves out less than the folds.
        most : int, optional
            Without meaning here, where there is one fit.
        """
        design, factor, whitened, scale = self.design, self.factor, self.whitened, self.scale
        coefficients, fitted_residual = self._solve(outputs)
        first_row = lapack.dpotrs(factor, np.eye(len(factor), 1, order="F"), lower=1)[0][:, 0]
        weights = design @ first_row * scale[0]
        intercept = scale[0] * coefficients[0]

        def residual_operators(rows: Int[np.ndarray, "m b"]) -> Float[np.ndarray, "m b b"]:
            blocks = (whitened[:, members] for members in rows)
            return np.stack([np.eye(block.shape[1]) - block.T @ block for block in blocks])

        def leave_out(rows: Int[np.ndarray, " b"]) -> Outputs:
            block, seen = whitened[:, rows], fitted_residual[rows]
            if len(rows) < len(factor):
                return scipy.linalg.solve(residual_operators(rows[None])[0], seen, assume_a="sym")
            # (I - Z' Z)^-1 = I + Z' (I - Z Z')^-1 Z: the fold's Gram matrix is subtracted.
            remainder = np.eye(len(factor)) - block @ block.T
            return seen + block.T @ scipy.linalg.solve(remainder, block @ seen, assume_a="sym")

        diagonal = 1 - np.einsum("pn,pn->n", whitened, whitened)
        if max(map(len, self.folds)) == 1:
            residual = fitted_residual / diagonal[:, None]
        else:
            residual = np.zeros_like(outputs)
            for rows in self.folds:
                residual[rows] = leave_out(rows)
        tail_sd, tail_shift = beyond_the_draws(
            outskirts,
            outputs,
            residual,
            fitted_residual,
            [residual_operators(rows) for rows in outskirts.row_sets(outputs)] if outskirts else [],
            weights,
            scale[0] ** 2 * first_row[0],
        )
        fit = LinearFit(
            intercept=intercept,
            residual=residual,
            adjusted=adjusted_draws(intercept, weights, residual, self.folds),
            leave_one_out=leave_draws_out(
                distinct, intercept, fitted_residual, diagonal, residual_operators, weights
            ),
            tail_sd=tail_sd,
            tail_shift=tail_shift,
            log_evidence=np.full(outputs.shape[1], np.nan),
        )
        return [fit]

    def _solve(self, outputs: Outputs) -> tuple[Float[np.ndarray, "r q"], Outputs]:
        """Return the coefficients of the scaled design, and what they leave of the outputs."""
        design = self.design
        coefficients = self._solved(design.T @ outputs)
        residual = outputs - design @ coefficients
        # One step of iterative refinement: normal equations square the condition number.
        left = np.sqrt(np.einsum("nq,nq->q", residual, residual))
        size = np.sqrt(np.einsum("nq,nq->q", outputs, outputs))
        close = np.flatnonzero(~(left > REFINED * self._precision * size))
        if len(close):
            penalty = (self.penalty * self.scale**2)[:, None]
            asked = np.take(outputs, close, axis=1)
            found = np.take(coefficients, close, axis=1)
            found += self._solved(design.T @ np.take(residual, close, axis=1) - penalty * found)
            coefficients[:, close], residual[:, close] = found, asked - design @ found
        return coefficients, residual

    def _solved(self, right: Float[np.ndarray, "r q"]) -> Float[np.ndarray, "r q"]:
        return np.asarray(lapack.dpotrs(self.factor, np.asfortranarray(right), lower=1)[0])

    @cached_property
    def _precision(self) -> float:
        """About how far solutions are off that are not refined, relative to the outputs."""
        reciprocal, _ = lapack.dpocon(self.factor, 1.0, uplo="L")
        return float(np.finfo(float).eps / max(reciprocal, np.finfo(float).tiny))


def factorise_primal(
    features: Float[np.ndarray, "n p"],
    folds: Folds,
    *,
    ridge: float,
) -> PrimalSystem | None:
    """Factorise the normal equations of features with an intercept.

    Parameters
    ----------
    features : array of shape (n, p)
    folds : sequence of index arrays that partition the rows
    ridge : float
        Relative to the mean squared norm of a row of features.

    Returns
    -------
    PrimalSystem or None
        ``None`` when the normal equations are not numerically positive definite.
    """
    n, p = features.shape
    design = np.column_stack([np.ones(n), features])
    normal = row_products(design.T)
    penalty = np.full(p + 1, ridge * np.einsum("np,np->", features, features) / n)
    penalty[0] = 0.0
    normal[np.diag_indices(p + 1)] += penalty
    # Scaling to unit diagonal makes the factorisation indifferent to the units of the features.
    scale = 1 / np.sqrt(np.maximum(np.diag(normal), np.finfo(float).tiny))
    normal *= scale[:, None] * scale
    design *= scale
    if not factorise(normal):
        return None
    # In C order the transpose of the design is in Fortran order.
    whitened = design.copy().T
    solve_triangle(normal, whitened)
    if np.einsum("pn,pn->n", whitened, whitened).max() >= 1:
        return None
    return PrimalSystem(design, normal, whitened, penalty, scale, folds)
