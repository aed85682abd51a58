"""How often a second mode is found where there is one.

    python examples/calibration/one_mode.py [--seeds 10] [--held-out]

Independent draws of densities with one mode: heavy, light and lopsided tails, bends, funnels, a
ring, narrow centres in wide surroundings. Constants of the rule for modes were chosen on the first
set; the second set settled nothing.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Callable

import numpy as np
import scipy.special
import scipy.stats

from az_cv.engine.modes import find_modes
from az_cv.engine.whitening import fit_whitening
from az_cv.solvers.error_model import ERROR_MODEL

Sampler = Callable[[np.random.Generator, int, int], tuple[np.ndarray, np.ndarray]]


def by_coordinate(draw: Callable, slope: Callable) -> Sampler:
    """Return a density whose coordinates are independent and equal."""

    def sample(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
        x = draw(rng, (n, d))
        return x, slope(x)

    return sample


def student(freedom: float) -> Sampler:
    """Return Student's t, by coordinate."""
    return by_coordinate(
        lambda rng, size: rng.standard_t(freedom, size),
        lambda x: -(freedom + 1) * x / (freedom + x**2),
    )


def joint_student(freedom: float) -> Sampler:
    """Return Student's t in every direction."""

    def sample(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
        radius = np.sqrt(rng.chisquare(freedom, n) / freedom)
        x = rng.normal(size=(n, d)) / radius[:, None]
        return x, -(freedom + d) * x / (freedom + (x**2).sum(axis=1))[:, None]

    return sample


def log_gamma(shape: float) -> Sampler:
    """Return logarithms of gamma variables."""
    return by_coordinate(
        lambda rng, size: np.log(rng.gamma(shape, size=size)), lambda x: shape - np.exp(x)
    )


def banana(bend: float) -> Sampler:
    """Return a Gaussian bent along its first coordinate."""

    def sample(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(n, d))
        across = x[:, 1].copy()
        x[:, 1] += bend * (x[:, 0] ** 2 - 1)
        s = -x
        s[:, 1] = -across
        s[:, 0] += 2 * bend * x[:, 0] * across
        return x, s

    return sample


def funnel(scale: float) -> Sampler:
    """Return a funnel: the first coordinate is the logarithm of the others' sd."""

    def sample(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
        v = scale * rng.normal(size=n)
        x = rng.normal(size=(n, d - 1)) * np.exp(v)[:, None]
        squares = (x**2).sum(axis=1) * np.exp(-2 * v)
        slope = -v / scale**2 - (d - 1) + squares
        return np.column_stack([v, x]), np.column_stack([slope, -x * np.exp(-2 * v)[:, None]])

    return sample


def ring(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw from a ring of radius five in the first two coordinates."""
    angle, x = rng.uniform(0, 2 * np.pi, n), rng.normal(size=(n, d))
    along = np.column_stack([np.cos(angle), np.sin(angle)])
    radius = rng.choice(np.linspace(1, 9, 4001), n, p=_ring_weights())
    x[:, :2] = radius[:, None] * along
    s = -x
    s[:, :2] = -(radius - 5)[:, None] * along
    return x, s


def _ring_weights() -> np.ndarray:
    radius = np.linspace(1, 9, 4001)
    weights = radius * np.exp(-0.5 * (radius - 5) ** 2)
    return weights / weights.sum()


def scale_mixture(share: float, scale: float) -> Sampler:
    """Return a Gaussian, part of which is wider, around the same centre."""

    def sample(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
        wide = rng.uniform(size=n) < share
        x = rng.normal(size=(n, d)) * np.where(wide, scale, 1.0)[:, None]
        squares = (x**2).sum(axis=1)
        log_odds = np.log(share / (1 - share)) - d * np.log(scale) + squares / 2
        odds = scipy.special.expit(log_odds - squares / 2 / scale**2)
        return x, -x * ((1 - odds) + odds / scale**2)[:, None]

    return sample


def power(exponent: float) -> Sampler:
    """Return a density proportional to exp(-|x|^p / p), by coordinate."""
    return by_coordinate(
        lambda rng, size: scipy.stats.gennorm.rvs(
            exponent, scale=exponent ** (1 / exponent), size=size, random_state=rng
        ),
        lambda x: -np.sign(x) * np.abs(x) ** (exponent - 1),
    )


def skew_normal(skew: float) -> Sampler:
    """Return a skew normal, by coordinate."""
    return by_coordinate(
        lambda rng, size: scipy.stats.skewnorm.rvs(skew, size=size, random_state=rng),
        lambda x: (
            -x + skew * np.exp(scipy.stats.norm.logpdf(skew * x) - scipy.special.log_ndtr(skew * x))
        ),
    )


def twisted(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw from a Gaussian of which each coordinate is shifted by the sine of the one before."""
    z = rng.normal(size=(n, d))
    x = z.copy()
    for k in range(1, d):
        x[:, k] += 1.5 * np.sin(x[:, k - 1])
    s = -z
    s[:, :-1] += z[:, 1:] * 1.5 * np.cos(x[:, :-1])
    return x, s


def rotated(base: Sampler) -> Sampler:
    """Return a density in coordinates that are mixed up."""

    def sample(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
        x, s = base(rng, n, d)
        mix = np.random.default_rng(d).normal(size=(d, d)) + np.eye(d)
        return x @ mix.T, s @ np.linalg.inv(mix)

    return sample


LAPLACE = by_coordinate(lambda rng, size: rng.laplace(size=size), lambda x: -np.sign(x))
LOGISTIC = by_coordinate(lambda rng, size: rng.logistic(size=size), lambda x: -np.tanh(x / 2))
GUMBEL = by_coordinate(lambda rng, size: rng.gumbel(size=size), lambda x: np.exp(-x) - 1)
SECANT = by_coordinate(
    lambda rng, size: scipy.stats.hypsecant.rvs(size=size, random_state=rng), lambda x: -np.tanh(x)
)
LOG_BETA_PRIME = by_coordinate(  # logit of a Beta(2, 5) variable
    lambda rng, size: scipy.special.logit(rng.beta(2, 5, size)),
    lambda x: 2 - 7 * scipy.special.expit(x),
)

SETTLED: dict[str, Sampler] = {
    **{f"Student t by coordinate, {nu}": student(nu) for nu in (3, 5, 10, 30, 60)},
    **{f"Student t, {nu}": joint_student(nu) for nu in (3, 5, 10, 30, 60)},
    **{f"log gamma, {shape}": log_gamma(shape) for shape in (1, 3, 10, 30, 100)},
    **{f"banana, {bend}": banana(bend) for bend in (0.3, 1.0)},
    **{f"funnel, {scale}": funnel(scale) for scale in (0.3, 0.7, 1.5)},
    "Laplace": LAPLACE,
    "logistic": LOGISTIC,
    "ring": ring,
    "spike on a slab": scale_mixture(0.5, 5.0),
}
HELD_OUT: dict[str, Sampler] = {
    "Gumbel": GUMBEL,
    "hyperbolic secant": SECANT,
    "logit of beta": LOG_BETA_PRIME,
    **{f"power, {p}": power(p) for p in (1.5, 3.0, 4.0)},
    **{f"skew normal, {a}": skew_normal(a) for a in (2.0, 6.0)},
    **{f"wide share, {p}, {k}": scale_mixture(p, k) for p, k in ((0.05, 2.0), (0.02, 4.0))},
    "twisted": twisted,
    "rotated Gumbel": rotated(GUMBEL),
    "rotated log gamma, 2": rotated(log_gamma(2)),
    "rotated Student t by coordinate, 6": rotated(student(6)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--held-out", action="store_true", help="densities that settled nothing")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--draws", nargs="+", type=int, default=[400, 1000, 4000])
    parser.add_argument("--dimensions", nargs="+", type=int, default=[2, 5, 10])
    options = parser.parse_args()
    total, second = 0, collections.Counter()
    for name, sample in (HELD_OUT if options.held_out else SETTLED).items():
        for n in options.draws:
            for d in options.dimensions:
                for seed in range(options.seeds):
                    x, s = sample(np.random.default_rng([seed, n, d]), n, d)
                    whitening = fit_whitening(x)
                    modes = find_modes(whitening.draws(x), whitening.scores(s), 1, ERROR_MODEL)
                    total += 1
                    if modes is not None:
                        second[name] += 1
                        print(f"{name}, {n} draws, d = {d}, seed {seed}: {modes.counts}")
    print(f"\na second mode in {second.total()} of {total} sets")


if __name__ == "__main__":
    main()
