"""The features of a stream: nested sets, evaluated block by block with one feature in each row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import lapack, solve_triangular

from az_cv.families import Kernel, Polynomial
from az_cv.lapack import solve_triangle

if TYPE_CHECKING:
    from jaxtyping import Float

    Rows = Float[np.ndarray, "n d"]
    Columns = Float[np.ndarray, "p n"]

# Sections of which the others leave a smaller part add little to what some draws tell.
NEGLIGIBLE = 1e-11


@dataclass(frozen=True)
class Sections:
    """Nyström features: sections of a Stein kernel at some draws, made orthonormal.

    Attributes
    ----------
    kernel : Kernel
    x, s : arrays of shape (m, d)
        Whitened draws that carry the sections, and their scores.
    factor : array of shape (m, m)
        Lower Cholesky factor of the kernel between them.
    """

    kernel: Kernel
    x: Rows
    s: Rows
    factor: Float[np.ndarray, "m m"]

    @property
    def size(self) -> int:
        """Number of features."""
        return len(self.factor)

    def fill(self, out: Columns, x: Rows, s: Rows) -> None:
        """Write the features at draws into the rows of `out`."""
        sections = self.kernel.gram(x, s, self.x, self.s)
        # In Fortran order the transpose is solved in place.
        solve_triangle(self.factor, sections.T)
        out[:] = sections.T


def sections_at(kernel: Kernel, x: Rows, s: Rows, negligible: float = NEGLIGIBLE) -> Sections:
    """Return the features of a kernel with its sections at these draws, the most different first.

    Sections of which the others leave a negligible part are left out.
    """
    inner = np.asfortranarray(kernel.gram(x, s, x, s))
    tolerance = negligible * float(np.diag(inner).max())
    factor, order, rank, _ = lapack.dpstrf(inner, tol=tolerance, lower=1, overwrite_a=1)
    kept = order[:rank] - 1
    triangle = np.asfortranarray(np.tril(factor[:rank, :rank]))
    return Sections(kernel, x[kept], s[kept], triangle)


@dataclass(frozen=True)
class Design:
    """An intercept, polynomials degree by degree, and sections of a kernel.

    Attributes
    ----------
    dimension : int
    order : int
        Of the polynomials, 0 for none.
    interactions : bool
        Without them polynomials of order two have squares alone.
    sections : Sections, optional
    """

    dimension: int
    order: int = 2
    interactions: bool = True
    sections: Sections | None = None

    @property
    def sizes(self) -> list[int]:
        """Number of rows up to each nested set, the intercept included in all of them."""
        return [1 + size for size in np.cumsum([size for _, size in self.parts]).tolist()]

    @property
    def parts(self) -> list[tuple[str, int]]:
        """Names and sizes of what each nested set adds."""
        d = self.dimension
        found = []
        for degree in range(1, self.order + 1):
            size = math.comb(d + degree - 1, degree) if self.interactions else d
            found.append((f"polynomial order {degree}", size))
        if self.sections is not None:
            found.append((f"{self.sections.kernel.base} kernel", self.sections.size))
        return found

    @property
    def size(self) -> int:
        """Number of features and the intercept."""
        return self.sizes[-1] if self.parts else 1

    def labels(self) -> list[str]:
        """Return a name for each nested set."""
        polynomials = [name for name, _ in self.parts[: self.order]]
        kernels = [name for name, _ in self.parts[self.order :]]
        return [*polynomials, *(" + ".join([*polynomials[-1:], name]) for name in kernels)]

    def rows(self, x: Rows, s: Rows) -> Columns:
        """Return the features at whitened draws, one in each row."""
        out = np.empty((self.size, len(x)))
        out[0] = 1.0
        ends = self.sizes
        start = 1
        for degree in range(1, self.order + 1):
            end = ends[degree - 1]
            _fill_degree(out[start:end], x, s, degree, self.interactions)
            start = end
        if self.sections is not None:
            self.sections.fill(out[start:], x, s)
        return out


@dataclass(frozen=True)
class Fitted:
    """Features times their coefficients, without making sections of a kernel orthonormal.

    Attributes
    ----------
    polynomials : Design
        As far as they are used.
    slopes : array of shape (r, k)
    sections : Sections, optional
        If they are used.
    weights : array of shape (m, k)
        What each of them counts.
    """

    polynomials: Design
    slopes: Float[np.ndarray, "r k"]
    sections: Sections | None
    weights: Float[np.ndarray, "m k"]

    def at(self, x: Rows, s: Rows) -> Float[np.ndarray, "n k"]:
        """Return the control variates at whitened draws."""
        values = self.polynomials.rows(x, s)[1:].T @ self.slopes
        if self.sections is not None:
            kernel = self.sections.kernel.gram(x, s, self.sections.x, self.sections.s)
            values += kernel @ self.weights
        return values


def fitted_with(design: Design, coefficients: Float[np.ndarray, "p k"]) -> Fitted:
    """Return what these coefficients make of the features, the intercept left out."""
    starts = [1, *design.sizes]
    used = [coefficients[a:b].any() for a, b in pairwise(starts)]
    order = max((degree for degree in range(1, design.order + 1) if used[degree - 1]), default=0)
    polynomials = Design(design.dimension, order, design.interactions)
    slopes = coefficients[1 : polynomials.size]
    if design.sections is None or not used[-1]:
        return Fitted(polynomials, slopes, None, coefficients[:0])
    own = coefficients[starts[-2] :]
    weights = solve_triangular(design.sections.factor, own, lower=True, trans=1)
    return Fitted(polynomials, slopes, design.sections, weights)


def _fill_degree(out: Columns, x: Rows, s: Rows, degree: int, interactions: bool) -> None:
    """Write the features of one degree, those of :class:`az_cv.Polynomial`."""
    if degree == 1:
        out[:] = s.T
    elif degree == 2:
        _fill_second(out, np.ascontiguousarray(x.T), np.ascontiguousarray(s.T), interactions)
    else:
        family = Polynomial(order=degree, interactions=interactions, degree_scale=1.0)
        out[:] = family.features(x, s)[:, -len(out) :].T


def _fill_second(out: Columns, x: Columns, s: Columns, interactions: bool) -> None:
    """Write ``(1 + x_i s_i) / sqrt(2)`` and ``(x_i s_j + x_j s_i) / 2``."""
    start = 0
    for i in range(len(x)):
        square = out[start]
        np.multiply(x[i], s[i], out=square)
        square += 1
        square *= math.sqrt(0.5)
        start += 1
        if interactions:
            pairs = out[start : start + len(x) - i - 1]
            np.multiply(x[i], s[i + 1 :], out=pairs)
            pairs += x[i + 1 :] * s[i]
            pairs *= 0.5
            start += len(pairs)
