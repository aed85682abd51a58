"""Settings judged on few draws: the systems of a search, and what they leave of outputs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from az_cv.solvers.linear import search
from az_cv.solvers.linear.dual_system import DualSystem, factorise_dual
from az_cv.solvers.linear.ridge_scan import RidgeScan, scan_ridges
from az_cv.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Float, Int

    from az_cv.families.base import LinearFamily
    from az_cv.solvers.kept import Kept
    from az_cv.solvers.linear.parts import Spans
    from az_cv.solvers.linear.search import Setting
    from az_cv.solvers.time_limit import Cost

    Outputs = Float[np.ndarray, "m q"]
    Rows = Int[np.ndarray, " m"]


@dataclass(frozen=True)
class Seen:
    """The draws that a round of a search sees.

    Attributes
    ----------
    rows : array of shape (m,)
        Which they are.
    shares : array of shape (m,)
        The share of all draws that each stands for.
    folds : sequence of index arrays
        For the fits, if there will be any: a search leaves draws out singly.
    key : (str, int)
        Under which name systems on these draws are kept.
    """

    rows: Rows
    shares: Float[np.ndarray, " m"]
    folds: Sequence[Rows]
    key: tuple[str, int]


@dataclass(frozen=True)
class Judge:
    """Scores of settings on some of the draws.

    Attributes
    ----------
    criterion : {"leave_one_out", "marginal_likelihood"}
        The likelihood is for kernels only.
    spans : Spans
        The features that are not penalised.
    kept : Kept
        Where systems wait for further outputs.
    cost : Cost
        Learns how long kernel systems take.
    ingredients : callable
        Returns the kernel matrix, or the features, of a family at some draws.
    is_dual : bool
    """

    criterion: str
    spans: Spans
    kept: Kept
    cost: Cost
    ingredients: Callable[[LinearFamily, Rows], np.ndarray]
    is_dual: bool

    def scores(
        self,
        settings: Sequence[Setting],
        outputs: Outputs,
        seen: Seen,
        *,
        brief: bool = False,
    ) -> Float[np.ndarray, "k q"]:
        """Return the criterion of each setting for each output, NaN where it is singular.

        Parameters
        ----------
        settings : sequence of Setting
            Those of one family in a row.
        outputs : array of shape (m, q)
            At these draws.
        seen : Seen
            The draws.
        brief : bool
            Leave ridges of kernels out, with NaN, that lie beyond those that make all outputs
            worse.
        """
        groups = [list(group) for _, group in groupby(settings, key=lambda one: id(one.family))]
        exact = self.spans.of(settings[0].family, seen.rows, seen.key) if self.is_dual else []

        def judge(alike: list[Setting]) -> Float[np.ndarray, "a q"]:
            if self.is_dual:
                kernel = RidgesOfKernel(self, alike[0].family, seen, exact)

                def score(k: int) -> Float[np.ndarray, " q"]:
                    return self._kernel_score(kernel.system_of(alike[k]), outputs, seen.shares)

                if brief:
                    return search.outwards(score, len(alike))
                return np.stack([score(k) for k in range(len(alike))])
            unsolved = np.full(outputs.shape[1], np.nan)
            left = self._scan(alike, seen).residuals(outputs)
            return np.stack(
                [unsolved if r is None else search.log_error(r, seen.shares) for r in left]
            )

        return np.concatenate(side_by_side(judge, groups, len(seen.rows)))

    def _kernel_score(
        self, system: DualSystem | None, outputs: Outputs, shares: Float[np.ndarray, " m"]
    ) -> Float[np.ndarray, " q"]:
        """Return the criterion of the best fit that a kernel system makes of each output."""
        if system is None:
            return np.full(outputs.shape[1], np.nan)
        if self.criterion == "marginal_likelihood":
            by_fit = [-fit.log_evidence / len(outputs) for fit in system.fit(outputs)]
        else:
            by_fit = [search.log_error(left, shares) for left in system.residuals(outputs)]
        return np.asarray(np.fmin.reduce(by_fit))

    def _scan(self, settings: Sequence[Setting], seen: Seen) -> RidgeScan:
        """Return the systems of settings that share their features, kept or made now."""
        name = (*settings, *seen.key)
        scan = self.kept.get(name)
        if scan is None:
            features = self.ingredients(settings[0].family, seen.rows)
            scan = scan_ridges(features, [setting.ridge for setting in settings])
            self.kept.put(name, scan, lasting=False)
        return scan


@dataclass
class RidgesOfKernel:
    """The systems of one kernel on some draws: kept, or made now from one matrix.

    Attributes
    ----------
    judge : Judge
    family : LinearFamily
        The kernel, with its length.
    seen : Seen
        The draws.
    exact : sequence of arrays
        The features that are not penalised.
    """

    judge: Judge
    family: LinearFamily
    seen: Seen
    exact: Sequence[np.ndarray | None]

    def system_of(self, setting: Setting) -> DualSystem | None:
        """Return the system of one ridge, ``None`` if it is singular."""
        folds, key = self.seen.folds, self.seen.key
        kept = self.judge.kept.get((setting, *key))
        if kept is not None:
            return kept
        matrix, making = self._matrix
        began = time.perf_counter()
        fresh = matrix.copy(order="F") if isinstance(matrix, np.ndarray) else matrix
        system = factorise_dual(fresh, folds, ridge=setting.ridge, exact_features=self.exact)
        if system is not None:
            self.judge.kept.put((setting, *key), system, lasting=False)
        self.judge.cost.learn(len(self.seen.rows), making, time.perf_counter() - began)
        return system

    @cached_property
    def _matrix(self) -> tuple[np.ndarray, float]:
        """The kernel matrix, and the seconds that it took."""
        began = time.perf_counter()
        return self.judge.ingredients(self.family, self.seen.rows), time.perf_counter() - began
