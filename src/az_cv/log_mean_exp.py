"""Logarithms of expectations: pointwise predictive densities with control variates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from az_cv.covariance import labels_of
from az_cv.estimate import delta_method
from az_cv.fit import BLOCK, prepare, varying
from az_cv.idata import as_idata, get_group, model_of
from az_cv.integrands import evaluate_integrands, select, stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from az_cv.choices import Family, FamilyName, SolverName
    from az_cv.engine import Engine
    from az_cv.folds import FoldChoice
    from az_cv.integrands import Integrand
    from az_cv.solvers import SGD, Exact

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
    family, solver, folds, check, random_seed, progressbar
        As in :func:`az_cv.summary`.
    fn : callable, dict of callables, or None
        Gives ``f``. ``None`` takes the group ``log_likelihood`` of `data`.

    Returns
    -------
    pandas.DataFrame
        Columns ``log_mean_exp``, ``mcse`` and ``vrf``, one row per element of ``f``.

    Examples
    --------
    >>> import az_cv
    >>> table = az_cv.log_mean_exp(az_cv.load_eight_schools(), lambda post: -post["tau"])
    >>> list(table.columns)
    ['log_mean_exp', 'mcse', 'vrf']
    """
    idata = as_idata(data)
    prepared = prepare(
        idata,
        model=model_of(data, model),
        scores=scores,
        family=family,
        solver=solver,
        folds=folds,
        check=check,
        random_seed=random_seed,
        progressbar=progressbar,
    )
    if fn is None:
        draws = {dim: prepared.posterior[dim] for dim in ("chain", "draw")}
        source = get_group(idata, "log_likelihood").sel(draws)
    else:
        source = prepared.posterior
    integrands = select(evaluate_integrands(source, fn), var_names, filter_vars, coords)
    matrix = stack(integrands).matrix
    found = np.full((matrix.shape[2], len(COLUMNS)), np.nan)
    usable = varying(matrix)
    constant = np.isfinite(matrix).all(axis=(0, 1)) & ~usable
    found[constant] = np.column_stack(
        [matrix[0, 0, constant], np.zeros(constant.sum()), np.ones(constant.sum())]
    )
    chosen = np.flatnonzero(usable)
    for start in range(0, len(chosen), BLOCK):
        block = chosen[start : start + BLOCK]
        found[block] = _block(prepared.engine, matrix[..., block])
    return pd.DataFrame(found, index=labels_of(integrands), columns=list(COLUMNS))


def _block(engine: Engine, logs: np.ndarray) -> np.ndarray:
    """Return value, error and gain of each output."""
    largest = logs.max(axis=(0, 1))
    outputs = np.exp(logs - largest)
    derived = delta_method(
        engine.estimate(outputs),
        outputs[:, engine.folds.first_draw :],
        np.log,
        lambda mean: np.diag(1 / mean),
    )
    return np.column_stack([largest + derived.value, derived.mcse, derived.vrf])
