"""Errors of log evidences on models whose evidence is known, against plain bridge sampling.

For every model with a known evidence, 50 sets of NUTS draws, 4 x 1000 each. The table has the
dimension; the root mean square error of plain bridge sampling (Gaussian proposal, same draws, same
halves) and with control variates; their ratio; the root mean square of (estimate - truth) / claimed
error; the share of 95% intervals that hold the truth. Estimates whose errors are of the size of
rounding are exact, and have no z-scores.

Run ``python examples/evidence/calibration.py --help``. NUTS draws come from NumPyro.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from models_with_truth import TARGETS, Target

import az_cv

CHAINS = 4
EXACT = 1e-9
COLUMNS = ("target", "replication", "error", "mcse", "plain_error", "plain_mcse", "overlap")


def nuts(target: Target, chains: int, draws: int, seed: int) -> np.ndarray:
    """Return draws of shape (chains, draws, d) from NUTS chains."""
    import jax
    from numpyro.infer import MCMC, NUTS

    with jax.enable_x64(True):
        mcmc = MCMC(
            NUTS(potential_fn=lambda x: -target.log_density(x), target_accept_prob=0.9),
            num_warmup=500,
            num_samples=draws,
            num_chains=chains,
            chain_method="vectorized",
            progress_bar=False,
        )
        start = target.start + 0.1 * np.random.default_rng(seed).normal(size=(chains, target.d))
        mcmc.run(jax.random.key(seed), init_params=jax.numpy.asarray(start))
        return np.asarray(mcmc.get_samples(group_by_chain=True)).reshape(chains, draws, target.d)


def replicate(name: str, replications: int, draws: int, seed: int) -> list[dict[str, object]]:
    """Return errors and claimed errors of every replication."""
    target = TARGETS[name]()
    chains = nuts(target, CHAINS * replications, draws, seed)
    rows: list[dict[str, object]] = []
    for k, own in enumerate(chains.reshape(replications, CHAINS, draws, target.d)):
        with warnings.catch_warnings(action="ignore"):
            found = az_cv.log_evidence(
                {"x": own}, model=target.log_density, random_seed=k, progressbar=False
            )
        rows.append(
            {
                "target": name,
                "replication": k,
                "error": found.log_evidence - target.truth,
                "mcse": found.mcse,
                "plain_error": found.plain_log_evidence - target.truth,
                "plain_mcse": found.plain_mcse,
                "overlap": (found.diagnostics or {})["overlap"],
            }
        )
    return rows


def line(name: str, rows: list[dict[str, object]]) -> str:
    """Return one row of the table."""
    columns = {key: np.array([float(str(row[key])) for row in rows]) for key in COLUMNS[2:]}
    rmse, plain = (np.sqrt((columns[key] ** 2).mean()) for key in ("error", "plain_error"))
    plain_z = np.sqrt(((columns["plain_error"] / columns["plain_mcse"]) ** 2).mean())
    if np.abs(columns["error"]).max() < EXACT:
        said = f"exact (at most {np.abs(columns['error']).max():.0e}) | – | – | 1.00"
    else:
        z = columns["error"] / columns["mcse"]
        said = (
            f"{rmse:.1e} | {plain / rmse:.0f} | {np.sqrt((z**2).mean()):.2f} | "
            f"{(np.abs(z) < 1.96).mean():.2f}"
        )
    return f"| {name} | {TARGETS[name]().d} | {plain:.1e} | {plain_z:.2f} | {said} |"


def share_compilations() -> None:
    """Compile the functions of a target once, not for every replication."""
    import jax

    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", tempfile.mkdtemp())
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--replications", type=int, default=50)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="folder for one CSV file per target")
    arguments = parser.parse_args()
    share_compilations()
    print("| model | d | RMSE, plain | RMS z, plain | RMSE | times smaller | RMS z | coverage |")
    print("|---|---|---|---|---|---|---|---|")
    for name in arguments.only:
        started = time.perf_counter()
        rows = replicate(name, arguments.replications, arguments.draws, arguments.seed)
        print(line(name, rows), f"<!-- {time.perf_counter() - started:.0f} s -->", flush=True)
        if arguments.output:
            arguments.output.mkdir(parents=True, exist_ok=True)
            file = arguments.output / f"{name.replace(' ', '_').replace(',', '')}.csv"
            with file.open("w", newline="") as stream:
                writer = csv.DictWriter(stream, COLUMNS)
                writer.writeheader()
                writer.writerows(rows)


if __name__ == "__main__":
    main()
