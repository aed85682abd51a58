"""Whose answer it is: what the data can tell of the model behind the gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS
from az_cv.engine.density_check import DensityCheck, compare_densities, relative_precision
from az_cv.notices import notify
from az_cv.sources.schema import DRAW, GRADIENT, LOG_DENSITY, PARAMETER
from az_cv.sources.stored import stored_log_density

if TYPE_CHECKING:
    from collections.abc import Iterator

STORED = "the gradients are the sampler's own"
PASSED = (
    "the gradients are those of the model passed; the sampler stored no log density to check them "
    "against"
)
GIVEN = (
    "the gradients are those that were given; the sampler stored no log density to check them "
    "against"
)
OVERRIDDEN = "the gradients are those of the model passed, which is not the one that was sampled"
SEED = (
    "Programs with random transformed data need the seed of the run: "
    "az_cv.sources.load_stan_model(..., seed=). "
)
CHECK = "az_cv.check_scores tells more; check=False goes on regardless."


def require_sampled_model(scores: xr.Dataset, data: Any, posterior: xr.Dataset, check: bool) -> str:
    """Refuse the gradients of another model than the sampled one, as far as the data can tell.

    Parameters
    ----------
    scores : Dataset
        On the chains and draws to be used.
    data : InferenceData or DataTree
        May hold the sampler's log densities.
    posterior : Dataset
        On the same draws.
    check : bool
        Whether to refuse at all.

    Returns
    -------
    str
        What to say under the table.

    Raises
    ------
    ValueError
        If the log densities differ by more than a constant, or the density has a hard edge.
    """
    edges = scores.attrs.get("hard_edges")
    if edges and check:
        raise ValueError(f"{edges} check=False goes on regardless.")
    if edges:
        notify(str(edges))
    report = compare_with_stored(scores, data, posterior)
    if report is not None and not report.agree:
        hint = SEED if scores.attrs.get("source") == "BridgeStan" else ""
        if check:
            raise ValueError(f"{report.problem} {hint}{CHECK}")
        notify(report.problem)
        return OVERRIDDEN
    if report is not None:
        return (
            "the model's log density is the sampler's at every draw, to "
            f"{max(report.spread, np.finfo(float).eps):.0e}"
        )
    if scores.attrs.get("gradients") == "sampler":
        return STORED
    return PASSED if "source" in scores.attrs else GIVEN


def compare_with_stored(
    scores: xr.Dataset, data: Any, posterior: xr.Dataset
) -> DensityCheck | None:
    """Compare the log densities of scores with the sampler's, if both are there."""
    stored = stored_log_density(data)
    if stored is None or LOG_DENSITY not in scores:
        return None
    computed = np.asarray(scores[LOG_DENSITY], dtype=float)
    x, s = (np.asarray(scores[name], dtype=float) for name in (DRAW, GRADIENT))
    names = [str(name) for name in scores[PARAMETER].values]
    first = None
    for candidate in _alignments(stored, scores, posterior):
        report = compare_densities(
            candidate,
            computed,
            x,
            s,
            names,
            precision=_precision(posterior),
            error=float(scores.attrs.get("log_density_error", 0.0)),
        )
        if report is not None and report.agree:
            return report
        first = first or report
    return first


def _alignments(
    stored: xr.DataArray, scores: xr.Dataset, posterior: xr.Dataset
) -> Iterator[np.ndarray]:
    """Return the stored log densities as they may belong to the draws, by label first.

    Whoever thins the posterior or cuts its beginning off, and numbers the draws anew, leaves the
    statistics behind.
    """
    labels = {dim: scores[dim].values for dim in SAMPLE_DIMS}
    known = all(np.isin(labels[dim], stored.get_index(dim)).all() for dim in SAMPLE_DIMS)
    unique = all(stored.get_index(dim).is_unique for dim in SAMPLE_DIMS)
    if known and unique:
        yield stored.sel(labels).values
    draws, available = scores.sizes["draw"], stored.sizes["draw"]
    if stored.sizes["chain"] == scores.sizes["chain"] and draws < available:
        yield stored.values[:, -draws:]
        for start in range(step := available // draws):
            yield stored.values[:, start::step][:, :draws]


def _precision(posterior: xr.Dataset) -> float:
    """Return the relative precision of the draws: that of the variable with most digits."""
    found = [
        relative_precision(variable.isel({dim: slice(20) for dim in variable.dims}).values)
        for variable in posterior.data_vars.values()
        if variable.dtype.kind == "f"
    ]
    return min(found, default=0.0)
