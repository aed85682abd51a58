"""Quantiles and interval ends through distribution functions with control variates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from az_cv.engine.delta_method import Derived
from az_cv.engine.weighted import WeightedEngine
from az_cv.engine.weighted_quantiles import weighted_quantiles

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.engine.engine import Engine

    Chains = Float[np.ndarray, "chain draw q"]


# A second look is taken where the error of the distribution function shrank so many times. On the
# way, the correction changes by about n^(-1/4) of the plain error, an eighth for 4,000 draws.
SECOND_LOOK = 1.5


def corrected_quantiles(
    engine: Engine, outputs: Chains, levels: Float[np.ndarray, " q"]
) -> Derived:
    """Return one quantile of each output.

    The plain quantile at level ``l`` is corrected by what the control variates say about the
    distribution function there: if they find ``F(q) = l + e``, the quantile moves to level
    ``l - e`` of the draws. What the control variates say changes on the way by a small part of the
    plain error. Where their own error is much smaller than that, a second look at the new place
    makes it negligible.

    Parameters
    ----------
    engine : Engine
    outputs : array of shape (chain, draw, q)
        None of them constant.
    levels : array of shape (q,)
    """
    if isinstance(engine, WeightedEngine):
        return weighted_quantiles(engine, outputs, levels)
    first = engine.folds.first_draw
    evaluated = outputs[:, first:]
    ordered = np.sort(evaluated.reshape(-1, evaluated.shape[2]), axis=0)
    place = levels.copy()
    error, plain_error = np.full(len(levels), np.nan), np.full(len(levels), np.nan)
    looked_at = np.arange(len(levels))
    for _ in range(2):
        points = _quantile(ordered, place)[looked_at]
        below = (np.take(outputs, looked_at, axis=2) <= points).astype(float)
        varies = np.ptp(below, axis=(0, 1)) > 0
        looked_at, below = looked_at[varies], np.compress(varies, below, axis=2)
        if not len(looked_at):
            break
        estimate = engine.estimate(below, steps=True)
        reached = below[:, first:].mean(axis=(0, 1)) + (levels[looked_at] - estimate.mean)
        place[looked_at] = np.clip(reached, 0.5 / len(ordered), 1 - 0.5 / len(ordered))
        error[looked_at], plain_error[looked_at] = estimate.mcse, estimate.plain_mcse
        looked_at = looked_at[estimate.mcse < estimate.plain_mcse / SECOND_LOOK]
    value = _quantile(ordered, place)
    # The slope of the quantile function, over a stretch as long as the plain error.
    reach = np.maximum(np.nan_to_num(plain_error), 2 / len(ordered))
    upper = np.minimum(place + reach, 1.0)
    lower = np.maximum(place - reach, 0.0)
    slope = (_quantile(ordered, upper) - _quantile(ordered, lower)) / (upper - lower)
    return Derived(
        value=value,
        mcse=slope * error,
        plain_value=_quantile(ordered, levels),
        plain_mcse=slope * plain_error,
    )


def interval_levels(
    outputs: Chains, kind: str, probability: float
) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
    """Return the levels of the two ends of each output's interval.

    Equal-tailed ends have fixed levels. The ends of a highest-density interval have those of the
    shortest interval among the draws that holds the probability.

    Parameters
    ----------
    outputs : array of shape (chain, draw, q)
    kind : {"eti", "hdi"}
    probability : float
    """
    q = outputs.shape[2]
    if kind == "eti":
        tail = (1 - probability) / 2
        return np.full(q, tail), np.full(q, 1 - tail)
    ordered = np.sort(outputs.reshape(-1, q), axis=0)
    n = len(ordered)
    inside = min(int(np.floor(probability * n)), n - 1)
    start = np.argmin(ordered[inside:] - ordered[: n - inside], axis=0)
    lower = start / (n - 1)
    return lower, np.minimum(lower + probability, 1.0)


def _quantile(ordered: Float[np.ndarray, "n q"], levels: Float[np.ndarray, " q"]) -> np.ndarray:
    """Return the linearly interpolated quantile of each sorted column at its own level."""
    n = len(ordered)
    position = levels * (n - 1)
    below = np.clip(np.floor(position).astype(int), 0, n - 2)
    share = position - below
    columns = np.arange(ordered.shape[1])
    return (1 - share) * ordered[below, columns] + share * ordered[below + 1, columns]
