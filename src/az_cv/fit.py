"""`fit`: scores, integrands and engine together, on labelled data."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from az_cv.checks import validate_scores
from az_cv.choices import describe
from az_cv.engine import Engine, engine_for
from az_cv.estimate import PLAIN, Derived, delta_method
from az_cv.idata import as_idata, get_group, model_of
from az_cv.integrands import evaluate_integrands, sample_elements, select, stack
from az_cv.result import ControlVariateResult
from az_cv.scores.dispatch import scores as find_scores
from az_cv.scores.schema import DRAW, GRADIENT
from az_cv.stein_check import require_matching_scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from az_cv.choices import Family, FamilyName, SolverName
    from az_cv.folds import FoldChoice
    from az_cv.integrands import Integrand
    from az_cv.solvers import SGD, Exact

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
MAX_GUIDES = 40
BLOCK = 128  # integrands estimated together, which bounds memory


@dataclass(frozen=True)
class Prepared:
    """Draws and scores that belong together, and the engine for them.

    Attributes
    ----------
    posterior : Dataset
        Restricted to the draws that have scores.
    scores : Dataset
    engine : Engine
    warnings : tuple of str
        Raised on the way.
    """

    posterior: xr.Dataset
    scores: xr.Dataset
    engine: Engine
    warnings: tuple[str, ...]


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
    check: bool = True,
    random_seed: int | None = None,
    progressbar: bool = True,
) -> ControlVariateResult:
    """Fit Stein control variates to functions of the posterior.

    Parameters
    ----------
    data : InferenceData, DataTree, CmdStanMCMC, NumPyro's MCMC, or what ``arviz_base`` converts
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
    check : bool
        Refuse gradients that do not belong to the draws, see :func:`az_cv.check_scores`.
    random_seed : int, optional
        Of stochastic solvers. Exact ones draw no random numbers.
    progressbar : bool
        Show progress of long gradient evaluations.

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
    prepared = prepare(
        data,
        model=model,
        scores=scores,
        family=family,
        solver=solver,
        folds=folds,
        check=check,
        random_seed=random_seed,
        progressbar=progressbar,
    )
    integrands = select(evaluate_integrands(prepared.posterior, fn), var_names, filter_vars, coords)
    return fit_integrands(prepared, integrands, random_seed)


def prepare(
    data: Any,
    *,
    model: Any,
    scores: xr.Dataset | None,
    family: Family | FamilyName,
    solver: Exact | SGD | SolverName,
    folds: FoldChoice,
    check: bool,
    random_seed: int | None,
    progressbar: bool,
) -> Prepared:
    """Find the scores, make sure that they belong to the draws, and set the engine up."""
    idata = as_idata(data)
    posterior = get_group(idata, "posterior")
    if scores is None:
        scores = find_scores(idata, model=model_of(data, model), progressbar=progressbar)
    scores, posterior = validate_scores(scores, posterior)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if check:
            require_matching_scores(scores)
        engine = engine_for(
            np.asarray(scores[DRAW], dtype=float),
            np.asarray(scores[GRADIENT], dtype=float),
            family=family,
            solver=solver,
            folds=folds,
            random_seed=random_seed,
            progressbar=progressbar,
            guide=_guide(posterior),
        )
    for warning in caught:
        warnings.warn(warning.message, warning.category, stacklevel=3)
    return Prepared(posterior, scores, engine, tuple(str(w.message) for w in caught))


def _guide(posterior: xr.Dataset) -> Float[np.ndarray, "chain draw g"] | None:
    """Return the functions for whose sake hyper-parameters are chosen: means and variances.

    They are the posterior's own variables, whatever is asked.
    """
    elements = sample_elements(posterior, MAX_GUIDES)
    elements = elements[..., varying(elements)]
    if not elements.shape[2]:
        return None
    return np.concatenate([elements, (elements - elements.mean(axis=(0, 1))) ** 2], axis=2)


def fit_integrands(
    prepared: Prepared, integrands: xr.Dataset, random_seed: int | None
) -> ControlVariateResult:
    """Estimate mean and sd of every integrand."""
    stacked = stack(integrands)
    engine = prepared.engine
    engine.history.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimates, adjusted, settings = _estimate(engine, stacked.matrix)
    for warning in caught:
        warnings.warn(warning.message, warning.category, stacklevel=3)
    return ControlVariateResult(
        estimates=xr.concat(
            [stacked.unstack(estimates[name]) for name in SUMMARY],
            dim=xr.DataArray(list(SUMMARY), dims="summary", name="summary"),
        ),
        draws=stacked.unstack_draws(adjusted, engine.folds.first_draw),
        integrands=integrands,
        scores=prepared.scores,
        settings={**settings, "random_seed": str(random_seed)},
        warnings=prepared.warnings + tuple(str(warning.message) for warning in caught),
        history=pd.DataFrame(engine.history) if engine.history else None,
    )


def varying(matrix: Float[np.ndarray, "chain draw q"]) -> np.ndarray:
    """Return which outputs are finite everywhere and not constant."""
    usable = np.isfinite(matrix).all(axis=(0, 1))
    usable[usable] &= np.ptp(matrix[..., usable], axis=(0, 1)) > 0
    return usable


def _estimate(
    engine: Engine, matrix: Float[np.ndarray, "chain draw q"]
) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, str]]:
    """Run the engine on the outputs that vary; the others are what they are."""
    q, first = matrix.shape[2], engine.folds.first_draw
    usable = varying(matrix)
    values = {name: np.full(q, np.nan) for name in SUMMARY}
    constant = np.isfinite(matrix).all(axis=(0, 1)) & ~usable
    for name in ("mean", "plain_mean"):
        values[name][constant] = matrix[0, 0, constant]
    for name in ("sd", "mcse_mean", "mcse_sd", "plain_mcse_mean"):
        values[name][constant] = 0.0
    values["vrf_mean"][constant] = values["vrf_sd"][constant] = 1.0
    adjusted = matrix[:, first:].copy()
    total: dict[str, float] = {}
    chosen = np.flatnonzero(usable)
    for start in range(0, len(chosen), BLOCK):
        block = chosen[start : start + BLOCK]
        shares = _estimate_block(engine, matrix[..., block], block, values, adjusted)
        for label, share in shares.items():
            total[label] = total.get(label, 0.0) + share / len(chosen)
    used = [f"{label} {share:.0%}" for label, share in total.items() if share > 0.005]
    chains, draws = engine.shape
    settings = {
        "family": ", ".join(used) or PLAIN,
        "members": ", ".join(describe(member) for member in engine.members),
        "solver": repr(engine.solver),
        "folds": engine.folds.label,
        "draws": f"{chains} x {draws}",
    }
    return values, adjusted, settings


def _estimate_block(
    engine: Engine,
    chosen: Float[np.ndarray, "chain draw k"],
    block: np.ndarray,
    values: dict[str, np.ndarray],
    adjusted: Float[np.ndarray, "chain draw q"],
) -> dict[str, float]:
    """Fill in the columns of one block; return each member's share, summed over outputs."""
    k = chosen.shape[2]
    centre = chosen.mean(axis=(0, 1))
    moments = np.concatenate([chosen, (chosen - centre) ** 2], axis=2)
    estimate = engine.estimate(moments)
    spread = standard_deviation(estimate, moments[:, engine.folds.first_draw :], centre)
    values["mean"][block] = estimate.mean[:k]
    values["mcse_mean"][block] = estimate.mcse[:k]
    values["plain_mean"][block] = estimate.plain_mean[:k]
    values["plain_mcse_mean"][block] = estimate.plain_mcse[:k]
    values["sd"][block], values["mcse_sd"][block] = spread.value, spread.mcse
    values["vrf_mean"][block] = (estimate.plain_mcse[:k] / estimate.mcse[:k]) ** 2
    values["vrf_sd"][block] = spread.vrf
    adjusted[..., block] = estimate.adjusted[..., :k]
    return {label: float(weight[:k].sum()) for label, weight in estimate.weights.items()}


def standard_deviation(
    estimate: Any, moments: Float[np.ndarray, "chain draw q"], centre: np.ndarray
) -> Derived:
    """Return posterior sds.

    Parameters
    ----------
    estimate : Estimate
        Of ``f`` (first half) and of ``(f - centre)^2`` (second half).
    moments : array of shape (chain, draw, 2 k)
        At the draws that were evaluated.
    centre : array of shape (k,)
    """
    k = len(centre)

    def sd(mean: np.ndarray) -> np.ndarray:
        return np.sqrt(mean[k:] - (mean[:k] - centre) ** 2)

    def gradient(mean: np.ndarray) -> np.ndarray:
        half = 0.5 / sd(mean)
        return np.hstack([np.diag(-2 * (mean[:k] - centre) * half), np.diag(half)])

    return delta_method(estimate, moments, sd, gradient)
