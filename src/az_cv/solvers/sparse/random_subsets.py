"""Averages of many small least-squares fits, each to a random subset of the features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from az_cv.families.base import BalancedFamily, LeadingFeatures
from az_cv.families.description import describe
from az_cv.solvers.base import Fitted
from az_cv.solvers.linear.exact import MIN_DRAWS, member_from_fit
from az_cv.solvers.linear.linear_fit import find_outskirts
from az_cv.solvers.linear.primal_system import factorise_primal
from az_cv.solvers.sparse.lasso import has_features, require_features
from az_cv.threads import lapack_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jaxtyping import Float, Int

    from az_cv.families.base import LinearFamily
    from az_cv.solvers.base import Member, Task
    from az_cv.solvers.linear.linear_fit import LinearFit
    from az_cv.solvers.linear.primal_system import PrimalSystem

    Outputs = Float[np.ndarray, "n q"]

# Features of a fit as a share of the draws that it sees: few for what is nearly noise, many for
# what is nearly explained. Stacking chooses for each output.
SHARES = (1 / 20, 1 / 6)
# Leading features are in every fit as long as they are fewer than this share of the draws.
LEADING_SHARE = 1 / 4
# The first that makes a system solvable is taken.
RIDGES = tuple(10.0**power for power in range(-13, 3))
SEED = 0


@dataclass(frozen=True)
class RandomSubsets:
    """The average of least-squares fits to random subsets of the features.

    Each fit has far fewer features than draws, and needs no penalty; the average of many has them
    all. Features of the first degree are in every fit. Draws left out judge each fit through its
    own factorisation, and with them their average.

    Parameters
    ----------
    num_fits : int
    num_features : int or "auto"
        Drawn for each fit. ``"auto"`` makes two averages, with a twentieth and with a sixth as many
        features as a fit has draws, and leaves the choice for each output to stacking.

    See Also
    --------
    az_cv.Polynomial : The family it is made for.
    az_cv.solvers.Lasso : Another way with more features than draws.
    az_cv.Exact : The default solver.

    References
    ----------
    Nguyen, L. M., Drovandi, C. and South, L. F. (2025), Ensemble Control Variates,
    arXiv:2509.01091.

    Examples
    --------
    >>> import numpy as np
    >>> from az_cv.engine.engine import run_engine
    >>> from az_cv.families import Polynomial
    >>> from az_cv.solvers import RandomSubsets
    >>> x = np.random.default_rng(0).normal(size=(4, 50, 30))
    >>> found = run_engine(x, -x, x**2, family=Polynomial(2), solver=RandomSubsets())
    >>> bool((found.estimate.mcse < found.estimate.plain_mcse).any())
    True
    """

    num_fits: int = 30
    num_features: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        if not isinstance(self.num_fits, int) or self.num_fits < 1:
            raise ValueError(f"num_fits must be an integer from 1 on; it is {self.num_fits!r}.")
        size = self.num_features
        if size != "auto" and not (isinstance(size, int) and size >= 1):
            raise ValueError(
                f"num_features must be 'auto' or an integer from 1 on; it is {size!r}."
            )

    def accepts(self, family: Any) -> bool:
        """Tell whether a family has a finite number of features."""
        return has_features(family)

    def prepare(self, family: LinearFamily, task: Task) -> Subsets:
        """Return the features of the family on these draws, and subsets of them."""
        require_features(self, family)
        return Subsets(self, family, task)


class Subsets:
    """Features on given draws, and which of them each fit has."""

    def __init__(self, solver: RandomSubsets, family: LinearFamily, task: Task) -> None:
        self.solver, self.task, self.label = solver, task, describe(family)
        x, s, d = task.x, task.s, task.x.shape[1]
        left_out = np.concatenate(task.folds.blocks)
        trained = np.setdiff1d(np.arange(len(x)), left_out)
        rows = trained if len(trained) else np.arange(len(x))
        if isinstance(family, BalancedFamily):
            family = family.balanced(s)
        self.features = family.variants(x[rows], s[rows])[-1].features(x, s)
        largest = max(len(block) for block in task.folds.blocks)
        self.draws = len(x) - largest
        leading = family.num_leading(d) if isinstance(family, LeadingFeatures) else 0
        self.leading = leading if leading <= LEADING_SHARE * self.draws else 0

    def fit(self, outputs: Outputs, *, steps: bool = False) -> Fitted:
        """Fit every subset, and average; indicators get the smallest subsets alone."""
        if self.draws < MIN_DRAWS:
            return Fitted([])
        sizes = self._sizes()
        with lapack_first():
            members = [self._average(size, outputs) for size in (sizes[:1] if steps else sizes)]
        return Fitted(members)

    def _sizes(self) -> list[int]:
        """Return how many features are drawn for a fit."""
        others = self.features.shape[1] - self.leading
        if self.solver.num_features != "auto":
            return [min(self.solver.num_features, others)]
        sizes = [max(1, min(round(share * self.draws), others)) for share in SHARES]
        return sorted(set(sizes))

    def _average(self, size: int, outputs: Outputs) -> Member:
        """Return the average of fits to subsets of one size."""
        task = self.task
        outskirts = find_outskirts(task.x, task.folds.visit, task.errors)
        fits = [
            self._system(columns, (size, number)).fit(
                outputs, outskirts=outskirts, distinct=task.folds.distinct
            )[0]
            for number, columns in enumerate(self._subsets(size))
        ]
        return member_from_fit(f"{self.label}, random subsets", _mean(fits), task)

    def _subsets(self, size: int) -> list[Int[np.ndarray, " m"]]:
        """Return the columns of each fit, all of them as often as can be."""
        p = self.features.shape[1]
        if self.leading + size >= p:
            return [np.arange(p)]
        seed = SEED if self.task.random_seed is None else self.task.random_seed
        rng = np.random.default_rng([seed, size])
        number = self.solver.num_fits * size
        others = np.arange(self.leading, p)
        shuffled = np.concatenate(
            [rng.permutation(others) for _ in range(-(-number // len(others)))]
        )
        leading = np.arange(self.leading)
        return [
            np.concatenate([leading, np.unique(drawn)])
            for drawn in shuffled[:number].reshape(-1, size)
        ]

    def _system(self, columns: Int[np.ndarray, " m"], key: tuple[int, int]) -> PrimalSystem:
        """Return the normal equations of some features, kept or made now."""
        kept = self.task.kept.get((self, *key))
        if kept is not None:
            return kept
        features, folds = self.features[:, columns], self.task.folds.blocks
        for ridge in RIDGES:
            system = factorise_primal(features, folds, ridge=ridge)
            if system is not None:
                self.task.kept.put((self, *key), system, lasting=True)
                return system
        raise ValueError(
            f"The system of {len(columns)} features of {self.label} is singular on {len(features)} "
            f"draws even with ridge {RIDGES[-1]:g}."
        )


def _mean(fits: Sequence[LinearFit]) -> LinearFit:
    """Average what is linear in the outputs; errors beyond the draws are at worst the average."""
    means = [fit.leave_one_out for fit in fits if fit.leave_one_out is not None]

    def average(values: Iterable[np.ndarray]) -> np.ndarray:
        return np.asarray(sum(value / len(fits) for value in values))

    return replace(
        fits[0],
        intercept=average(fit.intercept for fit in fits),
        residual=average(fit.residual for fit in fits),
        adjusted=average(fit.adjusted for fit in fits),
        leave_one_out=average(means) if means else None,
        tail_sd=average(fit.tail_sd for fit in fits),
        tail_shift=average(fit.tail_shift for fit in fits),
    )
