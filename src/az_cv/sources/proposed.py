"""Draws of a proposal, with its log density, as a tree; and the posterior's scores at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS
from az_cv.sources.edges import edge_attrs, find_edges
from az_cv.sources.finite import drop_non_finite
from az_cv.sources.layout import parameter_labels
from az_cv.sources.schema import LOG_PROPOSAL, scores_dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from az_cv.engine.near_mode import DrawsNearMode


def split(x: np.ndarray, shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Return the variables of draws whose elements lie side by side."""
    sizes = [int(np.prod(shape, dtype=int)) for shape in shapes.values()]
    blocks = np.split(x, np.cumsum(sizes)[:-1], axis=-1)
    return {
        name: block.reshape(*x.shape[:-1], *shape)
        for (name, shape), block in zip(shapes.items(), blocks)
    }


def as_tree(
    variables: dict[str, np.ndarray],
    log_proposal: np.ndarray,
    attrs: dict[str, Any],
    dims: dict[str, list[str]] | None = None,
    coords: dict[str, Any] | None = None,
) -> xr.DataTree:
    """Return draws and the log density of their proposal as a tree."""
    named = {
        name: (
            *SAMPLE_DIMS,
            *((dims or {}).get(name) or [f"{name}_dim_{k}" for k in range(values.ndim - 2)]),
        )
        for name, values in variables.items()
    }
    used = {dim for own in named.values() for dim in own}
    labels = {k: np.asarray(v) for k, v in (coords or {}).items() if k in used and v is not None}
    labels |= {dim: np.arange(size) for dim, size in zip(SAMPLE_DIMS, log_proposal.shape)}
    posterior = xr.Dataset(
        {name: (named[name], values) for name, values in variables.items()}, labels, attrs
    )
    samples = {dim: labels[dim] for dim in SAMPLE_DIMS}
    stats = xr.Dataset({"log_proposal": (SAMPLE_DIMS, log_proposal)}, samples)
    return xr.DataTree.from_dict({"posterior": posterior, "sample_stats": stats})


def scores_at(
    drawn: DrawsNearMode,
    density: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    shapes: dict[str, tuple[int, ...]],
    source: str,
    edges: Sequence[str] = (),
) -> xr.Dataset:
    """Return the posterior's scores at draws of a proposal, in coordinates that suit both.

    Parameters
    ----------
    drawn : DrawsNearMode
    density : callable
        Points of shape (n, d) to log densities of the posterior and their gradients.
    shapes : dict of str to tuple of int
        The unconstrained parameters, in the order of the columns.
    source : str
        What the density is that of.
    edges : sequence of str
        Hard edges that are known; without any, they are looked for.
    """
    labels = [label for name, shape in shapes.items() for label in parameter_labels(name, shape)]
    points = drawn.x.reshape(-1, drawn.x.shape[2])
    value, gradient = density(points)
    inside = np.isfinite(value)
    edges = edges or find_edges(points[inside], lambda other, _: density(other)[0], labels)
    z, log_density, slope, log_proposal = drawn.standardised(
        value.reshape(drawn.log_proposal.shape), gradient.reshape(drawn.x.shape)
    )
    scores = scores_dataset(
        z,
        slope,
        log_density=log_density,
        parameter_names=labels,
        attrs={
            "source": source,
            "coordinates": "of the model" if z is drawn.x else "of the proposal",
            **edge_attrs(edges),
        },
    )
    return drop_non_finite(scores.assign({LOG_PROPOSAL: (SAMPLE_DIMS, log_proposal)}))
