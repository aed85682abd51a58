"""`stein_weights`: the fit's own weights, for averages of your own."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS, as_idata, get_group, model_of
from az_cv.engine.stein_weights import stein_weights as weights_of_rows
from az_cv.labelled.validation import validate_scores
from az_cv.sources.dispatch import scores as find_scores
from az_cv.sources.schema import DRAW, GRADIENT

MAX_DRAWS = 8000


def stein_weights(
    data: Any,
    *,
    model: Any = None,
    scores: xr.Dataset | None = None,
    progressbar: bool = False,
) -> xr.DataArray:
    """Return weights with which averages of the draws are estimates of posterior expectations.

    ``(weights * f).sum()`` is what a Stein kernel fit to ``f`` says of its expectation, for smooth
    ``f`` far more accurate than the average, and for draws of an approximation too. There is no
    error bar: :func:`az_cv.summary` has those.

    Parameters
    ----------
    data : InferenceData, DataTree, or what ``arviz_base`` converts
        Holds the group ``posterior``.
    model : optional
        Where gradients come from when they are not stored; see :func:`az_cv.scores`.
    scores : Dataset, optional
        ``unconstrained_draw`` and ``gradient``.
    progressbar : bool

    Returns
    -------
    DataArray
        Dims chain and draw. The weights sum to one, and some may be negative: they are no
        probabilities, and averages of events may leave 0 to 1. Copies of a draw share its weight.

    See Also
    --------
    az_cv.summary : Averages of any function, with their errors.

    Examples
    --------
    >>> import az_cv
    >>> data = az_cv.load_eight_schools().isel(draw=slice(100))
    >>> weights = az_cv.stein_weights(data)
    >>> dict(weights.sizes), round(float(weights.sum()), 9)
    ({'chain': 4, 'draw': 100}, 1.0)
    """
    idata = as_idata(data)
    if scores is None:
        scores = find_scores(idata, model=model_of(data, model), progressbar=progressbar)
    scores, _ = validate_scores(scores, get_group(idata, "posterior"))
    x, s = (np.asarray(scores[name], dtype=float) for name in (DRAW, GRADIENT))
    shape, d = x.shape[:2], x.shape[2]
    distinct, first, which, number = np.unique(
        x.reshape(-1, d), axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    if len(distinct) > MAX_DRAWS:
        raise ValueError(
            f"{len(distinct):,} draws are more than the {MAX_DRAWS:,} that one kernel system "
            "holds. Thin the data."
        )
    weights = weights_of_rows(distinct, s.reshape(-1, d)[first]) / number
    return xr.DataArray(
        weights[which.ravel()].reshape(shape),
        {dim: scores[dim] for dim in SAMPLE_DIMS},
        dims=SAMPLE_DIMS,
        name="stein_weights",
    )
