"""Groups of draws: those that a fit sees, and those that judge it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Int

    from az_cv.solvers.folds import Folds

    Rows = Int[np.ndarray, " b"]


@dataclass(frozen=True, eq=False)
class Split:
    """Draws that a fit sees, and draws that judge it; compared by identity."""

    trained: Rows
    judged: Rows


def make_splits(folds: Folds, n: int, number: int) -> tuple[list[Split], list[Split]]:
    """Return the splits by which a setting is chosen, and those whose residuals are reported.

    Both are the same where every draw is in a fold. Otherwise the draws in none only train, and the
    choice is made among them.

    Parameters
    ----------
    folds : Folds
        What they leave out together stays together.
    n : int
        Draws.
    number : int
        Largest number of groups.

    Examples
    --------
    >>> from az_cv.solvers.folds import make_folds
    >>> folds = make_folds("chain", np.zeros((4, 100, 2)))
    >>> choosing, reported = make_splits(folds, 400, 5)
    >>> len(reported), len(reported[0].trained), choosing is reported
    (4, 300, True)
    """
    everything = np.arange(n)
    trained = np.setdiff1d(everything, np.concatenate(folds.blocks))
    if not len(trained):
        splits = [
            Split(np.setdiff1d(everything, group), group) for group in _groups(folds.blocks, number)
        ]
        return splits, splits
    pieces = np.array_split(trained, number)
    choosing = [Split(np.setdiff1d(trained, piece), piece) for piece in pieces]
    return choosing, [Split(trained, block) for block in folds.blocks]


def _groups(blocks: Sequence[Rows], number: int) -> list[Rows]:
    """Put neighbouring blocks together, into groups of about as many draws."""
    if len(blocks) <= number:
        return list(blocks)
    ends = np.cumsum([len(block) for block in blocks])
    group = np.minimum((ends - 1) * number // ends[-1], number - 1)
    return [
        np.concatenate([block for block, k in zip(blocks, group) if k == own])
        for own in np.unique(group)
    ]
