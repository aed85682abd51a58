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
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
import scipy.spatial

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from az_cv.solvers.error_model import ErrorModel

    Draws = Float[np.ndarray, "n d"]
    Labels = Int[np.ndarray, " n"]
    PerOutput = Float[np.ndarray, " q"]

# Draws are moved between parts until none moves. Parts that do not settle are no modes, and parts
# that overlap after one round will not come apart: their means are closer than so many spreads.
ROUNDS = 10
HOPELESS = 2.0
# With more second-order features the regression would take seconds.
MAX_FEATURES = 500


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
    few : int
        Draws that it takes to know the shape of a mode.
    """

    label: Int[np.ndarray, " n"]
    counts: Int[np.ndarray, " k"]
    features: Float[np.ndarray, "n p"]
    visit: int
    few: int

    def levels(
        self, outputs: Float[np.ndarray, "n q"]
    ) -> tuple[Float[np.ndarray, "n q"], PerOutput]:
        """Return how much higher each output is in a draw's mode than in the first, and an error.

        The average in each mode comes from one regression, with the features and a constant for
        each. Without these differences a fit has nothing to take from the gaps, up to the error of
        the averages: that is the error returned.

        Parameters
        ----------
        outputs : array of shape (n, q)
        """
        design, solve = self._regression
        own, coefficients = design[:, : len(self.counts)], solve @ outputs
        residual = outputs - design @ coefficients
        height = coefficients[: len(self.counts)]
        # A draw alone in its mode leaves no residual: each mode also has one of the average size.
        squares = own.T @ residual**2 + (residual**2).mean(axis=0)
        # The shape of a mode with fewer draws than that is not known to be like that of the first.
        unlike = self.counts * outputs[self.label == 0].var(axis=0)[:, None]
        squares = np.where(self.counts < self.few, np.maximum(squares.T, unlike), squares.T).T
        effective = np.maximum(self.counts / self.visit, 1.0)[:, None]
        variance = squares / self.counts[:, None] / effective
        share = self.counts[1:, None] / len(outputs)
        # A count of k has an error of root k if k is what was expected: one more is a safer guess.
        steps = height - height[0]
        one_more = (steps[1:] * self.visit / len(outputs)) ** 2
        unknown = np.sqrt((share**2 * (variance[1:] + variance[0]) + one_more).sum(axis=0))
        return steps[self.label], unknown

    @cached_property
    def _regression(self) -> tuple[Float[np.ndarray, "n c"], Float[np.ndarray, "c n"]]:
        """Return a constant for each mode beside the features, and what solves for coefficients."""
        own = self.label[:, None] == np.arange(len(self.counts))
        design = np.column_stack([own.astype(float), self.features])
        return design, scipy.linalg.pinv(design)

    def describe(self) -> str:
        """Return what to tell the user.

        Examples
        --------
        >>> label = np.array([0, 0, 1])
        >>> print(Modes(label, np.array([2, 1]), np.zeros((3, 0)), 1, 4).describe())
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
    parts: list[Int[np.ndarray, " r"]] = []
    whole = [np.arange(n)]
    while whole and len(whole) + len(parts) < errors.most_modes:
        rows = whole.pop()
        part = _split(x[rows], s[rows], errors)
        if part is None:
            parts.append(rows)
        else:
            whole += [rows[part == k] for k in range(part.max() + 1)]
    parts += whole
    if len(parts) == 1:
        return None
    parts.sort(key=lambda rows: (-len(rows), rows[0]))
    label = np.empty(n, dtype=int)
    for k, rows in enumerate(parts):
        label[rows] = k
    counts = np.bincount(label)
    return Modes(label, counts, _features(x, s, label, counts, errors), visit, errors.mode_draws)


def _split(x: Draws, s: Draws, errors: ErrorModel) -> Labels | None:
    """Return which of some modes each draw is in, or None where there is one.

    One of two modes has the draw whose peak is farthest from the average, and all draws with peaks
    closer to that one. Where two modes do not explain the draws, more may do so, with several
    draws in each.
    """
    n, d = x.shape
    if n < 2 * d + errors.mode_draws:
        return None
    y, r = _unit_scores(x, s)
    peak = y + r
    centre = peak.mean(axis=0)
    distance = ((peak - centre) ** 2).sum(axis=1)
    for guess in range(errors.mode_guesses):
        farthest = int(np.argmax(distance))
        if distance[farthest] < errors.beside_gaussian[0] ** 2:
            return None if guess == 0 else _split_in_several(y, r, errors)
        part = _settled(y, r, np.stack([centre, peak[farthest]]), 1, errors)
        if part is not None and _are_apart(y, r, part, errors):
            return part
        distance[farthest] = 0.0
        if part is not None:
            distance[part == np.argmin(np.bincount(part))] = 0.0
    return _split_in_several(y, r, errors)


def _split_in_several(y: Draws, r: Draws, errors: ErrorModel) -> Labels | None:
    """Return which of three and more modes each draw is in, or None.

    Each starts with the draw whose peak is farthest from those of the others before it.
    """
    peak = y + r
    starts = [peak.mean(axis=0)]
    distance = ((peak - starts[0]) ** 2).sum(axis=1)
    for number in range(errors.most_modes):
        if number >= 3:
            part = _settled(y, r, np.stack(starts[1:]), errors.mode_draws, errors)
            if part is None:  # more parts would have fewer draws
                return None
            if _are_apart(y, r, part, errors):
                return part
        if distance.max() < errors.beside_gaussian[0] ** 2:
            return None
        starts.append(peak[np.argmax(distance)])
        own = ((peak - starts[-1]) ** 2).sum(axis=1)
        distance = own if number == 0 else np.minimum(distance, own)
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


def _settled(
    y: Draws, r: Draws, starts: Float[np.ndarray, "k d"], least: int, errors: ErrorModel
) -> Labels | None:
    """Return which part each draw is in when none has a peak closer to the mean of another.

    Parts start around some peaks. None is returned where one has fewer than so many draws.
    """
    before, part = None, np.argmin([((y + r - start) ** 2).sum(axis=1) for start in starts], axis=0)
    for _ in range(ROUNDS):
        if np.bincount(part, minlength=len(starts)).min() < least:
            return None
        if before is not None and (part == before).all():
            return part
        means, misfits, spreads = [], [], []
        for own in (part == k for k in range(len(starts))):
            peak = y + _reach(y[own], r[own], errors) * r
            means.append(peak[own].mean(axis=0))
            misfits.append(((peak - means[-1]) ** 2).sum(axis=1))
            spreads.append(np.sqrt(misfits[-1][own].mean() / y.shape[1]))
        if scipy.spatial.distance.pdist(np.stack(means)).min() < HOPELESS * max(spreads):
            return None
        before, part = part, np.argmin(misfits, axis=0)
    return None


def _are_apart(y: Draws, r: Draws, part: Labels, errors: ErrorModel) -> bool:
    """Tell whether every two parts are modes that no draws connect."""
    counts = np.bincount(part)
    order = np.argsort(counts, kind="stable")
    for j, few in enumerate(order):
        for many in order[j + 1 :]:
            rows = (part == few) | (part == many)
            if not _is_apart(y[rows], r[rows], part[rows] == few, errors):
                return False
    return True


def _reach(y: Draws, r: Draws, errors: ErrorModel) -> float:
    """Return how far from the draws along their scores the peak of a mode lies: its variance."""
    if len(y) < errors.mode_draws:
        return 1.0
    scores = r - r.mean(axis=0)
    size = float((scores**2).sum())
    narrow, wide = errors.mode_variances
    return float(np.clip(-(y * scores).sum() / size, narrow, wide)) if size > 0 else wide


def _is_apart(y: Draws, r: Draws, smaller: Bool[np.ndarray, " n"], errors: ErrorModel) -> bool:
    """Tell whether two parts are modes that no draws connect, in place of a centre and its tail.

    Peaks must lie far apart in units of their spreads. Those of a tail may do so, too, but its
    scores point to the centre and are too small to explain how it scatters. One of three has to
    speak for a mode:

    * the peaks of the larger part coincide: it has no tails, and the smaller does not point to it;
    * the peaks of the smaller part coincide, whose draws do not;
    * at some of its draws the density falls towards the other part: there is a valley between.
    """
    n, d = y.shape
    reach = _reach(y[smaller], r[smaller], errors)
    own = y[smaller] + reach * r[smaller]
    others = y[~smaller] + _reach(y[~smaller], r[~smaller], errors) * r[~smaller]
    step = own.mean(axis=0) - others.mean(axis=0)
    distance = float(np.sqrt(step @ step))
    here, there = (_spread(peak, step / distance) for peak in (own, others))
    rise = -np.sqrt(reach) * (r[smaller] @ step) / distance
    # Second moments of n scores are known to one in the root of n, and so are the peaks.
    is_noise = there <= errors.mode_noise * np.sqrt((d + 1) / n)
    closest, itself, (least, share, most) = (
        errors.beside_gaussian if is_noise else errors.beside_other
    )
    close, loose = errors.mode_spreads
    if distance < closest or distance < min(loose, itself) * max(here, there):
        return False
    steepest = min(max(least, share * distance), most)
    has_no_tails = there <= errors.mode_gaussian and distance >= close * there
    if has_no_tails and rise.mean() <= steepest and distance >= itself * here:
        return True
    if len(rise) < errors.mode_draws:
        return False
    scatter = y[smaller] - y[smaller].mean(axis=0)
    explained = -(scatter * r[smaller]).sum() / (len(rise) - 1) / d
    least, most = errors.mode_explained
    if not least <= explained <= most:
        return False
    coincides = here <= errors.mode_gaussian and distance >= close * max(here, there)
    has_valley = (rise < 0).mean() >= errors.mode_falling
    return coincides or (has_valley and distance >= loose * max(here, there))


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
    """Return first- and second-order Stein features, centred in each mode and in its units.

    Modes with draws enough have first-order coefficients of their own. Units of one where they are
    much the same keep the features exact on equal modes.
    """
    n, d = x.shape
    y, r = _unit_scores(x, s)
    reach = np.array([_reach(y[label == k], r[label == k], errors) for k in range(len(counts))])
    is_same = np.abs(np.log2(reach)) < 1
    unit = np.where(is_same, 1.0, reach)[label, None]
    s = unit * s
    columns = [s]
    if d * (d + 3) // 2 <= min(n / errors.mode_support, MAX_FEATURES):
        means = np.stack([x[label == k].mean(axis=0) for k in range(len(counts))])
        centred, (left, right) = x - means[label], np.triu_indices(d)
        second = centred[:, left] * s[:, right] + centred[:, right] * s[:, left]
        columns.append(second + 2.0 * unit * (left == right))
    for k in range(1, len(counts)):
        if counts[k] >= errors.mode_support * d:
            columns.append(s * (label == k)[:, None])
    return np.column_stack(columns)
