"""Fits that no estimate is made of, and what they tell about the errors of those that are.

Residuals on draws that were left out do not show everything: a tail that the draws do not reach, or
a region that chains visit once in a thousand draws, is hidden from all of them. It is hidden from
worse fits, too, and from fits to single chains. The truth about those is nearly known, since the
estimate from all draws is closer to it. So they are judged, and where their errors are too small,
that of the estimate is widened by the same factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from az_cv.engine.errors import standard_error
from az_cv.solvers.base import Member

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from az_cv.solvers.error_model import ErrorModel

    PerOutput = Float[np.ndarray, " q"]


@dataclass(frozen=True)
class Witnesses:
    """What is there to judge errors by.

    Attributes
    ----------
    worse : sequence of Member
        Fits with other settings.
    factor : array of shape (q,) or float
        By what factor errors are too small in parts of the draws.
    """

    worse: Sequence[Member] = ()
    factor: PerOutput | float = 1.0

    def missing(
        self, mean: PerOutput, mcse: PerOutput, plain_mcse: PerOutput, errors: ErrorModel
    ) -> PerOutput:
        """Return what to add to errors, as the root of a sum of squares, to make them right."""
        factor = np.maximum(self.factor, 1.0)
        for witness in self.worse:
            z = _distance(witness, mean, mcse, errors, most=plain_mcse)
            factor = np.fmax(factor, z)
        return np.asarray(mcse * np.sqrt(factor**2 - 1))


NONE = Witnesses()


def parts_of(shape: tuple[int, int], errors: ErrorModel) -> list[Int[np.ndarray, " m"]]:
    """Return the draws of each chain, or of parts of chains where there are few; none if short.

    Examples
    --------
    >>> from az_cv.solvers.error_model import ERROR_MODEL
    >>> [part[[0, -1]].tolist() for part in parts_of((2, 200), ERROR_MODEL)]
    [[0, 99], [100, 199], [200, 299], [300, 399]]
    """
    chains, draws = shape
    each = -(-errors.judged_parts // chains)
    if draws // each < errors.judged_least:
        return []
    rows = np.arange(chains * draws).reshape(chains, draws)
    return [part for chain in rows for part in np.array_split(chain, each)]


def factor_of_parts(whole: Member, parts: Sequence[Member], errors: ErrorModel) -> PerOutput:
    """Return by what factor errors of fits to parts of the draws are too small; NaN if unknown."""
    error = standard_error(whole.adjusted, whole.tail, errors)
    distances = [_distance(part, whole.estimate, error, errors) for part in parts]
    squares = np.square(distances)
    known = np.isfinite(squares)
    with np.errstate(invalid="ignore"):
        mean = np.where(known, squares, 0).sum(axis=0) / known.sum(axis=0)
    return np.asarray(np.sqrt(mean))


def _distance(
    witness: Member,
    mean: PerOutput,
    mcse: PerOutput,
    errors: ErrorModel,
    most: PerOutput | float = np.inf,
) -> PerOutput:
    """Return how many of its own errors a fit is away from the estimate.

    NaN where the estimate is hardly better than the fit, and where the fit is worth nothing.
    """
    error = standard_error(witness.adjusted, witness.tail, errors)
    is_judged = (error > errors.judged * mcse) & (error < most)
    with np.errstate(invalid="ignore", divide="ignore"):
        distance = np.abs(witness.estimate - mean) / np.sqrt(error**2 - mcse**2)
    return np.where(is_judged, distance, np.nan)
