"""Targets whose answers are sums over a million points: a mixture, and a Gaussian process.

    python examples/calibration/by_importance.py

The points are a scrambled Sobol sequence, turned into draws of Student's t that has the mean and
the covariance of the target, and weighted by the ratio of both densities. The script writes the
averages of two scrambles to ``results/by_importance.json``, from where `targets.py` has them, and
prints by how much the two differ: by three thousandths of a standard deviation at most, below the
errors that are judged with them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.special
import scipy.stats

if TYPE_CHECKING:
    import jax

    LogDensity = Callable[[jax.Array], jax.Array]

FREEDOM = 5.0  # of Student's t
POINTS = 2**20
PILOT = 2**15
ROUNDS = 6  # in which Student's t is fitted to the target
AT_ONCE = 2**15
ANSWERS = Path(__file__).parent / "results" / "by_importance.json"


@dataclass(frozen=True)
class ByImportance:
    """A log density with its expectations, as sums over weighted points.

    Attributes
    ----------
    log_density : JAX function of one point of d coordinates
    start : array of shape (d,)
        Where the search for the mode begins.
    """

    log_density: LogDensity
    start: np.ndarray

    @cached_property
    def _compiled(self) -> tuple[Callable, Callable]:
        import jax

        return jax.jit(jax.vmap(self.log_density)), jax.jit(jax.vmap(jax.grad(self.log_density)))

    def _evaluate(self, which: int, x: np.ndarray) -> np.ndarray:
        import jax

        with jax.enable_x64(True):
            parts = [self._compiled[which](x[k : k + AT_ONCE]) for k in range(0, len(x), AT_ONCE)]
            return np.concatenate([np.asarray(part) for part in parts])

    def score(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient of the log density at each row."""
        return self._evaluate(1, x)

    @cached_property
    def _fitted(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the target, from a Gaussian at its mode and a few rounds."""
        found = scipy.optimize.minimize(
            lambda x: -self._evaluate(0, x[None])[0],
            self.start,
            jac=lambda x: -self.score(x[None])[0],
        )
        mean, covariance = found.x, found.hess_inv
        for k in range(ROUNDS):
            x, weight = self._weighted(mean, 1.5 * covariance, PILOT, seed=k)
            mean = weight @ x
            covariance = (weight[:, None] * (x - mean)).T @ (x - mean)
        return mean, covariance

    def _weighted(
        self, mean: np.ndarray, covariance: np.ndarray, points: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return draws of Student's t and their weights, which sum to one."""
        d = len(mean)
        uniform = scipy.stats.qmc.Sobol(d + 1, seed=seed).random(points)
        uniform = np.maximum(uniform, 2.0**-40)  # a scramble has a zero now and then
        normal = scipy.stats.norm.ppf(uniform[:, :d])
        chi2 = scipy.stats.chi2.ppf(uniform[:, d], FREEDOM) / FREEDOM
        standard = normal / np.sqrt(chi2)[:, None]
        x = mean + standard @ scipy.linalg.cholesky(covariance)
        squares = np.einsum("nd,nd->n", standard, standard)
        log_weight = self._evaluate(0, x) + (FREEDOM + d) / 2 * np.log1p(squares / FREEDOM)
        log_weight = np.where(np.isfinite(log_weight), log_weight, -np.inf)
        return x, np.exp(log_weight - scipy.special.logsumexp(log_weight))

    def points(self, points: int = POINTS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return points and weights that stand for the target."""
        return self._weighted(*self._fitted, points, seed)

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draw some of the points: starts of chains, not draws to be judged."""
        x, weight = self.points(PILOT, seed=99)
        return x[rng.choice(len(x), size=n, p=weight)]


def mixture(
    components: int, each: int = 30, reach: float = 1.5, seed: int | None = None
) -> tuple[ByImportance, Callable, list[str]]:
    """Return a mixture of normals with ordered means, its functions and their names.

    Each component has so many observations. Their centres lie between minus `reach` and `reach`,
    times their number less one.

    Unconstrained: the first mean, logarithms of the steps to the next ones and of the sds, and the
    logarithms of weights over that of the first.
    """
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(components if seed is None else seed)
    centres = np.linspace(-reach, reach, components) * (components - 1)
    y = np.concatenate([rng.normal(c, 0.7 + 0.3 * k, each) for k, c in enumerate(centres)])
    m = components

    def parts(x, np=jnp):
        mean = np.cumsum(np.concatenate([x[..., :1], np.exp(x[..., 1:m])], axis=-1), axis=-1)
        log_weight = np.concatenate([0 * x[..., :1], x[..., 2 * m :]], axis=-1)
        largest = log_weight.max(axis=-1, keepdims=True)
        total = largest + np.log(np.exp(log_weight - largest).sum(axis=-1, keepdims=True))
        return mean, x[..., m : 2 * m], log_weight - total

    def log_density(x):
        mean, log_sd, log_weight = parts(x)
        z = (y[:, None] - mean) / jnp.exp(log_sd)
        likelihood = jax.nn.logsumexp(log_weight - log_sd - 0.5 * z**2, axis=1).sum()
        # Normal(0, 3) for means, log-normal(0, 1/2) for sds, a Dirichlet(2, ..., 2) for weights.
        prior = -0.5 * (mean**2).sum() / 9 + x[1:m].sum()
        prior += -2 * (log_sd**2).sum() + 2 * log_weight.sum()
        return likelihood + prior

    def functions(x):
        mean, log_sd, log_weight = parts(x, np)
        return np.hstack([mean, np.exp(log_sd), np.exp(log_weight)])

    start = np.zeros(3 * m - 1)
    start[0], start[1:m] = centres[0], np.log(np.diff(centres))
    labels = [f"{what}[{k}]" for what in ("mean", "sd", "weight") for k in range(m)]
    return ByImportance(log_density, start), functions, labels


def process(observations: int = 25) -> tuple[ByImportance, Callable, list[str]]:
    """Return the three hyper-parameters of a Gaussian process with noise, on the log scale."""
    import jax.numpy as jnp
    import jax.scipy.linalg

    rng = np.random.default_rng(3)
    t = np.sort(rng.uniform(0, 10, observations))
    y = np.sin(t) + 0.3 * rng.normal(size=observations)
    distance = (t[:, None] - t) ** 2

    def log_density(x):
        length, amplitude, noise = jnp.exp(x)
        matrix = amplitude**2 * jnp.exp(-0.5 * distance / length**2)
        matrix += (noise**2 + 1e-8) * jnp.eye(observations)
        factor = jnp.linalg.cholesky(matrix)
        whitened = jax.scipy.linalg.solve_triangular(factor, y, lower=True)
        likelihood = -0.5 * (whitened**2).sum() - jnp.log(jnp.diag(factor)).sum()
        # Inverse gamma(5, 5) for the length, half-normal(0, 2) and (0, 1) for the sds.
        prior = -5 * x[0] - 5 / length - amplitude**2 / 8 + x[1] - noise**2 / 2 + x[2]
        return likelihood + prior

    return ByImportance(log_density, np.log([1.5, 1.0, 0.3])), np.exp, ["length", "sd", "noise"]


CLASSES: dict[str, Callable[[], tuple[ByImportance, Callable, list[str]]]] = {
    "mixture": lambda: mixture(2),
    "other-mixture": lambda: mixture(2, each=45, reach=1.3, seed=11),
    "process": process,
}


def moments(
    target: ByImportance, functions: Callable, points: int = POINTS, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and sd of each function."""
    x, weight = target.points(points, seed)
    values = functions(x)
    mean = weight @ values
    return mean, np.sqrt(weight @ (values - mean) ** 2)


def answers(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and sd of each function of a target, as the script found them."""
    stored = json.loads(ANSWERS.read_text())[name]
    return np.array(stored["mean"]), np.array(stored["sd"])


def main() -> None:
    print("| target | d | effective points | largest difference of means, of sds, in sds |")
    print("|---|---|---|---|")
    stored = {}
    for name, make in CLASSES.items():
        target, functions, _ = make()
        _, weight = target.points()
        one, other = (np.array(moments(target, functions, seed=k)) for k in (0, 1))
        apart = np.abs((one - other) / one[1]).max(axis=1)
        size = 1 / (weight**2).sum()
        print(f"| {name} | {len(target.start)} | {size:.0f} | {apart[0]:.1e}, {apart[1]:.1e} |")
        mean, sd = (one + other) / 2
        stored[name] = {"mean": mean.tolist(), "sd": sd.tolist()}
    ANSWERS.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
