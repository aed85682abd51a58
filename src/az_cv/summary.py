"""`summary`: the one call."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from az_cv.containers.idata import as_idata, model_of
from az_cv.containers.labels import scalar_labels
from az_cv.display.table import TABLES, SummaryTable, summary_table
from az_cv.engine.quantiles import corrected_quantiles, interval_levels
from az_cv.engine.settings import Settings
from az_cv.engine.weighted import WeightedEngine
from az_cv.engine.weighted_quantiles import effective_draws, weighted_levels
from az_cv.labelled.integrands import evaluate_integrands
from az_cv.labelled.pipeline import blocks_of, fit_integrands, prepare
from az_cv.labelled.plain_columns import plain_columns, plain_table
from az_cv.labelled.stacking import Stacked, stack, varying
from az_cv.labelled.streaming import (
    Question,
    beyond_memory,
    estimate_large,
    require_plain_draws,
)
from az_cv.notices import Notice, collected_notices
from az_cv.solvers.time_limit import leave_out, remaining, require_time, time_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from az_cv.engine.choices import Family, FamilyName, SolverName
    from az_cv.engine.engine import Engine
    from az_cv.labelled.integrands import Integrand
    from az_cv.labelled.result import ControlVariateResult
    from az_cv.labelled.weights import DrawKind, LogWeights
    from az_cv.solvers import SGD, Exact
    from az_cv.solvers.folds import FoldChoice

ESTIMATED = ("mean", "sd", "mcse_mean", "mcse_sd")
GAINS = ("vrf_mean", "vrf_sd")
ENDS = ("lower", "upper")
KINDS = ("eti", "hdi")


def summary(
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
    ci_prob: float | None = None,
    ci_kind: Literal["eti", "hdi"] | None = None,
    round_to: int | Literal["none"] | None = None,
    kind: Literal["full", "stats"] = "full",
    attach: bool = True,
    check: bool = True,
    random_seed: int | None = None,
    progressbar: bool = True,
    max_time: float | None = None,
    memory_limit: float | str | None = None,
) -> pd.DataFrame:
    """Summarise functions of the posterior with variance-reduced estimates.

    The table is that of the installed ArviZ, with the mean, the sd and the interval estimated
    through Stein control variates, their Monte Carlo standard errors, and the factors by which the
    variance of the mean and the sd shrank. ``ess_bulk``, ``ess_tail`` and ``r_hat`` are
    those of the plain draws, since they diagnose the sampler; with weights, the first two are those
    of weighted averages. A probability, the mean of zeros and ones, has no interval. The results
    and the scores are
    attached to `data` as the groups ``cv_scores``, ``cv_draws`` and ``cv_summary``.

    Parameters
    ----------
    data : InferenceData, DataTree, CmdStanMCMC, NumPyro's MCMC, or what ``arviz_base`` converts
        Holds the group ``posterior``.
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
    ci_prob : float, optional
        Probability of the interval; ``None`` as ArviZ's ``rcParams`` say.
    ci_kind : {"eti", "hdi"}, optional
        Equal-tailed or highest-density interval; ``None`` as the installed ArviZ does.
    round_to : int, "none" or None
        Decimals. ``None`` rounds to the digits that the standard errors allow, two of the error
        itself; ``"none"`` rounds nothing, and shows the same digits.
    kind : {"full", "stats"}
        ``"full"``: every column of ArviZ's table, and the gains after them; it is shown with each
        gain beside the error that it explains. ``"stats"``: the mean, the sd, their errors and
        gains, the interval and ``r_hat``, in that order.
    attach : bool
        Add the results to `data`, where it is InferenceData or a DataTree.
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
        Show progress of long gradient evaluations and of training.
    max_time : float, optional
        Seconds that the fits may take, about; gradients are not counted. What there was no time
        for is left out, and named under the table. Answers then depend on the machine.
    memory_limit : float or str, optional
        Bytes, or text such as ``"2GB"``, that the call may take, about; ``None`` is what the
        system has to spare. Lazy (dask) arrays that would need more are read in pieces and never
        held as a whole, and so are arrays in memory where a limit is given.

    Returns
    -------
    pandas.DataFrame
        ``attrs`` tells the family, solver and folds, seconds, and any warning; so does the footer.

    See Also
    --------
    az_cv.fit : The same estimates as an object.
    az_cv.draws_needed : Draws that a given error takes.
    az_cv.check_scores : Whether the gradients belong to the draws.

    Examples
    --------
    >>> import az_cv
    >>> table = az_cv.summary(az_cv.load_eight_schools(), var_names=["mu", "tau"])
    >>> list(table.index)
    ['mu', 'tau']
    >>> bool(table.loc["mu", "vrf_mean"] > 50)
    True
    """
    _check_choices(round_to, ci_prob, ci_kind, kind)
    started = time.perf_counter()
    idata = as_idata(data)
    settings = Settings(family, solver, folds, random_seed, progressbar, check)
    require_time(max_time)
    question = Question(fn, var_names, filter_vars, coords)
    large = beyond_memory(data, scores, model_of(data, model), question, memory_limit)
    if large is not None:
        require_plain_draws(draws, log_weights)
        with collected_notices() as notices:
            answer = estimate_large(large, settings, max_time)
            plain, ends = plain_columns(answer, ci_prob, ci_kind)
            result = _with_interval(answer.result, answer.shown, ends)
        return _finished(result, notices, plain, idata if attach else None, round_to, kind, started)
    with collected_notices() as notices:
        prepared = prepare(idata, model_of(data, model), scores, settings, log_weights, draws)
        integrands = evaluate_integrands(
            prepared.posterior, fn, var_names, filter_vars, coords
        ).compute()
        stacked = stack(integrands)
        plain, ends_kind, probability = plain_table(stacked.matrix, ci_prob, ci_kind)
        plain.index = pd.Index(scalar_labels(integrands))
        if isinstance(prepared.engine, WeightedEngine):
            plain["ess_bulk"], plain["ess_tail"] = effective_draws(prepared.engine, stacked.matrix)
        with time_limit(max_time) as limit:
            result = fit_integrands(prepared, stacked)
            ends = _interval(prepared.engine, stacked, ends_kind, probability, progressbar)
        result = _with_interval(result, stacked, ends).without(limit.left_out)
    return _finished(result, notices, plain, idata if attach else None, round_to, kind, started)


def _finished(
    result: ControlVariateResult,
    notices: Sequence[Notice],
    plain: pd.DataFrame,
    idata: Any,
    round_to: int | Literal["none"] | None,
    kind: str,
    started: float,
) -> SummaryTable:
    """Make the table, and attach the results where there is something to attach them to."""
    # Warnings are out by now: where the user makes errors of them, nothing is attached.
    result = replace(result, warnings=tuple(notice.message for notice in notices))
    table = _table(result, plain, round_to, kind)
    if idata is not None:
        result.attach(idata)
    table.attrs.update(result.settings)
    table.attrs["seconds"] = f"{time.perf_counter() - started:.1f}"
    table.attrs["warnings"] = list(result.warnings)
    return table


def _interval(
    engine: Engine, stacked: Stacked, kind: str, probability: float, progressbar: bool
) -> dict[str, np.ndarray]:
    """Return the ends of every integrand's interval with their errors and gains."""
    matrix = stacked.matrix
    # Zeros and ones have no interval worth the name: it would be from 0 to 1, or a point.
    is_event = np.isin(matrix * stacked.unit, (0.0, 1.0)).all(axis=(0, 1))
    usable = varying(matrix) & ~is_event
    values = {
        f"{what}{end}": np.full(matrix.shape[2], np.nan)
        for end in ENDS
        for what in ("", "mcse_", "vrf_")
    }
    constant = stacked.finite & ~varying(matrix)
    for end in ENDS:
        values[end][constant] = matrix[0, 0, constant]
    if remaining() <= 0:
        leave_out("corrected ends of intervals")
    for block in blocks_of(usable, engine, progressbar):
        outputs = matrix.take(block, axis=2)
        levels = (
            weighted_levels(engine, outputs, probability)
            if isinstance(engine, WeightedEngine) and kind == "hdi"
            else interval_levels(outputs, kind, probability)
        )
        # Both ends in one go: they share the factorisations.
        both = corrected_quantiles(
            engine, np.concatenate([outputs, outputs], axis=2), np.concatenate(levels)
        )
        for end, part in zip(ENDS, (slice(None, len(block)), slice(len(block), None))):
            values[end][block] = both.value[part]
            values[f"mcse_{end}"][block] = both.mcse[part]
            values[f"vrf_{end}"][block] = both.vrf[part]
    for name in (*ENDS, *(f"mcse_{end}" for end in ENDS)):
        values[name] *= stacked.unit
    return values


def _with_interval(
    result: ControlVariateResult, stacked: Stacked, ends: dict[str, np.ndarray]
) -> ControlVariateResult:
    """Add the ends of the intervals to the estimates."""
    extra = xr.concat(
        [stacked.unstack(values) for values in ends.values()],
        dim=xr.DataArray(list(ends), dims="summary", name="summary"),
    )
    return replace(result, estimates=xr.concat([result.estimates, extra], dim="summary"))


def _table(
    result: ControlVariateResult,
    plain: pd.DataFrame,
    round_to: int | Literal["none"] | None,
    kind: str,
) -> SummaryTable:
    """Put the estimates into ArviZ's table of the plain draws, and the gains beside it."""
    found = {
        str(name): np.concatenate(
            [
                np.ravel(result.estimates[variable].sel(summary=name).values)
                for variable in result.estimates.data_vars
            ]
        )
        for name in result.estimates["summary"].values
    }
    table = plain
    for name in ESTIMATED:
        table[name] = found[name]
    interval = [str(name) for name in plain.columns[2:4]]
    for column, end in zip(interval, ENDS):
        table[column] = found[end]
    for name in GAINS:
        table[name] = found[name]
    errors = {column: found[f"mcse_{end}"] for column, end in zip(interval, ENDS)}
    return summary_table(table, errors, round_to, kind)


def _check_choices(
    round_to: int | str | None, ci_prob: float | None, ci_kind: str | None, kind: str
) -> None:
    decimals = isinstance(round_to, int) and not isinstance(round_to, bool)
    if round_to is not None and round_to != "none" and not decimals:
        raise ValueError(
            f"round_to must be a number of decimals, 'none' or None; it is {round_to!r}."
        )
    is_number = isinstance(ci_prob, int | float | np.number) and not isinstance(ci_prob, bool)
    if ci_prob is not None and not (is_number and 0 < ci_prob < 1):
        raise ValueError(f"ci_prob must be a number between 0 and 1; it is {ci_prob!r}.")
    if ci_kind is not None and ci_kind not in KINDS:
        raise ValueError(f"ci_kind {ci_kind!r} is unknown. Choose from {list(KINDS)}.")
    if kind not in TABLES:
        raise ValueError(f"kind {kind!r} is unknown. Choose from {list(TABLES)}.")
