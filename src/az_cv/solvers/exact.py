"""Exact solves with the ridge and the family's own parameters chosen from the draws."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from az_cv.families.ensemble import Ensemble
from az_cv.solvers.linear_system import (
    EXTREMES,
    LinearFit,
    assemble_gram,
    solve_dual,
    solve_primal,
)

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

    def fit(
        self, family: LinearFamily, x: Matrix, s: Matrix, outputs: Outputs, folds: Folds
    ) -> list[tuple[Setting, LinearFit]]:
        """Fit every output with each of the settings that suit the outputs best.

        Parameters
        ----------
        family : LinearFamily
        x, s : arrays of shape (n, d)
            Standardised draws and scores.
        outputs : array of shape (n, q)
        folds : sequence of index arrays
            Left out in turn.

        Returns
        -------
        list of (Setting, LinearFit)
            Usually one or two; each covers all outputs, so that they can be stacked.
        """
        # Draws in no fold are there to train on alone, so the choice may see only them.
        trained = np.setdiff1d(np.arange(len(x)), np.concatenate(folds))
        rows = trained if len(trained) else np.arange(len(x))
        settings = self._choose(family, x[rows], s[rows], outputs[rows])
        return [(setting, self._solve(setting, x, s, outputs, folds)) for setting in settings]

    def _choose(
        self, family: LinearFamily, x: Matrix, s: Matrix, outputs: Outputs
    ) -> list[Setting]:
        """Return the settings that together serve every output.

        The whole grid is judged on few draws, the best of it on more; full-size factorisations
        dominate the cost, so that only one or two settings reach them when they are large.
        """
        variants = family.variants(x, s)
        dual = _is_dual(variants[0], x)
        ridges = (DUAL_RIDGES if dual else PRIMAL_RIDGES) if self.ridge == "auto" else (self.ridge,)
        grid = [Setting(variant, ridge) for variant in variants for ridge in ridges]
        if len(grid) == 1:
            return grid
        # A fine grid is there to resolve kinks and jumps, which half the draws do not show.
        fine = len(variants) > FINE_GRID
        # Twice as many draws as features keep the search in the same form as the fit itself.
        needed = 2 * (variants[0].num_features(x.shape[1]) or 0)
        few = max(self.search_draws if fine else self.search_draws // 2, needed)
        few = len(x) if len(x) <= 1.2 * few else few
        scores = self._score(grid, *_spread(few, x, s, outputs))
        if not np.isfinite(scores).any(axis=0).all():
            raise ValueError(
                f"No ridge in {list(ridges)} makes the system of {family} solvable on {few} draws."
            )
        stable = _stabilise(scores.reshape(len(variants), len(ridges), -1)).reshape(scores.shape)
        small = len(x) <= 2 * self.search_draws
        if few == len(x):
            return [grid[k] for k in _shortlist(stable, *((8, 8) if dual else (1, 1)))]
        picked = _shortlist(stable, *((8, 8) if small else (2, 4)))
        finalists = [grid[k] for k in _with_neighbours(picked, len(ridges), len(grid))]
        more = min(len(x), max(3 * self.search_draws // 2, needed))
        scores = self._score(finalists, *_spread(more, x, s, outputs))
        scores = np.where(np.isnan(scores), np.inf, scores)
        usual, most = (1, 1) if not dual else (4, 6) if small else (2, 4)
        return [finalists[k] for k in _shortlist(scores, usual, most)]

    def _score(
        self, settings: Sequence[Setting], x: Matrix, s: Matrix, outputs: Outputs
    ) -> Float[np.ndarray, "k q"]:
        """Return the criterion for each setting and output, NaN where the system is singular."""
        scores = np.full((len(settings), outputs.shape[1]), np.nan)
        dual = _is_dual(settings[0].family, x)
        for family in {id(setting.family): setting.family for setting in settings}.values():
            rows = [k for k, setting in enumerate(settings) if setting.family is family]
            ridges = [settings[k].ridge for k in rows]
            for k, fit in zip(rows, _solve_ridges(family, ridges, x, s, outputs, dual)):
                if fit is not None and self.criterion == "marginal_likelihood" and dual:
                    scores[k] = -fit.log_evidence / len(x)
                elif fit is not None:
                    scores[k] = 0.5 * np.log((fit.residual**2).mean(axis=0) + 1e-300)
        return scores

    def _solve(
        self, setting: Setting, x: Matrix, s: Matrix, outputs: Outputs, folds: Folds
    ) -> LinearFit:
        """Solve at full size, in interleaved parts when a kernel matrix would be too large."""
        n = len(x)
        num_parts = -(-n // self.max_draws)
        if num_parts == 1 or not _is_dual(setting.family, x):
            return _solve_one(setting, x, s, outputs, folds)
        parts = [np.arange(part, n, num_parts) for part in range(num_parts)]
        fits = []
        for rows in parts:
            position = np.full(n, -1)
            position[rows] = np.arange(len(rows))
            local = [block[block >= 0] for block in (position[fold] for fold in folds)]
            local = [block for block in local if len(block)]
            fits.append(_solve_one(setting, x[rows], s[rows], outputs[rows], local))
        return _average(fits, parts, n)


def _spread(count: int, *arrays: np.ndarray) -> list[np.ndarray]:
    """Return `count` evenly spread rows of each array."""
    rows = np.unique(np.linspace(0, len(arrays[0]) - 1, count).astype(int))
    return [array[rows] for array in arrays]


def _is_dual(family: LinearFamily, x: Matrix) -> bool:
    count = family.num_features(x.shape[1])
    if isinstance(family, Ensemble) and family.semi_exact:
        return True
    return count is None or count >= len(x)


def _solve_ridges(
    family: LinearFamily,
    ridges: Sequence[float],
    x: Matrix,
    s: Matrix,
    outputs: Outputs,
    dual: bool,
) -> list[LinearFit | None]:
    """Leave-one-out fits of one family at several ridges, from one assembly."""
    folds = [np.array([i]) for i in range(len(x))]
    if not dual:
        features = family.features(x, s)
        return [solve_primal(features, outputs, folds, ridge=ridge) for ridge in ridges]
    gram = assemble_gram(family.gram, x, s)
    exact = _exact_features(family, x, s)
    return [
        solve_dual(gram.copy(order="F"), outputs, folds, ridge=ridge, exact_features=exact)
        for ridge in ridges
    ]


def _solve_one(setting: Setting, x: Matrix, s: Matrix, outputs: Outputs, folds: Folds) -> LinearFit:
    """Solve at full size, with ten times the ridge as long as the system is singular."""
    family, ridge = setting.family, setting.ridge
    dual = _is_dual(family, x)
    features = None if dual else family.features(x, s)
    exact = _exact_features(family, x, s) if dual else None
    outermost = np.argsort(-np.einsum("nd,nd->n", x, x))[: max(EXTREMES)]
    for _ in range(16):
        if features is None:
            fit = solve_dual(
                assemble_gram(family.gram, x, s),
                outputs,
                folds,
                ridge=ridge,
                exact_features=exact,
                outermost=outermost,
            )
        else:
            fit = solve_primal(features, outputs, folds, ridge=ridge, outermost=outermost)
        if fit is not None:
            return fit
        ridge = max(10 * ridge, 1e-14)
    raise ValueError(
        f"The system of {family} is singular on {len(x)} draws even with ridge {ridge:g}."
    )


def _exact_features(family: LinearFamily, x: Matrix, s: Matrix) -> np.ndarray | None:
    if isinstance(family, Ensemble) and family.semi_exact:
        return family.exact_features(x, s)
    return None


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
