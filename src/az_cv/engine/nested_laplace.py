"""Gaussians along one coordinate: where the Gaussian at the mode is too far from a hierarchy.

Given the logarithm of its scale, the other coordinates of a hierarchy are close to Gaussian, and
may be all but fixed where the scale is small. So a proposal takes that coordinate from a density
of one variable, tabulated on a grid by Laplace's method, and the others from the Gaussian at their
conditional mode. Its density is known everywhere, since mean and covariance are interpolated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.integrate
import scipy.special
from scipy.interpolate import CubicSpline

from az_cv.engine.laplace import STEP
from az_cv.engine.log_linear import LogLinear

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from az_cv.engine.laplace import Density, Gaussian

    Points = Float[np.ndarray, "n d"]
    Table = Float[np.ndarray, "k r"]
    Matrices = Float[np.ndarray, "k r r"]

COARSE = np.arange(-6.0, 7.0)  # in sds of the Gaussian at the mode
EXTENSIONS = 4
FINE = 33  # points of the table
FALLEN = 12.0  # nats below its largest value, where the density of one variable may end
NEWTON_STEPS = 12
CONVERGED = 1e-4  # of a Newton step, in sds
SHARES = 0.5 ** np.arange(9)  # of a Newton step, of which the best is taken
CHANGE = 0.5  # sds by which a coordinate moves to see what it changes
FINER = 16  # points of the density of one variable between two of the table, for its integral
KNOTS = 2  # of its quantiles, between two of the table


@dataclass(frozen=True)
class NestedGaussian:
    """A coordinate with a tabulated density; the others Gaussian given this one.

    Attributes
    ----------
    top : int
        Which coordinate is tabulated.
    grid, log_density : arrays of shape (k,)
        Its values, and the logarithm of its density there, up to a constant. It is linear between
        them and beyond the ends.
    means : array of shape (k, d - 1)
        Of the others, in order.
    factors : array of shape (k, d - 1, d - 1)
        Lower Cholesky factors of their covariances.
    """

    top: int
    grid: Float[np.ndarray, " k"]
    log_density: Float[np.ndarray, " k"]
    means: Table
    factors: Matrices

    def sample(
        self, rng: np.random.Generator, chains: int, draws: int
    ) -> tuple[Float[np.ndarray, "chain draw d"], Float[np.ndarray, "chain draw"]]:
        """Return draws and their log densities."""
        size = chains * draws
        at, log_density = self._table.sample(rng.uniform(size=size))
        mean, factor = self._given(at)
        noise = rng.normal(size=mean.shape)
        rest = mean + np.einsum("nij,nj->ni", factor, noise)
        log_determinant = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
        constant = log_determinant + 0.5 * noise.shape[1] * np.log(2 * np.pi)
        log_density = log_density - 0.5 * (noise**2).sum(axis=1) - constant
        x = np.insert(rest, self.top, at, axis=1)
        return x.reshape(chains, draws, -1), log_density.reshape(chains, draws)

    @property
    def kurtosis(self) -> float:
        """The largest kurtosis of the other coordinates: 3 for a Gaussian."""
        share = np.exp(self.log_density - self.log_density.max())
        share /= share.sum()
        shift = self.means - share @ self.means
        variance = (self.factors**2).sum(axis=2)
        second = share @ (variance + shift**2)
        fourth = share @ (3 * variance**2 + 6 * variance * shift**2 + shift**4)
        return float((fourth / second**2).max())

    @property
    def is_smooth(self) -> bool:
        """Whether the coordinates of :meth:`standardised` grow with those of the posterior."""
        return bool((self._quantiles(self._finer, 1) > 0).all())

    def standardised(self, x: Points, gradient: Points) -> tuple[Points, Points, np.ndarray]:
        """Return points in coordinates where this proposal is all but standard normal.

        The tabulated coordinate becomes the normal quantile of its probability; the others are
        standardised with their mean and factor, given that one.

        Parameters
        ----------
        x, gradient : arrays of shape (n, d)
            Points, and gradients of a log density there.

        Returns
        -------
        z, gradient : arrays of shape (n, d)
            The points, and the gradients of the log density of `z`.
        log_jacobian : array of shape (n,)
            What changes the log density at `x` into that at `z`.
        """
        at, rest = x[:, self.top], np.delete(x, self.top, axis=1)
        of_top, of_rest = gradient[:, self.top], np.delete(gradient, self.top, axis=1)
        mean, factor = self._given(at)
        z = np.linalg.solve(factor, (rest - mean)[..., None])[..., 0]
        quantile, slope, bend = self._quantile(at)
        mean_slope, factor_slope = self._slopes(at, factor)
        diagonal = np.diagonal(factor, axis1=1, axis2=2)
        growth = (np.diagonal(factor_slope, axis1=1, axis2=2) / diagonal).sum(axis=1)
        moved = mean_slope + np.einsum("nij,nj->ni", factor_slope, z)
        of_quantile = (of_top + (of_rest * moved).sum(axis=1) + growth) / slope - bend / slope**2
        return (
            np.insert(z, self.top, quantile, axis=1),
            np.insert(np.einsum("nij,ni->nj", factor, of_rest), self.top, of_quantile, axis=1),
            np.log(diagonal).sum(axis=1) - np.log(slope),
        )

    @cached_property
    def _table(self) -> LogLinear:
        return LogLinear.through(self.grid, self.log_density)

    @cached_property
    def _finer(self) -> Float[np.ndarray, " m"]:
        return np.linspace(self.grid[0], self.grid[-1], FINER * (len(self.grid) - 1) + 1)

    @cached_property
    def _quantiles(self) -> CubicSpline:
        """Normal quantiles of the probability below a value of the tabulated coordinate."""
        spacing = self.grid[1] - self.grid[0]
        density = np.exp(CubicSpline(self.grid, self.log_density)(self._finer))
        first, last = np.abs(np.diff(self.log_density)[[0, -1]]) / spacing
        below, above = (
            end + scipy.integrate.cumulative_simpson(values, x=self._finer, initial=0)
            for end, values in ((density[0] / first, density), (density[-1] / last, density[::-1]))
        )
        above = above[::-1]
        smaller = scipy.special.ndtri(np.minimum(below, above) / (below + above))
        quantiles = np.where(below < above, smaller, -smaller)
        knots = slice(None, None, FINER // KNOTS)
        # Straight at its ends, as it is beyond them.
        return CubicSpline(self._finer[knots], quantiles[knots], bc_type="natural")

    def _quantile(self, at: Float[np.ndarray, " n"]) -> list[Float[np.ndarray, " n"]]:
        """Return normal quantiles with two derivatives; they are linear beyond the grid."""
        inside = np.clip(at, self.grid[0], self.grid[-1])
        value, slope, bend = (self._quantiles(inside, order) for order in range(3))
        return [value + slope * (at - inside), slope, np.where(at == inside, bend, 0.0)]

    @cached_property
    def _splines(self) -> tuple[CubicSpline, CubicSpline]:
        """Means, and factors with the logarithms of their diagonals: they are positive."""
        rest = range(self.factors.shape[1])
        table = self.factors.copy()
        table[:, rest, rest] = np.log(table[:, rest, rest])
        return CubicSpline(self.grid, self.means), CubicSpline(self.grid, table)

    def _given(self, at: Float[np.ndarray, " n"]) -> tuple[Table, Matrices]:
        """Return means and factors of the others; beyond the grid those of its ends."""
        at = np.clip(at, self.grid[0], self.grid[-1])
        mean, factor = (spline(at) for spline in self._splines)
        rest = range(factor.shape[1])
        factor[:, rest, rest] = np.exp(factor[:, rest, rest])
        return mean, factor

    def _slopes(self, at: Float[np.ndarray, " n"], factor: Matrices) -> tuple[Table, Matrices]:
        """Return derivatives of means and factors; beyond the grid they are zero."""
        inside = (at >= self.grid[0]) & (at <= self.grid[-1])
        mean, slope = (spline(np.where(inside, at, self.grid[0]), 1) for spline in self._splines)
        rest = range(factor.shape[1])
        slope[:, rest, rest] *= factor[:, rest, rest]
        return mean * inside[:, None], slope * inside[:, None, None]


def nested_gaussian(density: Density, at_mode: Gaussian) -> NestedGaussian:
    """Return Gaussians along the coordinate that changes the curvature of the others the most.

    Parameters
    ----------
    density : callable
        Maps points of shape (n, d) to log densities and gradients.
    at_mode : Gaussian
        From :func:`az_cv.engine.laplace.gaussian_at_mode`, in two dimensions at least.

    Raises
    ------
    ValueError
        If the density of that coordinate does not fall within some distance of the mode.
    """
    top = governing_coordinate(density, at_mode)
    mode, sd = at_mode.mean, float(np.linalg.norm(at_mode.factor[top]))
    grid = mode[top] + sd * COARSE
    start = np.tile(mode, (len(grid), 1))
    for _ in range(EXTENSIONS):
        points, mass, _ = conditional_gaussians(density, top, grid, start)
        floor = mass.max() - FALLEN
        low, high = mass[0] > floor, mass[-1] > floor
        if not (low or high):
            break
        more = np.arange(1, len(COARSE)) * sd
        before = grid[0] - more[::-1] if low else grid[:0]
        after = grid[-1] + more if high else grid[:0]
        grid = np.concatenate([before, grid, after])
        start = np.concatenate([points[[0] * len(before)], points, points[[-1] * len(after)]])
    else:
        raise ValueError(
            f"The density of coordinate {top} has no end within {EXTENSIONS * 12} sds of the mode."
        )
    inside = np.flatnonzero(mass > floor)
    fine = np.linspace(grid[inside[0] - 1], grid[inside[-1] + 1], FINE)
    near = np.stack([np.interp(fine, grid, column) for column in points.T], axis=1)
    points, mass, factors = conditional_gaussians(density, top, fine, near)
    return NestedGaussian(top, fine, mass - mass.max(), np.delete(points, top, axis=1), factors)


def governing_coordinate(density: Density, at_mode: Gaussian) -> int:
    """Return which coordinate changes the curvature of the others the most.

    Examples
    --------
    >>> def funnel(x):  # x[1:] has the sd exp(x[0])
    ...     pull = x[:, 1:] * np.exp(-2 * x[:, :1])
    ...     squares = (pull * x[:, 1:]).sum(axis=1)
    ...     slope = np.column_stack([squares - 2 - x[:, 0], -pull])
    ...     return -0.5 * squares - 2 * x[:, 0] - 0.5 * x[:, 0] ** 2, slope
    >>> from az_cv.engine.laplace import gaussian_at_mode
    >>> at_mode = gaussian_at_mode(funnel, np.zeros(3))
    >>> governing_coordinate(funnel, at_mode)
    0
    """
    mode, factor = at_mode.mean, at_mode.factor
    sd = np.sqrt((factor**2).sum(axis=1))
    d = len(mode)
    moved = mode + CHANGE * np.concatenate([np.diag(sd), -np.diag(sd)])
    _, precisions = _curvatures(density, moved, np.tile(sd, (2 * d, 1)), np.arange(d))
    up, down = np.split(precisions, 2)
    changes = []
    for k in range(d):
        rest = np.delete(np.arange(d), k)
        change = (up[k] - down[k])[np.ix_(rest, rest)]
        scales = sd[rest, None] * sd[rest]
        changes.append(np.linalg.norm(change * scales))
    return int(np.argmax(changes))


def conditional_gaussians(
    density: Density, top: int, at: Float[np.ndarray, " k"], start: Float[np.ndarray, "k d"]
) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, " k"], Matrices]:
    """Return conditional modes, log masses of the Gaussians there, and factors of covariances.

    Parameters
    ----------
    density : callable
        Maps points of shape (n, d) to log densities and gradients.
    top : int
        The coordinate that is held fixed.
    at : array of shape (k,)
        Its values.
    start : array of shape (k, d)
        Where the searches begin.
    """
    x = start.copy()
    x[:, top] = at
    rest = np.delete(np.arange(x.shape[1]), top)
    scale = np.ones_like(x)
    for _ in range(NEWTON_STEPS):
        gradient, slopes = _curvatures(density, x, scale, rest)
        precision = slopes[:, :, rest]
        value, vectors = np.linalg.eigh(precision)
        value = np.maximum(value, 1e-8 * value[:, -1:].clip(1e-8))
        covariance = np.einsum("kij,kj,klj->kil", vectors, 1 / value, vectors)
        scale[:, rest] = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        step = np.zeros_like(x)
        step[:, rest] = np.einsum("kij,kj->ki", covariance, gradient[:, rest])
        tried = x[:, None] + SHARES[:, None] * step[:, None]
        found = density(tried.reshape(-1, x.shape[1]))[0].reshape(len(x), -1)
        found = np.where(np.isfinite(found), found, -np.inf)
        best = np.arange(len(x)), np.argmax(found, axis=1)
        x, log_density = tried[best], found[best]
        if np.abs(step / scale).max() < CONVERGED:
            break
    mass = log_density - 0.5 * np.log(value).sum(axis=1)
    return x, mass, np.linalg.cholesky(covariance)


def _curvatures(
    density: Density,
    x: Float[np.ndarray, "k d"],
    scale: Float[np.ndarray, "k d"],
    along: Int[np.ndarray, " r"],
) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, "k r d"]]:
    """Return gradients at points, and rows of minus the Hessians from differences of gradients."""
    k, d = x.shape
    steps = STEP * scale[:, along]
    moves = np.zeros((k, len(along), d))
    moves[:, np.arange(len(along)), along] = steps
    points = np.concatenate([x[:, None] - moves, x[:, None] + moves, x[:, None]], axis=1)
    gradients = density(points.reshape(-1, d))[1].reshape(points.shape)
    down, up = np.split(gradients[:, :-1], 2, axis=1)
    slopes = (down - up) / (2 * steps[..., None])
    slopes = np.where(np.isfinite(slopes), slopes, 0.0)
    square = slopes[:, :, along]
    slopes[:, :, along] = (square + square.swapaxes(1, 2)) / 2
    return gradients[:, -1], slopes
