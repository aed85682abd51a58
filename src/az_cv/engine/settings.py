"""The choices of a call, made once at the public boundary and passed on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from az_cv.engine.choices import resolve_solver
from az_cv.solvers.error_model import ERROR_MODEL
from az_cv.solvers.folds import require_fold_choice

if TYPE_CHECKING:
    from az_cv.engine.choices import Family, FamilyName, SolverName
    from az_cv.solvers import Solver
    from az_cv.solvers.error_model import ErrorModel
    from az_cv.solvers.folds import FoldChoice


@dataclass(frozen=True)
class Settings:
    """How to estimate, whatever the data and the question.

    Parameters
    ----------
    family : family or name
        ``"auto"`` stacks polynomials with a kernel, and with networks in many dimensions or beyond
        the reach of kernels.
    solver : solver or name
        ``"auto"`` trains networks and solves for the others.
    folds : see :func:`az_cv.solvers.folds.make_folds`
    random_seed : int, optional
        Seed of training.
    progressbar : bool
        Show the progress of training and of many estimates.
    check : bool
        Refuse gradients that do not belong to the draws.
    errors : ErrorModel
        The constants behind the error bars.

    Raises
    ------
    TypeError, ValueError
        If a choice cannot be meant, before anything is computed.

    Examples
    --------
    >>> Settings(folds="chain", random_seed=1).folds
    'chain'
    >>> Settings(random_seed="one")
    Traceback (most recent call last):
    TypeError: random_seed must be an integer or None; it is 'one'.
    """

    family: Family | FamilyName = "auto"
    solver: Solver | SolverName = "auto"
    folds: FoldChoice = "auto"
    random_seed: int | None = None
    progressbar: bool = False
    check: bool = True
    errors: ErrorModel = ERROR_MODEL

    def __post_init__(self) -> None:
        for setting in ("family", "solver"):
            value = getattr(self, setting)
            if isinstance(value, type):
                raise TypeError(
                    f"{setting} is the class {value.__name__}. Write it with brackets: "
                    f"{setting}={value.__name__}()."
                )
        resolve_solver(self.solver)
        require_fold_choice(self.folds)
        seed = self.random_seed
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer)):
            raise TypeError(f"random_seed must be an integer or None; it is {seed!r}.")
        if seed is not None and seed < 0:
            raise ValueError(f"random_seed must not be negative; it is {seed}.")
