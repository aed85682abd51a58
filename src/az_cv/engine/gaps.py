"""Gaps between draws in one dimension, across which gradients do not tell the shares of modes.

The log density falls from one mode into a valley and rises to the next. Where it turns, no draw may
say, and a smooth fit takes some way across, and with it some shares of the modes, all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from az_cv.solvers.error_model import ErrorModel

    Gaps = Float[np.ndarray, " g"]


def gap_error(
    x: Float[np.ndarray, " n"],
    s: Float[np.ndarray, " n"],
    outputs: Float[np.ndarray, "n q"],
    errors: ErrorModel,
) -> Float[np.ndarray, " q"]:
    """Return the error of each expectation from not knowing the density between the draws.

    The uncertainty of the way from mode to mode, in log density, is that of the odds of both sides.
    The change in their shares that it allows moves the expectation by the difference of their
    averages.

    Parameters
    ----------
    x, s : arrays of shape (n,)
        Draws and scores, in any order.
    outputs : array of shape (n, q)
    errors : ErrorModel

    Examples
    --------
    >>> from az_cv.solvers.error_model import ERROR_MODEL
    >>> x = np.linspace(-3, 3, 101)
    >>> modes = np.concatenate([x - 5, x + 5])
    >>> gap_error(modes, 5 * np.sign(modes) - modes, np.sign(modes)[:, None], ERROR_MODEL)
    array([1.])
    >>> gap_error(modes, -modes, np.sign(modes)[:, None], ERROR_MODEL)
    array([0.])
    """
    n = len(x)
    places, first, place, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True
    )
    if len(places) < 4:
        return np.zeros(outputs.shape[1])
    scores = s[first]
    turn, growth = _uncertain_steps(places, scores)
    below = np.cumsum(counts)[:-1]
    is_inside = np.minimum(below, n - below) >= errors.side
    step = np.where(is_inside & (turn > errors.unresolved), turn, 0.0)
    valleys, peaks = _turning_points(places, scores, turn > errors.unresolved)
    whole_way = np.concatenate([[0.0], np.cumsum(turn + growth)])
    for valley in valleys:
        start, stop = peaks[peaks < valley], peaks[peaks > valley]
        way = (
            whole_way[stop[0] if len(stop) else -1] - whole_way[start[-1] + 1 if len(start) else 0]
        )
        step[valley] = max(way, turn[valley] + growth[valley])

    gaps = np.flatnonzero(step)
    step, share = np.minimum(step[gaps], errors.largest_step), below[gaps] / n
    change = np.maximum(_moved(share, step) - share, share - _moved(share, -step))
    sums = np.zeros((len(places), outputs.shape[1]))
    np.add.at(sums, place, outputs)
    running = np.cumsum(sums, axis=0)
    left = running[gaps] / below[gaps, None]
    right = (running[-1] - running[gaps]) / (n - below[gaps, None])
    return np.sqrt(((change[:, None] * (right - left)) ** 2).sum(axis=0))


def _uncertain_steps(x: Float[np.ndarray, " n"], s: Float[np.ndarray, " n"]) -> tuple[Gaps, Gaps]:
    """Return how uncertain the step in log density across each gap is, for two reasons.

    * Where the score turns, no draw says: continued as straight lines from the left and from the
      right, its integrals differ.
    * What a fit has to follow across the gap grows as ``exp(s x)``. With values and slopes known at
      both ends, a cubic is wrong by ``(s h)^4 / 384`` of it.
    """
    width = np.diff(x)
    before, after = _slopes_beside(x, s)
    steepest = np.maximum(np.abs(s[:-1]), np.abs(s[1:]))
    turn = np.abs(0.5 * width**2 * (before + after) - width * np.diff(s))
    return turn, (steepest * width) ** 4 / 384


def _turning_points(
    x: Float[np.ndarray, " n"], s: Float[np.ndarray, " n"], is_unresolved: Bool[np.ndarray, " g"]
) -> tuple[Int[np.ndarray, " v"], Int[np.ndarray, " p"]]:
    """Return the gaps in which the density has its valleys, and its peaks.

    The last draw before a valley need not have passed the peak: where the turn is uncertain, the
    straight continuations speak as well.
    """
    before, after, width = *_slopes_beside(x, s), np.diff(x)
    falls, rises = s[:-1] < 0, s[1:] > 0
    would_fall, would_rise = s[:-1] + before * width < 0, s[1:] - after * width > 0
    is_hidden = is_unresolved & (falls | would_fall) & (rises | would_rise)
    valleys = np.flatnonzero((falls & rises) | is_hidden)
    return valleys, np.flatnonzero((s[:-1] > 0) & (s[1:] < 0))


def _slopes_beside(x: Float[np.ndarray, " n"], s: Float[np.ndarray, " n"]) -> tuple[Gaps, Gaps]:
    """Return the slope of the score in the gaps before and after each gap."""
    slope = np.diff(s) / np.diff(x)
    return np.concatenate([slope[:1], slope[:-1]]), np.concatenate([slope[1:], slope[-1:]])


def _moved(share: Gaps, step: Gaps) -> Gaps:
    """Return a share when the log of its odds moves by `step`."""
    odds = share * np.exp(step)
    return odds / (1 - share + odds)
