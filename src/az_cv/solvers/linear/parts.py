"""Systems and their parts: kernel systems too large for one are averaged over several."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from az_cv.families.ensemble import Ensemble
from az_cv.solvers.linear.dual_system import DualSystem, factorise_dual
from az_cv.solvers.linear.primal_system import PrimalSystem, factorise_primal
from az_cv.solvers.time_limit import leave_out, remaining
from az_cv.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from jaxtyping import Float, Int

    from az_cv.families.base import LinearFamily
    from az_cv.solvers.linear.linear_fit import LinearFit

    Folds = Sequence[Int[np.ndarray, " b"]]

# A kernel system for which there is no time is split into so many parts at most.
MAX_PARTS = 8
# Views of more draws are solved one after the other: each takes four matrices.
TOGETHER = 5000


def part_key(num_parts: int, number: int) -> tuple[str, int]:
    """Return under which name a part of a system at full size is kept."""
    return f"part of {num_parts}", number


def affordable_parts(least: int, seconds: Callable[[int], float], label: str) -> int | None:
    """Return the smallest number of parts for which there is time, ``None`` if there is none.

    Parameters
    ----------
    least : int
        Number of parts without a limit.
    seconds : callable
        What a number of parts takes.
    label : str
        Name of the family, to say what was left out.
    """
    for num_parts in range(least, max(least, MAX_PARTS) + 1):
        if seconds(num_parts) <= remaining():
            if num_parts > least:
                leave_out(f"{label} in one piece (in {num_parts})")
            return num_parts
    leave_out(label)
    return None


def is_dual(family: LinearFamily, x: Float[np.ndarray, "n d"]) -> bool:
    """Tell whether the system has a row for each draw, not for each feature."""
    count = family.num_features(x.shape[1])
    if isinstance(family, Ensemble) and family.semi_exact:
        return True
    return count is None or count >= len(x)


def factorise(
    ingredients: np.ndarray,
    folds: Folds,
    ridge: float,
    exact: list[Float[np.ndarray, "n r"] | None],
    *,
    dual: bool,
) -> DualSystem | PrimalSystem | None:
    """Return the factorised system, ``None`` if it is singular; a kernel matrix is used up."""
    if dual:
        return factorise_dual(ingredients, folds, ridge=ridge, exact_features=exact)
    return factorise_primal(ingredients, folds, ridge=ridge)


class Spans:
    """The features that a family leaves unpenalised, which all its settings share.

    Parameters
    ----------
    x, s : arrays of shape (n, d)
        All draws and their scores.
    """

    def __init__(self, x: Float[np.ndarray, "n d"], s: Float[np.ndarray, "n d"]) -> None:
        self._x, self._s = x, s
        self._known: dict[tuple[str, int], list[Float[np.ndarray, "m r"] | None]] = {}

    def of(
        self, family: LinearFamily, rows: Int[np.ndarray, " m"], key: tuple[str, int]
    ) -> list[Float[np.ndarray, "m r"] | None]:
        """Return the sets of features at some draws, kept under a key."""
        if not isinstance(family, Ensemble):
            return [None]
        if key not in self._known:
            spans = family.spans(self._x[rows], self._s[rows])
            self._known[key] = spans[:1] if key[0] == "first round" else spans
        return self._known[key]


class Spare:
    """A copy of the latest kernel matrix, where a setting with another ridge needs it next.

    Systems are made in place of their matrix.

    Parameters
    ----------
    enabled : bool
        Whether copies are made at all.
    """

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._kept: tuple[Hashable, np.ndarray] | None = None

    def take(self, key: Hashable, make: Callable[[], np.ndarray], *, again: bool) -> np.ndarray:
        """Return the matrix of a key, and keep a copy if it is needed again."""
        kept, self._kept = self._kept, None
        matrix = kept[1] if kept is not None and kept[0] == key else make()
        if self._enabled and again and isinstance(matrix, np.ndarray):
            self._kept = key, matrix.copy(order="F")
        return matrix


def within(rows: Int[np.ndarray, " m"], folds: Folds, n: int) -> Folds:
    """Return what of each fold, a set of n draws, is among the rows, counted there."""
    if len(rows) == n:
        return folds
    position = np.full(n, -1)
    position[rows] = np.arange(len(rows))
    inside = [fold[fold >= 0] for fold in (position[fold] for fold in folds)]
    return [fold for fold in inside if len(fold)]


def average(fits: Sequence[LinearFit], members: Sequence[np.ndarray], n: int) -> LinearFit:
    """Average independent estimates from parts of the draws, weighted by their sizes."""
    if len(fits) == 1:
        return fits[0]
    weights = np.array([len(rows) / n for rows in members])
    q = len(fits[0].intercept)
    residual, adjusted = np.empty((n, q)), np.empty((n, q))
    singly = None if fits[0].leave_one_out is None else np.empty((n, q))
    for fit, rows in zip(fits, members):
        residual[rows], adjusted[rows] = fit.residual, fit.adjusted
        if singly is not None:
            singly[rows] = fit.leave_one_out
    return replace(
        fits[0],
        intercept=sum(w * fit.intercept for w, fit in zip(weights, fits)),
        residual=residual,
        adjusted=adjusted,
        leave_one_out=singly,
        tail_sd=np.sqrt(sum((w * fit.tail_sd) ** 2 for w, fit in zip(weights, fits))),
        tail_shift=sum(w * fit.tail_shift for w, fit in zip(weights, fits)),
        log_evidence=np.sum([fit.log_evidence for fit in fits], axis=0),
    )


def of_views(
    solve: Callable[[int], list[LinearFit]], count: int, draws: int
) -> list[list[LinearFit]]:
    """Return the fits of each view, made side by side where there is memory for it."""
    if count == 1 or draws > TOGETHER:
        return [solve(view) for view in range(count)]
    return side_by_side(solve, range(count), draws)


def each_judged(fits: Sequence[LinearFit], judged: Sequence[Int[np.ndarray, " m"]]) -> LinearFit:
    """Put fits of all draws together, each of which is judged by some of them."""
    if len(fits) == 1:
        return fits[0]
    residual, adjusted = fits[0].residual.copy(), fits[0].adjusted.copy()
    singly = None if fits[0].leave_one_out is None else fits[0].leave_one_out.copy()
    for fit, rows in zip(fits, judged):
        residual[rows], adjusted[rows] = fit.residual[rows], fit.adjusted[rows]
        if singly is not None and fit.leave_one_out is not None:
            singly[rows] = fit.leave_one_out[rows]
    return replace(
        fits[0],
        intercept=np.mean([fit.intercept for fit in fits], axis=0),
        residual=residual,
        adjusted=adjusted,
        leave_one_out=singly,
        tail_sd=np.mean([fit.tail_sd for fit in fits], axis=0),
        tail_shift=np.mean([fit.tail_shift for fit in fits], axis=0),
        log_evidence=np.mean([fit.log_evidence for fit in fits], axis=0),
    )
