"""What the first summary of a posterior costs, with stored gradients and without.

    python examples/benchmarks/first_call.py

Stored gradients: ``summary`` of eight schools, 4 x 1000 draws, against the plain table and one
Cholesky factorisation of a 4000 x 4000 matrix, with every choice left to the package, with a kernel
whose length scale and ridge are given, and with polynomials; then a second question about the same
draws. Without them: scores of 4,000 draws of a hierarchical PyMC model with 100 parameters,
compilation included.
"""

import time

import arviz as az
import numpy as np
import scipy.linalg
import xarray as xr

import az_cv
from az_cv.containers.idata import get_group

GROUPS = 48


def seconds(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def stored_gradients():
    data = az_cv.load_eight_schools()
    posterior = get_group(data, "posterior")
    matrix = np.eye(4000) + 1e-4
    az.summary(posterior)  # imports
    table, _ = seconds(lambda: az.summary(posterior))
    factorisation, _ = seconds(lambda: scipy.linalg.cho_factor(matrix))
    print(f"plain table {table:.2f} s, Cholesky {factorisation:.2f} s")
    given = az_cv.Ensemble([az_cv.Polynomial(2), az_cv.Kernel(length_scale=8.0)], semi_exact=True)
    choices = {
        "polynomials": {"family": az_cv.Polynomial(2)},
        "kernel with given settings": {"family": given, "solver": az_cv.Exact(ridge=1e-8)},
        "first call": {},
    }
    for name, chosen in choices.items():
        first, _ = seconds(lambda chosen=chosen: az_cv.summary(data, attach=False, **chosen))
        print(f"{name} {first:.2f} s, {first / (table + factorisation):.1f} times both (bar 3)")
    second, _ = seconds(
        lambda: az_cv.summary(data, lambda posterior: posterior["tau"] ** 2, attach=False)
    )
    print(f"second question {second:.2f} s, {first / second:.1f} times faster (bar 5)")


def hierarchical_scores():
    import pymc as pm

    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(GROUPS), 5)
    x = rng.normal(size=len(group))
    y = rng.normal(size=len(group)) + rng.normal(size=GROUPS)[group]
    with pm.Model() as model:
        centre = pm.Normal("centre", 0, 2, shape=2)
        sd = pm.HalfNormal("sd", 1, shape=2)
        intercept = pm.Normal("intercept", centre[0], sd[0], shape=GROUPS)
        slope = pm.Normal("slope", centre[1], sd[1], shape=GROUPS)
        pm.Normal("y", intercept[group] + slope[group] * x, 1.0, observed=y)
        prior = get_group(pm.sample_prior_predictive(4000, random_seed=0), "prior")
    # Gradients cost the same wherever they are evaluated.
    chains = {
        name: (
            ("chain", "draw", *values.dims[2:]),
            values.values.reshape(4, 1000, *values.shape[2:]),
        )
        for name, values in prior.data_vars.items()
    }
    data = xr.DataTree.from_dict({"posterior": xr.Dataset(chains)})
    elapsed, scores = seconds(lambda: az_cv.scores(data, model=model, progressbar=False))
    size = scores["gradient"].sizes["unconstrained_parameter"]
    print(f"scores of 4,000 draws of {size} parameters: {elapsed:.1f} s (bar 10)")


if __name__ == "__main__":
    stored_gradients()
    hierarchical_scores()
