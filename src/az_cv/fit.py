"""`fit`: control variates for functions of the posterior, on labelled data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from az_cv.containers.idata import model_of
from az_cv.engine.settings import Settings
from az_cv.labelled.integrands import evaluate_integrands
from az_cv.labelled.pipeline import fit_integrands, prepare
from az_cv.labelled.stacking import stack
from az_cv.labelled.streaming import (
    Question,
    beyond_memory,
    estimate_large,
    require_plain_draws,
)
from az_cv.notices import collected_notices
from az_cv.solvers.time_limit import require_time, time_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from az_cv.engine.choices import Family, FamilyName, SolverName
    from az_cv.labelled.integrands import Integrand
    from az_cv.labelled.result import ControlVariateResult
    from az_cv.labelled.weights import DrawKind, LogWeights
    from az_cv.solvers import SGD, Exact
    from az_cv.solvers.folds import FoldChoice


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
    log_weights: LogWeights = None,
    draws: DrawKind = "posterior",
    check: bool = True,
    random_seed: int | None = None,
    progressbar: bool = True,
    max_time: float | None = None,
    memory_limit: float | str | None = None,
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
        Which draws are left out when a fit is judged, see :func:`az_cv.solvers.folds.make_folds`.
    log_weights : DataArray over chain and draw, "psis" or None
        Logarithms of what the draws count, up to a constant: of importance sampling or SMC.
        ``"psis"`` computes and smooths them, from the log densities of the posterior and of the
        proposal, which is ``log_proposal`` in the group ``sample_stats``.
    draws : {"posterior", "approximate"}
        ``"approximate"``: the draws come from elsewhere, near the posterior (Laplace, ADVI,
        Pathfinder), and nobody knows their density. Draws that are too far away are refused.
    check : bool
        Refuse gradients that do not belong to the draws, models whose log density is not the one
        that the sampler stored, and densities with hard edges, see :func:`az_cv.check_scores`.
    random_seed : int, optional
        Seed of stochastic solvers. Exact ones draw no random numbers.
    progressbar : bool
        Show progress of long gradient evaluations.
    max_time : float, optional
        Seconds that the fits may take, about; gradients are not counted. What there was no time
        for is left out, and named in ``settings``. Answers then depend on the machine.
    memory_limit : float or str, optional
        Bytes, or text such as ``"2GB"``, that the call may take, about; ``None`` is what the
        system has to spare. Lazy (dask) arrays that would need more are read in pieces and never
        held as a whole, and so are arrays in memory where a limit is given.

    Returns
    -------
    ControlVariateResult

    See Also
    --------
    az_cv.summary : The same estimates as a table.
    az_cv.covariance : Covariances and correlations.

    Examples
    --------
    >>> import az_cv
    >>> data = az_cv.load_eight_schools()
    >>> result = az_cv.fit(data, var_names=["mu"], progressbar=False)
    >>> float(result.estimates["mu"].sel(summary="vrf_mean")) > 50
    True
    """
    settings = Settings(family, solver, folds, random_seed, progressbar, check)
    require_time(max_time)
    question = Question(fn, var_names, filter_vars, coords)
    large = beyond_memory(data, scores, model_of(data, model), question, memory_limit)
    if large is not None:
        require_plain_draws(draws, log_weights)
        with collected_notices() as notices:
            result = estimate_large(large, settings, max_time).result
        return replace(result, warnings=tuple(notice.message for notice in notices))
    with collected_notices() as notices:
        prepared = prepare(data, model, scores, settings, log_weights, draws)
        integrands = evaluate_integrands(
            prepared.posterior, fn, var_names, filter_vars, coords
        ).compute()
        with time_limit(max_time) as limit:
            result = fit_integrands(prepared, stack(integrands)).without(limit.left_out)
    return replace(result, warnings=tuple(notice.message for notice in notices))
