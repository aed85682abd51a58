"""Pieces of chains: what one task reads, and which fold it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jaxtyping import Float

    Rows = Float[np.ndarray, "n d"]


@dataclass(frozen=True)
class Draws:
    """Draws, scores and outputs, each of shape (chain, draw, ...): NumPy or dask arrays.

    Attributes
    ----------
    x, s : arrays of shape (chain, draw, d)
    outputs : array of shape (chain, draw, q)
    """

    x: Any
    s: Any
    outputs: Any

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Chains, draws of each, dimension, and number of outputs."""
        return (*self.x.shape, self.outputs.shape[2])


class Piece:
    """Consecutive draws of one chain, not read yet.

    A class of its own and no dataclass: dask would open it, and read every piece before the first
    is needed.
    """

    __slots__ = ("_arrays", "chain", "start")

    def __init__(self, draws: Draws, chain: int, rows: slice) -> None:
        self.chain, self.start = chain, rows.start
        arrays = tuple(array[chain, rows] for array in (draws.x, draws.s, draws.outputs))
        lazy = [array for array in arrays if not isinstance(array, np.ndarray)]
        if lazy:
            import dask

            # What remains of the graph is what these rows need: it travels with the piece.
            found = iter(dask.optimize(*lazy))
            arrays = tuple(a if isinstance(a, np.ndarray) else next(found) for a in arrays)
        self._arrays = arrays

    def __len__(self) -> int:
        return int(self._arrays[0].shape[0])

    def __getstate__(self) -> tuple[Any, ...]:
        return (self._arrays, self.chain, self.start)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._arrays, self.chain, self.start = state

    def draws(self) -> tuple[Rows, Rows]:
        """Read draws and scores."""
        x, s = _read(self._arrays[:2])
        return x, s

    def all(self, columns: slice) -> tuple[Rows, Rows, Rows]:
        """Read draws, scores, and some of the outputs."""
        x, s, outputs = self._arrays
        x, s, outputs = _read((x, s, outputs[:, columns]))
        return x, s, outputs


def _read(arrays: Sequence[Any]) -> list[Rows]:
    if any(not isinstance(array, np.ndarray) for array in arrays):
        import dask

        # This runs inside a task already.
        arrays = dask.compute(*arrays, scheduler="synchronous")
    return [np.asarray(array, dtype=float) for array in arrays]


class Segment:
    """The pieces that one task goes through, all in one fold."""

    __slots__ = ("fold", "pieces")

    def __init__(self, fold: int, pieces: Sequence[Piece]) -> None:
        self.fold, self.pieces = fold, tuple(pieces)

    def __iter__(self) -> Iterator[Piece]:
        return iter(self.pieces)

    def __getstate__(self) -> tuple[Any, ...]:
        return (self.fold, self.pieces)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.fold, self.pieces = state


def cut(draws: Draws, folds: int | str, rows: int, segments: int, chunk: int = 0) -> list[Segment]:
    """Cut the chains into folds, the folds into pieces, and share these out to tasks.

    Parameters
    ----------
    draws : Draws
    folds : int or "chain"
        Fold k is the k-th part of every chain, as in :func:`az_cv.solvers.folds.make_folds`.
    rows : int
        Most draws in a piece.
    segments : int
        Tasks, about; each belongs to one fold.
    chunk : int
        Draws that lie together where they are stored: pieces end where chunks end, so that no chunk
        is read for the sake of its last draws.

    Examples
    --------
    >>> x = np.zeros((2, 10, 1))
    >>> found = cut(Draws(x, x, x), folds=2, rows=3, segments=2)
    >>> [(s.fold, [(p.chain, p.start, len(p)) for p in s]) for s in found][0]
    (0, [(0, 0, 3), (0, 3, 2), (1, 0, 3), (1, 3, 2)])
    >>> found = cut(Draws(x, x, x), folds=2, rows=4, segments=2, chunk=3)
    >>> [[(p.start, len(p)) for p in s if p.chain == 0] for s in found]
    [[(0, 3), (3, 2)], [(5, 1), (6, 3), (9, 1)]]
    """
    chains, length = draws.sizes[:2]
    found: dict[int, list[Piece]] = {}
    span = max(rows - rows % chunk, chunk) if chunk else length
    for chain in range(chains):
        parts = (
            [(chain, np.arange(length))]
            if folds == "chain"
            else list(enumerate(np.array_split(np.arange(length), int(folds))))
        )
        for fold, part in parts:
            first, end = int(part[0]), int(part[-1]) + 1
            while first < end:
                stop = min(first + rows, (first // span + 1) * span, end)
                found.setdefault(fold, []).append(Piece(draws, chain, slice(first, stop)))
                first = stop
    each = max(1, round(segments / len(found)))
    return [
        Segment(fold, [pieces[k] for k in part])
        for fold, pieces in sorted(found.items())
        for part in np.array_split(np.arange(len(pieces)), min(each, len(pieces)))
    ]
