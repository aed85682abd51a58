"""Minibatch training against exact solves of the same problem, and how its cost grows.

    python examples/benchmarks/sgd_vs_exact.py [--large] [--sizes 1000 10000 100000]

For each analytic target, family and ridge: variance of the out-of-fold draws, exact over SGD (bars
for the worst output: 0.9 for polynomials, 0.5 for kernels; outputs that the exact fit leaves with
less than 1e-8 of their variance count as exact). ``--large`` adds order 2 in 61 dimensions, 1952
features, on the NUTS draws of the logistic regression in ``posteriors.py``. Then the seconds that
eight more epochs take, compilation apart.
"""

import argparse
import itertools
import time

import numpy as np
from posteriors import load_draws

from az_cv import SGD, Ensemble, Exact, Kernel, Polynomial
from az_cv.engine.whitening import fit_whitening
from az_cv.solvers.base import Task
from az_cv.solvers.folds import make_folds
from az_cv.testing import Banana, Funnel, GaussianMixture, LogisticRegression, StudentT

RIDGE = 1e-6
EXACT = 1e-8


def prepared(x, s, outputs):
    d = x.shape[2]
    whitening = fit_whitening(x.reshape(-1, d))
    f = outputs.reshape(-1, outputs.shape[2])
    f = (f - f.mean(axis=0)) / f.std(axis=0)
    return whitening.draws(x.reshape(-1, d)), whitening.scores(s.reshape(-1, d)), f


def draws_of(target, n):
    x = target.sample(np.random.default_rng(1), n)
    f = np.stack(list(target.integrands(x).values()), axis=1)
    return tuple(a.reshape(4, n // 4, -1) for a in (x, target.score(x), f))


def ratio(name, family, arrays, ridge=RIDGE):
    x, s, outputs = arrays
    shape = x.shape[:2]
    flat, folds = prepared(x, s, outputs), make_folds("chain", x)
    start = time.perf_counter()
    task = Task(*flat[:2], shape, folds, random_seed=0)
    ((_, exact),) = Exact(ridge=ridge).prepare(family, task).systems.fit(flat[2])
    exact_seconds = time.perf_counter() - start
    start = time.perf_counter()
    solver = SGD(strength=ridge, early_stopping=False)
    (member,) = solver.prepare(family, task).fit(flat[2]).members
    seconds = time.perf_counter() - start
    left, trained = exact.adjusted.var(axis=0), member.adjusted.var(axis=(0, 1))
    ratios = np.maximum(left, EXACT) / np.maximum(trained, EXACT)
    print(
        f"{name:50s} SGD's vrf over Exact's: median {np.median(ratios):.2f}, worst "
        f"{ratios.min():.2f}; {seconds:.0f} s against {exact_seconds:.0f} s",
        flush=True,
    )


def seconds_of(n, num_epochs):
    x, s, f = draws_of(Banana(), n)
    flat, folds = prepared(x, s, f), make_folds(0.5, x)
    start = time.perf_counter()
    solver = SGD(strength=RIDGE, early_stopping=False, batch_size=64, num_epochs=num_epochs)
    task = Task(*flat[:2], x.shape[:2], folds, random_seed=0)
    solver.prepare(Polynomial(2), task).fit(flat[2])
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    args = parser.parse_args()
    for target in (GaussianMixture(), Banana(), Funnel(), StudentT(3), LogisticRegression()):
        arrays, name = draws_of(target, 2000), type(target).__name__
        x, s, _ = prepared(*arrays)
        (kernel,) = Kernel(length_scale=4.0, centres=200).variants(x, s)
        quadratic = Polynomial(2, degree_scale=1.0)
        ratio(f"{name}, polynomial order 1", Polynomial(1), arrays)
        ratio(f"{name}, polynomial order 2", quadratic, arrays)
        ratio(f"{name}, kernel, 200 centres", kernel, arrays)
        ratio(f"{name}, kernel + polynomial", Ensemble([kernel, quadratic]), arrays)
    if args.large:
        x, s = load_draws("logistic", 0)
        family = Polynomial(2, degree_scale=0.1)
        ratio("polynomial order 2, 1952 features", family, (x, s, x), ridge=1.0)
    timed = [(n, seconds_of(n, 12) - seconds_of(n, 4)) for n in args.sizes]
    for (n1, t1), (n2, t2) in itertools.pairwise(timed):
        exponent = np.log(t2 / t1) / np.log(n2 / n1)
        print(f"from n = {n1} ({t1:.2f} s) to {n2} ({t2:.2f} s): seconds grow as n^{exponent:.2f}")


if __name__ == "__main__":
    main()
