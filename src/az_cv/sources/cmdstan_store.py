"""CmdStan's CSV files as a Zarr store, converted a piece of the draws at a time."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS
from az_cv.containers.replacing import replacing
from az_cv.sources.cmdstan_files import (
    RouteUnavailableError,
    announced_rows,
    diagnostic_file,
    draw_files,
    num_unconstrained,
)
from az_cv.sources.schema import DIMS, DRAW, GRADIENT, PARAMETER
from az_cv.sources.stan_draws import label_parameters, parse_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from jaxtyping import Float

logger = logging.getLogger(__name__)

PIECE = 2**25  # bytes of the numbers that are in memory at a time
# What ArviZ calls the columns of the sampler, and their types.
STATISTICS = {
    "accept_stat__": "acceptance_rate",
    "stepsize__": "step_size",
    "treedepth__": "tree_depth",
    "n_leapfrog__": "n_steps",
    "divergent__": "diverging",
}
TYPES = {"treedepth__": np.int64, "n_leapfrog__": np.int64, "divergent__": np.bool_}


def cmdstan_to_zarr(
    files: Sequence[str | PathLike[str]], store: str | PathLike[str], *, rows: int | None = None
) -> xr.DataTree:
    """Convert the CSV files of a CmdStan run to a Zarr store that need not fit in memory.

    The files are read a piece of the draws at a time. Gradients come along where the run has
    diagnostic files (``save_latent_dynamics=True``). The store takes its name when it is complete:
    after Ctrl-C or a full disk there is none, and the same call begins anew.

    Parameters
    ----------
    files : sequence of paths
        One per chain. Diagnostic files among them are skipped: they are found through the header
        of the others.
    store : str or path
        A folder that does not exist yet.
    rows : int, optional
        Draws in a piece, which is a chunk of the store. Defaults to what takes 32 MB.

    Returns
    -------
    DataTree
        With the groups ``posterior`` and ``sample_stats``, named as ArviZ names them, and
        ``cv_scores`` where there are gradients. All of it is lazy.

    Raises
    ------
    ValueError
        If a file is no file of draws, or damaged, or belongs to another run.
    FileExistsError
        If there is something at `store`.
    FileProblemError
        If the store cannot be written; what is wrong with the disk is said.

    See Also
    --------
    write_scores : Gradients of a model, for runs without diagnostic files.
    read_cmdstan_scores : In memory.

    Examples
    --------
    The complete path from files to a table:

    >>> import az_cv
    >>> files = ["output_1.csv", "output_2.csv"]
    >>> data = az_cv.sources.cmdstan_to_zarr(files, "run.zarr")  # doctest: +SKIP
    >>> az_cv.summary(data, memory_limit="2GB")  # doctest: +SKIP
    """
    path = Path(store)
    if path.exists():
        raise FileExistsError(f"There is something at {path}. Choose another place, or remove it.")
    if rows is not None and rows < 1:
        raise ValueError(f"rows must be a positive number of draws; it is {rows}.")
    runs = [_run_of(file) for file in draw_files(files)]
    _require_alike(runs)
    with replacing(path) as staged:
        _write_draws(runs, staged, rows)
        _write_scores(runs, staged, rows)
    return xr.open_datatree(path, engine="zarr", chunks={}, consolidated=False)


@dataclass(frozen=True)
class Run:
    """One file of draws, or of diagnostics.

    Attributes
    ----------
    path : str
    names : list of str
        Of the columns.
    warmup, draws : int
        Rows that are left out, and those after them.
    """

    path: str
    names: list[str]
    warmup: int
    draws: int

    def rows(self, given: int | None) -> int:
        """Return how many rows are read at a time."""
        return min(given or max(1, PIECE // (8 * len(self.names))), self.draws)

    def blocks(self, rows: int) -> Iterator[Float[np.ndarray, "n p"]]:
        """Read the draws after warm-up, some rows at a time."""
        read = 0
        with open(self.path, encoding="utf-8") as file:
            # Comments lie before the names, between warm-up and draws, and at the end.
            written = (line for line in file if line[0] not in "#\n")
            lines = islice(written, 1 + self.warmup, None)
            while block := list(islice(lines, rows)):
                try:
                    values = np.loadtxt(block, delimiter=",", comments=None, ndmin=2)
                    if values.shape[1] != len(self.names):
                        raise ValueError(f"{values.shape[1]} columns")
                except ValueError as error:
                    raise ValueError(
                        f"{self.path} is damaged after draw {read} of {self.draws}, where "
                        f"{len(self.names)} columns are expected: {error}. The run was "
                        "interrupted, or the copy of the file. Leave it out."
                    ) from error
                read += len(values)
                if read > self.draws:
                    break
                yield values
        if read != self.draws:
            raise ValueError(
                f"{self.path} has {'more' if read > self.draws else read} draws where "
                f"{self.draws} are announced: the run was interrupted, or the copy of the file. "
                "Leave it out, or sample that chain again."
            )


def _run_of(path: str) -> Run:
    warmup, draws = announced_rows(path)
    if not draws:
        raise ValueError(
            f"The comments of {path} do not say how many draws it has (num_samples). Pass the file "
            "as CmdStan wrote it."
        )
    return Run(path, _names(path), warmup, draws)


def _names(path: str | Path) -> list[str]:
    with open(path, encoding="utf-8") as file:
        return next(line for line in file if line[0] not in "#\n").strip().split(",")


def _require_alike(runs: list[Run]) -> None:
    first = runs[0]
    for run in runs[1:]:
        if (run.names, run.draws) != (first.names, first.draws):
            raise ValueError(
                f"{first.path} has {first.draws} draws of {len(first.names)} columns and "
                f"{run.path} {run.draws} of {len(run.names)}, or others. Pass the chains of one "
                "run."
            )


def _write_draws(runs: list[Run], store: Path, given: int | None) -> None:
    """Write the groups ``posterior`` and ``sample_stats``."""
    names = runs[0].names
    inner = np.array([not name.endswith("__") for name in names])
    variables = parse_names([name for name in names if not name.endswith("__")])
    shapes = {v.name: (v.shape, complex if v.is_complex else float) for v in variables}
    statistics = [(k, name) for k, name in enumerate(names) if name.endswith("__")]
    kinds = {_statistic(name): ((), TYPES.get(name, float)) for _, name in statistics}
    rows = runs[0].rows(given)
    posterior = _make(store, "posterior", shapes, runs, rows)
    stats = _make(store, "sample_stats", kinds, runs, rows)
    for chain, run in enumerate(runs):
        for block, start in zip(run.blocks(rows), range(0, run.draws, rows)):
            place = (chain, slice(start, start + len(block)))
            flat = block[:, inner]
            for variable in variables:
                values = flat[:, variable.positions]
                if variable.is_complex:
                    values = values[..., 0] + 1j * values[..., 1]
                posterior[variable.name][place] = values
            for k, name in statistics:
                stats[_statistic(name)][place] = block[:, k].astype(TYPES.get(name, float))


def _write_scores(runs: list[Run], store: Path, given: int | None) -> None:
    """Write the group ``cv_scores``, if there are gradients."""
    try:
        found = [diagnostic_file(run.path) for run in runs]
    except RouteUnavailableError as reason:
        logger.info("There are no gradients beside the draws: %s", reason)
        return
    told = [
        Run(os.fspath(file), _names(file), run.warmup, run.draws) for file, run in zip(found, runs)
    ]
    _require_alike(told)
    names = told[0].names
    size = num_unconstrained(names)
    points = slice(len(names) - 3 * size, len(names) - 2 * size)
    rows = runs[0].rows(given)
    arrays: Any = None
    for chain, (run, own) in enumerate(zip(told, runs)):
        starts = range(0, run.draws, rows)
        for block, draws, start in zip(run.blocks(rows), own.blocks(rows), starts):
            log_densities = block[:, names.index("lp__")], draws[:, own.names.index("lp__")]
            if not np.allclose(*log_densities, rtol=1e-5, equal_nan=True):
                raise ValueError(
                    f"{run.path} belongs to another run than {own.path}: its lp__ differs. Remove "
                    "it, or pass the files of one run."
                )
            if arrays is None:
                labels = _labels(draws, own.names, block[:, points], names[points])
                arrays = _make_scores(store, labels, runs, rows)
            place = (chain, slice(start, start + len(block)))
            arrays[DRAW][place] = block[:, points]
            # Point, momentum, gradient: of the potential, minus the log density.
            arrays[GRADIENT][place] = -block[:, -size:]


def _statistic(name: str) -> str:
    return STATISTICS.get(name, name.removesuffix("__"))


def _labels(
    draws: np.ndarray, names: list[str], points: np.ndarray, unconstrained: list[str]
) -> list[str]:
    kept = [k for k, name in enumerate(names) if not name.endswith("__")]
    return label_parameters(
        draws[None][..., kept], [names[k] for k in kept], points[None], unconstrained
    )


def _make(
    store: Path, group: str, variables: dict[str, tuple[Any, Any]], runs: list[Run], rows: int
) -> Any:
    """Make a group of the store, with labels and without values."""
    import dask.array

    sizes, chunks = (len(runs), runs[0].draws), (1, rows)
    arrays: dict[str, Any] = {}
    coords: dict[str, Any] = {dim: np.arange(n) for dim, n in zip(SAMPLE_DIMS, sizes)}
    for name, (shape, dtype) in variables.items():
        dims = [f"{name}_dim_{k}" for k in range(len(shape))]
        coords |= {dim: np.arange(n) for dim, n in zip(dims, shape)}
        empty = dask.array.empty((*sizes, *shape), dtype=dtype, chunks=(*chunks, *shape))
        arrays[name] = ((*SAMPLE_DIMS, *dims), empty)
    return _written(xr.Dataset(arrays, coords), store, group)


def _make_scores(store: Path, labels: list[str], runs: list[Run], rows: int) -> Any:
    import dask.array

    shape = (len(runs), runs[0].draws, len(labels))
    empty = dask.array.empty(shape, chunks=(1, rows, len(labels)))
    coords = dict(zip(SAMPLE_DIMS, map(np.arange, shape[:2])))
    attrs = {"source": "CmdStan's diagnostic files", "gradients": "sampler", "dropped_draws": 0}
    whole = xr.Dataset(
        {name: (DIMS, empty) for name in (DRAW, GRADIENT)}, {**coords, PARAMETER: labels}, attrs
    )
    return _written(whole, store, "cv_scores")


def _written(whole: xr.Dataset, store: Path, group: str) -> Any:
    """Write what is known of a group; return its arrays, to be filled."""
    import zarr

    # Labels have no settled encoding in format 3.
    whole.to_zarr(store, group=group, mode="a", compute=False, zarr_format=2, consolidated=False)
    return zarr.open_group(str(store), path=group, mode="r+", zarr_format=2)
