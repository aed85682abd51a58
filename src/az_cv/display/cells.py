"""Every cell of a table as text: the one formatter behind what is printed and the HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from az_cv.display.digits import MOST_DECIMALS, decimals, gain_text

if TYPE_CHECKING:
    from collections.abc import Sequence

ERROR = "mcse"  # alone, or in front of the column that it is about
GAIN = "vrf"
ERROR_PREFIX = f"{ERROR}_"
GAIN_PREFIX = f"{GAIN}_"
GAINS = ("vrf_mean", "vrf_sd")
COUNTS = ("ess_bulk", "ess_tail")
MISSING = "–"
SMALL = 1e-4  # smaller numbers are shorter with an exponent
LARGE = 1e15  # beyond this a float no longer counts in ones


def reading_order(columns: Sequence[str]) -> list[str]:
    """Return the columns of a summary with each error and gain beside what it is about.

    ``summary`` returns ArviZ's columns in ArviZ's order and the gains after them. A selection of
    columns is in the order that its author chose, and stays as it is.

    Examples
    --------
    >>> names = ["mean", "sd", "eti_lb", "mcse_mean", "mcse_sd", "vrf_mean", "vrf_sd"]
    >>> reading_order(names)
    ['mean', 'mcse_mean', 'vrf_mean', 'sd', 'mcse_sd', 'vrf_sd', 'eti_lb']
    >>> reading_order(["vrf_mean", "mean"])
    ['vrf_mean', 'mean']
    """
    names = list(columns)
    if tuple(names[:2]) != ("mean", "sd") or tuple(names[-2:]) != GAINS:
        return names
    first = [
        name
        for value in ("mean", "sd")
        for name in (value, f"{ERROR_PREFIX}{value}", f"{GAIN_PREFIX}{value}")
        if name in names
    ]
    return [*first, *(name for name in names if name not in first)]


def formatted(table: pd.DataFrame) -> pd.DataFrame:
    """Return every cell of a table as text, in the order in which it is read.

    Numbers have the decimals that two digits of their error need, trailing zeros included.

    Examples
    --------
    >>> table = pd.DataFrame({"mean": [6.3, 96012.0], "mcse_mean": [0.0052, 130.0]})
    >>> formatted(table).to_numpy().tolist()
    [['6.3000', '0.0052'], ['96010', '130']]
    >>> table = pd.DataFrame({"log_mean_exp": [1.0], "mcse": [0.012], "vrf": [30.4]})
    >>> formatted(table).values
    array([['1.000', '0.012', '30']], dtype=object)
    """
    names = reading_order([str(name) for name in table.columns])
    columns = {str(name): position for position, name in enumerate(table.columns)}
    texts = {
        name: [
            cell_text(name, value, places)
            for value, places in zip(table.iloc[:, columns[name]], _places(table, name))
        ]
        for name in names
    }
    return pd.DataFrame(texts, index=table.index, columns=names)


def cell_text(name: str, value: Any, places: int | None) -> str:
    """Return one cell.

    Parameters
    ----------
    name : str
        Name of the column.
    value : object
    places : int or None
        Decimals; negative for errors of 100 and more, ``None`` where nothing limits them.

    Examples
    --------
    >>> [cell_text("mean", value, 3) for value in (6.3, float("nan"), -1e-9)]
    ['6.300', '–', '0.000']
    >>> cell_text("r_hat", 1.0, None), cell_text("ess_bulk", 4440.0, None)
    ('1.00', '4,440')
    >>> cell_text("sd", 56210.0, None), cell_text("mcse_mean", 1.7e-7, 8)
    ('56210', '1.7e-07')
    """
    if not isinstance(value, int | float | np.number) or isinstance(value, bool):
        return str(value)
    number = float(value)
    if np.isnan(number):
        return MISSING
    if not np.isfinite(number):
        return str(number)
    if name == GAIN or name.startswith(GAIN_PREFIX):
        return gain_text(number)
    if name in COUNTS:
        return f"{number:,.0f}"
    if name == "r_hat":
        return f"{number:.2f}"
    if places is None:
        whole = number == round(number) and abs(number) < LARGE
        return f"{number:.0f}" if whole else f"{number:.6g}"
    if (name == ERROR or name.startswith(ERROR_PREFIX)) and 0 < abs(number) < SMALL:
        return f"{number:.1e}"
    if places > MOST_DECIMALS:
        return f"{number:.10g}"
    # Adding zero takes the sign from what is rounded to minus zero.
    return f"{round(number, places) + 0.0:.{max(places, 0)}f}"


def _places(table: pd.DataFrame, name: str) -> list[int | None]:
    """Return the decimals of each row of a column, by its own error or by the only one."""
    values = table[name].tolist()
    error = name if name.startswith(ERROR_PREFIX) else f"{ERROR_PREFIX}{name}"
    error = error if error in table else ERROR
    places: list[int | None] = [None] * len(table)
    if error in table:
        places = [decimals(value) for value in table[error].astype(float)]
    known = (getattr(table, "_digits", None) or {}).get(name, {})
    for row, (label, value) in enumerate(zip(table.index, values)):
        # What was known holds for this very number, and not for one computed from it.
        number, count = known.get(label, (None, None))
        if number == value:
            places[row] = count
    return places
