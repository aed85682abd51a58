"""The array engine: draws, scores and integrands in, estimates out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.engine.choices import (
    HIERARCHY_DIMENSION,
    MAX_DRAWS,
    in_pieces,
    network_reach,
    resolve_family,
    resolve_solver,
    solver_for,
)
from az_cv.engine.combination import (
    Estimate,
    Levels,
    all_exact,
    are_precise,
    combine,
    with_gap_error,
)
from az_cv.engine.errors import plain_standard_error
from az_cv.engine.gaps import gap_error
from az_cv.engine.modes import find_modes
from az_cv.engine.promises import MANY_STEPS, serving_many_steps, serving_steps, worth_fitting
from az_cv.engine.settings import Settings
from az_cv.engine.whitening import Whitening, fit_whitening
from az_cv.engine.witnesses import NONE, Witnesses, factor_of_parts, parts_of
from az_cv.families import LiftedFamily, PlacedFamily, TrainedFamily
from az_cv.families.description import describe
from az_cv.families.hierarchy import global_coordinates
from az_cv.notices import notify
from az_cv.solvers import Member, Solver, Task
from az_cv.solvers.base import Witnessing
from az_cv.solvers.folds import Folds, make_folds
from az_cv.solvers.time_limit import leave_out, remaining, time_limit
from az_cv.threads import considerate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from az_cv.engine.choices import Family, FamilyName, SolverName
    from az_cv.solvers.folds import FoldChoice

DEFAULT = Settings()


@dataclass(frozen=True)
class EngineResult:
    """What the engine found.

    Attributes
    ----------
    estimate : Estimate
    folds : Folds
    members : list of families
    solver : solver
    history : sequence of named tuples
        Empty unless something was trained.
    """

    estimate: Estimate
    folds: Folds
    members: list[Family]
    solver: Solver
    history: Sequence[Any]


class Engine:
    """Draws, scores and choices, ready to estimate the expectation of any outputs.

    What does not depend on the outputs (whitening, folds, factorisations) is done once and kept.

    Parameters
    ----------
    x, s : arrays of shape (chain, draw, d)
        Unconstrained draws and scores.
    settings : Settings, optional
    guide : array of shape (chain, draw, g), optional
        Functions that are typical of what will be asked, for which hyper-parameters are chosen.
        The coordinates and their squares by default.
    asked : array of shape (chain, draw, k), optional
        Functions whose directions a family may follow. The guide by default.
    """

    weighs_equally = True  # all draws count the same

    @considerate
    def __init__(
        self,
        x: Float[np.ndarray, "chain draw d"],
        s: Float[np.ndarray, "chain draw d"],
        settings: Settings = DEFAULT,
        *,
        guide: Float[np.ndarray, "chain draw g"] | None = None,
        asked: Float[np.ndarray, "chain draw k"] | None = None,
    ) -> None:
        chains, draws, d = x.shape
        self.shape = (chains, draws)
        self.settings = settings
        self.solver = resolve_solver(settings.solver)
        whitening = self._whiten(x.reshape(-1, d))
        self._x = whitening.draws(x.reshape(-1, d))
        self._s = whitening.scores(s.reshape(-1, d))
        chain_by_chain = self._x.reshape(chains, draws, -1)
        self.folds = make_folds(settings.folds, chain_by_chain, settings.errors)
        self.modes = find_modes(self._x, self._s, self.folds.visit, settings.errors)
        max_draws = getattr(self.solver, "max_draws", MAX_DRAWS)
        pieces = self.weighs_equally and in_pieces(settings, *self._x.shape)
        self._network_reach = network_reach(pieces=pieces)
        self._is_auto = isinstance(settings.family, str) and settings.family == "auto"
        self.top: tuple[int, ...] = ()
        if self._is_auto and self._x.shape[1] == d >= HIERARCHY_DIMENSION and s.any():
            self.top = global_coordinates(x.reshape(-1, d), s.reshape(-1, d))
        self.members: list[Family] = []
        if s.any():  # else there is nothing to make a control variate of
            about = settings.family, self._x, self._s, max_draws
            found = resolve_family(*about, top=self.top, pieces=pieces)
            self.members = [
                m.placed(whitening.scale, self._s) if isinstance(m, PlacedFamily) else m
                for m in found
            ]
        functions = np.concatenate([x, x**2], axis=2) if guide is None else guide
        self._typical = self._guide(functions.reshape(chains * draws, -1))
        task = Task(
            self._x,
            self._s,
            self.shape,
            self.folds,
            guide=None if guide is None else self._guide(guide.reshape(chains * draws, -1)),
            errors=settings.errors,
            random_seed=settings.random_seed,
            progressbar=settings.progressbar,
        )
        self._extremes = task.extremes
        solvers = [
            solver_for(m, settings, is_auto=self._is_auto, pieces=pieces) for m in self.members
        ]
        if asked is None:
            asked = np.empty((chains, draws, 0)) if guide is None else guide
        functions = _standardise(asked.reshape(chains * draws, -1))[0]
        self._fitters = []
        self._trained = [isinstance(member, TrainedFamily) for member in self.members]
        for k, (member, solver) in enumerate(zip(self.members, solvers)):
            own = _with_seed(task, solvers[:k].count(solver))
            if isinstance(member, LiftedFamily):
                views = member.lift(x.reshape(-1, d), s.reshape(-1, d), functions)
                own = replace(own, views=views)
            self._fitters.append(solver.prepare(member, own))

    def _whiten(self, x: Float[np.ndarray, "n d"]) -> Whitening:
        return fit_whitening(x)

    def _guide(self, functions: Float[np.ndarray, "n g"]) -> Float[np.ndarray, "n g"]:
        """Return what hyper-parameters are chosen for: what will be fitted, standardised."""
        if self.modes is not None:
            functions = functions - self.modes.levels(functions)[0]
        return _standardise(functions)[0]

    def _evaluated(self, rows: Float[np.ndarray, "n q"]) -> Float[np.ndarray, "chain draw q"]:
        """Return the draws that fits are judged on, by chain."""
        return rows.reshape(*self.shape, -1)[:, self.folds.first_draw :]

    def _members(
        self, standard: Float[np.ndarray, "n q"], fitted_to: Float[np.ndarray, "n q"], steps: bool
    ) -> tuple[list[Member], list[Any], Member | None]:
        """Fit every family to outputs without levels; last what witnesses are compared with."""
        members: list[Member] = []
        history: list[Any] = []
        whole = None
        errors = self.settings.errors
        asked = self._serving(fitted_to.shape[1]) if steps else self._is_worth_it
        for k, (fitter, trained) in enumerate(zip(self._fitters, self._trained)):
            if all_exact(members, errors):
                break
            waits = trained and self._is_auto
            if not asked[k] or (waits and are_precise(members, self._network_reach)):
                continue
            if remaining() <= 0:
                leave_out(describe(self.members[k]))
                continue
            with time_limit(remaining() / (len(self._fitters) - k)):
                fitted = fitter.fit(fitted_to, steps=steps)
            members += fitted.members
            history += fitted.history
            whole = fitted.whole if fitter is self._witness else whole
        if self._x.shape[1] == 1:
            hidden = gap_error(self._x[:, 0], self._s[:, 0], standard, errors)
            members = [with_gap_error(member, hidden, errors) for member in members]
        return members, history, whole

    @cached_property
    def _witness(self) -> Witnessing | None:
        """The kernel that errors are judged by."""
        fitted = (f for f, worth_it in zip(self._fitters, self._is_worth_it) if worth_it)
        return next((f for f in fitted if isinstance(f, Witnessing) and f.has_witnesses), None)

    def _witnesses(
        self, fitted_to: Float[np.ndarray, "n q"], members: Sequence[Member], whole: Member | None
    ) -> Witnesses:
        """Return what there is to judge the errors of these outputs by."""
        errors, witness = self.settings.errors, self._witness
        if witness is None or all_exact(members, errors) or remaining() <= 0:
            return NONE
        few = len(self._x) <= errors.judged_draws
        worse = witness.worse_fits(fitted_to) if few else ()
        factor = np.fmax(self._factor_of_parts(fitted_to, whole), self._typical_factor)
        return Witnesses(worse, np.fmax(factor, 1.0))

    def _factor_of_parts(
        self, outputs: Float[np.ndarray, "n q"], whole: Member | None = None
    ) -> Float[np.ndarray, " q"]:
        """By what factor errors in single chains are too small, as far as that is known."""
        parts = parts_of(self.shape, self.settings.errors)
        if self._witness is None or not parts or self.folds.first_draw:
            return np.ones(outputs.shape[1])
        if whole is None:
            (whole,) = self._witness.fits_to_parts(outputs, [np.arange(len(outputs))])
        fits = self._witness.fits_to_parts(outputs, parts)
        return factor_of_parts(whole, fits, self.settings.errors)

    @cached_property
    def _typical_factor(self) -> float:
        """The same for the functions that hyper-parameters are chosen for: one for all outputs."""
        factor = self._factor_of_parts(self._typical)
        known = np.isfinite(factor)
        return float(np.median(factor[known])) if known.any() else 1.0

    @considerate
    def estimate(
        self, outputs: Float[np.ndarray, "chain draw q"], *, steps: bool = False
    ) -> Estimate:
        """Estimate the expectation of every output.

        Parameters
        ----------
        outputs : array of shape (chain, draw, q)
        steps : bool
            The outputs are indicators: spend little on them, and train nothing.
        """
        standard, centre, scale = _standardise(outputs.reshape(-1, outputs.shape[2]))
        errors = self.settings.errors
        fitted_to, levels = standard, None
        if self.modes is not None:
            # What differs from mode to mode is left to the plain average.
            values, unknown = self.modes.levels(standard)
            fitted_to, levels = standard - values, Levels(self._evaluated(values), unknown)
        members, history, whole = self._members(standard, fitted_to, steps)
        witnesses = NONE if steps else self._witnesses(fitted_to, members, whole)
        self._extremes.forget()
        evaluated = self._evaluated(standard)
        combined = combine(
            evaluated, members, self._x.shape[1], errors, levels, witnesses=witnesses
        )
        if self.modes is not None and levels is not None:
            share = plain_standard_error(levels.values)
            if (share > errors.mode_matters * combined.mcse).any():
                notify(self.modes.describe())
        combined = combined.rescaled(centre, scale)
        return replace(combined, history=history)

    @cached_property
    def _is_worth_it(self) -> list[bool]:
        """Which members are fitted."""
        if not self._is_auto:
            return [True] * len(self.members)
        return worth_fitting(self.members, self._fitters, self._x.shape)

    def _serving(self, count: int) -> list[bool]:
        """Return which members are fitted to so many indicators."""
        is_timed = remaining() < math.inf
        return self._serves_steps if count < MANY_STEPS or is_timed else self._serves_many_steps

    @cached_property
    def _serves_many_steps(self) -> list[bool]:
        """Which members are fitted to indicators where there are many."""
        serves = self._serves_steps
        if not self._is_auto:
            return serves
        d, errors = self._x.shape[1], self.settings.errors
        return serving_many_steps(self._fitters, serves, self._typical, self._evaluated, d, errors)

    @cached_property
    def _serves_steps(self) -> list[bool]:
        """Which members are fitted to indicators."""
        if not self._is_auto:
            return [True] * len(self.members)
        return serving_steps(self._fitters, self._is_worth_it, self._x.shape[1])


def _with_seed(task: Task, number: int) -> Task:
    """Return the task of one of several members with the same solver.

    Networks that start alike end alike where only few outputs tell them apart.
    """
    seed = task.random_seed
    return task if seed is None else replace(task, random_seed=seed + number)


def _standardise(
    outputs: Float[np.ndarray, "n q"],
) -> tuple[Float[np.ndarray, "n q"], Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
    """Return outputs centred and scaled, so that tolerances mean the same for all, and both."""
    centre, scale = outputs.mean(axis=0), outputs.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    return (outputs - centre) / scale, centre, scale


def run_engine(
    x: Float[np.ndarray, "chain draw d"],
    s: Float[np.ndarray, "chain draw d"],
    outputs: Float[np.ndarray, "chain draw q"],
    *,
    family: Family | FamilyName = "auto",
    solver: Solver | SolverName = "auto",
    folds: FoldChoice = "auto",
    random_seed: int | None = None,
    progressbar: bool = False,
) -> EngineResult:
    """Estimate the expectation of every output.

    Parameters
    ----------
    x, s : arrays of shape (chain, draw, d)
        Unconstrained draws and scores.
    outputs : array of shape (chain, draw, q)
    family, solver, folds, random_seed, progressbar : see :class:`Settings`

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 50, 2))
    >>> result = run_engine(x, -x, x**2, family="polynomial")
    >>> np.allclose(result.estimate.mean, 1, atol=1e-10)
    True
    """
    settings = Settings(family, solver, folds, random_seed, progressbar)
    engine = Engine(x, s, settings)
    estimate = engine.estimate(outputs)
    return EngineResult(estimate, engine.folds, engine.members, engine.solver, estimate.history)
