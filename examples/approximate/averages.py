"""Are errors of weighted averages right? Importance sampling alone, without control variates.

Gaussians at the modes of posteriors with known answers, weighted with their density. z is
(average - truth) / error for squares of standardised coordinates, with the error that the scatter
shows, and with the one that `az_cv` reports, which is wider where tails are heavy. Runs with fewer
effective draws than are needed do not count.

    python examples/approximate/averages.py
"""

import argparse

import numpy as np
from posteriors import HELD_OUT, MANY_ROWS, SETTLED, Hierarchy

from az_cv.engine.errors import plain_standard_error
from az_cv.engine.weighted import DOUBT, influence_draws, unseen_tail
from az_cv.labelled.weights import LEAST

MOST = 10  # parameters


def replicate(target, draws, seed):
    """Return z of averages of squares, without and with wider errors; None without draws."""
    mode, covariance = target.laplace
    noise = np.random.default_rng(seed).normal(size=(4, draws // 4, target.d))
    x = mode + noise @ np.linalg.cholesky(covariance).T
    density = target.log_density(x.reshape(-1, target.d)).reshape(noise.shape[:2])
    log_weights = density + 0.5 * (noise**2).sum(axis=2)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    if 1 / (weights**2).sum() < LEAST * draws:
        return None
    mean, sd, _ = target.answer
    squares = ((x - mean) / sd) ** 2
    found = influence_draws(squares, weights[..., None])
    average = found.mean(axis=(0, 1))
    scatter = plain_standard_error(found)
    hidden = DOUBT * np.abs(average - squares.mean(axis=(0, 1)))
    alone = np.hypot(scatter, hidden)
    return (average - 1) / np.stack([alone, np.hypot(alone, unseen_tail(found))])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=100)
    parser.add_argument("--only", nargs="*", help="names of targets")
    options = parser.parse_args()
    columns = "target|draws|scatter alone: RMS z|within 95%|reported: RMS z|within 95%".split("|")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name, (target, draws) in {**SETTLED, **HELD_OUT}.items():
        is_far = isinstance(target, Hierarchy) or target.d > MOST
        if (options.only and name not in options.only) or is_far or draws > MANY_ROWS:
            continue
        found = [replicate(target, draws, seed) for seed in range(options.replications)]
        z = np.concatenate([one for one in found if one is not None], axis=1)
        rms, inside = np.sqrt((z**2).mean(axis=1)), (np.abs(z) < 1.96).mean(axis=1)
        cells = [f"{a:.2f} | {b:.0%}" for a, b in zip(rms, inside)]
        print(f"| {name} | {draws} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
