"""Hundreds of groups: seconds, memory and gain of the default as the number of parameters grows.

    python examples/hierarchical/large.py [--groups 100 250 500 1000 2000] [--csv FILE]

Groups with a mean each, normal around a population, one normal observation per group: exact
independent draws are cheap in any number of dimensions, so that nothing is measured but the
summary. Every size runs in a process of its own, whose largest memory is reported.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import resource
import time
from pathlib import Path

import numpy as np
import xarray as xr

CHAINS, DRAWS, NOISE = 4, 1000, 1.0


def posterior_draws(groups: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return independent draws of (mu, log tau, effects), flat, and their scores.

    The prior is flat for mu and half-normal for tau.
    """
    rng = np.random.default_rng(seed)
    y = rng.normal(0.5, 1.2, size=groups) + NOISE * rng.normal(size=groups)
    grid = np.linspace(-3, 2, 4001)
    variance = np.exp(2 * grid) + NOISE**2
    spread = ((y - y.mean()) ** 2).sum()
    log_density = (
        -0.5 * (groups - 1) * np.log(variance)
        - 0.5 * spread / variance
        - 0.5 * np.exp(2 * grid)
        + grid
    )
    chance = np.exp(log_density - log_density.max())
    size = CHAINS * DRAWS
    log_tau = rng.choice(grid, p=chance / chance.sum(), size=size)
    log_tau += (grid[1] - grid[0]) * (rng.uniform(size=size) - 0.5)
    tau = np.exp(log_tau)
    total = tau**2 + NOISE**2
    mu = y.mean() + np.sqrt(total / groups) * rng.normal(size=size)
    share = (tau**2 / total)[:, None]
    effects = mu[:, None] + share * (y - mu[:, None])
    effects += NOISE * np.sqrt(share) * rng.normal(size=effects.shape)
    away = (effects - mu[:, None]) / tau[:, None] ** 2
    score_of_scale = (away * (effects - mu[:, None])).sum(axis=1) - groups - tau**2 + 1
    scores = np.column_stack([away.sum(axis=1), score_of_scale, (y - effects) / NOISE**2 - away])
    return np.column_stack([mu, log_tau, effects]), scores


def measure(groups: int) -> dict[str, float]:
    """Return seconds, memory in MiB and the gains of the default."""
    import az_cv

    draws, scores = (
        part.reshape(CHAINS, DRAWS, -1) for part in posterior_draws(groups, seed=groups)
    )
    names = ["mu", "log_tau", *(f"effect[{k}]" for k in range(groups))]
    posterior = xr.Dataset(
        {
            "mu": (("chain", "draw"), draws[..., 0]),
            "tau": (("chain", "draw"), np.exp(draws[..., 1])),
            "effect": (("chain", "draw", "group"), draws[..., 2:]),
        }
    )
    known = az_cv.scores_dataset(draws, scores, parameter_names=names)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, used = time.perf_counter(), time.process_time()
    found = az_cv.fit(posterior, scores=known, random_seed=1, progressbar=False).estimates
    seconds, processor = time.perf_counter() - began, time.process_time() - used
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    gains = {name: found[name].sel(summary=["vrf_mean", "vrf_sd"]).values for name in found}
    return {
        "parameters": groups + 2,
        "seconds": seconds,
        "processor seconds": processor,
        "MiB": memory / 1024,
        "tau": float(gains["tau"].min()),
        "mu": float(gains["mu"].min()),
        "effects": float(np.median(gains["effect"])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", nargs="+", type=int, default=[100, 250, 500, 1000, 2000])
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    rows = []
    for groups in options.groups:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(measure, (groups,)))
        print({key: round(value, 1) for key, value in rows[-1].items()}, flush=True)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
