"""Modes that no draws connect, in two and more dimensions.

Gradients do not tell the shares of such modes: the way from one to the other leads through a gap
where no draw speaks. A fit can be right at every draw, left out or not, and take what is missing
from the gap. Within each mode, though, every Stein identity holds by itself. So what a function is
on average in each mode is a matter for control variates, and how much of the mass a mode has is a
matter for counting draws.

A draw and its score name the place where the density would peak if it were Gaussian: with ``F`` the
second moments of the scores, ``x + F^-1 s``. All draws of a Gaussian mode name the same place,
however few they are and however wide they scatter, so that modes are easily told apart by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from az_cv.solvers.error_model import ErrorModel

    Draws = Float[np.ndarray, "n d"]
    PerOutput = Float[np.ndarray, " q"]

# Parts are moved between two modes until none moves; places that keep changing sides are no modes.
ROUNDS = 20


@dataclass(frozen=True)
class Modes:
    """Which mode each draw is in, and what is known of functions in each.

    Attributes
    ----------
    label : array of shape (n,)
        0 for the mode with most draws, then 1, 2, ...
    counts : array of shape (k,)
        Draws in each.
    features : array of shape (n, p)
        Functions that average to zero in each mode.
    visit : int
        Draws that a chain stays in one region.
    """

    label: Int[np.ndarray, " n"]
    counts: Int[np.ndarray, " k"]
    features: Float[np.ndarray, "n p"]
    visit: int

    def levels(
        self, outputs: Float[np.ndarray, "n q"]
    ) -> tuple[Float[np.ndarray, "n q"], PerOutput]:
        """Return by how much each output is higher in a draw's mode than in the first, and an error.

        The average in each mode comes from one regression, with the features and a constant for
        each. Without these differences a fit has nothing to take from the gaps, up to the error of the
        averages: that is the error returned.

        Parameters
        ----------
        outputs : array of shape (n, q)
        """
        own = (self.label[:, None] == np.arange(len(self.counts))).astype(float)
        design = np.column_stack([own, self.features])
        coefficients = scipy.linalg.lstsq(design, outputs, lapack_driver="gelsy")[0]
        residual = outputs - design @ coefficients
        height = coefficients[: len(self.counts)]
        # A draw alone in its mode leaves no residual: each mode also has one of the average size.
        squares = own.T @ residual**2 + (residual**2).mean(axis=0)
        effective = np.maximum(self.counts / self.visit, 1.0)[:, None]
        variance = squares / self.counts[:, None] / effective
        share = self.counts[1:, None] / len(outputs)
        hidden = np.sqrt((share**2 * (variance[1:] + variance[0])).sum(axis=0))
        return (height - height[0])[self.label], hidden

    def describe(self) -> str:
        """Return what to tell the user.

        Examples
        --------
        >>> label = np.array([0, 0, 1])
        >>> print(Modes(label, np.array([2, 1]), np.zeros((3, 0)), 1).describe())
        The draws lie in 2 modes that no draw connects (2, 1 draws). Gradients tell nothing of the \
share that each has: it is known as well as the draws in each can be counted, and errors include \
that. More draws, or a sampler that moves between modes, would tell more.
        """
        return (
            f"The draws lie in {len(self.counts)} modes that no draw connects "
            f"({', '.join(map(str, self.counts))} draws). Gradients tell nothing of the share "
            "that each has: it is known as well as the draws in each can be counted, and errors "
            "include that. More draws, or a sampler that moves between modes, would tell more."
        )


def find_modes(x: Draws, s: Draws, visit: int, errors: ErrorModel) -> Modes | None:
    """Return the modes of the draws, or None where there is one.

    Parameters
    ----------
    x, s : arrays of shape (n, d)
        Whitened draws and scores. In one dimension gaps are found in other ways.
    visit : int
        Draws that a chain stays in one region.
    errors : ErrorModel

    Examples
    --------
    >>> from az_cv.solvers.error_model import ERROR_MODEL
    >>> x = np.random.default_rng(0).normal(size=(400, 2))
    >>> find_modes(x, -x, 1, ERROR_MODEL) is None
    True
    >>> away = np.where(np.arange(400)[:, None] < 10, 6.0, 0.0)
    >>> find_modes(x + away, -x, 1, ERROR_MODEL).counts
    array([390,  10])
    """
    n, d = x.shape
    if d == 1 or not s.any():
        return None
    whole, parts = [np.arange(n)], []
    while whole and len(whole) + len(parts) < errors.most_modes:
        rows = whole.pop()
        smaller = _split(x[rows], s[rows], errors)
        if smaller is None:
            parts.append(rows)
        else:
            whole += [rows[smaller], rows[~smaller]]
    parts += whole
    if len(parts) == 1:
        return None
    parts.sort(key=lambda rows: (-len(rows), rows[0]))
    label = np.empty(n, dtype=int)
    for k, rows in enumerate(parts):
        label[rows] = k
    counts = np.bincount(label)
    return Modes(label, counts, _features(x, s, label, counts, errors), visit)


def _split(x: Draws, s: Draws, errors: ErrorModel) -> Bool[np.ndarray, " n"] | None:
    """Return which draws are in the smaller of two modes, or None where no two are found.

    The first guess is the draw whose peak is farthest from the others', and all with a peak closer
    to its own than to theirs.
    """
    n, d = x.shape
    if n < 2 * d + errors.mode_draws:
        return None
    y, r = _unit_scores(x, s)
    peak = y + r
    centre = peak.mean(axis=0)
    distance = ((peak - centre) ** 2).sum(axis=1)
    for _ in range(errors.mode_guesses):
        farthest = int(np.argmax(distance))
        if distance[farthest] < errors.mode_distance**2:
            return None
        smaller = _two_means(peak, peak[farthest], centre)
        if smaller is not None and _is_apart(y, r, smaller, errors):
            return smaller
        distance[farthest] = 0.0
        if smaller is not None:
            distance[smaller] = 0.0
    return None


def _unit_scores(x: Draws, s: Draws) -> tuple[Draws, Draws]:
    """Return coordinates in which scores have second moments of one: the sd of a mode is one.

    The inverse of these moments is no larger than the covariance of the draws, but for noise.
    """
    x = x - x.mean(axis=0)
    covariance = x.T @ x / len(x)
    values, vectors = scipy.linalg.eigh(s.T @ s / len(s))
    least = 1 / np.maximum(np.einsum("dk,de,ek->k", vectors, covariance, vectors), 1e-300)
    root = np.sqrt(np.maximum(values, least))
    return (x @ vectors) * root, (s @ vectors) / root


def _two_means(
    peak: Draws, first: Float[np.ndarray, " d"], second: Float[np.ndarray, " d"]
) -> Bool[np.ndarray, " n"] | None:
    """Return which draws are in the smaller of two parts, each closer to its own mean."""
    before = None
    for _ in range(ROUNDS):
        closer = (peak - (first + second) / 2) @ (first - second) > 0
        if not closer.any() or closer.all():
            return None
        if before is not None and (closer == before).all():
            return closer if 2 * closer.sum() <= len(closer) else ~closer
        before, first, second = closer, peak[closer].mean(axis=0), peak[~closer].mean(axis=0)
    return None


def _is_apart(y: Draws, r: Draws, smaller: Bool[np.ndarray, " n"], errors: ErrorModel) -> bool:
    """Tell whether two parts are modes that no draws connect, in place of a centre and its tail.

    Peaks must lie far apart in units of their spreads. A tail has that too. But its scores point to
    the centre, and where the peaks of all other draws coincide these have no tail. Elsewhere some
    draws of the smaller part have to fall towards the other: there is a valley between. And the
    scores must explain how the smaller part scatters, which those of a tail are too small for.
    """
    peak = y + r
    step = peak[smaller].mean(axis=0) - peak[~smaller].mean(axis=0)
    distance = float(np.sqrt(step @ step))
    direction = step / distance
    here, there = _spread(peak[smaller], direction), _spread(peak[~smaller], direction)
    rise = -(r[smaller] @ direction)
    close, loose, itself = errors.mode_spreads
    if distance < errors.mode_distance or distance < min(loose, itself) * max(here, there):
        return False
    few, share = errors.mode_rise
    is_gaussian = there <= errors.mode_gaussian and rise.mean() <= max(few, share * distance)
    if is_gaussian and distance >= max(close * there, itself * here):
        return True
    if len(rise) < errors.mode_draws or distance < loose * max(here, there):
        return False
    scatter = y[smaller] - y[smaller].mean(axis=0)
    explained = -(scatter * r[smaller]).sum() / (len(rise) - 1) / y.shape[1]
    return (rise < 0).mean() >= errors.mode_falling and explained >= errors.mode_explained


def _spread(peak: Draws, direction: Float[np.ndarray, " d"]) -> float:
    """Return the sd of peaks, over all directions or in this one, whichever is larger."""
    centred = peak - peak.mean(axis=0)
    return float(np.sqrt(max((centred**2).mean(), ((centred @ direction) ** 2).mean())))


def _features(
    x: Draws,
    s: Draws,
    label: Int[np.ndarray, " n"],
    counts: Int[np.ndarray, " k"],
    errors: ErrorModel,
) -> Float[np.ndarray, "n p"]:
    """Return first- and second-order Stein features, centred in each mode.

    Modes with draws enough have first-order coefficients of their own.
    """
    n, d = x.shape
    columns = [s]
    if n >= errors.mode_support * d * (d + 3) // 2:
        means = np.stack([x[label == k].mean(axis=0) for k in range(len(counts))])
        centred, (left, right) = x - means[label], np.triu_indices(d)
        second = centred[:, left] * s[:, right] + centred[:, right] * s[:, left]
        columns.append(second + 2.0 * (left == right))
    for k in range(1, len(counts)):
        if counts[k] >= errors.mode_support * d:
            columns.append(s * (label == k)[:, None])
    return np.column_stack(columns)
