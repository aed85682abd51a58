"""Gains and calibration where coordinates are independent and far from Gaussian, with few draws.

    python examples/benchmarks/independent.py [--replications 60] [--processes 1] [--without-anova]

Gaussian, log-gamma and logistic coordinates; five functions of each target, among them sums and
products over coordinates, kinks and jumps. Prints the RMS of (estimate - truth) / claimed error,
the share of 95% intervals that hold the truth, the worst z-score, and the median gain of each
function.
"""

import argparse
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
from scipy.special import digamma, gammaln, ndtr, polygamma

from az_cv.engine import choices, engine

CELLS = ((6, 200), (6, 1000), (12, 400), (12, 1000), (24, 1000), (12, 3000))  # dimension, draws
SHAPE = 2.0  # of the gamma distribution


def gaussian(rng, n, d):
    """Return draws, scores, values of five functions, and their expectations."""
    x = rng.normal(size=(n, d))
    values = [
        (1 / (1 + (ndtr(x) - 0.5) ** 2)).prod(axis=1),
        np.abs(x[:, 0]),
        np.cos(x).sum(axis=1),
        np.exp(0.5 * x[:, 0] + 0.5 * x[:, 1]),
        x[:, 0] > 1,
    ]
    truth = [
        (2 * np.arctan(0.5)) ** d,
        np.sqrt(2 / np.pi),
        d * np.exp(-0.5),
        np.exp(0.25),
        1 - ndtr(1),
    ]
    return x, -x, values, truth


def log_gamma(rng, n, d):
    """Return the same for logarithms of gamma variables."""
    y = rng.gamma(SHAPE, size=(n, d))
    x, mean = np.log(y), digamma(SHAPE)
    root = np.exp(gammaln(SHAPE + 0.5) - gammaln(SHAPE))
    values = [
        x[:, 0],
        x.sum(axis=1),
        y[:, 0] * y[:, 1],
        np.sqrt(y).sum(axis=1),
        x[:, 0] ** 2,
    ]
    return (
        x,
        SHAPE - y,
        values,
        [mean, d * mean, SHAPE**2, d * root, mean**2 + polygamma(1, SHAPE)],
    )


def logistic(rng, n, d):
    """Return the same for logistic variables."""
    x = rng.logistic(size=(n, d))
    values = [
        x[:, 0],
        x[:, 0] ** 2,
        np.tanh(x).sum(axis=1),
        x[:, 0] ** 2 * x[:, 1] ** 2,
        np.exp(0.3 * x[:, 0]),
    ]
    variance = np.pi**2 / 3
    return (
        x,
        -np.tanh(x / 2),
        values,
        [0.0, variance, 0.0, variance**2, 0.3 * np.pi / np.sin(0.3 * np.pi)],
    )


TARGETS = {"Gaussian": gaussian, "log gamma": log_gamma, "logistic": logistic}


def replicate(name, n, d, without_anova, seed):
    """Return z-scores and gains of the five functions."""
    if without_anova:
        choices.ANOVA_DIMENSION = choices.NETWORK_DIMENSION
    warnings.simplefilter("ignore")  # no gain: the table tells
    x, s, values, truth = TARGETS[name](np.random.default_rng([seed, d, n]), n, d)
    f = np.stack(values, axis=1).astype(float)
    x, s, f = (a.reshape(4, n // 4, -1) for a in (x, s, f))
    found = engine.run_engine(x, s, f, random_seed=0).estimate
    return (found.mean - truth) / found.mcse, (found.plain_mcse / found.mcse) ** 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=60)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--without-anova", action="store_true", help="leave this kernel out")
    parser.add_argument("--cell", nargs=2, type=int, metavar=("D", "N"), help="this one alone")
    options = parser.parse_args()
    print("| target | d | draws | RMS z | 95% intervals | worst z | median gain of each |")
    print("|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(options.processes) as pool:
        for name in TARGETS:
            for d, n in [options.cell] if options.cell else CELLS:
                job = partial(replicate, name, n, d, options.without_anova)
                z, gain = map(np.array, zip(*pool.map(job, range(options.replications))))
                each = ", ".join(f"{g:.2g}" for g in np.median(gain, axis=0))
                print(
                    f"| {name} | {d} | {n} | {np.sqrt((z**2).mean()):.2f} "
                    f"| {(np.abs(z) < 1.96).mean():.1%} | {np.abs(z).max():.1f} | {each} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
