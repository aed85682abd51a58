"""Analytic targets with known expectations, for tests and for trying things out.

Each target draws independent samples, knows its score, and offers integrands whose expectations are
known exactly (the logistic regression: from quadrature or a long run of importance sampling).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import scipy.special
import xarray as xr

from az_cv.scores.schema import scores_dataset

if TYPE_CHECKING:
    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n d"]


class Target(Protocol):
    """A distribution with a score and integrands of known expectation."""

    def sample(self, rng: np.random.Generator, n: int) -> Matrix:
        """Draw n independent samples."""
        ...

    def score(self, x: Matrix) -> Matrix:
        """Return the gradient of the log density at each row."""
        ...

    def integrands(self, x: Matrix) -> dict[str, Float[np.ndarray, " n"]]:
        """Return integrands evaluated at each row."""
        ...

    def expectations(self) -> dict[str, float]:
        """Return the expectation of each integrand."""
        ...


def as_datatree(
    target: Target, *, chains: int = 4, draws: int = 1000, random_seed: int = 0
) -> tuple[xr.DataTree, xr.Dataset]:
    """Sample a target into the form that :func:`az_cv.summary` takes.

    Returns
    -------
    data : DataTree
        The integrands as variables of the group ``posterior``.
    scores : Dataset

    Examples
    --------
    >>> data, scores = as_datatree(Gaussian(np.eye(2)), draws=100)
    >>> sorted(data["posterior"].data_vars)
    ['x0', 'x0^2', 'x1', 'x1^2']
    """
    rng = np.random.default_rng(random_seed)
    x = target.sample(rng, chains * draws)
    shape = (chains, draws)
    variables = {
        name: (("chain", "draw"), values.reshape(shape))
        for name, values in target.integrands(x).items()
    }
    coords = {"chain": np.arange(chains), "draw": np.arange(draws)}
    data = xr.DataTree.from_dict({"posterior": xr.Dataset(variables, coords=coords)})
    return data, scores_dataset(x.reshape(*shape, -1), target.score(x).reshape(*shape, -1))


def _coordinate_moments(x: Matrix) -> dict[str, np.ndarray]:
    first = {f"x{j}": x[:, j] for j in range(x.shape[1])}
    return first | {f"x{j}^2": x[:, j] ** 2 for j in range(x.shape[1])}


def _named_moments(first: np.ndarray, second: np.ndarray) -> dict[str, float]:
    named = {f"x{j}": float(value) for j, value in enumerate(first)}
    return named | {f"x{j}^2": float(value) for j, value in enumerate(second)}


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian with any covariance.

    Parameters
    ----------
    covariance : array of shape (d, d)
    mean : array of shape (d,), optional

    Examples
    --------
    >>> Gaussian(np.diag([1.0, 4.0])).expectations()["x1^2"]
    4.0
    """

    covariance: np.ndarray
    mean: np.ndarray | None = None

    @cached_property
    def _mean(self) -> np.ndarray:
        return np.zeros(len(self.covariance)) if self.mean is None else np.asarray(self.mean)

    def sample(self, rng: np.random.Generator, n: int) -> Matrix:
        """Draw n independent samples."""
        factor = np.linalg.cholesky(self.covariance)
        return self._mean + rng.normal(size=(n, len(factor))) @ factor.T

    def score(self, x: Matrix) -> Matrix:
        """Return the gradient of the log density at each row."""
        return -np.linalg.solve(self.covariance, (x - self._mean).T).T

    def integrands(self, x: Matrix) -> dict[str, np.ndarray]:
        """Return first and second moments of every coordinate."""
        return _coordinate_moments(x)

    def expectations(self) -> dict[str, float]:
        """Return the expectation of each integrand."""
        return _named_moments(self._mean, np.diag(self.covariance) + self._mean**2)


@dataclass(frozen=True)
class GaussianMixture:
    """Two standard Gaussians in d dimensions, at plus and minus `offset` along the first axis.

    Examples
    --------
    >>> GaussianMixture(d=2, offset=1.5).expectations()["x0^2"]
    3.25
    """

    d: int = 2
    offset: float = 1.0

    def sample(self, rng: np.random.Generator, n: int) -> Matrix:
        """Draw n independent samples."""
        x = rng.normal(size=(n, self.d))
        x[:, 0] += self.offset * rng.choice([-1.0, 1.0], size=n)
        return x

    def score(self, x: Matrix) -> Matrix:
        """Return the gradient of the log density at each row."""
        s = -x
        s[:, 0] += self.offset * np.tanh(self.offset * x[:, 0])
        return s

    def integrands(self, x: Matrix) -> dict[str, np.ndarray]:
        """Return first and second moments of every coordinate."""
        return _coordinate_moments(x)

    def expectations(self) -> dict[str, float]:
        """Return the expectation of each integrand."""
        second = np.ones(self.d)
        second[0] += self.offset**2
        return _named_moments(np.zeros(self.d), second)


@dataclass(frozen=True)
class Banana:
    """A Gaussian bent along a parabola: ``x1 = z1 + bend (z0^2 - 1)``.

    Examples
    --------
    >>> Banana(bend=1.0).expectations()["x1^2"]
    3.0
    """

    bend: float = 1.0

    def sample(self, rng: np.random.Generator, n: int) -> Matrix:
        """Draw n independent samples."""
        x = rng.normal(size=(n, 2))
        x[:, 1] += self.bend * (x[:, 0] ** 2 - 1)
        return x

    def score(self, x: Matrix) -> Matrix:
        """Return the gradient of the log density at each row."""
        straight = x[:, 1] - self.bend * (x[:, 0] ** 2 - 1)
        return np.column_stack([-x[:, 0] + 2 * self.bend * x[:, 0] * straight, -straight])

    def integrands(self, x: Matrix) -> dict[str, np.ndarray]:
        """Return first and second moments of every coordinate."""
        return _coordinate_moments(x)

    def expectations(self) -> dict[str, float]:
        """Return the expectation of each integrand."""
        return _named_moments(np.zeros(2), np.array([1.0, 1 + 2 * self.bend**2]))


@dataclass(frozen=True)
class Funnel:
    """Neal's funnel: ``x0 ~ N(0, scale^2)`` and ``x_j ~ N(0, exp(x0))``.

    Examples
    --------
    >>> round(Funnel(d=2, scale=1.0).expectations()["x1^2"], 4)
    1.6487
    """

    d: int = 3
    scale: float = 1.0

    def sample(self, rng: np.random.Generator, n: int) -> Matrix:
        """Draw n independent samples."""
        x = rng.normal(size=(n, self.d))
        x[:, 0] *= self.scale
        x[:, 1:] *= np.exp(x[:, :1] / 2)
        return x

    def score(self, x: Matrix) -> Matrix:
        """Return the gradient of the log density at each row."""
        precision = np.exp(-x[:, :1])
        first = -x[:, 0] / self.scale**2 + 0.5 * (
            (x[:, 1:] ** 2 * precision).sum(axis=1) - (self.d - 1)
        )
        return np.column_stack([first, -x[:, 1:] * precision])

    def integrands(self, x: Matrix) -> dict[str, np.ndarray]:
        """Return first and second moments of every coordinate."""
        return _coordinate_moments(x)

    def expectations(self) -> dict[str, float]:
        """Return the expectation of each integrand."""
        second = np.full(self.d, math.exp(self.scale**2 / 2))
        second[0] = self.scale**2
        return _named_moments(np.zeros(self.d), second)


@dataclass(frozen=True)
class StudentT:
    """A spherical Student-t; `freedom` above 4 gives second moments a finite variance.

    Examples
    --------
    >>> round(StudentT(d=1, freedom=5).expectations()["x0^2"], 4)
    1.6667
    """

    d: int = 2
    freedom: float = 5.0

    def sample(self, rng: np.random.Generator, n: int) -> Matrix:
        """Draw n independent samples."""
        mixing = rng.chisquare(self.freedom, size=(n, 1)) / self.freedom
        return rng.normal(size=(n, self.d)) / np.sqrt(mixing)

    def score(self, x: Matrix) -> Matrix:
        """Return the gradient of the log density at each row."""
        return -(self.freedom + self.d) * x / (self.freedom + (x**2).sum(axis=1, keepdims=True))

    def integrands(self, x: Matrix) -> dict[str, np.ndarray]:
        """Return first and second moments of every coordinate."""
        return _coordinate_moments(x)

    def expectations(self) -> dict[str, float]:
        """Return the expectation of each integrand."""
        second = np.full(self.d, self.freedom / (self.freedom - 2))
        return _named_moments(np.zeros(self.d), second)


@dataclass(frozen=True)
class Genz:
    """The six functions of Genz on [0, 1], carried to a standard normal by its cdf.

    Parameters
    ----------
    a, u : float
        Difficulty and location.

    Examples
    --------
    >>> round(Genz().expectations()["corner peak"], 4)
    0.5
    """

    a: float = 1.0
    u: float = 0.5

    def sample(self, rng: np.random.Generator, n: int) -> Matrix:
        """Draw n independent samples."""
        return rng.normal(size=(n, 1))

    def score(self, x: Matrix) -> Matrix:
        """Return the gradient of the log density at each row."""
        return -x

    def integrands(self, x: Matrix) -> dict[str, np.ndarray]:
        """Return the six functions."""
        y, a, u = scipy.special.ndtr(x[:, 0]), self.a, self.u
        return {
            "continuous": np.exp(-a * np.abs(y - u)),
            "corner peak": (1 + a * y) ** -2.0,
            "discontinuous": np.where(y <= u, np.exp(a * y), 0.0),
            "gaussian peak": np.exp(-((a * (y - u)) ** 2)),
            "oscillatory": np.cos(2 * np.pi * u + a * y),
            "product peak": 1 / (a**-2 + (y - u) ** 2),
        }

    def expectations(self) -> dict[str, float]:
        """Return the six integrals."""
        a, u = self.a, self.u
        return {
            "continuous": (2 - math.exp(a * (u - 1)) - math.exp(-a * u)) / a,
            "corner peak": 1 / (1 + a),
            "discontinuous": (math.exp(a * u) - 1) / a,
            "gaussian peak": math.sqrt(math.pi)
            / (2 * a)
            * (math.erf(a * (1 - u)) + math.erf(a * u)),
            "oscillatory": (math.sin(2 * math.pi * u + a) - math.sin(2 * math.pi * u)) / a,
            "product peak": a * (math.atan((1 - u) * a) + math.atan(u * a)),
        }


@dataclass(frozen=True)
class LogisticRegression:
    """Bayesian logistic regression on simulated data, sampled exactly by rejection.

    Expectations come from quadrature up to three dimensions, beyond that from importance sampling
    with 400,000 draws of a Student-t at the mode.

    Parameters
    ----------
    rows, d : int
        Size of the simulated data.
    prior_sd : float
    seed : int
        Of the data.
    """

    rows: int = 60
    d: int = 3
    prior_sd: float = 1.0
    seed: int = 0
    reference_draws: int = field(default=400_000, repr=False)

    @cached_property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """The design matrix and the outcomes."""
        rng = np.random.default_rng(self.seed)
        design = np.column_stack([np.ones(self.rows), rng.normal(size=(self.rows, self.d - 1))])
        probability = scipy.special.expit(design @ rng.normal(size=self.d))
        return design, (rng.uniform(size=self.rows) < probability).astype(float)

    def log_density(self, x: Matrix) -> Float[np.ndarray, " n"]:
        """Return the log posterior density up to a constant."""
        design, y = self.data
        logits = x @ design.T
        prior = -0.5 * (x**2).sum(axis=1) / self.prior_sd**2
        return logits @ y - np.logaddexp(0, logits).sum(axis=1) + prior

    def score(self, x: Matrix) -> Matrix:
        """Return the gradient of the log density at each row."""
        design, y = self.data
        return (y - scipy.special.expit(x @ design.T)) @ design - x / self.prior_sd**2

    @cached_property
    def _proposal(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Return mode, scale factor and log of the largest ratio of posterior to proposal seen."""
        design, _ = self.data
        mode = np.zeros(self.d)
        for _ in range(50):  # Newton
            p = scipy.special.expit(design @ mode)
            hessian = (design.T * (p * (1 - p))) @ design + np.eye(self.d) / self.prior_sd**2
            mode = mode + np.linalg.solve(hessian, self.score(mode[None])[0])
        factor = 1.1 * np.linalg.cholesky(np.linalg.inv(hessian))
        rng = np.random.default_rng(self.seed + 1)
        z = self._standard_proposal(rng, self.reference_draws)
        return mode, factor, float(self._log_ratio(mode, factor, z).max()) + 0.1

    def _standard_proposal(self, rng: np.random.Generator, n: int) -> Matrix:
        return StudentT(self.d, 8.0).sample(rng, n)

    def _log_ratio(self, mode: np.ndarray, factor: np.ndarray, z: Matrix) -> np.ndarray:
        log_proposal = -0.5 * (8.0 + self.d) * np.log1p((z**2).sum(axis=1) / 8.0)
        return self.log_density(mode + z @ factor.T) - log_proposal

    def sample(self, rng: np.random.Generator, n: int) -> Matrix:
        """Draw n independent samples."""
        mode, factor, bound = self._proposal
        accepted = np.empty((0, self.d))
        while len(accepted) < n:
            z = self._standard_proposal(rng, 2 * n)
            keep = np.log(rng.uniform(size=len(z))) < self._log_ratio(mode, factor, z) - bound
            accepted = np.vstack([accepted, mode + z[keep] @ factor.T])
        return accepted[:n]

    def integrands(self, x: Matrix) -> dict[str, np.ndarray]:
        """Return first and second moments of every coefficient."""
        return _coordinate_moments(x)

    def expectations(self) -> dict[str, float]:
        """Return the expectation of each integrand."""
        mode, factor, _ = self._proposal
        if self.d <= 3:
            # The trapezoid rule converges geometrically: the density vanishes at the ends.
            axes = np.meshgrid(*[np.linspace(-9, 9, 73)] * self.d, indexing="ij")
            x = mode + np.column_stack([axis.ravel() for axis in axes]) @ factor.T
            log_weights = self.log_density(x)
        else:
            z = self._standard_proposal(np.random.default_rng(self.seed + 2), self.reference_draws)
            x, log_weights = mode + z @ factor.T, self._log_ratio(mode, factor, z)
        weights = np.exp(log_weights - scipy.special.logsumexp(log_weights))
        return {name: float(weights @ f) for name, f in self.integrands(x).items()}
