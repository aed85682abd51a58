"""How many threads the linear algebra libraries use."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

FEW = 4


def lapack_first() -> AbstractContextManager[object]:
    """Leave the processors to SciPy's LAPACK; NumPy's products run on one thread.

    The wheels of NumPy and SciPy each bring an OpenBLAS, whose threads wait busily for more work:
    two that take turns are in each other's way.
    """
    return _numpy_pool().limit(limits=1)


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
