"""The linear systems of one family on the same draws: settings chosen, factorised and kept."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from az_cv.families.accelerator import accelerator_for
from az_cv.families.base import View
from az_cv.families.description import describe
from az_cv.solvers.linear import search
from az_cv.solvers.linear.extremes import Extremes
from az_cv.solvers.linear.inverse import kernel_matrix
from az_cv.solvers.linear.judging import Judge, Seen
from az_cv.solvers.linear.linear_fit import LinearFit, find_outskirts
from az_cv.solvers.linear.parts import (
    Spans,
    Spare,
    affordable_parts,
    average,
    each_judged,
    factorise,
    is_dual,
    of_views,
    part_key,
    within,
)
from az_cv.solvers.linear.search import Setting
from az_cv.solvers.time_limit import Cost
from az_cv.threads import lapack_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int

    from az_cv.families.base import LinearFamily
    from az_cv.solvers.base import Task
    from az_cv.solvers.linear.dual_system import DualSystem
    from az_cv.solvers.linear.exact import Exact
    from az_cv.solvers.linear.primal_system import PrimalSystem

    Matrix = Float[np.ndarray, "n d"]
    Outputs = Float[np.ndarray, "n q"]
    Folds = Sequence[Int[np.ndarray, " b"]]
    Key = tuple[str, int]

DUAL_RIDGES = (1e-13, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-3)
PRIMAL_RIDGES = (1e-13, 1e-6, 1e-4, 1e-2, 1.0)
WITNESSES = 5  # settings all over the grid, every second length from the longest on


class FamilySystems:
    """Fits of one family to any outputs on the same draws.

    Settings (the family's own parameters and the ridge) are chosen once, for the functions in
    `guide`, and joined by further ones where an output is served much better by them: answers do
    not depend on what was asked before. Factorisations do not depend on the outputs. They are made
    when first needed and kept, as far as there is room.

    Parameters
    ----------
    solver : Exact
    family : LinearFamily
    task : Task
    """

    def __init__(self, solver: Exact, family: LinearFamily, task: Task) -> None:
        self.solver, self.family, self.task = solver, family, task
        x, folds = task.x, task.folds.blocks
        self._guide = np.hstack([x, x**2 - 1]) if task.guide is None else task.guide
        # Draws in no fold are there to train on alone, so the choice may see only them.
        trained = np.setdiff1d(np.arange(len(x)), np.concatenate(folds))
        self._choice_rows = trained if len(trained) else np.arange(len(x))
        self._views = task.views or [View(family, x, task.s, np.arange(len(x)))]
        choice = [(view.x[self._choice_rows], view.s[self._choice_rows]) for view in self._views]
        made = [view.family.variants(*draws) for view, draws in zip(self._views, choice)]
        self._variants = variants = made[0]
        # The same setting in every view.
        self._alike = {id(variants[k]): [one[k] for one in made] for k in range(len(variants))}
        self._dual = is_dual(variants[0], self._views[0].x)
        ridges = DUAL_RIDGES if self._dual else PRIMAL_RIDGES
        self._ridges = ridges if solver.ridge == "auto" else (solver.ridge,)
        self._card = accelerator_for(variants[0], len(x))
        # Twice as many draws as features keep a search in the primal where the fit itself is.
        count = 0 if self._dual else variants[0].num_features(self._views[0].x.shape[1]) or 0
        self._rounds = search.Rounds(
            len(self._choice_rows), solver.search_draws, len(variants), needed=2 * count
        )
        # The only round leaves out ridges that help nothing.
        self._is_brief = self._dual and self._rounds.is_conclusive
        self._grid = [Setting(variant, ridge) for variant in variants for ridge in self._ridges]
        self._spans = Spans(task.x, task.s)
        self._cost, self._spare = Cost(), Spare(self._dual and len(self._views) == 1)
        self._judge = Judge(
            solver.criterion,
            self._spans,
            task.kept,
            self._cost,
            lambda family, rows: self._ingredients(family, self._views[0], rows),
            is_dual=self._dual,
        )

    def fit(self, outputs: Outputs, *, steps: bool = False) -> list[tuple[Setting, LinearFit]]:
        """Fit every output with each of several settings.

        Parameters
        ----------
        outputs : array of shape (n, q)
        steps : bool
            The outputs are indicators. They are all alike, and share settings.

        Returns each setting with its fit to all outputs, so that they can be stacked.
        """
        with lapack_first():
            settings = list(self._step_settings if steps else self.settings)
            if steps:  # they are asked for twice
                self.task.kept.favour(settings)
            elif (new := search.are_new(outputs, self._guide)).any():
                asked = outputs if new.all() else np.compress(new, outputs, axis=1)
                settings += self._additions(search.at_rows(asked, self._choice_rows))
            fits: list[tuple[Setting, LinearFit]] = []
            for k, setting in enumerate(settings):
                if num_parts := self._num_parts(setting, len(settings) - k):
                    fits += [(setting, fit) for fit in self._solve(setting, outputs, num_parts)]
            return fits

    @property
    def has_witnesses(self) -> bool:
        """Whether there are several kernels of one kind, each with one system of all draws."""
        is_one = len(self._views) == 1 and self._least_parts == 1
        return self._dual and is_one and len(self._variants) > 1

    def worse_fits(self, outputs: Outputs) -> list[LinearFit]:
        """Fit every output with several lengths of a kernel, each with the ridge that suits it."""
        scores = self._scores_of_guide.mean(axis=1).reshape(len(self._variants), -1)
        chosen = [(k, int(scores[k].argmin())) for k in range(len(scores))[::-2]][:WITNESSES]
        settings = [self._grid[k * len(self._ridges) + ridge] for k, ridge in chosen]
        return [fit for one in settings for fit in self._solve(one, outputs, 1)]

    def fits_to_parts(
        self, outputs: Outputs, parts: Sequence[Int[np.ndarray, " m"]]
    ) -> list[LinearFit]:
        """Fit every output with the first setting, to each part of the draws."""
        n, setting = len(outputs), self.settings[0]
        keys = [part_key(1, 0) if len(p) == n else ("witness", k) for k, p in enumerate(parts)]
        return [self._solve_rows(setting, 0, outputs, p, k, 1)[0] for p, k in zip(parts, keys)]

    def _num_parts(self, setting: Setting, left: int) -> int | None:
        """Return into how many parts to split a system so that `left` of them fit into the time."""
        if not self._dual:
            return 1
        return affordable_parts(
            self._least_parts,
            lambda num_parts: left * self._seconds(setting, num_parts),
            describe(self.family),
        )

    def expected_seconds(self) -> float:
        """Return about how long the systems will take that serve the guide and are not kept."""
        if not self._dual:
            return 0.0
        return sum(self._seconds(setting, self._least_parts) for setting in self.settings)

    def _seconds(self, setting: Setting, num_parts: int) -> float:
        keys = [part_key(num_parts, k) for k in range(len(self._views) * num_parts)]
        missing = sum(self.task.kept.get((setting, *key)) is None for key in keys)
        return missing * self._cost.predict(len(self.task.x) / num_parts)

    @property
    def _least_parts(self) -> int:
        room = self._card.max_draws if self._card else 0
        return -(-len(self.task.x) // max(self.solver.max_draws, room))

    @property
    def settings(self) -> list[Setting]:
        """The settings that together serve the guide."""
        return self._chosen[0]

    @cached_property
    def _chosen(self) -> tuple[list[Setting], Float[np.ndarray, " g"]]:
        """The settings, and the logarithm of the error that they promise for each function."""
        if len(self._grid) == 1:
            return self._grid, np.full(self._guide.shape[1], np.nan)
        # Each view has a system of its own for every setting.
        number = search.NUM_SETTINGS if self._dual and len(self._views) == 1 else 1
        settings, scores = self._grid, self._scores_of_guide
        # Full-size factorisations dominate the cost, so that few settings reach them.
        if not self._rounds.is_conclusive:
            picked = search.shortlist(scores, 4 if self._rounds.is_large else 8)
            candidates = search.with_neighbours(picked, len(self._ridges), len(settings))
            settings = [settings[k] for k in candidates]
            scores = self._second_round(settings, self._guide[self._choice_rows])
        picked = search.shortlist(scores, number, least_gain=math.log(search.WORTHWHILE))
        more, gain = self._rounds.specialists(self._dual)
        most, least_gain = len(picked) + more, math.log(gain)
        picked = search.shortlist(scores, most, known=picked, least_gain=least_gain)
        return [settings[k] for k in picked], scores[picked].min(axis=0)

    @cached_property
    def _scores_of_guide(self) -> Float[np.ndarray, "k g"]:
        """The criterion of each setting of the grid for the guide."""
        return self._first_round(self._guide[self._choice_rows])

    def errors_of_guide(self, *, chosen: bool) -> Float[np.ndarray, " g"] | None:
        """Return the logarithm of the error that a kernel promises for each function."""
        if not self._dual:
            return None
        return self._chosen[1] if chosen else self._scores_of_guide.min(axis=0)

    @cached_property
    def _scores_of_steps(self) -> Float[np.ndarray, "k m"]:
        """The criterion of each setting of the grid for typical indicators."""
        return self._first_round(search.typical_steps(self._guide[self._choice_rows]))

    @cached_property
    def _step_settings(self) -> list[Setting]:
        """The settings for indicator functions.

        With many draws, and where the grid does not resolve jumps, one is nearly as good as many.
        """
        if self._rounds.is_fine or not self._rounds.is_large:
            steps = search.typical_steps(self._guide[self._choice_rows])
            return self.settings + self._additions(steps, search.WORTHWHILE)
        errors = self._scores_of_steps.mean(axis=1)
        return [min(self.settings, key=lambda setting: errors[self._grid.index(setting)])]

    def error_of_steps(self) -> float | None:
        """Return the logarithm of the error of typical indicators that a kernel promises."""
        if not self._dual or len(self._grid) == 1:
            return None
        known = [self._grid.index(setting) for setting in self._step_settings]
        return float(self._scores_of_steps[known].min(axis=0).mean())

    def _additions(self, outputs: Outputs, most_gain: float = math.inf) -> list[Setting]:
        """Return settings that each cut the error of some output by enough, or by `most_gain`."""
        known, (number, gain) = self.settings, self._rounds.specialists(self._dual)
        if len(self._grid) == len(known):
            return []
        most, least_gain = len(known) + number, math.log(min(gain, most_gain))
        settings, scores = self._grid, self._first_round(outputs)
        rows = [settings.index(setting) for setting in known]
        picked = search.shortlist(scores, most, known=rows, least_gain=least_gain)
        if len(picked) > len(known) and not self._rounds.is_conclusive:
            settings = [settings[k] for k in picked]
            scores, rows = self._second_round(settings, outputs), list(range(len(known)))
            picked = search.shortlist(scores, most, known=rows, least_gain=least_gain)
        return [settings[k] for k in picked[len(known) :]]

    def _first_round(self, outputs: Outputs) -> Float[np.ndarray, "k q"]:
        """Return the criterion for each setting of the grid and each output, on few draws."""
        label = "search" if self._rounds.is_conclusive else "first round"
        scores = self._score(self._grid, outputs, self._rounds.first, label)
        if not np.isfinite(scores).any(axis=0).all():
            raise ValueError(
                f"No ridge in {list(self._ridges)} makes the system of {self.family} solvable on "
                f"{self._rounds.first} draws."
            )
        by_scale = scores.reshape(len(self._variants), len(self._ridges), -1)
        fine, brief = self._rounds.is_fine, self._is_brief
        return search.stabilise(by_scale, whole=fine, brief=brief).reshape(scores.shape)

    def _second_round(self, settings: list[Setting], outputs: Outputs) -> Float[np.ndarray, "k q"]:
        """Return the criterion for each setting and output, on more draws."""
        scores = self._score(settings, outputs, self._rounds.second, "search")
        return np.where(np.isnan(scores), np.inf, scores)

    def _score(
        self, settings: Sequence[Setting], outputs: Outputs, count: int, label: str
    ) -> Float[np.ndarray, "k q"]:
        """Return the criterion on `count` draws per setting and output, NaN where singular."""
        rows, shares = search.representatives(self.task.x[self._choice_rows], count)
        draws = self._choice_rows[rows]
        folds, key = [np.array([i]) for i in range(len(draws))], (label, count)
        if self._dual and len(self._views) == 1 and len(draws) == len(self.task.x):
            # These systems are those of the fits, too.
            folds, key = list(self.task.folds.blocks), part_key(1, 0)
        brief = settings is self._grid and self._is_brief
        seen = Seen(draws, shares, folds, key)
        return self._judge.scores(settings, outputs[rows], seen, brief=brief)

    def _solve(self, setting: Setting, outputs: Outputs, num_parts: int) -> list[LinearFit]:
        """Solve at full size, in interleaved parts when a kernel matrix would be too large."""
        views, draws = len(self._views), len(outputs) // num_parts
        by_view = of_views(lambda k: self._solve_view(setting, k, outputs, num_parts), views, draws)
        judged = [view.judged for view in self._views]
        return [each_judged(list(fits), judged) for fits in zip(*by_view)]

    def _solve_view(
        self, setting: Setting, number: int, outputs: Outputs, num_parts: int
    ) -> list[LinearFit]:
        """Solve in one view of the draws; as long as a system is singular its ridge grows."""
        n = len(outputs)
        parts = [np.arange(part, n, num_parts) for part in range(num_parts)]
        keys = [part_key(num_parts, number * num_parts + part) for part in range(num_parts)]
        by_part = [self._solve_rows(setting, number, outputs, *one) for one in zip(parts, keys)]
        return [average(list(fits), parts, n) for fits in zip(*by_part)]

    def _solve_rows(
        self,
        setting: Setting,
        number: int,
        outputs: Outputs,
        rows: np.ndarray,
        key: Key,
        most: int | None = None,
    ) -> list[LinearFit]:
        """Solve for outputs at some draws, with `most` of the sets of unpenalised features."""
        n, all_folds = len(self.task.x), self.task.folds
        folds = within(rows, all_folds.blocks, n)
        distinct = within(rows, all_folds.distinct, n) if all_folds.distinct else None
        outskirts = find_outskirts(self.task.x[rows], all_folds.visit, self.task.errors)
        extremes = self.task.extremes if len(rows) == n else Extremes()
        outskirts = replace(outskirts, extremes=extremes)
        ridge = setting.ridge
        asked = outputs if len(rows) == n else outputs[rows]  # families share what is known of all
        for _ in range(16):
            system = self._system(setting, number, rows, folds, key, ridge)
            if system is not None:
                return system.fit(asked, outskirts=outskirts, distinct=distinct, most=most)
            ridge = max(10 * ridge, 1e-14)
        where = f"{len(rows)} draws even with ridge {ridge:g}"
        raise ValueError(f"The system of {setting.family} is singular on {where}.")

    def _system(
        self, setting: Setting, number: int, rows: np.ndarray, folds: Folds, key: Key, ridge: float
    ) -> DualSystem | PrimalSystem | None:
        """Return the system of a setting at full size, kept or made now."""
        kept = self.task.kept.get((setting, *key)) if ridge == setting.ridge else None
        if kept is not None:
            return kept
        family, view = self._alike[id(setting.family)][number], self._views[number]
        exact = self._spans.of(family, rows, key)
        again = key == part_key(1, 0) and search.shares_family(setting, self.settings)
        ingredients = self._spare.take(
            (id(family), *key), lambda: self._ingredients(family, view, rows), again=again
        )
        system = factorise(ingredients, folds, ridge, exact, dual=self._dual)
        if system is not None and ridge == setting.ridge:
            self.task.kept.put((setting, *key), system, lasting=True)
        return system

    def _ingredients(self, family: LinearFamily, view: View, rows: np.ndarray) -> np.ndarray:
        """Return the kernel matrix or the features."""
        x, s = view.x[rows], view.s[rows]
        return kernel_matrix(family, x, s, self._card) if self._dual else family.features(x, s)
