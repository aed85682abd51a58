"""What is lost, and saved, where the kernel of distances is left out beside a hierarchical one.

    python examples/hierarchical/left_out.py [--draws 1000] [--seeds 0]

The default fits the kernel of distances beside a hierarchical kernel only where that promises
something. Four classes of posteriors with exact independent draws, none of which the rule was
settled on: effects of groups around a population, counts with rates from a population, a funnel,
and a banana. Each summary of all variables and their squares is made twice, by the rule and with
both kernels; gains are those of the means, seconds those of the processor. Where the kernel was
left out is told by the footer's weights of members.
"""

from __future__ import annotations

import argparse
import time
from unittest.mock import patch

import numpy as np
import xarray as xr
from large import posterior_draws

import az_cv
from az_cv.engine import promises

CHAINS = 4
Draws = tuple[np.ndarray, np.ndarray]


def groups(number: int, rng: np.random.Generator) -> Draws:
    """Return effects of 20 groups, with mean and scale of their population."""
    x, s = posterior_draws(20, int(rng.integers(1 << 30)))
    return x.reshape(-1, x.shape[-1])[:number], s.reshape(-1, x.shape[-1])[:number]


def counts(number: int, rng: np.random.Generator) -> Draws:
    """Return log rates of 15 counts, and the log of what scales their gamma distribution."""
    shape = 2.0
    y = rng.poisson(rng.gamma(shape, 1 / 0.4, size=15))
    grid = np.linspace(-6, 4, 8001)
    log_density = grid - np.exp(grid) + shape * len(y) * grid
    log_density -= (shape + y.sum() / len(y)) * len(y) * np.log1p(np.exp(grid))
    share = np.exp(log_density - log_density.max())
    z = rng.choice(grid, size=number, p=share / share.sum())
    z += rng.uniform(-0.5, 0.5, size=number) * (grid[1] - grid[0])
    rate = np.exp(z)[:, None]
    logs = np.log(rng.gamma(shape + y, size=(number, len(y))) / (1 + rate))
    own = shape + y - (1 + rate) * np.exp(logs)
    first = 1 - np.exp(z) + shape * len(y) - np.exp(z) * np.exp(logs).sum(axis=1)
    return np.column_stack([z, logs]), np.column_stack([first, own])


def funnel(number: int, rng: np.random.Generator) -> Draws:
    """Return a scale whose logarithm is normal, and nine variables of that scale."""
    z = rng.normal(size=number)
    x = np.exp(z / 2)[:, None] * rng.normal(size=(number, 9))
    inverse = np.exp(-z)[:, None]
    first = -z + 0.5 * (inverse * x**2 - 1).sum(axis=1)
    return np.column_stack([z, x]), np.column_stack([first, -inverse * x])


def banana(number: int, rng: np.random.Generator) -> Draws:
    """Return a normal variable along whose parabola nine others lie."""
    z = rng.normal(size=(number, 10))
    bent = 0.3 * (z[:, :1] ** 2 - 1)
    first = -z[:, 0] + 0.6 * z[:, 0] * z[:, 1:].sum(axis=1)
    return np.column_stack([z[:, 0], z[:, 1:] + bent]), np.column_stack([first, -z[:, 1:]])


CLASSES = {"groups": groups, "counts": counts, "funnel": funnel, "banana": banana}


def measure(x: np.ndarray, s: np.ndarray) -> tuple[float, float, float, float, float]:
    """Return median and least gain, those of upper ends, processor seconds, and the weight."""
    data = xr.Dataset({"x": (("chain", "draw", "k"), x)})
    scores = az_cv.scores_dataset(x, s)
    az_cv.clear_cache()
    tree = xr.DataTree.from_dict({"posterior": data})
    began = time.process_time()
    table = az_cv.summary(
        tree, lambda post: {"x": post["x"], "square": post["x"] ** 2}, scores=scores
    )
    seconds = time.process_time() - began
    ends = tree["cv_summary"].to_dataset()
    upper = [ends[name].sel(summary="vrf_upper") for name in ends.data_vars]
    gain = table["vrf_mean"]
    return gain.median(), gain.min(), np.nanmedian(upper), seconds, "imq" in table.attrs["family"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--classes", nargs="+", default=list(CLASSES))
    options = parser.parse_args()
    print("| class | seed | kernels | median gain | least | of upper ends | seconds | has weight |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.classes:
        for seed in options.seeds:
            rng = np.random.default_rng(seed)
            x, s = CLASSES[name](CHAINS * options.draws, rng)
            x, s = (one.reshape(CHAINS, options.draws, -1) for one in (x, s))
            for label, factor in (("by the rule", promises.OUTDONE), ("both", np.inf)):
                with patch.object(promises, "OUTDONE", factor):
                    median, least, upper, seconds, used = measure(x, s)
                gains = f"{median:.3g} | {least:.3g} | {upper:.3g}"
                print(f"| {name} | {seed} | {label} | {gains} | {seconds:.1f} | {used} |")


if __name__ == "__main__":
    main()
