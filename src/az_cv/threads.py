"""How many threads work, and how many of them the linear algebra libraries use."""

from __future__ import annotations

import math
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from functools import cache, lru_cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

Item = TypeVar("Item")
Result = TypeVar("Result")
Given = ParamSpec("Given")

FEW = 4
SMALL = 600  # rows of a matrix for which one thread is as fast as two
# Looks at what else is running, and the seconds between them.
LOOKS, BETWEEN = 5, 0.004
# Seconds for which an answer holds.
HOLDS = 2.0
# Ticks of the system's clock, of all processors together, over which stolen time is measured.
ENOUGH_TICKS = 50


def considerate(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """Let a function of draws use :func:`considerate_threads`.

    Its first array has a row for each draw.
    """

    @wraps(method)
    def limited(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        first = next(one for one in (*args, *kwargs.values()) if isinstance(one, np.ndarray))
        with considerate_threads(math.prod(first.shape[:-1])):
            return method(*args, **kwargs)

    return limited


@contextmanager
def considerate_threads(rows: int) -> Iterator[None]:
    """Use no more threads than there are processors that nothing else uses.

    Threads of a matrix product wait busily for each other. Where one of them has no processor, the
    others burn theirs. Matrices with few rows are done before a second thread is of use.

    Parameters
    ----------
    rows : int
        Rows of the matrices.
    """
    free = 1 if rows < SMALL else _free_lately(int(time.monotonic() / HOLDS))
    with ExitStack() as limits:
        for pool in (_numpy_pool(), _scipy_pool()):
            threads = [library.num_threads for library in pool.lib_controllers]
            limits.enter_context(pool.limit(limits=max(min([free, *threads]), 1)))
        yield


@lru_cache(maxsize=1)
def _free_lately(period: int) -> int:
    return free_processors()


def free_processors() -> int:
    """Return how many processors nothing else is using now; all of them where that is unknown."""
    looks = []
    for _ in range(LOOKS):
        looks.append(_running_elsewhere())
        time.sleep(BETWEEN)
    given = _processors() * (1 - _stolen.share())
    return max(round(given - statistics.median(looks)), 1)


class StolenTime:
    """The share of a virtual machine's processor time that its host gives to other machines."""

    def __init__(self) -> None:
        self._before, self._share = self._ticks(), 0.0

    def share(self) -> float:
        """Return the share since it was last measured, zero where the system does not say."""
        now = self._ticks()
        stolen, all_ticks = (new - old for new, old in zip(now, self._before))
        if all_ticks >= ENOUGH_TICKS:
            self._before, self._share = now, stolen / all_ticks
        return self._share

    @staticmethod
    def _ticks() -> tuple[int, int]:
        """Return stolen ticks, and all in which somebody worked or waited to."""
        try:
            line = Path("/proc/stat").read_text().splitlines()[0]
            user, nice, system, _, _, interrupts, soft, stolen = map(int, line.split()[1:9])
        except (OSError, ValueError, IndexError):
            return 0, 0
        return stolen, user + nice + system + interrupts + soft + stolen


_stolen = StolenTime()


def _running_elsewhere() -> int:
    """Return how many threads of other processes run now, zero where the system does not say."""
    try:
        running = int(Path("/proc/loadavg").read_text().split()[3].split("/")[0])
        own = sum(map(_runs, os.listdir("/proc/self/task")))
    except (OSError, ValueError, IndexError):
        return 0
    return max(running - own, 0)


def _runs(thread: str) -> bool:
    """Tell whether one of this process's threads runs now."""
    try:
        stat = Path(f"/proc/self/task/{thread}/stat").read_bytes()
    except FileNotFoundError:  # it has ended
        return False
    return stat.rpartition(b")")[2].split()[0] == b"R"


def _processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def one_thread() -> AbstractContextManager[object]:
    """Use one thread: for many small matrices, at which more would wait for each other."""
    return _pools().limit(limits=1)


def lapack_first() -> AbstractContextManager[object]:
    """Leave the processors to SciPy's LAPACK; NumPy's products run on one thread.

    The wheels of NumPy and SciPy each bring an OpenBLAS, whose threads wait busily for more work:
    two that take turns are in each other's way.
    """
    return _numpy_pool().limit(limits=1)


def side_by_side(
    function: Callable[[Item], Result], items: Sequence[Item], rows: int
) -> list[Result]:
    """Return the result of each item, several at a time, each on a thread of its own.

    The matrices of a search are small: several at once are faster than several threads for each.
    Of those with few rows one at a time is as fast, and takes less of the processors. Results do
    not depend on how many threads there are.

    Parameters
    ----------
    function : callable
    items : sequence
    rows : int
        Rows of their matrices.
    """
    free = [library.num_threads for library in _scipy_pool().lib_controllers]
    workers = min([FEW, len(items), *free])
    with one_thread():
        if workers == 1 or rows < SMALL:
            return [function(item) for item in items]
        # What belongs to the call, its time limit and its notices, is known to its threads.
        contexts = [copy_context() for _ in items]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(lambda own, item: own.run(function, item), contexts, items))


@cache
def _pools() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def _numpy_pool() -> ThreadpoolController:
    return _pools().select(filepath=[path for path in _blas_paths() if _belongs_to_numpy(path)])


@cache
def _scipy_pool() -> ThreadpoolController:
    return _pools().select(filepath=[path for path in _blas_paths() if not _belongs_to_numpy(path)])


def _blas_paths() -> list[str]:
    return [lib.filepath for lib in _pools().lib_controllers if lib.user_api == "blas"]


def _belongs_to_numpy(path: str) -> bool:
    """Tell whether a library lies in NumPy's folder, or in that of the libraries of its wheel."""
    return any(part.split(".")[0] == "numpy" for part in Path(path).parts)
