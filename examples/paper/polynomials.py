"""Experiment 1: sums of coordinates against a standard Gaussian, exact solves against SGD.

    python examples/paper/polynomials.py [--quick] [--repetitions 20] [--output DIR]

f = sum x_j with n = 1000 draws, half of them for training, and f = sum (1 - x_j) with n = 10,000,
nine tenths for training; d from 10 to 200.
"""

import numpy as np
from experiment import (
    Sample,
    arguments,
    compare,
    default,
    paper_methods,
    plain,
    standardise,
    tuned_kernel,
    write,
)

# integrand, draws, share for training, dimensions
SETTINGS = (
    ("sum of x", 1000, 0.5, (10, 50, 100, 200)),
    ("sum of 1 - x", 10_000, 0.9, (10, 50, 100, 200)),
)


def draw(integrand, n, d, seed):
    x = np.random.default_rng(seed).normal(size=(1, n, d))
    shift = d if integrand == "sum of 1 - x" else 0
    f = shift - x.sum(axis=2, keepdims=True) if shift else x.sum(axis=2, keepdims=True)
    return Sample(x, -x, f, np.array([float(shift)]))


def main(argv=None):
    options = arguments(__doc__.splitlines()[0], argv)
    for integrand, n, share, dimensions in SETTINGS:
        if options.quick:
            n, dimensions = 200, dimensions[:1]
        for d in dimensions:
            samples = [draw(integrand, n, d, seed) for seed in range(options.repetitions)]
            tuned = tuned_kernel(standardise(samples[0])[0], share)
            methods = {"plain": plain, "default": default}
            methods |= {
                name: method
                for name, method in paper_methods(
                    tuned, share, kernel_epochs=25 if n <= 1000 else 5
                ).items()
                if "+" not in name
            }
            case = f"{integrand}, d = {d}, n = {n}"
            rows = compare("polynomials", samples, methods, [case], options)
            path = write(rows, "polynomials", options.output)
    return path


if __name__ == "__main__":
    main()
