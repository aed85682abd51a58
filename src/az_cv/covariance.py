"""Covariances and correlations with control variates."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from arviz_base import xarray_var_iter
from arviz_base.labels import BaseLabeller

from az_cv.estimate import delta_method
from az_cv.fit import prepare, varying
from az_cv.integrands import evaluate_integrands, select, stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from az_cv.choices import Family, FamilyName, SolverName
    from az_cv.engine import Engine
    from az_cv.folds import FoldChoice
    from az_cv.integrands import Integrand
    from az_cv.solvers import SGD, Exact

BLOCK = 64  # pairs estimated together
COLUMNS = (
    "covariance",
    "mcse_covariance",
    "vrf_covariance",
    "correlation",
    "mcse_correlation",
    "vrf_correlation",
)


def covariance(
    data: Any,
    fn: Integrand = None,
    *,
    pairs: Sequence[tuple[str, str]] | None = None,
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
    """Estimate posterior covariances and correlations of pairs of quantities.

    Parameters
    ----------
    data, fn, model, scores, var_names, filter_vars, coords
        As in :func:`az_cv.summary`.
    family, solver, folds, check, random_seed, progressbar
        As in :func:`az_cv.summary`.
    pairs : sequence of (label, label), optional
        Row labels as in the summary, such as ``("mu", "theta[Choate]")``. ``None``: every pair.

    Returns
    -------
    pandas.DataFrame
        One row per pair; the covariance and the correlation, each with its standard error and the
        factor by which its variance shrank.

    Examples
    --------
    >>> import az_cv
    >>> table = az_cv.covariance(az_cv.load_eight_schools(), pairs=[("mu", "tau")])
    >>> bool(table.loc[("mu", "tau"), "vrf_correlation"] > 1)
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
    stacked = stack(integrands)
    labels = labels_of(integrands)
    chosen = list(itertools.combinations(labels, 2)) if pairs is None else [*map(tuple, pairs)]
    if not chosen:
        raise ValueError(f"There is no pair among {labels}.")
    unknown = sorted({label for pair in chosen for label in pair} - set(labels))
    if unknown:
        raise KeyError(f"pairs name {unknown}, which are not among the quantities: {labels}.")
    position = {label: k for k, label in enumerate(labels)}
    usable = varying(stacked.matrix)
    rows = []
    for start in range(0, len(chosen), BLOCK):
        block = chosen[start : start + BLOCK]
        indices = np.array([[position[a], position[b]] for a, b in block])
        rows.append(_block(prepared.engine, stacked.matrix, indices, usable))
    index = pd.MultiIndex.from_tuples(chosen, names=["first", "second"])
    return pd.concat(rows).set_index(index)


def _block(
    engine: Engine, matrix: np.ndarray, indices: np.ndarray, usable: np.ndarray
) -> pd.DataFrame:
    """Return covariances and correlations of some pairs, NaN where one of them is constant."""
    table = pd.DataFrame(np.nan, index=range(len(indices)), columns=list(COLUMNS))
    good = usable[indices].all(axis=1)
    if not good.any():
        return table
    involved, where = np.unique(indices[good], return_inverse=True)
    first, second = where.reshape(-1, 2).T
    centred = matrix[..., involved] - matrix[..., involved].mean(axis=(0, 1))
    k = len(involved)
    # Means, second moments, products: everything below is a function of their expectations.
    outputs = np.concatenate(
        [centred, centred**2, centred[..., first] * centred[..., second]], axis=2
    )
    estimate = engine.estimate(outputs)

    def moments(mean: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        product = mean[2 * k :] - mean[first] * mean[second]
        variance = mean[k : 2 * k] - mean[:k] ** 2
        return product, np.sqrt(variance[first]), np.sqrt(variance[second])

    def value(mean: np.ndarray) -> np.ndarray:
        product, a, b = moments(mean)
        return np.concatenate([product, product / (a * b)])

    def gradient(mean: np.ndarray) -> np.ndarray:
        product, a, b = moments(mean)
        pairs, rows = len(first), np.arange(len(first))
        slopes = np.zeros((2 * pairs, len(mean)))
        slopes[rows, 2 * k + rows] = 1.0
        np.add.at(slopes, (rows, first), -mean[second])
        np.add.at(slopes, (rows, second), -mean[first])
        slopes[pairs:] = slopes[:pairs] / (a * b)[:, None]
        correlation = product / (a * b)
        for which, sd in ((first, a), (second, b)):
            np.add.at(slopes, (pairs + rows, k + which), -correlation / (2 * sd**2))
            np.add.at(slopes, (pairs + rows, which), correlation * mean[which] / sd**2)
        return slopes

    found = delta_method(estimate, outputs[:, engine.folds.first_draw :], value, gradient)
    half = len(first)
    for name, part in (("covariance", slice(None, half)), ("correlation", slice(half, None))):
        table.loc[good, name] = found.value[part]
        table.loc[good, f"mcse_{name}"] = found.mcse[part]
        table.loc[good, f"vrf_{name}"] = found.vrf[part]
    return table


def labels_of(integrands: xr.Dataset) -> list[str]:
    """Return the row labels of the summary, in its order."""
    labeller = BaseLabeller()
    return [
        labeller.make_label_flat(name, selection, index)
        for name, selection, index, _ in xarray_var_iter(integrands, skip_dims={"chain", "draw"})
    ]
