"""From fits to estimates: combination of members, and a guard against harm.

Every member offers an estimate and residuals on draws it did not see. Members are combined with
weights that sum to one, and the plain average is one of them. Where held-out draws show no gain,
the estimate falls back to the plain average and its error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.optimize

from az_cv.engine.errors import (
    plain_standard_error,
    rounding_error,
    scatter_of,
    standard_error,
)
from az_cv.engine.witnesses import NONE, Witnesses
from az_cv.solvers.base import Member

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Bool, Float, Int

    from az_cv.solvers.error_model import ErrorModel

    PerOutput = Float[np.ndarray, " q"]
    Chains = Float[np.ndarray, "chain draw q"]

PLAIN = "plain Monte Carlo"
BLOCK = 64  # outputs at a time, which bounds memory


@dataclass(frozen=True)
class Levels:
    """By how much outputs are higher in some modes than in another, which nothing is fitted to.

    Attributes
    ----------
    values : array of shape (chain, draw, q)
        At each draw.
    unknown : array of shape (q,)
        Error of the expectation from not knowing them.
    """

    values: Chains
    unknown: PerOutput


@dataclass(frozen=True)
class Estimate:
    """Expectations of q outputs with their standard errors.

    Attributes
    ----------
    mean, mcse : arrays of shape (q,)
    plain_mean, plain_mcse : arrays of shape (q,)
    adjusted : array of shape (chain, draw, q)
        Out-of-fold draws of ``f - g``; their mean is an estimate of the expectation.
    tail : array of shape (q,)
        Error from regions without draws: beyond the outermost, and in gaps.
    weights : dict of label to array of shape (q,)
        Share of each member.
    errors : ErrorModel
        The rules behind `mcse`.
    history : sequence of named tuples
        Records of training.
    plain_draws : array of shape (chain, draw, q), optional
        What `plain_mean` is the average of, where that is not the outputs themselves.
    plain_tail : array of shape (q,), optional
        Error of that average that its scatter does not show.
    """

    mean: PerOutput
    mcse: PerOutput
    plain_mean: PerOutput
    plain_mcse: PerOutput
    adjusted: Chains
    tail: PerOutput
    weights: dict[str, PerOutput]
    errors: ErrorModel
    history: Sequence[Any] = ()
    plain_draws: Chains | None = None
    plain_tail: PerOutput | None = None

    def rescaled(self, centre: PerOutput, scale: PerOutput) -> Estimate:
        """Return the estimate of ``centre + scale * output``."""
        return replace(
            self,
            mean=centre + scale * self.mean,
            mcse=scale * self.mcse,
            plain_mean=centre + scale * self.plain_mean,
            plain_mcse=scale * self.plain_mcse,
            adjusted=centre + scale * self.adjusted,
            tail=scale * self.tail,
            plain_draws=None if self.plain_draws is None else centre + scale * self.plain_draws,
            plain_tail=None if self.plain_tail is None else scale * self.plain_tail,
        )


def all_exact(members: Sequence[Member], errors: ErrorModel) -> bool:
    """Tell whether every output, scaled to unit variance, has a member exact to rounding."""
    if not members:
        return False
    residuals = [np.hypot(m.spread, m.tail) for m in members]
    return bool((np.min(residuals, axis=0) < errors.exact).all())


def are_precise(members: Sequence[Member], share: float) -> bool:
    """Tell whether half of the outputs, of unit variance, have a member with errors so small.

    The error is that of a mean over independent draws, in units of the output's own.
    """
    if not members:
        return False
    draws = members[0].adjusted[..., 0].size
    sizes = [np.hypot(m.spread, np.sqrt(draws) * m.tail) for m in members]
    return bool(np.median(np.min(sizes, axis=0)) < share)


def with_gap_error(member: Member, error: PerOutput, errors: ErrorModel) -> Member:
    """Return the member with the error from gaps between draws; what is exact has none."""
    is_exact = member.spread < errors.exact
    return replace(member, tail=np.hypot(member.tail, np.where(is_exact, 0.0, error)))


def combine(
    outputs: Chains,
    members: Sequence[Member],
    dimension: int,
    errors: ErrorModel,
    levels: Levels | None = None,
    hidden: PerOutput | None = None,
    witnesses: Witnesses = NONE,
) -> Estimate:
    """Combine members, plain Monte Carlo included, and estimate every expectation.

    Parameters
    ----------
    outputs : array of shape (chain, draw, q)
        The integrands at the draws that are evaluated.
    members : sequence of Member
        Fits to the outputs, or to what is left of them without their levels.
    dimension : int
        Number of parameters.
    errors : ErrorModel
    levels : Levels, optional
        What differs from mode to mode.
    hidden : array of shape (q,), optional
        Error of the plain average that its scatter does not show.
    witnesses : Witnesses
        Fits that are not combined, and tell whether errors are right.

    Returns
    -------
    Estimate
    """
    plain_mean = outputs.mean(axis=(0, 1))
    plain_tail = np.zeros(outputs.shape[2]) if hidden is None else hidden
    plain_mcse = plain_standard_error(outputs)
    if hidden is not None:
        plain_mcse = np.hypot(plain_mcse, hidden)
    # Levels come in last: weights could be made to cancel the few draws of a rare mode.
    fitted = outputs if levels is None else outputs - levels.values
    plain = Member(PLAIN, fitted.mean(axis=(0, 1)), fitted, plain_tail)
    everyone = [plain, *members]
    credible = np.stack(
        [_is_credible(member, plain.estimate, plain_mcse, dimension, errors) for member in everyone]
    )
    weights = _stacking_weights(everyone, credible, errors.hopeless)
    used = [(w, member) for w, member in zip(weights, everyone) if w.any()]
    adjusted = sum(w * member.adjusted for w, member in used)
    mean = sum(w * member.estimate for w, member in used)
    tail = sum(w * member.tail for w, member in used)
    scatter = scatter_of(adjusted, errors)
    mcse = scatter.with_tail(tail)
    doubt = _disagreement(members, credible[1:], mean, mcse, errors)
    doubt = np.hypot(doubt, witnesses.missing(mean, mcse, plain_mcse, errors))
    tail = np.hypot(tail, doubt)
    if levels is not None:
        mean, adjusted, tail = _with_levels(mean, adjusted, tail, levels, errors)
        scatter = scatter_of(adjusted, errors)
    mcse = scatter.with_tail(tail)
    mcse = np.maximum(mcse, rounding_error(outputs))

    # Do no harm: where nothing is gained the plain average is the answer, with its own error.
    harmful = ~(mcse < plain_mcse)
    mean, mcse = np.where(harmful, plain_mean, mean), np.where(harmful, plain_mcse, mcse)
    adjusted = np.where(harmful, outputs, adjusted)
    weights = np.where(harmful, np.eye(len(everyone))[:, :1], weights)
    shares: dict[str, PerOutput] = {}
    for member, w in zip(everyone, weights):
        shares[member.label] = shares.get(member.label, 0.0) + w
    return Estimate(
        mean=mean,
        mcse=mcse,
        plain_mean=plain_mean,
        plain_mcse=plain_mcse,
        adjusted=adjusted,
        tail=np.where(harmful, plain_tail, tail),
        weights=shares,
        errors=errors,
    )


def _with_levels(
    mean: PerOutput, adjusted: Chains, tail: PerOutput, levels: Levels, errors: ErrorModel
) -> tuple[PerOutput, Chains, PerOutput]:
    """Return mean, adjusted draws and tail error of a fit with the levels put back.

    Residuals of the few draws of a rare mode may happen to cancel its level. The sum of both errors
    is not less than they are apart.
    """
    whole = adjusted + levels.values
    tail = np.hypot(tail, levels.unknown)
    apart = standard_error(levels.values, 0 * tail, errors) ** 2
    apart += standard_error(adjusted, tail, errors) ** 2
    missing = np.maximum(apart - standard_error(whole, tail, errors) ** 2, 0)
    return mean + levels.values.mean(axis=(0, 1)), whole, np.sqrt(tail**2 + missing)


def _is_credible(
    member: Member,
    plain_mean: PerOutput,
    plain_mcse: PerOutput,
    dimension: int,
    errors: ErrorModel,
) -> Bool[np.ndarray, " q"]:
    """Tell for which outputs, of unit variance, an estimate is compatible with the plain average.

    One that is not has met a region without draws that matters, such as the gap between two modes:
    gradients say nothing about the shares of modes, and a fit can be good at every draw, left out
    or not, and wrong about the expectation. In one dimension even a close fit can.
    """
    spread = member.spread
    if dimension == 1:
        times, sds = errors.incredible_alone
        most = np.minimum(times * plain_mcse, sds)
    else:
        loose, close = errors.incredible
        most = np.where(spread < errors.close, close, loose) * plain_mcse
    return (np.abs(member.estimate - plain_mean) <= most) | (spread < errors.exact)


def _disagreement(
    members: Sequence[Member],
    credible: Bool[np.ndarray, "k q"],
    mean: PerOutput,
    mcse: PerOutput,
    errors: ErrorModel,
) -> PerOutput:
    """Return how far members of comparable error lie from the estimate, beyond what both explain.

    The fit that happens to see the smallest error is preferred among several, and errors of the
    region beyond the draws rest on a handful of draws. Fits that agree were not just lucky.
    """
    excess = np.zeros(len(mean))
    for member, believed in zip(members, credible):
        scatter = member.spread / member.adjusted[..., 0].size ** 0.5
        spread = np.hypot(scatter, member.tail)
        # Where a member is no farther away than this, its own error need not be known.
        distance = (member.estimate - mean) ** 2
        is_far = distance > (errors.unlikely * mcse) ** 2
        near = np.flatnonzero(believed & is_far & (spread < errors.comparable * mcse))
        if len(near):
            error = standard_error(member.adjusted.take(near, axis=2), member.tail[near], errors)
            explained = errors.unlikely**2 * (error**2 + mcse[near] ** 2)
            excess[near] = np.maximum(excess[near], distance[near] - explained)
    return np.sqrt(np.maximum(excess, 0))


def _stacking_weights(
    members: Sequence[Member], credible: Bool[np.ndarray, "k q"], hopeless: float
) -> Float[np.ndarray, "k q"]:
    """Return weights, none negative and summing to one, that minimise the residual variance."""
    size = members[0].adjusted[..., 0].size
    # In units of one draw's variance, the tail error of a mean over n draws counts n-fold.
    tails = size * np.stack([member.tail for member in members]) ** 2
    away = np.stack([member.adjusted.mean(axis=(0, 1)) - member.estimate for member in members])
    spread = np.sqrt(np.stack([member.spread for member in members]) ** 2 + away**2 + tails)
    spread = np.where(credible, spread, np.inf)
    least = spread.min(axis=0)
    weights = np.zeros(spread.shape)
    weights[spread.argmin(axis=0), np.arange(len(least))] = 1.0
    useful = spread < hopeless * least
    several = np.flatnonzero((least > 0) & (useful.sum(axis=0) > 1))
    some = np.flatnonzero(useful[:, several].any(axis=1))
    products = _mean_products([members[int(k)] for k in some], several)
    for output, own in zip(several, products):
        second_moments = (own + np.diag(tails[some, output])) / least[output] ** 2
        among = useful[some, output]
        weights[some[among], output] = _least_variance(second_moments[np.ix_(among, among)])
    return weights


def _mean_products(
    members: Sequence[Member], outputs: Int[np.ndarray, " m"]
) -> Float[np.ndarray, "m k k"]:
    """Return the averages over the draws of products of any two members' residuals."""
    products = np.empty((len(outputs), len(members), len(members)))
    if not members:
        return products
    size = members[0].adjusted[..., 0].size
    for start in range(0, members[0].adjusted.shape[2], BLOCK):
        # Slices of all outputs are read much faster than columns picked one by one.
        rows = np.flatnonzero((start <= outputs) & (outputs < start + BLOCK))
        block, picked = slice(start, start + BLOCK), outputs[rows] - start
        if not len(rows):
            continue
        residuals = [m.adjusted[..., block] - m.estimate[block] for m in members]
        for k, first in enumerate(residuals):
            for j, second in enumerate(residuals[: k + 1]):
                product = np.einsum("cdq,cdq->q", first, second)[picked] / size
                products[rows, k, j] = products[rows, j, k] = product
    return products


def _least_variance(second_moments: Float[np.ndarray, "k k"]) -> Float[np.ndarray, " k"]:
    """Return the weights, none negative and summing to one, of the sum of least variance."""
    size = len(second_moments)
    # Non-negative least squares with the sum constraint as a heavy row, then made exact.
    heavy = 1e3 * np.sqrt(np.trace(second_moments))
    factor = np.linalg.cholesky(second_moments + 1e-10 * np.eye(size))
    stacked = np.vstack([factor.T, np.full((1, size), heavy)])
    solution, _ = scipy.optimize.nnls(stacked, np.concatenate([np.zeros(size), [heavy]]))
    return np.asarray(solution / solution.sum())
