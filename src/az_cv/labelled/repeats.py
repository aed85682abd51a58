"""Draws that are copies of others are no new information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS
from az_cv.notices import notify
from az_cv.sources.schema import DRAW

if TYPE_CHECKING:
    from jaxtyping import Float, Int

SHARE = 0.02  # of the draws, from which on copies are worth a word


def without_copies(
    scores: xr.Dataset, posterior: xr.Dataset, *, counted: bool = False
) -> tuple[xr.Dataset, xr.Dataset]:
    """Leave out chains that are copies of others, and say how many other draws are copies.

    A draw that equals the one before it is what a Metropolis sampler makes of a rejection, and is
    counted by the autocorrelation; copies elsewhere come from resampling, or from a chain that was
    given twice.

    Parameters
    ----------
    scores, posterior : Dataset
        On the same chains and draws.
    counted : bool
        Whether the caller counts other copies once, with weights.

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
    if share > SHARE and counted:
        notify(
            f"{share:.0%} of the draws are copies of draws elsewhere, as after resampling (SMC, "
            "importance sampling). Each counts once, with the number of its copies as a weight."
        )
    elif share > SHARE:
        notify(
            f"{share:.0%} of the draws are copies of draws elsewhere, as after resampling (SMC, "
            "importance sampling). They are taken for draws of their own, and errors of what "
            "control variates do not explain, such as probabilities of events, are too small."
        )
    return scores, posterior


@dataclass(frozen=True)
class Distinct:
    """Draws without their copies, in one chain.

    Attributes
    ----------
    chain, draw : arrays of shape (m,)
        Positions of the first of each.
    weights : array of shape (1, m)
        Weight of all copies of a draw together; the weights sum to one.
    """

    chain: Int[np.ndarray, " m"]
    draw: Int[np.ndarray, " m"]
    weights: Float[np.ndarray, "one m"]

    def select(self, dataset: xr.Dataset) -> xr.Dataset:
        """Return a dataset at these draws, numbered anew."""
        places = {"chain": self.chain, "draw": self.draw}
        indexers = {
            dim: xr.DataArray(place[None], dims=SAMPLE_DIMS) for dim, place in places.items()
        }
        chosen = dataset.isel(indexers).drop_vars(SAMPLE_DIMS, errors="ignore")
        return chosen.assign_coords(chain=[0], draw=np.arange(len(self.draw)))


def distinct_draws(
    scores: xr.Dataset, weights: Float[np.ndarray, "chain draw"] | None
) -> Distinct | None:
    """Return the draws of resampled particles, each once; ``None`` where few are copies.

    Parameters
    ----------
    scores : Dataset
    weights : array of shape (chain, draw), optional
        Equal ones by default.
    """
    x = np.asarray(scores[DRAW], dtype=float)
    if _copied_share(x) <= SHARE:
        return None
    shape = x.shape[:2]
    rows = np.ascontiguousarray(x.reshape(-1, x.shape[2]))
    keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    shares = np.full(len(rows), 1 / len(rows)) if weights is None else weights.ravel()
    total = np.bincount(which.ravel(), shares)[order]
    chain, draw = np.unravel_index(first[order], shape)
    return Distinct(chain, draw, total[None] / total.sum())


def _copied_share(x: Float[np.ndarray, "chain draw d"]) -> float:
    """Return the share of draws that equal another one, other than the one just before."""
    moved = np.ones(x.shape[:2], dtype=bool)
    moved[:, 1:] = (x[:, 1:] != x[:, :-1]).any(axis=2)
    rows = np.ascontiguousarray(x[moved])
    keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))
    return 1 - len(np.unique(keys)) / x[..., 0].size - float((~moved).mean())
