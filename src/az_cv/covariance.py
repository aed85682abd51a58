"""Covariances and correlations with control variates."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from az_cv.containers.labels import listed, scalar_labels
from az_cv.containers.unknown_names import UnknownNameError
from az_cv.display.table import SummaryTable
from az_cv.engine.delta_method import delta_method
from az_cv.engine.settings import Settings
from az_cv.engine.tails import tail_exponents
from az_cv.labelled.cautions import notify_apart
from az_cv.labelled.integrands import MAX_QUANTITIES, evaluate_integrands
from az_cv.labelled.pipeline import notify_not_finite, prepare
from az_cv.labelled.stacking import stack, varying
from az_cv.notices import collected_notices

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from jaxtyping import Float

    from az_cv.engine.choices import Family, FamilyName, SolverName
    from az_cv.engine.engine import Engine
    from az_cv.labelled.integrands import Integrand
    from az_cv.labelled.weights import DrawKind, LogWeights
    from az_cv.solvers import SGD, Exact
    from az_cv.solvers.folds import FoldChoice

BLOCK = 64  # pairs estimated together
COLUMNS = (
    "covariance",
    "mcse_covariance",
    "vrf_covariance",
    "correlation",
    "mcse_correlation",
    "vrf_correlation",
)
GAINS = ["vrf_covariance", "vrf_correlation"]


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
    log_weights: LogWeights = None,
    draws: DrawKind = "posterior",
    check: bool = True,
    random_seed: int | None = None,
    progressbar: bool = True,
) -> pd.DataFrame:
    """Estimate posterior covariances and correlations of pairs of quantities.

    Parameters
    ----------
    data, fn, model, scores, var_names, filter_vars, coords
        As in :func:`az_cv.summary`.
    family, solver, folds, log_weights, draws, check, random_seed, progressbar
        As in :func:`az_cv.summary`.
    pairs : sequence of (label, label), optional
        Row labels as in the summary, such as ``("mu", "theta[Choate]")``. ``None``: every pair.

    Returns
    -------
    pandas.DataFrame
        One row per pair; the covariance and the correlation, each with its standard error and the
        factor by which its variance shrank. It is shown with the digits that the errors allow, and
        holds every digit. Its ``attrs`` hold any warnings.

    See Also
    --------
    az_cv.summary : Means, sds and intervals.

    Examples
    --------
    >>> import az_cv
    >>> table = az_cv.covariance(az_cv.load_eight_schools(), pairs=[("mu", "tau")])
    >>> bool(table.loc[("mu", "tau"), "vrf_correlation"] > 1)
    True
    """
    settings = Settings(family, solver, folds, random_seed, progressbar, check)
    with collected_notices() as notices:
        prepared = prepare(data, model, scores, settings, log_weights, draws)
        integrands = evaluate_integrands(prepared.posterior, fn, var_names, filter_vars, coords)
        stacked = stack(integrands.compute())
        labels = scalar_labels(stacked.template)
        chosen = _pairs(labels, pairs)
        notify_not_finite(stacked.template, stacked.finite)
        position = {label: k for k, label in enumerate(labels)}
        usable = varying(stacked.matrix)
        weights = prepared.weights
        rows, products, exponents = [], [], []
        for start in range(0, len(chosen), BLOCK):
            block = chosen[start : start + BLOCK]
            indices = np.array([[position[a], position[b]] for a, b in block])
            found, product, tails = _block(
                prepared.engine, stacked.matrix, indices, usable, with_tails=weights is not None
            )
            products.append(product)
            exponents.append(tails)
            with np.errstate(over="ignore", under="ignore"):  # inf or 0 is what a product then is
                units = stacked.unit[indices].prod(axis=1)
                found[["covariance", "mcse_covariance"]] *= units[:, None]
            rows.append(found)
        names = [f"{first} and {second}" for first, second in chosen]
        if weights is None:
            notify_apart(names, "covariances", *np.concatenate(products, axis=1))
    index = pd.MultiIndex.from_tuples(chosen, names=["first", "second"])
    table = SummaryTable(pd.concat(rows).set_index(index))
    if weights is not None:
        table.attrs["weights"] = weights.describe(np.concatenate(exponents), names)
        if weights.estimated:  # there is no average without control variates to compare with
            table[GAINS] = np.nan
    table.attrs["warnings"] = [notice.message for notice in notices]
    return table


def _pairs(labels: Sequence[str], pairs: Sequence[tuple[str, str]] | None) -> list[tuple[str, str]]:
    """Return the pairs asked for, none of which can be mistaken for another."""
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ValueError(
            f"Two quantities have one label, so that pairs of them cannot be told apart: "
            f"{listed(twice)}. Rename one, or select with var_names= and coords=."
        )
    if pairs is None:
        chosen = list(itertools.combinations(labels, 2))
    else:
        wrong = [pair for pair in pairs if isinstance(pair, str) or len(pair) != 2]
        if wrong:
            raise ValueError(f"pairs must be pairs of labels; {wrong[0]!r} is none.")
        chosen = [(first, second) for first, second in pairs]
    if not chosen:
        raise ValueError(f"There is no pair among {labels}.")
    unknown = sorted({label for pair in chosen for label in pair} - set(labels), key=str)
    if unknown:
        raise UnknownNameError(
            f"pairs name {unknown}, which are not among the quantities: {labels}.", unknown, labels
        )
    if len(chosen) > MAX_QUANTITIES:
        raise ValueError(
            f"{len(labels)} quantities make {len(chosen):,} pairs; one call answers at most "
            f"{MAX_QUANTITIES:,}. Select with var_names=, coords= or pairs=."
        )
    return chosen


def _block(
    engine: Engine, matrix: np.ndarray, indices: np.ndarray, usable: np.ndarray, *, with_tails: bool
) -> tuple[pd.DataFrame, Float[np.ndarray, "4 pair"], Float[np.ndarray, " pair"]]:
    """Return covariances and correlations of some pairs, and what to hold them against.

    All is NaN where one of a pair is constant. The second has the expectation of the product of
    both, its plain average, the error of that, and the sd of the product. The third has Pareto k of
    the residuals of covariances where it is asked for.
    """
    table = pd.DataFrame(np.nan, index=range(len(indices)), columns=list(COLUMNS))
    compared, exponents = np.full((4, len(indices)), np.nan), np.full(len(indices), np.nan)
    good = usable[indices].all(axis=1)
    if not good.any():
        return table, compared, exponents
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
    sd = outputs[..., 2 * k :].std(axis=(0, 1))
    whole = estimate.mean, estimate.plain_mean, estimate.plain_mcse
    compared[:, good] = [*(part[2 * k :] for part in whole), sd]
    if with_tails:
        slopes = gradient(estimate.mean)[:half]
        exponents[good] = tail_exponents(estimate.adjusted @ slopes.T)
    return table, compared, exponents
