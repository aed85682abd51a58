"""The search over hyper-parameters: from scores on a grid to the few settings worth a full fit.

A score is the logarithm of an error, per setting and output. The grid is ordered by the family's
own parameter, usually a length scale, and then by ridge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Bool, Float, Int

    from az_cv.families.base import LinearFamily

# Regret beyond this factor counts as this factor: no output is bought at the price of another.
WORST_REGRET = 10.0

NUM_SETTINGS = 2  # kernel settings for all outputs
WORTHWHILE = 1.2  # factor by which the second of them must cut the error of some typical function
# Further settings for single outputs: how many, and the factor by which each cuts some error. They
# are cheap with few draws only.
SPECIALISTS = {"fine": (6, 1.05), "small": (2, 1.3), "large": (1, 2.0)}
NUM_STEPS = 12
STEP_LEVELS = (0.05, 0.95)
FINE_GRID = 12  # more variants than this lie within a factor sqrt(2) of each other

BETTER = 0.01  # by which a score falls where the error does by a percent

SAME = 1e-12  # one minus the correlation of functions that differ by rounding
COMPARED = 200  # draws at which functions are compared before all are looked at

OUTERMOST_SHARE = 0.08  # of the draws in a search


@dataclass(frozen=True, eq=False)
class Setting:
    """One point of the hyper-parameter grid; compared by identity."""

    family: LinearFamily
    ridge: float


@dataclass(frozen=True)
class Rounds:
    """How many draws the two rounds of a search see.

    Attributes
    ----------
    draws : int
        Number of draws that there are.
    search_draws : int
        See :class:`az_cv.Exact`.
    variants : int
        Number of variants of the family.
    needed : int
        At least so many draws are seen.
    """

    draws: int
    search_draws: int
    variants: int
    needed: int

    @property
    def is_large(self) -> bool:
        """Whether there are many more draws than a search sees."""
        return self.draws > 2 * self.search_draws

    @property
    def is_fine(self) -> bool:
        """Whether the grid is there for kinks and jumps, which half the draws do not show."""
        return self.variants > FINE_GRID

    @property
    def first(self) -> int:
        """Draws of the first round."""
        few = max(self.search_draws if self.is_fine else 2 * self.search_draws // 5, self.needed)
        return self.draws if self.draws <= 1.2 * few else few

    @property
    def second(self) -> int:
        """Draws of the second round."""
        return min(self.draws, max(5 * self.search_draws // 4, self.needed))

    def specialists(self, is_dual: bool) -> tuple[int, float]:
        """Return how many settings to add for badly served outputs, and what each must gain."""
        if self.is_large or not is_dual:
            return SPECIALISTS["large"]
        return SPECIALISTS["fine" if self.is_fine else "small"]

    @property
    def is_conclusive(self) -> bool:
        """Whether the first round already sees as many draws as the second would."""
        return self.first >= self.second


def representatives(
    x: Float[np.ndarray, "n d"], count: int
) -> tuple[Int[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Return draws that stand for all of them, and the share of all that each stands for.

    A few outermost draws decide how well heavy tails are fitted. All of those are in, and stand for
    themselves; the others are evenly spread.
    """
    n = len(x)
    if count >= n:
        return np.arange(n), np.full(n, 1 / n)
    outermost = np.argsort(-np.einsum("nd,nd->n", x, x))[: int(OUTERMOST_SHARE * count)]
    others = np.setdiff1d(np.arange(n), outermost)
    spread = others[np.linspace(0, len(others) - 1, count - len(outermost)).astype(int)]
    rows = np.concatenate([spread, outermost])
    shares = np.repeat([len(others) / len(spread), 1.0], [len(spread), len(outermost)]) / n
    order = np.argsort(rows)
    return rows[order], shares[order]


def typical_steps(guide: Float[np.ndarray, "n g"]) -> Float[np.ndarray, "n k"]:
    """Return standardised indicators of the tails of some of the functions in the guide."""
    columns = np.linspace(0, guide.shape[1] - 1, NUM_STEPS).astype(int)
    chosen = guide[:, np.unique(columns)]
    below = chosen <= np.quantile(chosen, STEP_LEVELS, axis=0)[:, None]
    steps = np.concatenate(list(below), axis=1).astype(float)
    steps = steps[:, np.ptp(steps, axis=0) > 0]
    return (steps - steps.mean(axis=0)) / steps.std(axis=0)


def outwards(
    score: Callable[[int], Float[np.ndarray, " q"]], count: int
) -> Float[np.ndarray, "r q"]:
    """Return scores along a row of the grid, from its middle as far as they become better.

    Beyond a neighbour that makes no output better there are no scores, but NaN, as where a system
    is singular.

    Parameters
    ----------
    score : callable
        Returns the scores of all outputs at one place of the row.
    count : int
        Number of places.

    Examples
    --------
    >>> row = np.array([[9.0], [3.0], [2.0], [1.0], [2.0], [0.0], [0.0]])
    >>> outwards(lambda k: row[k], 7).ravel()
    array([nan, nan,  2.,  1.,  2., nan, nan])
    """
    middle = count // 2
    found = {middle: score(middle)}
    for way in (range(middle - 1, -1, -1), range(middle + 1, count)):
        best = found[middle]
        for k in way:
            found[k] = score(k)
            is_better = (found[k] < best - BETTER) | np.isnan(best)
            if not is_better.any():
                break
            best = np.fmin(best, found[k])
    nothing = np.full_like(found[middle], np.nan)
    return np.stack([found.get(k, nothing) for k in range(count)])


def stabilise(
    scores: Float[np.ndarray, "v r q"], *, whole: bool, brief: bool = False
) -> Float[np.ndarray, "v r q"]:
    """Count the worst neighbour on the grid against each score.

    A lucky minimum beside a cliff is a bad choice: the error it promises is not the error it has.
    Settings that could not be solved (NaN) do not count, and come out infinite.

    Parameters
    ----------
    scores : array of shape (scales, ridges, outputs)
    whole : bool
        On a fine grid neighbours are nearly the same fit, and the worst of them replaces the score.
        On a coarse one it enters by half.
    brief : bool
        Ridges were left out because nearer ones were no better. They count as these do.
    """
    near = _left_out_as_nearest(scores) if brief else scores
    padded = np.pad(near, ((1, 1), (1, 1), (0, 0)), constant_values=np.nan)
    worst = scores
    for around in (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]):
        worst = np.fmax(worst, around)
    share = 1.0 if whole else 0.5
    return np.where(np.isnan(scores), np.inf, (1 - share) * scores + share * worst)


def _left_out_as_nearest(scores: Float[np.ndarray, "v r q"]) -> Float[np.ndarray, "v r q"]:
    """Return scores with the nearest one of its row in place of each NaN."""
    filled = scores.copy()
    last = scores.shape[1] - 1
    for k in range(1, last + 1):
        filled[:, k] = np.where(np.isnan(filled[:, k]), filled[:, k - 1], filled[:, k])
    for k in range(last - 1, -1, -1):
        filled[:, k] = np.where(np.isnan(filled[:, k]), filled[:, k + 1], filled[:, k])
    return filled


def shortlist(
    scores: Float[np.ndarray, "k q"],
    number: int,
    *,
    known: Sequence[int] = (),
    least_gain: float = 0.0,
) -> list[int]:
    """Pick settings greedily so that the best of them serves every output.

    Parameters
    ----------
    scores : array of shape (k, q)
    number : int
        How many at most, the known ones included.
    known : sequence of int
        Already picked; they come first in the answer.
    least_gain : float
        A further setting must lower the score of some output by more than this.

    Examples
    --------
    >>> scores = np.array([[0.0, 3.0], [1.0, 1.0], [3.0, 0.0]])
    >>> shortlist(scores, 1)
    [1]
    >>> shortlist(scores, 3, known=[1], least_gain=0.5)
    [1, 0, 2]
    """
    worst = math.log(WORST_REGRET)
    regret = np.minimum(scores - scores.min(axis=0), worst)
    picked = list(known)
    left = regret[picked].min(axis=0) if picked else np.full(scores.shape[1], worst + 1)
    while len(picked) < number:
        gains = np.maximum(left - regret, 0)
        best = int(np.argmax(np.where(gains > least_gain, gains, 0).sum(axis=1)))
        if picked and gains[best].max() <= least_gain:
            break
        picked.append(best)
        left = np.minimum(left, regret[best])
    return picked


def with_neighbours(picked: Sequence[int], num_ridges: int, size: int) -> list[int]:
    """Add the neighbours of each pick: the next scales, and the next smaller ridge.

    More draws support less ridge than the few on which the picks were made, and often another
    scale.
    """
    extended = set(picked)
    for k in picked:
        extended |= {k - num_ridges, k + num_ridges, *([k - 1] if k % num_ridges else [])}
    return sorted(k for k in extended if 0 <= k < size)


def at_rows(
    outputs: Float[np.ndarray, "n q"], rows: Int[np.ndarray, " m"]
) -> Float[np.ndarray, "m q"]:
    """Return outputs at some draws: as they are where those are all."""
    return outputs if len(rows) == len(outputs) else outputs[rows]


def shares_family(setting: Setting, settings: Sequence[Setting]) -> bool:
    """Tell whether a later one of some settings differs from this one in its ridge alone."""
    place = settings.index(setting) if setting in settings else len(settings)
    return any(one.family is setting.family for one in settings[place + 1 :])


def log_error(
    residual: Float[np.ndarray, "m q"], shares: Float[np.ndarray, " m"]
) -> Float[np.ndarray, " q"]:
    """Return the score of each output, from residuals of draws that stand for shares of all."""
    return 0.5 * np.log(shares @ residual**2 + 1e-300)


def are_new(
    outputs: Float[np.ndarray, "n q"], known: Float[np.ndarray, "n g"]
) -> Bool[np.ndarray, " q"]:
    """Return which outputs are none of the known functions, whatever their last digits."""
    if not known.shape[1]:
        return np.ones(outputs.shape[1], dtype=bool)
    # What differs at some of the draws differs.
    few = np.linspace(0, len(outputs) - 1, min(len(outputs), COMPARED)).astype(int)
    new = _differ(outputs[few], known[few])
    rest = np.flatnonzero(~new)
    if len(rest):
        new[rest] = _differ(np.take(outputs, rest, axis=1), known)
    return new


def _differ(
    outputs: Float[np.ndarray, "n q"], known: Float[np.ndarray, "n g"]
) -> Bool[np.ndarray, " q"]:
    return np.asarray(np.abs(_unit(known).T @ _unit(outputs)).max(axis=0) < 1 - SAME)


def _unit(columns: Float[np.ndarray, "n q"]) -> Float[np.ndarray, "n q"]:
    """Return columns centred and scaled to length one."""
    centred = columns - columns.mean(axis=0)
    return centred / np.maximum(np.linalg.norm(centred, axis=0), np.finfo(float).tiny)
