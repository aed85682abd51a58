"""Validation of draws and scores, once, at the public boundary."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS
from az_cv.engine.score_check import ScoreCheck, ScoreWarning, examine
from az_cv.labelled.weights import looks_approximate
from az_cv.notices import notify
from az_cv.sources.schema import DIMS, DRAW, GRADIENT, LOG_DENSITY, LOG_PROPOSAL, PARAMETER

if TYPE_CHECKING:
    import pandas as pd
    from jaxtyping import Float

MIN_DRAWS = 10
APPROXIMATE = (
    "With weights the identities hold: draws of an approximation (Laplace, ADVI, Pathfinder) look "
    "so, and of another model nearby. For the former pass draws='approximate', or log_weights."
)
SMALLEST = 1e-100  # size of draws and gradients; the largest is its inverse


def validate_scores(
    scores: xr.Dataset, posterior: xr.Dataset, *, values: bool = True
) -> tuple[xr.Dataset, xr.Dataset]:
    """Check scores against the posterior and return both on the same chains and draws.

    Parameters
    ----------
    scores : Dataset
        See :mod:`az_cv.sources.schema`. May lack draws of the posterior (those where the gradient
        failed), or have more (the posterior was thinned), as the ``draw`` coordinates then tell.
    posterior : Dataset
    values : bool
        Look at the numbers too. Without, lazy arrays are not read.

    Returns
    -------
    scores, posterior : Dataset
        Copies: what is done to them does not reach the data.

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
        if scores[name].dtype.kind not in "fiu":
            raise TypeError(f"{name} must hold real numbers; its dtype is {scores[name].dtype}.")
    kept = [DRAW, GRADIENT]
    for name in (LOG_DENSITY, LOG_PROPOSAL):
        if name in scores and set(scores[name].dims) == set(SAMPLE_DIMS):
            kept.append(name)
    scores = scores[kept].transpose(*DIMS)
    if not scores.sizes[PARAMETER]:
        raise ValueError(
            "scores has no unconstrained parameters. A model without continuous parameters has no "
            "gradients to offer; use ArviZ's summary."
        )
    for dim in SAMPLE_DIMS:
        if dim not in posterior.dims:
            raise ValueError(
                f"The posterior has no dimension {dim!r}; it has {list(posterior.dims)}."
            )
        shared = _shared_labels(dim, scores.get_index(dim), posterior.get_index(dim))
        # Lazy arrays are not cut to pieces for what they have already.
        scores, posterior = (
            part.sel({dim: shared}) if values or not part.get_index(dim).equals(shared) else part
            for part in (scores, posterior)
        )
    for name in (DRAW, GRADIENT) if values else ():
        _require_finite(name, scores[name])
        _require_usable_size(name, scores[name])
    chains, draws = scores.sizes["chain"], scores.sizes["draw"]
    if chains * draws < MIN_DRAWS:
        raise ValueError(
            f"{chains} x {draws} draws are too few to fit anything on some and judge it on others; "
            f"at least {MIN_DRAWS} are needed."
        )
    return scores, posterior


def _shared_labels(dim: str, ours: pd.Index, theirs: pd.Index) -> pd.Index:
    """Return the labels of the draws to use, where one side has all of the other's."""
    for owner, labels in (("scores", ours), ("posterior", theirs)):
        if not len(labels):
            raise ValueError(f"{owner} has no draws: its dimension {dim!r} is empty.")
        if not labels.is_unique:
            twice = labels[labels.duplicated()][0]
            raise ValueError(
                f"{owner} has the label {twice} more than once along {dim!r}. Number its draws "
                f"anew, in scores and posterior alike: data.assign_coords({dim}=range(...))."
            )
    if ours.isin(theirs).all():
        return ours
    if theirs.isin(ours).all():
        return theirs
    raise ValueError(
        f"scores and posterior disagree on {dim!r}: {len(ours)} labels from {ours[0]} to "
        f"{ours[-1]} against {len(theirs)} from {theirs[0]} to {theirs[-1]}. Scores must come from "
        "the same draws: slice, thin or renumber the whole data, not one of its groups."
    )


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


def _require_usable_size(name: str, values: xr.DataArray) -> None:
    """Refuse numbers whose squares are no longer numbers."""
    largest = np.abs(np.asarray(values, dtype=float)).max(axis=(0, 1))
    extreme = np.flatnonzero((largest > 1 / SMALLEST) | ((largest > 0) & (largest < SMALLEST)))
    if len(extreme):
        raise ValueError(
            f"{name} reaches {largest[extreme[0]]:.0e} for parameter {_label(values, extreme[0])}, "
            f"beyond what can be computed with ({SMALLEST:.0e} to {1 / SMALLEST:.0e}). Measure "
            "that parameter in other units."
        )


def _label(values: xr.DataArray, index: int) -> str:
    name = DIMS[2]
    return str(values[name].values[index]) if name in values.coords else str(index)


def require_matching_scores(scores: xr.Dataset) -> None:
    """Raise if gradients clearly do not belong to the draws, warn if they look doubtful."""
    report = examine_scores(scores)
    message = " ".join(report.problems)
    if report.verdict == "fail":
        raise ValueError(
            f"The gradients do not belong to these draws. {message} "
            "az_cv.check_scores shows every identity; check=False goes on regardless."
        )
    if report.verdict == "doubtful":
        notify(message, ScoreWarning)


def examine_scores(scores: xr.Dataset) -> ScoreCheck:
    """Test the identities of a scores Dataset."""
    names = (
        [str(name) for name in scores[PARAMETER].values]
        if PARAMETER in scores.coords
        else [str(j) for j in range(scores.sizes[PARAMETER])]
    )
    x = np.asarray(scores[DRAW], dtype=float)
    report = examine(x, np.asarray(scores[GRADIENT], dtype=float), names)
    is_violated = report.deviation > 0  # an identity, whatever the chains
    if is_violated and looks_approximate(scores):
        return replace(report, problems=(*report.problems, APPROXIMATE))
    return report
