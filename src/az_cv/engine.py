"""The array engine: draws, scores and integrands in, estimates out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from az_cv.choices import describe, resolve_family, resolve_solver
from az_cv.estimate import (
    Estimate,
    Member,
    all_exact,
    combine,
    member_from_fit,
    with_gap_error,
)
from az_cv.families import LinearFamily
from az_cv.folds import Folds, make_folds
from az_cv.gaps import gap_error
from az_cv.solvers import SGD, Exact
from az_cv.standardise import fit_whitening

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.choices import Family, FamilyName, SolverName
    from az_cv.folds import FoldChoice
    from az_cv.solvers.family_systems import FamilySystems
    from az_cv.solvers.training import TrainingRecord

# Seconds that "auto" gives to the training of each network.
AUTO_SECONDS = 60.0


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
    family : family or name
        ``"auto"`` stacks polynomials with a kernel, and with networks in many dimensions or beyond
        the reach of kernels.
    solver : Exact, SGD or name
        ``"auto"`` trains networks and solves for the others.
    folds : see :func:`az_cv.folds.make_folds`
    random_seed : int, optional
        Of training.
    progressbar : bool
        Show the progress of training.
    guide : array of shape (chain, draw, g), optional
        Functions that are typical of what will be asked, for which hyper-parameters are chosen.
        The coordinates and their squares by default.
    """

    def __init__(
        self,
        x: Float[np.ndarray, "chain draw d"],
        s: Float[np.ndarray, "chain draw d"],
        *,
        family: Family | FamilyName = "auto",
        solver: Exact | SGD | SolverName = "auto",
        folds: FoldChoice = "auto",
        random_seed: int | None = None,
        progressbar: bool = False,
        guide: Float[np.ndarray, "chain draw g"] | None = None,
    ) -> None:
        chains, draws, d = x.shape
        self.shape = (chains, draws)
        self.solver = resolve_solver(solver)
        self.history: list[TrainingRecord] = []
        self._choices = (family, solver)
        self._training = (random_seed, progressbar)
        whitening = fit_whitening(x.reshape(-1, d))
        self._x = whitening.draws(x.reshape(-1, d))
        self._s = whitening.scores(s.reshape(-1, d))
        self.folds = make_folds(folds, self._x.reshape(chains, draws, -1))
        self.members = resolve_family(
            family, self._x, self._s, trained=isinstance(self.solver, SGD)
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
                self._trained.append((member, _sgd_for(member, self.solver, family, solver)))

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
        random_seed, progressbar = self._training
        members: list[Member] = []
        for number, (member, sgd) in enumerate(self._trained):
            # Networks that start alike end alike where only few outputs tell them apart.
            seed = None if random_seed is None else random_seed + number
            trained, records = sgd.fit_members(
                member,
                self._x,
                self._s,
                standard,
                self.folds,
                shape=self.shape,
                label=describe(member),
                random_seed=seed,
                progressbar=progressbar,
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


_latest: dict[tuple[object, ...], Engine] = {}


def engine_for(
    x: Float[np.ndarray, "chain draw d"],
    s: Float[np.ndarray, "chain draw d"],
    *,
    family: Family | FamilyName,
    solver: Exact | SGD | SolverName,
    folds: FoldChoice,
    random_seed: int | None,
    progressbar: bool,
    guide: Float[np.ndarray, "chain draw g"] | None,
) -> Engine:
    """Return the latest engine if draws, scores and choices are the same, else a new one.

    The factorisations of one engine stay in memory, up to `MEMORY` bytes of
    :mod:`az_cv.solvers.family_systems`, so that a further question about the same posterior is
    answered at once. Answers do not depend on what was asked before.
    """
    arrays = [x, s] if guide is None else [x, s, guide]
    digest = b"".join(hashlib.blake2b(np.ascontiguousarray(a)).digest() for a in arrays)
    # An engine holds its family and solver, so that their identity is not reused while it lives.
    choices = [choice if isinstance(choice, str) else id(choice) for choice in (family, solver)]
    key = (digest, x.shape, *choices, folds, random_seed, progressbar)
    if key not in _latest:
        _latest.clear()
        _latest[key] = Engine(
            x,
            s,
            family=family,
            solver=solver,
            folds=folds,
            random_seed=random_seed,
            progressbar=progressbar,
            guide=guide,
        )
    return _latest[key]


def clear_cache() -> None:
    """Free the factorisations kept from the latest call.

    Examples
    --------
    >>> clear_cache()
    """
    _latest.clear()


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
    family, solver, folds, random_seed, progressbar : see :class:`Engine`

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 50, 2))
    >>> result = run_engine(x, -x, x**2, family="polynomial")
    >>> np.allclose(result.estimate.mean, 1, atol=1e-10)
    True
    """
    engine = Engine(
        x,
        s,
        family=family,
        solver=solver,
        folds=folds,
        random_seed=random_seed,
        progressbar=progressbar,
    )
    estimate = engine.estimate(outputs)
    return EngineResult(estimate, engine.folds, engine.members, engine.solver, engine.history)


def _sgd_for(
    member: Family, chosen: Exact | SGD, family: Family | str, solver: Exact | SGD | str
) -> SGD:
    """Return what trains a member that is not solved for."""
    if isinstance(chosen, SGD):
        return chosen
    if solver != "auto" and family != "auto":
        raise TypeError(
            f"Exact needs a family with `features`; {type(member).__name__} has none. "
            "Use solver=SGD(...)."
        )
    return SGD(time_budget=AUTO_SECONDS) if family == "auto" else SGD()
