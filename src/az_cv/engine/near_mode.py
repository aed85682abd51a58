"""Draws near the mode of a posterior that was never sampled, and the coordinates for their fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from az_cv.engine.laplace import gaussian_at_mode
from az_cv.engine.nested_laplace import NestedGaussian, nested_gaussian

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.engine.laplace import Density

    Draws = Float[np.ndarray, "chain draw d"]
    Values = Float[np.ndarray, "chain draw"]

CLOSE = 0.5  # the share of effective draws from which on the Gaussian at the mode is good enough
# Settled in examples/approximate/hierarchies.py. Few draws do not show what decides the second
# moments of a hierarchy, nor do many where kurtosis is large, as in funnels.
LEAST_DRAWS = 400
LARGEST_KURTOSIS = 7.0


@dataclass(frozen=True)
class DrawsNearMode:
    """Draws near the posterior, and the log density of their proposal.

    Attributes
    ----------
    x : array of shape (chain, draw, d)
    log_proposal : array of shape (chain, draw)
    nested : NestedGaussian or None
        The proposal, unless it is the Gaussian at the mode.
    """

    x: Draws
    log_proposal: Values
    nested: NestedGaussian | None = None

    def standardised(
        self, log_density: Values, gradient: Draws
    ) -> tuple[Draws, Values, Draws, Values]:
        """Return what control variates are fitted to: the draws where they look Gaussian.

        A hierarchy that is Gaussian given its scale bends in the coordinates of its model, and
        hardly in those of its proposal. Log densities of the posterior and of the proposal change
        alike, and importance weights do not change at all. Draws of the Gaussian at the mode stay
        as they are: families standardise them.

        Parameters
        ----------
        log_density, gradient : arrays of shape (chain, draw) and (chain, draw, d)
            Of the posterior at the draws.

        Returns
        -------
        z, log_density, gradient, log_proposal : arrays
        """
        if self.nested is None or not self.nested.is_smooth:
            return self.x, log_density, gradient, self.log_proposal
        flat, shape = (-1, self.x.shape[2]), self.x.shape
        z, slope, change = self.nested.standardised(self.x.reshape(flat), gradient.reshape(flat))
        z, slope, change = z.reshape(shape), slope.reshape(shape), change.reshape(shape[:2])
        return z, log_density + change, slope, self.log_proposal + change


def draws_near_mode(
    density: Density,
    start: Float[np.ndarray, " d"],
    rng: np.random.Generator,
    chains: int,
    draws: int,
) -> DrawsNearMode:
    """Return draws near the posterior.

    They are those of the Gaussian at the mode, or, where these are too far from the posterior and
    others are closer, of Gaussians along one coordinate, if there are enough draws for these.

    Parameters
    ----------
    density : callable
        Maps points of shape (n, d) to log densities and gradients.
    start : array of shape (d,)
        Where the search for the mode begins.
    rng : numpy.random.Generator
    chains, draws : int

    Raises
    ------
    ValueError
        If there is no mode.
    """
    at_mode = gaussian_at_mode(density, start)
    found = DrawsNearMode(*at_mode.sample(rng, chains, draws))
    share = _effective_share(density, found)
    if share >= CLOSE or len(start) < 2 or chains * draws < LEAST_DRAWS:
        return found
    try:
        nested = nested_gaussian(density, at_mode)
    except (ValueError, np.linalg.LinAlgError):
        return found
    if nested.kurtosis > LARGEST_KURTOSIS:
        return found
    other = DrawsNearMode(*nested.sample(rng, chains, draws), nested)
    return other if _effective_share(density, other) > share else found


def _effective_share(density: Density, drawn: DrawsNearMode) -> float:
    """Return the effective share of draws with importance weights; zero where there is none."""
    log_weights = density(drawn.x.reshape(-1, drawn.x.shape[2]))[0] - drawn.log_proposal.ravel()
    log_weights = np.where(np.isfinite(log_weights), log_weights, -np.inf)
    if not np.isfinite(log_weights).any():
        return 0.0
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (weights**2).sum() / weights.size)
