"""Hard edges: places where a log density ends while the density has not.

A Stein identity integrates by parts, and at an edge where the density is not zero a term is left
over. Draws do not show it: a normal distribution truncated at -2 has the gradient of a normal one.
So the log density is asked beyond the outermost draws, one coordinate after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Float, Int

    # From points, and the draws that they started from, to log densities; not finite beyond an end.
    LogDensity = Callable[
        [Float[np.ndarray, "m d"], Int[np.ndarray, " m"]], Float[np.ndarray, " m"]
    ]

# How far beyond the outermost draws to look, in sds of the coordinate.
DISTANCES = (0.1, 0.4, 1.6)
# The density has ended where it falls by so much within NARROW sds.
JUMP, NARROW = 3.0, 1e-7
# An edge matters if the density there is not negligible beside that at the outermost draw.
NEGLIGIBLE = 10.0
# Differences of log densities beyond which a point is as good as outside.
DEEP = 50.0
MAX_PROBED = 200  # coordinates
EDGE = "hard_edges"


def find_edges(
    x: Float[np.ndarray, "n d"], evaluate: LogDensity, names: Sequence[str]
) -> list[str]:
    """Look for hard edges beyond the outermost draws, in each coordinate.

    Parameters
    ----------
    x : array of shape (n, d)
        Unconstrained draws, finite throughout.
    evaluate : callable
        Log density at points, given with the draws that they started from.
    names : sequence of str
        Names of the coordinates.

    Returns
    -------
    list of str
        What was found, a phrase for each edge.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.abs(np.random.default_rng(0).normal(size=(500, 1)))
    >>> def half_normal(points, _):
    ...     return np.where(points[:, 0] > 0, -0.5 * points[:, 0] ** 2, -np.inf)
    >>> find_edges(x, half_normal, ["mu"])
    ['mu ends at 0']
    """
    if not len(x):
        return []
    sd = x.std(axis=0)
    coordinates = np.flatnonzero(sd > 0)[:MAX_PROBED]
    if not len(coordinates):
        return []
    axes = np.concatenate([coordinates, coordinates])
    units = np.repeat([-1.0, 1.0], len(coordinates)) * sd[axes]
    seen = x[:, coordinates]
    outermost = np.concatenate([seen.argmin(axis=0), seen.argmax(axis=0)])
    rays = _Rays(x, evaluate, outermost, axes, units)
    return [
        f"{names[axes[ray]]} ends at {place if abs(place) > NARROW * sd[axes[ray]] else 0.0:.4g}"
        for ray, place in rays.edges()
    ]


class _Rays:
    """Half-lines along the axes, from the outermost draws outwards."""

    def __init__(
        self,
        x: Float[np.ndarray, "n d"],
        evaluate: LogDensity,
        starts: Int[np.ndarray, " m"],
        axes: Int[np.ndarray, " m"],
        units: Float[np.ndarray, " m"],
    ) -> None:
        self.x, self.evaluate = x, evaluate
        self.starts, self.axes, self.units = starts, axes, units

    def edges(self) -> list[tuple[int, float]]:
        """Return the rays on which the density ends, and where."""
        stops = np.array([0.0, *DISTANCES])
        every = np.tile(np.arange(len(self.starts)), len(stops))
        values = self._density(every, np.repeat(stops, len(self.starts)))
        self.top, *further = values.reshape(len(stops), -1)
        falls = np.stack([self.top - value for value in (self.top, *further)], axis=1)
        # The nearest point that is outside, if any, and the last one before it that is not.
        outside = ~(falls <= DEEP)
        rays = np.flatnonzero(outside[:, 1:].any(axis=1) & np.isfinite(self.top))
        first = outside[rays, 1:].argmax(axis=1)
        rays, near = self._bisect(
            rays, stops[first], stops[first + 1], falls[rays, first], falls[rays, first + 1]
        )
        places = self.x[self.starts[rays], self.axes[rays]] + near * self.units[rays]
        return list(zip(rays.tolist(), places.tolist()))

    def _density(
        self, rays: Int[np.ndarray, " k"], distances: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, " k"]:
        """Return the log density at distances from the starts, -inf outside."""
        points = self.x[self.starts[rays]].copy()
        points[np.arange(len(rays)), self.axes[rays]] += distances * self.units[rays]
        with np.errstate(all="ignore"):
            values = np.asarray(self.evaluate(points, self.starts[rays]), dtype=float)
        return np.where(np.isfinite(values), values, -np.inf)

    def _bisect(
        self,
        rays: Int[np.ndarray, " k"],
        near: Float[np.ndarray, " k"],
        far: Float[np.ndarray, " k"],
        near_fall: Float[np.ndarray, " k"],
        far_fall: Float[np.ndarray, " k"],
    ) -> tuple[Int[np.ndarray, " j"], Float[np.ndarray, " j"]]:
        """Close in on where the density ends, and return the rays on which it does."""
        while True:
            # Where the density has faded away before, its end does not matter.
            kept = (near_fall < NEGLIGIBLE) & (far_fall - near_fall > JUMP)
            rays, near, far = rays[kept], near[kept], far[kept]
            near_fall, far_fall = near_fall[kept], far_fall[kept]
            if not len(rays) or (far - near).max() < NARROW:
                return rays, near
            middle = (near + far) / 2
            fall = self.top[rays] - self._density(rays, middle)
            outside = fall > DEEP
            near, far = np.where(outside, near, middle), np.where(outside, middle, far)
            near_fall = np.where(outside, near_fall, fall)
            far_fall = np.where(outside, fall, far_fall)


def edge_attrs(edges: Sequence[str]) -> dict[str, str]:
    """Return the attribute of scores that tells of hard edges, if there are any."""
    if not edges:
        return {}
    shown = "; ".join(edges[:5]) + (f"; and {len(edges) - 5} more" if len(edges) > 5 else "")
    return {
        EDGE: (
            f"The density has hard edges, at which it does not vanish: {shown}. The identities "
            "behind control variates lack a term there, and the answer would be wrong. Declare the "
            "bounds (PyMC's default transform, Stan's <lower=, upper=>) and sample again, or "
            "transform the variable yourself and add the log Jacobian."
        )
    }
