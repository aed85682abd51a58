"""Are the error bars right? Replications on targets with known answers.

For every cell (target, kind of draws, length of the chains) the script prints the root mean square
of (estimate - truth) / claimed error, the share of 95% intervals that hold the truth, and the
median gain, for means and for sds; then the first two for plain averages of the same draws, with
ArviZ's errors. A root mean square of one is right; above it the error bars are
too small, below it too wide: they are meant to lie between 0.33 and 1.25, with intervals that hold
the truth in 92% of cases and more. Estimates that are exact to rounding show as 0.

Run ``python examples/calibration/calibrate.py --help``. NUTS draws come from NumPyro. With
``--kinds shuffled`` those of all replications are shuffled, which takes the memory of the chains.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import xarray as xr
from arviz_stats.base import array_stats
from targets import PROBLEMS, Problem

import az_cv
from az_cv.engine import choices

CHAINS = 4


def nuts(problem: Problem, d: int, chains: int, draws: int, seed: int) -> np.ndarray:
    """Return draws of shape (chains, draws, d) from independently adapted NUTS chains."""
    import jax
    from numpyro.infer import MCMC, NUTS

    with jax.enable_x64(True):
        kernel = NUTS(potential_fn=lambda x: -problem.log_density(x))
        mcmc = MCMC(
            kernel,
            num_warmup=500,
            num_samples=draws,
            num_chains=chains,
            chain_method="vectorized",
            progress_bar=False,
        )
        start = problem.sample(np.random.default_rng(seed), chains)
        mcmc.run(jax.random.key(seed), init_params=jax.numpy.asarray(start))
        return np.asarray(mcmc.get_samples(group_by_chain=True)).reshape(chains, draws, d)


def draws_of(
    problem: Problem, kind: str, chains: int, draws: int, replications: int, seed: int
) -> np.ndarray:
    """Return draws of shape (replication, chain, draw, d)."""
    d = problem.sample(np.random.default_rng(0), 1).shape[1]
    shape = (replications, chains, draws, d)
    if kind in ("nuts", "shuffled"):
        x = nuts(problem, d, chains * replications, draws, seed).reshape(shape)
        if kind == "shuffled":  # as good as independent
            x = np.random.default_rng(seed).permutation(x.reshape(-1, d)).reshape(shape)
        return x
    generators = (np.random.default_rng([seed, r]) for r in range(replications))
    return np.stack([problem.sample(rng, chains * draws) for rng in generators]).reshape(shape)


def replicate(job: tuple[str, bool, np.ndarray]) -> np.ndarray:
    """Return z-scores and gains, shape (6, q): z, gain, plain z, each of mean and of sd."""
    name, without_anova, x = job
    if without_anova:
        choices.ANOVA_DIMENSION = choices.NETWORK_DIMENSION
    problem = PROBLEMS[name]()
    flat = x.reshape(-1, x.shape[-1])
    values = problem.functions(flat).reshape(*x.shape[:2], -1)
    posterior = xr.Dataset({"f": (("chain", "draw", "label"), values)})
    scores = az_cv.scores_dataset(x, problem.score(flat).reshape(x.shape))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = az_cv.fit(posterior, scores=scores, progressbar=False).estimates["f"]
    get = {str(key): found.sel(summary=key).values for key in found["summary"].values}
    # Where an estimate is exact, rounding is what remains of both the error and its bar.
    exact = 1e-9 * problem.sd
    z_mean = (get["mean"] - problem.mean) / np.maximum(get["mcse_mean"], exact)
    z_sd = (get["sd"] - problem.sd) / np.maximum(get["mcse_sd"], exact)
    plain = [
        (get["plain_mean"] - problem.mean) / get["plain_mcse_mean"],
        (values.std(axis=(0, 1), ddof=1) - problem.sd)
        / array_stats.mcse(values, chain_axis=0, draw_axis=1, method="sd"),
    ]
    return np.stack([z_mean, z_sd, get["vrf_mean"], get["vrf_sd"], *plain])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    kinds = ["iid", "nuts", "shuffled"]
    parser.add_argument("--kinds", nargs="+", default=kinds[:2], choices=kinds)
    parser.add_argument("--draws", nargs="+", type=int, default=[250, 1000])
    parser.add_argument("--replications", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--each", action="store_true", help="print every quantity")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--without-anova", action="store_true", help="leave this kernel out")
    options = parser.parse_args()
    print("| target | draws | of | RMS z | 95% intervals | worst z | median gain | plain |")
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    for name in options.targets:
        problem = PROBLEMS[name]()
        for kind in options.kinds:
            for draws in options.draws:
                x = draws_of(problem, kind, CHAINS, draws, options.replications, options.seed)
                jobs = [(name, options.without_anova, one) for one in x]
                found = np.stack(run(jobs, options.processes))
                rows += report(name, f"{kind} 4 x {draws}", found, problem, options.each)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def run(jobs: list[tuple[str, bool, np.ndarray]], processes: int) -> list[np.ndarray]:
    """Replicate, in several processes if there are to be several."""
    if processes == 1:
        return [replicate(job) for job in jobs]
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        return list(pool.map(replicate, jobs))


def judged(z: np.ndarray) -> tuple[str, str]:
    """Return the root mean square of z-scores, and the share of intervals that hold the truth."""
    return f"{np.sqrt((z**2).mean()):.2f}", f"{(np.abs(z) < 1.96).mean():.1%}"


def report(
    name: str, draws: str, found: np.ndarray, problem: Problem, each: bool
) -> list[dict[str, object]]:
    """Print and return one row per cell for means and for sds, and for each quantity if asked."""
    rows = []
    for k, what in enumerate(("mean", "sd")):
        z, gain, plain = found[:, k], found[:, k + 2], found[:, k + 4]
        parts = {f"{what}s": slice(None)}
        if each:
            parts |= {f"{what} of {q}": slice(j, j + 1) for j, q in enumerate(problem.labels)}
        for label, columns in parts.items():
            rms, share = judged(z[:, columns])
            row: dict[str, object] = {
                "target": name,
                "draws": draws,
                "of": label,
                "rms_z": rms,
                "coverage": share,
                "worst_z": f"{np.abs(z[:, columns]).max():.1f}",
                "median_vrf": f"{np.median(gain[:, columns]):.2g}",
                "plain": ", ".join(judged(plain[:, columns])),
            }
            rows.append(row)
            print("| " + " | ".join(str(value) for value in row.values()) + " |", flush=True)
    return rows


if __name__ == "__main__":
    main()
