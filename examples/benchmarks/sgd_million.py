"""A million draws in fifty dimensions: seconds and peak memory of training and evaluation.

    python examples/benchmarks/sgd_million.py [--n 1000000] [--d 50] [--cpu-seconds S]

Runs on whatever device JAX sees; with ``--cpu-seconds``, the seconds of the same run on a CPU, the
speed-up is printed. The target is a product of bent pairs, on which no polynomial is exact.
"""

import argparse
import resource
import time

import jax
import numpy as np

from az_cv import SGD, NeuralNetwork
from az_cv.solvers.base import Task
from az_cv.solvers.folds import Folds


def bent_pairs(n, d, rng):
    """Return draws and scores of shape (n, d) in single precision."""
    x = rng.normal(size=(n, d)).astype(np.float32)
    even = x[:, 0::2]
    shift = 0.4 * (even**2 - 1)
    straight = x[:, 1::2].copy()
    x[:, 1::2] += shift
    s = np.empty_like(x)
    s[:, 1::2] = -straight
    s[:, 0::2] = -even + 0.8 * even * straight
    return x, s


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--d", type=int, default=50)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--cpu-seconds", type=float)
    args = parser.parse_args()
    x, s = bent_pairs(args.n, args.d, np.random.default_rng(0))
    outputs = np.concatenate([x[:, :5], x[:, :5] ** 2], axis=1)
    outputs -= outputs.mean(axis=0)
    outputs /= outputs.std(axis=0)
    half = np.arange(args.n // 2, args.n)
    folds = Folds((half,), 0, False, "second half")
    start = time.perf_counter()
    task = Task(x, s, (4, args.n // 4), folds, random_seed=0, progressbar=True)
    network = NeuralNetwork((args.width,))
    (member,) = SGD(num_epochs=args.epochs).prepare(network, task).fit(outputs).members
    seconds = time.perf_counter() - start
    vrf = outputs[half].var(axis=0) / member.adjusted.reshape(args.n, -1)[half].var(axis=0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{jax.default_backend()}: n = {args.n}, d = {args.d}, {args.epochs:g} epochs on half, "
        f"evaluated on the other: {seconds:.1f} s, peak {peak:.2f} GB of host memory (bar 4)"
    )
    print(f"variance reduction: median {np.median(vrf):.0f}, minimum {vrf.min():.0f}")
    if args.cpu_seconds:
        print(f"speed-up over {args.cpu_seconds:.1f} s on a CPU: {args.cpu_seconds / seconds:.1f}")


if __name__ == "__main__":
    main()
