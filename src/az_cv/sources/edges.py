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
        Of the coordinates.

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
    sd = x.std(axis=0)
    coordinates = np.flatnonzero(sd > 0)[:MAX_PROBED]
    if not len(coordinates):
        return []
    sides = np.repeat([-1.0, 1.0], len(coordinates))
    axes = np.concatenate([coordinates, coordinates])
    seen = x[:, coordinates]
    outermost = np.concatenate([seen.argmin(axis=0), seen.argmax(axis=0)])
    rays = _Rays(x, evaluate, outermost, axes, sides * sd[axes])
    every = np.arange(len(axes))
    found = np.stack([rays.fall(every, np.full(len(axes), t)) for t in DISTANCES], axis=1)
    # The nearest point that is outside, if any, and the last one before it that is not.
    outside = found > DEEP
    suspects = np.flatnonzero(outside.any(axis=1))
    if not len(suspects):
        return []
    first = outside[suspects].argmax(axis=1)
    stops = np.array([0.0, *DISTANCES])
    near, far = rays.bisect(suspects, stops[first], stops[first + 1])
    edges = (rays.fall(suspects, near) < NEGLIGIBLE) & (
        rays.fall(suspects, far) - rays.fall(suspects, near) > JUMP
    )
    places = x[outermost[suspects], axes[suspects]] + near * (sides * sd[axes])[suspects]
    return [
        f"{names[axes[ray]]} ends at {0.0 if abs(place) < NARROW * sd[axes[ray]] else place:.4g}"
        for ray, place, is_edge in zip(suspects, places, edges)
        if is_edge
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
        self.top = evaluate(x[starts], starts)

    def fall(
        self, rays: Int[np.ndarray, " k"], distances: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, " k"]:
        """Return by how much the log density is below that of the draw; infinite outside."""
        starts, axes = self.starts[rays], self.axes[rays]
        points = self.x[starts].copy()
        points[np.arange(len(rays)), axes] += distances * self.units[rays]
        with np.errstate(all="ignore"):
            values = self.top[rays] - self.evaluate(points, starts)
        return np.where(np.isfinite(values), values, np.inf)

    def bisect(
        self,
        rays: Int[np.ndarray, " k"],
        near: Float[np.ndarray, " k"],
        far: Float[np.ndarray, " k"],
    ) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
        """Close in on where the log density has fallen deep."""
        while (far - near).max() > NARROW:
            middle = (near + far) / 2
            outside = self.fall(rays, middle) > DEEP
            near, far = np.where(outside, near, middle), np.where(outside, middle, far)
        return near, far


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
