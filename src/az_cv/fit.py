"""`fit`: scores, integrands and engine together, on labelled data."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from az_cv.checks import validate_scores
from az_cv.engine import describe, run_engine
from az_cv.estimate import PLAIN, standard_deviation
from az_cv.idata import as_idata, get_group
from az_cv.integrands import evaluate_integrands, stack
from az_cv.result import ControlVariateResult
from az_cv.scores.dispatch import scores as find_scores
from az_cv.scores.schema import DRAW, GRADIENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from az_cv.engine import Family, FamilyName, SolverName
    from az_cv.folds import FoldChoice
    from az_cv.integrands import Integrand
    from az_cv.solvers import SGD, Exact
    from az_cv.solvers.training import TrainingRecord

SUMMARY = (
    "mean",
    "sd",
    "mcse_mean",
    "mcse_sd",
    "vrf_mean",
    "vrf_sd",
    "plain_mean",
    "plain_mcse_mean",
)


def fit(
    data: Any,
    fn: Integrand = None,
    *,
    model: Any = None,
    scores: xr.Dataset | None = None,
    var_names: str | Sequence[str] | None = None,
    filter_vars: Literal["like", "regex"] | None = None,
    coords: dict[str, Any] | None = None,
    family: Family | FamilyName = "auto",
    solver: Exact | SGD | SolverName = "auto",
    folds: FoldChoice = "auto",
    random_seed: int | None = None,
    progressbar: bool = True,
) -> ControlVariateResult:
    """Fit Stein control variates to functions of the posterior.

    Parameters
    ----------
    data : InferenceData, DataTree or what ``arviz_base`` converts
        Holds the group ``posterior``. It is not modified.
    fn : callable, dict of callables, or None
        Function of the posterior ``Dataset`` (dims chain, draw, ...) that returns a DataArray, a
        Dataset or a dict of them. ``None``: every variable. Booleans are probabilities.
    model : optional
        Where gradients come from when they are not stored; see :func:`az_cv.scores`.
    scores : Dataset, optional
        ``unconstrained_draw`` and ``gradient``, dims (chain, draw, unconstrained_parameter).
    var_names, filter_vars, coords
        Select among the results of `fn`, as in ArviZ.
    family : family or {"auto", "polynomial", "kernel", "network"}
    solver : Exact, SGD or {"auto", "exact", "sgd"}
        ``SGD(time_budget=...)`` limits the seconds that training takes.
    folds : {"auto", "chain"}, int, float or None
        Which draws are left out when a fit is judged, see :func:`az_cv.folds.make_folds`.
    random_seed : int, optional
        Of stochastic solvers. Exact ones draw no random numbers.
    progressbar : bool
        Show progress of long gradient evaluations and of training.

    Returns
    -------
    ControlVariateResult

    Examples
    --------
    >>> import az_cv
    >>> result = az_cv.fit(az_cv.load_eight_schools(), var_names=["mu"], progressbar=False)
    >>> float(result.estimates["mu"].sel(summary="vrf_mean")) > 50
    True
    """
    idata = as_idata(data)
    posterior = get_group(idata, "posterior")
    if scores is None:
        scores = find_scores(idata, model=model, progressbar=progressbar)
    scores, posterior = validate_scores(scores, posterior)
    integrands = _select(evaluate_integrands(posterior, fn), var_names, filter_vars, coords)
    stacked = stack(integrands)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimates, adjusted, first_draw, settings, history = _estimate(
            scores,
            stacked.matrix,
            family=family,
            solver=solver,
            folds=folds,
            random_seed=random_seed,
            progressbar=progressbar,
        )
    for warning in caught:
        warnings.warn(warning.message, warning.category, stacklevel=2)
    return ControlVariateResult(
        estimates=xr.concat(
            [stacked.unstack(estimates[name]) for name in SUMMARY],
            dim=xr.DataArray(list(SUMMARY), dims="summary", name="summary"),
        ),
        draws=stacked.unstack_draws(adjusted, first_draw),
        scores=scores,
        settings={**settings, "random_seed": str(random_seed)},
        warnings=tuple(str(warning.message) for warning in caught),
        history=pd.DataFrame(history) if history else None,
    )


def _estimate(
    scores: xr.Dataset,
    matrix: np.ndarray,
    *,
    family: Family | FamilyName,
    solver: Exact | SGD | SolverName,
    folds: FoldChoice,
    random_seed: int | None,
    progressbar: bool,
) -> tuple[dict[str, np.ndarray], np.ndarray, int, dict[str, str], list[TrainingRecord]]:
    """Run the engine on the outputs that vary; the others are what they are."""
    q = matrix.shape[2]
    usable = np.isfinite(matrix).all(axis=(0, 1))
    usable[usable] &= np.ptp(matrix[..., usable], axis=(0, 1)) > 0
    values = {name: np.full(q, np.nan) for name in SUMMARY}
    constant = np.isfinite(matrix).all(axis=(0, 1)) & ~usable
    for name in ("mean", "plain_mean"):
        values[name][constant] = matrix[0, 0, constant]
    for name in ("sd", "mcse_mean", "mcse_sd", "plain_mcse_mean"):
        values[name][constant] = 0.0
    values["vrf_mean"][constant] = values["vrf_sd"][constant] = 1.0
    adjusted = matrix.copy()
    if not usable.any():
        return values, adjusted, 0, {"family": PLAIN, "solver": "none", "folds": "none"}, []

    chosen = matrix[..., usable]
    centre = chosen.mean(axis=(0, 1))
    moments = np.concatenate([chosen, (chosen - centre) ** 2], axis=2)
    run = run_engine(
        np.asarray(scores[DRAW], dtype=float),
        np.asarray(scores[GRADIENT], dtype=float),
        moments,
        family=family,
        solver=solver,
        folds=folds,
        random_seed=random_seed,
        progressbar=progressbar,
    )
    estimate, k = run.estimate, chosen.shape[2]
    spread = standard_deviation(estimate, chosen, centre, run.folds.first_draw)
    values["mean"][usable] = estimate.mean[:k]
    values["mcse_mean"][usable] = estimate.mcse[:k]
    values["plain_mean"][usable] = estimate.plain_mean[:k]
    values["plain_mcse_mean"][usable] = estimate.plain_mcse[:k]
    values["sd"][usable], values["mcse_sd"][usable] = spread.sd, spread.mcse
    values["vrf_mean"][usable] = (estimate.plain_mcse[:k] / estimate.mcse[:k]) ** 2
    values["vrf_sd"][usable] = (spread.plain_mcse / spread.mcse) ** 2
    first = run.folds.first_draw
    adjusted = adjusted[:, first:]
    adjusted[..., usable] = estimate.adjusted[..., :k]
    shares = {label: float(weight[:k].mean()) for label, weight in estimate.weights.items()}
    settings = {
        "family": ", ".join(
            f"{label} {share:.0%}" for label, share in shares.items() if share > 0.005
        ),
        "members": ", ".join(describe(member) for member in run.members),
        "solver": repr(run.solver),
        "folds": run.folds.label,
    }
    return values, adjusted, first, settings, run.history


def _select(
    integrands: xr.Dataset,
    var_names: str | Sequence[str] | None,
    filter_vars: Literal["like", "regex"] | None,
    coords: dict[str, Any] | None,
) -> xr.Dataset:
    """Select variables and coordinates as ArviZ does."""
    from arviz_base.utils import _var_names

    wanted = (
        list(var_names) if var_names is not None and not isinstance(var_names, str) else var_names
    )
    names = _var_names(wanted, integrands, filter_vars)
    selected = integrands if names is None else integrands[list(names)]
    return selected.sel(coords) if coords else selected
