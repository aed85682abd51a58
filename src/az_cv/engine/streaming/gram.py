"""The second pass: sums of products of features with each other, and with the outputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from az_cv.engine.streaming.design import fitted_with
from az_cv.engine.streaming.outermost import Outermost, farthest
from az_cv.lapack import row_products

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Float, Int

    from az_cv.engine.streaming.design import Design, Fitted
    from az_cv.engine.streaming.pieces import Piece, Segment
    from az_cv.engine.streaming.whitening import Standardising

    Matrix = Float[np.ndarray, "p p"]
    Rows = Float[np.ndarray, "n q"]


@dataclass(frozen=True)
class Functions:
    """Outputs and their squares, standardised: what is fitted.

    Attributes
    ----------
    columns : slice
        Of the outputs.
    centre, scale : arrays of shape (q,)
        Of the outputs in some of the draws; any will do.
    square_scale : array of shape (q,)
        What squares of standardised outputs are divided by.
    squares : bool
        Whether squares are fitted.
    """

    columns: slice
    centre: Float[np.ndarray, " q"]
    scale: Float[np.ndarray, " q"]
    square_scale: Float[np.ndarray, " q"]
    squares: bool = True

    @property
    def number(self) -> int:
        """How many functions are fitted."""
        return len(self.centre) * (2 if self.squares else 1)

    def of(self, outputs: Rows) -> Float[np.ndarray, "n k"]:
        """Return standardised outputs, and beside them their squares less one, if asked for."""
        q = outputs.shape[1]
        both = np.empty((len(outputs), self.number))
        with np.errstate(invalid="ignore", over="ignore"):
            np.subtract(outputs, self.centre, out=both[:, :q])
            both[:, :q] /= self.scale
            if not self.squares:
                return both
            np.square(both[:, :q], out=both[:, q:])
            both[:, q:] -= 1
            both[:, q:] /= self.square_scale
        return both


@dataclass(frozen=True)
class Sample:
    """Which draws a fit is made to: all that are far from the centre, and some that are near.

    Few of very many draws tell the coefficients, but for the tails.

    Attributes
    ----------
    near : float
        Squared distance of whitened draws from the centre, up to which they are near.
    every : int
        Of near draws one in so many is taken, and counts as so many.
    """

    near: float = 0.0
    every: int = 1

    def of(
        self, squares: Float[np.ndarray, " n"]
    ) -> tuple[Int[np.ndarray, " m"] | slice, Float[np.ndarray, " m"]]:
        """Return rows, and square roots of how often each counts.

        Examples
        --------
        >>> Sample(near=2.0, every=2).of(np.array([1.0, 3.0, 1.5, 0.5, 4.0]))
        (array([0, 1, 3, 4]), array([1.41421356, 1.        , 1.41421356, 1.        ]))
        """
        if self.every == 1:
            return slice(None), np.ones(len(squares))
        is_near = squares <= self.near
        taken = ~is_near
        taken[np.flatnonzero(is_near)[:: self.every]] = True
        rows = np.flatnonzero(taken)
        return rows, np.where(is_near[rows], np.sqrt(self.every), 1.0)


@dataclass(frozen=True)
class Work:
    """What the tasks of the second and third pass need.

    Attributes
    ----------
    whitening : Standardising
    design : Design
    functions : Functions
    block : int
        Draws whose features are in memory at a time.
    gram : bool
        Whether products of features are wanted, or those with the outputs alone.
    coefficients : array of shape (p, k), optional
        Of a fit that has not seen the fold, for the third pass.
    batch : int
        Draws that are averaged in what the third pass returns.
    sample : Sample
        For the second pass.
    """

    whitening: Standardising
    design: Design
    functions: Functions
    block: int
    gram: bool = True
    coefficients: Float[np.ndarray, "p k"] | None = None
    batch: int = 1
    sample: Sample = Sample()

    def blocks(self, piece: Piece) -> Iterator[tuple[Rows, Rows, Rows]]:
        """Return whitened draws, their scores and the outputs, block by block."""
        x, s, outputs = piece.all(self.functions.columns)
        for start in range(0, len(x), self.block):
            rows = slice(start, start + self.block)
            draws, scores = self.whitening.draws(x[rows]), self.whitening.scores(s[rows])
            yield draws, scores, outputs[rows]

    @cached_property
    def _fitted(self) -> Fitted:
        assert self.coefficients is not None
        return fitted_with(self.design, self.coefficients)

    def fitted(self, piece: Piece) -> Iterator[tuple[Rows, Rows, Rows]]:
        """Return what the coefficients make of the features, the functions and the outputs."""
        for x, s, outputs in self.blocks(piece):
            yield self._fitted.at(x, s), self.functions.of(outputs), outputs


@dataclass
class Sums:
    """Sums over the draws of a fold.

    Attributes
    ----------
    gram : array of shape (p, p), optional
        Lower triangle of the products of features, the intercept included.
    cross : array of shape (p, k)
        Products of features and functions.
    squares : array of shape (k,)
        Squares of the functions.
    count : float
        Draws, each as often as it counts.
    outermost : Outermost
        Those of these draws that are farthest from the centre.
    """

    gram: Matrix | None
    cross: Float[np.ndarray, "p k"]
    squares: Float[np.ndarray, " k"]
    count: float
    outermost: Outermost


def sums_of(work: Work, segment: Segment) -> Sums:
    """Go through the pieces of a segment; one buffer takes all products of features."""
    p, k = work.design.size, work.functions.number
    gram = np.zeros((p, p), order="F") if work.gram else None
    cross, squares, count = np.zeros((p, k)), np.zeros(k), 0.0
    outermost = Outermost(np.zeros(0), np.zeros((p, 0)), np.zeros((0, k)))
    for piece in segment:
        for x, s, outputs in work.blocks(piece):
            far = np.einsum("nd,nd->n", x, x)
            rows, shares = work.sample.of(far)
            features = work.design.rows(x[rows], s[rows])
            values = work.functions.of(outputs[rows])
            block = farthest([Outermost(far[rows], features, values)])
            outermost = farthest([outermost, block])
            if work.sample.every > 1:
                features *= shares
                values *= shares[:, None]
            if gram is not None:
                row_products(features, gram)
            cross += features @ values
            squares += np.einsum("nk,nk->k", values, values)
            count += float(shares @ shares)
    return Sums(gram, cross, squares, count, outermost)


def merge_sums(parts: list[Sums]) -> Sums:
    """Add up."""
    total = parts[0]
    gram = None if total.gram is None else total.gram.copy(order="F")
    for part in parts[1:]:
        if gram is not None and part.gram is not None:
            gram += part.gram
    return Sums(
        gram,
        np.sum([part.cross for part in parts], axis=0),
        np.sum([part.squares for part in parts], axis=0),
        sum(part.count for part in parts),
        farthest([part.outermost for part in parts]),
    )
