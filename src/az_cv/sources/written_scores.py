"""Scores of posteriors beyond memory: computed a piece at a time, and written as they come."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS, as_idata, get_group, model_of
from az_cv.containers.replacing import replacing
from az_cv.notices import notify, silenced
from az_cv.sources.dispatch import scores as find_scores
from az_cv.sources.schema import DIMS, DRAW, GRADIENT, LOG_DENSITY, PARAMETER

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = 5000  # draws whose gradients are computed before they are written
DONE = "written"  # the array that says which pieces are there


def write_scores(
    data: Any,
    store: str | os.PathLike[str],
    *,
    model: Any = None,
    rows: int = ROWS,
    progressbar: bool = True,
) -> xr.Dataset:
    """Compute gradients a piece of the draws at a time, and write each to a Zarr store at once.

    A call that was interrupted, or ran out of disk, is made again as it was: pieces that are
    written already are not computed again. `data` is only read. Where dask has a client of
    ``dask.distributed``, its workers compute and write the pieces.

    Parameters
    ----------
    data : InferenceData, DataTree, or what ``arviz_base`` converts
        Holds the group ``posterior``, lazy or not.
    store : str or path
        A folder of the local disk, or of one that all workers see; it is made.
    model : optional
        As in :func:`az_cv.scores`. Workers in other processes need one that can be pickled.
    rows : int
        Draws in a piece, of one chain.
    progressbar : bool
        Show how many pieces are done.

    Returns
    -------
    Dataset
        ``unconstrained_draw`` and ``gradient``, lazy, to be passed as ``scores=``.

    Raises
    ------
    ValueError
        If the store holds the scores of other draws, or draws without a finite score were met.
    OSError
        If the disk is full. What is written already stays, and is used by the next call.
    FileProblemError
        If the store cannot even be begun.
    KeyboardInterrupt
        After Ctrl-C, with the number of pieces that are written.

    See Also
    --------
    az_cv.scores : In memory.
    az_cv.summary : Takes the result as ``scores=``.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, xarray as xr
    >>> from az_cv.sources import write_scores
    >>> x = np.random.default_rng(0).normal(size=(2, 100, 3))
    >>> posterior = xr.Dataset({"x": (("chain", "draw", "k"), x)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = f"{folder}/scores.zarr"
    ...     found = write_scores(
    ...         posterior, store, model=lambda x: -x, rows=50, progressbar=False
    ...     )
    ...     bool((found["gradient"] == -found["unconstrained_draw"]).all())
    True
    """
    if rows < 1:
        raise ValueError(f"rows must be a positive number of draws; it is {rows}.")
    from rich.progress import track

    path = Path(store)
    idata, model = as_idata(data), model_of(data, model)
    posterior = get_group(idata, "posterior").transpose(*SAMPLE_DIMS, ...)
    pieces = list(_pieces(posterior, rows))
    first = _scores_of(_part(posterior, pieces[0]), pieces[0], model)
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        with replacing(path) as staged:  # one that is half made could not be gone on with
            _make(staged, posterior, first, rows)
    _require_same(path, posterior, first, rows)
    missing = _missing(path, pieces)
    try:
        for _ in track(
            _written(path, posterior, missing, model, rows),
            description="Writing gradients",
            total=len(missing),
            transient=True,
            disable=not progressbar or len(missing) < 2,
        ):
            pass
    except (OSError, KeyboardInterrupt) as error:
        done = len(pieces) - len(_missing(path, pieces))
        state = f"after {done} of {len(pieces)} pieces of {path}. The data are untouched."
        again = "call again: the pieces that are written are kept."
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(f"Stopped {state} To go on, {again}") from error
        reason = error.strerror or error
        raise OSError(error.errno, f"{reason} {state} Make room, and {again}") from error
    return xr.open_zarr(path, consolidated=False).drop_vars(DONE)


def _pieces(posterior: xr.Dataset, rows: int) -> Iterator[tuple[int, slice]]:
    chains, draws = (posterior.sizes[dim] for dim in SAMPLE_DIMS)
    for chain in range(chains):
        for start in range(0, draws, rows):
            yield chain, slice(start, min(start + rows, draws))


def _missing(path: Path, pieces: list[tuple[int, slice]]) -> list[tuple[int, slice]]:
    """Return the pieces that are still to be written; pieces lie chain by chain."""
    done = np.asarray(_marks(path)[:]).ravel()
    return [piece for piece, mark in zip(pieces, done) if not mark]


def _marks(path: Path) -> Any:
    import zarr

    return zarr.open_array(str(path), path=DONE, mode="r+", zarr_format=2)


def _part(posterior: xr.Dataset, piece: tuple[int, slice]) -> xr.Dataset:
    chain, draws = piece
    return posterior.isel(chain=[chain], draw=draws)


def _scores_of(part: xr.Dataset, piece: tuple[int, slice], model: Any) -> xr.Dataset:
    """Return the scores of one piece; every draw has to have one."""
    chain, draws = piece
    part = part.compute(scheduler="synchronous")
    tree = xr.DataTree.from_dict({"posterior": part})
    with silenced() as notices:
        found = find_scores(tree, model=model, progressbar=False)
    lost = part.sizes["draw"] - found.sizes["draw"]
    if lost:
        raise ValueError(
            f"{lost} draws of chain {chain}, from draw {draws.start} on, have no finite score. "
            "Leave them out of the data, in every chain."
        )
    for notice in notices:
        notify(*notice)
    return found


def _make(path: Path, posterior: xr.Dataset, first: xr.Dataset, rows: int) -> None:
    """Make the store, its labels and its arrays, with nothing in them yet."""
    import dask.array

    chains, draws, d = (*(posterior.sizes[dim] for dim in SAMPLE_DIMS), first.sizes[PARAMETER])
    shape, chunks = (chains, draws, d), (1, min(rows, draws), d)
    variables: dict[str, tuple[tuple[str, ...], Any]] = {
        name: (DIMS, dask.array.empty(shape, chunks=chunks)) for name in (DRAW, GRADIENT)
    }
    if LOG_DENSITY in first:
        empty = dask.array.empty(shape[:2], chunks=chunks[:2])
        variables[LOG_DENSITY] = (SAMPLE_DIMS, empty)
    labels = {
        dim: posterior[dim].values if dim in posterior.coords else np.arange(posterior.sizes[dim])
        for dim in SAMPLE_DIMS
    }
    attrs = {key: value for key, value in first.attrs.items() if isinstance(value, str | float)}
    whole = xr.Dataset(
        variables, coords={**labels, PARAMETER: first[PARAMETER].values}, attrs=attrs
    )
    # Labels have no settled encoding in format 3.
    whole.to_zarr(path, mode="w", compute=False, zarr_format=2, consolidated=False)
    import zarr

    marks = zarr.open_group(str(path), mode="r+", zarr_format=2).create_array(
        DONE,
        shape=(chains, -(-draws // rows)),
        chunks=(1, 1),
        dtype="i1",
        fill_value=0,
        attributes={"_ARRAY_DIMENSIONS": ["chain", "piece"]},
    )
    marks.attrs.update(_identity(posterior, first, rows))


def _identity(posterior: xr.Dataset, first: xr.Dataset, rows: int) -> dict[str, Any]:
    """Return what tells the draws of one run from those of another."""
    return {
        "sizes": [posterior.sizes[dim] for dim in SAMPLE_DIMS],
        "rows": rows,
        "first": [float(first[name].values.ravel()[0]) for name in (DRAW, GRADIENT)],
    }


def _require_same(path: Path, posterior: xr.Dataset, first: xr.Dataset, rows: int) -> None:
    """Refuse to go on in a store that was begun for something else."""
    try:
        attrs = dict(_marks(path).attrs)
    except (OSError, ValueError):  # no store, or one without marks
        attrs = {}
    wanted = _identity(posterior, first, rows)
    if {key: attrs.get(key) for key in wanted} != wanted:
        raise ValueError(
            f"{path} holds something else than scores of these draws by this model in pieces of "
            f"{rows}. Choose another place, or remove it."
        )


class _Job:
    """One piece to be written. No dataclass, which dask would open and read."""

    def __init__(
        self, path: Path, part: xr.Dataset, piece: tuple[int, slice], model: Any, rows: int
    ) -> None:
        self.path, self.part, self.piece = path, part, piece
        self.model, self.rows = model, rows

    def __call__(self) -> None:
        """Compute and write; the mark comes last, so that a piece is there or is not."""
        chain, draws = self.piece
        found = _scores_of(self.part, self.piece, self.model)
        found = found[[name for name in (DRAW, GRADIENT, LOG_DENSITY) if name in found]]
        found = found.drop_vars(list(found.coords)).drop_attrs()
        region = {"chain": slice(chain, chain + 1), "draw": draws, PARAMETER: slice(None)}
        found.to_zarr(self.path, region=region, consolidated=False)
        _marks(self.path)[chain, draws.start // self.rows] = 1


def _written(
    path: Path, posterior: xr.Dataset, pieces: list[tuple[int, slice]], model: Any, rows: int
) -> Iterator[None]:
    """Write the pieces one after the other, or as the workers of a client are done with them."""
    from az_cv.engine.streaming.graph import current_client

    jobs = [_Job(path, _part(posterior, piece), piece, model, rows) for piece in pieces]
    client = current_client()
    if client is None:
        for job in jobs:
            job()
            yield
        return
    from distributed import as_completed

    for future in as_completed([client.submit(job, pure=False) for job in jobs]):
        future.result()
        yield
