"""A linear trend that CmdStan approximates: the model in prophet's wheel, whose answer is known.

``y ~ normal(k t + m + beta x, sigma)`` with normal priors; its executable comes compiled with
prophet. Given sigma the other parameters are Gaussian: a sum over a grid of log(sigma) is exact.
"""

import functools
import importlib.util
import tempfile
from pathlib import Path

import numpy as np
import scipy.special
from posteriors import Target

import az_cv

PRIOR_SDS = np.array([5.0, 5.0, 1.0])  # of k, m, beta
NOISE_SD = 0.5  # of the half-normal prior of sigma
LINEAR = [0, 1, 3]  # where k, m, beta are among the coordinates; log(sigma) is between them


class Trend(Target):
    """The posterior of k, m, log(sigma), beta."""

    d = 4

    def __init__(self, rows=20, seed=0):
        rng = np.random.default_rng(seed)
        t = np.linspace(0, 1, rows)
        self.design = np.column_stack([t, np.ones(rows), np.sin(6 * t)])
        self.y = 1 + t + 0.1 * rng.normal(size=rows)

    def _residuals(self, x):
        return self.y - x[:, LINEAR] @ self.design.T

    def log_density(self, x):
        """Return log densities, up to a constant."""
        log_sigma = x[:, 2]
        squares = (self._residuals(x) ** 2).sum(axis=1) / np.exp(2 * log_sigma)
        prior = ((x[:, LINEAR] / PRIOR_SDS) ** 2).sum(axis=1) + np.exp(2 * log_sigma) / NOISE_SD**2
        return (1 - len(self.y)) * log_sigma - 0.5 * squares - 0.5 * prior

    def score(self, x):
        """Return gradients of the log density."""
        residuals, variance = self._residuals(x), np.exp(2 * x[:, 2])
        gradient = np.empty_like(x)
        gradient[:, LINEAR] = residuals @ self.design / variance[:, None]
        gradient[:, LINEAR] -= x[:, LINEAR] / PRIOR_SDS**2
        gradient[:, 2] = (residuals**2).sum(axis=1) / variance + 1 - len(self.y)
        gradient[:, 2] -= variance / NOISE_SD**2
        return gradient

    @functools.cached_property
    def answer(self):
        """Mean and sd of every coordinate, and the error of the answer in sds."""
        grid = np.linspace(-5, 2, 7001)
        weights, means, variances = [], [], []
        for log_sigma in grid:
            variance = np.exp(2 * log_sigma)
            precision = self.design.T @ self.design / variance + np.diag(PRIOR_SDS**-2.0)
            slope = self.design.T @ self.y / variance
            mean = np.linalg.solve(precision, slope)
            means.append(np.insert(mean, 2, log_sigma))
            variances.append(np.insert(np.diag(np.linalg.inv(precision)), 2, 0.0))
            weights.append(
                (1 - len(self.y)) * log_sigma
                - 0.5 * (self.y @ self.y / variance - slope @ mean + variance / NOISE_SD**2)
                - 0.5 * np.linalg.slogdet(precision)[1]
            )
        weights = scipy.special.softmax(weights)
        mean = weights @ np.array(means)
        sd = np.sqrt(weights @ (np.array(variances) + (np.array(means) - mean) ** 2))
        return mean, sd, 0.0

    @functools.cached_property
    def program(self):
        """CmdStan's model, and the file with its data."""
        import cmdstanpy

        rows = len(self.y)
        data = {"T": rows, "K": 1, "S": 0, "t": self.design[:, 0], "y": self.y}
        data |= {"cap": np.zeros(rows), "t_change": np.zeros(0), "X": self.design[:, 2:]}
        data |= {"sigmas": PRIOR_SDS[2:], "tau": 0.5, "trend_indicator": 0}
        data |= {"s_a": np.ones(1), "s_m": np.zeros(1)}
        path = Path(tempfile.mkdtemp()) / "data.json"
        cmdstanpy.write_stan_json(path, data)
        folder = Path(importlib.util.find_spec("prophet").origin).parent / "stan_model"
        return cmdstanpy.CmdStanModel(exe_file=folder / "prophet_model.bin"), str(path)

    def approximated(self, kind, draws, seed):
        """Return draws of one of CmdStan's approximations, unconstrained, as the variable x."""
        model, data = self.program
        shared = {"data": data, "draws": draws, "seed": seed + 1, "sig_figs": 18}
        if kind == "laplace":
            fit = model.laplace_sample(**shared)
        elif kind == "pathfinder":
            del shared["draws"]  # would be those of resampling; all draws of four paths are wanted
            fit = model.pathfinder(num_single_draws=draws // 4, psis_resample=False, **shared)
        else:
            fit = model.variational(algorithm="fullrank", require_converged=False, **shared)
        found = az_cv.sources.cmdstan_approximation(fit)["posterior"]
        columns = [found["k"], found["m"], np.log(found["sigma_obs"]), found["beta"][..., 0]]
        return np.stack([column.values for column in columns], axis=-1)
