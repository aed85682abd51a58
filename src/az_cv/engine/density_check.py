"""Is it the model that was sampled? Its log density, compared with the one the sampler stored.

Gradients of a slightly different model pass every statistical check, and give that model's answer
with many digits. Where the sampler kept its log densities nothing statistical is needed: at every
draw the difference must be the same constant, to the digits that were stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.special
import scipy.stats

if TYPE_CHECKING:
    from jaxtyping import Float

    Chains = Float[np.ndarray, "chain draw d"]
    Densities = Float[np.ndarray, "chain draw"]

MIN_COMPARED = 10
# Differences that do not matter: an expectation moves by less than this many posterior sds. Two
# programs for an ill-conditioned model, as a Gaussian process, do not agree more closely.
IMMATERIAL = 1e-5
# Two programs that add the same terms in another order differ by some units in the last place.
ROUNDING = 20.0
# Numbers that were rounded for print are off by half a unit of their last digit, and no more.
PRINTED = 2.0
SINGLE = float(np.finfo(np.float32).eps) / 2
# Share of draws that may differ: at the edge of a support, rounded draws lose all their digits.
EXCEPTIONS = 0.01
# How much more than its digits explain a difference may be if it follows nothing. Rounding of a
# probability near one moves its logit by much more than by its relative error.
UNEXPLAINED = 30.0
# z-score from which a difference follows a parameter; rounding errors follow none.
FOLLOWS = 7.0


@dataclass(frozen=True)
class DensityCheck:
    """What log densities of a model and of a sampler have to say of each other.

    Attributes
    ----------
    agree : bool
        The difference is constant, to the digits stored.
    spread : float
        Size of the difference that 99 of 100 draws do not exceed.
    allowed : float
        What the digits explain.
    problem : str
        What differs, by how much, and the likeliest cause; empty where they agree.
    """

    agree: bool
    spread: float
    allowed: float
    problem: str


def compare_densities(
    stored: Densities,
    computed: Densities,
    x: Chains,
    s: Chains,
    names: list[str],
    *,
    precision: float = 0.0,
    error: float = 0.0,
) -> DensityCheck | None:
    """Compare the log densities that a sampler stored with those of a model, at the same draws.

    Either may lack a constant. NumPyro stores the potential energy, under one name with either
    sign; the sign is taken under which the two agree better.

    Parameters
    ----------
    stored, computed : arrays of shape (chain, draw)
        NaN where there is none.
    x, s : arrays of shape (chain, draw, d)
        Unconstrained draws and scores.
    names : list of str
        Names of the d parameters.
    precision : float
        Relative precision to which the draws were stored, see :func:`relative_precision`.
    error : float
        Absolute error of `computed` beyond rounding.

    Returns
    -------
    DensityCheck or None
        None if there are too few draws to compare.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 100, 1))
    >>> stored = -0.5 * x[..., 0] ** 2
    >>> compare_densities(stored, stored + 3, x, -x, ["mu"]).agree
    True
    >>> print(compare_densities(stored, 0.98 * stored, x, -0.98 * x, ["mu"]).agree)
    False
    """
    usable = np.isfinite(stored) & np.isfinite(computed)
    if usable.sum() < MIN_COMPARED:
        return None
    theirs, ours = stored[usable], computed[usable]
    points, slopes = x[usable], s[usable]
    difference = min((ours - theirs, ours + theirs), key=_spread)
    difference = difference - np.median(difference)
    spread = _spread(difference)
    # A relative error of a draw moves it by that on a logarithmic scale, in proportion elsewhere.
    moved = precision * np.linalg.norm(slopes * np.maximum(1.0, np.abs(points)), axis=1)
    largest = float(np.abs(theirs).max())
    allowed = max(
        IMMATERIAL,
        ROUNDING * np.finfo(float).eps * largest
        + _rounding(relative_precision(theirs), largest)
        + _slack(precision) * float(np.quantile(moved, 1 - EXCEPTIONS))
        + error,
    )
    if spread <= allowed:
        return DensityCheck(True, spread, allowed, "")
    follows, z = _followed(difference, points, ours, names)
    is_noise = np.abs(z) < FOLLOWS and np.median(np.abs(difference)) < UNEXPLAINED * allowed
    if is_noise:
        return DensityCheck(True, spread, allowed, "")
    problem = (
        "The model passed is not the one that was sampled: the difference between its log density "
        "and the one the sampler stored must be the same at every draw, and varies by "
        f"{float(difference.std()):.2g} (sd), where the digits stored explain {allowed:.1g}. "
        + _cause(difference, theirs, ours, points, names, follows)
    )
    return DensityCheck(False, spread, allowed, problem)


def relative_precision(values: np.ndarray) -> float:
    """Return the relative precision to which numbers were stored, 0 for every digit.

    Examples
    --------
    >>> import numpy as np
    >>> round(relative_precision(np.array([0.123457, -22.3457, 1000.0])), 9)
    5e-06
    >>> relative_precision(np.sqrt(np.arange(2, 9.0)))
    0.0
    >>> round(relative_precision(np.sqrt(np.arange(2, 9, dtype=np.float32))), 9)
    6e-08
    """
    flat = np.ravel(values)
    if flat.dtype.kind != "f":
        return 0.0
    flat = flat[np.isfinite(flat) & (flat != 0)][:500]
    if not flat.size:
        return 0.0
    if flat.dtype.itemsize < 8 or (flat == flat.astype(np.float32)).all():
        return SINGLE
    for digits in range(4, 15):
        if all(value == float(f"{value:.{digits}g}") for value in flat.tolist()):
            return 5.0 * 10.0**-digits
    return 0.0


def _rounding(precision: float, largest: float) -> float:
    """Return what stored log densities are off by, given their relative precision."""
    if precision in (0.0, SINGLE) or not largest:
        return _slack(precision) * precision * largest
    # The last digit of a printed number has a decimal place of its own.
    return _slack(precision) * precision * 10.0 ** float(np.floor(np.log10(largest)))


def _slack(precision: float) -> float:
    return ROUNDING if precision in (0.0, SINGLE) else PRINTED


def _spread(difference: np.ndarray) -> float:
    """Return what the difference from its median hardly ever exceeds."""
    return float(np.quantile(np.abs(difference - np.median(difference)), 1 - EXCEPTIONS))


def _followed(
    difference: np.ndarray, points: np.ndarray, density: np.ndarray, names: list[str]
) -> tuple[str, float]:
    """Return what the difference follows most closely, and how significantly."""
    size = 3 * np.median(np.abs(difference)) or 1.0
    clipped = np.clip(difference, -size, size)
    clipped = clipped - clipped.mean()
    ranks = scipy.stats.rankdata(np.column_stack([points, density]), axis=0)
    normal = scipy.special.ndtri((ranks - 0.5) / len(ranks))
    features = np.column_stack([normal, normal**2 - 1])
    # Standard errors for noise of unequal size.
    error = np.sqrt((features**2).T @ clipped**2)
    z = features.T @ clipped / np.where(error > 0, error, 1.0)
    largest = int(np.argmax(np.abs(z)))
    labels = [*names, "the log density itself"]
    return labels[largest % len(labels)], float(z[largest])


def _cause(
    difference: np.ndarray,
    theirs: np.ndarray,
    ours: np.ndarray,
    points: np.ndarray,
    names: list[str],
    follows: str,
) -> str:
    """Name what is most probably wrong."""
    centred = theirs - theirs.mean()
    slope = float(centred @ (ours - ours.mean()) / (centred @ centred)) if centred.any() else 0.0
    correlation = slope * theirs.std() / ours.std() if ours.std() else 0.0
    if abs(correlation) < 6 / np.sqrt(len(ours)):
        return (
            "The two are uncorrelated: the stored log densities are those of other draws, or of "
            "these in another order."
        )
    if abs(correlation) > 1 - 1e-9:
        return (
            f"The one is {slope:.4g} times the other: the sampler used another temperature, or "
            "the model a power of the density."
        )
    shifts = _unit_shifts(difference, points)
    if shifts is not None:
        return (
            f"It is a sum of {', '.join(names[j] for j in shifts)}: the log Jacobian of a log "
            "transform is missing in one of the two, or counted twice."
        )
    return (
        f"The difference depends most on {follows}. Another prior, other data (one observation is "
        "enough), another scale of the likelihood, or another transform would explain it."
    )


def _unit_shifts(difference: np.ndarray, points: np.ndarray) -> list[int] | None:
    """Return the coordinates that the difference is the sum of, up to signs, if it is one."""
    if points.shape[1] > len(points) // 2:
        return None
    design = np.column_stack([np.ones(len(points)), points])
    coefficients, *_ = np.linalg.lstsq(design, difference)
    residual = difference - design @ coefficients
    whole = np.round(coefficients[1:])
    is_sum = residual.std() < 1e-3 * difference.std() and np.allclose(
        coefficients[1:], whole, atol=1e-2
    )
    return np.flatnonzero(whole).tolist() if is_sum and whole.any() else None
