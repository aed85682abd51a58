"""What a table costs as the number of its quantities grows.

    python examples/benchmarks/many_quantities.py [--quantities 10 250 1000]

Seven parameters, logarithms of gamma variables mixed linearly; 4 x 1000 independent draws; each
quantity is a probability that depends on all parameters, as predictions for rows of data do. Every
size runs in a process of its own. Seconds are those of the processor, of ``summary`` alone, and of
ArviZ's plain table of the same quantities for comparison.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time

import numpy as np
import xarray as xr

D, SHAPE = 7, 5.0


def posterior(quantities: int) -> tuple[xr.Dataset, xr.Dataset]:
    """Return draws of the parameters and of the quantities, and scores."""
    import az_cv

    rng = np.random.default_rng(0)
    mixing = np.eye(D) + 0.3 * rng.normal(size=(D, D))
    logs = np.log(rng.gamma(SHAPE, size=(4, 1000, D)))
    x = logs @ mixing.T
    scores = (SHAPE - np.exp(logs)) @ np.linalg.inv(mixing)
    slopes = rng.normal(size=(D, quantities))
    chance = 1 / (1 + np.exp(-0.3 * x @ slopes))
    data = {"x": (("chain", "draw", "k"), x), "chance": (("chain", "draw", "row"), chance)}
    return xr.Dataset(data), az_cv.scores_dataset(x, scores)


def measure(quantities: int) -> tuple[float, float, float]:
    """Return processor seconds of summary and of the plain table, and the median gain."""
    import az_cv
    from az_cv.containers.idata import plain_summary

    data, scores = posterior(quantities)
    warm, warm_scores = posterior(1)  # imports and compilation
    few = {"draw": slice(None, 50)}
    az_cv.summary(warm.isel(few), scores=warm_scores.isel(few), progressbar=False)
    began = time.process_time()
    plain_summary(data["chance"].values, None, None)
    plain, began = time.process_time() - began, time.process_time()
    table = az_cv.summary(data, scores=scores, progressbar=False, round_to="none")
    return time.process_time() - began, plain, float(table["vrf_mean"].median())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quantities", type=int, nargs="+", default=[10, 250, 1000])
    options = parser.parse_args()
    print("| quantities | seconds | times the first | plain table | median gain |")
    print("|---|---|---|---|---|")
    first = None
    for count in options.quantities:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds, plain, gain = pool.apply(measure, (count,))
        first = first or seconds
        print(f"| {count} | {seconds:.1f} | {seconds / first:.1f} | {plain:.1f} | {gain:.2g} |")


if __name__ == "__main__":
    main()
