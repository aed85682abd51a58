"""Draws that `az_cv.draws_needed` names, against the error that so many draws give.

    python examples/benchmarks/draws_needed.py

Runs of independent draws, on targets whose means are known, are cut into pilot runs. For
each quantity the error to reach is half of what pilot runs give on average. Each pilot run names a
number of draws for it. The fits to whole runs, to pilot runs and to parts of these say which error
a number of draws gives: averages of the logarithms of the standard errors that az_cv reports, and
root mean squares of its true errors, with straight lines between their logarithms. The table has
both for the numbers that were named, in multiples of the error asked for: 1 where the promise is
kept. It also has how far pilot runs differ from each other.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
import scipy.special
import xarray as xr

import az_cv
from az_cv.draws_needed import extrapolate, parts_of_run

sys.path.insert(0, str(Path(__file__).parents[1] / "calibration"))
from targets import PROBLEMS, Problem

CHAINS = 4
DIMENSIONS = 10
REPORTED, WRONG = 0, 1


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


HELD_OUT = {
    "ten logistic variables": logistic_variables,
    "ten logarithms of Gamma variables": log_gamma_variables,
    "eight schools": PROBLEMS["eight-schools"],
}
SETTLED_ON = {name: PROBLEMS[name] for name in ("location-scale", "logistic", "banana")}


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


def errors(problem, posterior, scores, part):
    """Return the reported error of each mean of some draws, and the true one."""
    found = az_cv.fit(
        posterior.isel(draw=part), scores=scores.isel(draw=part), progressbar=False, check=False
    )
    found = found.estimates.to_dataarray("quantity")
    return found.sel(summary="mcse_mean").values, found.sel(summary="mean").values - problem.mean


def fit_runs(problem, rng, draws, runs, cut):
    """Return the errors of each run, and of each pilot run with its parts."""
    whole, pilots = [], []
    for _ in range(runs):
        posterior, scores = draw(problem, rng, cut * draws)
        whole.append(errors(problem, posterior, scores, slice(None)))
        for start in range(0, cut * draws, draws):
            parts = [start + part for part in parts_of_run(draws)]
            pilots.append([errors(problem, posterior, scores, part) for part in parts])
    return np.array(whole), np.array(pilots)


def curves(whole, pilots, draws, cut):
    """Return numbers of draws, and the logarithms of reported and of true error there."""
    counts = np.array([len(part) for part in parts_of_run(draws)])
    fits = {n: np.concatenate(list(pilots[:, counts == n].swapaxes(0, 1))) for n in set(counts)}
    fits[cut * draws] = whole
    sizes = sorted(fits)
    reported = np.array([np.log(fits[n][:, REPORTED]).mean(axis=0) for n in sizes])
    true = np.array([np.log(np.square(fits[n][:, WRONG]).mean(axis=0)) / 2 for n in sizes])
    return np.log(sizes), reported, true


def read_off(sizes, curve, number):
    """Return the curve at a number for each column, beyond its end along the last piece."""
    slope = (curve[-1] - curve[-2]) / (sizes[-1] - sizes[-2])
    inside = np.array([np.interp(x, sizes, column) for x, column in zip(number, curve.T)])
    return inside + slope * np.maximum(number - sizes[-1], 0)


def kept(problem, rng, draws, runs, cut):
    """Return error over error asked for: reported, true, and the spread over the pilot runs."""
    whole, pilots = fit_runs(problem, rng, draws, runs, cut)
    sizes, *both = curves(whole, pilots, draws, cut)
    asked = both[REPORTED][np.flatnonzero(sizes == np.log(draws))[0]] - np.log(2)
    counts = np.array([len(part) for part in parts_of_run(draws)])
    ratios = []
    for pilot in pilots:
        _, named = extrapolate(counts, pilot[:, REPORTED], np.exp(asked))
        ratios.append([read_off(sizes, curve, np.log(named)) - asked for curve in both])
    ratios = np.array(ratios)
    spread = ratios[:, REPORTED].std(axis=0).mean()
    # Quantities of one pilot run are alike, so the pilot runs are what is drawn again.
    medians = [np.median(rng.choice(ratios[:, REPORTED], size=len(ratios))) for _ in range(1000)]
    return (*np.exp(np.median(ratios, axis=(0, 2))), np.std(medians), spread)


def main():
    posteriors = HELD_OUT | SETTLED_ON
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=150, help="of each chain of a pilot run")
    parser.add_argument("--runs", type=int, default=8, help="each cut into pilot runs")
    parser.add_argument("--cut", type=int, default=3, help="pilot runs in each run")
    parser.add_argument("--only", nargs="+", default=list(HELD_OUT), choices=list(posteriors))
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # short runs have warnings of their own
    print("| posterior | quantities | reported error | uncertain by | true error | pilots differ |")
    print("|---|---|---|---|---|---|")
    for name in options.only:
        problem = posteriors[name]()
        rng = np.random.default_rng(2)
        reported, true, uncertain, spread = kept(
            problem, rng, options.draws, options.runs, options.cut
        )
        row = (
            f"{len(problem.labels)} | {reported:.2f} | {uncertain:.0%} | {true:.2f} | {spread:.0%}"
        )
        print(f"| {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
