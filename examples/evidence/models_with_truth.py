"""Models with known evidence: from algebra, or from quadrature in two dimensions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import scipy.stats
from jax.scipy import stats


@dataclass(frozen=True)
class Target:
    """A joint log density with every constant, where to start a sampler, and the truth."""

    d: int
    log_density: Callable
    start: np.ndarray
    truth: float


def normal_normal() -> Target:
    """Ten observations of a normal mean with a normal prior."""
    y = np.random.default_rng(1).normal(0.7, 1.0, size=10)

    def log_density(x: jax.Array) -> jax.Array:
        return stats.norm.logpdf(x[0], 0, 2) + stats.norm.logpdf(y, x[0], 1).sum()

    covariance = np.eye(10) + 4.0
    truth = scipy.stats.multivariate_normal.logpdf(y, np.zeros(10), covariance)
    return Target(1, log_density, np.zeros(1), float(truth))


def linear_regression() -> Target:
    """Three coefficients and the variance of the noise, with the conjugate prior."""
    rng = np.random.default_rng(2)
    n, p, shape, scale = 25, 3, 3.0, 2.0
    design = np.column_stack([np.ones(n), rng.normal(size=(n, p - 1))])
    y = design @ np.array([1.0, -0.5, 0.25]) + 0.8 * rng.normal(size=n)

    def log_density(x: jax.Array) -> jax.Array:
        beta, log_variance = x[:p], x[p]
        sd = jnp.exp(0.5 * log_variance)
        inverse_gamma = (
            shape * np.log(scale)
            - scipy.special.gammaln(shape)
            - (shape + 1) * log_variance
            - scale * jnp.exp(-log_variance)
        )
        prior = stats.norm.logpdf(beta, 0, 2 * sd).sum() + inverse_gamma + log_variance
        return prior + stats.norm.logpdf(y, design @ beta, sd).sum()

    # Marginally y is Student's t, Bishop (2006), exercise 3.23.
    matrix = (scale / shape) * (np.eye(n) + 4 * design @ design.T)
    truth = scipy.stats.multivariate_t.logpdf(y, np.zeros(n), matrix, df=2 * shape)
    return Target(p + 1, log_density, np.zeros(p + 1), float(truth))


def beta_binomial() -> Target:
    """Three successes of twelve, the probability on the logit scale."""
    a, b, k, n = 1.5, 2.0, 3, 12

    def log_density(x: jax.Array) -> jax.Array:
        log_p, log_q = jax.nn.log_sigmoid(x[0]), jax.nn.log_sigmoid(-x[0])
        prior = (a - 1) * log_p + (b - 1) * log_q - scipy.special.betaln(a, b)
        likelihood = np.log(scipy.special.comb(n, k)) + k * log_p + (n - k) * log_q
        return prior + likelihood + log_p + log_q

    return Target(1, log_density, np.zeros(1), float(scipy.stats.betabinom.logpmf(k, n, a, b)))


def gamma_poisson() -> Target:
    """Five counts with a gamma prior, the rate on the log scale."""
    y = np.array([2, 0, 3, 1, 1])
    a, b = 2.0, 1.0

    def log_density(x: jax.Array) -> jax.Array:
        rate = jnp.exp(x[0])
        prior = a * np.log(b) - scipy.special.gammaln(a) + (a - 1) * x[0] - b * rate
        likelihood = (y * x[0] - rate - scipy.special.gammaln(y + 1)).sum()
        return prior + likelihood + x[0]

    total = y.sum()
    truth = (
        a * np.log(b)
        - scipy.special.gammaln(a)
        + scipy.special.gammaln(a + total)
        - (a + total) * np.log(b + len(y))
        - scipy.special.gammaln(y + 1).sum()
    )
    return Target(1, log_density, np.zeros(1), float(truth))


def multivariate_normal(d: int) -> Target:
    """One observation of a normal vector with a normal prior."""
    rng = np.random.default_rng(d)
    factor = np.eye(d) + rng.normal(size=(d, d)) / np.sqrt(d)
    covariance = factor @ factor.T
    y = rng.normal(size=d)
    precision = np.linalg.inv(covariance)
    constant = -0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]

    def log_density(x: jax.Array) -> jax.Array:
        residual = y - x
        likelihood = constant - 0.5 * residual @ precision @ residual
        return stats.norm.logpdf(x).sum() + likelihood

    truth = scipy.stats.multivariate_normal.logpdf(y, np.zeros(d), np.eye(d) + covariance)
    return Target(d, log_density, np.zeros(d), float(truth))


def logistic_regression() -> Target:
    """Two coefficients and 30 binary outcomes; the truth by the trapezoidal rule."""
    rng = np.random.default_rng(5)
    design = np.column_stack([np.ones(30), rng.normal(size=30)])
    outcome = rng.uniform(size=30) < scipy.special.expit(design @ np.array([0.5, 1.0]))
    signed = np.where(outcome, 1.0, -1.0)[:, None] * design

    def log_density(x: jax.Array) -> jax.Array:
        return stats.norm.logpdf(x, 0, 5).sum() + jax.nn.log_sigmoid(signed @ x).sum()

    grid = np.linspace(-12, 15, 2001)
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    logs = scipy.stats.norm.logpdf(points, 0, 5).sum(axis=1)
    for row in signed:
        logs -= np.logaddexp(0, -points @ row)
    # The density vanishes at the edges, where the rule is then exact to rounding.
    truth = scipy.special.logsumexp(logs) + 2 * np.log(grid[1] - grid[0])
    return Target(2, log_density, np.zeros(2), float(truth))


EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools() -> Target:
    """Eight schools, not centred, in ten dimensions; the truth by quadrature over two of them."""

    def log_density(x: jax.Array) -> jax.Array:
        mu, log_tau, z = x[0], x[1], x[2:]
        tau = jnp.exp(log_tau)
        half_cauchy = jnp.log(2) + stats.cauchy.logpdf(tau, 0, 5)
        prior = stats.norm.logpdf(mu, 0, 5) + half_cauchy + log_tau + stats.norm.logpdf(z).sum()
        return prior + stats.norm.logpdf(EFFECT, mu + tau * z, ERROR).sum()

    return Target(10, log_density, np.zeros(10), schools_truth())


def schools_truth() -> float:
    """Return the log evidence of eight schools, effects integrated out, by the trapezoidal rule."""
    mu, log_tau = np.meshgrid(np.linspace(-40, 40, 321), np.linspace(-25, 12, 741))
    variance = np.exp(2 * log_tau)
    logs = scipy.stats.norm.logpdf(mu, 0, 5) + scipy.stats.halfcauchy.logpdf(np.exp(log_tau), 0, 5)
    logs += log_tau
    for effect, error in zip(EFFECT, ERROR):
        logs += scipy.stats.norm.logpdf(effect, mu, np.sqrt(error**2 + variance))
    cell = (mu[0, 1] - mu[0, 0]) * (log_tau[1, 0] - log_tau[0, 0])
    return float(scipy.special.logsumexp(logs) + np.log(cell))


TARGETS: dict[str, Callable[[], Target]] = {
    "normal, normal prior": normal_normal,
    "multivariate normal, d = 2": lambda: multivariate_normal(2),
    "multivariate normal, d = 10": lambda: multivariate_normal(10),
    "multivariate normal, d = 50": lambda: multivariate_normal(50),
    "logistic regression": logistic_regression,
    "linear regression, conjugate": linear_regression,
    "eight schools": eight_schools,
    "beta-binomial": beta_binomial,
    "gamma-Poisson": gamma_poisson,
}

DIMENSIONS = {
    "normal, normal prior": 1,
    "multivariate normal, d = 2": 2,
    "multivariate normal, d = 10": 10,
    "multivariate normal, d = 50": 50,
    "logistic regression": 2,
    "linear regression, conjugate": 4,
    "eight schools": 10,
    "beta-binomial": 1,
    "gamma-Poisson": 1,
}
