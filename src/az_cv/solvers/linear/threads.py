"""How many threads the linear algebra libraries use."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

FEW = 4
# The number of running tasks flickers: so many looks, so many seconds apart.
LOOKS, PAUSE = 3, 0.001
PROCESSES = Path("/proc")


@contextmanager
def lapack_first() -> Iterator[None]:
    """Leave the free processors to SciPy's LAPACK; NumPy's products run on one thread.

    The wheels of NumPy and SciPy each bring an OpenBLAS, whose threads wait busily for more work:
    two that take turns are in each other's way, and so are those of other programs.
    """
    threads = [library.num_threads for library in _scipy_pool().lib_controllers]
    with _numpy_pool().limit(limits=1):
        with _scipy_pool().limit(limits=min([free_processors(), *threads])):
            yield


def free_processors() -> int:
    """Return how many processors this program may use and nobody else does now, at least one."""
    every = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else every
    return max(1, min(allowed, every - _others_running()))


def _others_running() -> int:
    """Return how many tasks of other programs run or wait for a processor, as far as is known."""
    if not (PROCESSES / "loadavg").exists():
        return 0
    looks = []
    for _ in range(LOOKS):
        # The fourth field: running tasks, a slash, all tasks.
        running = int((PROCESSES / "loadavg").read_text().split()[3].split("/")[0])
        looks.append(running - _own_running())
        time.sleep(PAUSE)
    return max(0, int(median(looks)))


def _own_running() -> int:
    """Return how many threads of this program run; those of a library may wait busily."""
    states = []
    for task in (PROCESSES / "self" / "task").iterdir():
        with suppress(OSError):  # a thread that has ended meanwhile
            # The state follows the name, which is in brackets and may hold anything.
            states.append((task / "stat").read_text().rpartition(")")[2].split()[0])
    return states.count("R")


def few_threads() -> AbstractContextManager[object]:
    """Use no more than a few threads: on matrices of a search many are slower."""
    threads = [library.num_threads for library in _scipy_pool().lib_controllers]
    return _scipy_pool().limit(limits=min([FEW, *threads]))


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
