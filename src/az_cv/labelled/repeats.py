"""Draws that are copies of others are no new information."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from az_cv.notices import notify
from az_cv.sources.schema import DRAW

if TYPE_CHECKING:
    import xarray as xr
    from jaxtyping import Float

SHARE = 0.02  # of the draws, from which on copies are worth a word


def without_copies(scores: xr.Dataset, posterior: xr.Dataset) -> tuple[xr.Dataset, xr.Dataset]:
    """Leave out chains that are copies of others, and say how many other draws are copies.

    A draw that equals the one before it is what a Metropolis sampler makes of a rejection, and is
    counted by the autocorrelation; copies elsewhere come from resampling, or from a chain that was
    given twice.

    Parameters
    ----------
    scores, posterior : Dataset
        On the same chains and draws.

    Returns
    -------
    scores, posterior : Dataset

    Warns
    -----
    UserWarning
        If there are copies.
    """
    x = np.asarray(scores[DRAW], dtype=float)
    labels = scores.get_index("chain")
    first: dict[bytes, int] = {}
    copies: list[str] = []
    for k, chain in enumerate(x):
        original = first.setdefault(chain.tobytes(), k)
        if original != k:
            copies.append(f"chain {labels[k]} of chain {labels[original]}")
    if copies:
        kept = sorted(first.values())
        notify(
            f"Chains are copies of each other, and count once: {', '.join(copies)}. Chains with "
            "one seed are one chain; sample them with seeds of their own."
        )
        scores, posterior = scores.isel(chain=kept), posterior.isel(chain=kept)
        x = x[kept]
    share = _copied_share(x)
    if share > SHARE:
        notify(
            f"{share:.0%} of the draws are copies of draws elsewhere, as after resampling (SMC, "
            "importance sampling). They are taken for draws of their own, and errors of what "
            "control variates do not explain, such as probabilities of events, are too small."
        )
    return scores, posterior


def _copied_share(x: Float[np.ndarray, "chain draw d"]) -> float:
    """Return the share of draws that equal another one, other than the one just before."""
    moved = np.ones(x.shape[:2], dtype=bool)
    moved[:, 1:] = (x[:, 1:] != x[:, :-1]).any(axis=2)
    rows = np.ascontiguousarray(x[moved])
    keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))
    return 1 - len(np.unique(keys)) / x[..., 0].size - float((~moved).mean())
