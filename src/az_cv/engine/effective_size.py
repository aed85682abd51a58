"""Effective sample sizes of many outputs at once.

ArviZ computes the same numbers, one output after the other, and takes four times as long. A table
needs some forty of them for each quantity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.fft

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    Lags = Float[np.ndarray, "q lag"]
    Chains = Float[np.ndarray, "chain draw q"]

FEWEST = 4  # draws of a chain; with fewer there is no telling
BLOCK = 16  # outputs at a time, which stay in the processor's cache
LAGS = 20  # enough for draws that are nearly independent, as residuals of good fits are


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
    between = centre.var(axis=1, ddof=1) if chains > 1 else np.zeros(len(series))
    series = series - centre[..., None]
    # Most sums end after few lags, and single lags are cheap.
    time, ended = _sums(_first_lags(series, min(LAGS, n)), between, n)
    rest = np.flatnonzero(~ended)
    if len(rest):
        time[rest], _ = _sums(_all_lags(series[rest]), between[rest], n)
    return time


def _first_lags(series: Float[np.ndarray, "q chain draw"], number: int) -> Lags:
    """Return the average autocovariances of centred chains at the first lags."""
    q, chains, n = series.shape
    # Zeros between chains keep them apart, so that one product takes them all.
    apart = np.zeros((q, chains, n + number))
    apart[..., :n] = series
    flat = apart.reshape(q, -1)
    size = flat.shape[1] - number
    products = [flat[:, None, :size] @ flat[:, lag : lag + size, None] for lag in range(number)]
    return np.concatenate(products, axis=1)[..., 0] / (chains * n)


def _all_lags(series: Float[np.ndarray, "q chain draw"]) -> Lags:
    """Return the average autocovariances of centred chains at all lags."""
    n = series.shape[2]
    length = scipy.fft.next_fast_len(2 * n, real=True)
    spectrum = scipy.fft.rfft(series, n=length, axis=2)
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=1)
    return scipy.fft.irfft(power, n=length, axis=1)[:, :n] / n


def _sums(
    covariance: Lags, between: Float[np.ndarray, " q"], n: int
) -> tuple[Float[np.ndarray, " q"], Bool[np.ndarray, " q"]]:
    """Return the autocorrelation times, and whether these lags were enough to know them.

    Parameters
    ----------
    covariance : array of shape (q, lag)
        Averages over chains.
    between : array of shape (q,)
        Variances of the means of chains.
    n : int
        Draws of a chain.
    """
    within = covariance[:, 0] * n / (n - 1)
    whole = covariance[:, 0] + between
    correlation = 1 - (within[:, None] - covariance) / whole[:, None]
    correlation[:, 0] = 1.0
    # The last pair of lags that may be looked at, and that is known.
    last = min(max((n - 3) // 2, 0), covariance.shape[1] // 2 - 1)
    even = correlation[:, 0 : 2 * last + 1 : 2]
    pairs = even + correlation[:, 1 : 2 * last + 2 : 2]
    ended = ~(pairs > 0)
    end = np.where(ended.any(axis=1), ended.argmax(axis=1), last)
    falling = np.cumsum(np.minimum.accumulate(pairs, axis=1), axis=1)
    before = np.where(end > 0, np.take_along_axis(falling, (end - 1)[:, None], axis=1)[:, 0], 0.0)
    at_end = np.take_along_axis(even, end[:, None], axis=1)[:, 0]
    kept = (at_end > 0) | (np.take_along_axis(pairs, end[:, None], axis=1)[:, 0] >= 0)
    time = -1 + 2 * before + np.where(kept, at_end, 0.0)
    is_known = ended.any(axis=1) | (covariance.shape[1] == n)
    return np.where(np.isfinite(whole), time, np.nan), is_known
