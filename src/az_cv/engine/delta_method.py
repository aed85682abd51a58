"""Smooth functions of expectations, with errors by the delta method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from az_cv.engine.errors import plain_standard_error, rounding_error, standard_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float

    from az_cv.engine.combination import Estimate

    PerOutput = Float[np.ndarray, " q"]
    Chains = Float[np.ndarray, "chain draw q"]


@dataclass(frozen=True)
class Derived:
    """Smooth functions of expectations with their errors, each of shape (k,)."""

    value: PerOutput
    mcse: PerOutput
    plain_value: PerOutput
    plain_mcse: PerOutput

    @property
    def vrf(self) -> PerOutput:
        """Plain variance over the new one."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return (self.plain_mcse / self.mcse) ** 2


def delta_method(
    estimate: Estimate,
    outputs: Chains,
    function: Callable[[PerOutput], PerOutput],
    gradient: Callable[[PerOutput], Float[np.ndarray, "k q"]],
) -> Derived:
    """Return k functions of the expectations of q outputs, errors by the delta method.

    Where the function has no finite value at the estimate, or its error is no smaller, the plain
    averages answer.

    Parameters
    ----------
    estimate : Estimate
        Estimate of the q outputs.
    outputs : array of shape (chain, draw, q)
        Values at the draws that were evaluated.
    function, gradient : callables
        A function of the vector of expectations, and its gradient.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        value, slopes = function(estimate.mean), gradient(estimate.mean)
        plain_value, plain_slopes = function(estimate.plain_mean), gradient(estimate.plain_mean)
        mcse = standard_error(
            estimate.adjusted @ np.nan_to_num(slopes).T,
            np.abs(slopes) @ estimate.tail,
            estimate.errors,
        )
        rounding = np.abs(slopes) @ rounding_error(outputs)
        mcse = np.maximum(mcse, rounding)
        plain_draws = outputs if estimate.plain_draws is None else estimate.plain_draws
        plain_mcse = plain_standard_error(plain_draws @ plain_slopes.T)
        if estimate.plain_tail is not None:
            plain_mcse = np.hypot(plain_mcse, np.abs(plain_slopes) @ estimate.plain_tail)
        helpful = np.isfinite(value) & np.isfinite(mcse) & (mcse < plain_mcse)
    return Derived(
        value=np.where(helpful, value, plain_value),
        mcse=np.where(helpful, mcse, plain_mcse),
        plain_value=plain_value,
        plain_mcse=plain_mcse,
    )


def standard_deviation(estimate: Estimate, moments: Chains, centre: np.ndarray) -> Derived:
    """Return posterior sds.

    Parameters
    ----------
    estimate : Estimate
        Estimate of ``f`` (first half) and of ``(f - centre)^2`` (second half).
    moments : array of shape (chain, draw, 2 k)
        Values at the draws that were evaluated.
    centre : array of shape (k,)
    """
    k = len(centre)

    def sd(mean: np.ndarray) -> np.ndarray:
        return np.sqrt(mean[k:] - (mean[:k] - centre) ** 2)

    def gradient(mean: np.ndarray) -> np.ndarray:
        half = 0.5 / sd(mean)
        return np.hstack([np.diag(-2 * (mean[:k] - centre) * half), np.diag(half)])

    return delta_method(estimate, moments, sd, gradient)
