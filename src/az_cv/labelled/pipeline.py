"""The way of the data: scores found and checked, integrands through the engine, labels put back."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr
from rich.progress import track

from az_cv.containers.idata import as_idata, get_group, model_of
from az_cv.containers.labels import listed, scalar_labels
from az_cv.engine.cache import engine_for
from az_cv.engine.combination import PLAIN, Estimate
from az_cv.engine.delta_method import standard_deviation
from az_cv.engine.density_check import relative_precision
from az_cv.engine.engine import Engine
from az_cv.engine.relation import require_related
from az_cv.engine.tails import tail_exponents
from az_cv.families import NamingFamily
from az_cv.families.description import describe
from az_cv.labelled.cautions import notify_apart, notify_heavy
from az_cv.labelled.provenance import require_sampled_model
from az_cv.labelled.repeats import distinct_draws, without_copies
from az_cv.labelled.result import ControlVariateResult
from az_cv.labelled.stacking import Stacked, sample_elements, varying
from az_cv.labelled.validation import require_matching_scores, validate_scores
from az_cv.labelled.weights import (
    DrawKind,
    LogWeights,
    counted_once,
    find_weights,
    require_draw_kind,
    require_identities,
)
from az_cv.notices import notify
from az_cv.sources.dispatch import scores as find_scores
from az_cv.sources.schema import DRAW, GRADIENT, PARAMETER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jaxtyping import Float

    from az_cv.engine.settings import Settings
    from az_cv.labelled.repeats import Distinct
    from az_cv.labelled.weights import Weights

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
MAX_ASKED = 200
GAINS = ("vrf_mean", "vrf_sd")
# Integrands estimated together: this bounds memory, with many draws at so many numbers.
BLOCK, NUMBERS = 128, 2**25
MANY_BLOCKS = 8  # from so many on their progress is shown


@dataclass(frozen=True)
class Prepared:
    """Draws and scores that belong together, and the engine for them.

    Attributes
    ----------
    posterior : Dataset
        Restricted to the draws that have scores.
    scores : Dataset
    engine : Engine
    provenance : str
        Which model the answer is for, as far as the data can tell.
    weights : Weights, optional
        Weights of the draws, where they do not all count the same.
    copies : Distinct, optional
        The draws in `posterior` and in the engine, where copies of others were left out.
    """

    posterior: xr.Dataset
    scores: xr.Dataset
    engine: Engine
    provenance: str
    weights: Weights | None = None
    copies: Distinct | None = None


def prepare(
    data: Any,
    model: Any,
    scores: xr.Dataset | None,
    settings: Settings,
    log_weights: LogWeights = None,
    draws: DrawKind = "posterior",
) -> Prepared:
    """Find the scores, make sure that they belong to the draws, and set the engine up."""
    require_draw_kind(draws, log_weights)
    weighted = draws != "posterior" or log_weights is not None
    scores, posterior, provenance = matched_scores(
        data, model, scores, settings, weighted=weighted, counted=True
    )
    weights = find_weights(scores, as_idata(data), log_weights, draws, settings.check)
    if weighted and weights is None and settings.check:
        require_matching_scores(scores)
    copies = distinct_draws(scores, None if weights is None else weights.values)
    used = scores
    if copies is not None:
        used, posterior = copies.select(scores), copies.select(posterior)
        known = weights is not None
        weights = counted_once(copies.weights, weights)
        if settings.check and not known:
            require_identities(weights.values, used)
    x = np.asarray(used[DRAW], dtype=float)
    s = np.asarray(used[GRADIENT], dtype=float)
    names = [str(name) for name in scores[PARAMETER].values]
    if isinstance(settings.family, NamingFamily):
        settings = replace(settings, family=settings.family.among(names))
    elements = sample_elements(posterior, MAX_GUIDES)
    elements = elements[..., varying(elements)]
    if not s.any():
        notify(
            "All gradients are zero, and no control variate can be made of them: the plain "
            "averages are the answer."
        )
    asked = sample_elements(posterior, MAX_ASKED)
    asked = asked[..., varying(asked)]
    engine = engine_for(
        x,
        s,
        settings,
        guide=_guide(elements),
        asked=asked,
        weights=None if weights is None else weights.values,
    )
    return Prepared(posterior, scores, engine, provenance, weights, copies)


def matched_scores(
    data: Any,
    model: Any,
    scores: xr.Dataset | None,
    settings: Settings,
    *,
    weighted: bool = False,
    counted: bool = False,
) -> tuple[xr.Dataset, xr.Dataset, str]:
    """Find the scores, and make sure that they belong to the draws.

    Identities of draws that count differently (`weighted`) are tested elsewhere, and copies of
    draws are left out elsewhere (`counted`).

    Returns
    -------
    scores, posterior : Dataset
        On the same draws.
    provenance : str
        Which model the answer is for, as far as the data can tell.
    """
    idata = as_idata(data)
    posterior = get_group(idata, "posterior")
    if scores is None:
        scores = find_scores(idata, model=model_of(data, model), progressbar=settings.progressbar)
    scores, posterior = without_copies(*validate_scores(scores, posterior), counted=counted)
    provenance = require_sampled_model(scores, idata, posterior, settings.check)
    if settings.check:
        elements = sample_elements(posterior, MAX_GUIDES)
        if not weighted and not (counted and distinct_draws(scores, None)):
            require_matching_scores(scores)
        require_related(elements[..., varying(elements)], np.asarray(scores[DRAW], dtype=float))
    return scores, posterior, provenance


def _guide(
    elements: Float[np.ndarray, "chain draw k"],
) -> Float[np.ndarray, "chain draw g"] | None:
    """Return the functions for whose sake hyper-parameters are chosen: means and variances.

    They are the posterior's own variables, whatever is asked.
    """
    if not elements.shape[2]:
        return None
    return np.concatenate([elements, (elements - elements.mean(axis=(0, 1))) ** 2], axis=2)


def fit_integrands(prepared: Prepared, stacked: Stacked) -> ControlVariateResult:
    """Estimate mean and sd of every integrand."""
    notify_not_finite(stacked.template, stacked.finite)
    notify_heavy(stacked)
    engine, weights = prepared.engine, prepared.weights
    names = scalar_labels(stacked.template)
    history: list[Any] = []
    estimates, adjusted, settings = _estimate(engine, stacked.matrix, history)
    if weights is None:
        with np.errstate(invalid="ignore"):
            sd = stacked.matrix.std(axis=(0, 1))
        plain = estimates["plain_mean"], estimates["plain_mcse_mean"], sd
        notify_apart(names, "means", estimates["mean"], *plain)
    elif weights.estimated:
        # There is no average without control variates that a gain could be measured by.
        for name in (*GAINS, "plain_mean", "plain_mcse_mean"):
            estimates[name][:] = np.nan
    _count_rounding(estimates, stacked.matrix, prepared.scores)
    for name in estimates.keys() - set(GAINS):
        estimates[name] *= stacked.unit
    return ControlVariateResult(
        estimates=xr.concat(
            [stacked.unstack(estimates[name]) for name in SUMMARY],
            dim=xr.DataArray(list(SUMMARY), dims="summary", name="summary"),
        ),
        draws=stacked.unstack_draws(adjusted * stacked.unit, engine.folds.first_draw),
        integrands=stacked.template,
        scores=prepared.scores,
        settings={
            **settings,
            **_found(engine.top, prepared.scores),
            "provenance": prepared.provenance,
            **({"weights": weights.describe(tail_exponents(adjusted), names)} if weights else {}),
            "random_seed": str(engine.settings.random_seed),
        },
        warnings=(),
        history=pd.DataFrame(history) if history else None,
    )


def _count_rounding(
    estimates: dict[str, np.ndarray], matrix: Float[np.ndarray, "chain draw q"], scores: xr.Dataset
) -> None:
    """Count as error what functions miss of draws that were rounded onto a bound.

    Gradients are taken where the draws were, functions where they were rounded to.
    """
    share = float(scores.attrs.get("restored_share", 0.0))
    if not share:
        return
    largest = np.abs(matrix).max(axis=(0, 1))
    rounding = np.array([relative_precision(column) for column in np.moveaxis(matrix, 2, 0)])
    missed = share * rounding * largest
    for name in ("mean", "sd"):
        before = estimates[f"mcse_{name}"].copy()
        estimates[f"mcse_{name}"] = np.hypot(before, missed)
        with np.errstate(invalid="ignore", divide="ignore"):
            factor = (before / estimates[f"mcse_{name}"]) ** 2
        estimates[f"vrf_{name}"] *= np.where(missed > 0, factor, 1.0)


def _found(top: tuple[int, ...], scores: xr.Dataset) -> dict[str, str]:
    """Return what to say of the parameters that govern others, if there are any."""
    return {"global": ", ".join(str(scores[PARAMETER].values[k]) for k in top)} if top else {}


def notify_not_finite(integrands: xr.Dataset, is_finite: np.ndarray) -> None:
    """Name the quantities whose draws are not all finite: nothing is estimated for them."""
    if is_finite.all():
        return
    labels = [label for label, good in zip(scalar_labels(integrands), is_finite) if not good]
    notify(
        f"{len(labels)} of {len(is_finite)} quantities are not finite at every draw, and their "
        f"rows are NaN: {listed(labels)}. Find those draws with numpy.isfinite, or ask for a "
        "function that is finite."
    )


def blocks_of(usable: np.ndarray, engine: Engine, progressbar: bool) -> Iterable[np.ndarray]:
    """Return the positions of the usable outputs in blocks, with a progress bar over many."""
    chosen = np.flatnonzero(usable)
    size = max(1, min(BLOCK, NUMBERS // math.prod(engine.shape)))
    blocks = [chosen[start : start + size] for start in range(0, len(chosen), size)]
    return track(
        blocks,
        description="Estimating",
        transient=True,
        disable=not progressbar or len(blocks) < MANY_BLOCKS,
    )


def _estimate(
    engine: Engine, matrix: Float[np.ndarray, "chain draw q"], history: list[Any]
) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, str]]:
    """Run the engine on the outputs that vary; the others are what they are.

    What training says goes into `history`.
    """
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
    for block in blocks_of(usable, engine, engine.settings.progressbar):
        estimate = _estimate_block(engine, matrix.take(block, axis=2), block, values, adjusted)
        history += estimate.history
        for label, weight in estimate.weights.items():
            share = float(weight[: len(block)].sum()) / usable.sum()
            total[label] = total.get(label, 0.0) + share
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
) -> Estimate:
    """Fill in the columns of one block; return the estimates of means and squares."""
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
    return estimate
