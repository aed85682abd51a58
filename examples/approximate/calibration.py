"""Are errors of approximate draws right? Gaussians at modes, against answers that are known.

For every target: draws of the Gaussian at its mode, weighted by their known density, or taken as
they are with ``draws="approximate"``. z is (estimate - truth) / reported error over coordinates and
replications; refusals are counted, and have no z. With --tails a second table has the z of all
means by the Pareto k of their weighted residuals.

    python examples/approximate/calibration.py --replications 50
"""

import argparse
import warnings
from itertools import pairwise

import numpy as np
import xarray as xr
from posteriors import HELD_OUT, SETTLED, is_refusal

import az_cv
from az_cv.engine.tails import tail_exponents

ROUTES = ("weights", "approximate")
TAILS = (-np.inf, 0.5, 0.7, 1.0, 1.5, np.inf)  # Pareto k


def replicate(target, draws, seed, route, family):
    """Return errors in sds with reported ones for means and sds, or None where it was refused."""
    mode, covariance = target.laplace
    noise = np.random.default_rng(seed).normal(size=(4, draws // 4, target.d))
    x = mode + noise @ np.linalg.cholesky(covariance).T
    flat = x.reshape(-1, target.d)
    density = target.log_density(flat).reshape(x.shape[:2])
    scores = az_cv.scores_dataset(x, target.score(flat).reshape(x.shape), log_density=density)
    options = {"draws": "approximate"}
    if route == "weights":
        log_weights = density + 0.5 * (noise**2).sum(axis=2)
        coords = {dim: scores[dim] for dim in ("chain", "draw")}
        options = {"log_weights": xr.DataArray(log_weights, coords, dims=("chain", "draw"))}
    try:
        result = az_cv.fit({"x": x}, scores=scores, family=family, progressbar=False, **options)
    except ValueError as refusal:
        if not is_refusal(refusal):
            raise
        return None
    mean, sd, _ = target.answer
    rows = {name: result.estimates["x"].sel(summary=name).values for name in ("mean", "sd")}
    errors = {name: result.estimates["x"].sel(summary=f"mcse_{name}").values for name in rows}
    plain = result.estimates["x"].sel(summary="plain_mean").values
    return {
        "mean": ((rows["mean"] - mean) / sd, errors["mean"] / sd),
        "sd": ((rows["sd"] - sd) / sd, errors["sd"] / sd),
        "plain": ((plain - mean) / sd, errors["mean"]),
        "tails": tail_exponents(result.draws["x"].values),
    }


def lines(name, draws, route, found):
    """Return one row of the table for means, and one for sds."""
    kept = [one for one in found if one is not None]
    refused = 1 - len(kept) / len(found)
    for what in ("mean", "sd"):
        cells = [name, str(draws), route, what, f"{refused:.0%}"]
        if not kept:
            yield [*cells, *["–"] * 5]
            continue
        error, reported = np.array([one[what] for one in kept]).swapaxes(0, 1)
        plain = np.array([one["plain"][0] for one in kept])
        gain = np.sqrt((plain**2).mean() / (error**2).mean()) if what == "mean" else np.nan
        z = error / reported
        yield [
            *cells,
            f"{np.sqrt((error**2).mean()):.1e}",
            f"{gain:.0f}" if np.isfinite(gain) else "–",
            f"{np.sqrt((z**2).mean()):.2f}",
            f"{(np.abs(z) < 1.96).mean():.0%}",
            f"{np.abs(z).max():.1f}",
        ]


def by_tails(found):
    """Return rows of z of means, by the Pareto k of what they are averages of."""
    kept = [one for one in found if one is not None]
    z = np.concatenate([np.divide(*one["mean"]) for one in kept])
    exponents = np.concatenate([one["tails"] for one in kept])
    for low, high in pairwise(TAILS):
        part = z[(exponents > low) & (exponents <= high)]
        if len(part):
            within = (np.abs(part) < 1.96).mean()
            spread = np.sqrt((part**2).mean())
            yield [f"{low:g} to {high:g}", str(len(part)), f"{spread:.2f}", f"{within:.0%}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=50)
    parser.add_argument("--only", nargs="*", help="names of targets")
    parser.add_argument("--held-out", action="store_true", help="targets that settled nothing")
    parser.add_argument("--routes", nargs="*", default=ROUTES, choices=ROUTES)
    parser.add_argument("--draws", type=int, help="as many for every target")
    parser.add_argument("--tails", action="store_true", help="a second table, by Pareto k")
    parser.add_argument("--family", default="auto", help="of control variates")
    options = parser.parse_args()
    columns = "target|draws|route|of|refused|error|against IS|RMS z|within 95%|worst z".split("|")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    everything = []
    warnings.simplefilter("ignore")
    for name, (target, draws) in (HELD_OUT if options.held_out else SETTLED).items():
        if options.only and name not in options.only:
            continue
        draws = options.draws or draws
        for route in options.routes:
            found = [
                replicate(target, draws, seed, route, options.family)
                for seed in range(options.replications)
            ]
            everything += found
            for cells in lines(name, draws, route, found):
                print(f"| {' | '.join(cells)} |", flush=True)
    if not options.tails:
        return
    print("\n| Pareto k of residuals | means | RMS z | within 95% |\n|---|---|---|---|")
    for cells in by_tails(everything):
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
