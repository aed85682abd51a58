"""RMS z and coverage of the default's errors on the short chains of the LIDAR experiment.

    python examples/paper/lidar_errors.py [--quick] [--repetitions 20] [--seed 0]

One MALA chain of 1000 draws (300 to 500 effective ones) sees little of the exponential tail of
phi_1. For every length the script prints the root mean square of (estimate - truth) / reported
error and the share of 95% intervals that hold the truth. The experiment's data have seed 0; other
seeds simulate other data, another posterior.
"""

import argparse
import warnings

import numpy as np
from lidar import FUNCTIONS, SIZES, simulate, thinned

from az_cv import Exact
from az_cv.engine.engine import Engine
from az_cv.engine.settings import Settings


def scores(samples):
    """Return (estimate - truth) / reported error, shape (repetition, function)."""
    z = []
    for one in samples:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no gain: the error is that of the plain average
            settings = Settings(solver=Exact(tune_for="functions"), random_seed=0)
            found = Engine(one.x, one.s, settings).estimate(one.f)
        z.append((found.mean - one.truth) / found.mcse)
    return np.array(z)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two short chains")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the simulated data")
    options = parser.parse_args(argv)
    repetitions = 2 if options.quick else options.repetitions
    chains = simulate(None, repetitions, options.quick, options.seed)
    found = {}
    for n in (100,) if options.quick else SIZES:
        z = found[n] = scores(thinned(chains, n))
        each = ", ".join(f"{name} {r:.2f}" for name, r in zip(FUNCTIONS, root_mean_square(z)))
        print(
            f"n = {n:4d}  RMS z {root_mean_square(z.ravel()):.2f}, 95% intervals "
            f"{(np.abs(z) < 1.96).mean():.0%}  ({each})",
            flush=True,
        )
    return found


def root_mean_square(z):
    return np.sqrt((z**2).mean(axis=0))


if __name__ == "__main__":
    main()
