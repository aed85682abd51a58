"""Minibatches from pieces: a buffer of draws, filled again in every pass over the pieces."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.solvers.training.plan import Draws as Standardised
from az_cv.solvers.training.source import Buffer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from az_cv.engine.streaming.gram import Functions
    from az_cv.engine.streaming.pieces import Piece
    from az_cv.engine.streaming.whitening import Standardising


class Buffered:
    """A source of draws of which some are in memory.

    Every pass takes the pieces in another order, as many at a time as the buffer holds, and
    minibatches are random rows of the buffer. Where it holds all pieces they are read once, in
    their order, and minibatches are those of draws in memory.

    Parameters
    ----------
    pieces, held_out : sequences of Piece
        What is trained on, and what judges it.
    whitening : Standardising
    functions : Functions
    capacity : int
        Draws in the buffer; it holds the longest piece in any case.
    dtype : dtype
    window : int
        Successive draws in a run, 1 where minibatches are single draws.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        held_out: Sequence[Piece],
        whitening: Standardising,
        functions: Functions,
        capacity: int,
        dtype: Any,
        window: int = 1,
    ) -> None:
        self._pieces = list(pieces)
        self._capacity = capacity = max(capacity, *(len(piece) for piece in pieces))
        self._whitening, self._functions = whitening, functions
        self._dtype, self._window = dtype, window
        self.draws = sum(len(piece) for piece in pieces)
        self.count = len(_run_starts(pieces, window))
        self._is_whole = self.draws <= capacity
        self.capacity = self.count if self._is_whole else min(capacity, self.count - 1)
        self._size = min(self.draws, capacity)  # of arrays: one compilation serves all fillings
        self._rng = np.random.default_rng(0)
        self._queue: list[Piece] = []
        self._buffer: Buffer | None = None
        self._end = 0
        self.held_out = self._read(held_out, sum(len(piece) for piece in held_out), window=1)

    def sample(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return draws, scores and functions, as many as the buffer holds, spread over all."""
        share = min(1.0, self._capacity / self.draws)
        count = max(1, int(share * len(self._pieces)))
        picked = np.unique(np.linspace(0, len(self._pieces) - 1, count).astype(int))
        parts = [self._standardised(self._pieces[k]) for k in picked]
        x, s, values = (np.concatenate(arrays) for arrays in zip(*parts))
        return x, s, values

    def start(self, rng_key: Any) -> None:
        """Begin a training, whose order of pieces follows from the key."""
        import jax

        self._rng = np.random.default_rng(np.asarray(jax.random.key_data(rng_key)).tolist())
        if not self._is_whole:
            self._queue, self._buffer, self._end = [], None, 0

    def at(self, taken: int) -> Buffer:
        """Return the buffer, filled anew when minibatches have taken as many draws as it has."""
        used_up = taken >= self._end and not self._is_whole
        while self._buffer is None or used_up:
            self._buffer = None  # its memory is wanted
            if not self._queue:
                order = np.arange(len(self._pieces))
                order = order if self._is_whole else self._rng.permutation(order)
                self._queue = [self._pieces[k] for k in order]
            self._buffer = self._read(self._next(), self._size, self._window)
            self._end = taken + self._buffer.size
            used_up = not self._buffer.size  # pieces shorter than a run alone
        return self._buffer

    def _next(self) -> list[Piece]:
        """Take the next pieces from the queue, as many as fit."""
        found: list[Piece] = []
        room = self._size
        while self._queue and len(self._queue[0]) <= room:
            found.append(self._queue.pop(0))
            room -= len(found[-1])
        return found

    def _read(self, pieces: Sequence[Piece], size: int, window: int) -> Buffer:
        """Read pieces into arrays of a given length."""
        import jax

        arrays: list[np.ndarray] = []
        filled = 0
        for piece in pieces:
            parts = self._standardised(piece)
            if not arrays:
                arrays = [np.zeros((size, part.shape[1]), self._dtype) for part in parts]
            for array, part in zip(arrays, parts):
                array[filled : filled + len(piece)] = part
            filled += len(piece)
        if not arrays:
            return Buffer(Standardised(None, None, None), np.arange(0), 0)
        picked = _run_starts(pieces, window)
        draws = Standardised(*(jax.device_put(array) for array in arrays))
        return Buffer(draws, np.resize(picked, size), len(picked))

    def _standardised(self, piece: Piece) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Read a piece; an answer that is not finite anywhere has none, and must not harm others'.

        Networks train all outputs together.
        """
        x, s, outputs = piece.all(self._functions.columns, in_task=False)
        values = np.nan_to_num(self._functions.of(outputs), nan=0.0, posinf=0.0, neginf=0.0)
        return self._whitening.draws(x), self._whitening.scores(s), values


def _run_starts(pieces: Sequence[Piece], window: int) -> np.ndarray:
    """Return where runs of successive draws begin when pieces lie one after the other."""
    edges, filled = [0], 0
    for before, piece in zip([None, *pieces], pieces):
        if before and (before.chain, before.start + len(before)) != (piece.chain, piece.start):
            edges.append(filled)
        filled += len(piece)
    edges.append(filled)
    found = [np.arange(a, max(b - window + 1, a)) for a, b in itertools.pairwise(edges)]
    return np.concatenate(found)
