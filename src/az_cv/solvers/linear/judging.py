"""Settings judged on few draws: the systems of a search, and what they leave of outputs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from az_cv.solvers.linear import search
from az_cv.solvers.linear.dual_system import DualSystem, factorise_dual
from az_cv.solvers.linear.ridge_scan import RidgeScan, scan_ridges
from az_cv.solvers.linear.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jaxtyping import Float, Int

    from az_cv.families.base import LinearFamily
    from az_cv.solvers.kept import Kept
    from az_cv.solvers.linear.parts import Spans
    from az_cv.solvers.linear.search import Setting
    from az_cv.solvers.time_limit import Cost

    Outputs = Float[np.ndarray, "m q"]
    Rows = Int[np.ndarray, " m"]


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
        draws: Rows,
        shares: Float[np.ndarray, " m"],
        key: tuple[str, int],
    ) -> Float[np.ndarray, "k q"]:
        """Return the criterion of each setting for each output, NaN where it is singular.

        Parameters
        ----------
        settings : sequence of Setting
            Those of one family in a row.
        outputs : array of shape (m, q)
            At these draws.
        draws : array of shape (m,)
            Which they are.
        shares : array of shape (m,)
            The share of all draws that each stands for.
        key : (str, int)
            Under which name systems on these draws are kept.
        """
        groups = [list(group) for _, group in groupby(settings, key=lambda one: id(one.family))]
        exact = self.spans.of(settings[0].family, draws, key) if self.is_dual else []

        def judge(alike: list[Setting]) -> Float[np.ndarray, "a q"]:
            if self.is_dual:
                systems = self._kernel_systems(alike, draws, exact, key)
                return np.stack([self._kernel_score(system, outputs, shares) for system in systems])
            unsolved = np.full(outputs.shape[1], np.nan)
            left = self._scan(alike, draws, key).residuals(outputs)
            return np.stack([unsolved if r is None else search.log_error(r, shares) for r in left])

        return np.concatenate(side_by_side(judge, groups))

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

    def _scan(self, settings: Sequence[Setting], draws: Rows, key: tuple[str, int]) -> RidgeScan:
        """Return the systems of settings that share their features, kept or made now."""
        name = (*settings, *key)
        scan = self.kept.get(name)
        if scan is None:
            features = self.ingredients(settings[0].family, draws)
            scan = scan_ridges(features, [setting.ridge for setting in settings])
            self.kept.put(name, scan, lasting=False)
        return scan

    def _kernel_systems(
        self,
        settings: Sequence[Setting],
        draws: Rows,
        exact: Sequence[np.ndarray | None],
        key: tuple[str, int],
    ) -> Iterator[DualSystem | None]:
        """Return the systems of settings that share their kernel matrix, kept or made now."""
        singles = [np.array([i]) for i in range(len(draws))]
        made, making = None, 0.0
        for setting in settings:
            system = self.kept.get((setting, *key))
            if system is None:
                began = time.perf_counter()
                if made is None:
                    made = self.ingredients(setting.family, draws)
                    making = time.perf_counter() - began
                    began = time.perf_counter()
                fresh = made.copy(order="F") if isinstance(made, np.ndarray) else made
                system = factorise_dual(fresh, singles, ridge=setting.ridge, exact_features=exact)
                if system is not None:
                    self.kept.put((setting, *key), system, lasting=False)
                self.cost.learn(len(draws), making, time.perf_counter() - began)
            yield system
