"""Traces on disk: netCDF files and Zarr stores, read without running anything they name."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from az_cv.containers.replacing import FileProblemError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TRACE_SUFFIXES = (".nc", ".zarr")
ENGINES = {"Zarr": "zarr", "netCDF": "h5netcdf"}  # and the packages they need
HDF5 = b"\x89HDF\r\n\x1a\n"
# What other files begin with.
OTHER_KINDS = {
    b"CDF": "a netCDF file of the classic format, which has no groups. Save the trace as netCDF-4",
    b"PK\x03\x04": "a zip archive. Unpack it first",
    b"\x1f\x8b": "compressed by gzip. Unpack it first",
    b"{": "JSON",
    b"#": "text. CmdStan's files end in .csv",
}
COMPRESSION = ("zlib", "complevel", "shuffle")
ZARR_METADATA = (".zgroup", ".zarray", ".zmetadata", "zarr.json")
# Codecs that turn bytes into any Python object, running what the bytes say.
UNSAFE_CODECS = ("pickle", "dill", "cloudpickle")


def open_trace(path: str | Path) -> xr.DataTree:
    """Read a netCDF file or a Zarr store into memory.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    DataTree

    Raises
    ------
    FileProblemError
        If there is no such file, or it is damaged, of another kind, or unsafe to read.
    """
    path = Path(path)
    if "://" in str(path) or str(path).startswith(("http:/", "https:/", "s3:/", "gs:/", "ftp:/")):
        raise FileProblemError(f"{path} is an address. Download the file; az_cv opens none itself.")
    kind = _kind(path)
    if importlib.util.find_spec(ENGINES[kind]) is None:
        raise FileProblemError(
            f"{path} needs the package {ENGINES[kind]}: pip install 'az-cv[files]'"
        )
    # xarray warns of stores without a summary of their metadata unless told that there is none.
    is_scattered = (path / ".zgroup").is_file() and not (path / ".zmetadata").is_file()
    options: dict[str, Any] = {"consolidated": False} if is_scattered else {}
    try:
        with xr.open_datatree(path, engine=ENGINES[kind], **options) as tree:
            return tree.load()
    except Exception as error:  # HDF5, blosc, JSON: each library has exceptions of its own
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        raise FileProblemError(
            f"{path} is damaged, or no trace: reading it as {kind} fails ({first_line}). Restore "
            "it from where it came from; an interrupted copy looks like this."
        ) from error


def write_trace(data: xr.DataTree, path: Path) -> None:
    """Write a trace to a new place, and read it back.

    Parameters
    ----------
    data : DataTree
    path : Path
        Ends in ``.nc`` or ``.zarr``.

    Raises
    ------
    FileProblemError
        If what is read back is not what was to be written.
    """
    is_zarr = path.suffix.lower() == ".zarr"
    keep = () if is_zarr else COMPRESSION
    plain = xr.DataTree.from_dict(
        {node.path: _with_encoding(node.to_dataset(inherit=False), keep) for node in data.subtree}
    )
    if is_zarr:
        # Labels have no settled encoding in format 3.
        plain.to_zarr(path, mode="w", zarr_format=2)
    else:
        # In memory first: when the disk is full, HDF5 takes the process with it.
        path.write_bytes(plain.to_netcdf(engine="h5netcdf"))
    changed = different_groups(data, open_trace(path))
    if changed:
        raise FileProblemError(
            f"{path.name} does not read back as it was written, in {', '.join(changed)}. The old "
            "file was left as it was."
        )


def _with_encoding(dataset: xr.Dataset, keep: Sequence[str]) -> xr.Dataset:
    """Return the dataset with these entries of its encoding: others belong to its old file."""
    result = dataset.copy()
    for variable in result.variables.values():
        variable.encoding = {
            key: variable.encoding[key] for key in keep if key in variable.encoding
        }
    result.encoding = {}
    return result


def different_groups(first: xr.DataTree, second: xr.DataTree) -> list[str]:
    """Return the groups whose dimensions, labels or values are not the same in both."""
    groups = {node.path: node.to_dataset() for node in first.subtree}
    others = {node.path: node.to_dataset() for node in second.subtree}
    empty = xr.Dataset()
    return [
        name
        for name in sorted(groups.keys() | others.keys())
        if not _same(groups.get(name, empty), others.get(name, empty))
    ]


def _same(first: xr.Dataset, second: xr.Dataset) -> bool:
    if set(first.variables) != set(second.variables) or dict(first.sizes) != dict(second.sizes):
        return False
    return all(_content(first[name]).equals(_content(second[name])) for name in first.variables)


def _content(variable: xr.DataArray) -> xr.Variable:
    """Return what a variable holds, whatever kind of index or string it is held in."""
    return xr.Variable(variable.dims, np.asarray(variable.values))


def _kind(path: Path) -> str:
    """Tell netCDF from Zarr, and refuse everything else."""
    if not path.exists():
        raise FileProblemError(f"There is no file {path}.")
    if path.is_dir():
        if not any((path / name).is_file() for name in ZARR_METADATA):
            raise FileProblemError(
                f"{path} is a folder and no Zarr store: it has none of {', '.join(ZARR_METADATA)}."
            )
        _refuse_unsafe_codecs(path)
        return "Zarr"
    if not path.is_file():
        raise FileProblemError(f"{path} is no regular file (a pipe or a device), and is not read.")
    try:
        with path.open("rb") as file:
            start = file.read(len(HDF5))
    except OSError as error:
        raise FileProblemError(f"{path} cannot be read: {error.strerror}.") from error
    if start == HDF5:
        return "netCDF"
    if not start:
        raise FileProblemError(f"{path} is empty.")
    for beginning, kind in OTHER_KINDS.items():
        if start.startswith(beginning):
            raise FileProblemError(f"{path} is {kind}.")
    raise FileProblemError(
        f"{path} cannot be read as netCDF: it begins with {start!r}, not as an HDF5 file does. "
        "Traces are netCDF files, Zarr stores, or CmdStan's CSV files."
    )


def _refuse_unsafe_codecs(store: Path) -> None:
    """Refuse arrays whose bytes are Python objects: to read them is to run them."""
    for file in store.rglob("*"):
        if file.name not in ZARR_METADATA or not file.is_file():
            continue
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise FileProblemError(f"{store} is damaged: {file.name} is no JSON.") from error
        unsafe = sorted(set(_codecs(content)) & set(UNSAFE_CODECS))
        if unsafe:
            raise FileProblemError(
                f"{store} is not read: {file.relative_to(store)} stores Python objects "
                f"({', '.join(unsafe)}), and reading them runs what they say."
            )


def _codecs(content: Any) -> Iterator[str]:
    """Return the names of all codecs in Zarr's metadata, of format 2 and 3."""
    if isinstance(content, dict):
        for key in ("id", "name"):
            if isinstance(content.get(key), str):
                yield content[key].lower().removeprefix("numcodecs.")
        for value in content.values():
            yield from _codecs(value)
    elif isinstance(content, list):
        for value in content:
            yield from _codecs(value)
