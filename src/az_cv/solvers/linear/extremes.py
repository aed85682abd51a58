"""Where each output is most extreme, found once for the fits of all families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float, Int

    Outputs = Float[np.ndarray, "n q"]


@dataclass(frozen=True)
class ExtremeDraws:
    """The draws where outputs are most extreme.

    Attributes
    ----------
    outputs : array of shape (n, q)
    centred : array of shape (n, q)
        Outputs without their means.
    squares : array of shape (q,)
        Sums of squares of `centred`.
    rows : array of shape (q, b)
        Which draws they are, the most extreme first.
    sets : array of shape (m, b)
        The different rows of `rows`: a variable and its square often share them.
    set_of : array of shape (q,)
        Which of `sets` each output has.
    """

    outputs: Outputs
    centred: Outputs
    squares: Float[np.ndarray, " q"]
    rows: Int[np.ndarray, "q b"]
    sets: Int[np.ndarray, "m b"]
    set_of: Int[np.ndarray, " q"]


class Extremes:
    """The extreme draws of the outputs that were asked for last."""

    def __init__(self) -> None:
        self._latest: ExtremeDraws | None = None

    def of(
        self, outputs: Outputs, outermost: Callable[[Outputs], Int[np.ndarray, "q b"]]
    ) -> ExtremeDraws:
        """Return the extreme draws of outputs, known from the last call if that had the same array.

        Parameters
        ----------
        outputs : array of shape (n, q)
        outermost : callable
            Distances of the draws to the draws that count as outermost, for each column.
        """
        latest = self._latest
        if latest is None or latest.outputs is not outputs:
            centred = outputs - outputs.mean(axis=0)
            rows = outermost(np.abs(centred))
            squares = np.maximum(np.einsum("nq,nq->q", centred, centred), np.finfo(float).tiny)
            sets, set_of = np.unique(rows, axis=0, return_inverse=True)
            latest = ExtremeDraws(outputs, centred, squares, rows, sets, set_of.ravel())
            self._latest = latest
        return latest

    def forget(self) -> None:
        """Free the memory of outputs that all families were fitted to."""
        self._latest = None


def largest(values: Float[np.ndarray, "q n"], number: int) -> Int[np.ndarray, "q b"]:
    """Return where the largest values of each row are, largest first, the first of equal ones."""
    count = values.shape[1]
    number = min(number, count)
    least = np.partition(values, count - number, axis=1)[:, count - number, None]
    above, level = values > least, values == least
    vacant = number - above.sum(axis=1, keepdims=True)
    chosen = above | (level & (np.cumsum(level, axis=1, dtype=np.int32) <= vacant))
    columns = np.nonzero(chosen)[1].reshape(len(values), number)
    order = np.argsort(-np.take_along_axis(values, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)
