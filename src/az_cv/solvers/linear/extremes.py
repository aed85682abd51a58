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
    number = min(number, values.shape[1])
    columns, found = _candidates(values, number)
    order = np.argsort(-found, axis=1, kind="stable")[:, :number]
    return np.take_along_axis(columns, order, axis=1)


def sums_of_largest(values: Float[np.ndarray, "q n"], number: int) -> Float[np.ndarray, " q"]:
    """Return the sum of so many largest values of each row.

    Examples
    --------
    >>> sums_of_largest(np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 5.0]]), 2)
    array([ 5., 10.])
    """
    number = min(number, values.shape[1])
    _, found = _candidates(values, number)
    rest = found.shape[1] - number
    return np.partition(found, rest, axis=1)[:, rest:].sum(axis=1)


def _candidates(
    values: Float[np.ndarray, "q n"], number: int
) -> tuple[Int[np.ndarray, "q m"], Float[np.ndarray, "q m"]]:
    """Return the columns, rising, where the largest values of each row may be, and the values.

    Rows with fewer candidates than others end with minus infinity.
    """
    values = np.ascontiguousarray(values)
    count, segments = values.shape[1], 2 * number
    if count < 4 * segments:
        return np.broadcast_to(np.arange(count), values.shape), values
    # Of the largest values of all segments so many are no smaller than this, so that nothing
    # smaller is among the largest of the row.
    tops = values[:, : count // segments * segments].reshape(len(values), -1, segments).max(axis=1)
    least = np.partition(tops, segments - number, axis=1)[:, segments - number, None]
    rows, where = np.nonzero(values >= least)
    counts = np.bincount(rows, minlength=len(values))
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = np.zeros((len(values), counts.max(initial=0)), dtype=np.intp)
    found = np.full(columns.shape, -np.inf)
    columns[rows, place], found[rows, place] = where, values[rows, where]
    return columns, found
