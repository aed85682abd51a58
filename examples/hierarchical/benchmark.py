"""Hierarchical models before and after: gains, seconds, and what a summary is worth.

    python examples/hierarchical/benchmark.py [--models ...] [--seeds 0 1 2] [--csv FILE]

For every model and every simulated data set NumPyro samples 4 x 1000 draws, and the default
summarises what a user would report, once without looking for parameters that govern others
("before") and once as it is ("after"). The gain of a quantity is how many times as many draws the
plain average would need. *Worth* is the median gain times the seconds of sampling over the seconds
of the summary: above one, a summary is the cheaper way to the same precision.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import xarray as xr
from models import MODELS, Model

import az_cv
from az_cv.engine import engine

CHAINS, WARMUP, DRAWS = 4, 1000, 1000


def sampler(model: Model) -> Any:
    """Return what samples a model, compiled once for all its runs."""
    from numpyro.infer import MCMC, NUTS

    return MCMC(
        NUTS(potential_fn=lambda theta: -model(theta), target_accept_prob=0.9),
        num_warmup=WARMUP,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )


def sample(model: Model, mcmc: Any, seed: int) -> tuple[np.ndarray, float]:
    """Return draws of shape (chain, draw, d) and the seconds that they took."""
    import jax

    with jax.enable_x64(True):
        start = 0.1 * np.random.default_rng(seed).normal(size=(CHAINS, model.dimension))
        began = time.perf_counter()
        mcmc.run(jax.random.key(seed), init_params=jax.numpy.asarray(start))
        draws = np.asarray(mcmc.get_samples(group_by_chain=True))
        return draws, time.perf_counter() - began


@cache
def compiled(model: Model) -> tuple[Any, Any]:
    """Return gradients and quantities of draws, compiled once for all runs of a model."""
    import jax

    quantities = jax.vmap(lambda theta: model.quantities(model.split(theta)))
    return jax.jit(jax.vmap(jax.grad(model))), jax.jit(quantities)


def posterior_of(model: Model, draws: np.ndarray) -> tuple[xr.Dataset, xr.Dataset]:
    """Return what a user reports, a variable for each group of quantities, and the scores."""
    import jax

    flat = draws.reshape(-1, draws.shape[-1])
    gradients, quantities = compiled(model)
    with jax.enable_x64(True):
        gradient = np.asarray(gradients(flat)).reshape(draws.shape)
        found = quantities(flat)
        groups = {
            group: np.hstack([np.asarray(v).reshape(len(flat), -1) for v in named.values()])
            for group, named in found.items()
        }
    posterior = xr.Dataset(
        {
            group: (("chain", "draw", f"{group}_k"), values.reshape(*draws.shape[:2], -1))
            for group, values in groups.items()
        }
    )
    names = [f"{name}[{k}]" for name, size in model.sizes.items() for k in range(size)]
    return posterior, az_cv.scores_dataset(draws, gradient, parameter_names=names)


def summarise(posterior: xr.Dataset, scores: xr.Dataset, *, hierarchy: bool) -> dict[str, float]:
    """Return median and least gain, those of each group, and seconds."""
    find = engine.global_coordinates if hierarchy else (lambda x, s: ())
    az_cv.clear_cache()
    began = time.perf_counter()
    with warnings.catch_warnings(), patch.object(engine, "global_coordinates", find):
        warnings.simplefilter("ignore")
        found = az_cv.fit(posterior, scores=scores, random_seed=1, progressbar=False).estimates
    row = {"seconds": time.perf_counter() - began}
    gains = {
        f"{group} {statistic}": found[group].sel(summary=f"vrf_{statistic}").values.ravel()
        for group in posterior
        for statistic in ("mean", "sd")
    }
    everything = np.concatenate(list(gains.values()))
    row |= {"median": float(np.median(everything)), "least": float(everything.min())}
    return row | {group: float(np.median(values)) for group, values in gains.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    rows = []
    print("| model | data | | median gain [least] | scales | effects | seconds | worth |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.models:
        for seed in options.seeds:
            model = MODELS[name](seed)
            draws, sampling = sample(model, sampler(model), seed)
            posterior, scores = posterior_of(model, draws)
            for label, hierarchy in (("before", False), ("after", True)):
                row = summarise(posterior, scores, hierarchy=hierarchy)
                worth = row["median"] * sampling / row["seconds"]
                rows.append({"model": name, "data": seed, "default": label, **row, "worth": worth})
                scales, effects = row.get("scales mean", np.nan), row["effects mean"]
                print(
                    f"| {name} | {seed} | {label} | {row['median']:.3g} [{row['least']:.2g}] | "
                    f"{scales:.3g} | {effects:.3g} | {row['seconds']:.0f} | {worth:.3g} |",
                    flush=True,
                )
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
