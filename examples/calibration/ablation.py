"""What does each rule of the error bars do? Each is switched off in turn.

    python examples/calibration/ablation.py [--replications 30] [--processes 2] [--csv FILE]

For every cell (target, kind of draws) and every rule the script prints the root mean square of
(estimate - truth) / claimed error and the share of 95% intervals that hold the truth, over means
and sds together, and the median gain. The first row of a cell has every rule. All rows of a cell
see the same draws. At the end comes the table of the page on calibration: for each group of cells
the largest RMS z and the smallest coverage, and the geometric mean over all cells of the gain
relative to that with every rule. ``--read FILE`` prints that of earlier results.
"""

from __future__ import annotations

import argparse
import copy
import csv
import math
import warnings
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import patch

import numpy as np
from calibrate import draws_of
from targets import PROBLEMS

from az_cv.engine import engine, errors
from az_cv.engine.engine import Engine
from az_cv.engine.settings import Settings
from az_cv.labelled.pipeline import standard_deviation
from az_cv.solvers.base import Member
from az_cv.solvers.error_model import ERROR_MODEL
from az_cv.solvers.linear import exact, linear_fit

# Target, kind of draws, chains, draws per chain.
CELLS = [
    ("genz", "iid", 4, 250),
    ("banana", "iid", 4, 250),
    ("banana", "nuts", 4, 250),
    ("banana", "nuts", 1, 500),
    ("location-scale", "nuts", 4, 250),
    ("location-scale", "nuts", 1, 500),
    ("heavy-tails", "iid", 4, 250),
    ("heavy-tails", "nuts", 4, 250),
    ("logistic", "nuts", 4, 250),
    ("eight-schools", "nuts", 4, 250),
    ("eight-schools", "nuts", 1, 500),
    ("modes-1", "iid", 4, 250),
    ("modes-2", "iid", 4, 250),
    ("modes-5", "iid", 4, 250),
    ("rare-mode-2", "iid", 4, 250),
]
GROUPS = {
    "independent draws": lambda target, draws: "iid" in draws and "mode" not in target,
    "NUTS, four chains": lambda target, draws: "nuts 4" in draws,
    "NUTS, one chain": lambda target, draws: "nuts 1" in draws,
    "several modes": lambda target, draws: "mode" in target,
}
FOREVER = math.inf
# Each rule by itself: worse fits as judges would make up for what another rule leaves out.
UNJUDGED = replace(ERROR_MODEL, judged_draws=0, judged_least=10**9)


def no_shift_of_extremes(factor, projected, *others):
    """Return the shift by radius alone: that of each output's own extremes has many factors."""
    if factor.ndim == 3:
        return np.zeros(len(projected))
    return SHIFT(factor, projected, *others)


def whole_shift(factor, projected, weights, left, outskirts):
    """Return the shift itself, not counted from that of the plain average."""
    return SHIFT(factor, projected, weights, 0 * left, outskirts)


def without_change(label, fit, task):
    """Return the member without the error that runs, left out, add to single draws."""
    found = MEMBER(label, fit, task)
    return Member(
        label, found.estimate, found.adjusted, exact.tail_error(fit, task.errors, task.x.shape[1])
    )


SHIFT, MEMBER = linear_fit._shift, exact.member_from_fit
# A rule is switched off by other constants, or by another function in place of one.
RULES = {
    "no credit for negative autocorrelation": {"efficiency": FOREVER},
    "Student's t": [(errors, "_t_factor", lambda freedom, level: 1.0)],
    "credit for the largest residuals": {"largest": 1},
    "error beyond the draws": [
        (exact, "tail_error", lambda fit, model, d: np.zeros(len(fit.intercept)))
    ],
    "its shift": [(linear_fit, "_shift", lambda factor, projected, *_: np.zeros(len(projected)))],
    "its shift by each output's extremes": [(linear_fit, "_shift", no_shift_of_extremes)],
    "its shift counted from the plain one": [(linear_fit, "_shift", whole_shift)],
    "its shift by more than a few": {"discount": (0.0, 0.0)},
    "its discount": {"discount": (1.0, 1.0)},
    "its visits": {"visits_needed": FOREVER},
    "its share of few draws": {"outermost_share": (1, 1)},
    "its quadrature error": {"quadrature": 1e300},
    "runs of ten autocorrelation times": {"run_times": 1},
    "runs at all": {"independence": FOREVER},
    "what leaving out runs changes": [(exact, "member_from_fit", without_change)],
    "credibility": {"incredible": (FOREVER, FOREVER), "incredible_alone": (FOREVER, FOREVER)},
    "more credit for close fits": {"close": 0.0},
    "disagreement": {"comparable": 0.0},
    "hopeless members left out": {"hopeless": 1e3},  # with more the weights cannot be found
    "gaps in one dimension": [
        (engine, "gap_error", lambda x, s, outputs, model: np.zeros(outputs.shape[1]))
    ],
}
FOLDS = ("run_times", "independence")  # constants that need new factorisations


def with_errors(original: Engine, model) -> Engine:
    """Return an engine that has the factorisations of another and its own error model."""
    other = copy.copy(original)
    other.settings = replace(original.settings, errors=model)
    other._fitters = []
    for fitter in original._fitters:
        systems = copy.copy(fitter.systems)
        systems.task = replace(systems.task, errors=model)
        other._fitters.append(exact.Solved(systems))
    return other


def estimates(prepared: Engine, values: np.ndarray) -> np.ndarray:
    """Return mean, its error, its gain, sd, its error, its gain, each in a row."""
    centre = values.mean(axis=(0, 1))
    moments = np.concatenate([values, (values - centre) ** 2], axis=2)
    found, k = prepared.estimate(moments), values.shape[2]
    spread = standard_deviation(found, moments, centre)
    gain = (found.plain_mcse / found.mcse)[:k] ** 2
    return np.stack([found.mean[:k], found.mcse[:k], gain, spread.value, spread.mcse, spread.vrf])


def replicate(job: tuple[str, np.ndarray, list[str]]) -> np.ndarray:
    """Return z and gain of means and sds under every rule, shape (1 + rules, 2, 2 q)."""
    name, x, rules = job
    problem = PROBLEMS[name]()
    flat = x.reshape(-1, x.shape[-1])
    values = problem.functions(flat).reshape(*x.shape[:2], -1)
    s = problem.score(flat).reshape(x.shape)
    centred = values - values.mean(axis=(0, 1))
    guide = np.concatenate([values, centred**2], axis=2)
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = Engine(x, s, Settings(errors=UNJUDGED), guide=guide)
        for rule in [None, *rules]:
            change = RULES[rule] if rule else {}
            with ExitStack() as stack:
                prepared = whole
                if isinstance(change, list):
                    for module, function, other in change:
                        stack.enter_context(patch.object(module, function, other))
                elif change:
                    model = replace(UNJUDGED, **change)
                    prepared = (
                        Engine(x, s, Settings(errors=model), guide=guide)
                        if any(constant in FOLDS for constant in change)
                        else with_errors(whole, model)
                    )
                mean, mcse, gain, sd, mcse_sd, gain_sd = estimates(prepared, values)
            # Where an estimate is exact, rounding is what remains of both the error and its bar.
            exactly = 1e-9 * problem.sd
            z = (mean - problem.mean) / np.maximum(mcse, exactly)
            z_sd = (sd - problem.sd) / np.maximum(mcse_sd, exactly)
            rows.append([np.concatenate([z, z_sd]), np.concatenate([gain, gain_sd])])
    return np.array(rows)


def table(rows: list[dict[str, str]]) -> str:
    """Return the results in Markdown, one line for each rule."""
    lines = [f"| without | {' | '.join(GROUPS)} | gain |", "|---|" + "---|" * (len(GROUPS) + 1)]
    rules = list(dict.fromkeys(row["without"] for row in rows))
    gains = {
        rule: np.array([float(row["median_gain"]) for row in rows if row["without"] == rule])
        for rule in rules
    }
    for rule in rules:
        cells = [rule]
        for belongs in GROUPS.values():
            own = [
                row
                for row in rows
                if row["without"] == rule and belongs(row["target"], row["draws"])
            ]
            largest = max(float(row["rms_z"]) for row in own)
            smallest = min(float(row["coverage"].rstrip("%")) for row in own)
            cells.append(f"{largest:.3g}, {smallest:.0f}%")
        ratio = np.exp(np.log(gains[rule] / gains[rules[0]]).mean())
        lines.append(f"| {' | '.join(cells)} | {ratio:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=list(RULES))
    parser.add_argument("--replications", type=int, default=30)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--read", type=Path, help="results of an earlier run")
    options = parser.parse_args()
    if options.read:
        with options.read.open(newline="") as file:
            print(table(list(csv.DictReader(file))))
        return
    rows = []
    print("| target | draws | without | RMS z | 95% intervals | worst z | median gain |")
    print("|---|---|---|---|---|---|---|")
    for name, kind, chains, draws in CELLS:
        if name not in options.targets:
            continue
        problem = PROBLEMS[name]()
        x = draws_of(problem, kind, chains, draws, options.replications, options.seed)
        jobs = [(name, one, options.rules) for one in x]
        with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
            found = np.stack(list(pool.map(replicate, jobs)))
        for k, rule in enumerate(["nothing", *options.rules]):
            z, gain = np.abs(found[:, k, 0]), found[:, k, 1]
            row = {
                "target": name,
                "draws": f"{kind} {chains} x {draws}",
                "without": rule,
                "rms_z": f"{np.sqrt((z**2).mean()):.3g}",
                "coverage": f"{(z < 1.96).mean():.1%}",
                "worst_z": f"{z.max():.1f}",
                "median_gain": f"{np.median(gain):.3g}",
            }
            rows.append(row)
            print("| " + " | ".join(row.values()) + " |", flush=True)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    print("\n" + table(rows))


if __name__ == "__main__":
    main()
