"""Logarithms of expectations: pointwise predictive densities with control variates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from az_cv.containers.idata import SAMPLE_DIMS, Idata, as_idata, get_group, model_of
from az_cv.containers.labels import scalar_labels
from az_cv.display.table import SummaryTable
from az_cv.engine.delta_method import delta_method
from az_cv.engine.settings import Settings
from az_cv.engine.tails import tail_exponents
from az_cv.labelled.cautions import notify_apart
from az_cv.labelled.integrands import evaluate_integrands
from az_cv.labelled.pipeline import blocks_of, notify_not_finite, prepare
from az_cv.labelled.stacking import element_matrix
from az_cv.notices import collected_notices

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from az_cv.engine.choices import Family, FamilyName, SolverName
    from az_cv.engine.engine import Engine
    from az_cv.labelled.integrands import Integrand
    from az_cv.labelled.pipeline import Prepared
    from az_cv.labelled.weights import DrawKind, LogWeights
    from az_cv.solvers import SGD, Exact
    from az_cv.solvers.folds import FoldChoice

COLUMNS = ("log_mean_exp", "mcse", "vrf")


def log_mean_exp(
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
) -> pd.DataFrame:
    """Estimate ``log E[exp(f)]``, with ``f`` a log density or log likelihood at each draw.

    Pointwise log predictive densities are of this form: ``f`` is the log likelihood of one
    observation. Computed relative to the largest draw, so that nothing overflows.

    Parameters
    ----------
    data, model, scores, var_names, filter_vars, coords
        As in :func:`az_cv.summary`.
    family, solver, folds, log_weights, draws, check, random_seed, progressbar
        As in :func:`az_cv.summary`.
    fn : callable, dict of callables, or None
        Gives ``f``. ``None`` takes the group ``log_likelihood`` of `data`.

    Returns
    -------
    pandas.DataFrame
        Columns ``log_mean_exp``, ``mcse`` and ``vrf``, one row per element of ``f``. It is shown
        with the digits that the errors allow, and holds every digit. Its ``attrs`` hold any
        warnings.

    See Also
    --------
    az_cv.summary : Expectations of other functions.
    az_cv.log_evidence : The marginal likelihood of the model.

    Examples
    --------
    >>> import az_cv
    >>> table = az_cv.log_mean_exp(az_cv.load_eight_schools(), lambda post: -post["tau"])
    >>> list(table.columns)
    ['log_mean_exp', 'mcse', 'vrf']
    """
    idata = as_idata(data)
    settings = Settings(family, solver, folds, random_seed, progressbar, check)
    with collected_notices() as notices:
        prepared = prepare(idata, model_of(data, model), scores, settings, log_weights, draws)
        source = prepared.posterior if fn is not None else _likelihood(idata, prepared)
        integrands = evaluate_integrands(source, fn, var_names, filter_vars, coords).compute()
        logs = element_matrix(integrands)
        # A draw may be impossible under f: exp(-inf) is an honest zero.
        valid = (np.isfinite(logs) | np.isneginf(logs)).all(axis=(0, 1))
        notify_not_finite(integrands, valid)
        found = np.full((logs.shape[2], len(COLUMNS)), np.nan)
        constant = valid & (logs == logs[0, 0]).all(axis=(0, 1))
        found[constant] = np.column_stack(
            [logs[0, 0, constant], np.zeros(constant.sum()), np.ones(constant.sum())]
        )
        compared, exponents = np.full((4, len(found)), np.nan), np.full(len(found), np.nan)
        weights = prepared.weights
        for block in blocks_of(valid & ~constant, prepared.engine, progressbar):
            found[block], compared[:, block], residuals = _block(prepared.engine, logs[..., block])
            if weights is not None:
                exponents[block] = tail_exponents(residuals)
        names = scalar_labels(integrands)
        if weights is None:
            notify_apart(names, "expectations", *compared)
        elif weights.estimated:  # there is no average without control variates to compare with
            found[:, COLUMNS.index("vrf")] = np.nan
    table = SummaryTable(found, index=names, columns=list(COLUMNS))
    if weights is not None:
        table.attrs["weights"] = weights.describe(exponents, names)
    table.attrs["warnings"] = [notice.message for notice in notices]
    return table


def _likelihood(idata: Idata, prepared: Prepared) -> xr.Dataset:
    """Return the log likelihood at the draws that are used."""
    likelihood = get_group(idata, "log_likelihood")
    for dim in SAMPLE_DIMS:
        wanted = prepared.scores.get_index(dim)
        if dim not in likelihood.dims or not wanted.isin(likelihood.get_index(dim)).all():
            raise ValueError(
                f"The group 'log_likelihood' lacks some of the {len(wanted)} labels that the "
                f"posterior has along {dim!r}. Both must hold the same draws: slice the whole data."
            )
        likelihood = likelihood.sel({dim: wanted})
    return likelihood if prepared.copies is None else prepared.copies.select(likelihood)


def _block(engine: Engine, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return value, error and gain of each output, what to hold its expectation against, residuals.

    The second has the expectation of ``exp(f - largest)``, its plain average, the error of that,
    and the sd of the draws.
    """
    largest = logs.max(axis=(0, 1))
    outputs = np.exp(logs - largest)
    estimate = engine.estimate(outputs)
    derived = delta_method(
        estimate,
        outputs[:, engine.folds.first_draw :],
        np.log,
        lambda mean: np.diag(1 / mean),
    )
    sd = outputs.std(axis=(0, 1))
    compared = np.stack([estimate.mean, estimate.plain_mean, estimate.plain_mcse, sd])
    answer = np.column_stack([largest + derived.value, derived.mcse, derived.vrf])
    return answer, compared, estimate.adjusted
