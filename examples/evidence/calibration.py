"""Errors of log evidences on models whose evidence is known, against plain bridge sampling.

For every model with a known evidence, 50 sets of NUTS draws, 4 x 1000 each. The table has the
dimension; the root mean square error of plain bridge sampling (Gaussian proposal, same draws, same
halves) and with control variates; their ratio; the root mean square of (estimate - truth) / claimed
error; the share of 95% intervals that hold the truth. Estimates whose errors are of the size of
rounding are exact, and have no z-scores.

    python examples/evidence/calibration.py --only "eight schools" --output results
    python examples/evidence/calibration.py --table results

The first runs one model, in one process, and writes each replication as soon as it is done. The
second prints the table of what is there. NUTS draws come from NumPyro.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from models_with_truth import DIMENSIONS, TARGETS, Target

import az_cv

CHAINS = 4
EXACT = 1e-9
HEADER = (
    "| model | d | replications | RMSE, plain | RMSE | times smaller | RMS z | coverage |\n"
    "|---|---|---|---|---|---|---|---|"
)
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


def replicate(name: str, replications: int, draws: int, seed: int) -> Iterator[dict[str, object]]:
    """Yield errors and claimed errors of every replication."""
    target = TARGETS[name]()
    assert target.d == DIMENSIONS[name]
    chains = nuts(target, CHAINS * replications, draws, seed)
    for k, own in enumerate(chains.reshape(replications, CHAINS, draws, target.d)):
        with warnings.catch_warnings(action="ignore"):
            found = az_cv.log_evidence(
                {"x": own}, model=target.log_density, random_seed=k, progressbar=False
            )
        yield {
            "target": name,
            "replication": k,
            "error": found.log_evidence - target.truth,
            "mcse": found.mcse,
            "plain_error": found.plain_log_evidence - target.truth,
            "plain_mcse": found.plain_mcse,
            "overlap": (found.diagnostics or {})["overlap"],
        }


def line(name: str, rows: Sequence[Mapping[str, object]]) -> str:
    """Return one row of the table."""
    columns = {key: np.array([float(str(row[key])) for row in rows]) for key in COLUMNS[2:]}
    rmse, plain = (np.sqrt((columns[key] ** 2).mean()) for key in ("error", "plain_error"))
    if np.abs(columns["error"]).max() < EXACT:
        said = f"exact (at most {np.abs(columns['error']).max():.0e}) | – | – | 1.00"
    else:
        z = columns["error"] / columns["mcse"]
        said = (
            f"{rmse:.1e} | {plain / rmse:.0f} | {np.sqrt((z**2).mean()):.2f} | "
            f"{(np.abs(z) < 1.96).mean():.2f}"
        )
    return f"| {name} | {DIMENSIONS[name]} | {len(rows)} | {plain:.1e} | {said} |"


def write(file: Path, rows: Iterable[dict[str, object]]) -> Iterator[dict[str, object]]:
    """Pass rows on, and write each to a file as soon as it is there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        for row in rows:
            writer.writerow(row)
            stream.flush()
            yield row


def file_of(folder: Path, name: str) -> Path:
    """Return the file for the rows of a target."""
    return folder / f"{re.sub('[^a-z0-9]+', '_', name.lower()).strip('_')}.csv"


def read(folder: Path, name: str) -> list[dict[str, str]]:
    """Return what an earlier run wrote of a target, nothing if there was none."""
    file = file_of(folder, name)
    if not file.exists():
        return []
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def table(folder: Path) -> str:
    """Return the table of what earlier runs wrote to a folder."""
    found = {name: read(folder, name) for name in TARGETS}
    return "\n".join([HEADER, *(line(name, rows) for name, rows in found.items() if rows)])


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
    parser.add_argument("--table", type=Path, help="print the table of such a folder, run nothing")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(arguments.table))
        return
    share_compilations()
    print(HEADER)
    for name in arguments.only:
        started = time.perf_counter()
        rows = replicate(name, arguments.replications, arguments.draws, arguments.seed)
        if arguments.output:
            rows = write(file_of(arguments.output, name), rows)
        print(line(name, list(rows)), flush=True)
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
