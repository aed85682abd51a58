"""A graphics card against the processor: seconds, and whether the numbers are the same.

    python examples/benchmarks/accelerator.py --output card.npz
    JAX_PLATFORMS=cpu taskset -c 0,1 python examples/benchmarks/accelerator.py --output two.npz
    python examples/benchmarks/accelerator.py --compare card.npz two.npz

The first two write what they found, and print the seconds of a first call and of one with other
draws of the same size, when everything is compiled. The third prints the largest difference between
means, and between sds, in units of their standard errors. Draws are independent, so that nothing is
measured but the summary:

* *hierarchy*: 4 x 1000 draws of 85 parameters, of which one governs 83; the default, intervals
  included;
* *one system*: 4 x 5000 draws in ten dimensions, a kernel, one exact system of all draws.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import xarray as xr

import az_cv
from az_cv.families.accelerator import find_accelerator

sys.path.append(str(Path(__file__).parents[1] / "hierarchical"))
from large import CHAINS, DRAWS, posterior_draws


def hierarchy(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return values and errors of the default for 85 parameters."""
    x, s = (part.reshape(CHAINS, DRAWS, -1) for part in posterior_draws(83, seed))
    return answers(az_cv.summary(posterior(x), **asked(x, s)))


def one_system(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return values and errors of one kernel system of 20,000 draws of logarithms of gammas."""
    shape = np.linspace(2.0, 6.0, 10)
    x = np.log(np.random.default_rng(seed).gamma(shape, size=(4, 5000, 10)))
    s = shape - np.exp(x)
    solver = az_cv.Exact(max_draws=20_000)
    table = az_cv.summary(posterior(x), family=az_cv.Kernel(), solver=solver, **asked(x, s))
    return answers(table)


def posterior(x: np.ndarray) -> xr.Dataset:
    return xr.Dataset({"x": (("chain", "draw", "i"), x)})


def asked(x: np.ndarray, s: np.ndarray) -> dict:
    scores = az_cv.scores_dataset(x, s)
    return {"scores": scores, "round_to": "none", "attach": False, "progressbar": False}


def answers(table) -> tuple[np.ndarray, np.ndarray]:
    columns = ["mean", "sd"], ["mcse_mean", "mcse_sd"]
    return tuple(np.asarray(table[names], dtype=float) for names in columns)


CASES = {"hierarchy": hierarchy, "one system": one_system}


def measure(output: Path, only: list[str]) -> None:
    card = find_accelerator()
    print(f"on {card.device.device_kind if card else 'the processor'}", flush=True)
    found = {}
    for name in only:
        seconds = []
        for seed in (1, 2):
            az_cv.clear_cache()
            began = time.perf_counter()
            values, errors = CASES[name](seed)
            seconds.append(time.perf_counter() - began)
        found[f"{name}, values"], found[f"{name}, errors"] = values, errors
        print(f"{name}: first call {seconds[0]:.1f} s, then {seconds[1]:.2f} s", flush=True)
    np.savez(output, **found)


def compare(one: Path, other: Path) -> None:
    first, second = np.load(one), np.load(other)
    for name in CASES:
        if f"{name}, values" in first and f"{name}, values" in second:
            errors = second[f"{name}, errors"]
            apart = np.abs(first[f"{name}, values"] - second[f"{name}, values"]) / errors
            wider = np.abs(first[f"{name}, errors"] / errors - 1)
            print(
                f"{name}: means and sds differ by at most {apart.max():.1e} standard errors, "
                f"standard errors by at most {wider.max():.1%}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--compare", nargs=2, type=Path)
    options = parser.parse_args()
    if options.compare:
        compare(*options.compare)
    elif options.output:
        measure(options.output, options.only)
    else:
        parser.error("nothing to do: give --output or --compare.")


if __name__ == "__main__":
    main()
