"""Regularised least squares in the dual: one equation per draw, from a Stein kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from scipy.linalg import lapack

from az_cv.solvers.linear.device_inverse import invert_on_device
from az_cv.solvers.linear.inverse import Inverse, invert
from az_cv.solvers.linear.linear_fit import (
    LinearFit,
    Outskirts,
    adjusted_draws,
    beyond_the_draws,
    leave_draws_out,
    solve_symmetric,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from jaxtyping import Float, Int

    Outputs = Float[np.ndarray, "n q"]
    Folds = Sequence[Int[np.ndarray, " b"]]


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
    inverse : Inverse
        The inverse of ``A``.
    folds : sequence of index arrays that partition the rows
    parts : list of Unpenalised
        One fit is made with each.
    """

    inverse: Inverse
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
        most: int | None = None,
    ) -> list[LinearFit]:
        """Solve ``f = Psi b + K a`` with ridge on a, once for each ``Psi``.

        Parameters
        ----------
        outputs : array of shape (n, q)
        outskirts : Outskirts, optional
            To gauge the region beyond the draws.
        distinct : sequence of index arrays, optional
            Draws that are equal: for the mean that leaves out less than the folds.
        most : int, optional
            Only the first so many ``Psi``.
        """
        solved = self.inverse.solve(outputs)
        sets = outskirts.row_sets(outputs) if outskirts else []
        edges = [(rows, self.inverse.blocks(rows)) for rows in sets]
        asked = self.parts[:most]
        return [self._fit(outputs, solved, part, outskirts, edges, distinct) for part in asked]

    def residuals(self, outputs: Outputs) -> Iterator[Outputs]:
        """Return, for each ``Psi``, outputs minus what fits without each draw predict there."""
        solved = self.inverse.solve(outputs)
        for part in self.parts:
            projected = solved - part.solved @ _coefficients(part, solved)
            projected /= self._diagonal(part)[:, None]
            yield projected

    def _diagonal(self, part: Unpenalised) -> Float[np.ndarray, " n"]:
        """Return the diagonal of the residual operator."""
        return self.inverse.diagonal - np.einsum("nr,nr->n", part.low_rank, part.low_rank)

    def _fit(
        self,
        outputs: Outputs,
        solved: Outputs,
        part: Unpenalised,
        outskirts: Outskirts | None,
        edges: Sequence[tuple[Int[np.ndarray, "m b"], Float[np.ndarray, "m b b"]]],
        distinct: Folds | None,
    ) -> LinearFit:
        basis, low_rank, factor = part.basis, part.low_rank, (part.factor, True)
        coefficients = _coefficients(part, solved)
        weights = scipy.linalg.cho_solve(factor, part.solved.T)[0]
        projected = solved - part.solved @ coefficients

        def residual_operators(rows: Int[np.ndarray, "m b"]) -> Float[np.ndarray, "m b b"]:
            return _corrected(self.inverse.blocks(rows), low_rank[rows])

        diagonal = self._diagonal(part)
        if max(map(len, self.folds)) == 1:
            residual = projected / diagonal[:, None]
        else:
            residual = self._leave_folds_out(projected, low_rank)
        unit_variance = scipy.linalg.cho_solve(factor, np.eye(len(part.factor), 1))[0, 0]
        degrees = len(outputs) - basis.shape[1]
        amplitude = np.maximum(np.einsum("nq,nq->q", outputs, projected) / degrees, 0)
        tail_sd, tail_shift, times = beyond_the_draws(
            outskirts,
            outputs,
            residual,
            projected,
            [_corrected(blocks, low_rank[rows]) for rows, blocks in edges],
            weights,
            unit_variance,
        )
        log_information = 2 * np.log(np.diag(part.factor)).sum()
        log_amplitude = np.log(np.maximum(amplitude, np.finfo(float).tiny))
        return LinearFit(
            intercept=coefficients[0],
            residual=residual,
            adjusted=adjusted_draws(coefficients[0], weights, residual, self.folds),
            leave_one_out=leave_draws_out(
                distinct,
                coefficients[0],
                projected,
                diagonal,
                residual_operators,
                weights,
            ),
            tail_sd=tail_sd,
            tail_shift=tail_shift,
            times=times,
            log_evidence=-0.5
            * (degrees * log_amplitude + self.inverse.log_determinant + log_information),
        )

    @cached_property
    def _fold_blocks(self) -> list[tuple[Int[np.ndarray, "m b"], Float[np.ndarray, "m b b"]]]:
        """The folds and their blocks of ``(K + ridge)^-1``, folds of one size together."""
        by_size: dict[int, list[np.ndarray]] = {}
        for rows in self.folds:
            by_size.setdefault(len(rows), []).append(rows)
        stacked = [np.stack(group) for group in by_size.values()]
        return [(rows, self.inverse.blocks(rows)) for rows in stacked]

    def _leave_folds_out(self, projected: Outputs, low_rank: Float[np.ndarray, "n r"]) -> Outputs:
        residual = np.zeros_like(projected)
        for rows, block in self._fold_blocks:
            operators = _corrected(block, low_rank[rows])
            try:
                residual[rows] = np.linalg.solve(operators, projected[rows])
            except np.linalg.LinAlgError:
                for fold, operator in zip(rows, operators):
                    residual[fold] = solve_symmetric(operator, projected[fold])
        return residual


def factorise_dual(
    gram: Float[np.ndarray, "n n"] | Any,
    folds: Folds,
    *,
    ridge: float,
    exact_features: Sequence[Float[np.ndarray, "n r"] | None] = (None,),
) -> DualSystem | None:
    """Factorise ``K + ridge``.

    Parameters
    ----------
    gram : array of shape (n, n)
        Stein kernel. NumPy's arrays are in Fortran order; of them the lower triangle is read, and
        they are overwritten. JAX's arrays stay where they are, and as they are.
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
    inverse = invert(gram, ridge) if isinstance(gram, np.ndarray) else invert_on_device(gram, ridge)
    if inverse is None:
        return None
    parts = [_unpenalised(inverse, features) for features in exact_features]
    usable = [part for part in parts if part is not None]
    return DualSystem(inverse, folds, usable) if usable else None


def _unpenalised(inverse: Inverse, features: Float[np.ndarray, "n r"] | None) -> Unpenalised | None:
    """Return the unpenalised part with ones and these features, ``None`` if they are collinear."""
    ones = np.ones((len(inverse.diagonal), 1))
    basis = ones if features is None else np.column_stack([ones, features])
    solved = inverse.solve(basis)
    try:
        factor = scipy.linalg.cholesky(basis.T @ solved, lower=True)
    except scipy.linalg.LinAlgError:
        return None
    low_rank = scipy.linalg.solve_triangular(factor, solved.T, lower=True).T
    if (inverse.diagonal - np.einsum("nr,nr->n", low_rank, low_rank)).min() <= 0:
        return None  # rounding: the unpenalised features interpolate a draw
    return Unpenalised(basis, solved, factor, low_rank)


def _coefficients(part: Unpenalised, solved: Outputs) -> Float[np.ndarray, "r q"]:
    """Return the coefficients of the unpenalised part, from ``A^-1 f``."""
    # LAPACK itself: this is called hundreds of times for systems of a few columns.
    return np.asarray(lapack.dpotrs(part.factor, part.basis.T @ solved, lower=1)[0])


def _corrected(
    blocks: Float[np.ndarray, "m b b"], low_rank: Float[np.ndarray, "m b r"]
) -> Float[np.ndarray, "m b b"]:
    """Return blocks of the residual operator from those of the inverse."""
    return blocks - low_rank @ np.swapaxes(low_rank, -1, -2)
