"""The inverse of a kernel matrix, from which all fits and all leave-out residuals follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from az_cv.families.accelerator import WORTHWHILE
from az_cv.families.base import WholeMatrix
from az_cv.families.tiles import WIDTH, lower_tiles
from az_cv.lapack import factorise, invert_triangle, multiply_triangle
from az_cv.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from jaxtyping import Float, Int

    from az_cv.families.accelerator import Accelerator
    from az_cv.families.base import LinearFamily
    from az_cv.families.tiles import Tile

    Columns = Float[np.ndarray, "n r"]
    Blocks = Float[np.ndarray, "m b b"]

# Triangles of fewer rows than the first, or more than the second, are inverted by LAPACK.
SMALL, LARGE = 64, 1500


class Inverse(Protocol):
    """``A^-1``, wherever it lies. What comes out are NumPy's arrays."""

    @property
    def diagonal(self) -> Float[np.ndarray, " n"]:
        """The diagonal of ``A^-1``."""
        ...

    @property
    def log_determinant(self) -> float:
        """The logarithm of the determinant of ``A``."""
        ...

    @property
    def nbytes(self) -> int:
        """Memory held."""
        ...

    def solve(self, columns: Columns) -> Columns:
        """Return ``A^-1 columns``."""
        ...

    def blocks(self, rows: Int[np.ndarray, "m b"]) -> Blocks:
        """Return the blocks of ``A^-1`` that belong to each set of rows."""
        ...


@dataclass(frozen=True)
class FactorInverse:
    """The inverse in the processor's memory, as that of a Cholesky factor.

    Attributes
    ----------
    factor : array of shape (n, n), Fortran order
        Inverse of the lower Cholesky factor; zero above the diagonal.
    diagonal : array of shape (n,)
        The diagonal of ``A^-1``.
    log_determinant : float
        The logarithm of the determinant of ``A``.
    """

    factor: Float[np.ndarray, "n n"]
    diagonal: Float[np.ndarray, " n"]
    log_determinant: float

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self.factor.nbytes

    def solve(self, columns: Columns) -> Columns:
        """Return ``A^-1 columns``."""
        solved = np.array(columns, order="F")
        multiply_triangle(self.factor, solved)
        multiply_triangle(self.factor, solved, transposed=True)
        return solved

    def blocks(self, rows: Int[np.ndarray, "m b"]) -> Blocks:
        """Return the blocks of ``A^-1`` that belong to each set of rows."""
        # Columns of the inverse factor are zero above the diagonal.
        parts = (self.factor[members.min() :, members] for members in rows)
        return np.stack([columns.T @ columns for columns in parts])


def invert(matrix: Float[np.ndarray, "n n"], ridge: float) -> FactorInverse | None:
    """Return the inverse of a kernel matrix with a ridge, ``None`` if it is singular.

    Parameters
    ----------
    matrix : array of shape (n, n), Fortran order
        The lower triangle is read, and the matrix is overwritten.
    ridge : float
        Relative to the mean diagonal.
    """
    diagonal = np.einsum("ii->i", matrix)
    diagonal += ridge * diagonal.mean()
    if not factorise(matrix):
        return None
    log_determinant = 2 * float(np.log(np.diag(matrix)).sum())
    _invert_by_halves(matrix)
    return FactorInverse(matrix, _column_norms(matrix), log_determinant)


def _invert_by_halves(lower: Float[np.ndarray, "n n"]) -> None:
    """Replace a lower-triangular matrix by its inverse.

    Halving a matrix of a search until its blocks are small leaves the work to products of matrices.
    On one thread that takes less than half the time of LAPACK's way, which is as good for large
    ones.
    """
    if not SMALL < len(lower) < LARGE:
        invert_triangle(lower)
        return
    half = len(lower) // 2
    top, corner, bottom = lower[:half, :half], lower[half:, :half], lower[half:, half:]
    _invert_by_halves(top)
    _invert_by_halves(bottom)
    multiply_triangle(bottom, corner, factor=-1.0)
    multiply_triangle(top, corner, side="right")


def kernel_matrix(
    family: LinearFamily,
    x: Float[np.ndarray, "n d"],
    s: Float[np.ndarray, "n d"],
    card: Accelerator | None,
) -> Any:
    """Return the Stein kernel matrix of all draws: on a card if there are enough of them.

    In the processor it is the lower triangle, in Fortran order.
    """
    if card is not None and len(x) >= WORTHWHILE:
        return card.matrix(family, x, s)
    if isinstance(family, WholeMatrix):
        return family.matrix(x, s)
    return assemble_gram(family.gram, x, s)


def assemble_gram(
    gram: Callable[..., Float[np.ndarray, "n m"]],
    x: Float[np.ndarray, "n d"],
    s: Float[np.ndarray, "n d"],
) -> Float[np.ndarray, "n n"]:
    """Return the lower triangle of a Stein kernel matrix, in Fortran order.

    Tiles keep the elementwise work in cache, and halve it.
    """
    n = len(x)
    matrix = np.zeros((n, n), order="F")

    def fill(tile: Tile) -> None:
        own, rows = tile
        matrix[rows, own] = gram(x[own], s[own], x[rows], s[rows]).T

    side_by_side(fill, lower_tiles(n), n)
    return matrix


def _column_norms(lower: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " n"]:
    """Return the squared norms of the columns of a lower-triangular matrix."""
    n = len(lower)
    norms = np.empty(n)
    for start in range(0, n, WIDTH):
        columns = lower[start:, start : start + WIDTH]
        norms[start : start + WIDTH] = np.einsum("ij,ij->j", columns, columns)
    return norms
