"""Draws that `az_cv.draws_needed` names, against the error that so many draws give.

    python examples/benchmarks/draws_needed.py

For each posterior the error to reach is half of what a pilot run gives. Several pilot runs each
name a number of draws. Fresh runs of several lengths, on targets whose means are known, say which
error so many draws give: a line through the logarithms of the standard errors that az_cv reports,
and one through those of the root mean square of its true errors. The table has the ratio of both to
the error asked for, 1 where the promise is kept, and how far the pilot runs differ from each other.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
import scipy.special
import xarray as xr

import az_cv

sys.path.insert(0, str(Path(__file__).parents[1] / "calibration"))
from targets import PROBLEMS, Problem

CHAINS = 4
DIMENSIONS = 10
LENGTHS = (1, 1.5, 2.25)  # of fresh runs, in pilot runs


def functions(x):
    return np.column_stack([x[:, 0], x.mean(axis=1), x[:, 0] ** 2, np.tanh(x).sum(axis=1)])


def product(sample, score, mean, square, tanh):
    """Return ten independent variables, each with these moments."""
    truth = np.array([mean, mean, square, DIMENSIONS * tanh])
    labels = ["x1", "mean of x", "x1 squared", "sum of tanh x"]
    return Problem(sample, score, None, functions, labels, truth, np.full(4, np.nan))


def logistic_variables():
    return product(
        lambda rng, n: rng.logistic(size=(n, DIMENSIONS)),
        lambda x: -np.tanh(x / 2),
        0.0,
        np.pi**2 / 3,
        0.0,
    )


def log_gamma_variables(shape=2.0):
    mean, variance = scipy.special.digamma(shape), scipy.special.polygamma(1, shape)
    x = np.linspace(-30, 6, 400_001)
    weight = np.exp(shape * x - np.exp(x))
    return product(
        lambda rng, n: np.log(rng.gamma(shape, size=(n, DIMENSIONS))),
        lambda x: shape - np.exp(x),
        mean,
        variance + mean**2,
        float(weight @ np.tanh(x) / weight.sum()),
    )


POSTERIORS = {
    "ten logistic variables": logistic_variables,
    "ten logarithms of Gamma variables": log_gamma_variables,
    "eight schools": PROBLEMS["eight-schools"],
}


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
    """Return the logarithm of the reported error of each mean, and of the true one, on average."""
    reported, wrong = [], []
    for _ in range(runs):
        posterior, scores = draw(problem, rng, draws)
        found = az_cv.fit(posterior, scores=scores, progressbar=False, check=False).estimates
        found = found.to_dataarray("quantity")
        reported.append(found.sel(summary="mcse_mean").values)
        wrong.append(found.sel(summary="mean").values - problem.mean)
    return np.log(reported).mean(axis=0), np.log(np.mean(np.square(wrong), axis=0)) / 2


def kept(problem, rng, draws, runs):
    """Return error over error asked for: reported, true, and the spread over the pilot runs."""
    lengths = np.array([round(draws * factor) for factor in LENGTHS])
    found = np.array([fresh_runs(problem, rng, length, runs) for length in lengths])
    lines = [np.polyfit(np.log(lengths), found[:, which], 1) for which in (0, 1)]
    asked = np.exp(lines[0][0] * np.log(draws) + lines[0][1]) / 2
    ratios = []
    for _ in range(runs):
        posterior, scores = draw(problem, rng, draws)
        target = dict(zip(problem.labels, asked))
        table = az_cv.draws_needed(
            posterior, mcse=target, scores=scores, progressbar=False, check=False
        )
        named = np.log(table["draws"].to_numpy() / CHAINS)
        ratios.append([slope * named + level - np.log(asked) for slope, level in lines])
    ratios = np.array(ratios)
    return (*np.exp(np.median(ratios, axis=(0, 2))), ratios[:, 0].std(axis=0).mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=150, help="of each chain of a pilot run")
    parser.add_argument("--runs", type=int, default=8, help="pilot runs, and runs of each length")
    parser.add_argument("--only", nargs="+", default=list(POSTERIORS), choices=list(POSTERIORS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # short runs have warnings of their own
    print("| posterior | quantities | reported error | true error | pilots differ |")
    print("|---|---|---|---|---|")
    for name in options.only:
        problem = POSTERIORS[name]()
        rng = np.random.default_rng(2)
        reported, true, spread = kept(problem, rng, options.draws, options.runs)
        row = f"{len(problem.labels)} | {reported:.2f} | {true:.2f} | {spread:.0%}"
        print(f"| {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
