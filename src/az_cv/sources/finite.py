"""Draws without a finite score.

A draw that sits on the boundary of its support (a scale that underflowed to zero, a probability
that rounded to one) has no finite place on the unconstrained scale, and the log density may have
no finite gradient near it.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS
from az_cv.notices import notify
from az_cv.sources.schema import DRAW, GRADIENT, PARAMETER


class NonFiniteScoresWarning(UserWarning):
    """Some draws have no finite score and were left out."""


def drop_non_finite(scores: xr.Dataset) -> xr.Dataset:
    """Drop the draws without a finite score, with a warning that names the parameters.

    A draw that is bad in one chain is dropped from every chain, which keeps the chains equally
    long. The ``draw`` coordinate of the result says which draws are left.

    Parameters
    ----------
    scores : Dataset
        See :mod:`az_cv.sources.schema`.

    Returns
    -------
    Dataset
        `scores` itself when it is finite throughout. Otherwise with fewer draws, and their number
        in the attribute ``dropped_draws``.

    Warns
    -----
    NonFiniteScoresWarning
        If any draw is dropped.

    Raises
    ------
    ValueError
        If no draw is left.

    Examples
    --------
    >>> import numpy as np, warnings
    >>> from az_cv.sources.schema import scores_dataset
    >>> x = np.random.default_rng(0).normal(size=(2, 10, 3))
    >>> gradient = -x
    >>> gradient[0, 4, 1] = np.inf
    >>> with warnings.catch_warnings(action="ignore"):
    ...     drop_non_finite(scores_dataset(x, gradient)).sizes["draw"]
    9
    """
    finite: xr.DataArray = xr.ufuncs.isfinite(scores[DRAW]) & xr.ufuncs.isfinite(scores[GRADIENT])
    keep = finite.all(["chain", PARAMETER]).values
    if keep.all():
        return scores
    names = scores[PARAMETER].values[~finite.all(SAMPLE_DIMS).values]
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    count = int((~finite.all(PARAMETER)).sum())
    total = finite.sizes["chain"] * finite.sizes["draw"]
    if not keep.any():
        raise ValueError(
            f"{count} of {total} draws have no finite score, at least one at every draw index. "
            f"Parameters concerned: {listed}. Check that the model is the one the draws were "
            "sampled from, or reparametrise it away from the boundary."
        )
    notify(
        f"{count} of {total} draws have no finite score: they lie on the boundary of their support "
        f"in floating point, or the log density has no finite gradient there. Parameters "
        f"concerned: {listed}. {int((~keep).sum())} draw indices are left out in every chain.",
        NonFiniteScoresWarning,
    )
    dropped = int(scores.attrs.get("dropped_draws", 0)) + int((~keep).sum())
    return scores.isel(draw=np.flatnonzero(keep)).assign_attrs(dropped_draws=dropped)
