"""Logistic regression on simulated data."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.special

from az_cv.testing.curved import StudentT
from az_cv.testing.target import coordinate_moments

if TYPE_CHECKING:
    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n d"]

# Draws of the proposal among which the largest ratio to the posterior is looked for.
BOUND_DRAWS = 400_000


@dataclass(frozen=True)
class LogisticRegression:
    """Bayesian logistic regression on simulated data, sampled exactly by rejection.

    Expectations come from quadrature up to three dimensions, beyond that from importance sampling
    with 400,000 draws of a Student-t at the mode.

    Parameters
    ----------
    rows, d : int
        Size of the simulated data.
    prior_sd : float
    seed : int
        Seed of the data.
    reference_draws : int
        Draws of the importance sampling.

    See Also
    --------
    az_cv.testing.as_datatree : Draws of it, with their gradients.

    Examples
    --------
    >>> import numpy as np
    >>> from az_cv.testing import LogisticRegression
    >>> target = LogisticRegression(rows=40, d=2)
    >>> target.score(np.zeros((5, 2))).shape
    (5, 2)
    """

    rows: int = 60
    d: int = 3
    prior_sd: float = 1.0
    seed: int = 0
    reference_draws: int = field(default=400_000, repr=False)

    @cached_property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """The design matrix and the outcomes."""
        rng = np.random.default_rng(self.seed)
        design = np.column_stack([np.ones(self.rows), rng.normal(size=(self.rows, self.d - 1))])
        probability = scipy.special.expit(design @ rng.normal(size=self.d))
        return design, (rng.uniform(size=self.rows) < probability).astype(float)

    def log_density(self, x: Matrix) -> Float[np.ndarray, " n"]:
        """Return the log posterior density up to a constant."""
        design, y = self.data
        logits = x @ design.T
        prior = -0.5 * (x**2).sum(axis=1) / self.prior_sd**2
        return logits @ y - np.logaddexp(0, logits).sum(axis=1) + prior

    def score(self, x: Matrix) -> Matrix:
        """Return the gradient of the log density at each row."""
        design, y = self.data
        return (y - scipy.special.expit(x @ design.T)) @ design - x / self.prior_sd**2

    @cached_property
    def _proposal(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Return mode, scale factor and log of the largest ratio of posterior to proposal seen."""
        design, _ = self.data
        mode = np.zeros(self.d)
        for _ in range(50):  # Newton
            p = scipy.special.expit(design @ mode)
            hessian = (design.T * (p * (1 - p))) @ design + np.eye(self.d) / self.prior_sd**2
            mode = mode + np.linalg.solve(hessian, self.score(mode[None])[0])
        factor = 1.1 * np.linalg.cholesky(np.linalg.inv(hessian))
        rng = np.random.default_rng(self.seed + 1)
        z = self._standard_proposal(rng, BOUND_DRAWS)
        return mode, factor, float(self._log_ratio(mode, factor, z).max()) + 0.1

    def _standard_proposal(self, rng: np.random.Generator, n: int) -> Matrix:
        return StudentT(self.d, 8.0).sample(rng, n)

    def _log_ratio(self, mode: np.ndarray, factor: np.ndarray, z: Matrix) -> np.ndarray:
        log_proposal = -0.5 * (8.0 + self.d) * np.log1p((z**2).sum(axis=1) / 8.0)
        return self.log_density(mode + z @ factor.T) - log_proposal

    def sample(self, rng: np.random.Generator, n: int) -> Matrix:
        """Draw n independent samples."""
        mode, factor, bound = self._proposal
        accepted = np.empty((0, self.d))
        while len(accepted) < n:
            z = self._standard_proposal(rng, 2 * n)
            keep = np.log(rng.uniform(size=len(z))) < self._log_ratio(mode, factor, z) - bound
            accepted = np.vstack([accepted, mode + z[keep] @ factor.T])
        return accepted[:n]

    def integrands(self, x: Matrix) -> dict[str, np.ndarray]:
        """Return first and second moments of every coefficient."""
        return coordinate_moments(x)

    def expectations(self) -> dict[str, float]:
        """Return the expectation of each integrand."""
        mode, factor, _ = self._proposal
        if self.d <= 3:
            # The trapezoid rule converges geometrically: the density vanishes at the ends.
            axes = np.meshgrid(*[np.linspace(-9, 9, 73)] * self.d, indexing="ij")
            x = mode + np.column_stack([axis.ravel() for axis in axes]) @ factor.T
            log_weights = self.log_density(x)
        else:
            z = self._standard_proposal(np.random.default_rng(self.seed + 2), self.reference_draws)
            x, log_weights = mode + z @ factor.T, self._log_ratio(mode, factor, z)
        weights = np.exp(log_weights - scipy.special.logsumexp(log_weights))
        return {name: float(weights @ f) for name, f in self.integrands(x).items()}
