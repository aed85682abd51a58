"""Quantiles and interval ends of draws with weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from az_cv.engine.delta_method import Derived
from az_cv.engine.errors import plain_standard_error
from az_cv.engine.weighted import influence_draws

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.engine.weighted import WeightedEngine

    Chains = Float[np.ndarray, "chain draw q"]
    PerOutput = Float[np.ndarray, " q"]

TAIL_LEVELS = (0.05, 0.95)  # ArviZ's


def weighted_quantiles(engine: WeightedEngine, outputs: Chains, levels: PerOutput) -> Derived:
    """Return one quantile of each output.

    As :func:`az_cv.engine.quantiles.corrected_quantiles`, with the weighted distribution function
    in place of the plain one.

    Parameters
    ----------
    engine : WeightedEngine
    outputs : array of shape (chain, draw, q)
        None of them constant.
    levels : array of shape (q,)
    """
    first = engine.folds.first_draw
    weights = engine.weights[:, first:].ravel()
    columns = outputs[:, first:].reshape(len(weights), -1).T
    functions = [WeightedOrder(column, weights) for column in columns]

    def values_at(places: PerOutput) -> PerOutput:
        return np.array([order.quantile(place) for order, place in zip(functions, places)])

    least = 0.5 / len(weights)
    place = levels.copy()
    for _ in range(2):
        points = values_at(place)
        below = (outputs <= points).astype(float)
        varies = np.ptp(below, axis=(0, 1)) > 0
        if not varies.any():
            break
        estimate = engine.estimate(below[..., varies], steps=True)
        found = np.array(place)
        found[varies] = estimate.mean
        reached = np.array([order.level(point) for order, point in zip(functions, points)])
        place = np.clip(reached + (levels - found), least, 1 - least)
    error, plain_error = np.full(len(levels), np.nan), np.full(len(levels), np.nan)
    if varies.any():
        error[varies], plain_error[varies] = estimate.mcse, estimate.plain_mcse
    # The slope of the quantile function, over a stretch as long as the plain error.
    reach = np.maximum(np.nan_to_num(plain_error), 4 * least)
    upper, lower = np.minimum(place + reach, 1.0), np.maximum(place - reach, 0.0)
    slope = (values_at(upper) - values_at(lower)) / (upper - lower)
    return Derived(
        value=values_at(place),
        mcse=slope * error,
        plain_value=values_at(levels),
        plain_mcse=slope * plain_error,
    )


def weighted_levels(
    engine: WeightedEngine, outputs: Chains, probability: float
) -> tuple[PerOutput, PerOutput]:
    """Return the levels of the ends of each output's shortest interval that holds a probability."""
    weights = engine.weights.ravel()
    lower = []
    for column in outputs.reshape(len(weights), -1).T:
        order = WeightedOrder(column, weights)
        starts = np.linspace(0.0, 1 - probability, 201)
        widths = [order.quantile(start + probability) - order.quantile(start) for start in starts]
        lower.append(starts[int(np.argmin(widths))])
    start = np.array(lower)
    return start, np.minimum(start + probability, 1.0)


def effective_draws(engine: WeightedEngine, outputs: Chains) -> tuple[PerOutput, PerOutput]:
    """Return how many draws with equal weights know as much of each output, and of its tails.

    Parameters
    ----------
    engine : WeightedEngine
    outputs : array of shape (chain, draw, q)

    Returns
    -------
    bulk, tail : arrays of shape (q,)
        NaN for outputs that are constant, or not finite.
    """
    bulk, tail = np.full((2, outputs.shape[2]), np.nan)
    usable = np.isfinite(outputs).all(axis=(0, 1))
    usable[usable] &= np.ptp(outputs[..., usable], axis=(0, 1)) > 0
    for k in np.flatnonzero(usable):
        column = outputs[..., k : k + 1]
        order = WeightedOrder(column.ravel(), engine.weights.ravel())
        ends = [order.quantile(level) for level in TAIL_LEVELS]
        bulk[k], *both = _effective(np.concatenate([column, column <= ends], axis=2), engine)
        tail[k] = min(both)
    return bulk, tail


def _effective(draws: Chains, engine: WeightedEngine) -> PerOutput:
    weights = engine.weights[..., None]
    variance = (weights * draws**2).sum(axis=(0, 1)) - (weights * draws).sum(axis=(0, 1)) ** 2
    error = plain_standard_error(influence_draws(draws, weights))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.minimum(variance / error**2, draws[..., 0].size))


class WeightedOrder:
    """The weighted distribution of one quantity, each draw in the middle of its own share.

    Examples
    --------
    >>> order = WeightedOrder(np.array([2.0, 0.0, 1.0]), np.array([0.25, 0.25, 0.5]))
    >>> float(order.quantile(0.5)), float(order.level(1.0))
    (1.0, 0.75)
    """

    def __init__(self, values: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"]) -> None:
        rows = np.argsort(values, kind="stable")
        self._values = values[rows]
        shares = weights[rows] / weights.sum()
        self._reached = np.cumsum(shares)
        self._middle = self._reached - shares / 2

    def quantile(self, level: float) -> float:
        """Return the value that the level is reached at, linear between draws."""
        return float(np.interp(level, self._middle, self._values))

    def level(self, value: float) -> float:
        """Return the weight of the draws up to a value."""
        number = int(np.searchsorted(self._values, value, side="right"))
        return float(self._reached[number - 1]) if number else 0.0
