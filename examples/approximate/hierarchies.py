"""Are errors right for hierarchies without MCMC? Gaussians along the scale, against known answers.

    python examples/approximate/hierarchies.py [--held-out] [--replications 50]

Every replication draws as `az_cv.quick` does, weights the draws with their known
density, and corrects them. z is (estimate - truth) / reported error over coordinates and
replications. Answers are sums over grids: of the scale where the rest is Gaussian given it, of the
scale and the mean where groups are independent given both.
"""

import argparse
import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.special
import xarray as xr
from posteriors import Hierarchy, Target, is_refusal

import az_cv
from az_cv.engine.near_mode import draws_near_mode

DRAWS = 400


@dataclass(eq=False)
class GroupedData(Target):
    """Groups with ``mu + tau z``, not centred, as log rates, logits or locations."""

    kind: str
    groups: int
    trials: int
    seed: int

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        self.d = self.groups + 2
        eta = 0.5 + 0.6 * rng.normal(size=self.groups)
        if self.kind == "Poisson":
            self.y = rng.poisson(self.trials * np.exp(eta)).astype(float)
        elif self.kind == "binomial":
            self.y = rng.binomial(self.trials, scipy.special.expit(eta)).astype(float)
        elif self.kind == "waiting times":  # their sums
            self.y = rng.gamma(self.trials, np.exp(-eta))
        else:  # with four degrees of freedom
            self.y = eta[:, None] + rng.standard_t(4, size=(self.groups, self.trials))

    def _likelihood(self, eta):
        """Return log likelihoods of groups and their slopes."""
        if self.kind == "Poisson":
            rate = self.trials * np.exp(eta)
            return self.y * eta - rate, self.y - rate
        if self.kind == "waiting times":
            passed = self.y * np.exp(eta)
            return self.trials * eta - passed, self.trials - passed
        if self.kind == "Student":
            e = self.y - eta[..., None]
            return -2.5 * np.log1p(e**2 / 4).sum(axis=-1), (5 * e / (4 + e**2)).sum(axis=-1)
        spread = self.trials * np.logaddexp(0, eta)
        return self.y * eta - spread, self.y - self.trials * scipy.special.expit(eta)

    def log_density(self, x):
        """Return log densities, up to a constant."""
        mu, tau, z = x[:, 0], np.exp(x[:, 1]), x[:, 2:]
        value, _ = self._likelihood(mu[:, None] + tau[:, None] * z)
        prior = -0.5 * (z**2).sum(axis=1) - mu**2 / 18 - 0.5 * tau**2 + x[:, 1]
        return value.sum(axis=1) + prior

    def score(self, x):
        """Return gradients of the log density."""
        mu, tau, z = x[:, 0], np.exp(x[:, 1]), x[:, 2:]
        _, slope = self._likelihood(mu[:, None] + tau[:, None] * z)
        of_tau = tau * (slope * z).sum(axis=1) - tau**2 + 1
        return np.column_stack([slope.sum(axis=1) - mu / 9, of_tau, tau[:, None] * slope - z])

    @cached_property
    def answer(self):
        """Mean and sd of every coordinate: given mu and tau the groups are independent."""
        z = np.linspace(-8, 8, 321)
        mu, log_tau = np.linspace(-4, 5, 361), np.linspace(-9, 2.5, 461)
        weights, sums = np.empty((len(log_tau), len(mu))), []
        for k, one in enumerate(log_tau):
            eta = mu[:, None, None] + np.exp(one) * z[:, None]
            value = self._likelihood(eta)[0] - 0.5 * z[:, None] ** 2
            largest = value.max(axis=1, keepdims=True)
            share = np.exp(value - largest)
            total = share.sum(axis=1)
            weights[k] = (np.log(total) + largest[:, 0]).sum(axis=1)
            weights[k] += -(mu**2) / 18 - 0.5 * np.exp(2 * one) + one
            moments = np.einsum("mzg,zp->pmg", share, np.column_stack([z, z**2])) / total
            sums.append(moments)
        weights = np.exp(weights - weights.max())
        weights /= weights.sum()
        first, second = np.einsum("km,kpmg->pg", weights, np.array(sums))
        of_mu, of_tau = weights.sum(axis=0), weights.sum(axis=1)
        mean = np.r_[of_mu @ mu, of_tau @ log_tau, first]
        square = np.r_[of_mu @ mu**2, of_tau @ log_tau**2, second]
        return mean, np.sqrt(square - mean**2), 0.0


@dataclass(eq=False)
class Funnel(Target):
    """Neal's funnel: ``v`` is Gaussian, and the logarithm of the variance of all others."""

    d: int
    spread: float

    def log_density(self, x):
        """Return log densities, up to a constant."""
        v, rest = x[:, 0], x[:, 1:]
        squares = (rest**2).sum(axis=1) * np.exp(-v)
        return -0.5 * (v / self.spread) ** 2 - 0.5 * squares - 0.5 * (self.d - 1) * v

    def score(self, x):
        """Return gradients of the log density."""
        v, rest = x[:, 0], x[:, 1:]
        squares = (rest**2).sum(axis=1) * np.exp(-v)
        first = -v / self.spread**2 + 0.5 * squares - 0.5 * (self.d - 1)
        return np.column_stack([first, -rest * np.exp(-v)[:, None]])

    @cached_property
    def answer(self):
        """Mean and sd of every coordinate, exactly."""
        sd = np.full(self.d, np.exp(self.spread**2 / 4))
        sd[0] = self.spread
        return np.zeros(self.d), sd, 0.0


@dataclass(eq=False)
class Schools(Target):
    """Eight schools, not centred: effects with known errors around a common one."""

    def __post_init__(self):
        self.y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
        self.sd = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
        self.d = 10

    def log_density(self, x):
        """Return log densities, up to a constant."""
        mu, tau, z = x[:, 0], np.exp(x[:, 1]), x[:, 2:]
        e = (self.y - mu[:, None] - tau[:, None] * z) / self.sd
        prior = -(mu**2) / 50 - np.log1p(tau**2 / 25) + x[:, 1]
        return -0.5 * (e**2).sum(axis=1) - 0.5 * (z**2).sum(axis=1) + prior

    def score(self, x):
        """Return gradients of the log density."""
        mu, tau, z = x[:, 0], np.exp(x[:, 1]), x[:, 2:]
        e = (self.y - mu[:, None] - tau[:, None] * z) / self.sd**2
        of_tau = tau * (e * z).sum(axis=1) - 2 * tau**2 / (25 + tau**2) + 1
        return np.column_stack([e.sum(axis=1) - mu / 25, of_tau, tau[:, None] * e - z])

    @cached_property
    def answer(self):
        """Mean and sd of every coordinate: given tau all others are Gaussian."""
        prior = np.diag(np.r_[1 / 25, np.ones(8)])
        logs, means, variances = [], [], []
        for log_tau in np.linspace(-12, 8, 4001):
            design = np.column_stack([np.ones(8), np.exp(log_tau) * np.eye(8)]) / self.sd[:, None]
            precision = design.T @ design + prior
            mean = np.linalg.solve(precision, design.T @ (self.y / self.sd))
            odds = 0.5 * (design.T @ (self.y / self.sd)) @ mean
            odds -= 0.5 * np.linalg.slogdet(precision)[1]
            logs.append(odds - np.log1p(np.exp(2 * log_tau) / 25) + log_tau)
            means.append(np.insert(mean, 1, log_tau))
            variances.append(np.insert(np.diag(np.linalg.inv(precision)), 1, 0.0))
        weights, means = scipy.special.softmax(logs), np.array(means)
        mean = weights @ means
        return mean, np.sqrt(weights @ (np.array(variances) + (means - mean) ** 2)), 0.0


# What was settled was settled on the first, and judged once on the second.
SETTLED = {
    "normal, 4 groups of 1": Hierarchy(4, 1, 14),
    "normal, 5 groups of 40": Hierarchy(5, 40, 19),
    "normal, 7 groups of 2": Hierarchy(7, 2, 20),
    "normal, 10 groups of 4": Hierarchy(10, 4, 13),
    "funnel, d = 4, sd 1": Funnel(4, 1.0),
    "funnel, d = 5, sd 3": Funnel(5, 3.0),
}
HELD_OUT = {
    "Poisson, 5 groups of 3": GroupedData("Poisson", 5, 3, 41),
    "Poisson, 10 groups of 10": GroupedData("Poisson", 10, 10, 42),
    "binomial, 6 groups of 15": GroupedData("binomial", 6, 15, 43),
    "binomial, 12 groups of 40": GroupedData("binomial", 12, 40, 44),
    "eight schools": Schools(),
    "waiting times, 8 groups of 5": GroupedData("waiting times", 8, 5, 45),
    "Student, 6 groups of 6": GroupedData("Student", 6, 6, 46),
}


def replicate(target, draws, seed, family="auto"):
    """Return errors in sds with reported ones for means and sds, or None where it was refused."""

    def density(points):
        return target.log_density(points), target.score(points)

    rng = np.random.default_rng(seed)
    drawn = draws_near_mode(density, np.zeros(target.d), rng, 4, draws // 4)
    value, score = density(drawn.x.reshape(-1, target.d))
    value, score = value.reshape(drawn.log_proposal.shape), score.reshape(drawn.x.shape)
    z, log_density, score, log_proposal = drawn.standardised(value, score)
    scores = az_cv.scores_dataset(z, score, log_density=log_density)
    coords = {dim: scores[dim] for dim in ("chain", "draw")}
    weights = xr.DataArray(log_density - log_proposal, coords, dims=("chain", "draw"))
    try:
        result = az_cv.fit(
            {"x": drawn.x}, scores=scores, family=family, log_weights=weights, progressbar=False
        )
    except ValueError as refusal:
        if not is_refusal(refusal):
            raise
        return None
    mean, sd, _ = target.answer
    found = result.estimates["x"]
    rows = {of: found.sel(summary=of).values for of in ("mean", "sd", "mcse_mean", "mcse_sd")}
    return {
        "mean": ((rows["mean"] - mean) / sd, rows["mcse_mean"] / sd),
        "sd": ((rows["sd"] - sd) / sd, rows["mcse_sd"] / sd),
        "plain": (found.sel(summary="plain_mean").values - mean) / sd,
    }


def line(name, found, draws):
    """Return one row of the table for means, and one for sds."""
    kept = [one for one in found if one is not None]
    for of in ("mean", "sd"):
        cells = [name, str(draws), f"{len(found) - len(kept)} of {len(found)}", of]
        if not kept:
            yield [*cells, *["–"] * 5]
            continue
        error, reported = np.array([one[of] for one in kept]).swapaxes(0, 1)
        plain = np.array([one["plain"] for one in kept])
        z = error / reported
        yield [
            *cells,
            f"{np.sqrt((plain**2).mean()):.1e}" if of == "mean" else "–",
            f"{np.sqrt((error**2).mean()):.1e}",
            f"{np.sqrt((z**2).mean()):.2f}",
            f"{(np.abs(z) < 1.96).mean():.0%}",
            f"{np.abs(z).max():.1f}",
        ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=50)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--family", default="auto", help="of control variates")
    parser.add_argument("--only", nargs="*", help="names of targets")
    parser.add_argument("--held-out", action="store_true", help="targets that settled nothing")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    columns = "target|draws|refused|of|weighted average|error|RMS z|within 95%|largest z".split("|")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name, target in (HELD_OUT if options.held_out else SETTLED).items():
        if not options.only or name in options.only:
            draws, family, seeds = options.draws, options.family, range(options.replications)
            found = [replicate(target, draws, seed, family) for seed in seeds]
            for cells in line(name, found, draws):
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
