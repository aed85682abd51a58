"""Are the errors of hierarchical models right? Means and sds against long averages.

    python examples/hierarchical/calibration.py [--models ...] [--replications 40] [--csv FILE]

For each model NumPyro samples one simulated data set again and again, 4 x 1000 draws each time, and
the default summarises each run. The truth is the plain average over all runs, whose own error is
part of every z. A run has a small share in that average, which makes z smaller by one part in
twice the number of runs.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from benchmark import CHAINS, DRAWS, posterior_of, sample, sampler
from models import HELD_OUT, MODELS, Model

import az_cv

COLUMNS = ("mean", "mcse_mean", "vrf_mean", "sd", "mcse_sd", "vrf_sd")


def replicate(model: Model, mcmc: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns of one run's table, and the plain first and second moments."""
    posterior, scores = posterior_of(model, sample(model, mcmc, seed)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = az_cv.fit(posterior, scores=scores, random_seed=1, progressbar=False).estimates
    columns = np.concatenate(
        [
            found[name].sel(summary=list(COLUMNS)).transpose("summary", ...).values.reshape(6, -1)
            for name in found
        ],
        axis=1,
    )
    values = np.concatenate(
        [posterior[name].values.reshape(CHAINS * DRAWS, -1) for name in posterior], axis=1
    )
    return columns, np.stack([values.mean(axis=0), (values**2).mean(axis=0)])


def judge(tables: np.ndarray, moments: np.ndarray) -> dict[str, float]:
    """Return RMS z, coverage and median gain of means and of sds."""
    runs = len(tables)
    first, second = moments.mean(axis=0)
    truths = {"mean": first, "sd": np.sqrt(np.maximum(second - first**2, 0))}
    row: dict[str, float] = {"runs": runs}
    for name, truth in truths.items():
        start = COLUMNS.index(name)
        estimate, error, gain = (tables[:, start + k] for k in range(3))
        plain = error * np.sqrt(gain)
        of_truth = np.sqrt((plain**2).mean(axis=0) / runs)
        z = (estimate - truth) / np.hypot(error, of_truth)
        row |= {
            f"{name} rms z": float(np.sqrt(np.mean(z**2))),
            f"{name} coverage": float(np.mean(np.abs(z) < 1.96)),
            f"{name} gain": float(np.median(gain)),
        }
    return row


def main() -> None:
    every = {**MODELS, **HELD_OUT}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(every), choices=list(every))
    parser.add_argument("--replications", type=int, default=40)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.models:
        model = every[name](0)
        mcmc = sampler(model)
        tables, moments = [], []
        for seed in range(options.replications):
            table, moment = replicate(model, mcmc, seed)
            tables.append(table)
            moments.append(moment)
            row = judge(np.stack(tables), np.stack(moments))
            print(name, {key: round(value, 3) for key, value in row.items()}, flush=True)
        rows.append({"model": name, **row})
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
