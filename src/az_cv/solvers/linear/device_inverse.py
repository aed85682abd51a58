"""Kernel systems on a graphics card, in double precision.

A matrix is made there, factorised there and stays there; vectors and small blocks come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float, Int


@dataclass(frozen=True)
class DeviceInverse:
    """The inverse of a kernel matrix on a device, as that of its lower Cholesky factor.

    Attributes
    ----------
    factor : jax.Array of shape (n, n)
        Inverse of the lower Cholesky factor.
    log_determinant : float
        The logarithm of the determinant of the matrix.
    norms : jax.Array of shape (n,)
        Squared norms of the columns of `factor`.
    """

    factor: Any
    log_determinant: float
    norms: Any

    @cached_property
    def diagonal(self) -> Float[np.ndarray, " n"]:
        """The diagonal of the inverse."""
        return np.asarray(self.norms)

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return int(self.factor.nbytes)

    def solve(self, columns: Float[np.ndarray, "n r"]) -> Float[np.ndarray, "n r"]:
        """Return the inverse times columns."""
        import jax

        with jax.enable_x64(True):
            return np.asarray(_compiled().solve(self.factor, columns))

    def blocks(self, rows: Int[np.ndarray, "m b"]) -> Float[np.ndarray, "m b b"]:
        """Return the blocks of the inverse that belong to each set of rows."""
        import jax

        count, size = rows.shape
        # As many at a time as have one column for each draw; always so many, for one compilation.
        together = max(len(self.factor) // size, 1)
        padded = np.resize(rows, (-(-count // together) * together, size))
        with jax.enable_x64(True):
            parts = [
                np.asarray(_compiled().blocks(self.factor, padded[k : k + together]))
                for k in range(0, len(padded), together)
            ]
        return np.concatenate(parts)[:count]


def invert_on_device(matrix: Any, ridge: float) -> DeviceInverse | None:
    """Return the inverse of a matrix with a ridge, ``None`` if it is singular.

    Parameters
    ----------
    matrix : jax.Array of shape (n, n)
    ridge : float
        Relative to the mean diagonal.
    """
    import jax

    with jax.enable_x64(True):
        factor, norms, log_determinant = _compiled().invert(matrix, ridge)
        if not np.isfinite(log_determinant):
            return None
        return DeviceInverse(factor, float(log_determinant), norms)


@dataclass(frozen=True)
class _Compiled:
    invert: Callable[..., Any]
    solve: Callable[..., Any]
    blocks: Callable[..., Any]


@cache
def _compiled() -> _Compiled:
    """Return what runs on the device, compiled for each size once."""
    import jax
    import jax.numpy as jnp

    def invert(matrix: Any, ridge: Any) -> Any:
        added = ridge * jnp.diagonal(matrix).mean()
        factor = jnp.linalg.cholesky(matrix + added * jnp.eye(len(matrix)))
        inverse = jax.scipy.linalg.solve_triangular(factor, jnp.eye(len(matrix)), lower=True)
        log_determinant = 2 * jnp.log(jnp.diagonal(factor)).sum()
        return inverse, (inverse**2).sum(axis=0), log_determinant

    def solve(factor: Any, columns: Any) -> Any:
        return factor.T @ (factor @ columns)

    def blocks(factor: Any, rows: Any) -> Any:
        columns = jnp.moveaxis(factor[:, rows], 0, 2)
        return columns @ jnp.swapaxes(columns, 1, 2)

    return _Compiled(jax.jit(invert), jax.jit(solve), jax.jit(blocks))
