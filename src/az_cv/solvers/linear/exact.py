"""Exact solves with the ridge and the family's own parameters chosen from the draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from az_cv.solvers.linear.family_systems import FamilySystems

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from jaxtyping import Float, Int

    from az_cv.families.base import LinearFamily

    Matrix = Float[np.ndarray, "n d"]
    Outputs = Float[np.ndarray, "n q"]
    Folds = Sequence[Int[np.ndarray, " b"]]

MIN_DRAWS = 10  # for a system that can be solved and judged
CRITERIA = ("leave_one_out", "marginal_likelihood")


@dataclass(frozen=True)
class Exact:
    """Solve the regularised least-squares problem exactly, in the primal or the dual.

    Parameters
    ----------
    ridge : float or "auto"
        Relative to the average variance of the family at the draws. ``"auto"`` is chosen from them.
    criterion : {"leave_one_out", "marginal_likelihood"}
        What the choice minimises. The likelihood is for kernels only.
    search_draws : int
        Hyper-parameters are chosen in two rounds: all of them on two fifths of this many draws, the
        best of those on five quarters.
    max_draws : int
        Kernel systems larger than this are split into interleaved parts of at most this size, whose
        estimates are averaged: cost grows linearly from there on.

    Examples
    --------
    >>> Exact(ridge=1e-8)
    Exact(ridge=1e-08, criterion='leave_one_out', search_draws=1000, max_draws=8000)
    """

    ridge: float | Literal["auto"] = "auto"
    criterion: Literal["leave_one_out", "marginal_likelihood"] = "leave_one_out"
    search_draws: int = 1000
    max_draws: int = 8000

    def __post_init__(self) -> None:
        if self.ridge != "auto" and not (isinstance(self.ridge, int | float) and self.ridge >= 0):
            raise ValueError(f"ridge must be 'auto' or at least 0; it is {self.ridge!r}.")
        for name in ("search_draws", "max_draws"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < MIN_DRAWS:
                raise ValueError(f"{name} must be an integer from {MIN_DRAWS} on; it is {value!r}.")
        if self.criterion not in CRITERIA:
            raise ValueError(
                f"criterion {self.criterion!r} is unknown. Choose from {list(CRITERIA)}."
            )

    def systems(
        self,
        family: LinearFamily,
        x: Matrix,
        s: Matrix,
        folds: Folds,
        guide: Outputs | None = None,
        visit: int = 1,
        distinct: Folds | None = None,
    ) -> FamilySystems:
        """Return the family's linear systems on these draws, to be solved for any outputs.

        Parameters
        ----------
        family : LinearFamily
        x, s : arrays of shape (n, d)
            Standardised draws and scores.
        folds : sequence of index arrays
            Left out in turn.
        guide : array of shape (n, g), optional
            Functions that are typical of what will be asked, see :class:`FamilySystems`.
        visit : int
            Autocorrelation time of the draws.
        distinct : sequence of index arrays, optional
            Draws that are equal, for estimates that leave out less than the folds.
        """
        return FamilySystems(self, family, x, s, folds, guide, visit, distinct)
