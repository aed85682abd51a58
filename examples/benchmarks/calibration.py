"""Are the reported errors right? Repeated runs on targets whose expectations are known.

    python examples/benchmarks/calibration.py [--replications 20] [--draws 250]

For every target: the root mean square of (estimate - truth) / reported error over replications and
quantities, for plain averages and for az_cv (1 is right, above is too confident, below wasteful),
the share of 95% intervals that hold the truth, and the ratio of the two mean absolute errors.
Prints a Markdown table.
"""

import argparse
import warnings

import numpy as np

import az_cv
from az_cv.testing import Banana, Funnel, Gaussian, GaussianMixture, StudentT, as_datatree

TARGETS = {
    "Gaussian, d = 5": Gaussian(np.eye(5) + 0.5),
    "mixture of two Gaussians, d = 2": GaussianMixture(d=2, offset=1.2),
    "banana, d = 2": Banana(),
    "funnel, d = 3": Funnel(d=3, scale=0.7),
    "Student t, 7 df, d = 2": StudentT(d=2, freedom=7.0),
    "Student t, 5 df, d = 2": StudentT(d=2, freedom=5.0),
}


def replicate(target, draws, seed):
    data, scores = as_datatree(target, draws=draws, random_seed=seed)
    result = az_cv.fit(data, scores=scores)
    rows = []
    for name, truth in target.expectations().items():
        if name not in result.estimates:
            continue
        read = {
            k: float(result.estimates[name].sel(summary=k)) for k in result.estimates.summary.values
        }
        # Exact estimates are compared at the precision of the truth.
        floor = 1e-12 * max(1.0, abs(truth))
        rows.append(
            [
                (read["plain_mean"] - truth) / read["plain_mcse_mean"],
                (read["mean"] - truth) / max(read["mcse_mean"], floor),
                abs(read["plain_mean"] - truth),
                max(abs(read["mean"] - truth), floor),
            ]
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=20)
    parser.add_argument("--draws", type=int, default=250, help="per chain, of four")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| target | z, plain | z, az_cv | 95% intervals | error, plain / az_cv |")
    print("|---|---|---|---|---|")
    for name, target in TARGETS.items():
        rows = np.array(
            [
                row
                for seed in range(options.replications)
                for row in replicate(target, options.draws, seed)
            ]
        )
        plain, ours = np.sqrt((rows[:, :2] ** 2).mean(axis=0))
        coverage = (np.abs(rows[:, 1]) < 1.96).mean()
        gain = rows[:, 2].mean() / rows[:, 3].mean()
        print(f"| {name} | {plain:.2f} | {ours:.2f} | {coverage:.0%} | {gain:.2g} |", flush=True)


if __name__ == "__main__":
    main()
