"""Threads: as many as the user allows linear algebra, and never threads within threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Task = TypeVar("Task")


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def num_threads() -> int:
    """Return how many threads linear algebra may use, one within :func:`run_in_threads`."""
    pools = _controller().select(user_api="blas").info()
    return max((pool["num_threads"] for pool in pools), default=1)


def run_in_threads(function: Callable[[Task], None], tasks: Iterable[Task]) -> None:
    """Call the function on each task, in threads that each have linear algebra on one thread.

    Examples
    --------
    >>> found = []
    >>> run_in_threads(found.append, [3, 1, 2])
    >>> sorted(found)
    [1, 2, 3]
    """
    count = num_threads()
    if count == 1:
        for task in tasks:
            function(task)
        return
    with _controller().limit(limits=1, user_api="blas"), ThreadPoolExecutor(count) as pool:
        for _ in pool.map(function, tasks):
            pass
