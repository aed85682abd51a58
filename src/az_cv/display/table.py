"""The summary table: a DataFrame that shows the digits its errors allow, and a footer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd

from az_cv.display.cells import COUNTS, GAINS, formatted
from az_cv.display.digits import decimals
from az_cv.display.footer import text_footer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ERRORS = {"mean": "mcse_mean", "sd": "mcse_sd"}
TABLES = ("full", "stats")


class SummaryTable(pd.DataFrame):
    """A summary as a DataFrame, printed with a footer; ``attrs`` holds what the footer says.

    Rows and columns selected from it are summary tables too.

    Examples
    --------
    >>> table = SummaryTable({"mean": [1.25], "vrf_mean": [210.0]}, index=["mu"])
    >>> print(table)
        mean vrf_mean
    mu  1.25      210
    >>> print(table[["vrf_mean"]])
       vrf_mean
    mu      210
    """

    # Per column and row, a number and the decimals that it is shown with.
    _digits: dict[str, dict[Any, tuple[float, int]]] | None = None
    _metadata: ClassVar[list[str]] = ["_digits"]

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return SummaryTable

    def __repr__(self) -> str:
        return "\n".join([formatted(self).to_string(), *text_footer(self.attrs)])

    __str__ = __repr__

    def _repr_html_(self) -> str:
        from az_cv.display.html import summary_html

        return summary_html(self)


def summary_table(
    table: pd.DataFrame,
    errors: Mapping[str, np.ndarray],
    round_to: int | Literal["none"] | None,
    kind: str,
) -> SummaryTable:
    """Round a table of estimates, and remember with how many decimals each is shown.

    Parameters
    ----------
    table : DataFrame
        ArviZ's columns and the gains, every digit.
    errors : mapping
        Standard errors of the columns that have no column of errors, the ends of the interval.
    round_to : int, "none" or None
    kind : {"full", "stats"}
    """
    every = {
        column: table[ERRORS.get(column, column)].to_numpy()
        for pair in ERRORS.items()
        for column in pair
    } | dict(errors)
    result = SummaryTable(round_table(table, round_to, every))
    result._digits = {
        column: {
            label: (float(value), round_to if isinstance(round_to, int) else _places(error))
            for label, value, error in zip(table.index, result[column].to_numpy(), values)
            if isinstance(round_to, int) or decimals(error) is not None
        }
        for column, values in every.items()
    }
    return result if kind == "full" else result[_stats(list(errors))]


def round_table(
    table: pd.DataFrame, round_to: int | Literal["none"] | None, errors: Mapping[str, np.ndarray]
) -> pd.DataFrame:
    """Round to the digits that the errors allow: two digits of each error, estimates to match."""
    if round_to == "none":
        return table
    if isinstance(round_to, int):
        # pandas rounds by multiplication, which overflows with many decimals.
        return table.map(lambda value: round(value, round_to))
    rounded = table.copy()
    for column, values in errors.items():
        rounded[column] = [round(v, _places(e)) for v, e in zip(table[column], values)]
    for name in table.columns:
        if name in COUNTS:
            rounded[name] = table[name].round()
        elif name == "r_hat":
            rounded[name] = table[name].round(3)
        elif name in GAINS:
            rounded[name] = [float(f"{v:.2g}") for v in table[name]]
    return rounded


def _stats(interval: Sequence[str]) -> list[str]:
    """Return the columns of a short table."""
    return ["mean", "mcse_mean", "vrf_mean", "sd", "mcse_sd", "vrf_sd", *interval, "r_hat"]


def _places(error: float) -> int:
    places = decimals(error)
    return 15 if places is None else places
