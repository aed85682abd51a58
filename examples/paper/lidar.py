"""Experiment 6: hyper-parameters of a Gaussian process for LIDAR data, d = 2, Cauchy priors.

    python examples/paper/lidar.py [--data lidar.txt] [--quick] [--repetitions 20] [--output DIR]

The data (range and log ratio, 221 rows with a header) are read from ``--data``; without it a
simulated stand-in of the same size is used, and the output says so. Posterior moments of the two
log hyper-parameters and the log likelihood, from MALA chains; every draw trains (m = n). Ground
truth: quadrature on a grid.
"""

import argparse
from pathlib import Path

import numpy as np
from experiment import (
    Sample,
    arguments,
    compare,
    default,
    paper_methods,
    plain,
    standardise,
    tuned_kernel,
    write,
)
from mala import sample

from az_cv import NeuralNetwork

NOISE_VARIANCE = 0.04
ROWS = 221
SIZES = (100, 200, 500, 1000)
LONGEST = 1000
FUNCTIONS = ("phi_1", "phi_2", "phi_1^2", "phi_2^2", "log likelihood")


def read(path, seed=0):
    """Return distances, standardised, and log ratios; without a path, simulated ones."""
    if path is None:
        rng = np.random.default_rng(seed)
        distance = np.linspace(390, 720, ROWS)
        drop = 1 / (1 + np.exp(-(distance - 590) / 25))
        ratio = -0.05 - 0.65 * drop + NOISE_VARIANCE**0.5 * rng.normal(size=ROWS)
    else:
        distance, ratio = np.loadtxt(path, skiprows=1, unpack=True)
    return (distance - distance.mean()) / distance.std(), ratio


def posterior(path, seed=0):
    """Return log density and log likelihood of (log lambda_1, log lambda_2)."""
    import jax.numpy as jnp

    distance, ratio = read(path, seed)
    squares = (distance[:, None] - distance) ** 2

    def log_likelihood(phi):
        covariance = jnp.exp(2 * phi[0]) * jnp.exp(-0.5 * jnp.exp(2 * phi[1]) * squares)
        factor = jnp.linalg.cholesky(covariance + NOISE_VARIANCE * jnp.eye(len(ratio)))
        z = jnp.linalg.solve(factor, ratio)
        half = jnp.log(jnp.diag(factor)).sum()
        return -0.5 * z @ z - half - 0.5 * len(ratio) * jnp.log(2 * jnp.pi)

    def log_density(phi):
        return log_likelihood(phi) - jnp.log1p(phi**2).sum()

    return log_density, log_likelihood


def at_points(function, points):
    """Return the function at all points, a thousand at a time: each takes a matrix or two."""
    import jax

    with jax.enable_x64(True):
        return np.asarray(jax.jit(lambda x: jax.lax.map(function, x, batch_size=1000))(points))


def functions(x, log_likelihood):
    values = at_points(log_likelihood, x.reshape(-1, 2))
    return np.concatenate([x, x**2, values.reshape(*x.shape[:2], 1)], axis=2)


def quadrature(log_density, log_likelihood, x, points):
    """Return the expectations by the trapezoidal rule on a wide grid around the draws."""
    flat = x.reshape(-1, 2)
    centre, sd = np.median(flat, axis=0), flat.std(axis=0)
    axes = [np.linspace(c - 8 * e, c + 12 * e, points) for c, e in zip(centre, sd)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(1, -1, 2)
    logs = at_points(log_density, grid[0])
    weights = np.exp(logs - logs.max())
    return (weights / weights.sum()) @ functions(grid, log_likelihood)[0]


def simulate(path, repetitions, quick=False, seed=0):
    """Return draws, scores and functions of one MALA chain per repetition, and their truth."""
    log_density, log_likelihood = posterior(path, seed)
    noise = np.random.default_rng(1).normal(size=(repetitions, 2))
    warmup, draws, points = (100, 200, 60) if quick else (500, LONGEST, 150)
    start = np.array([-0.5, 0.5]) + 0.1 * noise
    x, s = sample(log_density, start, num_warmup=warmup, num_draws=draws)
    truth = quadrature(log_density, log_likelihood, x, points)
    return x, s, functions(x, log_likelihood), truth


def thinned(chains, n):
    """Return one sample of n draws, evenly spaced, per chain."""
    x, s, f, truth = chains
    every = x.shape[1] // n
    return [Sample(*(a[k : k + 1, ::every] for a in (x, s, f)), truth) for k in range(len(x))]


def main(argv=None):
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--data", type=Path)
    chosen, rest = parser.parse_known_args(argv)
    options = arguments(__doc__.splitlines()[0], rest)
    source = f"data read from {chosen.data.name}" if chosen.data else "simulated stand-in"
    print(f"LIDAR: {source}")
    chains = simulate(chosen.data, options.repetitions, options.quick)
    rows = []
    for n in (100,) if options.quick else SIZES:
        samples = thinned(chains, n)
        tuned = tuned_kernel(standardise(samples[0])[0])
        found = paper_methods(
            tuned, None, network=NeuralNetwork(widths=(20,) * 6), kernel_epochs=10
        )
        methods = {"plain": plain, "default": default} | {
            name: found[name] for name in ("polynomial, SGD", "kernel, SGD", "network, SGD")
        }
        cases = [f"{name}, n = {n}, {source}" for name in FUNCTIONS]
        rows += compare("lidar", samples, methods, cases, options)
    return write(rows, "lidar", options.output)


if __name__ == "__main__":
    main()
