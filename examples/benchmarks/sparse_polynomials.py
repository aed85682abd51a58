"""What sparse polynomials gain in many dimensions, and what they cost.

    python examples/benchmarks/sparse_polynomials.py [--dimensions 20 60 100] [--draws 250 1000]

Logistic regressions on simulated data, eight rows for each coefficient, sampled by Hamiltonian
Monte Carlo in 4 chains. The truth is the average over 50,000 further draws, corrected by
polynomials of their scores. For every number of dimensions and of draws: the median gain in the
means of the coefficients, that in their squares, the RMS of error over reported error, and the CPU
seconds of one fit to both. For polynomials in the first five coefficients a second pair of gains is
that of these five. Prints a Markdown table.
"""

import argparse
import time
import warnings

import numpy as np
import scipy.special

from az_cv import Ensemble, Exact, Polynomial
from az_cv.display.digits import gain_text
from az_cv.engine.engine import run_engine
from az_cv.engine.whitening import fit_whitening
from az_cv.solvers import Lasso, RandomSubsets
from az_cv.testing import LogisticRegression

CHAINS, TRUTH_CHAINS, TRUTH_DRAWS = 4, 500, 100
SECOND_ORDER = 30  # dimensions up to which the truth is corrected by the second order, too
CHOSEN = list(range(5))
CHOICES = {
    "order 1": (Polynomial(1), Exact()),
    "order 2": (Polynomial(2), Exact()),
    "order 2, lasso": (Polynomial(2), Lasso()),
    "order 2, random subsets": (Polynomial(2), RandomSubsets()),
    "order 2 in five": (Polynomial(2, coordinates=CHOSEN), Exact()),
    "order 1, order 2 in five": (
        Ensemble([Polynomial(1), Polynomial(2, coordinates=CHOSEN)]),
        Exact(),
    ),
}


def laplace(target):
    """Return the mode, and a factor of the covariance there."""
    design, _ = target.data
    mode = np.zeros(target.d)
    for _ in range(50):
        p = scipy.special.expit(design @ mode)
        precision = (design.T * (p * (1 - p))) @ design + np.eye(target.d) / target.prior_sd**2
        mode = mode + np.linalg.solve(precision, target.score(mode[None])[0])
    return mode, np.linalg.cholesky(np.linalg.inv(precision))


def sample(target, rng, chains, draws, *, steps=8, length=1.5, warmup=50):
    """Return draws (chain, draw, d) by Hamiltonian Monte Carlo."""
    mode, factor = laplace(target)

    def gradient(z):
        return target.score(mode + z @ factor.T) @ factor

    z = rng.normal(size=(chains, target.d))
    kept = np.empty((chains, draws, target.d))
    for draw in range(-warmup, draws):
        size = length / steps * rng.uniform(0.8, 1.2)  # no orbit closes
        momentum = rng.normal(size=z.shape)
        proposed, p = z, momentum + 0.5 * size * gradient(z)
        for step in range(steps):
            proposed = proposed + size * p
            p = p + (size if step < steps - 1 else 0.5 * size) * gradient(proposed)
        densities = [target.log_density(mode + a @ factor.T) for a in (proposed, z)]
        energy = 0.5 * ((p**2).sum(axis=1) - (momentum**2).sum(axis=1))
        accepted = np.log(rng.uniform(size=chains)) < densities[0] - densities[1] - energy
        z = np.where(accepted[:, None], proposed, z)
        if draw >= 0:
            kept[:, draw] = mode + z @ factor.T
    return kept


def truth(target, rng):
    """Return the means of coefficients and squares, by least squares on features of the scores."""
    x = sample(target, rng, TRUTH_CHAINS, TRUTH_DRAWS).reshape(-1, target.d)
    outputs, whitening = np.hstack([x, x**2]), fit_whitening(x)
    family = Polynomial(2 if target.d <= SECOND_ORDER else 1, degree_scale=1.0)
    features = family.features(whitening.draws(x), whitening.scores(target.score(x)))
    design = np.hstack([np.ones((len(x), 1)), features])
    return np.linalg.solve(design.T @ design, design.T @ outputs)[0]


def cell(estimate, expected, family, seconds):
    """Return gains of means and squares, the RMS of z, and the seconds."""
    gain = (estimate.plain_mcse / estimate.mcse) ** 2
    halves = gain.reshape(2, -1)
    gains = " / ".join(gain_text(np.median(part)) for part in halves)
    if any(getattr(f, "coordinates", None) for f in getattr(family, "members", [family])):
        few = " / ".join(gain_text(np.median(part[CHOSEN])) for part in halves)
        gains += f" ({few})"
    z = (estimate.mean - expected) / estimate.mcse
    return f"{gains}, z {np.sqrt((z**2).mean()):.1f}, {seconds:.1f}&nbsp;s"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[20, 60, 100])
    parser.add_argument("--draws", type=int, nargs="+", default=[250, 1000], help="per chain")
    parser.add_argument("--choices", nargs="+", default=list(CHOICES), choices=list(CHOICES))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| d | draws | " + " | ".join(options.choices) + " |")
    print("|---" * (len(options.choices) + 2) + "|")
    for d in options.dimensions:
        target = LogisticRegression(rows=8 * d, d=d)
        rng = np.random.default_rng(d)
        expected = truth(target, rng)
        everything = sample(target, rng, CHAINS, max(options.draws))
        for draws in options.draws:
            x = everything[:, :draws]
            s = target.score(x.reshape(-1, d)).reshape(x.shape)
            outputs = np.concatenate([x, x**2], axis=-1)
            cells = []
            for family, solver in (CHOICES[name] for name in options.choices):
                start = time.process_time()
                estimate = run_engine(x, s, outputs, family=family, solver=solver).estimate
                cells.append(cell(estimate, expected, family, time.process_time() - start))
            print(f"| {d} | {CHAINS} × {draws} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
