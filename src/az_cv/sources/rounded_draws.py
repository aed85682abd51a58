"""Draws that were printed with few digits and became the bound they are close to.

A probability of 0.99999983 is 1 with six digits, and has no place on the unconstrained scale. To
leave such draws out would be to leave a tail out. They are drawn anew from the part of the tail
that was rounded away: near a bound, the distance to it has a power law, whose exponent the other
draws tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from az_cv.engine.density_check import relative_precision
from az_cv.notices import notify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Bool, Float

SHORT = 1e-9  # bounds are written with few digits
NEARBY = 0.1  # share of the draws, those closest to the bound, that tell the exponent
MIN_NEARBY = 20


def restore_rounded(
    draws: Float[np.ndarray, "chain draw p"], names: Sequence[str]
) -> tuple[Float[np.ndarray, "chain draw p"], Bool[np.ndarray, "chain draw"] | None]:
    """Move draws off the bounds that they were rounded onto.

    Parameters
    ----------
    draws : array of shape (chain, draw, p)
        Constrained parameters.
    names : sequence of str

    Returns
    -------
    draws : array of shape (chain, draw, p)
    restored : array of shape (chain, draw) or None
        Which draws were moved, if any.

    Warns
    -----
    UserWarning
        If any was.

    Examples
    --------
    >>> import numpy as np, warnings
    >>> p = 1 - np.random.default_rng(0).beta(0.5, 2, size=(4, 500, 1)) ** 3
    >>> printed = np.array([float(f"{v:.6g}") for v in p.flat]).reshape(p.shape)
    >>> with warnings.catch_warnings(action="ignore"):
    ...     moved, restored = restore_rounded(printed, ["p"])
    >>> bool((printed == 1).any()), bool((moved < 1).all())
    (True, True)
    """
    restored = np.zeros(draws.shape[:2], dtype=bool)
    columns = draws.reshape(-1, len(names)).T
    precision = min(relative_precision(column) for column in columns[:50])
    if not precision:
        return draws, None
    rng = np.random.default_rng(20261117)
    result, said = draws, []
    for j, name in enumerate(names):
        values = draws[..., j]
        for bound, side in ((values.max(), 1.0), (values.min(), -1.0)):
            at_bound = values == bound
            distance = side * (bound - values[~at_bound])
            if not _is_bound(float(bound)) or not _is_approached(
                distance, at_bound, abs(float(bound)) * precision
            ):
                continue
            half = _half_unit(float(bound), side, precision)
            exponent = _exponent(distance, int(at_bound.sum()), half)
            gaps = half * rng.uniform(size=int(at_bound.sum())) ** (1 / exponent)
            result = result.copy() if result is draws else result
            # No closer than what double precision can tell from the bound.
            result[at_bound, j] = bound - side * np.maximum(gaps, 4e-16 * abs(bound))
            restored |= at_bound
            said.append(f"{name} onto {bound:.4g} ({int(at_bound.sum())} draws)")
    if said:
        notify(
            f"Draws were rounded onto a bound of their parameter: {', '.join(said)}. They were "
            "drawn anew from the part of the tail that the digits do not show. Sample with "
            "sig_figs=18 to keep it."
        )
    return result, restored if said else None


def _half_unit(bound: float, side: float, precision: float) -> float:
    """Return the distance below which numbers inside of a bound are printed as the bound."""
    decade = np.floor(np.log10(abs(bound)))
    # Just below a power of ten numbers have a digit more.
    if bound * side > 0 and np.isclose(abs(bound), 10.0**decade):
        decade -= 1
    return float(precision * 10.0**decade)


def _is_bound(value: float) -> bool:
    """Tell whether a number is one that people write: one with at most three digits."""
    return bool(value) and abs(float(f"{value:.3g}") - value) < SHORT * abs(value)


def _is_approached(distance: np.ndarray, at_bound: np.ndarray, unit: float) -> bool:
    """Tell whether several draws are at a place, and others come close to it."""
    return at_bound.sum() > 1 and len(distance) >= MIN_NEARBY and distance.min() < 1000 * unit


def _exponent(distance: np.ndarray, num_rounded: int, half: float) -> float:
    """Estimate the exponent of the power law of distances, those below `half` being censored."""
    total = len(distance) + num_rounded
    count = max(MIN_NEARBY, int(NEARBY * total) - num_rounded)
    nearby = np.sort(distance)[: min(count, len(distance))]
    widest = nearby[-1]
    logs = np.log(widest / np.maximum(nearby, half))
    return len(nearby) / float(logs.sum() + num_rounded * np.log(max(widest / half, 2.0)))
