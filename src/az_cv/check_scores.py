"""`check_scores`: whether the gradients belong to the draws."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from az_cv.containers.idata import as_idata, get_group, model_of
from az_cv.labelled.provenance import compare_with_stored
from az_cv.labelled.validation import examine_scores, validate_scores
from az_cv.sources.dispatch import scores as find_scores

if TYPE_CHECKING:
    import xarray as xr

    from az_cv.engine.score_check import ScoreCheck


def check_scores(
    data: Any, scores: xr.Dataset | None = None, *, model: Any = None, progressbar: bool = False
) -> ScoreCheck:
    """Test whether gradients belong to draws.

    By Stein identities, which hold on average; by the log densities that the sampler stored, if
    there are any, which must differ from the model's by a constant; and by what was found of hard
    edges of the density.

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

    See Also
    --------
    az_cv.scores : The gradients themselves.
    az_cv.plots.plot_stein_check : Draws the identities.

    Examples
    --------
    >>> import az_cv
    >>> report = az_cv.check_scores(az_cv.load_eight_schools())
    >>> report.verdict
    'pass'
    >>> columns = report.table[["z_mean_score", "z_slope"]]
    >>> print(columns.round(1).head(2).rename_axis(None))
               z_mean_score  z_slope
    mu                 -0.9      0.9
    tau_log__          -0.4     -0.8
    """
    idata = as_idata(data)
    if scores is None:
        scores = find_scores(idata, model=model_of(data, model), progressbar=progressbar)
    scores, posterior = validate_scores(scores, get_group(idata, "posterior"))
    report = examine_scores(scores)
    densities = compare_with_stored(scores, idata, posterior)
    found = [scores.attrs.get("hard_edges"), densities.problem if densities else None]
    problems = tuple(str(problem) for problem in found if problem)
    if problems:
        return replace(report, verdict="fail", problems=(*problems, *report.problems))
    return report
