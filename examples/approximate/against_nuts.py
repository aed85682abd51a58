"""A posterior without MCMC, against NUTS: errors and seconds, each in a process of its own.

    python examples/approximate/against_nuts.py [--replications 5] [--new] [--family auto]

Four regressions whose answers are known (`posteriors.py`), written in PyMC. `az_cv.quick` finds the
mode, draws near it and corrects the draws: 248 of them, or 400 for hierarchies, with one kernel
unless another family is asked for. NUTS is PyMC's own, 4 x 1000 draws after 1000 steps of warm-up
on two cores, with plain averages. Seconds count from the model to the table. They include
compilation, and leave out the loading of packages. PyMC's compiler has a cache on disk, which is
warm for both after the first replication: the table has medians. With ``--new`` the cache of every
run has met the other three regressions, and not this one: that is what a model takes that the user
has just written. Errors are root mean squares over coordinates and replications, in posterior sds.
Processor seconds are those of all processes; other work on the machine does not change them much.
``--rows`` has other data, of so many rows: the more of them, the longer NUTS takes, while most of
the seconds of `quick` are for compilation whatever the data.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
from posteriors import Hierarchy, Regression, RobustRegression, is_refusal


def targets(rows):
    """Return the regressions, with so many rows of data each; none stands for few."""
    return {
        "logistic, d = 8": Regression("logistic", 8, rows or 120, 2),
        "Poisson, d = 4": Regression("Poisson", 4, rows or 40, 3),
        "robust, d = 5": RobustRegression(5, rows or 40, 4),
        "hierarchical, d = 7": Hierarchy(5, rows or 40, 19),
    }


def draws_for(target):
    """Return how many draws are taken near the mode of a target."""
    return 400 if isinstance(target, Hierarchy) else 248


def pymc_model(target):
    """Return the target as a model of PyMC; its parameters in order, unconstrained."""
    import pymc as pm

    with pm.Model() as model:
        if isinstance(target, Regression):
            x = pm.Normal("x", 0, target.prior_sd, shape=target.d)
            means = pm.math.dot(target.design, x)
            if target.kind == "logistic":
                pm.Bernoulli("y", logit_p=means, observed=target.y)
            else:
                pm.Poisson("y", pm.math.exp(means), observed=target.y)
        elif isinstance(target, RobustRegression):
            x = pm.Normal("x", 0, 5, shape=target.d - 1)
            scale = pm.HalfNormal("scale", 2)
            means = pm.math.dot(target.design, x)
            pm.StudentT("y", target.freedom, means, sigma=scale, observed=target.y)
            pm.Deterministic("log_scale", pm.math.log(scale))
        else:
            mu = pm.Normal("mu", 0, 3)
            tau = pm.HalfNormal("tau", 1)
            z = pm.Normal("z", 0, 1, shape=target.groups)
            pm.Normal("y", mu + tau * z, np.sqrt(target.variance), observed=target.y)
            pm.Deterministic("log_tau", pm.math.log(tau))
    return model


def rows_of(target):
    """Return which rows of a table are the coordinates of the target."""
    if isinstance(target, Regression):
        return [f"x[{k}]" for k in range(target.d)]
    if isinstance(target, RobustRegression):
        return [*(f"x[{k}]" for k in range(target.d - 1)), "log_scale"]
    return ["mu", "log_tau", *(f"z[{k}]" for k in range(target.groups))]


def processor_seconds():
    """Return what this process and those it started have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run(target, way, seed, draws, family):
    """Return seconds, processor seconds and estimates, None for these where it was refused."""
    import arviz
    import pymc as pm
    import xarray as xr

    import az_cv

    warnings.simplefilter("ignore")
    xr.Dataset({"x": ("row", np.zeros(1))})  # xarray loads Dask with its first data
    assert az_cv.quick and az_cv.sources.laplace_draws  # names of az_cv are loaded when asked for
    started, used = time.perf_counter(), processor_seconds()

    def spent():
        return time.perf_counter() - started, processor_seconds() - used

    model = pymc_model(target)
    if way == "quick":
        try:
            table = az_cv.quick(
                model, num_draws=draws, family=family, random_seed=seed, round_to="none"
            )
        except ValueError as refusal:
            if not is_refusal(refusal):
                raise
            return *spent(), None
    else:
        with model:
            data = pm.sample(1000, chains=4, cores=2, random_seed=seed, progressbar=False)
        table = arviz.summary(data, round_to="none")
    seconds = spent()
    return *seconds, [float(value) for value in table.loc[rows_of(target), "mean"]]


def in_own_process(name, way, seed, options, cache=None):
    """Return what `run` returns, with PyTensor's cache in a folder, or where it usually is."""
    command = [sys.executable, __file__, "--one", name, way, str(seed)]
    command += ["--family", options.family]
    command += ["--draws", str(options.draws)] if options.draws else []
    command += ["--rows", str(options.rows)] if options.rows else []
    flags = {"PYTENSOR_FLAGS": f"base_compiledir={cache}"} if cache else {}
    environment = os.environ | flags
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(output.stdout.splitlines()[-1])


def as_new(name, way, seed, options, others):
    """Return what `run` returns with a copy of a cache that has not met the model."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(others, folder, dirs_exist_ok=True)
        return in_own_process(name, way, seed, options, folder)


def meet_others(name, options, cache):
    """Fill a cache with all models but one."""
    for other in targets(options.rows):
        for way in ("nuts", "quick"):
            if other != name:
                in_own_process(other, way, 0, options, cache)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=5)
    parser.add_argument("--draws", type=int, help="near the mode, as many for every target")
    parser.add_argument("--family", default="kernel", help="of control variates")
    parser.add_argument("--rows", type=int, help="of data")
    parser.add_argument(
        "--new", action="store_true", help="to the compiler, which has met the other models"
    )
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, way, seed = options.one
        target = targets(options.rows)[name]
        draws = options.draws or draws_for(target)
        print(json.dumps(run(target, way, int(seed), draws, options.family)))
        return
    columns = (
        "regression|NUTS: error, seconds, processor|quick: the same|error|time|processor|refused"
    )
    print(f"| {columns.replace('|', ' | ')} |\n{'|---' * 7}|")
    for name, target in targets(options.rows).items():
        mean, sd, _ = target.answer
        found = {"nuts": [], "quick": []}
        with tempfile.TemporaryDirectory() as others:
            if options.new:
                meet_others(name, options, others)
            for seed in range(options.replications):
                for way, results in found.items():
                    one = (name, way, seed, options)
                    results.append(as_new(*one, others) if options.new else in_own_process(*one))
        cells, kept = [], {}
        for way, results in found.items():
            errors = [(np.array(at) - mean) / sd for *_, at in results if at is not None]
            error = np.sqrt(np.mean(np.square(errors))) if errors else np.nan
            wall, processor = np.median([one[:2] for one in results], axis=0)
            kept[way] = error, wall, processor
            cells.append(f"{error:.1e}" if errors else "–")
            cells[-1] += f", {wall:.1f} s, {processor:.1f} s"
        smaller, shorter, less = (kept["nuts"][k] / kept["quick"][k] for k in range(3))
        refused = sum(at is None for *_, at in found["quick"])
        cells.append(f"{smaller:.3g} times smaller" if np.isfinite(smaller) else "–")
        cells += [f"{shorter:.1f} times shorter", f"{less:.1f} times less"]
        print(f"| {name} | {' | '.join(cells)} | {refused} of {len(found['quick'])} |", flush=True)


if __name__ == "__main__":
    main()
