"""The length scale of a kernel, chosen on some of the draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.families import Kernel

    Rows = Float[np.ndarray, "n d"]

TRAINED = 700  # draws that sections are placed at while choosing; as many others judge
RIDGES = (1e-10, 1e-7, 1e-4, 1e-1)


def choose_kernel(kernel: Kernel, x: Rows, s: Rows, guide: Float[np.ndarray, "n g"]) -> Kernel:
    """Return the kernel at the length scale that predicts best what it was not fitted to.

    Parameters
    ----------
    kernel : Kernel
    x, s : arrays of shape (n, d)
        Whitened draws and scores.
    guide : array of shape (n, g)
        Standardised functions.
    """
    variants = kernel.variants(x, s)
    if len(variants) == 1:
        return variants[0]
    count = min(TRAINED, len(x) // 2)
    picked = np.linspace(0, len(x) - 1, 2 * count).astype(int)
    train, test = picked[::2], picked[1::2]
    errors = [_error(variant, x, s, guide, train, test) for variant in variants]
    return variants[int(np.argmin(errors))]


def _error(
    kernel: Kernel, x: Rows, s: Rows, guide: np.ndarray, train: np.ndarray, test: np.ndarray
) -> float:
    """Return the mean logarithm of the squared error on the other draws, at the best ridge."""
    inner = kernel.gram(x[train], s[train], x[train], s[train])
    outer = kernel.gram(x[test], s[test], x[train], s[train])
    size = np.trace(inner) / len(inner)
    best = np.full(guide.shape[1], np.inf)
    for ridge in RIDGES:
        regular = inner + ridge * size * np.eye(len(inner))
        try:
            factor = scipy.linalg.cho_factor(regular, lower=True, overwrite_a=True)
        except scipy.linalg.LinAlgError:
            continue
        both = scipy.linalg.cho_solve(factor, np.column_stack([np.ones(len(inner)), guide[train]]))
        intercept = both[:, 1:].sum(axis=0) / both[:, 0].sum()
        slopes = both[:, 1:] - both[:, :1] * intercept
        residual = guide[test] - intercept - outer @ slopes
        best = np.minimum(best, (residual**2).mean(axis=0))
    return float(np.log(np.maximum(best, 1e-300)).mean())
