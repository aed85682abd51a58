"""What a fit costs, in units of one Cholesky factorisation of the same size.

    python examples/benchmarks/engine_cost.py [--sizes 1000 2000 4000 8000] [--d 10] [--outputs 20]

For each number of draws: seconds of ``scipy.linalg.cho_factor`` on an n x n float64 matrix, seconds
of ``az_cv.fit(..., family="auto")`` in the same process, their ratio, seconds of another question
about the same draws, and the peak memory; then the exponents with which both grow. Half of the
outputs are first moments of which az_cv also estimates the sd, so that `outputs` right-hand sides
are solved for.
"""

import argparse
import itertools
import resource
import time

import numpy as np
import scipy.linalg
import xarray as xr

import az_cv


def correlated_banana(n, d, rng):
    """Return draws and scores of a bent, correlated target: nothing is exact on it."""
    z = rng.normal(size=(n, d))
    x = z.copy()
    x[:, 1:] += 0.3 * (z[:, :1] ** 2 - 1)
    straight = x[:, 1:] - 0.3 * (x[:, :1] ** 2 - 1)
    first = -x[:, :1] + 0.6 * x[:, :1] * straight.sum(axis=1, keepdims=True)
    return x, np.hstack([first, -straight])


def seconds(function, repeats):
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def cholesky_seconds(n, repeats, rng):
    matrix = rng.normal(size=(n, n))
    matrix = matrix + matrix.T
    matrix[np.diag_indices(n)] += 4 * n
    return seconds(lambda: scipy.linalg.cho_factor(matrix), repeats)


def measure(n, d, outputs, repeats):
    rng = np.random.default_rng(n)
    cholesky = cholesky_seconds(n, repeats, rng)
    x, s = correlated_banana(n, d, rng)
    shape = (4, n // 4, -1)
    scores = az_cv.scores_dataset(x.reshape(shape), s.reshape(shape))
    values = np.stack([np.exp(0.3 * x[:, j % d]) for j in range(outputs // 2)], axis=1)
    posterior = xr.Dataset({"f": (("chain", "draw", "k"), values.reshape(shape))})

    def first():
        az_cv.clear_cache()
        az_cv.fit(posterior, scores=scores)

    def another():
        az_cv.fit(posterior, lambda p: np.sin(p["f"].isel(k=slice(3))), scores=scores)

    return cholesky, seconds(first, repeats), seconds(another, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 2000, 4000, 8000])
    parser.add_argument("--d", type=int, default=10)
    parser.add_argument("--outputs", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    print(f"d = {args.d}, {args.outputs} outputs, best of {args.repeats}")
    print(
        f"{'n':>6s}{'cho_factor s':>14s}{'fit s':>9s}{'ratio':>8s}{'second s':>10s}{'faster':>8s}"
        f"{'peak MB':>9s}{'matrix MB':>11s}"
    )
    rows = []
    for n in args.sizes:
        cholesky, fit, another = measure(n, args.d, args.outputs, args.repeats)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rows.append((n, cholesky, fit))
        size = n * n * 8 / 2**20
        print(
            f"{n:6d}{cholesky:14.3f}{fit:9.2f}{fit / cholesky:8.1f}{another:10.2f}"
            f"{fit / another:8.1f}{peak:9.0f}{size:11.0f}",
            flush=True,
        )
    for (n1, c1, f1), (n2, c2, f2) in itertools.pairwise(rows):
        step = np.log(n2 / n1)
        print(
            f"from {n1} to {n2}: fit grows as n^{np.log(f2 / f1) / step:.2f}, "
            f"cho_factor as n^{np.log(c2 / c1) / step:.2f}"
        )


if __name__ == "__main__":
    main()
