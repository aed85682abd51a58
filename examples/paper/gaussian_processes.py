"""Experiment 3: realisations of a Gaussian process, integrated against a Gaussian mixture.

    python examples/paper/gaussian_processes.py [--quick] [--repetitions 20] [--output DIR]

Values at the draws and the integral are simulated jointly, so that the truth is known. Every draw
trains (m = n). Objectives: least squares and the variance over pairs. The error grows with the
dimension and falls with the number of draws.
"""

import numpy as np
import scipy.linalg
from experiment import (
    Alone,
    Sample,
    arguments,
    compare,
    default,
    paper_methods,
    plain,
    standardise,
    tuned_kernel,
    write,
)
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from az_cv import SGD, NeuralNetwork

COMPONENTS, AMPLITUDE, LENGTH = 3, 1.0, 1.0
SIZES = (50, 100, 200, 500, 1000)  # in one dimension
DIMENSIONS = (2, 3, 5, 10)  # with 500 draws
KERNEL_EPOCHS = 10


class Mixture:
    """The paper's random mixture: means N(0, 3 I), covariances A'A with A uniform on [0, 1)."""

    def __init__(self, d, rng):
        self.weights = rng.uniform(size=COMPONENTS)
        self.weights /= self.weights.sum()
        self.means = 3**0.5 * rng.normal(size=(COMPONENTS, d))
        factors = rng.uniform(size=(COMPONENTS, d, d))
        # A nearly singular component has scores beyond all bounds.
        self.covariances = factors.transpose(0, 2, 1) @ factors + 0.05 * np.eye(d)

    def sample(self, n, rng):
        """Draw independent samples."""
        which = rng.choice(COMPONENTS, size=n, p=self.weights)
        factors = np.linalg.cholesky(self.covariances)
        noise = rng.normal(size=(n, self.means.shape[1]))
        return self.means[which] + np.einsum("nij,nj->ni", factors[which], noise)

    def score(self, x):
        """Return the gradient of the log density at each row."""
        logs = np.stack(
            [
                np.log(w) + multivariate_normal(m, c).logpdf(x).reshape(len(x))
                for w, m, c in zip(self.weights, self.means, self.covariances)
            ]
        )
        shares = np.exp(logs - logsumexp(logs, axis=0))
        gradients = np.stack(
            [
                -np.linalg.solve(covariance, (x - mean).T).T
                for mean, covariance in zip(self.means, self.covariances)
            ]
        )
        return np.einsum("ln,lnd->nd", shares, gradients)

    def integrated_covariance(self, x):
        """Return the integral of the covariance function over one argument, at each row of x."""
        d = x.shape[1]
        wide = self.covariances + LENGTH**2 * np.eye(d)
        terms = [
            w * multivariate_normal(m, c).pdf(x).reshape(len(x))
            for w, m, c in zip(self.weights, self.means, wide)
        ]
        return AMPLITUDE**2 * (2 * np.pi * LENGTH**2) ** (d / 2) * sum(terms)

    def twice_integrated_covariance(self):
        """Return the integral of the covariance function over both arguments."""
        d = self.means.shape[1]
        total = 0.0
        for w, m, c in zip(self.weights, self.means, self.covariances):
            for v, k, e in zip(self.weights, self.means, self.covariances):
                total += w * v * multivariate_normal(k, c + e + LENGTH**2 * np.eye(d)).pdf(m)
        return AMPLITUDE**2 * (2 * np.pi * LENGTH**2) ** (d / 2) * total


def draw(n, d, seed):
    """Return draws from a random mixture with a random function and its integral."""
    rng = np.random.default_rng([seed, n, d])
    mixture = Mixture(d, rng)
    x = mixture.sample(n, rng)
    covariance = np.empty((n + 1, n + 1))
    differences = x[:, None] - x
    covariance[:n, :n] = AMPLITUDE**2 * np.exp(
        -0.5 * np.einsum("ijd,ijd->ij", differences, differences) / LENGTH**2
    )
    covariance[:n, n] = covariance[n, :n] = mixture.integrated_covariance(x)
    covariance[n, n] = mixture.twice_integrated_covariance()
    # The matrix is singular to rounding: its square root is taken by eigenvalues. The symmetric one
    # does not depend on the signs of the eigenvectors, which differ between machines.
    values, vectors = scipy.linalg.eigh(covariance)
    joint = vectors @ (np.sqrt(np.maximum(values, 0)) * (vectors.T @ rng.normal(size=n + 1)))
    return Sample(x[None], mixture.score(x)[None], joint[None, :n, None], joint[n:])


def methods_for(sample):
    tuned = tuned_kernel(standardise(sample)[0])
    methods = {"plain": plain, "default": default}
    for objective, label in (("least_squares", "J_LS"), ("variance", "J_V")):
        found = paper_methods(
            tuned,
            None,
            network=NeuralNetwork(widths=(50, 50)),
            kernel_epochs=KERNEL_EPOCHS,
            objective=objective,
        )
        for name in ("polynomial, SGD", "kernel, SGD", "network, SGD"):
            methods[f"{name}, {label}"] = found[name]
    methods["kernel, linear system"] = found["kernel, linear system"]
    methods["kernel, preconditioned SGD"] = Alone(
        tuned.kernel, SGD(strength=tuned.ridge), None, tuned.seconds
    )
    return methods


def main(argv=None):
    options = arguments(__doc__.splitlines()[0], argv)
    cells = [(n, 1) for n in SIZES] + [(500, d) for d in DIMENSIONS]
    if options.quick:
        cells = [(50, 1), (60, 2)]
    for n, d in cells:
        samples = [draw(n, d, seed) for seed in range(options.repetitions)]
        case = f"n = {n}, d = {d}" if d == 1 else f"d = {d}, n = {n}"
        rows = compare("gaussian_processes", samples, methods_for(samples[0]), [case], options)
        path = write(rows, "gaussian_processes", options.output)
    return path


if __name__ == "__main__":
    main()
