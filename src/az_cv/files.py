"""Traces and tables on disk, for the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from az_cv.idata import get_group
from az_cv.scores.stored import stored_scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

TABLE_SUFFIXES = (".csv", ".html", ".json", ".txt")
TRACE_SUFFIXES = (".nc", ".zarr")


class FileProblemError(Exception):
    """A file that cannot be used, and what to do about it."""


def read_trace(
    paths: Sequence[str],
    *,
    exe_file: str | None = None,
    data_file: str | None = None,
    stan_file: str | None = None,
) -> tuple[xr.DataTree, xr.Dataset | None]:
    """Read a netCDF or Zarr file, or the CSV files of a Stan run.

    Parameters
    ----------
    paths : sequence of str
        One netCDF file, one Zarr store, or CmdStan's CSV files.
    exe_file, data_file, stan_file : str, optional
        Of a Stan run, see :func:`az_cv.scores.cmdstan.cmdstan_scores`.

    Returns
    -------
    data : DataTree
    scores : Dataset or None
        ``None`` when `data` should hold them.
    """
    missing = [path for path in paths if not Path(path).exists()]
    if missing:
        raise FileProblemError(f"There is no file {', '.join(missing)}.")
    if all(Path(path).suffix == ".csv" for path in paths):
        from arviz_base import from_cmdstanpy

        from az_cv.scores.cmdstan import cmdstan_scores
        from az_cv.scores.cmdstan_files import read_cmdstan_csv

        fit = read_cmdstan_csv(paths)
        scores = cmdstan_scores(fit, exe_file=exe_file, data_file=data_file, stan_file=stan_file)
        return from_cmdstanpy(fit), scores
    if len(paths) > 1:
        raise FileProblemError(
            f"{len(paths)} files are given. Pass one netCDF file, one Zarr store, or the CSV files "
            "of one Stan run."
        )
    if exe_file or data_file or stan_file:
        raise FileProblemError(
            f"--exe, --data and --stan-file go with CmdStan's CSV files; {paths[0]} is none."
        )
    data = _open_tree(Path(paths[0]))
    if stored_scores(data) is None:
        raise FileProblemError(
            f"{paths[0]} holds no gradients. Save it after az_cv.summary(idata), which attaches "
            "them, or sample with nutpie's store_gradient=True and store_unconstrained=True."
        )
    return data, None


def _open_tree(path: Path) -> xr.DataTree:
    zarr = path.suffix == ".zarr" or path.is_dir()
    need = "zarr" if zarr else "h5netcdf"
    try:
        with xr.open_datatree(path, engine="zarr" if zarr else None) as tree:
            data = tree.load()
    except (ValueError, ImportError, OSError) as error:
        if _importable(need):
            raise FileProblemError(
                f"{path} cannot be read as {'Zarr' if zarr else 'netCDF'}: "
                f"{str(error).splitlines()[0]}"
            ) from error
        raise FileProblemError(
            f"{path} needs the package {need}: pip install 'az-cv[files]'"
        ) from error
    try:
        get_group(data, "posterior")
    except KeyError as error:
        raise FileProblemError(f"{path}: {error.args[0]}") from error
    return data


def write_table(table: pd.DataFrame, data: xr.DataTree, path: Path) -> None:
    """Write a summary table, or the trace with the results attached to it.

    Parameters
    ----------
    table : DataFrame
    data : DataTree
        With the results attached.
    path : Path
        The suffix says what is written: ``.csv``, ``.html``, ``.json`` and ``.txt`` the table,
        ``.nc`` and ``.zarr`` the trace.
    """
    match path.suffix:
        case ".csv":
            table.to_csv(path)
        case ".html":
            from az_cv.html import summary_html

            path.write_text(summary_html(table), encoding="utf-8")
        case ".json":
            path.write_text(table_json(table) + "\n", encoding="utf-8")
        case ".txt":
            path.write_text(table.to_string() + "\n", encoding="utf-8")
        case ".nc":
            data.to_netcdf(path, engine="h5netcdf")
        case ".zarr":
            # Labels have no settled encoding in format 3.
            data.to_zarr(path, mode="w", zarr_format=2)


def table_json(table: pd.DataFrame) -> str:
    """Return a summary as JSON: its settings, its warnings, and one object per row.

    Examples
    --------
    >>> import pandas as pd
    >>> table_json(pd.DataFrame({"mean": [1.5, float("nan")]}, index=["mu", "tau"]))
    '{"settings": {}, "warnings": [], "rows": [{"name": "mu", "mean": 1.5}, {"name": "tau", "mean": null}]}'
    """  # noqa: E501
    rows = [
        {"name": str(label), **{str(key): _number(row[key]) for key in table.columns}}
        for label, row in table.iterrows()
    ]
    settings = {key: str(value) for key, value in table.attrs.items() if key != "warnings"}
    warnings = [str(warning) for warning in table.attrs.get("warnings", [])]
    return json.dumps({"settings": settings, "warnings": warnings, "rows": rows})


def _number(value: Any) -> float | int | str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    number = float(value)
    return number if np.isfinite(number) else None


def _importable(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None
