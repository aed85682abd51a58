"""BLAS and LAPACK without Python's lock, so that threads work side by side.

SciPy's own functions hold the lock while they compute: two threads take as long as one after the
other. The same routines are called here at their addresses, which SciPy publishes for Cython, and
:mod:`ctypes` lets go of the lock. All of them work in place, also on blocks of larger matrices.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n n"]

CLEARED = 256  # columns of a triangle at a time, above whose diagonal zeros are written


def row_products(rows: Float[np.ndarray, "p n"], total: Matrix | None = None) -> Matrix:
    """Return the lower triangle of ``rows rows'``, in Fortran order.

    Parameters
    ----------
    rows : array of shape (p, n)
        In C or in Fortran order.
    total : array of shape (p, p), Fortran order, optional
        The products are added to it, in place.

    Examples
    --------
    >>> row_products(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[ 5.,  0.],
           [11., 25.]])
    """
    p, n = rows.shape
    if not rows.flags.f_contiguous:
        rows = np.ascontiguousarray(rows)
    # To BLAS, an array in C order is the transpose of one in Fortran order.
    transposed, step = (b"N", p) if rows.flags.f_contiguous else (b"T", n)
    if total is None:
        total = np.zeros((p, p), order="F")
    _routine(cython_blas, "dsyrk")(
        b"L", transposed, p, n, 1.0, rows, max(step, 1), 1.0, total, _leading(total)
    )
    return total


def factorise(matrix: Matrix) -> bool:
    """Replace the lower triangle by its Cholesky factor; tell whether there is one.

    What is above the diagonal becomes zero.

    Examples
    --------
    >>> matrix = np.array([[4.0, 9.0], [2.0, 5.0]], order="F")
    >>> factorise(matrix), matrix
    (True, array([[2., 0.],
           [1., 2.]]))
    """
    failed = ctypes.c_int64()
    _routine(cython_lapack, "dpotrf")(b"L", len(matrix), matrix, _leading(matrix), failed)
    for start in range(0, len(matrix), CLEARED):
        end = start + CLEARED
        matrix[:start, start:end] = 0.0
        matrix[start:end, start:end] = np.tril(matrix[start:end, start:end])
    return failed.value == 0


def invert_triangle(lower: Matrix) -> None:
    """Replace a lower triangle by its inverse. What is above the diagonal is not looked at.

    Examples
    --------
    >>> lower = np.array([[2.0, 0.0], [1.0, 4.0]], order="F")
    >>> invert_triangle(lower)
    >>> lower
    array([[ 0.5  ,  0.   ],
           [-0.125,  0.25 ]])
    """
    failed = ctypes.c_int64()
    _routine(cython_lapack, "dtrtri")(b"L", b"N", len(lower), lower, _leading(lower), failed)


def multiply_triangle(
    lower: Matrix,
    columns: Float[np.ndarray, "m r"],
    *,
    side: Literal["left", "right"] = "left",
    transposed: bool = False,
    factor: float = 1.0,
) -> None:
    """Replace columns by their product with a lower triangle, and with a factor.

    Parameters
    ----------
    lower : array of shape (n, n), Fortran order
        What is above the diagonal is not looked at.
    columns : array of shape (m, r), Fortran order
    side : {"left", "right"}
        On which the triangle stands.
    transposed : bool
        The transpose of the triangle multiplies.
    factor : float

    Examples
    --------
    >>> lower = np.array([[1.0, 0.0], [2.0, 3.0]], order="F")
    >>> columns = np.array([[1.0], [1.0]], order="F")
    >>> multiply_triangle(lower, columns, transposed=True)
    >>> columns.ravel()
    array([3., 3.])
    """
    _with_triangle("dtrmm", lower, columns, side, transposed, factor)


def solve_triangle(
    lower: Matrix, columns: Float[np.ndarray, "m r"], *, transposed: bool = False
) -> None:
    """Replace columns by the solution of a lower triangle's equations.

    Parameters
    ----------
    lower : array of shape (m, m), Fortran order
        What is above the diagonal is not looked at.
    columns : array of shape (m, r), Fortran order
    transposed : bool
        The equations are those of the transpose.

    Examples
    --------
    >>> lower = np.array([[1.0, 0.0], [2.0, 3.0]], order="F")
    >>> columns = np.array([[1.0], [5.0]], order="F")
    >>> solve_triangle(lower, columns)
    >>> columns.ravel()
    array([1., 1.])
    """
    _with_triangle("dtrsm", lower, columns, "left", transposed, 1.0)


def _with_triangle(
    name: str, lower: Matrix, columns: np.ndarray, side: str, transposed: bool, factor: float
) -> None:
    m, r = columns.shape
    _routine(cython_blas, name)(
        b"L" if side == "left" else b"R",
        b"L",
        b"T" if transposed else b"N",
        b"N",
        m,
        r,
        factor,
        lower,
        _leading(lower),
        columns,
        _leading(columns),
    )


def _leading(array: Float[np.ndarray, "m r"]) -> int:
    """Return the distance between columns, in numbers; refuse arrays that have another order."""
    rows, columns = array.shape
    step = array.strides[1] // array.itemsize if columns > 1 else max(rows, 1)
    is_columns = rows <= 1 or array.strides[0] == array.itemsize
    if not (array.dtype == np.float64 and is_columns and step >= max(rows, 1)):
        raise TypeError(
            f"Arrays of shape {array.shape}, strides {array.strides} and type {array.dtype} are "
            "not float64 in Fortran order. Pass numpy.asfortranarray of them."
        )
    return step


@cache
def _routine(module: ModuleType, name: str) -> Callable[..., None]:
    """Return a routine that takes numbers, letters and arrays, and hands over their addresses."""
    capsule = module.__pyx_capi__[name]
    signature = _capsule_name(capsule)
    types = re.findall(r"(\w+) \*", signature.decode())
    # Builds of SciPy with integers of 64 bits say so here.
    integer = ctypes.c_int if "int" in types else ctypes.c_int64
    address = _capsule_pointer(capsule, signature)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(types))(address)

    def routine(*arguments: Any) -> None:
        held = [_in_memory(argument, integer) for argument in arguments]
        call(*[pointer for pointer, _ in held])

    return routine


def _in_memory(argument: Any, integer: Any) -> tuple[Any, Any]:
    """Return the address of an argument, and what must live as long as it is used."""
    if isinstance(argument, np.ndarray):
        return argument.ctypes.data, argument
    if isinstance(argument, bytes):
        held: Any = ctypes.c_char(argument)
    elif isinstance(argument, int):
        held = integer(argument)
    elif isinstance(argument, float):
        held = ctypes.c_double(argument)
    else:  # a number that the routine writes
        held = argument
    return ctypes.addressof(held), held


_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.restype, _capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
