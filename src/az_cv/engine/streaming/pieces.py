"""Pieces of chains: what one task reads, and which fold it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jaxtyping import Float

    Rows = Float[np.ndarray, "n d"]
    Stretch = tuple[int, int, int]  # chain, first draw, and that after the last


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

    def all(self, columns: slice, *, in_task: bool = True) -> tuple[Rows, Rows, Rows]:
        """Read draws, scores, and some of the outputs."""
        x, s, outputs = self._arrays
        x, s, outputs = _read((x, s, outputs[:, columns]), in_task)
        return x, s, outputs


def _read(arrays: Sequence[Any], in_task: bool = True) -> list[Rows]:
    if any(not isinstance(array, np.ndarray) for array in arrays):
        import dask

        # A task has its processor already.
        arrays = dask.compute(*arrays, **({"scheduler": "synchronous"} if in_task else {}))
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
    found: dict[int, list[Piece]] = {}
    for fold, stretch in stretches(*draws.sizes[:2], folds):
        found.setdefault(fold, []).extend(pieces_of(draws, [stretch], rows, chunk))
    each = max(1, round(segments / len(found)))
    return [
        Segment(fold, [pieces[k] for k in part])
        for fold, pieces in sorted(found.items())
        for part in np.array_split(np.arange(len(pieces)), min(each, len(pieces)))
    ]


def stretches(chains: int, length: int, folds: int | str) -> list[tuple[int, Stretch]]:
    """Return the parts of every chain, in their order, and the fold that each belongs to.

    Examples
    --------
    >>> stretches(2, 10, 2)[:3]
    [(0, (0, 0, 5)), (1, (0, 5, 10)), (0, (1, 0, 5))]
    """
    if folds == "chain":
        return [(chain, (chain, 0, length)) for chain in range(chains)]
    parts = [part for part in np.array_split(np.arange(length), int(folds)) if len(part)]
    return [
        (fold, (chain, int(part[0]), int(part[-1]) + 1))
        for chain in range(chains)
        for fold, part in enumerate(parts)
    ]


def pieces_of(draws: Draws, parts: Sequence[Stretch], rows: int, chunk: int = 0) -> list[Piece]:
    """Cut stretches into pieces that end where chunks end."""
    span = max(rows - rows % chunk, chunk) if chunk else draws.sizes[1]
    found = []
    for chain, first, end in parts:
        while first < end:
            stop = min(first + rows, (first // span + 1) * span, end)
            found.append(Piece(draws, chain, slice(first, stop)))
            first = stop
    return found


def middle(parts: Sequence[Stretch], count: int) -> tuple[list[Stretch], list[Stretch]]:
    """Take so many successive draws out of the middle; return the rest, and them.

    Examples
    --------
    >>> middle([(0, 0, 5), (1, 0, 5)], 4)
    ([(0, 0, 3), (1, 2, 5)], [(0, 3, 5), (1, 0, 2)])
    """
    total = sum(end - first for _, first, end in parts)
    begin, seen = (total - count) // 2, 0
    rest, taken = [], []
    for chain, first, end in parts:
        low = min(max(first + begin - seen, first), end)
        high = min(max(first + begin + count - seen, first), end)
        rest += [(chain, a, b) for a, b in ((first, low), (high, end)) if a < b]
        taken += [(chain, low, high)] if low < high else []
        seen += end - first
    return rest, taken
