"""The array engine: draws, scores and integrands in, estimates out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from az_cv.engine.choices import describe, resolve_family, resolve_solver
from az_cv.engine.combination import (
    Estimate,
    all_exact,
    combine,
    member_from_fit,
    with_gap_error,
)
from az_cv.engine.gaps import gap_error
from az_cv.engine.settings import Settings
from az_cv.engine.whitening import fit_whitening
from az_cv.families import LinearFamily
from az_cv.solvers import SGD, Exact
from az_cv.solvers.folds import Folds, make_folds
from az_cv.solvers.member import Member

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.engine.choices import Family, FamilyName, SolverName
    from az_cv.solvers.folds import FoldChoice
    from az_cv.solvers.linear.family_systems import FamilySystems
    from az_cv.solvers.training.plan import TrainingRecord

# Seconds that "auto" gives to the training of each network.
AUTO_SECONDS = 60.0
DEFAULT = Settings()


@dataclass(frozen=True)
class EngineResult:
    """What the engine found.

    Attributes
    ----------
    estimate : Estimate
    folds : Folds
    members : list of families
    solver : Exact or SGD
    history : list of TrainingRecord
        Empty unless something was trained.
    """

    estimate: Estimate
    folds: Folds
    members: list[Family]
    solver: Exact | SGD
    history: list[TrainingRecord]


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
    """

    def __init__(
        self,
        x: Float[np.ndarray, "chain draw d"],
        s: Float[np.ndarray, "chain draw d"],
        settings: Settings = DEFAULT,
        *,
        guide: Float[np.ndarray, "chain draw g"] | None = None,
    ) -> None:
        chains, draws, d = x.shape
        self.shape = (chains, draws)
        self.settings = settings
        self.solver = resolve_solver(settings.solver)
        self.history: list[TrainingRecord] = []
        whitening = fit_whitening(x.reshape(-1, d))
        self._x = whitening.draws(x.reshape(-1, d))
        self._s = whitening.scores(s.reshape(-1, d))
        self.folds = make_folds(settings.folds, self._x.reshape(chains, draws, -1))
        # Without any gradient there is nothing to make a control variate of.
        self.members = (
            resolve_family(settings.family, self._x, self._s, self.solver) if s.any() else []
        )
        typical = None if guide is None else _standardise(guide.reshape(chains * draws, -1))[0]
        self._solved: list[tuple[LinearFamily, FamilySystems]] = []
        self._trained: list[tuple[Family, SGD]] = []
        for member in self.members:
            if isinstance(self.solver, Exact) and isinstance(member, LinearFamily):
                systems = self.solver.systems(
                    member,
                    self._x,
                    self._s,
                    self.folds.blocks,
                    guide=typical,
                    visit=self.folds.visit,
                    distinct=self.folds.distinct,
                )
                self._solved.append((member, systems))
            else:
                self._trained.append((member, _sgd_for(member, self.solver, settings)))

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
        fitted: list[Member] = []
        for member, systems in self._solved:
            for _, fit in systems.fit(standard, steps=steps):
                fitted.append(member_from_fit(describe(member), fit, self.folds, self.shape))
            if all_exact(fitted):
                break
        if not steps and not (fitted and all_exact(fitted)):
            fitted += self._train(standard)
        d = self._x.shape[1]
        if d == 1:
            hidden = gap_error(self._x[:, 0], self._s[:, 0], standard)
            fitted = [with_gap_error(member, hidden) for member in fitted]
        evaluated = standard.reshape(*self.shape, -1)[:, self.folds.first_draw :]
        return combine(evaluated, fitted, d).rescaled(centre, scale)

    def _train(self, standard: Float[np.ndarray, "n q"]) -> list[Member]:
        """Return the members that are trained, and keep the record of their training."""
        members: list[Member] = []
        first_seed = self.settings.random_seed
        for number, (member, sgd) in enumerate(self._trained):
            # Networks that start alike end alike where only few outputs tell them apart.
            seed = None if first_seed is None else first_seed + number
            trained, records = sgd.fit_members(
                member,
                self._x,
                self._s,
                standard,
                self.folds,
                shape=self.shape,
                label=describe(member),
                random_seed=seed,
                progressbar=self.settings.progressbar,
            )
            members += trained
            self.history += records
        return members


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
    solver: Exact | SGD | SolverName = "auto",
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
    return EngineResult(estimate, engine.folds, engine.members, engine.solver, engine.history)


def _sgd_for(member: Family, chosen: Exact | SGD, settings: Settings) -> SGD:
    """Return what trains a member that is not solved for."""
    is_auto = isinstance(settings.family, str) and settings.family == "auto"
    if isinstance(chosen, SGD):
        return chosen
    if settings.solver != "auto" and not is_auto:
        raise TypeError(
            f"Exact needs a family with `features`; {type(member).__name__} has none. "
            "Use solver=SGD(...)."
        )
    return SGD(time_budget=AUTO_SECONDS) if is_auto else SGD()
