"""Effective sample sizes of many outputs at once.

ArviZ computes the same numbers, one output after the other, and takes four times as long. A table
needs some forty of them for each quantity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.fft

if TYPE_CHECKING:
    from jaxtyping import Float

    Chains = Float[np.ndarray, "chain draw q"]

FEWEST = 4  # draws of a chain; with fewer there is no telling
BLOCK = 16  # outputs at a time, which stay in the processor's cache


def effective_size(chains: Chains) -> Float[np.ndarray, " q"]:
    """Return the effective sample size for the mean of each output, as ArviZ defines it.

    Chains are split into halves. Autocorrelations count up to the first pair whose sum is not
    positive, and pairs do not grow with the lag (Geyer's initial monotone sequence). Constants, and
    outputs that are not finite, count every draw.

    Examples
    --------
    >>> walk = np.random.default_rng(0).normal(size=(4, 500, 2)).cumsum(axis=1)
    >>> bool((effective_size(walk) < 50).all())
    True
    """
    total = chains.shape[0] * chains.shape[1]
    if chains.shape[1] < FEWEST:
        return np.full(chains.shape[2], float(total))
    blocks = [_block(chains[..., k : k + BLOCK]) for k in range(0, chains.shape[2], BLOCK)]
    return np.concatenate([np.empty(0), *blocks])


def _block(chains: Chains) -> Float[np.ndarray, " q"]:
    total, half = chains.shape[0] * chains.shape[1], chains.shape[1] // 2
    split = np.concatenate([chains[:, :half], chains[:, -half:]]).transpose(2, 0, 1)
    split = np.ascontiguousarray(split)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        time = _autocorrelation_time(split)
        is_constant = np.ptp(split, axis=(1, 2)) < np.finfo(float).resolution
    counted = split[0].size
    size = counted / np.maximum(time, 1 / np.log10(counted))
    usable = np.isfinite(size) & (size > 0)
    return np.where(is_constant, counted, np.where(usable, size, total)).astype(float)


def _autocorrelation_time(series: Float[np.ndarray, "q chain draw"]) -> Float[np.ndarray, " q"]:
    """Return how many draws of each output are worth one independent draw."""
    _, chains, n = series.shape
    centre = np.einsum("qcd->qc", series) / n
    length = scipy.fft.next_fast_len(2 * n, real=True)
    spectrum = scipy.fft.rfft(series - centre[..., None], n=length, axis=2)
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=1)
    covariance = scipy.fft.irfft(power, n=length, axis=1)[:, :n] / n
    within = covariance[:, 0] * n / (n - 1)
    whole = covariance[:, 0] + (centre.var(axis=1, ddof=1) if chains > 1 else 0.0)
    correlation = 1 - (within[:, None] - covariance) / whole[:, None]
    correlation[:, 0] = 1.0
    last = max((n - 3) // 2, 0)  # the last pair of lags that may be looked at
    even = correlation[:, 0 : 2 * last + 1 : 2]
    pairs = even + correlation[:, 1 : 2 * last + 2 : 2]
    ended = ~(pairs > 0)
    end = np.where(ended.any(axis=1), ended.argmax(axis=1), last)
    falling = np.cumsum(np.minimum.accumulate(pairs, axis=1), axis=1)
    before = np.where(end > 0, np.take_along_axis(falling, (end - 1)[:, None], axis=1)[:, 0], 0.0)
    at_end = np.take_along_axis(even, end[:, None], axis=1)[:, 0]
    kept = (at_end > 0) | (np.take_along_axis(pairs, end[:, None], axis=1)[:, 0] >= 0)
    time = -1 + 2 * before + np.where(kept, at_end, 0.0)
    return np.where(np.isfinite(whole), time, np.nan)
