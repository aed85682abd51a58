"""From batches of residuals to means, sds and their errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from az_cv.engine.combination import PLAIN, Estimate, combine
from az_cv.engine.delta_method import standard_deviation
from az_cv.solvers.base import Member

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jaxtyping import Float

    from az_cv.engine.streaming.adjust import Residuals
    from az_cv.engine.streaming.gram import Functions
    from az_cv.solvers.error_model import ErrorModel

    Chains = Float[np.ndarray, "chain batch k"]

# Sums of features have rounding errors that do not average out, in units of the outputs' scatter:
# with 128,000 draws of a multivariate Student's t, where polynomials are exact, about 1e-13.
ROUNDING = 1e-13
TOGETHER = 64  # outputs whose errors are judged together
FITTED = "fitted"
COLUMNS = (
    "mean",
    "sd",
    "mcse_mean",
    "mcse_sd",
    "vrf_mean",
    "vrf_sd",
    "plain_mean",
    "plain_mcse_mean",
)


@dataclass(frozen=True)
class Series:
    """Averages over batches, chain by chain.

    Attributes
    ----------
    plain, adjusted : arrays of shape (chain, batch, k)
        Weighted so that their mean is that of the draws.
    starts : array of shape (batch,)
        The first draw of each batch.
    lowest, highest : arrays of shape (q,)
    """

    plain: Chains
    adjusted: Chains
    starts: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray


def in_order(parts: Mapping[int, Residuals], chains: int) -> Series:
    """Put the stretches of all folds into the order of the chains."""
    found = [
        (place, part.plain[k], part.adjusted[k], part.lengths[k])
        for part in parts.values()
        for k, place in enumerate(part.places)
    ]
    found.sort(key=lambda stretch: stretch[0])
    lengths = np.concatenate([stretch[3] for stretch in found])
    weights = (lengths * (len(lengths) / lengths.sum()))[:, None]

    def whole(number: int) -> Chains:
        rows = np.concatenate([stretch[number] for stretch in found])
        centre = np.mean(weights * rows, axis=0)
        rows -= centre  # the weights of unequal batches are no scatter of the outputs
        rows *= weights
        rows += centre
        return rows.reshape(chains, -1, rows.shape[1])

    own = lengths.reshape(chains, -1)[0]
    return Series(
        whole(1),
        whole(2),
        np.concatenate([[0], np.cumsum(own)[:-1]]),
        np.min([part.lowest for part in parts.values()], axis=0),
        np.max([part.highest for part in parts.values()], axis=0),
    )


def judge(
    series: Series,
    functions: Functions,
    labels: Sequence[str],
    tail: Float[np.ndarray, " k"],
    dimension: int,
    errors: ErrorModel,
) -> tuple[dict[str, np.ndarray], dict[str, float], np.ndarray]:
    """Estimate mean and sd of every output of a block.

    Parameters
    ----------
    series : Series
    functions : Functions
    labels : sequence of str
        Of the fit of each output.
    tail : array of shape (k,)
        Error of each fit from the region beyond the outermost draws.
    dimension : int
    errors : ErrorModel

    Returns
    -------
    values : dict of column to array of shape (q,)
    shares : dict of label to sum of weights
    adjusted : array of shape (chain, batch, q)
        In units of the outputs.
    """
    q = len(functions.centre)
    values = {name: np.full(q, np.nan) for name in COLUMNS}
    tail = np.hypot(tail, ROUNDING)
    adjusted = functions.centre + functions.scale * series.plain[..., :q]
    finite = np.isfinite(series.lowest) & np.isfinite(series.highest)
    constant = finite & (series.lowest == series.highest)
    for name in ("mean", "plain_mean"):
        values[name][constant] = series.lowest[constant]
    for name in ("sd", "mcse_mean", "mcse_sd", "plain_mcse_mean"):
        values[name][constant] = 0.0
    values["vrf_mean"][constant] = values["vrf_sd"][constant] = 1.0
    shares: dict[str, float] = {}
    usable = np.flatnonzero(finite & ~constant)
    for start in range(0, len(usable), TOGETHER):
        block = usable[start : start + TOGETHER]
        estimate = _judge_block(series, functions, block, tail, values, dimension, errors)
        scale, centre = functions.scale[block], functions.centre[block]
        adjusted[..., block] = centre + scale * estimate.adjusted[..., : len(block)]
        fitted = estimate.weights.get(FITTED, np.zeros(2 * len(block)))
        for k, output in enumerate(block):
            for label, share in ((labels[output], fitted[k]), (PLAIN, 1 - fitted[k])):
                shares[label] = shares.get(label, 0.0) + float(share)
    return values, shares, adjusted


def _judge_block(
    series: Series,
    functions: Functions,
    block: np.ndarray,
    tail: Float[np.ndarray, " k"],
    values: dict[str, np.ndarray],
    dimension: int,
    errors: ErrorModel,
) -> Estimate:
    """Fill in the columns of some outputs; return the estimates in standardised units."""
    k, q = len(block), len(functions.centre)
    both = np.concatenate([block, q + block])
    plain, fitted = series.plain[..., both], series.adjusted[..., both]
    # In units of the scatter of batches, tolerances mean the same for all.
    centre, scale = plain.mean(axis=(0, 1)), plain.std(axis=(0, 1))
    scale = np.where(scale > 0, scale, 1.0)
    adjusted = (fitted - centre) / scale
    member = Member(FITTED, adjusted.mean(axis=(0, 1)), adjusted, tail[both] / scale)
    estimate = combine((plain - centre) / scale, [member], dimension, errors)
    # Squares less one, in units of their own, back to squares.
    own = functions.square_scale[block]
    zero, one = np.zeros(k), np.ones(k)
    unit, shift = np.concatenate([one, own]), np.concatenate([zero, one])
    estimate = estimate.rescaled(centre, scale).rescaled(shift, unit)
    spread = standard_deviation(estimate, shift + unit * plain, zero)
    size = functions.scale[block]
    values["mean"][block] = functions.centre[block] + size * estimate.mean[:k]
    values["plain_mean"][block] = functions.centre[block] + size * estimate.plain_mean[:k]
    values["mcse_mean"][block] = size * estimate.mcse[:k]
    values["plain_mcse_mean"][block] = size * estimate.plain_mcse[:k]
    values["sd"][block], values["mcse_sd"][block] = size * spread.value, size * spread.mcse
    values["vrf_mean"][block] = (estimate.plain_mcse[:k] / estimate.mcse[:k]) ** 2
    values["vrf_sd"][block] = spread.vrf
    return estimate
