"""The summary table: a DataFrame that shows the digits its errors allow, and a footer."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd

from az_cv.display.digits import decimals, gain_text

ERRORS = {"mean": "mcse_mean", "sd": "mcse_sd"}
COUNTS = ("ess_bulk", "ess_tail")
GAINS = ("vrf_mean", "vrf_sd")


class SummaryTable(pd.DataFrame):
    """A summary as a DataFrame, printed with a footer; ``attrs`` holds what the footer says.

    Selections from it and computations with it are plain DataFrames.

    Examples
    --------
    >>> table = SummaryTable({"mean": [1.25], "vrf_mean": [210.0]}, index=["mu"])
    >>> print(table)
        mean vrf_mean
    mu  1.25      210
    """

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def __repr__(self) -> str:
        return "\n".join([self._formatted().to_string(), *footer(self.attrs)])

    __str__ = __repr__

    def _repr_html_(self) -> str:
        from az_cv.display.html import summary_html

        return summary_html(self)

    def _formatted(self) -> pd.DataFrame:
        """Return every cell as a string, each number with the decimals it was rounded to."""
        return pd.DataFrame(
            {name: [_cell(name, value) for value in self[name]] for name in self.columns},
            index=self.index,
        )


def footer(attrs: dict[Any, Any]) -> list[str]:
    """Return what to print under a table.

    Examples
    --------
    >>> footer({"family": "imq kernel 100%", "folds": "leave-one-out", "draws": "4 x 1000"})
    ['imq kernel 100%; leave-one-out; 4 x 1000 draws']
    """
    said = [str(attrs[key]) for key in ("family", "folds") if key in attrs]
    if "global" in attrs:
        said.append(f"global: {attrs['global']}")
    if "left_out" in attrs:
        said.append(f"no time for: {attrs['left_out']}")
    if "draws" in attrs:
        said.append(f"{attrs['draws']} draws")
    if "seconds" in attrs:
        said.append(f"{attrs['seconds']} s")
    lines = ["; ".join(said)] if said else []
    if "provenance" in attrs:
        lines.append(str(attrs["provenance"]))
    return [*lines, *(f"warning: {message}" for message in attrs.get("warnings", ()))]


def round_table(table: pd.DataFrame, round_to: int | Literal["none"] | None) -> pd.DataFrame:
    """Round to the digits the errors allow: two digits of each error, estimates to match."""
    if round_to == "none":
        return table
    if isinstance(round_to, int):
        # pandas rounds by multiplication, which overflows with many decimals.
        return table.map(lambda value: round(value, round_to))
    rounded = table.copy()
    for value, error in ERRORS.items():
        places = [_places(e) for e in table[error]]
        rounded[value] = [round(v, k) for v, k in zip(table[value], places)]
        rounded[error] = [round(e, k) for e, k in zip(table[error], places)]
    for name in table.columns:
        if name in COUNTS:
            rounded[name] = table[name].round()
        elif name == "r_hat":
            rounded[name] = table[name].round(3)
        elif name in GAINS:
            rounded[name] = [float(f"{v:.2g}") for v in table[name]]
    return rounded


def round_like(values: pd.Series, errors: np.ndarray) -> list[float]:
    """Round each value to two digits of its error."""
    return [round(v, _places(e)) for v, e in zip(values, errors)]


def _places(error: float) -> int:
    places = decimals(error)
    return 15 if places is None else places


def _cell(name: str, value: Any) -> str:
    if not isinstance(value, float | np.floating) or not np.isfinite(value):
        return str(value)
    value = float(value)
    if name in COUNTS:
        return f"{value:.0f}"
    if name in GAINS:
        return gain_text(value)
    return repr(value) if 1e-4 <= abs(value) < 1e15 or value == 0 else f"{value:.1e}"
