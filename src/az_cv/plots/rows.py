"""What a figure shows: estimates and draws read from a result or from attached groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import xarray as xr
from arviz_base import xarray_var_iter
from arviz_base.labels import BaseLabeller

from az_cv.containers.idata import as_idata, get_group, group_names
from az_cv.labelled.integrands import evaluate_integrands, select_coords, select_names
from az_cv.labelled.result import ControlVariateResult, as_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arviz_base.labels import Labeller

    from az_cv.labelled.integrands import Integrand


def read_estimates(data: Any) -> xr.Dataset:
    """Return the estimates of a result, or those attached to `data`.

    Raises
    ------
    ValueError
        If nothing is attached.
    """
    if isinstance(data, ControlVariateResult):
        return data.estimates
    return _attached(data, "cv_summary")


def read_draws(data: Any, fn: Integrand) -> tuple[xr.Dataset, xr.Dataset]:
    """Return integrands and their adjusted draws, variable by variable on the same draws.

    Parameters
    ----------
    data : InferenceData or DataTree
        With the group ``cv_draws``.
    fn : as in :func:`az_cv.summary`
        What was summarised last.
    """
    if isinstance(data, ControlVariateResult):
        raise TypeError(
            "A ControlVariateResult does not hold the plain draws. Attach it, result.attach(data), "
            "and pass data."
        )
    adjusted = _attached(data, "cv_draws")
    integrands = evaluate_integrands(get_group(as_idata(data), "posterior"), fn)
    names = [name for name in adjusted.data_vars if name in integrands]
    if not names:
        raise ValueError(
            f"The attached results are those of {list(adjusted.data_vars)}, not of "
            f"{list(integrands.data_vars)}. Pass the fn they were made with."
        )
    # With coords= only part of a variable was estimated.
    integrands, adjusted = xr.align(integrands[names], adjusted[names], join="inner")
    return integrands, adjusted


def select(
    dataset: xr.Dataset,
    var_names: str | Sequence[str] | None,
    filter_vars: Literal["like", "regex"] | None,
    coords: dict[str, Any] | None,
) -> xr.Dataset:
    """Select variables and coordinates as ArviZ does."""
    names = select_names([str(name) for name in dataset.data_vars], var_names, filter_vars)
    return select_coords(dataset[names], coords)


def scalar_rows(
    dataset: xr.Dataset, labeller: Labeller | None, *, keep: tuple[str, ...] = ("summary",)
) -> list[tuple[str, xr.DataArray]]:
    """Return each scalar quantity of `dataset` with its label; dimensions in `keep` stay."""
    naming = labeller or BaseLabeller()
    rows = []
    for name, selection, index, _ in xarray_var_iter(dataset, skip_dims=set(keep)):
        label = naming.make_label_flat(name, selection, index)
        rows.append((str(label), dataset[name].isel(index)))
    return rows


def ordered_rows(
    rows: list[tuple[str, xr.DataArray]],
    sort: Literal["gain"] | None,
    max_rows: int | None,
    statistic: str = "mean",
) -> tuple[list[tuple[str, xr.DataArray]], str]:
    """Return the rows to draw, in their order, and a word on those that are left out."""
    if sort not in (None, "gain"):
        raise ValueError(f"sort is {sort!r}. Choose from ['gain', None].")
    if max_rows is not None and (not isinstance(max_rows, int) or max_rows < 1):
        raise ValueError(f"max_rows must be a positive integer or None; it is {max_rows!r}.")
    if sort == "gain":
        # Rows without a gain, NaN, come last.
        rows = sorted(rows, key=lambda row: -_gain(row[1], statistic))
    shown = rows[:max_rows]
    left = len(rows) - len(shown)
    return shown, f"\n{left} more rows are not shown" if left else ""


def _gain(values: xr.DataArray, statistic: str) -> float:
    gain = float(values.sel(summary=f"vrf_{statistic}"))
    return gain if gain == gain else 0.0


def _attached(data: Any, group: str) -> xr.Dataset:
    idata = as_idata(data)
    if group not in group_names(idata):
        raise ValueError(
            f"There is no group {group!r} in data. Call az_cv.summary(data) first, which attaches "
            "it, or pass what az_cv.fit returns."
        )
    return as_named(get_group(idata, group))
