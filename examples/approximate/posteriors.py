"""Posteriors with known answers, and Gaussians at their modes.

Answers are algebra where there is any, and sums over a grid in up to four dimensions. Elsewhere
they come from half a million draws of a Student t with importance weights and polynomial control
variates of high order, whose own error is returned. Posteriors of many rows of data are nearly
Gaussian, and expensive: they have fewer draws, and no grid.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.optimize
import scipy.special

from az_cv.families import Polynomial

# Order of the polynomials behind reference answers, by dimension.
ORDERS = {1: 8, 2: 8, 3: 6, 4: 6, 5: 5, 6: 4, 7: 4, 8: 4}
FREEDOM = 8.0  # of the Student t
MANY_ROWS = 1000
SHAPE = 3.0  # of the negative binomial


def is_refusal(error):
    """Tell whether an error says that the draws cannot be trusted."""
    return any(words in str(error) for words in ("too far", "do not belong"))


class Target:
    """A log density with its gradient, at many points."""

    d: int

    def log_density(self, x):
        """Return log densities, up to a constant."""
        raise NotImplementedError

    def score(self, x):
        """Return gradients of the log density."""
        raise NotImplementedError

    @cached_property
    def laplace(self):
        """Mode, and the covariance of the Gaussian there."""
        found = scipy.optimize.minimize(
            lambda x: -self.log_density(x[None])[0],
            np.zeros(self.d),
            jac=lambda x: -self.score(x[None])[0],
            options={"gtol": 1e-8, "maxiter": 2000},
        )
        step = 1e-4 * np.eye(self.d)
        slopes = (self.score(found.x - step) - self.score(found.x + step)) / 2e-4
        return found.x, np.linalg.inv((slopes + slopes.T) / 2)

    @cached_property
    def answer(self):
        """Mean and sd of every coordinate, and the error of the answer in sds."""
        if getattr(self, "rows", 0) > MANY_ROWS:
            return reference(self, total=40_000, chunk=1_000, pilot=2_000)
        if getattr(self, "precise", False):  # thousands of draws need a better answer, of minutes
            return on_grid(self, step=0.75, reach=6.0)
        return on_grid(self) if self.d <= 4 else reference(self)


@dataclass(eq=False)
class Regression(Target):
    """A generalised linear model with a normal prior.

    Binary data by `kind`: logistic, probit, cloglog; counts: Poisson, negative binomial; times:
    exponential.
    """

    kind: str
    d: int
    rows: int
    seed: int
    prior_sd: float = 1.5
    precise: bool = False

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        size = 0.5 if self.kind == "Poisson" else 1.0
        noise = rng.normal(size=(self.rows, self.d - 1))
        self.design = np.column_stack([np.ones(self.rows), size * noise])
        means = self.design @ rng.normal(scale=0.6, size=self.d)
        if self.kind == "logistic":
            self.y = (rng.uniform(size=self.rows) < scipy.special.expit(means)).astype(float)
        elif self.kind == "probit":
            self.y = np.where(rng.normal(size=self.rows) < means, 1.0, -1.0)
        elif self.kind == "cloglog":
            chance = -np.expm1(-np.exp(means))
            self.y = (rng.uniform(size=self.rows) < chance).astype(float)
        elif self.kind == "Poisson":
            self.y = rng.poisson(np.exp(means)).astype(float)
        elif self.kind == "negative binomial":
            rate = np.exp(means) * rng.gamma(SHAPE, 1 / SHAPE, size=self.rows)
            self.y = rng.poisson(rate).astype(float)
        else:
            self.y = rng.exponential(np.exp(means))

    def log_density(self, x):
        """Return log densities, up to a constant."""
        eta = x @ self.design.T
        if self.kind == "logistic":
            likelihood = eta * self.y - np.logaddexp(0, eta)
        elif self.kind == "probit":
            likelihood = scipy.special.log_ndtr(self.y * eta)
        elif self.kind == "cloglog":
            rate = np.exp(eta)
            likelihood = np.where(self.y == 1, np.log(-np.expm1(-rate)), -rate)
        elif self.kind == "Poisson":
            likelihood = eta * self.y - np.exp(eta)
        elif self.kind == "negative binomial":
            likelihood = eta * self.y - (self.y + SHAPE) * np.log(SHAPE + np.exp(eta))
        else:
            likelihood = -eta - self.y * np.exp(-eta)
        return likelihood.sum(axis=1) - 0.5 * (x**2).sum(axis=1) / self.prior_sd**2

    def score(self, x):
        """Return gradients of the log density."""
        eta = x @ self.design.T
        if self.kind == "logistic":
            slope = self.y - scipy.special.expit(eta)
        elif self.kind == "probit":
            at = self.y * eta
            log_normal = -0.5 * at**2 - 0.5 * np.log(2 * np.pi)
            slope = self.y * np.exp(log_normal - scipy.special.log_ndtr(at))
        elif self.kind == "cloglog":
            rate = np.exp(eta)
            slope = np.where(self.y == 1, rate / np.expm1(rate), -rate)
        elif self.kind == "Poisson":
            slope = self.y - np.exp(eta)
        elif self.kind == "negative binomial":
            slope = self.y - (self.y + SHAPE) / (1 + SHAPE * np.exp(-eta))
        else:
            slope = self.y * np.exp(-eta) - 1
        return slope @ self.design - x / self.prior_sd**2


@dataclass(eq=False)
class NoiseRegression(Target):
    """Linear regression of the mean and of the logarithm of the sd of the noise."""

    d: int
    rows: int
    seed: int

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        noise = rng.normal(size=(self.rows, self.d // 2 - 1))
        self.design = np.column_stack([np.ones(self.rows), noise])
        mean, log_sd = (self.design @ rng.normal(scale=0.6, size=self.d // 2) for _ in range(2))
        self.y = mean + np.exp(log_sd) * rng.normal(size=self.rows)

    def _standardised(self, x):
        mean, log_sd = (part @ self.design.T for part in np.split(x, 2, axis=1))
        return (self.y - mean) / np.exp(log_sd), log_sd

    def log_density(self, x):
        """Return log densities, up to a constant."""
        e, log_sd = self._standardised(x)
        return -(0.5 * e**2 + log_sd).sum(axis=1) - (x**2).sum(axis=1) / 8

    def score(self, x):
        """Return gradients of the log density."""
        e, log_sd = self._standardised(x)
        slopes = [part @ self.design for part in (e / np.exp(log_sd), e**2 - 1)]
        return np.concatenate(slopes, axis=1) - x / 4


@dataclass(eq=False)
class SurvivalRegression(Target):
    """Weibull times with an unknown shape, of which a third is known only to be longer."""

    d: int
    rows: int
    seed: int

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        noise = rng.normal(size=(self.rows, self.d - 2))
        self.design = np.column_stack([np.ones(self.rows), noise])
        scale = np.exp(self.design @ rng.normal(scale=0.6, size=self.d - 1))
        self.log_time = np.log(scale * rng.weibull(1.4, size=self.rows))
        self.ended = (rng.uniform(size=self.rows) < 2 / 3).astype(float)

    def _parts(self, x):
        log_shape = x[:, -1:]
        scaled = np.exp(log_shape) * (self.log_time - x[:, :-1] @ self.design.T)
        return log_shape, scaled, np.exp(scaled)

    def log_density(self, x):
        """Return log densities, up to a constant."""
        log_shape, scaled, hazard = self._parts(x)
        likelihood = self.ended * (log_shape + scaled) - hazard
        return likelihood.sum(axis=1) - (x**2).sum(axis=1) / 8

    def score(self, x):
        """Return gradients of the log density."""
        log_shape, scaled, hazard = self._parts(x)
        left = self.ended - hazard
        of_shape = (self.ended + scaled * left).sum(axis=1)
        slopes = -(np.exp(log_shape) * left) @ self.design
        return np.column_stack([slopes, of_shape]) - x / 4


@dataclass(eq=False)
class ClassRegression(Target):
    """Regression of one of three classes; the first has coefficients of zero."""

    d: int
    rows: int
    seed: int

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        noise = rng.normal(size=(self.rows, self.d // 2 - 1))
        self.design = np.column_stack([np.ones(self.rows), noise])
        chosen = self._log_odds(rng.normal(scale=0.8, size=(1, self.d)))[0]
        y = (chosen + rng.gumbel(size=chosen.shape)).argmax(axis=0)
        self.y = (y == np.arange(3)[:, None]).astype(float)

    def _log_odds(self, x):
        eta = x.reshape(-1, 2, self.d // 2) @ self.design.T
        return np.concatenate([np.zeros_like(eta[:, :1]), eta], axis=1)

    def log_density(self, x):
        """Return log densities, up to a constant."""
        eta = self._log_odds(x)
        likelihood = (self.y * eta).sum(axis=1) - scipy.special.logsumexp(eta, axis=1)
        return likelihood.sum(axis=1) - (x**2).sum(axis=1) / 8

    def score(self, x):
        """Return gradients of the log density."""
        left = self.y - scipy.special.softmax(self._log_odds(x), axis=1)
        return (left[:, 1:] @ self.design).reshape(x.shape) - x / 4


@dataclass(eq=False)
class RobustRegression(Target):
    """Linear regression with Student-t noise, whose scale is unknown."""

    d: int
    rows: int
    seed: int
    freedom: float = 4.0

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        noise = rng.normal(size=(self.rows, self.d - 2))
        self.design = np.column_stack([np.ones(self.rows), noise])
        means = self.design @ rng.normal(size=self.d - 1)
        self.y = means + 0.7 * rng.standard_t(self.freedom, size=self.rows)

    def log_density(self, x):
        """Return log densities, up to a constant."""
        b, log_scale = x[:, :-1], x[:, -1]
        e = (self.y - b @ self.design.T) / np.exp(log_scale)[:, None]
        likelihood = -(self.freedom + 1) / 2 * np.log1p(e**2 / self.freedom).sum(axis=1)
        prior = -0.5 * (b**2).sum(axis=1) / 25 - np.exp(2 * log_scale) / 8 + log_scale
        return likelihood - self.rows * log_scale + prior

    def score(self, x):
        """Return gradients of the log density."""
        b, log_scale = x[:, :-1], x[:, -1]
        scale = np.exp(log_scale)[:, None]
        e = (self.y - b @ self.design.T) / scale
        pull = (self.freedom + 1) * e / (self.freedom + e**2)
        last = (pull * e).sum(axis=1) - self.rows - np.exp(2 * log_scale) / 4 + 1
        return np.column_stack([(pull / scale) @ self.design - b / 25, last])


@dataclass(eq=False)
class Hierarchy(Target):
    """Means of groups around a common one, not centred; of the data each group has one average."""

    groups: int
    rows: int
    seed: int

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        self.d = self.groups + 2
        self.variance = 1 / self.rows
        means = 1 + 0.8 * rng.normal(size=self.groups)
        self.y = means + rng.normal(size=self.groups) * np.sqrt(self.variance)

    def _parts(self, x):
        mu, tau, z = x[:, 0], np.exp(x[:, 1]), x[:, 2:]
        return mu, tau, z, self.y - mu[:, None] - tau[:, None] * z

    def log_density(self, x):
        """Return log densities, up to a constant."""
        mu, tau, z, e = self._parts(x)
        likelihood = -0.5 * (e**2).sum(axis=1) / self.variance
        return likelihood - 0.5 * (z**2).sum(axis=1) - mu**2 / 18 - 0.5 * tau**2 + x[:, 1]

    def score(self, x):
        """Return gradients of the log density."""
        mu, tau, z, e = self._parts(x)
        e = e / self.variance
        of_tau = tau * (e * z).sum(axis=1) - tau**2 + 1
        return np.column_stack([e.sum(axis=1) - mu / 9, of_tau, tau[:, None] * e - z])

    @cached_property
    def answer(self):
        """Mean and sd of every coordinate: given tau all others are Gaussian."""
        prior = np.diag(np.r_[1 / 9, np.ones(self.groups)])
        logs, means, variances = [], [], []
        for log_tau in np.linspace(-9, 2.5, 2301):
            design = np.column_stack([np.ones(self.groups), np.exp(log_tau) * np.eye(self.groups)])
            precision = design.T @ design / self.variance + prior
            slope = design.T @ self.y / self.variance
            mean = np.linalg.solve(precision, slope)
            odds = slope @ mean - np.linalg.slogdet(precision)[1] - np.exp(2 * log_tau)
            logs.append(0.5 * odds + log_tau)
            means.append(np.insert(mean, 1, log_tau))
            variances.append(np.insert(np.diag(np.linalg.inv(precision)), 1, 0.0))
        weights, means = scipy.special.softmax(logs), np.array(means)
        mean = weights @ means
        return mean, np.sqrt(weights @ (np.array(variances) + (means - mean) ** 2)), 0.0


@dataclass(eq=False)
class StudentT(Target):
    """Student's t in every direction."""

    d: int
    freedom: float

    def log_density(self, x):
        """Return log densities, up to a constant."""
        return -(self.freedom + self.d) / 2 * np.log1p((x**2).sum(axis=1) / self.freedom)

    def score(self, x):
        """Return gradients of the log density."""
        return -(self.freedom + self.d) * x / (self.freedom + (x**2).sum(axis=1))[:, None]

    @cached_property
    def answer(self):
        """Mean and sd of every coordinate, exactly."""
        sd = np.sqrt(self.freedom / (self.freedom - 2))
        return np.zeros(self.d), np.full(self.d, sd), 0.0


@dataclass(eq=False)
class LogGamma(Target):
    """Logarithms of independent gamma variables: skewed, with one long tail each."""

    d: int
    shape: float

    def log_density(self, x):
        """Return log densities, up to a constant."""
        return (self.shape * x - np.exp(x)).sum(axis=1)

    def score(self, x):
        """Return gradients of the log density."""
        return self.shape - np.exp(x)

    @cached_property
    def answer(self):
        """Mean and sd of every coordinate, exactly."""
        sd = np.sqrt(scipy.special.polygamma(1, self.shape))
        return np.full(self.d, scipy.special.digamma(self.shape)), np.full(self.d, sd), 0.0


@dataclass(eq=False)
class Banana(Target):
    """A Gaussian bent along its first coordinate."""

    d: int
    bend: float

    def log_density(self, x):
        """Return log densities, up to a constant."""
        across = x[:, 1] + self.bend * (x[:, 0] ** 2 - 1)
        return -0.5 * (x[:, 0] ** 2 + across**2 + (x[:, 2:] ** 2).sum(axis=1))

    def score(self, x):
        """Return gradients of the log density."""
        across = x[:, 1] + self.bend * (x[:, 0] ** 2 - 1)
        first = -x[:, 0] - 2 * self.bend * x[:, 0] * across
        return np.column_stack([first, -across, -x[:, 2:]])

    @cached_property
    def answer(self):
        """Mean and sd of every coordinate, exactly."""
        sd = np.ones(self.d)
        sd[1] = np.sqrt(1 + 2 * self.bend**2)
        return np.zeros(self.d), sd, 0.0


def on_grid(target, step=0.5, reach=10.0):
    """Return mean, sd, and by how much they change on a coarser grid, in sds.

    Sums over grids converge exponentially for smooth densities. Axes are those of the Gaussian at
    the mode.
    """
    mode, covariance = target.laplace
    factor = np.linalg.cholesky(covariance)

    def moments(step):
        axis = np.arange(-reach, reach + step / 2, step)
        total = 0.0
        # One slice at a time: four dimensions have millions of points.
        for first in axis:
            rest = np.meshgrid(*[axis] * (target.d - 1), indexing="ij")
            noise = np.column_stack([np.full(rest[0].size, first), *(r.ravel() for r in rest)])
            x = mode + noise @ factor.T
            weights = np.exp(target.log_density(x) - target.log_density(mode[None]))
            total = total + weights @ np.column_stack([np.ones(len(x)), x - mode, (x - mode) ** 2])
        first, second = np.split(total[1:] / total[0], 2)
        return mode + first, np.sqrt(second - first**2)

    (mean, sd), (coarse, coarse_sd) = moments(step), moments(1.4 * step)
    return (
        mean,
        sd,
        float(max(np.abs(mean - coarse).max(), np.abs(sd - coarse_sd).max()) / sd.min()),
    )


def reference(target, total=500_000, chunk=20_000, pilot=100_000):
    """Return mean, sd, and the larger of their errors in sds.

    `total` draws, `chunk` at a time, after three rounds of `pilot` draws that say where.
    """
    rng = np.random.default_rng(99)
    d = target.d
    family = Polynomial(order=ORDERS.get(d, 3 if d <= 12 else 2), degree_scale=1.0)

    def draw(n, mean, factor):
        noise, radius = rng.normal(size=(n, d)), rng.chisquare(FREEDOM, size=n) / FREEDOM
        x = mean + (noise / np.sqrt(radius)[:, None]) @ factor.T
        log_proposal = np.log1p((noise**2).sum(axis=1) / radius / FREEDOM) * -(FREEDOM + d) / 2
        return x, target.log_density(x) - log_proposal

    mean, covariance = target.laplace
    for _ in range(3):
        x, log_weights = draw(pilot, mean, np.linalg.cholesky(covariance))
        largest = log_weights.max()
        weights = np.exp(log_weights - largest)
        weights /= weights.sum()
        mean = weights @ x
        covariance = (x - mean).T @ (weights[:, None] * (x - mean))
    factor, sd = np.linalg.cholesky(covariance), np.sqrt(np.diag(covariance))
    matrix, right, last = 0.0, 0.0, None
    for _ in range(total // chunk):
        x, log_weights = draw(chunk, mean, factor)
        weights = np.exp(log_weights - largest)
        z = np.linalg.solve(factor, (x - mean).T).T
        features = np.column_stack([np.ones(chunk), family.features(z, target.score(x) @ factor)])
        functions = np.column_stack([(x - mean) / sd, ((x - mean) / sd) ** 2])
        matrix = matrix + features.T @ (weights[:, None] * features)
        right = right + features.T @ (weights[:, None] * functions)
        last = features, functions, weights
    coefficients = np.linalg.lstsq(matrix, right, rcond=1e-14)[0]
    features, functions, weights = last
    residual = functions - features @ coefficients
    error = np.sqrt(((weights[:, None] * residual) ** 2).sum(axis=0)) / weights.sum()
    first, second = np.split(coefficients[0], 2)
    error = error.max() / np.sqrt(total // chunk)
    return mean + sd * first, sd * np.sqrt(second - first**2), float(error)


# Constants were settled on the first, and judged once on the second.
SETTLED = {
    "logistic, d = 3": (Regression("logistic", 3, 60, 1), 400),
    "logistic, d = 8": (Regression("logistic", 8, 120, 2), 400),
    "Poisson, d = 4": (Regression("Poisson", 4, 40, 3), 248),
    "robust, d = 5": (RobustRegression(5, 40, 4), 400),
    "banana, d = 2": (Banana(2, 0.3), 400),
    "Student t, d = 3": (StudentT(3, 6.0), 400),
    "hierarchical, d = 6": (Hierarchy(4, 1, 14), 400),
    "exponential, d = 3": (Regression("exponential", 3, 40, 11), 200),
    "exponential, d = 6": (Regression("exponential", 6, 60, 12), 400),
    "log gamma, d = 2": (LogGamma(2, 5.0), 200),
    "log gamma, d = 5": (LogGamma(5, 8.0), 400),
    "probit, d = 4": (Regression("probit", 4, 60, 17), 200),
    "probit, d = 10": (Regression("probit", 10, 200, 18), 400),
    "hierarchical, d = 7": (Hierarchy(5, 40, 19), 400),
    "hierarchical, d = 9": (Hierarchy(7, 2, 20), 400),
    "hierarchical, d = 12": (Hierarchy(10, 4, 13), 600),
    "logistic, d = 15": (Regression("logistic", 15, 300, 15), 600),
    "logistic, d = 30": (Regression("logistic", 30, 900, 21), 1000),
    "probit, d = 6": (Regression("probit", 6, 100, 22, precise=True), 4000),
}
HELD_OUT = {
    "cloglog, d = 3": (Regression("cloglog", 3, 50, 31), 200),
    "cloglog, d = 7": (Regression("cloglog", 7, 120, 32), 400),
    "negative binomial, d = 4": (Regression("negative binomial", 4, 40, 33), 200),
    "negative binomial, d = 9": (Regression("negative binomial", 9, 120, 34), 400),
    "mean and noise, d = 4": (NoiseRegression(4, 30, 51), 200),
    "mean and noise, d = 8": (NoiseRegression(8, 100, 52), 400),
    "survival, d = 4": (SurvivalRegression(4, 30, 61), 200),
    "survival, d = 8": (SurvivalRegression(8, 100, 62), 400),
    "three classes, d = 4": (ClassRegression(4, 60, 63), 200),
    "three classes, d = 8": (ClassRegression(8, 150, 64), 400),
}
