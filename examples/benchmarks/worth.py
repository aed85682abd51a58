"""Why not just sample longer? Seconds of sampling, of the tables, and what each buys.

    python examples/benchmarks/worth.py [--models ...] [--csv FILE]

For each of eight models NumPyro samples 4 x 1000 draws. The plain table and the table of az_cv are
made from the same draws, each in its first call. The gain is the median over means and sds of all
quantities: how many times as many draws plain averages would need. Sampling on to the same
precision takes the gain times the seconds of sampling, and *worth* is that time over the seconds
of the summary. The seconds of gradients count as seconds of the summary.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import arviz as az
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import az_cv

sys.path.insert(0, str(Path(__file__).parents[1] / "hierarchical"))
from benchmark import posterior_of, sample, sampler
from models import MODELS, Model, Named, half_normal

EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def eight_schools(seed: int) -> Model:
    """Return the eight schools, non-centred; d = 10. The data are what they are."""

    def log_density(p: Named) -> Any:
        tau = 5 * jnp.exp(p["log_tau"])
        return (
            norm.logpdf(p["mu"], 0, 5)
            + half_normal(jnp.exp(p["log_tau"]))
            + norm.logpdf(p["z"]).sum()
            + norm.logpdf(EFFECTS, p["mu"] + tau * p["z"], ERRORS).sum()
        )

    def quantities(p: Named) -> dict[str, Named]:
        tau = 5 * jnp.exp(p["log_tau"])
        return {
            "scales": {"tau": tau},
            "population": {"mu": p["mu"]},
            "effects": {"theta": p["mu"] + tau * p["z"]},
        }

    return Model({"mu": 1, "log_tau": 1, "z": len(EFFECTS)}, log_density, quantities)


def small_regression(seed: int) -> Model:
    """Return a logistic regression of 100 rows on seven features and an intercept; d = 8."""
    rng = np.random.default_rng([seed, 10])
    x = np.column_stack([np.ones(100), rng.normal(size=(100, 7))])
    y = (rng.uniform(size=100) < 1 / (1 + np.exp(-x @ rng.normal(size=8)))).astype(float)

    def log_density(p: Named) -> Any:
        eta = x @ p["beta"]
        return norm.logpdf(p["beta"], 0, 2).sum() + (y * eta - jnp.logaddexp(0.0, eta)).sum()

    def quantities(p: Named) -> dict[str, Named]:
        return {"population": {"beta": p["beta"]}}

    return Model({"beta": 8}, log_density, quantities)


EVERY = {"eight schools": eight_schools, "small logistic regression": small_regression, **MODELS}


def measure(model: Model, seed: int) -> dict[str, float]:
    """Return seconds and the median gain."""
    draws, sampling = sample(model, sampler(model), seed)
    began = time.perf_counter()
    posterior, scores = posterior_of(model, draws)
    gradients = time.perf_counter() - began
    began = time.perf_counter()
    az.summary(posterior)
    plain = time.perf_counter() - began
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = az_cv.summary(posterior, scores=scores, progressbar=False, round_to="none")
    summary = time.perf_counter() - began + gradients
    gain = float(np.median(table[["vrf_mean", "vrf_sd"]]))
    return {
        "d": model.dimension,
        "quantities": len(table),
        "sampling": sampling,
        "plain table": plain,
        "summary": summary,
        "gain": gain,
        "sampling on": gain * sampling,
        "worth": gain * sampling / summary,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(EVERY), choices=list(EVERY))
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.models:
        az_cv.clear_cache()
        rows.append({"model": name, **measure(EVERY[name](0), seed=0)})
        if len(rows) == 1:
            print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
        values = [f"{value:.3g}" for key, value in rows[-1].items() if key != "model"]
        print(f"| {name} | " + " | ".join(values) + " |", flush=True)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
