"""Draws that `az_cv.draws_needed` names, against the error that so many draws give.

    python examples/benchmarks/draws_needed.py

For each posterior the error to reach is half of what a pilot run gives. Several pilot runs each
name a number of draws. Fresh runs of several lengths, on targets whose means are known, say which
error so many draws give: the typical standard error that az_cv reports, and the root mean square of
its true errors. The table has the ratio of both to the error asked for, 1 where the promise is
kept, and how far the pilot runs differ from each other.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
import xarray as xr

import az_cv

sys.path.insert(0, str(Path(__file__).parents[1] / "calibration"))
from targets import PROBLEMS

POSTERIORS = ("banana", "location-scale", "eight-schools")
CHAINS = 4
LENGTHS = (0.5, 1, 2, 4)  # of fresh runs, in pilot runs


def draw(problem, rng, draws):
    """Return a posterior and its scores, from independent draws."""
    x = problem.sample(rng, CHAINS * draws)
    values = problem.functions(x).reshape(CHAINS, draws, -1)
    posterior = xr.Dataset(
        {label: (("chain", "draw"), values[..., k]) for k, label in enumerate(problem.labels)},
        coords={"chain": range(CHAINS), "draw": range(draws)},
    )
    shape = (CHAINS, draws, -1)
    return posterior, az_cv.scores_dataset(x.reshape(shape), problem.score(x).reshape(shape))


def fresh_runs(problem, rng, draws, runs):
    """Return the typical reported error of each mean, and the root mean square of the true one."""
    reported, wrong = [], []
    for _ in range(runs):
        posterior, scores = draw(problem, rng, draws)
        found = az_cv.fit(posterior, scores=scores, progressbar=False, check=False).estimates
        found = found.to_dataarray("quantity")
        reported.append(found.sel(summary="mcse_mean").values)
        wrong.append(found.sel(summary="mean").values - problem.mean)
    return np.exp(np.log(reported).mean(axis=0)), np.sqrt(np.mean(np.square(wrong), axis=0))


def kept(problem, rng, draws, runs):
    """Return error over error asked for: reported, true, and the spread over the pilot runs."""
    lengths = [round(draws * factor) for factor in LENGTHS]
    curves = np.array([fresh_runs(problem, rng, length, runs) for length in lengths])
    asked = curves[LENGTHS.index(1), 0] / 2
    named = []
    for _ in range(runs):
        posterior, scores = draw(problem, rng, draws)
        target = dict(zip(problem.labels, asked))
        table = az_cv.draws_needed(
            posterior, mcse=target, scores=scores, progressbar=False, check=False
        )
        named.append(table["draws"].to_numpy() / CHAINS)
    log_named = np.log(named)
    at = [
        [
            np.interp(log_named[:, k], np.log(lengths), np.log(curves[:, which, k]))
            for k in range(len(asked))
        ]
        for which in (0, 1)
    ]
    ratios = np.array(at) - np.log(asked)[:, None]
    return np.exp(np.median(ratios[0])), np.exp(np.median(ratios[1])), ratios[0].std(axis=1).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=200, help="of each chain of a pilot run")
    parser.add_argument("--runs", type=int, default=6, help="pilot runs, and runs of each length")
    parser.add_argument("--only", nargs="+", default=POSTERIORS, choices=POSTERIORS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # short runs have warnings of their own
    print("| posterior | quantities | reported error | true error | pilots differ |")
    print("|---|---|---|---|---|")
    for name in options.only:
        problem = PROBLEMS[name]()
        rng = np.random.default_rng(1)
        reported, true, spread = kept(problem, rng, options.draws, options.runs)
        row = f"{len(problem.labels)} | {reported:.2f} | {true:.2f} | {spread:.0%}"
        print(f"| {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
