"""The engine for draws with weights: those of importance sampling, of SMC, or found from scores.

A weighted average ``sum w_i a_i`` scatters as the plain average of ``n w_i (a_i - mean) + mean``
does, its influence draws. They take the place of draws, and everything that is known about averages
of draws, from effective sizes to the combination of families, holds for them too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from az_cv.engine.combination import Estimate, all_exact, combine
from az_cv.engine.engine import DEFAULT, Engine
from az_cv.engine.errors import plain_standard_error
from az_cv.engine.modes import Modes, find_modes
from az_cv.engine.tails import MAX_OUTPUTS, tail_exponents
from az_cv.engine.whitening import Whitening, fit_whitening
from az_cv.engine.witnesses import NONE, Witnesses
from az_cv.solvers import Member
from az_cv.solvers.linear.threads import considerate
from az_cv.solvers.time_limit import remaining

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from az_cv.engine.settings import Settings

    Chains = Float[np.ndarray, "chain draw q"]

# Settled in examples/approximate/calibration.py. Residuals of draws that come from elsewhere are
# read with weights whose largest are known from few draws: their errors are widened.
WIDENED = 1.2
DOUBT = 0.5  # the share of what weights change in the draws themselves that counts as an error
LARGEST = 8  # so many of the largest weights tell how much lies beyond the draws
# Of an output's sd. Weighted averages are seldom as precise as their scatter says: they contradict
# a fit that leaves so little only where they are very far from it.
CLOSE = 0.1
TAIL = (1.0, 0.8)  # see `ErrorModel.mode_tail`
HEAVIEST = 0.7  # a Pareto exponent; few draws cannot tell larger ones apart


class WeightedEngine(Engine):
    """An engine whose draws stand for the posterior with weights.

    Parameters
    ----------
    x, s : arrays of shape (chain, draw, d)
        Unconstrained draws, and scores of the posterior.
    weights : array of shape (chain, draw)
        Not negative; they need not sum to anything.
    settings, guide, asked
        As for :class:`az_cv.engine.engine.Engine`.
    """

    def __init__(
        self,
        x: Float[np.ndarray, "chain draw d"],
        s: Float[np.ndarray, "chain draw d"],
        weights: Float[np.ndarray, "chain draw"],
        settings: Settings = DEFAULT,
        *,
        guide: Float[np.ndarray, "chain draw g"] | None = None,
        asked: Float[np.ndarray, "chain draw k"] | None = None,
    ) -> None:
        self.weights = weights / weights.sum()
        super().__init__(x, s, settings, guide=guide, asked=asked)

    def _whiten(self, x: Float[np.ndarray, "n d"]) -> Whitening:
        return weighted_whitening(x, self.weights.ravel())

    def _find_modes(self) -> Modes | None:
        # An approximation may end where the posterior goes on: its outermost draws are no modes.
        errors = replace(self.settings.errors, mode_tail=TAIL)
        return find_modes(self._x, self._s, self.folds.visit, errors)

    def _witnesses(
        self, fitted_to: Float[np.ndarray, "n q"], members: Sequence[Member], whole: Member | None
    ) -> Witnesses:
        """Return worse fits, however many draws: weights are least known where few draws are."""
        if self._witness is None or all_exact(members, self.settings.errors) or remaining() <= 0:
            return NONE
        return Witnesses(self._witness.worse_fits(fitted_to))

    @considerate
    def estimate(self, outputs: Chains, *, steps: bool = False) -> Estimate:
        """Estimate the expectation of every output.

        Parameters
        ----------
        outputs : array of shape (chain, draw, q)
        steps : bool
            The outputs are indicators: spend little on them, and train nothing.
        """
        flat, weights = outputs.reshape(-1, outputs.shape[2]), self.weights.ravel()
        centre = weights @ flat
        scale = np.sqrt(weights @ (flat - centre) ** 2)
        scale = np.where(scale > 0, scale, 1.0)
        standard = (flat - centre) / scale
        fitted_to, levels = standard, np.zeros_like(standard)
        unknown = np.zeros(standard.shape[1])
        if self.modes is not None:
            levels, unknown = self.modes.levels(standard)
            fitted_to = standard - levels
        members, history, whole = self._members(standard, fitted_to, steps)
        kept = self._evaluated(self.weights.reshape(-1, 1))
        kept = kept / kept.sum()  # some draws may only train
        worse = () if steps else self._witnesses(fitted_to, members, whole).worse
        self._extremes.forget()
        shifted, judged = (
            [self._weighted(m, kept, self._evaluated(levels), unknown) for m in some]
            for some in (members, worse)
        )
        every = self._evaluated(standard)
        plain = influence_draws(every, kept)
        hidden = DOUBT * np.abs(plain.mean(axis=(0, 1)) - every.mean(axis=(0, 1)))
        hidden = np.hypot(hidden, unseen_tail(plain))
        combined = combine(
            plain,
            shifted,
            self._x.shape[1],
            replace(self.settings.errors, close=CLOSE),
            hidden=hidden,
            witnesses=Witnesses(judged),
        )
        combined = replace(combined, plain_draws=plain, plain_tail=hidden)
        return replace(combined.rescaled(centre, scale), history=history)

    def _weighted(
        self, member: Member, weights: Chains, levels: Chains, unknown: Float[np.ndarray, " q"]
    ) -> Member:
        """Return a member of the weighted average, with what differs between modes put back.

        The region beyond the draws has more of the posterior than of them where weights grow, and
        what the weights change in residuals that ought to have none of it is an error.
        """
        adjusted = member.adjusted + levels
        draws = influence_draws(adjusted, weights)
        mean = draws.mean(axis=(0, 1))
        beyond = member.tail * np.sqrt(heaviness(weights))
        changed = mean - adjusted.mean(axis=(0, 1))
        tail = np.sqrt(beyond**2 + unknown**2 + changed**2)
        return Member(member.label, mean, mean + WIDENED * (draws - mean), WIDENED * tail)


def influence_draws(draws: Chains, weights: Float[np.ndarray, "chain draw one"]) -> Chains:
    """Return draws whose plain average is the weighted one, and scatters as it does.

    Parameters
    ----------
    draws : array of shape (chain, draw, q)
    weights : array of shape (chain, draw, 1)
        They sum to one.

    Examples
    --------
    >>> influence_draws(np.array([[[0.0], [1.0]]]), np.array([[[0.25], [0.75]]])).ravel()
    array([0.375, 1.125])
    """
    mean = (weights * draws).sum(axis=(0, 1))
    return mean + weights.size * weights * (draws - mean)


def unseen_tail(draws: Chains) -> Float[np.ndarray, " q"]:
    """Return the error of averages that their scatter does not show where tails are heavy.

    The error of an average of ``n`` draws whose tail has a Pareto exponent ``k`` above a half falls
    as ``n**(k - 1)`` and not as ``n**-0.5``. Exponents above 0.7 count as 0.7.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> draws = np.stack([rng.normal(size=(4, 500)), rng.standard_t(1.5, size=(4, 500))], axis=2)
    >>> scatter = plain_standard_error(draws)
    >>> (unseen_tail(draws) / scatter).round(1)
    array([0. , 4.5])
    """
    blocks = (draws[..., k : k + MAX_OUTPUTS] for k in range(0, draws.shape[2], MAX_OUTPUTS))
    exponents = np.concatenate([tail_exponents(block) for block in blocks])
    exponents = np.clip(np.nan_to_num(exponents), 0.5, HEAVIEST)
    wider = draws[..., 0].size ** (exponents - 0.5)
    return plain_standard_error(draws) * np.sqrt(wider**2 - 1)


def heaviness(weights: np.ndarray) -> float:
    """Return the average of the largest weights, in units of the average weight; 1 at least.

    Examples
    --------
    >>> heaviness(np.ones(100)), round(heaviness(np.r_[np.ones(92), np.full(8, 10.0)]), 2)
    (1.0, 5.81)
    """
    flat = np.sort(weights, axis=None)
    return float(max(flat[-LARGEST:].mean() / flat.mean(), 1.0))


def weighted_whitening(x: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"]) -> Whitening:
    """Whiten by the weighted covariance of the draws.

    Few effective draws know little of it: their covariance is shrunk to that of all draws.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(500, 2))
    >>> weights = np.exp(x[:, 0] - 0.5) / np.exp(x[:, 0] - 0.5).sum()
    >>> bool(abs(weights @ weighted_whitening(x, weights).draws(x)).max() < 0.02)
    True
    """
    plain = fit_whitening(x)
    z = plain.draws(x)
    effective = 1 / (weights**2).sum()
    trust = effective / (effective + z.shape[1])
    mean = trust * (weights @ z)
    covariance = (z - mean).T @ (weights[:, None] * (z - mean))
    covariance = trust * covariance + (1 - trust) * np.eye(len(covariance))
    factor = scipy.linalg.cholesky(covariance, lower=True)
    inverse = scipy.linalg.solve_triangular(factor, plain.inverse, lower=True)
    return Whitening(plain.mean + plain.scale @ mean, plain.scale @ factor, inverse)
