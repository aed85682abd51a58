"""Which draws a training sees, and which judge it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Int

    from az_cv.solvers.folds import Folds

    Rows = Int[np.ndarray, " m"]

MAX_TRAININGS = 16  # more blocks than this are replaced by whole chains
SINGLE_CHAIN_BLOCKS = 8
HELD_OUT = 0.1  # share of the training draws that judges when to stop


def training_blocks(folds: Folds, shape: tuple[int, int]) -> tuple[Rows, ...]:
    """Return the draws to leave out together: refitting is dear, so never single ones."""
    if len(folds.blocks) <= MAX_TRAININGS:
        return folds.blocks
    chains, draws = shape
    rows = np.arange(chains * draws)
    return tuple(np.array_split(rows, chains if chains > 1 else min(SINGLE_CHAIN_BLOCKS, draws)))


def split(n: int, block: Rows, gap: int, share: float) -> tuple[Rows, Rows]:
    """Return training and held-out rows: neither in the block nor within `gap` of its ends."""
    outside = np.ones(n, dtype=bool)
    outside[block] = False
    if gap and len(block):
        outside[max(0, block[0] - gap) : block[0]] = False
        outside[block[-1] + 1 : block[-1] + 1 + gap] = False
    rows = np.flatnonzero(outside)
    count = int(share * len(rows))
    # A contiguous piece from the middle: neighbours of training draws would flatter the fit.
    start = (len(rows) - count) // 2
    held_out = rows[start : start + count]
    return np.setdiff1d(rows, held_out), held_out
