"""Variance reduction of networks on two posteriors with 61 and 85 parameters.

    python examples/benchmarks/network_vrf.py [--posteriors logistic hierarchical] [--seeds 0 1 2]

Draws come from NUTS (see ``posteriors.py``), 4 x 1000, made on the first run. For each data set:
median and minimum over first and second moments of every parameter of ``vrf``, plain MCSE^2 over
the new one, with wall-clock and CPU seconds. Bars: ``NeuralNetwork()`` on the logistic regression
at least 25 and 10, ``family="auto"`` on the hierarchical model 200 and 20, each under 180 s.
"""

import argparse
import time

import numpy as np
from posteriors import SEEDS, load_draws

from az_cv import NeuralNetwork
from az_cv.engine.engine import run_engine

CASES = {"logistic": (NeuralNetwork(), 25, 10), "hierarchical": ("auto", 200, 20)}


def measure(name, seed, family):
    x, s = load_draws(name, seed)
    outputs = np.concatenate([x, (x - x.mean(axis=(0, 1))) ** 2], axis=2)
    wall, cpu = time.perf_counter(), time.process_time()
    run = run_engine(x, s, outputs, family=family, random_seed=0)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    vrf = (run.estimate.plain_mcse / run.estimate.mcse) ** 2
    d = x.shape[2]
    shares = {
        label: f"{weights.mean():.0%}"
        for label, weights in run.estimate.weights.items()
        if weights.mean() > 0.005
    }
    return vrf[:d], vrf[d:], wall, cpu, shares


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--posteriors", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--auto", action="store_true", help="family='auto' in every case")
    args = parser.parse_args()
    for name in args.posteriors:
        family, least_median, least = CASES[name]
        family = "auto" if args.auto else family
        for seed in args.seeds:
            first, second, wall, cpu, shares = measure(name, seed, family)
            both = np.concatenate([first, second])
            met = np.median(both) >= least_median and both.min() >= least and wall < 180
            print(
                f"{name} {seed}: median {np.median(both):.0f} (bar {least_median}), minimum "
                f"{both.min():.1f} (bar {least}), {wall:.0f} s, {cpu:.0f} CPU s: "
                f"{'met' if met else 'MISSED'}; medians of first moments {np.median(first):.0f}, "
                f"second {np.median(second):.0f}; {shares}",
                flush=True,
            )


if __name__ == "__main__":
    main()
