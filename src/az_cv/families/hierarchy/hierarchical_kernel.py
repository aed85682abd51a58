"""A Stein kernel that follows the hierarchy of a model.

A few global coordinates ``x_H`` govern the others. The kernel is a sum of three, each times a
kernel of ``x_H``, so that everything may change with them:

* own: fields that depend on one coordinate, or on one linear combination of them, and move it,
  alone or together with what it is correlated with;
* shared: fields that move everything and depend on every coordinate, additively;
* top: fields that depend on the global coordinates alone, and move them.

Where global coordinates move, the others are carried along: they keep their standardised values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from az_cv.families.arrays import namespace
from az_cv.families.base import View
from az_cv.families.coordinates import positions_among
from az_cv.families.hierarchy.lifting import Layout, global_coordinates, lift_draws
from az_cv.families.hierarchy.series import gaussian_series, number_of_terms
from az_cv.families.radial import curvature, power_derivatives, squared_distances, with_scores
from az_cv.families.tiles import lower_tiles
from az_cv.lapack import row_products
from az_cv.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int

    from az_cv.families.tiles import Tile

    Matrix = Float[np.ndarray, "n d"]
    Gram = Float[np.ndarray, "n m"]

# Length scales to try, in sds of a coordinate, and of the square root of the number of global ones.
LENGTHS = ((2.0, 2.0), (4.0, 3.0), (8.0, 6.0), (16.0, 12.0))
# In many dimensions the shortest are never chosen, and have most features. There the products of
# features take the time, and terms of the series beyond so many, of own and of shared fields, gain
# next to nothing.
LONG_FROM = 30
MOST_TERMS = (5, 3)
# Weights of own, shared and top, each kernel of unit mean variance; that of shared fields in few
# and in many dimensions.
SHARED, SHARED_BY_MANY, TOP = 0.3, 0.1, 3.0
# Of fields that depend on the global coordinates alone, in the shared kernel.
CONSTANT = 0.1
# Directions are learned from the draws, a coefficient for each coordinate. What that biases, in
# standard errors, is about the number of coefficients over the root of the number of draws. Above
# this, half of the draws teach and the other half judges.
SMALL_BIAS = 0.3


@dataclass(frozen=True)
class HierarchicalKernel:
    """Control variates for models in which some parameters govern many others.

    Parameters
    ----------
    top : "auto", or sequence of str or int
        The global parameters: names of unconstrained parameters, or their positions. ``"auto"``
        finds them in the scores, see :func:`az_cv.structure`.
    length_scale : float or "auto"
        Length scale of single coordinates, in sds.
    top_length_scale : float or "auto"
        Length scale of the global coordinates, in sds, times the square root of their number.
    layout : Layout, optional
        Filled in when the kernel meets draws.
    variances : tuple of float, optional
        Mean variance of each part, by which it is divided. Taken from the draws.

    See Also
    --------
    az_cv.structure : What it finds in the scores.
    az_cv.Kernel : Kernels of other posteriors.

    Examples
    --------
    >>> from az_cv import HierarchicalKernel
    >>> HierarchicalKernel(top=["tau_log__"]).top
    ('tau_log__',)
    """

    top: Literal["auto"] | Sequence[str | int] = "auto"
    length_scale: float | Literal["auto"] = "auto"
    top_length_scale: float | Literal["auto"] = "auto"
    layout: Layout | None = None
    variances: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.top, str):
            if self.top != "auto":
                raise ValueError(
                    f"top must be 'auto' or a list of parameters; it is {self.top!r}. For one "
                    f"parameter write top=[{self.top!r}]."
                )
        else:
            object.__setattr__(self, "top", tuple(self.top))
        for name in ("length_scale", "top_length_scale"):
            value = getattr(self, name)
            if value != "auto" and not (isinstance(value, int | float) and value > 0):
                raise ValueError(f"{name} must be positive or 'auto'; it is {value!r}.")

    def among(self, names: Sequence[str]) -> HierarchicalKernel:
        """Return the kernel with positions in place of names of unconstrained parameters."""
        if isinstance(self.top, str):
            return self
        return replace(self, top=positions_among(self.top, names, "top"))

    def lift(self, x: Matrix, s: Matrix, asked: Float[np.ndarray, "n k"]) -> Sequence[View]:
        """Return the kernel for these draws, and what it needs to know of each draw.

        In many dimensions that is learned from half of the draws, and judged by the other half.

        Parameters
        ----------
        x, s : arrays of shape (n, d)
            Unconstrained draws and scores, as they are.
        asked : array of shape (n, k)
            Functions that are typical of what will be asked.
        """
        top = None if isinstance(self.top, str) else self._positions(x.shape[1])
        n, d = x.shape
        everything = np.arange(n)
        known_and_judged = [(everything, everything)]
        if d > SMALL_BIAS * math.sqrt(n):
            if top is None:  # the same for both halves
                top = np.array(global_coordinates(x, s), dtype=int)
            first, second = np.array_split(everything, [n // 2])
            known_and_judged = [(second, first), (first, second)]
        return side_by_side(lambda both: self._view(x, s, asked, top, *both), known_and_judged, n)

    def _view(
        self,
        x: Matrix,
        s: Matrix,
        asked: Float[np.ndarray, "n k"],
        top: Int[np.ndarray, " h"] | None,
        known: Int[np.ndarray, " m"],
        judged: Int[np.ndarray, " l"],
    ) -> View:
        """Return what some draws teach, for judging others by it."""
        layout, lifted, scores = lift_draws(x, s, asked, top, known)
        return View(replace(self, layout=layout), lifted, scores, judged)

    def _positions(self, d: int) -> Int[np.ndarray, " h"]:
        """Return the global coordinates, or refuse what is none."""
        wrong = [k for k in self.top if isinstance(k, str) or not 0 <= k < d]
        if wrong or len(self.top) >= d:
            raise ValueError(
                f"top must be some, not all, of the {d} coordinates, counted from 0; it is "
                f"{list(self.top)}."
            )
        return np.array(self.top, dtype=int)

    def variants(self, x: Matrix, s: Matrix) -> Sequence[HierarchicalKernel]:
        """Return the kernel at each pair of length scales to try."""
        layout = self._layout()
        pairs = LENGTHS[1:] if layout.rest >= LONG_FROM else LENGTHS
        candidates = [
            replace(
                self,
                length_scale=own if self.length_scale == "auto" else self.length_scale,
                top_length_scale=top if self.top_length_scale == "auto" else self.top_length_scale,
            )
            for own, top in pairs
        ]
        distinct = list(dict.fromkeys((c.length_scale, c.top_length_scale) for c in candidates))
        kernels = [replace(self, length_scale=own, top_length_scale=top) for own, top in distinct]
        return [replace(k, variances=k._mean_variances(x, s)) for k in kernels]

    def num_features(self, d: int) -> int | None:
        """Return ``None``: the kernel has no finite set of features."""
        return None

    def features(self, x: Matrix, s: Matrix) -> Float[np.ndarray, "n p"]:
        """Refuse: the kernel has no finite set of features."""
        raise TypeError("A hierarchical kernel has no finite set of features.")

    @property
    def portable(self) -> bool:
        """Whether a graphics card can make the kernel: always."""
        return True

    def gram(self, x: Matrix, s: Matrix, y: Matrix, t: Matrix) -> Gram:
        """Return the Stein kernel matrix between lifted draws."""
        one, two = self._pieces(x, s), self._pieces(y, t)
        return self._assemble(
            one.heads,
            two.heads,
            one.images @ two.images.T,
            one.values @ two.values.T,
            one.pushed @ two.pushed.T,
            one.scores @ two.scores.T,
        )

    def matrix(self, x: Matrix, s: Matrix) -> Float[np.ndarray, "n n"]:
        """Return the lower triangle of the matrix between all lifted draws, in Fortran order."""
        pieces = self._pieces(x, s)
        images, values, pushed, scores = (
            row_products(part)
            for part in (pieces.images, pieces.values, pieces.pushed, pieces.scores)
        )

        def fill(tile: Tile) -> None:
            own, rows = tile
            # Transposed, all arrays of a tile are in C order, those of the global coordinates too.
            images[rows, own] = self._assemble(
                pieces.heads.at(own),
                pieces.heads.at(rows),
                images[rows, own].T,
                values[rows, own].T,
                pushed[rows, own].T,
                scores[rows, own].T,
            ).T

        side_by_side(fill, lower_tiles(len(x)), len(x))
        return images

    def _assemble(
        self,
        heads: _Heads,
        other_heads: _Heads,
        images: Gram,
        values: Gram,
        pushed: Gram,
        scores: Gram,
    ) -> Gram:
        """Return own and shared times the kernel of the global coordinates, and top."""
        layout = self._layout()
        _, shared, carried, alone = self.variances or (1.0,) * 4
        additive = values * (self._shared / shared / layout.seen)
        additive += CONSTANT * self._shared / shared
        inner = scores * additive
        inner -= pushed
        inner += images
        if not layout.top:
            return inner
        top, other = heads.top, other_heads.top
        r2 = squared_distances(top, other)
        width = layout.top * float(self.top_length_scale) ** 2
        phi, first, second = power_derivatives(r2, width, 0.5, 2)
        bent = curvature(r2, second)
        inner *= phi
        additive += TOP / carried
        additive *= with_scores(top, heads.carried, other, other_heads.carried, phi, first, bent)
        inner += additive
        moved_alone = with_scores(top, heads.alone, other, other_heads.alone, phi, first, bent)
        moved_alone *= TOP / alone
        inner += moved_alone
        return inner

    def _pieces(self, x: Matrix, s: Matrix) -> _Pieces:
        """Return the features whose products make the kernel."""
        layout = self._layout()
        own_variance, shared_variance, _, _ = self.variances or (1.0,) * 4
        parts = layout.split(x, s)
        own_terms, shared_terms = self._terms()
        length = float(self.length_scale)
        values, slopes = gaussian_series(parts.seen, length, shared_terms)
        pushed = values * parts.seen_score[..., None]
        weight = math.sqrt(self._shared / (shared_variance * layout.seen))
        shared = (slopes + pushed) * weight
        pushed *= weight
        own_values, own_slopes = gaussian_series(parts.coordinate, length, own_terms)
        own_slopes *= parts.variance[..., None]
        own_values *= parts.score[..., None]
        own_slopes += own_values
        own_slopes *= (layout.balance / math.sqrt(own_variance))[:, None]
        n = len(x)
        return _Pieces(
            heads=_Heads(parts.top, parts.top_score, parts.alone_score),
            images=namespace(x).hstack([own_slopes.reshape(n, -1), shared.reshape(n, -1)]),
            values=values.reshape(n, -1),
            pushed=pushed.reshape(n, -1),
            scores=parts.standard_score,
        )

    def _terms(self) -> tuple[int, int]:
        """Return how many terms the series of own and of shared fields have."""
        needed = number_of_terms(float(self.length_scale))
        most = MOST_TERMS if self._layout().rest >= LONG_FROM else (needed, needed)
        return min(needed, most[0]), min(needed, most[1])

    @property
    def _shared(self) -> float:
        """Weight of the shared part."""
        return SHARED if self._layout().rest < LONG_FROM else SHARED_BY_MANY

    def _mean_variances(
        self, x: Matrix, s: Matrix, max_draws: int = 500
    ) -> tuple[float, float, float, float]:
        """Return the mean diagonal of own, of shared, and of top with and without the rest."""
        rows = slice(None, None, max(1, len(x) // max_draws))
        layout = self._layout()
        plain = replace(self, variances=(1.0,) * 4)
        pieces = plain._pieces(x[rows], s[rows])
        count = layout.own * self._terms()[0]
        own = float((pieces.images[:, :count] ** 2).sum(axis=1).mean())
        both = pieces.images[:, count:] ** 2
        sizes = [(part**2).sum(axis=1) for part in (pieces.scores, pieces.values, pieces.pushed)]
        shared = (
            sizes[0] * (sizes[1] / layout.seen + CONSTANT) - sizes[2] / self._shared
        ).mean() + both.sum(axis=1).mean() / self._shared
        width = layout.top * float(self.top_length_scale) ** 2
        carried, alone = (
            float((score**2).sum(axis=1).mean()) + layout.top / width if layout.top else 1.0
            for score in (pieces.heads.carried, pieces.heads.alone)
        )
        return own, float(shared), carried, alone

    def _layout(self) -> Layout:
        if self.layout is None:
            raise TypeError(
                "A HierarchicalKernel stands alone: pass it as family=HierarchicalKernel(), not as "
                "a member of an Ensemble."
            )
        return self.layout


@dataclass(frozen=True)
class _Heads:
    """Global coordinates, their scores with the rest carried along, and with the rest at rest."""

    top: Matrix
    carried: Matrix
    alone: Matrix

    def at(self, rows: slice) -> _Heads:
        """Return those of some draws."""
        return _Heads(self.top[rows], self.carried[rows], self.alone[rows])


@dataclass(frozen=True)
class _Pieces:
    """Of each draw: what enters the kernel through products."""

    heads: _Heads
    images: Matrix
    values: Matrix
    pushed: Matrix
    scores: Matrix
