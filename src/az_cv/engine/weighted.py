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
from az_cv.engine.tails import MAX_OUTPUTS, tail_exponents
from az_cv.engine.whitening import Whitening, fit_whitening
from az_cv.engine.witnesses import NONE, Witnesses
from az_cv.solvers import Member
from az_cv.solvers.time_limit import remaining
from az_cv.threads import considerate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from az_cv.engine.settings import Settings
    from az_cv.solvers.error_model import ErrorModel

    Chains = Float[np.ndarray, "chain draw q"]

# Settled in examples/approximate/calibration.py. Residuals of draws that come from elsewhere are
# read with weights whose largest are known from few draws: their errors are widened.
WIDENED = 1.2
DOUBT = 0.5  # the share of what weights change in the draws themselves that counts as an error
LARGEST = 8  # so many of the largest weights tell how much lies beyond the draws
HEAVIEST = 0.7  # a Pareto exponent; few draws cannot tell larger ones apart
# With fewer draws than this, few are outermost, and what leaving them out changes may vanish by
# chance. Then so much of an error comes from what such errors are on average.
FEW_DRAWS = 256
POOLED = 0.75
# Where errors of such draws differ from those of draws of the posterior, see `ErrorModel`. Weighted
# averages are seldom as precise as their scatter says: they contradict a fit that leaves less than
# a tenth of an output only where they are very far from it. An approximation may end where the
# posterior goes on: its outermost draws are no modes.
CLOSE = 0.1
MODE_TAIL = (1.0, 0.8)


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

    weighs_equally = False

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
        errors = replace(settings.errors, close=CLOSE, mode_tail=MODE_TAIL)
        super().__init__(x, s, replace(settings, errors=errors), guide=guide, asked=asked)

    def _whiten(self, x: Float[np.ndarray, "n d"]) -> Whitening:
        return weighted_whitening(x, self.weights.ravel())

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
        fitted_to = self._beside_typical(fitted_to, steps)
        members, history, whole = self._members(fitted_to, fitted_to, steps)
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
            self.settings.errors,
            hidden=hidden,
            witnesses=Witnesses(judged),
        )
        combined = replace(combined, plain_draws=plain, plain_tail=hidden)
        return replace(combined.rescaled(centre, scale), history=history)

    def _beside_typical(
        self, outputs: Float[np.ndarray, "n q"], steps: bool
    ) -> Float[np.ndarray, "n q+g"]:
        """Return outputs, with few draws beside typical functions that errors are pooled with.

        Steps are too unlike them, and what is trained would learn them, too.
        """
        if steps or any(self._trained) or len(outputs) >= FEW_DRAWS:
            return outputs
        return np.concatenate([outputs, self._typical], axis=1)

    def _weighted(
        self, member: Member, weights: Chains, levels: Chains, unknown: Float[np.ndarray, " q"]
    ) -> Member:
        """Return a member of the weighted average, with what differs between modes put back.

        The region beyond the draws has more of the posterior than of them where weights grow, and
        what the weights change in residuals that ought to have none of it is an error.
        """
        number = levels.shape[2]
        adjusted = member.adjusted[..., :number] + levels
        draws = influence_draws(adjusted, weights)
        mean = draws.mean(axis=(0, 1))
        is_pooled = member.adjusted.shape[2] > number
        tail = pooled_tail(member, self.settings.errors)[:number] if is_pooled else member.tail
        beyond = tail * np.sqrt(heaviness(weights))
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


def pooled_tail(member: Member, errors: ErrorModel) -> Float[np.ndarray, " q"]:
    """Return the errors from beyond the draws, most of each from what they are on average.

    What the outermost draws change may cancel by chance in one output, and hardly in all of them.
    The average is in units of the scatter, over outputs that are not fitted exactly.

    Examples
    --------
    >>> from az_cv.solvers.error_model import ERROR_MODEL
    >>> draws = np.random.default_rng(0).normal(size=(4, 100, 2)) * [1.0, 2.0]
    >>> lucky = Member("a kernel", np.zeros(2), draws, np.array([0.0, 0.2]))
    >>> pooled_tail(lucky, ERROR_MODEL).round(2)
    array([0.06, 0.16])
    """
    spread = member.adjusted.std(axis=(0, 1))
    known = (spread > errors.exact) & np.isfinite(member.tail)
    if not known.any():
        return member.tail
    average = ((member.tail[known] / spread[known]) ** 2).mean()
    return np.sqrt((1 - POOLED) * member.tail**2 + POOLED * average * spread**2)


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
