"""Errors with and without worse fits as judges, on regressions that had no part in that rule.

    python examples/calibration/regressions.py [--replications 30]

Draws are those of Hamiltonian chains that are scaled by the Gaussian at the mode. The posteriors
and their answers are those of `examples/approximate/posteriors.py`. The table has the root mean
square of (estimate - truth) / claimed error over means and second moments, the share of 95%
intervals that hold the truth, and the median gain.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from az_cv.engine.engine import Engine
from az_cv.engine.settings import Settings
from az_cv.solvers.error_model import ERROR_MODEL

sys.path.insert(0, str(Path(__file__).parents[1] / "approximate"))
from posteriors import SETTLED

NAMES = (
    "robust, d = 5",
    "logistic, d = 8",
    "probit, d = 4",
    "Poisson, d = 4",
    "exponential, d = 3",
    "exponential, d = 6",
    "log gamma, d = 5",
)
MODELS = {
    "without": replace(ERROR_MODEL, judged_draws=0, judged_least=10**9),
    "with": ERROR_MODEL,
}
STEPS, STEP, WARM_UP = 6, 0.3, 150


def hamiltonian(target, rng, chains, draws):
    """Return draws of shape (chain, draw, d)."""
    mode, covariance = target.laplace
    factor = np.linalg.cholesky(covariance)

    def density(z):
        return target.log_density(mode + z @ factor.T)

    def slope(z):
        return target.score(mode + z @ factor.T) @ factor

    z = rng.normal(size=(chains, target.d))
    found = np.empty((chains, draws, target.d))
    for k in range(-WARM_UP, draws):
        momentum = rng.normal(size=z.shape)
        step = STEP * rng.uniform(0.5, 1.3)
        place, speed = z, momentum
        for _ in range(STEPS):
            speed = speed + 0.5 * step * slope(place)
            place = place + step * speed
            speed = speed + 0.5 * step * slope(place)
        gain = density(place) - density(z) + 0.5 * (momentum**2 - speed**2).sum(axis=1)
        taken = np.log(rng.uniform(size=chains)) < gain
        z = np.where(taken[:, None], place, z)
        if k >= 0:
            found[:, k] = mode + z @ factor.T
    return found


def row(name, draws, replications):
    """Return RMS z, share and gain for each of the models of errors."""
    target, _ = SETTLED[name]
    mean, sd, _ = target.answer
    truth = np.concatenate([mean, sd**2 + mean**2])
    z, gain = {key: [] for key in MODELS}, {key: [] for key in MODELS}
    for seed in range(replications):
        x = hamiltonian(target, np.random.default_rng([seed, draws]), 4, draws)
        s = target.score(x.reshape(-1, target.d)).reshape(x.shape)
        for key, errors in MODELS.items():
            engine = Engine(x, s, Settings(errors=errors))
            estimate = engine.estimate(np.concatenate([x, x**2], axis=2))
            z[key].append((estimate.mean - truth) / estimate.mcse)
            gain[key].append((estimate.plain_mcse / estimate.mcse) ** 2)
    return [
        f"{np.sqrt(np.mean(np.square(z[key]))):.2f}, {np.mean(np.abs(z[key]) < 1.96):.1%}, "
        f"{np.median(gain[key]):.1e}"
        for key in MODELS
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=30)
    parser.add_argument("--draws", type=int, nargs="+", default=[100, 250])
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    options = parser.parse_args()
    print("| posterior | draws | without | with |\n|---|---|---|---|")
    for name in options.only:
        for draws in options.draws:
            cells = " | ".join(row(name, draws, options.replications))
            print(f"| {name} | 4 × {draws} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
