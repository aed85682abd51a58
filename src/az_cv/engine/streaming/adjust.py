"""The third pass: residuals on draws left out, averaged over batches of neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Float

    from az_cv.engine.streaming.gram import Functions
    from az_cv.engine.streaming.pieces import Piece, Segment

    PerOutput = Float[np.ndarray, " q"]
    Batches = Float[np.ndarray, "b k"]


@dataclass
class Residuals:
    """What is known of some stretches of chains.

    Attributes
    ----------
    places : list of (chain, first draw of the stretch)
    plain, adjusted : lists of arrays of shape (b, k)
        Averages over batches of the functions, and of what the fit leaves of them.
    lengths : list of arrays of shape (b,)
        Draws in each batch.
    lowest, highest : arrays of shape (q,)
        Of the outputs; NaN if one of them is.
    """

    places: list[tuple[int, int]]
    plain: list[Batches]
    adjusted: list[Batches]
    lengths: list[np.ndarray]
    lowest: PerOutput
    highest: PerOutput


class Fit(Protocol):
    """What the last pass needs: functions, and what a fit makes of them."""

    @property
    def functions(self) -> Functions:
        """Outputs and their squares, standardised."""
        ...

    @property
    def batch(self) -> int:
        """Draws that are averaged."""
        ...

    def fitted(self, piece: Piece) -> Iterator[tuple[Batches, Batches, Batches]]:
        """Return control variates, functions and outputs, block by block."""
        ...


def residuals_of(work: Fit, segment: Segment) -> Residuals:
    """Go through the pieces of a segment, with a fit that has not seen its fold."""
    q = len(work.functions.centre)
    result = Residuals([], [], [], [], np.full(q, np.inf), np.full(q, -np.inf))
    for piece in segment:
        plain, adjusted = [], []
        for fitted, values, outputs in work.fitted(piece):
            plain.append(values)
            adjusted.append(values - fitted)
            result.lowest = np.minimum(result.lowest, outputs.min(axis=0))
            result.highest = np.maximum(result.highest, outputs.max(axis=0))
        edges = batch_edges(len(piece), work.batch)
        lengths = np.diff(edges)
        result.places.append((piece.chain, piece.start))
        result.lengths.append(lengths)
        for series, rows in ((result.plain, plain), (result.adjusted, adjusted)):
            whole = rows[0] if len(rows) == 1 else np.concatenate(rows)
            series.append(np.add.reduceat(whole, edges[:-1], axis=0) / lengths[:, None])
    return result


def batch_edges(rows: int, batch: int) -> np.ndarray:
    """Return where batches of about equal length begin, and the end.

    Examples
    --------
    >>> batch_edges(10, 4)
    array([ 0,  5, 10])
    """
    count = max(1, rows // batch)
    return np.arange(count + 1) * rows // count


def merge_residuals(parts: list[Residuals]) -> Residuals:
    """Put stretches one after the other."""
    return Residuals(
        [place for part in parts for place in part.places],
        [series for part in parts for series in part.plain],
        [series for part in parts for series in part.adjusted],
        [lengths for part in parts for lengths in part.lengths],
        np.min([part.lowest for part in parts], axis=0),
        np.max([part.highest for part in parts], axis=0),
    )
