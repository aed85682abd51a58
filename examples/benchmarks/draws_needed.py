"""Draws that `az_cv.draws_needed` names, against the error that so many draws give.

    python examples/benchmarks/draws_needed.py

Runs of independent draws, on targets whose means are known, are cut into pilot runs. For each
quantity the error to reach is half of what pilot runs give on average. Each pilot run names a
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
import scipy.stats
import xarray as xr

import az_cv
from az_cv.draws_needed import UNJUDGED, extrapolate, parts_of_run
from az_cv.engine.settings import Settings
from az_cv.labelled.integrands import evaluate_integrands
from az_cv.labelled.pipeline import fit_integrands, prepare
from az_cv.labelled.stacking import stack
from az_cv.solvers.error_model import ERROR_MODEL

sys.path.insert(0, str(Path(__file__).parents[1] / "calibration"))
sys.path.insert(0, str(Path(__file__).parents[1] / "approximate"))
from posteriors import Regression, RobustRegression
from targets import PROBLEMS, Problem

CHAINS = 4
DIMENSIONS = 10
REPORTED, WRONG, UNWIDENED = 0, 1, 2


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


def regression(target):
    """Return a regression with independent draws: those of a Student t that are not rejected."""
    mode, covariance = target.laplace
    around = scipy.stats.multivariate_t(mode, 1.3 * covariance, df=8, seed=0)

    def log_ratio(x):
        return target.log_density(x) - around.logpdf(x)

    top = log_ratio(around.rvs(200_000)).max() + 0.2

    def sample(rng, n):
        found = np.empty((0, target.d))
        while len(found) < n:
            x = around.rvs(20_000, random_state=rng)
            accepted = np.log(rng.uniform(size=len(x))) < log_ratio(x) - top
            found = np.concatenate([found, x[accepted]])
        return found[:n]

    mean, sd, _ = target.answer
    labels = [f"x{j}" for j in range(target.d)]
    return Problem(sample, target.score, None, lambda x: x, labels, mean, sd)


def shares(sizes=(1.5, 2.0, 3.0, 5.0, 8.0, 1.0, 4.0, 2.5)):
    """Return logarithms of ratios of Dirichlet shares."""
    sizes = np.array(sizes)

    def sample(rng, n):
        # Logarithms of gammas of small sizes, without underflow.
        boost = np.log(rng.uniform(size=(n, len(sizes)))) / sizes
        logs = np.log(rng.gamma(sizes + 1, size=(n, len(sizes)))) + boost
        return logs[:, :-1] - logs[:, -1:]

    def score(x):
        last = np.zeros((len(x), 1))
        return (
            sizes[:-1] - sizes.sum() * scipy.special.softmax(np.hstack([x, last]), axis=1)[:, :-1]
        )

    logs, spread = scipy.special.digamma(sizes), scipy.special.polygamma(1, sizes)
    labels = [f"x{j}" for j in range(len(sizes) - 1)]
    mean, sd = logs[:-1] - logs[-1], np.sqrt(spread[:-1] + spread[-1])
    return Problem(sample, score, None, lambda x: x, labels, mean, sd)


HELD_OUT = {
    "counts": lambda: regression(Regression("negative binomial", 6, 40, 6)),
    "robust regression": lambda: regression(RobustRegression(7, 30, 7)),
    "eight shares": shares,
}
SETTLED_ON = {
    **{name: PROBLEMS[name] for name in ("location-scale", "logistic", "banana", "eight-schools")},
    "ten logistic variables": logistic_variables,
    "ten logarithms of Gamma variables": log_gamma_variables,
    "probit": lambda: regression(Regression("probit", 4, 40, 3)),
    "complementary log-log": lambda: regression(Regression("cloglog", 8, 60, 4)),
    "times": lambda: regression(Regression("exponential", 5, 15, 5)),
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


def errors(problem, posterior, scores, part):
    """Return the reported error of each mean of some draws, the true one, and one not judged."""
    posterior, scores = posterior.isel(draw=part), scores.isel(draw=part)

    def found(settings):
        prepared = prepare(posterior, None, scores, settings)
        integrands = evaluate_integrands(posterior, None, None, None, None).compute()
        return fit_integrands(prepared, stack(integrands)).estimates.to_dataarray("quantity")

    reported = found(Settings(check=False))
    is_judged = posterior.sizes["chain"] * posterior.sizes["draw"] <= ERROR_MODEL.judged_draws
    unjudged = found(Settings(check=False, errors=UNJUDGED)) if is_judged else reported
    wrong = reported.sel(summary="mean").values - problem.mean
    of = {"summary": "mcse_mean"}
    return reported.sel(of).values, wrong, unjudged.sel(of).values


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
        _, named = extrapolate(CHAINS * counts, pilot[:, UNWIDENED], np.exp(asked))
        named = named / CHAINS
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
    print("| posterior | quantities | true error | reported error | uncertain by | pilots differ |")
    print("|---|---|---|---|---|---|")
    for name in options.only:
        problem = posteriors[name]()
        rng = np.random.default_rng(2)
        reported, true, uncertain, spread = kept(
            problem, rng, options.draws, options.runs, options.cut
        )
        row = (
            f"{len(problem.labels)} | {true:.2f} | {reported:.2f} | {uncertain:.0%} | {spread:.0%}"
        )
        print(f"| {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
