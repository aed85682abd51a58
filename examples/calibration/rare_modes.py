"""Errors where few draws lie in a second mode, and few or none between, against the truth.

    python examples/calibration/rare_modes.py [--seeds 50] [--part 0 --parts 4] [--csv FILE]

A cell is a share of the second mode, its distance in sds, the number of dimensions and the draws of
each of four chains. For each the script prints the median gain of the mean, and the root mean
square and the largest of |estimate - truth| / claimed error for the mean and the second moment of
the coordinate along which the modes lie apart, of `az_cv` and of the plain average, and how many
estimates lie beyond six errors where the plain ones do not. Coordinates across have a column of
their own. A mode without draws is unknown to everyone: such replications are counted, and left out.
A draw is in the second mode if it belongs there with a probability above one half.

``--shapes`` has other modes than equal Gaussians. The page on calibration says what was looked at
while the rule was settled. Cells are split over processes or machines with ``--part`` and
``--parts``; ``--read FILE ...`` prints one table of all their results, and ``--by draws d`` one
line for all cells with the same draws and dimensions.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import warnings
from pathlib import Path

import numpy as np

from az_cv.engine.engine import Engine
from az_cv.engine.settings import Settings

CHAINS = 4
SHARES = [0.002, 0.005, 0.01, 0.03, 0.1]
DISTANCES = [4.0, 6.0, 10.0]
DIMENSIONS = [2, 3, 5, 10]
DRAWS = [100, 250, 500, 1000]
# Sds of both modes and their degrees of freedom: Student's t, or a Gaussian.
SHAPES = {
    "gaussian": ((1.0, 1.0), np.inf),
    "wide": ((1.0, 2.0), np.inf),
    "narrow": ((1.0, 0.4), np.inf),
    "student": ((1.0, 1.0), 8.0),
}
FIELDS = ["shape", "share", "distance", "d", "draws", "seed", "seen", "of", "z", "plain_z", "gain"]


def mixture(
    shape: str, share: float, distance: float, d: int, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, int, np.ndarray]:
    """Return draws, scores, the number of draws in the second mode, and mean and second moment."""
    scales, freedom = SHAPES[shape]
    away = np.zeros((2, d))
    away[1, 0] = distance
    which = (rng.uniform(size=n) < share).astype(int)
    tails = np.ones(n) if freedom == np.inf else np.sqrt(rng.chisquare(freedom, n) / freedom)
    x = away[which] + np.array(scales)[which, None] * rng.normal(size=(n, d)) / tails[:, None]
    logs, scores = [], []
    for weight, centre, scale in zip((1 - share, share), away, scales):
        u = (x - centre) / scale
        square = (u**2).sum(axis=1)
        if freedom == np.inf:
            log, slope = -square / 2, np.ones(n)
        else:
            log = -(freedom + d) / 2 * np.log1p(square / freedom)
            slope = (freedom + d) / (freedom + square)
        logs.append(np.log(weight) - d * np.log(scale) + log)
        scores.append(-u * slope[:, None] / scale)
    odds = np.exp(np.stack(logs) - np.max(logs, axis=0))
    odds /= odds.sum(axis=0)
    variance = np.array(scales) ** 2 * (1.0 if freedom == np.inf else freedom / (freedom - 2))
    weights = np.array([1 - share, share])
    truth = np.concatenate([weights @ away, weights @ (away**2 + variance[:, None])])
    return x, np.einsum("kn,knd->nd", odds, np.stack(scores)), int((odds[1] > 0.5).sum()), truth


def replicate(shape: str, share: float, distance: float, d: int, draws: int, seed: int) -> list:
    """Return one row for each of: mean, second moment, and the largest across."""
    rng = np.random.default_rng([seed, d, draws, round(1000 * share), round(distance)])
    x, s, seen, truth = mixture(shape, share, distance, d, CHAINS * draws, rng)
    cell = [shape, share, distance, d, draws, seed, seen]
    if not seen:
        return [[*cell, "unseen", 0.0, 0.0, 1.0]]
    x, s = x.reshape(CHAINS, draws, d), s.reshape(CHAINS, draws, d)
    outputs = np.concatenate([x, x**2], axis=2)
    guide = np.concatenate([x, (x - x.mean(axis=(0, 1))) ** 2], axis=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = Engine(x, s, Settings(), guide=guide).estimate(outputs)
    # Where an estimate is exact, rounding is what remains of both the error and its bar.
    error = np.maximum(found.mcse, 1e-9 * outputs.std(axis=(0, 1)))
    z, plain = (found.mean - truth) / error, (found.plain_mean - truth) / found.plain_mcse
    gain = (found.plain_mcse / error) ** 2
    across = np.delete(np.arange(2 * d), [0, d])
    worst = across[np.argmax(np.abs(z[across]))]
    places = {"mean": 0, "second moment": d, "across": worst}
    return [[*cell, name, z[k], plain[k], gain[k]] for name, k in places.items()]


def table(rows: list[dict], key: list[str]) -> str:
    """Return a line for each cell, or for all that have these in common, in Markdown."""
    lines = [
        f"| {' | '.join(key)} | gain | runs (unseen) | mean: RMS z, plain | "
        "second moment: RMS z, plain | largest z, plain | beyond six | across: largest z |",
        "|" + "---|" * (len(key) + 7),
    ]
    rows = sorted(rows, key=lambda row: [row[k] if k == "shape" else float(row[k]) for k in key])
    for cell, group in itertools.groupby(rows, key=lambda row: tuple(row[k] for k in key)):
        own = list(group)
        unseen = sum(row["of"] == "unseen" for row in own)
        parts = {
            name: np.array(
                [[float(row[k]) for k in FIELDS[-3:]] for row in own if row["of"] == name]
            )
            for name in ("mean", "second moment", "across")
        }
        if not len(parts["mean"]):
            continue
        both = np.abs(np.concatenate([parts["mean"], parts["second moment"]]))
        beyond = int(((both[:, 0] > 6) & (both[:, 1] <= 6)).sum())
        rms = {name: np.sqrt((part**2).mean(axis=0)) for name, part in parts.items()}
        lines.append(
            f"| {' | '.join(map(str, cell))} | {np.median(parts['mean'][:, 2]):.3g} "
            f"| {len(parts['mean']) + unseen} ({unseen}) "
            f"| {rms['mean'][0]:.2f}, {rms['mean'][1]:.2f} "
            f"| {rms['second moment'][0]:.2f}, {rms['second moment'][1]:.2f} "
            f"| {both[:, 0].max():.1f}, {both[:, 1].max():.1f} | {beyond} "
            f"| {np.abs(parts['across'][:, 0]).max():.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=["gaussian"], choices=list(SHAPES))
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES)
    parser.add_argument("--distances", nargs="+", type=float, default=DISTANCES)
    parser.add_argument("--dimensions", nargs="+", type=int, default=DIMENSIONS)
    parser.add_argument("--draws", nargs="+", type=int, default=DRAWS)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--part", type=int, default=0, help="of the cells, from 0 on")
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--read", type=Path, nargs="+", help="results of earlier runs")
    parser.add_argument("--by", nargs="+", default=FIELDS[:5], choices=FIELDS[:5])
    options = parser.parse_args()
    rows = []
    for path in options.read or []:
        with path.open(newline="") as file:
            rows += list(csv.DictReader(file))
    if not options.read:
        cells = itertools.product(
            options.shapes, options.shares, options.distances, options.dimensions, options.draws
        )
        for cell in list(cells)[options.part :: options.parts]:
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                rows += [dict(zip(FIELDS, row)) for row in replicate(*cell, seed)]
            if options.csv:  # what is there is kept if the run is stopped
                with options.csv.open("w", newline="") as file:
                    writer = csv.DictWriter(file, FIELDS)
                    writer.writeheader()
                    writer.writerows(rows)
    print(table(rows, options.by))


if __name__ == "__main__":
    main()
