"""What the command line reads and writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.containers.idata import get_group
from az_cv.containers.replacing import FileProblemError, replacing, require_writable, resolved
from az_cv.containers.traces import TRACE_SUFFIXES, different_groups, open_trace, write_trace
from az_cv.sources.stored import stored_scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import xarray as xr

TABLE_SUFFIXES = (".csv", ".html", ".json", ".txt")
FIGURE_SUFFIXES = (".png", ".pdf", ".svg")
# By these, on the first line of a table and near either end of a figure, az_cv knows its own.
TABLE_MARKS = {
    ".csv": b",vrf_mean",
    ".html": b"az_cv table",
    ".json": b'{"settings": {',
    ".txt": b" vrf_mean ",
}
FIGURE_MARK = "az_cv figure"
OWN_GROUPS = ("/cv_scores", "/cv_draws", "/cv_summary")

# What messages of the package call by the names of arguments.
OPTIONS = {
    "\nFiles are passed as scores=az_cv.sources.cmdstan_scores(fit, exe_file=..., data_file=..., "
    "stan_file=...).": "",
    " (on the command line --exe)": "",
    "data_file=, the dict or a JSON file": "--data, a JSON file",
    "exe_file=": "--exe",
    "data_file=": "--data",
    "stan_file=": "--stan-file",
    "exe_file": "--exe",
    "data_file": "--data",
    "save_latent_dynamics=True": "save_latent_dynamics=True (diagnostic_file= in CmdStan)",
    "az_cv.check_scores tells more; check=False goes on regardless.": "`az-cv check` tells more.",
    " check=False goes on regardless.": "",
    " with var_names= or fn.": " with --var-names or --fn.",
    "var_names=[": "--var-names [",
    "var_names=": "--var-names",
    "var_names": "--var-names",
    "filter_vars": "--filter-vars",
    "max_time": "--max-time",
    "fn must": "--fn must",
}
EXTRA = re.compile(r"pip install 'az-cv(\[\w+\])'")


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
        Files of a Stan run, see :func:`az_cv.sources.cmdstan.cmdstan_scores`.

    Returns
    -------
    data : DataTree
    scores : Dataset or None
        ``None`` when `data` should hold them.
    """
    missing = [path for path in paths if not Path(path).exists()]
    if missing:
        raise FileProblemError(f"There is no file {', '.join(missing)}.")
    if all(Path(path).suffix.lower() == ".csv" for path in paths):
        return _read_cmdstan(paths, exe_file, data_file, stan_file)
    if len(paths) > 1:
        raise FileProblemError(
            f"{len(paths)} files are given. Pass one netCDF file, one Zarr store, or the CSV files "
            "of one Stan run."
        )
    if exe_file or data_file or stan_file:
        raise FileProblemError(
            f"--exe, --data and --stan-file go with CmdStan's CSV files; {paths[0]} is none."
        )
    data = open_trace(paths[0])
    try:
        get_group(data, "posterior")
    except KeyError as error:
        raise FileProblemError(f"{paths[0]}: {error}") from error
    if stored_scores(data) is None:
        raise FileProblemError(
            f"{paths[0]} holds no gradients. Save it after az_cv.summary(idata), which attaches "
            "them, or sample with nutpie's store_gradient=True and store_unconstrained=True."
        )
    return data, None


def _read_cmdstan(
    paths: Sequence[str], exe_file: str | None, data_file: str | None, stan_file: str | None
) -> tuple[xr.DataTree, xr.Dataset]:
    from az_cv.sources.cmdstan import read_cmdstan_scores

    irregular = [path for path in paths if not Path(path).is_file()]
    if irregular:
        raise FileProblemError(
            f"{irregular[0]} is no regular file (a folder, a pipe or a device), and is not read."
        )
    try:
        return read_cmdstan_scores(
            paths, exe_file=exe_file, data_file=data_file, stan_file=stan_file
        )
    except ValueError as error:
        raise FileProblemError(with_options(str(error))) from error


def with_options(message: str) -> str:
    """Return a message about Python's arguments as one about options.

    Examples
    --------
    >>> with_options("var_names ['nu'] are not in the posterior.")
    "--var-names ['nu'] are not in the posterior."
    >>> with_options("Figures need matplotlib: pip install 'az-cv[plots]'")
    "Figures need matplotlib: pip install 'az-cv[plots]', or in a clone: pip install '.[plots]'"
    >>> with_options("Pass exe_file=, its path, or data_file=, the dict or a JSON file.")
    'Pass --exe, its path, or --data, a JSON file.'
    """
    for argument, option in OPTIONS.items():
        message = message.replace(argument, option)
    return EXTRA.sub(r"\g<0>, or in a clone: pip install '.\1'", message)


def require_output(
    output: Path, suffixes: Sequence[str], inputs: Sequence[str], *, force: bool
) -> None:
    """Refuse a place for results that is of no use, or holds something else.

    Parameters
    ----------
    output : Path
    suffixes : sequence of str
        What can be written.
    inputs : sequence of str
        Files that are read.
    force : bool
        Replace what was not written by az_cv, too.

    Raises
    ------
    FileProblemError
    """
    suffix = output.suffix.lower()
    if suffix not in suffixes:
        raise FileProblemError(
            f"--output {output} has the suffix {output.suffix!r}. Choose from {list(suffixes)}."
        )
    require_writable(output)
    target = resolved(output)
    for path in map(Path, inputs):
        source = resolved(path)
        is_trace = suffix in TRACE_SUFFIXES and source.suffix.lower() in TRACE_SUFFIXES
        if source == target and not is_trace:
            raise FileProblemError(f"--output {output} is an input. Choose another name.")
        if source != target and (source in target.parents or target in source.parents):
            raise FileProblemError(f"--output {output} and the input {path} lie in each other.")
    if not target.exists() or suffix in TRACE_SUFFIXES:
        return
    if target.is_dir():
        raise FileProblemError(f"--output {output} is a folder. Choose another name.")
    if not force and not _is_ours(target):
        raise FileProblemError(
            f"--output {output} exists, and az-cv did not write it. Choose another name, or pass "
            "--force to replace it."
        )


def require_replaceable(output: Path, data: xr.DataTree, *, force: bool) -> None:
    """Refuse to replace a trace, or anything else, that the new one does not contain.

    Parameters
    ----------
    output : Path
        Name of a trace.
    data : DataTree
        What will be written, results aside.
    force : bool
        Replace it all the same.
    """
    target = resolved(output)
    empty = target.is_dir() and not any(target.iterdir())
    if force or empty or not target.exists():
        return
    advice = "Choose another name, or pass --force to replace it."
    if target.is_dir() != (target.suffix.lower() == ".zarr"):
        kind = "folder" if target.is_dir() else "file"
        raise FileProblemError(f"--output {output} is a {kind} already. {advice}")
    try:
        existing = open_trace(target)
    except FileProblemError as error:
        raise FileProblemError(f"--output {output} exists and is no trace. {advice}") from error
    lost = [name for name in different_groups(existing, data) if name not in OWN_GROUPS]
    # Groups that the new trace has besides are a gain.
    present = {node.path for node in existing.subtree}
    lost = [name.lstrip("/") or "its root" for name in lost if name in present]
    if lost:
        raise FileProblemError(
            f"--output {output} is a trace whose {', '.join(lost)} would be lost: the input has "
            f"other content there. {advice}"
        )


def _is_ours(path: Path) -> bool:
    """Tell whether az_cv wrote a table or a figure."""
    suffix = path.suffix.lower()
    with path.open("rb") as file:
        start = file.read(4096)
        file.seek(max(0, path.stat().st_size - 4096))
        end = file.read()
    if suffix in FIGURE_SUFFIXES:
        return FIGURE_MARK.encode() in start + end
    first_line = start.partition(b"\n")[0]
    return TABLE_MARKS[suffix] in first_line


def write_result(table: pd.DataFrame, data: xr.DataTree, output: Path) -> None:
    """Write a summary table, or the trace with the results attached to it.

    Parameters
    ----------
    table : DataFrame
    data : DataTree
        With the results attached.
    output : Path
        The suffix says what is written: ``.csv``, ``.html``, ``.json`` and ``.txt`` the table,
        ``.nc`` and ``.zarr`` the trace.
    """
    with replacing(output) as staged:
        if output.suffix.lower() in TRACE_SUFFIXES:
            write_trace(data, staged)
        else:
            staged.write_text(_table_text(table, output.suffix.lower()), encoding="utf-8")


def _table_text(table: pd.DataFrame, suffix: str) -> str:
    match suffix:
        case ".csv":
            return table.to_csv()
        case ".html":
            from az_cv.display.html import summary_document

            return summary_document(table)
        case ".json":
            return table_json(table) + "\n"
        case _:
            return f"{table}\n"


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
