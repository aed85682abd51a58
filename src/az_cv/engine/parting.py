"""Parting the draws of modes that no draws connect, see :mod:`az_cv.engine.modes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
import scipy.spatial

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from az_cv.solvers.error_model import ErrorModel

    Draws = Float[np.ndarray, "n d"]
    Labels = Int[np.ndarray, " n"]

# Draws are moved between parts until none moves. Parts that do not settle are no modes, and parts
# that overlap after one round will not come apart: their means are closer than so many spreads.
ROUNDS = 10
HOPELESS = 2.0


def split(x: Draws, s: Draws, errors: ErrorModel) -> Labels | None:
    """Return which of some modes each draw is in, or None where there is one.

    One of two modes has the draw whose peak is farthest from the average, and all draws with peaks
    closer to that one. Where two modes do not explain the draws, more may do so, with several
    draws in each.
    """
    n, d = x.shape
    if n < 2 * d + errors.mode_draws:
        return None
    y, r = unit_scores(x, s)
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


def unit_scores(x: Draws, s: Draws) -> tuple[Draws, Draws]:
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
            peak = y + reach_of(y[own], r[own], errors) * r
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


def reach_of(y: Draws, r: Draws, errors: ErrorModel) -> float:
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
    reach = reach_of(y[smaller], r[smaller], errors)
    own = y[smaller] + reach * r[smaller]
    others = y[~smaller] + reach_of(y[~smaller], r[~smaller], errors) * r[~smaller]
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
        return not _is_tail(y, r, smaller, errors)
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


def _is_tail(y: Draws, r: Draws, smaller: Bool[np.ndarray, " n"], errors: ErrorModel) -> bool:
    """Tell whether scores of a part point inwards just as those of the draws next to it.

    The outermost draws of a heavy tail look alike, while those of another mode point to its peak.
    """
    outwards = y - y[~smaller].mean(axis=0)
    distance = np.sqrt((outwards**2).sum(axis=1))
    inwards = -(outwards * r).sum(axis=1) / np.maximum(distance, 1e-300)
    others = np.flatnonzero(~smaller)
    outermost = others[np.argsort(-distance[others], kind="stable")[: errors.outermost[0]]]
    usual, (least, share) = np.median(inwards[outermost]), errors.mode_tail
    is_alike = (share * usual <= inwards[smaller]) & (inwards[smaller] <= usual / share)
    return bool(usual >= least and is_alike.all())


def _spread(peak: Draws, direction: Float[np.ndarray, " d"]) -> float:
    """Return the sd of peaks, over all directions or in this one, whichever is larger."""
    centred = peak - peak.mean(axis=0)
    return float(np.sqrt(max((centred**2).mean(), ((centred @ direction) ** 2).mean())))
