"""Do scores and posterior hold the same draws? Stein identities cannot tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from az_cv.engine.score_check import ScoreWarning
from az_cv.notices import notify

if TYPE_CHECKING:
    from jaxtyping import Float

    Chains = Float[np.ndarray, "chain draw d"]

# Correlation of some variable of the posterior with some coordinate, or its square: parameters
# themselves have nearly one, and posteriors of other draws none. Above the second one is the other.
RELATED, SAME = 0.2, 0.9


def require_related(elements: Chains, x: Chains) -> None:
    """Warn if the posterior's variables have nothing to do with the draws of the scores.

    Scores that were stored beside one posterior still satisfy every identity when that posterior is
    replaced by another, but they tell nothing about it.

    Parameters
    ----------
    elements : array of shape (chain, draw, k)
        Variables of the posterior, none of them constant.
    x : array of shape (chain, draw, d)
        The unconstrained draws of the scores.
    """
    chains, draws, k = elements.shape
    places = np.concatenate([x, (x - x.mean(axis=(0, 1))) ** 2], axis=2)
    places = places[..., np.ptp(places, axis=(0, 1)) > 0]
    pairs = k * places.shape[2]
    if not pairs:
        return
    correlation = np.abs(_unit(elements).T @ _unit(places))
    element, place = np.unravel_index(np.argmax(correlation), correlation.shape)
    largest = float(correlation[element, place])
    advice = (
        "was the posterior replaced, thinned or reordered after the scores were stored? Slice the "
        "whole data, not one of its groups; or drop the group 'cv_scores' and pass the model."
    )
    if largest < _by_chance(pairs, chains * draws):
        notify(
            "The posterior's variables have nothing to do with the draws that the gradients "
            f"belong to (their largest correlation is {largest:.2f}): {advice}",
            ScoreWarning,
        )
        return
    pair = np.stack([elements[..., element], places[..., place]], axis=2)
    own = np.array([abs(float(np.prod(_unit(chain[None]), axis=1).sum())) for chain in pair])
    strangers = np.flatnonzero(own < _by_chance(2 * chains, draws)).tolist()
    if strangers and own.max() > SAME:
        notify(
            "The posterior and the draws that the gradients belong to agree in some chains, but "
            f"not in those at position {strangers}: {advice}",
            ScoreWarning,
        )


def _by_chance(pairs: int, draws: int) -> float:
    """Return a correlation that unrelated numbers hardly reach, and parameters easily."""
    return min(max(RELATED, float((np.sqrt(2 * np.log(pairs)) + 2) / np.sqrt(draws))), 0.5)


def _unit(values: Chains) -> Float[np.ndarray, "n k"]:
    """Return columns of mean zero and length one."""
    flat = (values - values.mean(axis=(0, 1))).reshape(-1, values.shape[2])
    length = np.linalg.norm(flat, axis=0)
    return flat / np.where(length > 0, length, 1.0)
