"""`summary`: the one call."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import arviz_stats
import numpy as np
import pandas as pd
import xarray as xr
from arviz_base import xarray_var_iter
from arviz_base.labels import BaseLabeller

from az_cv.fit import fit
from az_cv.idata import as_idata, get_group
from az_cv.integrands import evaluate_integrands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from az_cv.engine import Family, FamilyName, SolverName
    from az_cv.folds import FoldChoice
    from az_cv.integrands import Integrand
    from az_cv.result import ControlVariateResult
    from az_cv.solvers import SGD, Exact

ESTIMATED = ("mean", "sd", "mcse_mean", "mcse_sd")
DIAGNOSTICS = ("ess_bulk", "ess_tail", "r_hat")
GAINS = ("vrf_mean", "vrf_sd")


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
    round_to: int | Literal["none"] | None = None,
    attach: bool = True,
    random_seed: int | None = None,
    progressbar: bool = True,
) -> pd.DataFrame:
    """Summarise functions of the posterior with variance-reduced estimates.

    The mean and sd are estimated through Stein control variates, with their Monte Carlo standard
    errors and the factor by which the variance shrank. ``ess_bulk``, ``ess_tail`` and ``r_hat`` are
    those of the plain draws, since they diagnose the sampler. The results and the scores are
    attached to `data` as the groups ``cv_scores``, ``cv_draws`` and ``cv_summary``.

    Parameters
    ----------
    data : InferenceData, DataTree or what ``arviz_base`` converts
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
        Which draws are left out when a fit is judged, see :func:`az_cv.folds.make_folds`.
    round_to : int, "none" or None
        Decimals. ``None`` shows the digits that the standard errors allow, two of the error itself.
    attach : bool
        Add the results to `data`.
    random_seed : int, optional
        Of stochastic solvers. Exact ones draw no random numbers.
    progressbar : bool
        Show progress of long gradient evaluations and of training.

    Returns
    -------
    pandas.DataFrame
        ``attrs`` tells the family, solver and folds, and any warning.

    Examples
    --------
    >>> import az_cv
    >>> table = az_cv.summary(az_cv.load_eight_schools(), var_names=["mu", "tau"])
    >>> list(table.index)
    ['mu', 'tau']
    >>> bool(table.loc["mu", "vrf_mean"] > 50)
    True
    """
    _check_round_to(round_to)
    idata = as_idata(data)
    result = fit(
        idata,
        fn,
        model=model,
        scores=scores,
        var_names=var_names,
        filter_vars=filter_vars,
        coords=coords,
        family=family,
        solver=solver,
        folds=folds,
        random_seed=random_seed,
        progressbar=progressbar,
    )
    integrands = evaluate_integrands(get_group(idata, "posterior"), fn)
    table = _table(result, integrands[list(result.estimates.data_vars)], coords)
    if attach:
        result.attach(idata)
    table = _round(table, round_to)
    table.attrs.update(result.settings)
    table.attrs["warnings"] = list(result.warnings)
    return table


def _table(
    result: ControlVariateResult, integrands: xr.Dataset, coords: dict[str, Any] | None
) -> pd.DataFrame:
    """Lay the estimates out under ArviZ's row labels, beside its diagnostics of the plain draws."""
    if coords:
        integrands = integrands.sel(coords)
    labeller = BaseLabeller()
    rows = {}
    for name, selection, index, values in xarray_var_iter(result.estimates, skip_dims={"summary"}):
        label = labeller.make_label_flat(name, selection, index)
        rows[label] = dict(zip(result.estimates["summary"].values.tolist(), values.tolist()))
    estimates = pd.DataFrame.from_dict(rows, orient="index")
    with np.errstate(invalid="ignore"):  # of a constant
        diagnostics = pd.DataFrame(
            {
                "ess_bulk": _flat(arviz_stats.ess(integrands, method="bulk")),
                "ess_tail": _flat(arviz_stats.ess(integrands, method="tail", prob=(0.05, 0.95))),
                "r_hat": _flat(arviz_stats.rhat(integrands)),
            },
            index=estimates.index,
        )
    columns = [*ESTIMATED, *DIAGNOSTICS, *GAINS]
    return pd.concat([estimates, diagnostics], axis=1)[columns]


def _flat(values: xr.Dataset) -> np.ndarray:
    return np.concatenate([np.ravel(values[name].values) for name in values.data_vars])


def _check_round_to(round_to: int | str | None) -> None:
    if round_to is not None and round_to != "none" and not isinstance(round_to, int):
        raise ValueError(
            f"round_to must be a number of decimals, 'none' or None; it is {round_to!r}."
        )


def _round(table: pd.DataFrame, round_to: int | str | None) -> pd.DataFrame:
    """Round to the digits the errors allow: two digits of each error, estimates to match."""
    if round_to == "none":
        return table
    if isinstance(round_to, int):
        return table.round(round_to)
    rounded = table.copy()
    for value, error in (("mean", "mcse_mean"), ("sd", "mcse_sd")):
        decimals = [_decimals(e) for e in table[error]]
        rounded[value] = [round(v, k) for v, k in zip(table[value], decimals)]
        rounded[error] = [round(e, k) for e, k in zip(table[error], decimals)]
    for name in ("ess_bulk", "ess_tail"):
        rounded[name] = table[name].round().astype("Int64")
    rounded["r_hat"] = table["r_hat"].round(3)
    for name in GAINS:
        rounded[name] = [float(f"{v:.2g}") for v in table[name]]
    return rounded


def _decimals(error: float) -> int:
    return 1 - math.floor(math.log10(error)) if np.isfinite(error) and error > 0 else 15
