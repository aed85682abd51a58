"""The whole of bridge sampling: proposals chosen, halves swapped, averaged and judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from az_cv.engine.bridge import (
    Draws,
    Half,
    build_bridge,
    corrected_half,
    no_overlap,
    overlap_of,
    plain_half,
    rows_of,
    shape_of_tail,
)
from az_cv.engine.proposals import fit_gaussian, mixture_candidates, normal_candidates
from az_cv.notices import notify, silenced

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float

    from az_cv.engine.bridge import Bridge, Chains, LogDensity, LogRatios
    from az_cv.engine.proposals import Proposal
    from az_cv.engine.settings import Settings

# Draws of a normal proposal are turned so many times, half of them turns of the other half by -1.
# The average over the turned draws has the same expectation and varies less.
TURNS = 8
PILOT = 500  # draws of each proposal that is tried
# The overlap is the integral of p q / (a p + b q): one where both agree, zero where they do not
# meet. The squared error of plain bridge sampling is (1 / overlap - 1) / (a b n).
CLOSE, POOR, NONE = 0.8, 0.1, 0.01


@dataclass(frozen=True)
class BridgeEstimate:
    """The logarithm of an integral, by bridge sampling.

    Attributes
    ----------
    value, mcse : float
    plain_value, plain_mcse : float
        Result of plain bridge sampling with a Gaussian proposal, from the same halves.
    pareto_k : tuple of float
        Pareto k of the ratios on the side of the posterior, and on that of the proposal.
    overlap : float
        Between 0 and 1, the smaller one of both halves.
    proposals : tuple of str
        What was chosen for either half.
    halves : tuple of float
        The estimate with either half of the draws in the bridge.
    """

    value: float
    mcse: float
    plain_value: float
    plain_mcse: float
    pareto_k: tuple[float, float]
    overlap: float
    proposals: tuple[str, str]
    halves: tuple[float, float]


def bridge_sampling(
    x: Chains,
    s: Chains,
    log_density: LogDensity,
    settings: Settings,
    *,
    proposal: str | None = None,
) -> BridgeEstimate:
    """Estimate the logarithm of the integral of a density.

    One half of the draws chooses and fits a proposal, the other half meets its draws in the bridge;
    then they change places, and both estimates are averaged.

    Parameters
    ----------
    x, s : arrays of shape (chain, draw, d)
        Unconstrained draws and scores.
    log_density : callable
        Maps points of shape (n, d) to n log densities, every constant included.
    settings : Settings
    proposal : {"gaussian", "warped", "mixture"}, optional
        The kind of proposal; ``None`` tries all.

    Raises
    ------
    ValueError
        If the draws do not fit the density, or no proposal meets the posterior.
    """
    chains, draws, d = x.shape
    if chains * draws < 4 * (d + 1):
        raise ValueError(
            f"{chains} x {draws} draws are too few for {d} parameters: each half must fit a "
            f"proposal. At least {4 * (d + 1)} are needed."
        )
    whole = Draws(x, s, _posterior_densities(x, log_density))
    first, second = _halves(whole)
    seeds = np.random.SeedSequence(settings.random_seed if settings.random_seed is not None else 0)
    generators = [np.random.default_rng(seed) for seed in seeds.spawn(2)]
    corrected, plain, bridges, labels = [], [], [], []
    for (fitted, bridged), rng in zip(((first, second), (second, first)), generators):
        chosen = choose_proposal(fitted, log_density, rng, proposal)
        bridge = build_bridge(chosen, bridged, log_density, rng, turns=TURNS)
        corrected.append(corrected_half(bridge, settings))
        gaussian = fit_gaussian(rows_of(fitted.x))
        plain.append(plain_half(build_bridge(gaussian, bridged, log_density, rng)))
        bridges.append(bridge)
        labels.append(chosen.label)
    overlap = min(overlap_of(bridge) for bridge in bridges)
    value, mcse = _average(*corrected, shared=False)
    plain_value, plain_mcse = _average(*plain, shared=True)
    if not mcse < plain_mcse:
        value, mcse = plain_value, plain_mcse
    found = BridgeEstimate(
        value=value,
        mcse=mcse,
        plain_value=plain_value,
        plain_mcse=plain_mcse,
        pareto_k=_pareto_k(bridges),
        overlap=overlap,
        proposals=(labels[0], labels[1]),
        halves=(corrected[0].value, corrected[1].value),
    )
    return _judged(found, np.array([[h.from_posterior, h.from_proposal] for h in corrected]))


def _posterior_densities(x: Chains, log_density: LogDensity) -> LogRatios:
    values = log_density(rows_of(x))
    bad = ~np.isfinite(values)
    if bad.any():
        raise ValueError(
            f"The log density is not finite at {int(bad.sum())} of {len(values)} draws of the "
            "posterior. Pass the model, with the data, that the draws came from."
        )
    return values.reshape(x.shape[:2])


def _halves(whole: Draws) -> tuple[Draws, Draws]:
    """Split by chains, which are independent, or each chain in the middle."""
    chains, draws = whole.log_density.shape
    if chains % 2 == 0:
        return Draws(*(part[::2] for part in whole)), Draws(*(part[1::2] for part in whole))
    middle = draws // 2
    return (
        Draws(*(part[:, :middle] for part in whole)),
        Draws(*(part[:, draws - middle :] for part in whole)),
    )


def choose_proposal(
    draws: Draws, log_density: LogDensity, rng: np.random.Generator, kind: str | None = None
) -> Proposal:
    """Return the proposal that bridges best to draws it was not fitted to, fitted to all of them.

    Each candidate is fitted to one part of the draws and judged by the error of plain bridge
    sampling on the others. Mixtures take long to fit, and are tried where nothing else is close to
    the posterior: control variates have an easier task in the coordinates of one normal
    distribution.
    """
    middle = draws.x.shape[1] // 2
    early = Draws(*(part[:, :middle] for part in draws))
    late = Draws(*(part[:, middle:] for part in draws))
    kinds: list[Callable[[Draws], list[Proposal]]] = [
        lambda part: normal_candidates(rows_of(part.x), rows_of(part.s)),
        lambda part: mixture_candidates(rows_of(part.x)),
    ]
    costs: dict[str, float] = {}
    overlaps: dict[str, float] = {}
    final: dict[str, Proposal] = {}
    for fit in kinds if kind != "mixture" else kinds[1:]:
        if overlaps and max(overlaps.values()) > CLOSE:
            break
        with silenced():  # of few draws per parameter: the final fit says so
            tried = {p.label: p for p in fit(early)}
        fitted = {p.label: p for p in fit(draws)}
        for label in [label for label in fitted if label in tried]:
            if kind is None or label.lower().startswith(kind):
                bridge = build_bridge(tried[label], late, log_density, rng, most=PILOT)
                half = plain_half(bridge)
                costs[label] = half.from_posterior + half.from_proposal
                overlaps[label], final[label] = overlap_of(bridge), fitted[label]
        if kind in ("gaussian", "warped"):
            break
    if not final:
        raise ValueError(
            f"No proposal of the kind {kind!r} could be fitted to {draws.log_density.size} draws "
            f"in {draws.x.shape[2]} dimensions. Use proposal='auto'."
        )
    return final[min(costs, key=lambda label: costs[label])]


def _average(first: Half, second: Half, *, shared: bool) -> tuple[float, float]:
    """Return the mean of both halves and its error.

    Draws of the posterior appear in both halves, once to fit the proposal and once in the bridge.
    If the posterior is nearly Gaussian, the errors of plain averages are then `shared`: both are
    the product of what either half tells of the covariance, and averaging does not reduce them.
    Control variates take out what is linear in either, and what they leave is independent.
    """
    value = (first.value + second.value) / 2
    squares = (first.from_posterior + second.from_posterior) / 4
    if shared:
        squares = ((np.sqrt(first.from_posterior) + np.sqrt(second.from_posterior)) / 2) ** 2
    return value, float(np.sqrt(squares + (first.from_proposal + second.from_proposal) / 4))


def _judged(found: BridgeEstimate, squares: Float[np.ndarray, "2 2"]) -> BridgeEstimate:
    """Return the estimate with what the halves disagree about; warn or refuse by the overlap."""
    if found.overlap < NONE:
        raise ValueError(no_overlap(found.overlap))
    apart = abs(found.halves[0] - found.halves[1])
    explained = 4 * np.sqrt(squares.sum())
    if apart > explained:
        notify(
            f"Both halves of the draws disagree by {apart:.2g} in log evidence, more than their "
            f"errors explain. The chains may not have converged. Half of it is in the error."
        )
        found = replace(found, mcse=float(np.hypot(found.mcse, apart / 2)))
    if found.overlap < POOR:
        notify(
            f"The proposal and the posterior overlap by {found.overlap:.2f} (1 is best), and the "
            "error rests on few draws. More draws, or a parametrisation that brings the posterior "
            "closer to a Gaussian, would help."
        )
    return found


def _pareto_k(bridges: list[Bridge]) -> tuple[float, float]:
    """Return the larger Pareto k of both halves, on the side of the posterior and the other."""
    both = [
        [shape_of_tail(-bridge.posterior), shape_of_tail(bridge.proposal)] for bridge in bridges
    ]
    largest = np.max(both, axis=0)
    return float(largest[0]), float(largest[1])
