"""Targets with known answers, each sampled independently and by NUTS.

Beside the analytic targets of `az_cv.testing`: eight schools, whose expectations are integrals over
one dimension once the school effects and their mean are integrated out by hand, and two targets
with answers from `by_importance.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import by_importance
import numpy as np
import scipy.special
import scipy.stats

from az_cv.testing import Banana, Gaussian, Genz, LogisticRegression, StudentT

if TYPE_CHECKING:
    import jax

    LogDensity = Callable[[jax.Array], jax.Array]


@dataclass(frozen=True)
class Problem:
    """A target, the functions whose mean and sd are asked for, and their true values.

    Attributes
    ----------
    sample : rng, n -> draws of shape (n, d)
    score : draws -> gradients
    log_density : JAX function of one draw, for NUTS
    functions : draws -> array of shape (n, q)
    labels : list of str
    mean, sd : arrays of shape (q,)
        The truth; NaN where it is not known in closed form.
    """

    sample: Callable[[np.random.Generator, int], np.ndarray]
    score: Callable[[np.ndarray], np.ndarray]
    log_density: LogDensity
    functions: Callable[[np.ndarray], np.ndarray]
    labels: list[str]
    mean: np.ndarray
    sd: np.ndarray


def _coordinates(target: Any, d: int, log_density: LogDensity) -> Problem:
    truth = target.expectations()
    mean = np.array([truth[f"x{j}"] for j in range(d)])
    second = np.array([truth[f"x{j}^2"] for j in range(d)])
    labels = [f"x{j}" for j in range(d)]
    return Problem(
        target.sample,
        target.score,
        log_density,
        lambda x: x,
        labels,
        mean,
        np.sqrt(second - mean**2),
    )


def gaussian(d: int) -> Problem:
    """Return a Gaussian with correlation 0.5 between any two coordinates."""
    covariance = 0.5 * np.eye(d) + 0.5
    precision = np.linalg.inv(covariance)

    def log_density(x: jax.Array) -> jax.Array:
        return -0.5 * x @ precision @ x

    return _coordinates(Gaussian(covariance), d, log_density)


def genz() -> Problem:
    """Return the six Genz functions of a standard normal."""
    target = Genz()
    nodes, weights = np.polynomial.legendre.leggauss(200)
    # Two panels: the kink and the jump lie at one half.
    y = np.concatenate([(nodes + 1) / 4, (nodes + 3) / 4])
    w = np.concatenate([weights, weights]) / 4
    f = np.column_stack(list(target.integrands(scipy.special.ndtri(y)[:, None]).values()))
    mean = np.array(list(target.expectations().values()))
    assert np.allclose(w @ f, mean, rtol=1e-12)
    return Problem(
        target.sample,
        target.score,
        lambda x: -0.5 * (x**2).sum(),
        lambda x: np.column_stack(list(target.integrands(x).values())),
        list(target.expectations()),
        mean,
        np.sqrt(w @ (f - mean) ** 2),
    )


def banana() -> Problem:
    """Return a Gaussian bent along a parabola."""

    def log_density(x: jax.Array) -> jax.Array:
        return -0.5 * (x[0] ** 2 + (x[1] - (x[0] ** 2 - 1)) ** 2)

    return _coordinates(Banana(), 2, log_density)


def location_scale(freedom: int = 7) -> Problem:
    """Return mean and log sd of a normal sample under flat priors: exponential tails.

    With `freedom` + 1 observations of sample variance one, sigma^2 is `freedom` over a chi-squared
    variable, and mu a Student t.
    """
    import jax.numpy as jnp

    size = freedom + 1

    def sample(rng: np.random.Generator, n: int) -> np.ndarray:
        variance = freedom / rng.chisquare(freedom, size=n)
        return np.column_stack(
            [rng.normal(size=n) * np.sqrt(variance / size), np.log(variance) / 2]
        )

    def score(x: np.ndarray) -> np.ndarray:
        mu, precision = x[:, 0], np.exp(-2 * x[:, 1])
        return np.column_stack(
            [-size * mu * precision, (freedom + size * mu**2) * precision - size]
        )

    def log_density(x: jax.Array) -> jax.Array:
        return -size * x[1] - 0.5 * (freedom + size * x[0] ** 2) * jnp.exp(-2 * x[1])

    half = freedom / 2
    sigma = np.sqrt(half) * np.exp(scipy.special.gammaln(half - 0.5) - scipy.special.gammaln(half))
    square = freedom / (freedom - 2)
    return Problem(
        sample,
        score,
        log_density,
        lambda x: np.column_stack([x, np.exp(x[:, 1])]),
        ["mu", "log sigma", "sigma"],
        np.array([0.0, 0.5 * (np.log(half) - scipy.special.digamma(half)), sigma]),
        np.array(
            [
                np.sqrt(square / size),
                0.5 * np.sqrt(scipy.special.polygamma(1, half)),
                np.sqrt(square - sigma**2),
            ]
        ),
    )


def student_t(d: int = 5, freedom: float = 5.0) -> Problem:
    """Return a spherical Student-t."""
    import jax.numpy as jnp

    def log_density(x: jax.Array) -> jax.Array:
        return -0.5 * (freedom + d) * jnp.log1p((x**2).sum() / freedom)

    return _coordinates(StudentT(d, freedom), d, log_density)


def logistic() -> Problem:
    """Return a logistic regression with three coefficients."""
    import jax.numpy as jnp

    target = LogisticRegression()
    design, y = target.data

    def log_density(x: jax.Array) -> jax.Array:
        logits = design @ x
        return y @ logits - jnp.logaddexp(0, logits).sum() - 0.5 * (x**2).sum()

    return _coordinates(target, 3, log_density)


def modes(d: int, share: float = 0.3, distance: float = 6.0) -> Problem:
    """Return two standard Gaussians, one with `share` of the mass and `distance` sds away."""
    import jax.numpy as jnp

    away = np.zeros(d)
    away[0] = distance

    def sample(rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.normal(size=(n, d)) + away * (rng.uniform(size=(n, 1)) < share)

    def score(x: np.ndarray) -> np.ndarray:
        log_odds = np.log(share / (1 - share)) + distance * x[:, :1] - distance**2 / 2
        return away * scipy.special.expit(log_odds) - x

    def log_density(x: jax.Array) -> jax.Array:
        parts = [
            jnp.log(1 - share) - (x**2).sum() / 2,
            jnp.log(share) - ((x - away) ** 2).sum() / 2,
        ]
        return jnp.logaddexp(*parts)

    sd = np.ones(d)
    sd[0] = np.sqrt(1 + share * (1 - share) * distance**2)
    labels = [f"x{j}" for j in range(d)]
    return Problem(sample, score, log_density, lambda x: x, labels, share * away, sd)


def heavy_tails(d: int = 2, freedom: float = 3.0) -> Problem:
    """Return functions of a spherical Student t that no polynomial is exact on."""
    target = student_t(d, freedom)
    functions = [np.cos, lambda u: np.log1p(u**2), lambda u: np.abs(u) ** 0.5]
    # With u = sqrt(freedom) tan(angle) the marginal density is a power of the cosine.
    angle = np.pi * ((np.arange(2_000_000) + 0.5) / 2_000_000 - 0.5)
    weight = np.cos(angle) ** (freedom - 1)
    values = np.stack([f(np.sqrt(freedom) * np.tan(angle)) for f in functions])
    mean, square = (values**power @ weight / weight.sum() for power in (1, 2))
    return Problem(
        target.sample,
        target.score,
        target.log_density,
        lambda x: np.column_stack([f(x[:, 0]) for f in functions]),
        ["cos x0", "log(1 + x0^2)", "sqrt|x0|"],
        mean,
        np.sqrt(square - mean**2),
    )


def funnel(d: int = 3, scale: float = 1.5) -> Problem:
    """Return Neal's funnel: v is normal, and each of the others has the variance exp(v)."""
    import jax.numpy as jnp

    def sample(rng: np.random.Generator, n: int) -> np.ndarray:
        v = scale * rng.normal(size=(n, 1))
        return np.hstack([v, np.exp(v / 2) * rng.normal(size=(n, d - 1))])

    def score(x: np.ndarray) -> np.ndarray:
        v, others = x[:, :1], x[:, 1:]
        precise = others * np.exp(-v)
        of_v = -v / scale**2 + 0.5 * (others * precise - 1).sum(axis=1, keepdims=True)
        return np.hstack([of_v, -precise])

    def log_density(x: jax.Array) -> jax.Array:
        return -0.5 * ((x[0] / scale) ** 2 + (x[1:] ** 2).sum() * jnp.exp(-x[0]) + (d - 1) * x[0])

    sd = np.array([scale, *[np.exp(scale**2 / 4)] * (d - 1)])
    labels = ["v", *(f"x{j}" for j in range(1, d))]
    return Problem(sample, score, log_density, lambda x: x, labels, np.zeros(d), sd)


def bent(d: int = 4, curvature: float = 0.5) -> Problem:
    """Return a Gaussian each of whose coordinates is bent along a parabola of the one before."""
    import jax.numpy as jnp

    def straight(x: np.ndarray) -> np.ndarray:
        z = x.copy()
        for j in range(1, d):
            z[:, j] -= curvature * (z[:, j - 1] ** 2 - 1)
        return z

    def sample(rng: np.random.Generator, n: int) -> np.ndarray:
        z = rng.normal(size=(n, d))
        z[:, 1:] += curvature * (z[:, :-1] ** 2 - 1)
        return z

    def score(x: np.ndarray) -> np.ndarray:
        z = straight(x)
        s = -z
        for j in range(d - 2, -1, -1):  # each z depends on all that come before
            s[:, j] -= 2 * curvature * z[:, j] * s[:, j + 1]
        return s

    def log_density(x: jax.Array) -> jax.Array:
        z = [x[0]]
        for j in range(1, d):
            z.append(x[j] - curvature * (z[-1] ** 2 - 1))
        return -0.5 * (jnp.stack(z) ** 2).sum()

    sd = np.array([1.0, *[np.sqrt(1 + 2 * curvature**2)] * (d - 1)])
    labels = [f"x{j}" for j in range(d)]
    return Problem(sample, score, log_density, lambda x: x, labels, np.zeros(d), sd)


@dataclass(frozen=True)
class EightSchools:
    """Non-centred eight schools: mu ~ N(0, 5), tau ~ half-Cauchy(5), theta = mu + tau z.

    Unconstrained parameters: mu, log tau, z_1, ..., z_8. Given tau everything is Gaussian, so that
    its marginal density is known and independent draws are easy.
    """

    y: tuple[float, ...] = (28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0)
    sigma: tuple[float, ...] = (15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0)

    @cached_property
    def _grid(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return a grid over log tau, its weights, and mean and sd of mu there."""
        y, variance = np.array(self.y), np.array(self.sigma) ** 2
        log_tau = np.linspace(-25, 12, 200_001)
        total = variance + np.exp(2 * log_tau)[:, None]
        precision = 1 / 25 + (1 / total).sum(axis=1)
        centre = (y / total).sum(axis=1) / precision
        log_weight = (
            -0.5 * np.log(total).sum(axis=1)
            - 0.5 * (y**2 / total).sum(axis=1)
            - 0.5 * np.log(precision)
            + 0.5 * precision * centre**2
            - np.log1p(np.exp(2 * log_tau) / 25)
            + log_tau
        )
        weight = np.exp(log_weight - scipy.special.logsumexp(log_weight))
        return log_tau, weight, centre, 1 / np.sqrt(precision)

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draw n independent samples."""
        log_tau, weight, centre, spread = self._grid
        cumulative = np.cumsum(weight)
        drawn = np.interp(rng.uniform(size=n) * cumulative[-1], cumulative, log_tau)
        mu = np.interp(drawn, log_tau, centre) + np.interp(drawn, log_tau, spread) * rng.normal(
            size=n
        )
        # theta = mu + tau z, written for z so that small tau loses no digits
        tau = np.exp(drawn)[:, None]
        variance = np.array(self.sigma) ** 2
        z_mean = tau * (np.array(self.y) - mu[:, None]) / (tau**2 + variance)
        z_sd = np.sqrt(variance / (tau**2 + variance))
        z = z_mean + z_sd * rng.normal(size=z_mean.shape)
        return np.column_stack([mu, drawn, z])

    def score(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient of the log density at each row."""
        mu, tau, z = x[:, :1], np.exp(x[:, 1:2]), x[:, 2:]
        misfit = (np.array(self.y) - mu - tau * z) / np.array(self.sigma) ** 2
        return np.column_stack(
            [
                misfit.sum(axis=1) - x[:, 0] / 25,
                tau[:, 0] * (misfit * z).sum(axis=1)
                - 2 * tau[:, 0] ** 2 / 25 / (1 + tau[:, 0] ** 2 / 25)
                + 1,
                tau * misfit - z,
            ]
        )

    def functions(self, x: np.ndarray) -> np.ndarray:
        """Return mu, tau and the eight theta."""
        tau = np.exp(x[:, 1:2])
        return np.column_stack([x[:, :1], tau, x[:, :1] + tau * x[:, 2:]])

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and sd of mu, tau and theta by quadrature over log tau."""
        log_tau, weight, centre, spread = self._grid
        tau = np.exp(log_tau)
        share = tau[:, None] ** 2 / (tau[:, None] ** 2 + np.array(self.sigma) ** 2)
        theta = centre[:, None] + share * (np.array(self.y) - centre[:, None])
        variance = share * np.array(self.sigma) ** 2 + (1 - share) ** 2 * spread[:, None] ** 2
        first = np.column_stack([centre, tau, theta])
        second = np.column_stack([centre**2 + spread**2, tau**2, theta**2 + variance])
        mean = weight @ first
        return mean, np.sqrt(weight @ second - mean**2)


def eight_schools() -> Problem:
    """Return eight schools with mu, tau and theta."""
    import jax.numpy as jnp

    target = EightSchools()
    y, sigma = np.array(target.y), np.array(target.sigma)
    mean, sd = target.moments()

    def log_density(x: jax.Array) -> jax.Array:
        mu, tau, z = x[0], jnp.exp(x[1]), x[2:]
        return (
            -0.5 * (((y - mu - tau * z) / sigma) ** 2).sum()
            - mu**2 / 50
            - 0.5 * (z**2).sum()
            - jnp.log1p(tau**2 / 25)
            + x[1]
        )

    labels = ["mu", "tau", *(f"theta[{j}]" for j in range(8))]
    return Problem(target.sample, target.score, log_density, target.functions, labels, mean, sd)


def by_sums(name: str) -> Problem:
    """Return a target whose answers are sums over weighted points; for NUTS alone."""
    target, functions, labels = by_importance.CLASSES[name]()
    mean, sd = by_importance.answers(name)
    return Problem(target.sample, target.score, target.log_density, functions, labels, mean, sd)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "gaussian-1": lambda: gaussian(1),
    "gaussian-5": lambda: gaussian(5),
    "gaussian-20": lambda: gaussian(20),
    "genz": genz,
    "banana": banana,
    "location-scale": location_scale,
    "student-t": student_t,
    "logistic": logistic,
    "eight-schools": eight_schools,
    "modes-1": lambda: modes(1),
    "modes-2": lambda: modes(2),
    "modes-5": lambda: modes(5),
    "rare-mode-2": lambda: modes(2, share=0.03),
    "heavy-tails": heavy_tails,
    "funnel": funnel,
    "bent": bent,
    "mixture": lambda: by_sums("mixture"),
    "other-mixture": lambda: by_sums("other-mixture"),
    "process": lambda: by_sums("process"),
}
