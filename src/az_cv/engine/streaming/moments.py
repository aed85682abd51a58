"""The first pass: moments of draws and scores, and whether the gradients belong to the draws."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import scipy.stats

from az_cv.engine.causes import DOUBTFUL
from az_cv.engine.identities import z_scores
from az_cv.engine.score_check import MATERIAL, REFUSED
from az_cv.engine.streaming.whitening import LowRankWhitening, refined

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.engine.streaming.pieces import Piece, Segment
    from az_cv.engine.streaming.whitening import Standardising
    from az_cv.engine.whitening import Whitening


@dataclass(frozen=True)
class Question:
    """What the tasks of the first pass need.

    Attributes
    ----------
    whitening : Standardising
        By some of the draws, so that sums lose no digits.
    batch : int
        Draws whose averages are compared.
    matrices : bool
        Whether products of all pairs of coordinates are summed, or of each with itself.
    """

    whitening: Standardising
    batch: int
    matrices: bool


@dataclass
class Moments:
    """Sums over draws in whitened coordinates; without `matrices` the matrices are diagonals.

    Attributes
    ----------
    count, batches : int
    draws : sum of the draws
    squares : sum of their products
    scores, scores_squared : sums of the mean scores of batches, and of their squares
    slopes, slopes_squared : the same of the products of draws and scores
    trace, trace_squared : the same of the averages of these over coordinates
    """

    count: int
    batches: int
    draws: np.ndarray
    squares: np.ndarray
    scores: np.ndarray
    scores_squared: np.ndarray
    slopes: np.ndarray
    slopes_squared: np.ndarray
    trace: float
    trace_squared: float


def moments_of(question: Question, segment: Segment) -> Moments:
    """Go through the pieces of a segment."""
    total: Moments | None = None
    for piece in segment:
        x, s = piece.draws()
        for name, values in (("unconstrained_draw", x), ("gradient", s)):
            _require_finite(name, values, piece)
        part = _moments(question, question.whitening.draws(x), question.whitening.scores(s))
        total = part if total is None else merge_moments([total, part])
    assert total is not None
    return total


def _require_finite(name: str, values: np.ndarray, piece: Piece) -> None:
    wrong = ~np.isfinite(values)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"{name} has non-finite values, first at chain {piece.chain}, draw "
            f"{piece.start + row}, parameter {column}, counted from zero. Drop those draws or "
            "check the log density there."
        )


def _moments(
    question: Question, x: Float[np.ndarray, "n r"], s: Float[np.ndarray, "n r"]
) -> Moments:
    n, d = x.shape
    count = max(1, n // question.batch)
    shape = (d, d) if question.matrices else (d,)
    means, squares = np.zeros(d), np.zeros(d)
    slopes, slopes_squared = np.zeros(shape), np.zeros(shape)
    trace, trace_squared = 0.0, 0.0
    for k in range(count):
        rows = slice(k * n // count, (k + 1) * n // count)
        mean = s[rows].mean(axis=0)
        if question.matrices:
            slope = x[rows].T @ s[rows] / len(x[rows])
            own = np.diag(slope)
        else:
            own = slope = (x[rows] * s[rows]).mean(axis=0)
        means, squares = means + mean, squares + mean**2
        slopes, slopes_squared = slopes + slope, slopes_squared + slope**2
        trace, trace_squared = trace + own.mean(), trace_squared + own.mean() ** 2
    products = x.T @ x if question.matrices else (x**2).sum(axis=0)
    return Moments(
        count=n,
        batches=count,
        draws=x.sum(axis=0),
        squares=products,
        scores=means,
        scores_squared=squares,
        slopes=slopes,
        slopes_squared=slopes_squared,
        trace=trace,
        trace_squared=trace_squared,
    )


def merge_moments(parts: list[Moments]) -> Moments:
    """Add up."""
    names = [field.name for field in fields(Moments)]
    return Moments(*(sum(getattr(part, name) for part in parts) for name in names))


def whitening_by(
    first: Whitening | LowRankWhitening, moments: Moments
) -> Whitening | LowRankWhitening:
    """Return the whitening by all draws; where few directions are known, that by the first."""
    if isinstance(first, LowRankWhitening):
        return first
    mean = moments.draws / moments.count
    covariance = moments.squares / (moments.count - 1) - np.outer(mean, mean)
    return refined(first, mean, covariance, len(first.mean))


@dataclass(frozen=True)
class Identities:
    """Stein identities over all draws.

    Attributes
    ----------
    p_value : float
        Of the most extreme one, times their number.
    deviation : float
        The largest significant one, in standardised units.
    """

    p_value: float
    deviation: float

    @property
    def refused(self) -> bool:
        """Whether the gradients clearly do not belong to the draws."""
        return self.p_value < REFUSED and self.deviation > MATERIAL

    @property
    def doubtful(self) -> bool:
        """Whether an identity is broken by more than chance."""
        return self.p_value < DOUBTFUL and self.deviation > MATERIAL / 10


def examine_identities(moments: Moments) -> Identities:
    """Test ``E[s] = 0`` and ``E[(x - m) s'] = -I``, whatever the constant m."""
    count = moments.batches
    if count < 3:
        return Identities(1.0, 0.0)

    def average(total: np.ndarray, squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        centre = total / count
        return centre, np.sqrt(np.maximum(squares / count - centre**2, 0) / (count - 1))

    mean, mean_error = average(moments.scores, moments.scores_squared)
    slope, slope_error = average(moments.slopes, moments.slopes_squared)
    trace, trace_error = average(np.array(moments.trace), np.array(moments.trace_squared))
    expected = -np.eye(len(mean)) if slope.ndim == 2 else -np.ones(len(mean))
    deviation = np.concatenate([mean, (slope - expected).ravel(), [trace + 1]])
    error = np.concatenate([mean_error, slope_error.ravel(), [trace_error]])
    z = z_scores(deviation, error, count - 1)
    p_values = np.minimum(1.0, 2 * scipy.stats.norm.sf(np.abs(z)) * len(z))
    significant = p_values < DOUBTFUL
    return Identities(float(p_values.min()), float(np.abs(deviation[significant]).max(initial=0.0)))
