"""Bridge sampling with control variates on both sides.

With the density ``p`` of the posterior up to its integral Z, and a proposal ``q``, for any function
``h`` that is positive where both are,

    Z = E_q[h p] / E_posterior[h q].

Both expectations are estimated with control variates: on the left from draws of the proposal and
its own score, on the right from draws of the posterior and theirs. ``h = 1 / (a p / Z + b q)`` is
the choice of Meng and Wong (1996) that is best without control variates. The identity holds for any
``Z`` in it, so that a rough one, from plain averages, does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats
from arviz_stats.base import array_stats

from az_cv.engine.effective_size import effective_size
from az_cv.engine.engine import Engine
from az_cv.engine.errors import plain_standard_error
from az_cv.engine.proposals import (
    Normal,
    Proposal,
)
from az_cv.notices import notify

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float

    from az_cv.engine.settings import Settings

    Chains = Float[np.ndarray, "chain draw d"]
    LogRatios = Float[np.ndarray, "chain draw"]
    LogDensity = Callable[[Float[np.ndarray, "n d"]], Float[np.ndarray, " n"]]

UNDEFINED = 0.01  # share of the proposal's draws at which the log density may be no number


class Bridge(NamedTuple):
    """One bridge: log ratios of density to proposal on both sides, and the coordinates of both."""

    posterior: LogRatios
    proposal: Float[np.ndarray, "turn chain draw"]
    rounding: float  # of the log ratios
    posterior_draws: Chains
    posterior_scores: Chains
    proposal_draws: Chains
    proposal_scores: Chains


class Half(NamedTuple):
    """An estimate with the squared errors that either side contributes, in logarithms."""

    value: float
    from_posterior: float
    from_proposal: float


class Draws(NamedTuple):
    """Draws of the posterior with scores and log densities."""

    x: Chains
    s: Chains
    log_density: LogRatios


def build_bridge(
    proposal: Proposal,
    draws: Draws,
    log_density: LogDensity,
    rng: np.random.Generator,
    *,
    turns: int = 1,
    most: int | None = None,
) -> Bridge:
    """Return log ratios at the draws of the posterior and at as many of the proposal."""
    chains, length, d = draws.x.shape
    if most is not None:
        step = max(1, chains * length // most)
        draws = Draws(*(part[:, ::step] for part in draws))
        length = draws.x.shape[1]
    shape = (chains, length)
    z, score, log_determinant = proposal.coordinates(rows_of(draws.x), rows_of(draws.s))
    posterior = draws.log_density.ravel() + log_determinant - proposal.base.log_density(z)
    y = proposal.base.draw(chains * length, rng)
    turned = np.concatenate([y, *(y @ turn for turn in _turns(proposal, turns, rng))])
    points, log_determinant = proposal.parameters(turned)
    densities = proposal_densities(points, log_density)
    own = proposal.base.log_density(turned)
    size = np.abs(draws.log_density).max() + np.abs(own).max() + np.abs(log_determinant).max()
    return Bridge(
        posterior.reshape(shape),
        (densities + log_determinant - own).reshape(-1, *shape),
        8 * np.finfo(float).eps * size,
        z.reshape(*shape, d),
        score.reshape(*shape, d),
        y.reshape(*shape, d),
        proposal.base.score(y).reshape(*shape, d),
    )


def _turns(proposal: Proposal, number: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return rotations that leave a standard normal distribution as it is, the identity left out.

    Where a function is the sum of an odd and an even one, opposite points cancel the odd part.
    """
    if not isinstance(proposal.base, Normal) or number == 1:
        return []
    d = proposal.base.d
    rotations = [np.eye(d)]
    while d > 1 and 2 * len(rotations) < number:
        rotations.append(np.asarray(scipy.stats.ortho_group.rvs(d, random_state=rng)))
    return [*rotations[1:], *(-rotation for rotation in rotations)]


def proposal_densities(points: Float[np.ndarray, "n d"], log_density: LogDensity) -> np.ndarray:
    """Return log densities at draws of the proposal; far out there may be none."""
    finite = np.isfinite(points).all(axis=1)
    values = np.full(len(points), -np.inf)
    if finite.any():
        values[finite] = log_density(points[finite])
    undefined = np.isnan(values) | np.isposinf(values)
    if undefined.mean() > UNDEFINED:
        raise ValueError(
            f"The log density is no number at {int(undefined.sum())} of {len(values)} points near "
            "the posterior. Check the model: it must have a density wherever its parameters are."
        )
    if undefined.any():
        notify(
            f"The log density is no number at {int(undefined.sum())} of {len(values)} draws of the "
            "proposal, which count as impossible."
        )
    return np.where(undefined, -np.inf, values)


def _weights(bridge: Bridge) -> tuple[float, float]:
    """Return the shares of posterior and proposal in the bridge, by effective draws."""
    n = bridge.posterior.size
    ess = float(np.clip(effective_size(bridge.posterior[..., None])[0], 1, n))
    return ess / (ess + n), n / (ess + n)


def _outputs(bridge: Bridge) -> tuple[float, LogRatios, LogRatios]:
    """Return a rough ``log Z``, and the logarithms of the functions in both expectations."""
    a, b = np.log(_weights(bridge))

    def sides(log_z: float) -> tuple[LogRatios, LogRatios]:
        of_posterior = -np.logaddexp(a + bridge.posterior - log_z, b)
        of_proposal = -np.logaddexp(a, b + log_z - bridge.proposal)
        return of_posterior, log_mean(of_proposal, axis=0)

    def imbalance(log_z: float) -> float:
        of_posterior, of_proposal = sides(log_z)
        return float(log_mean(of_proposal) - log_mean(of_posterior))

    finite = bridge.proposal[np.isfinite(bridge.proposal)]
    if not len(finite):
        raise ValueError(no_overlap(0.0))
    # The imbalance falls from above zero to below as log Z grows.
    ends = np.concatenate([bridge.posterior.ravel(), finite])
    low, high = ends.min() - 1.0, ends.max() + 1.0
    log_z = float(scipy.optimize.brentq(imbalance, low, high, xtol=1e-10))
    return log_z, *sides(log_z)


def log_mean(logs: np.ndarray, axis: int | None = None) -> Any:
    """Return the logarithm of the mean of exponentials."""
    count = logs.size if axis is None else logs.shape[axis]
    return scipy.special.logsumexp(logs, axis=axis) - np.log(count)


def _scaled(logs: LogRatios) -> tuple[float, LogRatios]:
    """Return the largest logarithm, and exponentials relative to it."""
    largest = float(logs.max())
    return largest, np.exp(logs - largest)


def overlap_of(bridge: Bridge) -> float:
    """Return the integral of ``p q / (a p + b q)``, at most one."""
    return float(min(np.exp(log_mean(_outputs(bridge)[1])), 1.0))


def plain_half(bridge: Bridge) -> Half:
    """Estimate by plain averages on both sides, errors by the delta method."""
    log_z, *sides = _outputs(bridge)
    errors = []
    for logs in sides:
        output = _scaled(logs)[1]
        relative = plain_standard_error(output[..., None])[0] / output.mean()
        errors.append(float(relative**2) + bridge.rounding**2)
    return Half(log_z, *errors)


def corrected_half(bridge: Bridge, settings: Settings) -> Half:
    """Estimate with control variates on both sides, errors by the delta method."""
    log_z, of_posterior, of_proposal = _outputs(bridge)
    sides = (
        (bridge.posterior_draws, bridge.posterior_scores, of_posterior),
        (bridge.proposal_draws, bridge.proposal_scores, of_proposal),
    )
    values, errors = [], []
    for z, score, logs in sides:
        largest, output = _scaled(logs)
        mean, mcse = _expectation(z, score, output, settings, bridge.rounding)
        values.append(largest + np.log(mean))
        errors.append((mcse / mean) ** 2 + bridge.rounding**2)
    return Half(float(log_z + values[1] - values[0]), *errors)


def _expectation(
    z: Chains, score: Chains, output: LogRatios, settings: Settings, rounding: float
) -> tuple[float, float]:
    """Return the mean of one output and its error; what varies by rounding alone is a constant."""
    outputs = output[..., None]
    if np.ptp(output) <= rounding:
        return float(output.mean()), 0.0
    engine = Engine(z, score, replace(settings, check=False), guide=outputs)
    found = engine.estimate(outputs)
    mean, mcse = float(found.mean[0]), float(found.mcse[0])
    if not mean > 0:  # a function that is positive everywhere
        return float(found.plain_mean[0]), float(found.plain_mcse[0])
    return mean, mcse


def shape_of_tail(log_ratios: LogRatios) -> float:
    """Return ArviZ's Pareto k of ratios, minus infinity where they are constant."""
    finite = np.isfinite(log_ratios)
    values = np.where(finite, log_ratios, log_ratios[finite].min()).ravel()
    if np.ptp(values) < 1e-8:
        return -np.inf
    with np.errstate(all="ignore"):  # tails of equal ratios
        return float(array_stats.psislw(values)[1])


def no_overlap(overlap: float) -> str:
    """Say that no proposal meets the posterior, and why."""
    return (
        f"No proposal meets the posterior (overlap {overlap:.1g}, 1 is best): chains in different "
        "places, too few draws for the number of parameters, or a posterior far from any Gaussian. "
        "Look at r_hat, sample longer, or reparametrise."
    )


def rows_of(values: Chains) -> Float[np.ndarray, "n d"]:
    """Return draws of all chains one below the other."""
    return values.reshape(-1, values.shape[-1])
