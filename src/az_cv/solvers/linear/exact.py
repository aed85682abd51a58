"""Exact solves with the ridge and the family's own parameters chosen from the draws."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from az_cv.families.base import LinearFamily
from az_cv.families.description import describe
from az_cv.solvers.base import Fitted, Member
from az_cv.solvers.kept import Kept
from az_cv.solvers.linear.family_systems import FamilySystems
from az_cv.solvers.linear.told import told
from az_cv.solvers.time_limit import remaining
from az_cv.threads import lapack_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int

    from az_cv.solvers.base import Task
    from az_cv.solvers.error_model import ErrorModel
    from az_cv.solvers.linear.linear_fit import LinearFit

    Outputs = Float[np.ndarray, "n q"]

MIN_DRAWS = 10  # for a system that can be solved and judged
CRITERIA = ("leave_one_out", "marginal_likelihood")
TUNE_FOR = ("posterior", "functions")


@dataclass(frozen=True)
class Exact:
    """Solve the regularised least-squares problem exactly, in the primal or the dual.

    Parameters
    ----------
    ridge : float or "auto"
        Relative to the average variance of the family at the draws. ``"auto"`` is chosen from them.
    criterion : {"leave_one_out", "marginal_likelihood"}
        What the choice minimises. The likelihood is for kernels only.
    tune_for : {"posterior", "functions"}
        For which functions hyper-parameters are chosen: the posterior's own variables and their
        squares, so that answers do not depend on what else is asked; or those that are asked for,
        which serves functions with peaks, kinks and jumps better, and has to be done for every
        question anew.
    search_draws : int
        Hyper-parameters are chosen in two rounds: all of them on two fifths of this many draws, the
        best of those on five quarters.
    max_draws : int
        Kernel systems larger than this are split into interleaved parts of at most this size, whose
        estimates are averaged: cost grows linearly from there on.

    See Also
    --------
    az_cv.SGD : Trains on minibatches.
    az_cv.solvers.Lasso : Picks few features of many.

    Examples
    --------
    >>> from az_cv import Exact
    >>> Exact(ridge=1e-8).tune_for
    'posterior'
    """

    ridge: float | Literal["auto"] = "auto"
    criterion: Literal["leave_one_out", "marginal_likelihood"] = "leave_one_out"
    tune_for: Literal["posterior", "functions"] = "posterior"
    search_draws: int = 1000
    max_draws: int = 8000

    def __post_init__(self) -> None:
        if self.ridge != "auto" and not (isinstance(self.ridge, int | float) and self.ridge >= 0):
            raise ValueError(f"ridge must be 'auto' or at least 0; it is {self.ridge!r}.")
        for name in ("search_draws", "max_draws"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < MIN_DRAWS:
                raise ValueError(f"{name} must be an integer from {MIN_DRAWS} on; it is {value!r}.")
        for name, choices in (("criterion", CRITERIA), ("tune_for", TUNE_FOR)):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} {getattr(self, name)!r} is unknown. Choose from {list(choices)}."
                )

    def accepts(self, family: Any) -> bool:
        """Tell whether a family is linear in its coefficients."""
        return isinstance(family, LinearFamily)

    def prepare(self, family: LinearFamily, task: Task) -> Solved:
        """Return the family's linear systems on these draws, to be solved for any outputs."""
        if not self.accepts(family):
            raise TypeError(
                f"Exact needs a family with `features`; {type(family).__name__} has none. "
                "Use solver=SGD(...)."
            )
        return Solved(FamilySystems(self, family, task))


@dataclass(frozen=True)
class Solved:
    """Linear systems that make members of an estimate."""

    systems: FamilySystems

    def errors_of_guide(self, *, chosen: bool = False) -> Float[np.ndarray, " g"] | None:
        """Return what a kernel promises, see :class:`az_cv.solvers.base.Foreseeing`."""
        if self.systems.solver.tune_for == "functions":
            return None
        with lapack_first():
            return self.systems.errors_of_guide(chosen=chosen)

    def error_of_steps(self) -> float | None:
        """Return the same for indicators."""
        if self.systems.solver.tune_for == "functions":
            return None
        with lapack_first():
            return self.systems.error_of_steps()

    @property
    def has_witnesses(self) -> bool:
        """Whether fits can be judged, see :class:`az_cv.solvers.base.Witnessing`."""
        return self.systems.solver.tune_for == "posterior" and self.systems.has_witnesses

    def worse_fits(self, outputs: Outputs) -> list[Member]:
        """Return fits at other lengths."""
        label, task = describe(self.systems.family), self.systems.task
        with told(task.progressbar, f"Judging errors: {label}"), lapack_first():
            return [member_from_fit(label, fit, task) for fit in self.systems.worse_fits(outputs)]

    def fits_to_parts(
        self, outputs: Outputs, parts: Sequence[Int[np.ndarray, " m"]]
    ) -> list[Member]:
        """Return fits to parts of the draws, or to all."""
        label, task = describe(self.systems.family), self.systems.task
        with told(task.progressbar, f"Judging errors: {label}"), lapack_first():
            fits = self.systems.fits_to_parts(outputs, parts)
        shapes = [task.shape if len(p) == len(outputs) else (1, len(p)) for p in parts]
        each = zip(fits, shapes)
        return [member_from_fit(label, fit, replace(task, shape=shape)) for fit, shape in each]

    def fit(self, outputs: Outputs, *, steps: bool = False) -> Fitted:
        """Solve for outputs, once for each setting worth it."""
        systems = self.systems
        if systems.solver.tune_for == "functions" and not steps:
            task = replace(systems.task, guide=outputs, kept=Kept())
            systems = FamilySystems(systems.solver, systems.family, task)
        label, task = describe(systems.family), systems.task
        with told(task.progressbar, f"Choosing settings: {label}"), lapack_first():
            expected = systems.expected_seconds()
        with told(task.progressbar, f"Solving for all draws: {label}", expected):
            fits = systems.fit(outputs, steps=steps)
        members = [member_from_fit(label, fit, task) for _, fit in fits]
        is_whole = not steps and remaining() == math.inf and systems.has_witnesses
        return Fitted(members, whole=members[0] if is_whole else None)


def member_from_fit(label: str, fit: LinearFit, task: Task) -> Member:
    """Return what a linear fit contributes under the folds of the task."""
    folds = task.folds
    adjusted = fit.adjusted.reshape(*task.shape, -1)[:, folds.first_draw :]
    mean, tail = adjusted.mean(axis=(0, 1)), tail_error(fit, task.errors, task.x.shape[1])
    if folds.in_sample:
        # The ridge biases the intercept; the mean over draws left out is free of that.
        return Member(label, fit.intercept, adjusted, np.hypot(tail, mean - fit.intercept))
    if fit.leave_one_out is None:
        return Member(label, mean, adjusted, tail)
    # Fits without a run lack draws beside it; what that changes is a part of the error, too.
    singly = fit.leave_one_out.reshape(*task.shape, -1)[:, folds.first_draw :].mean(axis=(0, 1))
    change = singly - mean
    return Member(label, singly, adjusted + change, np.hypot(tail, change))


def tail_error(fit: LinearFit, errors: ErrorModel, d: int) -> Float[np.ndarray, " q"]:
    """Return the error from beyond the outermost draws.

    The shift when they are left out counts as it is, and vanishes beside the scatter in all but few
    dimensions. The quadrature error rests on the amplitude of few draws: it counts where it is
    clearly above the scatter, and in few dimensions enlarged.
    """
    scatter = np.sqrt(np.einsum("nq,nq->q", fit.residual, fit.residual)) / len(fit.residual)
    is_clear = fit.tail_sd > errors.quadrature * scatter
    enlarged = fit.tail_sd * (1.0 if d >= errors.many else errors.quadrature)
    return np.hypot(np.where(is_clear, enlarged, 0.0), fit.tail_shift)
