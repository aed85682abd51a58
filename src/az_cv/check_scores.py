"""`check_scores`: whether the gradients belong to the draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from az_cv.containers.idata import as_idata, get_group, model_of
from az_cv.labelled.validation import examine_scores, validate_scores
from az_cv.sources.dispatch import scores as find_scores

if TYPE_CHECKING:
    import xarray as xr

    from az_cv.engine.score_check import ScoreCheck


def check_scores(
    data: Any, scores: xr.Dataset | None = None, *, model: Any = None, progressbar: bool = False
) -> ScoreCheck:
    """Test whether gradients belong to draws, by Stein identities.

    Parameters
    ----------
    data : InferenceData, DataTree or what ``arviz_base`` converts
    scores : Dataset, optional
        As from :func:`az_cv.scores`. Found in `data`, or computed from `model`, when not given.
    model : optional
        See :func:`az_cv.scores`.
    progressbar : bool

    Returns
    -------
    ScoreCheck

    Examples
    --------
    >>> import az_cv
    >>> az_cv.check_scores(az_cv.load_eight_schools()).verdict
    'pass'
    """
    idata = as_idata(data)
    if scores is None:
        scores = find_scores(idata, model=model_of(data, model), progressbar=progressbar)
    scores, _ = validate_scores(scores, get_group(idata, "posterior"))
    return examine_scores(scores)
