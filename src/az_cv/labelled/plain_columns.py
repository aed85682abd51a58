"""Columns that are not corrected: of draws read in pieces, those of some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from az_cv.containers.idata import plain_summary, tail_values
from az_cv.containers.labels import scalar_labels
from az_cv.engine.quantiles import interval_levels
from az_cv.engine.rank_diagnostics import rank_diagnostics
from az_cv.labelled.integrands import MAX_QUANTITIES
from az_cv.labelled.stacking import varying

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.labelled.streaming import Answer

ENDS = ("lower", "upper")
DIAGNOSTICS = ["ess_bulk", "ess_tail", "r_hat"]
SHOWN = 2  # quantities that show what the installed ArviZ makes of them
LEFT_OUT = "the interval, effective sample sizes and r_hat were left out, the quantities are many"


def plain_table(
    matrix: Float[np.ndarray, "chain draw q"], ci_prob: float | None, ci_kind: str | None
) -> tuple[pd.DataFrame, str, float]:
    """Return ArviZ's table with what plain draws alone tell, and the kind of its interval.

    Effective sample sizes and ``r_hat`` of all quantities are computed at once, and ArviZ takes
    over where its own are others. What control variates estimate may be NaN.

    Parameters
    ----------
    matrix : array of shape (chain, draw, q)
    ci_prob, ci_kind : see :func:`az_cv.containers.idata.plain_summary`
    """
    shown = np.flatnonzero(varying(matrix))[:SHOWN]
    if not 0 < len(shown) < matrix.shape[2]:
        return plain_summary(matrix, ci_prob, ci_kind)
    few, kind, probability = plain_summary(matrix[..., shown], ci_prob, ci_kind)
    table = pd.DataFrame(np.nan, index=range(matrix.shape[2]), columns=few.columns)
    table[DIAGNOSTICS] = np.transpose(rank_diagnostics(matrix, tail_values(matrix)))
    theirs, ours = few[DIAGNOSTICS], table[DIAGNOSTICS].iloc[shown]
    if not np.allclose(theirs, ours, rtol=1e-9, atol=0, equal_nan=True):
        return plain_summary(matrix, ci_prob, ci_kind)
    return table, kind, probability


def plain_columns(
    answer: Answer, ci_prob: float | None, ci_kind: str | None
) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """Return ArviZ's table of some of the draws, and the ends of intervals with their errors.

    What the columns are goes into the settings of the result.
    """
    matrix, unit = answer.shown.matrix, answer.shown.unit
    q = matrix.shape[2]
    few = matrix if q <= MAX_QUANTITIES else matrix[..., :1]
    table, kind, probability = plain_summary(few, ci_prob, ci_kind)
    if q > MAX_QUANTITIES:
        table = pd.DataFrame(np.nan, index=range(q), columns=table.columns)
        note = LEFT_OUT
    else:
        which = "all draws" if answer.every == 1 else f"every {_ordinal(answer.every)} draw"
        note = f"the interval, effective sample sizes and r_hat are those of {which}, uncorrected"
    answer.result.settings["uncorrected"] = note
    # Labels of lazy integrands would be read with every number beside them.
    estimates = answer.result.estimates.isel(summary=0, drop=True)
    table.index = pd.Index(scalar_labels(estimates))
    ends = {f"{what}{end}": np.full(q, np.nan) for end in ENDS for what in ("", "mcse_", "vrf_")}
    if q <= MAX_QUANTITIES:
        usable = varying(matrix) & ~np.isin(matrix * unit, (0.0, 1.0)).all(axis=(0, 1))
        levels = interval_levels(matrix[..., usable], kind, probability)
        size = table["ess_tail"].to_numpy()[usable]
        for position, end, level in zip((2, 3), ENDS, levels):
            ends[end] = np.where(usable | ~varying(matrix), table.iloc[:, position], np.nan) * unit
            ends[f"mcse_{end}"][usable] = _error(matrix[..., usable], level, size) * unit[usable]
            ends[f"vrf_{end}"][usable] = 1.0
    return table, ends


def _error(matrix: np.ndarray, levels: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return the standard errors of quantiles: how far they move as the level moves by its own."""
    flat = matrix.reshape(-1, matrix.shape[2])
    reach = np.sqrt(levels * (1 - levels) / np.maximum(size, 1.0))
    reach = np.maximum(reach, 1 / len(flat))
    below, above = np.clip(levels - reach, 0, 1), np.clip(levels + reach, 0, 1)
    return np.array(
        [
            (np.quantile(column, high) - np.quantile(column, low)) / 2
            for column, low, high in zip(flat.T, below, above)
        ]
    )


def _ordinal(number: int) -> str:
    """Return a number as a place in a row.

    Examples
    --------
    >>> _ordinal(2), _ordinal(11), _ordinal(103)
    ('2nd', '11th', '103rd')
    """
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{'th' if 10 <= number % 100 < 20 else ending}"
