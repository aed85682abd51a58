"""One set of features with each of several ridges, for a search that leaves draws out singly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import lapack

from az_cv.solvers.linear.primal_system import factorise_primal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jaxtyping import Float, Int

    from az_cv.solvers.linear.primal_system import PrimalSystem

    Outputs = Float[np.ndarray, "n q"]

# A search needs no step of refinement where the inverse of the scaled normal matrix, whose diagonal
# is one, has a norm below this: its solutions are right to ten digits.
WELL_CONDITIONED = 1e4


@dataclass(frozen=True)
class RidgeFactor:
    """What one ridge adds to the features.

    Attributes
    ----------
    factor : array of shape (p + 1, p + 1)
        Lower Cholesky factor of the scaled normal matrix.
    scale, penalty : arrays of shape (p + 1,)
    diagonal : array of shape (n,)
        The diagonal of the residual operator.
    well_conditioned : bool
    """

    factor: Float[np.ndarray, "r r"]
    scale: Float[np.ndarray, " r"]
    penalty: Float[np.ndarray, " r"]
    diagonal: Float[np.ndarray, " n"]
    well_conditioned: bool


@dataclass(frozen=True)
class RidgeScan:
    """Features, and the normal equations of each ridge.

    The draws are held once, so that what a search found out about many features can be kept.

    Attributes
    ----------
    design : array of shape (n, p + 1)
        Ones and features.
    ridges : sequence of (RidgeFactor or None)
        ``None`` where a system is singular.
    """

    design: Float[np.ndarray, "n r"]
    ridges: Sequence[RidgeFactor | None]

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self.design.nbytes + sum(one.factor.nbytes for one in self.ridges if one is not None)

    def residuals(self, outputs: Outputs) -> Iterator[Outputs | None]:
        """Return, for each ridge, outputs minus what fits without each draw predict there."""
        moments = self.design.T @ outputs
        for one in self.ridges:
            yield None if one is None else self._residual(one, outputs, moments)

    def _residual(
        self, one: RidgeFactor, outputs: Outputs, moments: Float[np.ndarray, "r q"]
    ) -> Outputs:
        coefficients = _solved(one, moments)
        residual = outputs - self.design @ coefficients
        if not one.well_conditioned:
            misfit = self.design.T @ residual - one.penalty[:, None] * coefficients
            residual -= self.design @ _solved(one, misfit)
        residual /= one.diagonal[:, None]
        return residual


def _solved(one: RidgeFactor, right: Float[np.ndarray, "r q"]) -> Float[np.ndarray, "r q"]:
    """Return the solution of the normal equations, in the units of the features."""
    scaled = np.asfortranarray(one.scale[:, None] * right)
    solution, _ = lapack.dpotrs(one.factor, scaled, lower=1, overwrite_b=1)
    return one.scale[:, None] * solution


def scan_ridges(features: Float[np.ndarray, "n p"], ridges: Sequence[float]) -> RidgeScan:
    """Factorise the normal equations of features with each of several ridges.

    Parameters
    ----------
    features : array of shape (n, p)
    ridges : sequence of float
        Relative to the mean squared norm of a row of features.
    """
    n = len(features)
    singles: list[Int[np.ndarray, " b"]] = [np.array([i]) for i in range(n)]
    made = (factorise_primal(features, singles, ridge=ridge) for ridge in ridges)
    reduced = [None if system is None else _reduced(system) for system in made]
    return RidgeScan(np.column_stack([np.ones(n), features]), reduced)


def _reduced(system: PrimalSystem) -> RidgeFactor:
    """Return what a search needs of a system, which is the smaller part of it."""
    reciprocal, _ = lapack.dpocon(system.factor, 1.0, uplo="L")
    return RidgeFactor(
        factor=system.factor,
        scale=system.scale,
        penalty=system.penalty,
        diagonal=1 - np.einsum("pn,pn->n", system.whitened, system.whitened),
        well_conditioned=bool(reciprocal * WELL_CONDITIONED > 1),
    )
