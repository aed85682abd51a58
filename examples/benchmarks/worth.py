"""Why not just sample longer? Seconds of sampling, of both tables, and what each of them buys.

    python examples/benchmarks/worth.py [--models ...] [--csv FILE]

NumPyro samples each of eight models, 4 x 1000 draws. The plain table and the table of az_cv are
made from the same draws, each in a first call that also compiles. Seconds are processor seconds of
all threads, so that other work on the machine hardly matters.

* *first run* includes compilation and warm-up. *4,000 draws* are further draws from where it
  ended, without either: they are what sampling on costs.
* *plain table* and *summary* are the two tables, the latter with the gradients.
* *gain* is the median over means and sds of all quantities: how many times as many draws plain
  averages would need. *least* is the smallest.
* *sampling on* is the gain times the seconds of 4,000 draws.
* *worth* is that time over the seconds of the summary. Above one, the summary is cheaper.
"""

from __future__ import annotations

import argparse
import csv
import operator
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
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
    """Return the eight schools, non-centred; d = 10. The data are always the same."""

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


def compiled(mcmc: Any) -> Callable[[], Any]:
    """Return what draws on from the end of a run, as many draws again, ready to run."""

    def chain(state: Any) -> Any:
        def step(state: Any, _: None) -> tuple[Any, Any]:
            state = mcmc.sampler.sample(state, (), {})
            return state, state.z

        return jax.lax.scan(step, state, length=mcmc.num_samples)

    ends = [jax.tree.map(operator.itemgetter(k), mcmc.last_state) for k in range(mcmc.num_chains)]
    with jax.enable_x64(True):
        run = jax.jit(chain).lower(ends[0]).compile()
    return lambda: [jax.block_until_ready(run(end)) for end in ends]


def measure(model: Model, seed: int) -> dict[str, float]:
    """Return processor seconds and gains for one model."""
    import arviz as az

    seconds = {}

    def done(name: str) -> None:
        nonlocal began
        now = time.process_time()
        seconds[name] = now - began
        began = now

    # Every model pays for its own compilation, and for nothing that the last one left.
    jax.clear_caches()
    az_cv.clear_cache()
    mcmc = sampler(model)
    began = time.process_time()
    draws, _ = sample(model, mcmc, seed)
    done("first run")
    go_on = compiled(mcmc)
    done("compilation")
    go_on()
    done("4,000 draws")
    posterior, scores = posterior_of(model, draws)
    done("gradients")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        az.summary(posterior)
        done("plain table")
        table = az_cv.summary(posterior, scores=scores, progressbar=False, round_to="none")
        done("summary")
    gains = table[["vrf_mean", "vrf_sd"]].to_numpy(float)
    gain, summary = float(np.median(gains)), seconds["gradients"] + seconds["summary"]
    on = gain * seconds["4,000 draws"]
    # What matters comes first: narrow screens show the first columns.
    return {
        "worth": on / summary,
        "gain": gain,
        "least": float(gains.min()),
        "summary": summary,
        "sampling on": on,
        "4,000 draws": seconds["4,000 draws"],
        "first run": seconds["first run"],
        "plain table": seconds["plain table"],
        "d": model.dimension,
    }


def text(value: float) -> str:
    """Return two digits of a number."""
    return f"{float(f'{value:.2g}'):,.10g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(EVERY), choices=list(EVERY))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.models:
        rows.append({"model": name, **measure(EVERY[name](options.seed), options.seed)})
        if len(rows) == 1:
            print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
        *measured, dimension = list(rows[-1].values())[1:]
        values = [text(value) for value in measured] + [str(dimension)]
        print(f"| {name} | " + " | ".join(values) + " |", flush=True)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
