"""Validation of draws and scores, once, at the public boundary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from az_cv.scores.schema import DIMS, DRAW, GRADIENT

if TYPE_CHECKING:
    from jaxtyping import Float

MIN_DRAWS = 10


def validate_scores(scores: xr.Dataset, posterior: xr.Dataset) -> tuple[xr.Dataset, xr.Dataset]:
    """Check scores against the posterior and return both on the same chains and draws.

    Parameters
    ----------
    scores : Dataset
        See :mod:`az_cv.scores.schema`. May lack draws of the posterior (those where the gradient
        failed), as its ``draw`` coordinate then tells.
    posterior : Dataset

    Returns
    -------
    scores, posterior : Dataset

    Raises
    ------
    TypeError, ValueError
        With the place and the value that is wrong.
    """
    if not isinstance(scores, xr.Dataset):
        raise TypeError(
            f"scores must be an xarray.Dataset with {DRAW!r} and {GRADIENT!r}; it is "
            f"{type(scores).__name__}. az_cv.scores_dataset builds one from arrays."
        )
    missing = [name for name in (DRAW, GRADIENT) if name not in scores]
    if missing:
        raise ValueError(f"scores lacks {missing}. It has {list(scores.data_vars)}.")
    for name in (DRAW, GRADIENT):
        if set(scores[name].dims) != set(DIMS):
            raise ValueError(f"{name} must have dims {DIMS}; it has {scores[name].dims}.")
    scores = scores.transpose(*DIMS)
    for dim in ("chain", "draw"):
        if dim not in posterior.dims:
            raise ValueError(
                f"The posterior has no dimension {dim!r}; it has {list(posterior.dims)}."
            )
        ours, theirs = scores.get_index(dim), posterior.get_index(dim)
        if not ours.isin(theirs).all() or not ours.is_unique:
            raise ValueError(
                f"scores and posterior disagree on {dim!r}: {len(ours)} labels from {ours[0]} to "
                f"{ours[-1]} against {len(theirs)} from {theirs[0]} to {theirs[-1]}. "
                "Scores must come from the same draws."
            )
        posterior = posterior.sel({dim: ours})
    for name in (DRAW, GRADIENT):
        _require_finite(name, scores[name])
    chains, draws = scores.sizes["chain"], scores.sizes["draw"]
    if chains * draws < MIN_DRAWS:
        raise ValueError(
            f"{chains} x {draws} draws are too few to fit anything on some and judge it on others; "
            f"at least {MIN_DRAWS} are needed."
        )
    return scores, posterior


def _require_finite(name: str, values: xr.DataArray) -> None:
    array: Float[np.ndarray, "chain draw d"] = np.asarray(values, dtype=float)
    bad = ~np.isfinite(array)
    if bad.any():
        chain, draw, parameter = np.argwhere(bad)[0]
        raise ValueError(
            f"{name} has {int(bad.sum())} non-finite values, first at chain "
            f"{values['chain'].values[chain] if 'chain' in values.coords else chain}, draw "
            f"{values['draw'].values[draw] if 'draw' in values.coords else draw}, parameter "
            f"{_label(values, parameter)}. Drop those draws or check the log density there."
        )


def _label(values: xr.DataArray, index: int) -> str:
    name = DIMS[2]
    return str(values[name].values[index]) if name in values.coords else str(index)
