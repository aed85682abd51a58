"""Modes that no draws connect, in two and more dimensions.

Gradients do not tell the shares of such modes: the way from one to the other leads through a gap
where no draw speaks. A fit can be right at every draw, left out or not, and take what is missing
from the gap. Within each mode, though, every Stein identity holds by itself. So what a function is
on average in each mode is a matter for control variates, and how much of the mass a mode has is a
matter for counting draws.

A draw and its score name the place where the density would peak if it were Gaussian: with ``F`` the
second moments of the scores, ``x + F^-1 s``. All draws of a Gaussian mode name the same place,
however few they are and however wide they scatter, so that modes are easily told apart by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from az_cv.engine.parting import reach_of, split, unit_scores

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from az_cv.solvers.error_model import ErrorModel

    Draws = Float[np.ndarray, "n d"]
    PerOutput = Float[np.ndarray, " q"]

# With more second-order features the regression would take seconds.
MAX_FEATURES = 500


@dataclass(frozen=True)
class Modes:
    """Which mode each draw is in, and what is known of functions in each.

    Attributes
    ----------
    label : array of shape (n,)
        0 for the mode with most draws, then 1, 2, ...
    counts : array of shape (k,)
        Draws in each.
    features : array of shape (n, p)
        Functions that average to zero in each mode.
    visit : int
        Draws that a chain stays in one region.
    few : int
        Draws that it takes to know the shape of a mode.
    """

    label: Int[np.ndarray, " n"]
    counts: Int[np.ndarray, " k"]
    features: Float[np.ndarray, "n p"]
    visit: int
    few: int

    def levels(
        self, outputs: Float[np.ndarray, "n q"]
    ) -> tuple[Float[np.ndarray, "n q"], PerOutput]:
        """Return how much higher each output is in a draw's mode than in the first, and an error.

        The average in each mode comes from one regression, with the features and a constant for
        each. Without these differences a fit has nothing to take from the gaps, up to the error of
        the averages: that is the error returned.

        Parameters
        ----------
        outputs : array of shape (n, q)
        """
        design, solve = self._regression
        own, coefficients = design[:, : len(self.counts)], solve @ outputs
        residual = outputs - design @ coefficients
        height = coefficients[: len(self.counts)]
        # A draw alone in its mode leaves no residual: each mode also has one of the average size.
        squares = own.T @ residual**2 + (residual**2).mean(axis=0)
        # The shape of a mode with fewer draws than that is not known to be like that of the first.
        unlike = self.counts * outputs[self.label == 0].var(axis=0)[:, None]
        squares = np.where(self.counts < self.few, np.maximum(squares.T, unlike), squares.T).T
        effective = np.maximum(self.counts / self.visit, 1.0)[:, None]
        variance = squares / self.counts[:, None] / effective
        share = self.counts[1:, None] / len(outputs)
        # A count of k has an error of root k if k is what was expected: one more is a safer guess.
        steps = height - height[0]
        one_more = (steps[1:] * self.visit / len(outputs)) ** 2
        unknown = np.sqrt((share**2 * (variance[1:] + variance[0]) + one_more).sum(axis=0))
        return steps[self.label], unknown

    @cached_property
    def _regression(self) -> tuple[Float[np.ndarray, "n c"], Float[np.ndarray, "c n"]]:
        """Return a constant for each mode beside the features, and what solves for coefficients."""
        own = self.label[:, None] == np.arange(len(self.counts))
        design = np.column_stack([own.astype(float), self.features])
        return design, scipy.linalg.pinv(design)

    def describe(self) -> str:
        """Return what to tell the user.

        Examples
        --------
        >>> label = np.array([0, 0, 1])
        >>> print(Modes(label, np.array([2, 1]), np.zeros((3, 0)), 1, 4).describe())
        The draws lie in 2 modes that no draw connects (2, 1 draws). Gradients tell nothing of the \
share that each has: it is known as well as the draws in each can be counted, and errors include \
that. More draws, or a sampler that moves between modes, would tell more.
        """
        return (
            f"The draws lie in {len(self.counts)} modes that no draw connects "
            f"({', '.join(map(str, self.counts))} draws). Gradients tell nothing of the share "
            "that each has: it is known as well as the draws in each can be counted, and errors "
            "include that. More draws, or a sampler that moves between modes, would tell more."
        )


def find_modes(x: Draws, s: Draws, visit: int, errors: ErrorModel) -> Modes | None:
    """Return the modes of the draws, or None where there is one.

    Parameters
    ----------
    x, s : arrays of shape (n, d)
        Whitened draws and scores. In one dimension gaps are found in other ways.
    visit : int
        Draws that a chain stays in one region.
    errors : ErrorModel

    Examples
    --------
    >>> from az_cv.solvers.error_model import ERROR_MODEL
    >>> x = np.random.default_rng(0).normal(size=(400, 2))
    >>> find_modes(x, -x, 1, ERROR_MODEL) is None
    True
    >>> away = np.where(np.arange(400)[:, None] < 10, 6.0, 0.0)
    >>> find_modes(x + away, -x, 1, ERROR_MODEL).counts
    array([390,  10])
    """
    n, d = x.shape
    if d == 1 or not s.any():
        return None
    parts: list[Int[np.ndarray, " r"]] = []
    whole = [np.arange(n)]
    while whole and len(whole) + len(parts) < errors.most_modes:
        rows = whole.pop()
        part = split(x[rows], s[rows], errors)
        if part is None:
            parts.append(rows)
        else:
            whole += [rows[part == k] for k in range(part.max() + 1)]
    parts += whole
    if len(parts) == 1:
        return None
    parts.sort(key=lambda rows: (-len(rows), rows[0]))
    label = np.empty(n, dtype=int)
    for k, rows in enumerate(parts):
        label[rows] = k
    counts = np.bincount(label)
    return Modes(label, counts, _features(x, s, label, counts, errors), visit, errors.mode_draws)


def _features(
    x: Draws,
    s: Draws,
    label: Int[np.ndarray, " n"],
    counts: Int[np.ndarray, " k"],
    errors: ErrorModel,
) -> Float[np.ndarray, "n p"]:
    """Return first- and second-order Stein features, centred in each mode and in its units.

    Modes with draws enough have first-order coefficients of their own. Units of one where they are
    much the same keep the features exact on equal modes.
    """
    n, d = x.shape
    y, r = unit_scores(x, s)
    reach = np.array([reach_of(y[label == k], r[label == k], errors) for k in range(len(counts))])
    is_same = np.abs(np.log2(reach)) < 1
    unit = np.where(is_same, 1.0, reach)[label, None]
    s = unit * s
    columns = [s]
    if d * (d + 3) // 2 <= min(n / errors.mode_support, MAX_FEATURES):
        means = np.stack([x[label == k].mean(axis=0) for k in range(len(counts))])
        centred, (left, right) = x - means[label], np.triu_indices(d)
        second = centred[:, left] * s[:, right] + centred[:, right] * s[:, left]
        columns.append(second + 2.0 * unit * (left == right))
    for k in range(1, len(counts)):
        if counts[k] >= errors.mode_support * d:
            columns.append(s * (label == k)[:, None])
    return np.column_stack(columns)
