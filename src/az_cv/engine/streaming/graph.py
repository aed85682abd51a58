"""The work as a dask graph: one task for each segment, sums as a tree."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from az_cv.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from az_cv.engine.streaming.pieces import Segment

FAN_IN = 4  # results that one task of the tree takes


def map_reduce(
    function: Callable[[Any, Segment], Any],
    shared: Mapping[int, Any],
    segments: Sequence[Segment],
    merge: Callable[[list[Any]], Any],
    workers: int,
) -> dict[int, Any]:
    """Apply a function to every segment, and merge what it returns, fold by fold.

    Threads of this process do the work, or the workers of the dask client that is in use.

    Parameters
    ----------
    function : callable
        Of what is shared in the fold, and a segment.
    shared : mapping of fold to object
    segments : sequence of Segment
    merge : callable
        Of a list of results; may change the first of them.
    workers : int
        Threads, where there is no client.

    Returns
    -------
    dict of fold to merged result
    """
    import dask

    client = current_client()
    # Part of the graph, not scattered: what is scattered is lost with the workers that hold it.
    once = {id(thing): dask.delayed(_Opaque(thing), traverse=False) for thing in shared.values()}
    given = {fold: once[id(thing)] for fold, thing in shared.items()}
    leaves: dict[int, list[Any]] = {}
    run = dask.delayed(_run, pure=False)
    for segment in segments:
        leaves.setdefault(segment.fold, []).append(run(function, given[segment.fold], segment))
    join = dask.delayed(_merge, pure=False)
    roots = {}
    for fold, level in leaves.items():
        while len(level) > 1:
            level = [join(merge, level[k : k + FAN_IN]) for k in range(0, len(level), FAN_IN)]
        roots[fold] = level[0]
    options: dict[str, Any] = {} if client is not None else {"num_workers": workers}
    with _one_thread_each(client, workers):
        results = dask.compute(*roots.values(), **options)
    return dict(zip(roots, results))


def in_threads(
    function: Callable[[Any, Segment], Any],
    shared: Mapping[int, Any],
    segments: Sequence[Segment],
    merge: Callable[[list[Any]], Any],
    workers: int,
) -> dict[int, Any]:
    """Do the same in threads of this process, without dask: for arrays in memory."""
    rows = max(len(piece) for segment in segments for piece in segment)
    found = side_by_side(lambda segment: function(shared[segment.fold], segment), segments, rows)
    parts: dict[int, list[Any]] = {}
    for segment, result in zip(segments, found):
        parts.setdefault(segment.fold, []).append(result)
    return {fold: merge(results) for fold, results in parts.items()}


class _Opaque:
    """What dask is not to look into."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __getstate__(self) -> Any:
        return (self.thing,)

    def __setstate__(self, state: Any) -> None:
        (self.thing,) = state


def _run(function: Callable[[Any, Segment], Any], shared: _Opaque, segment: Segment) -> Any:
    return function(shared.thing, segment)


def _merge(merge: Callable[[list[Any]], Any], results: list[Any]) -> Any:
    return merge(results)


def current_client() -> Any:
    """Return the client of dask.distributed that computes in this process, if there is one."""
    try:
        from dask.base import get_scheduler
    except ImportError:  # arrays in memory need no dask
        return None
    found = getattr(get_scheduler(), "__self__", None)
    return found if hasattr(found, "scatter") else None


def _one_thread_each(client: Any, workers: int) -> AbstractContextManager[object]:
    """Leave the processors to dask's threads: BLAS would start as many again for each of them."""
    if client is not None or workers == 1:
        return nullcontext()
    return threadpool_limits(limits=1)
