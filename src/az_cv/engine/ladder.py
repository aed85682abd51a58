"""The evidence from draws at a ladder of temperatures, with control variates at each of them.

At temperature ``t`` the draws have the density ``prior x likelihood^t / Z(t)``, and the score
``prior score + t x likelihood score``. Then ``log Z(1) - log Z(0)`` is

* the integral over ``t`` of the expected log likelihood (thermodynamic integration);
* the sum over steps of ``log E_t[likelihood^step]`` (sequential Monte Carlo).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.optimize
import scipy.special

from az_cv.engine.delta_method import Derived, delta_method
from az_cv.engine.engine import Engine

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.engine.settings import Settings

    PerRung = Float[np.ndarray, " k"]


class Ladder(NamedTuple):
    """Draws at increasing temperatures."""

    temperatures: PerRung
    x: Float[np.ndarray, "k chain draw d"]
    prior: Float[np.ndarray, "k chain draw d"]  # score of the prior
    likelihood: Float[np.ndarray, "k chain draw d"]  # score of the likelihood
    log_likelihood: Float[np.ndarray, "k chain draw"]


@dataclass(frozen=True)
class LadderEstimate:
    """The logarithm of the evidence, from a ladder.

    Attributes
    ----------
    value, mcse, plain_value, plain_mcse : float
    quadrature : float
        How far the rule of integration may be off; 0 where there is none. It is in both errors.
    """

    value: float
    mcse: float
    plain_value: float
    plain_mcse: float
    quadrature: float


def thermodynamic_integral(ladder: Ladder, settings: Settings, order: int) -> LadderEstimate:
    """Integrate the expected log likelihood over temperatures.

    Parameters
    ----------
    ladder : Ladder
    settings : Settings
    order : {1, 2}
        The trapezoidal rule, or its correction by the variances of the log likelihood, which are
        the slopes of its expectation: Friel, Hurn and Wyse (2014), doi:10.1007/s11222-013-9397-1.
    """
    by_mean, by_variance = quadrature_weights(ladder.temperatures, order)
    derived, means, variances = [], [], []
    for k in range(len(ladder.temperatures)):
        logs = ladder.log_likelihood[k]
        centre = float(logs.mean())
        outputs = np.stack([logs, (logs - centre) ** 2], axis=2)
        engine = _engine(ladder, k, outputs, settings)
        estimate = engine.estimate(outputs)

        def value(m: np.ndarray, k: int = k, centre: float = centre) -> np.ndarray:
            variance = m[1] - (m[0] - centre) ** 2
            return np.array([by_mean[k] * m[0] + by_variance[k] * variance])

        def slopes(m: np.ndarray, k: int = k, centre: float = centre) -> np.ndarray:
            of_mean = by_mean[k] - 2 * by_variance[k] * (m[0] - centre)
            return np.array([[of_mean, by_variance[k]]])

        derived.append(delta_method(estimate, outputs[:, engine.folds.first_draw :], value, slopes))
        means.append(estimate.mean[0])
        variances.append(estimate.mean[1] - (estimate.mean[0] - centre) ** 2)
    error = quadrature_error(ladder.temperatures, np.array(means), np.array(variances), order)
    return _total(derived, error)


def sequential_estimate(ladder: Ladder, settings: Settings) -> LadderEstimate:
    """Add the logarithms of expected incremental weights, as sequential Monte Carlo does."""
    derived = []
    largest = 0.0
    for k, step in enumerate(np.diff(ladder.temperatures)):
        logs = step * ladder.log_likelihood[k]
        largest += float(logs.max())
        outputs = np.exp(logs - logs.max())[..., None]
        engine = _engine(ladder, k, outputs, settings)
        derived.append(
            delta_method(
                engine.estimate(outputs),
                outputs[:, engine.folds.first_draw :],
                np.log,
                lambda mean: np.diag(1 / mean),
            )
        )
    return _total(derived, 0.0, largest)


def _engine(ladder: Ladder, k: int, outputs: np.ndarray, settings: Settings) -> Engine:
    score = ladder.prior[k] + ladder.temperatures[k] * ladder.likelihood[k]
    return Engine(ladder.x[k], score, settings, guide=outputs)


def _total(derived: list[Derived], quadrature: float, offset: float = 0.0) -> LadderEstimate:
    """Add up what independent draws at each temperature contribute."""
    errors, plain = (
        np.sqrt(sum(float(error[0]) ** 2 for error in column) + quadrature**2)
        for column in ([one.mcse for one in derived], [one.plain_mcse for one in derived])
    )
    return LadderEstimate(
        value=offset + sum(float(one.value[0]) for one in derived),
        mcse=float(errors),
        plain_value=offset + sum(float(one.plain_value[0]) for one in derived),
        plain_mcse=float(plain),
        quadrature=quadrature,
    )


def quadrature_weights(temperatures: PerRung, order: int) -> tuple[PerRung, PerRung]:
    """Return the weights of means and variances of the log likelihood at each temperature.

    Examples
    --------
    >>> quadrature_weights(np.array([0.0, 0.5, 1.0]), order=1)[0]
    array([0.25, 0.5 , 0.25])
    """
    steps = np.diff(temperatures)
    by_mean, by_variance = np.zeros(len(temperatures)), np.zeros(len(temperatures))
    by_mean[:-1] += steps / 2
    by_mean[1:] += steps / 2
    if order == 2:
        by_variance[:-1] += steps**2 / 12
        by_variance[1:] -= steps**2 / 12
    return by_mean, by_variance


def quadrature_error(
    temperatures: PerRung, means: PerRung, variances: PerRung, order: int
) -> float:
    """Return how far the rule may be off, from the rule on every second temperature.

    Twice as long steps have an error 4 times as large for the trapezoidal rule, and 16 times with
    its correction; half of that is taken, since steps are not equal.
    """

    def integral(chosen: np.ndarray, which: int) -> float:
        by_mean, by_variance = quadrature_weights(temperatures[chosen], which)
        return float(by_mean @ means[chosen] + by_variance @ variances[chosen])

    every = np.arange(len(temperatures))
    if len(every) < 5:
        return abs(integral(every, 2) - integral(every, 1))
    second = np.unique(np.append(every[::2], every[-1]))
    return abs(integral(every, order) - integral(second, order)) / {1: 2, 2: 8}[order]


def next_temperature(log_likelihood: np.ndarray, temperature: float, efficiency: float) -> float:
    """Return the temperature at which the conditional effective sample size falls to a share.

    The size is that of draws at `temperature`, weighted by the likelihood to the power of the step:
    Zhou, Johansen and Aston (2016), doi:10.1080/10618600.2015.1060885.

    Examples
    --------
    >>> logs = np.random.default_rng(0).normal(size=1000)
    >>> 0.3 < next_temperature(logs, 0.0, 0.9) < 0.35
    True
    """
    logs = np.ravel(log_likelihood)

    def excess(step: float) -> float:
        weights = step * logs
        log_share = 2 * scipy.special.logsumexp(weights) - scipy.special.logsumexp(2 * weights)
        return float(np.exp(log_share)) / len(logs) - efficiency

    rest = 1.0 - temperature
    if excess(rest) >= 0:
        return 1.0
    return temperature + float(scipy.optimize.brentq(excess, 0.0, rest, xtol=1e-10))
