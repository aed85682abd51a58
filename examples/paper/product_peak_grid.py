"""The best that the paper's kernel could do on the product peak, chosen in hindsight.

    python examples/paper/product_peak_grid.py [--quick] [--repetitions 8] [--dimensions 5 10 15 20]

The paper's table does not say which estimate its kernels give: the mean over held-out draws, the
constant of the fit to half of the draws, or that of the fit to all. For each of the three the
script prints the smallest mean absolute error over a grid much wider than the paper's.
"""

import argparse
from itertools import product

import numpy as np
from experiment import Alone, median_length_scale, standardise
from genz import product_peak

from az_cv import Exact, Kernel

ALPHA_1 = (1e4, 1e2, 1e1, 1.0, 1e-1, 1e-2, 1e-4)
ALPHA_2_FACTORS = (0.03, 0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 32.0)  # times the median distance
RIDGES = (1e-8, 1e-4, 1e-2)


def first_half(sample):
    """Return the repetition with the first half of its draws."""
    half = sample.x.shape[1] // 2
    return sample._replace(x=sample.x[:, :half], s=sample.s[:, :half], f=sample.f[:, :half])


def smallest_errors(d, repetitions, grid):
    """Return for each way to estimate its smallest error, and the kernel and ridge that have it."""
    samples = [product_peak(d, 1000, seed) for seed in range(repetitions)]
    ways = {
        "mean over the other half": (0.5, lambda sample: sample),
        "constant of half": (None, first_half),
        "constant of all": (None, lambda sample: sample),
    }
    typical = median_length_scale(standardise(samples[0])[0].x[0])
    best = dict.fromkeys(ways, (np.inf, ()))
    for alpha_1, factor, ridge in grid:
        kernel = Kernel("paper", length_scale=factor * typical, alpha_1=alpha_1)
        for way, (folds, part) in ways.items():
            method = Alone(kernel, Exact(ridge=ridge), folds)
            error = np.mean([abs(method(part(sample)) - sample.truth) for sample in samples])
            best[way] = min(best[way], (float(error), (alpha_1, factor, ridge)))
    return best


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two repetitions of three kernels")
    parser.add_argument("--repetitions", type=int, default=8)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[5, 10, 15, 20])
    options = parser.parse_args(argv)
    grid = list(product(ALPHA_1, ALPHA_2_FACTORS, RIDGES))
    repetitions = options.repetitions
    if options.quick:
        grid, repetitions = [(1.0, factor, 1e-8) for factor in (0.5, 1.0, 2.0)], 2
    found = {}
    for d in options.dimensions:
        found[d] = smallest_errors(d, repetitions, grid)
        for way, (error, (alpha_1, factor, ridge)) in found[d].items():
            print(
                f"d = {d:2d}  {way:26s}{error:.1e}  alpha_1 {alpha_1:g}, "
                f"alpha_2 {factor:g} medians, ridge {ridge:g}",
                flush=True,
            )
    return found


if __name__ == "__main__":
    main()
