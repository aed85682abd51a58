"""Exact solves with the ridge and the family's own parameters chosen from the draws."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from az_cv.families.ensemble import Ensemble
from az_cv.solvers.dual_system import DualSystem, assemble_gram, factorise_dual
from az_cv.solvers.linear_fit import LinearFit, num_outermost
from az_cv.solvers.primal_system import PrimalSystem, factorise_primal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int

    from az_cv.families.base import LinearFamily

    Matrix = Float[np.ndarray, "n d"]
    Outputs = Float[np.ndarray, "n q"]
    Folds = Sequence[Int[np.ndarray, " b"]]

CRITERIA = ("leave_one_out", "marginal_likelihood")
DUAL_RIDGES = (1e-13, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4)
PRIMAL_RIDGES = (1e-13, 1e-6, 1e-4, 1e-2, 1.0)
MEMORY = 800e6  # bytes of factorisations kept for further questions about the same draws
FINE_GRID = 12  # more variants than this lie within a factor sqrt(2) of each other


@dataclass(frozen=True, eq=False)
class Setting:
    """One point of the hyper-parameter grid; compared by identity."""

    family: LinearFamily
    ridge: float


@dataclass(frozen=True)
class Exact:
    """Solve the regularised least-squares problem exactly, in the primal or the dual.

    Parameters
    ----------
    ridge : float or "auto"
        Relative to the average variance of the family at the draws. ``"auto"`` is chosen from them.
    criterion : {"leave_one_out", "marginal_likelihood"}
        What the choice minimises. The likelihood is for kernels only.
    search_draws : int
        Hyper-parameters are chosen on half this many draws, evenly spread, and the best of them
        judged once more on one and a half times as many.
    max_draws : int
        Kernel systems larger than this are split into interleaved parts of at most this size, whose
        estimates are averaged: cost grows linearly from there on.

    Examples
    --------
    >>> Exact(ridge=1e-8)
    Exact(ridge=1e-08, criterion='leave_one_out', search_draws=1000, max_draws=8000)
    """

    ridge: float | Literal["auto"] = "auto"
    criterion: Literal["leave_one_out", "marginal_likelihood"] = "leave_one_out"
    search_draws: int = 1000
    max_draws: int = 8000

    def __post_init__(self) -> None:
        if self.ridge != "auto" and not (isinstance(self.ridge, int | float) and self.ridge >= 0):
            raise ValueError(f"ridge must be 'auto' or at least 0; it is {self.ridge!r}.")
        if self.criterion not in CRITERIA:
            raise ValueError(
                f"criterion {self.criterion!r} is unknown. Choose from {list(CRITERIA)}."
            )

    def systems(self, family: LinearFamily, x: Matrix, s: Matrix, folds: Folds) -> FamilySystems:
        """Return the family's linear systems on these draws, to be solved for any outputs.

        Parameters
        ----------
        family : LinearFamily
        x, s : arrays of shape (n, d)
            Standardised draws and scores.
        folds : sequence of index arrays
            Left out in turn.
        """
        return FamilySystems(self, family, x, s, folds)


class FamilySystems:
    """Fits of one family to any outputs on the same draws.

    Factorisations do not depend on the outputs. They are made when first needed and kept, up to
    `MEMORY` bytes, so that later outputs cost no more than triangular products.

    Parameters
    ----------
    solver : Exact
    family : LinearFamily
    x, s : arrays of shape (n, d)
    folds : sequence of index arrays
    """

    def __init__(
        self, solver: Exact, family: LinearFamily, x: Matrix, s: Matrix, folds: Folds
    ) -> None:
        self.solver, self.family, self.folds = solver, family, folds
        self._x, self._s = x, s
        # Draws in no fold are there to train on alone, so the choice may see only them.
        trained = np.setdiff1d(np.arange(len(x)), np.concatenate(folds))
        self._choice_rows = trained if len(trained) else np.arange(len(x))
        variants = family.variants(x[self._choice_rows], s[self._choice_rows])
        self._dual = _is_dual(variants[0], x)
        ridges = DUAL_RIDGES if self._dual else PRIMAL_RIDGES
        self._ridges = ridges if solver.ridge == "auto" else (solver.ridge,)
        self._variants = variants
        self._grid = [Setting(variant, ridge) for variant in variants for ridge in self._ridges]
        self._settings: list[Setting] = []
        self._gram: tuple[LinearFamily, tuple[str, int], np.ndarray] | None = None
        self._kept: dict[tuple[Setting, str, int], DualSystem | PrimalSystem] = {}

    def fit(self, outputs: Outputs, *, quick: bool = False) -> list[tuple[Setting, LinearFit]]:
        """Fit every output with each of the settings that suit the outputs best.

        Parameters
        ----------
        outputs : array of shape (n, q)
        quick : bool
            Take the settings of the call before, whose factorisations are there already.

        Returns
        -------
        list of (Setting, LinearFit)
            Usually one or two; each covers all outputs, so that they can be stacked.
        """
        if not (quick and self._settings):
            self._settings = self._choose(outputs[self._choice_rows])
        return [
            (setting, fit) for setting in self._settings for fit in self._solve(setting, outputs)
        ]

    def _choose(self, outputs: Outputs) -> list[Setting]:
        """Return the settings that together serve every output.

        The whole grid is judged on few draws, the best of it on more; full-size factorisations
        dominate the cost, so that only one or two settings reach them when they are large.
        """
        grid, dual, n = self._grid, self._dual, len(self._choice_rows)
        if len(grid) == 1:
            return grid
        search = self.solver.search_draws
        # A fine grid is there to resolve kinks and jumps, which half the draws do not show.
        fine = len(self._variants) > FINE_GRID
        # Twice as many draws as features keep the search in the same form as the fit itself.
        needed = 2 * (self._variants[0].num_features(self._x.shape[1]) or 0)
        few = max(search if fine else search // 2, needed)
        few = n if n <= 1.2 * few else few
        scores = self._score(grid, outputs, few)
        if not np.isfinite(scores).any(axis=0).all():
            raise ValueError(
                f"No ridge in {list(self._ridges)} makes the system of {self.family} solvable on "
                f"{few} draws."
            )
        num_ridges = len(self._ridges)
        stable = _stabilise(scores.reshape(-1, num_ridges, scores.shape[1])).reshape(scores.shape)
        small = n <= 2 * search
        if few == n:
            number = 8 if dual else 1
            return [grid[k] for k in _shortlist(stable, number, number)]
        picked = _shortlist(stable, *((8, 8) if small else (2, 4)))
        finalists = [grid[k] for k in _with_neighbours(picked, num_ridges, len(grid))]
        scores = self._score(finalists, outputs, min(n, max(3 * search // 2, needed)))
        scores = np.where(np.isnan(scores), np.inf, scores)
        usual, most = (1, 1) if not dual else (4, 6) if small else (2, 4)
        return [finalists[k] for k in _shortlist(scores, usual, most)]

    def _score(
        self, settings: Sequence[Setting], outputs: Outputs, count: int
    ) -> Float[np.ndarray, "k q"]:
        """Return the criterion on `count` draws per setting and output, NaN where singular."""
        rows = np.unique(np.linspace(0, len(outputs) - 1, count).astype(int))
        few, draws = outputs[rows], self._choice_rows[rows]
        singles = [np.array([i]) for i in range(len(rows))]
        scores = np.full((len(settings), outputs.shape[1]), np.nan)
        for k, setting in enumerate(settings):
            system = self._system(setting, draws, singles, ("search", count), None)
            for fit in self._fits(setting, system, few, draws):
                if self.solver.criterion == "marginal_likelihood" and self._dual:
                    score = -fit.log_evidence / len(rows)
                else:
                    score = 0.5 * np.log((fit.residual**2).mean(axis=0) + 1e-300)
                scores[k] = np.fmin(scores[k], score)
        self._gram = None
        return scores

    def _solve(self, setting: Setting, outputs: Outputs) -> list[LinearFit]:
        """Solve at full size, in interleaved parts when a kernel matrix would be too large.

        As long as a system is singular its ridge grows tenfold.
        """
        n = len(self._x)
        num_parts = -(-n // self.solver.max_draws) if self._dual else 1
        parts = [np.arange(part, n, num_parts) for part in range(num_parts)]
        by_part = []
        for part, rows in enumerate(parts):
            position = np.full(n, -1)
            position[rows] = np.arange(len(rows))
            folds = [fold[fold >= 0] for fold in (position[fold] for fold in self.folds)]
            folds = [fold for fold in folds if len(fold)]
            x = self._x[rows]
            outermost = np.argsort(-np.einsum("nd,nd->n", x, x))[: num_outermost(*x.shape)]
            fits: list[LinearFit] = []
            ridge = setting.ridge
            for _ in range(16):
                system = self._system(setting, rows, folds, ("part", part), outermost, ridge)
                fits = self._fits(setting, system, outputs[rows], rows)
                if fits:
                    break
                ridge = max(10 * ridge, 1e-14)
            else:
                raise ValueError(
                    f"The system of {setting.family} is singular on {len(rows)} draws even with "
                    f"ridge {ridge:g}."
                )
            by_part.append(fits)
        return [_average(list(fits), parts, n) for fits in zip(*by_part)]

    def _system(
        self,
        setting: Setting,
        rows: np.ndarray,
        folds: Folds,
        key: tuple[str, int],
        outermost: np.ndarray | None,
        ridge: float | None = None,
    ) -> DualSystem | PrimalSystem | None:
        """Return the factorised system of a setting on some draws, kept or made now."""
        ridge = setting.ridge if ridge is None else ridge
        kept = self._kept.get((setting, *key)) if ridge == setting.ridge else None
        if kept is not None:
            return kept
        x, s, family = self._x[rows], self._s[rows], setting.family
        system: DualSystem | PrimalSystem | None
        if self._dual:
            system = factorise_dual(
                self._assemble(family, x, s, key), folds, ridge=ridge, outermost=outermost
            )
        else:
            system = factorise_primal(
                family.features(x, s), folds, ridge=ridge, outermost=outermost
            )
        held = sum(other.nbytes for other in self._kept.values())
        if system is not None and ridge == setting.ridge and held + system.nbytes <= MEMORY:
            self._kept[(setting, *key)] = system
        return system

    def _assemble(
        self, family: LinearFamily, x: Matrix, s: Matrix, key: tuple[str, int]
    ) -> np.ndarray:
        """Return the Stein kernel matrix; a search needs it for several ridges in a row."""
        if key[0] != "search":
            return assemble_gram(family.gram, x, s)
        if self._gram is None or self._gram[0] is not family or self._gram[1] != key:
            self._gram = (family, key, assemble_gram(family.gram, x, s))
        return self._gram[2].copy(order="F")

    def _fits(
        self,
        setting: Setting,
        system: DualSystem | PrimalSystem | None,
        outputs: Outputs,
        rows: np.ndarray,
    ) -> list[LinearFit]:
        """Return the fits of one system: one, or one for each set of unpenalised features."""
        if system is None:
            return []
        if isinstance(system, PrimalSystem):
            return [system.fit(outputs)]
        spans: list[np.ndarray | None] = [None]
        if isinstance(setting.family, Ensemble):
            spans = setting.family.spans(self._x[rows], self._s[rows])
        fits = [system.fit(outputs, span) for span in spans]
        return [fit for fit in fits if fit is not None]


def _is_dual(family: LinearFamily, x: Matrix) -> bool:
    count = family.num_features(x.shape[1])
    if isinstance(family, Ensemble) and family.semi_exact:
        return True
    return count is None or count >= len(x)


def _with_neighbours(picked: list[int], num_ridges: int, size: int) -> list[int]:
    """Add the neighbours of each pick: the next scales, and the next smaller ridge.

    The grid is ordered by scale, then by ridge. More draws support less ridge than the few on which
    the picks were made, and often another scale.
    """
    extended = set(picked)
    for k in picked:
        extended |= {k - num_ridges, k + num_ridges, *([k - 1] if k % num_ridges else [])}
    return sorted(k for k in extended if 0 <= k < size)


def _stabilise(scores: Float[np.ndarray, "v r q"]) -> Float[np.ndarray, "v r q"]:
    """Count the worst neighbour on the grid against each score.

    A lucky minimum beside a cliff is a bad choice: the error it promises is not the error it has.
    On a fine grid neighbours are nearly the same fit and the worst of them replaces the score, on a
    coarse one it enters by half. Settings that could not be solved do not count.
    """
    padded = np.pad(scores, ((1, 1), (1, 1), (0, 0)), constant_values=np.nan)
    worst = scores
    for around in (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]):
        worst = np.fmax(worst, around)
    share = 1.0 if len(scores) > FINE_GRID else 0.5
    return np.where(np.isnan(scores), np.inf, (1 - share) * scores + share * worst)


def _shortlist(scores: Float[np.ndarray, "k q"], usual: int, most: int) -> list[int]:
    """Pick settings greedily so that the best of them serves every output.

    At most `usual`, and more, up to `most`, as long as one cuts the error of some output by three.
    Regret beyond a factor ten counts as ten: no output is bought at the price of another.
    """
    regret = np.minimum(scores - scores.min(axis=0), math.log(10))
    picked: list[int] = []
    left = np.full(scores.shape[1], math.log(10) + 1)
    while len(picked) < most:
        gains = np.maximum(left - regret, 0)
        extra = len(picked) >= usual
        best = int(np.argmax(gains.max(axis=1) if extra else gains.sum(axis=1)))
        if picked and gains[best].max() <= (math.log(3) if extra else 0):
            break
        picked.append(best)
        left = np.minimum(left, regret[best])
    return picked


def _average(fits: Sequence[LinearFit], members: Sequence[np.ndarray], n: int) -> LinearFit:
    """Average independent estimates from parts of the draws, weighted by their sizes."""
    if len(fits) == 1:
        return fits[0]
    weights = np.array([len(rows) / n for rows in members])
    q = len(fits[0].intercept)
    residual, adjusted = np.empty((n, q)), np.empty((n, q))
    for fit, rows in zip(fits, members):
        residual[rows], adjusted[rows] = fit.residual, fit.adjusted
    return replace(
        fits[0],
        intercept=sum(w * fit.intercept for w, fit in zip(weights, fits)),
        residual=residual,
        adjusted=adjusted,
        tail_sd=np.sqrt(sum((w * fit.tail_sd) ** 2 for w, fit in zip(weights, fits))),
        tail_shift=sum(w * fit.tail_shift for w, fit in zip(weights, fits)),
        quadrature_sd=np.sqrt(sum((w * fit.quadrature_sd) ** 2 for w, fit in zip(weights, fits))),
        log_evidence=np.sum([fit.log_evidence for fit in fits], axis=0),
    )
