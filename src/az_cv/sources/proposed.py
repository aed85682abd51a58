"""Draws of a proposal, with its log density, as a tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS


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
