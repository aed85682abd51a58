"""Stein operators: maps from functions to functions with posterior mean zero.

With ``s(x) = grad log pi(x)`` the score of the target,

* the first-order (Langevin) operator takes a vector field: ``L u = div(u) + u . s``;
* the second-order (scalar Langevin) one takes a potential: ``L u = laplacian(u) + grad(u) . s``.

Both satisfy ``Pi[L u] = 0`` for smooth `u` of moderate growth. Closed-form families hand over the
derivatives they know; any differentiable JAX function goes through automatic differentiation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

OPERATORS = ("langevin", "scalar_langevin")


def langevin(field: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Turn a JAX vector field into its image under the first-order operator.

    Parameters
    ----------
    field : callable
        Maps a point of shape (d,) to (d,), or to (q, d) for q fields at once.

    Returns
    -------
    callable
        Maps draws (n, d) and scores (n, d) to (n,), or to (n, q).

    Examples
    --------
    >>> import numpy as np
    >>> control_variate = langevin(lambda x: x**2)
    >>> float(control_variate(np.ones((1, 2)), -np.ones((1, 2)))[0])
    2.0
    """
    import jax
    import jax.numpy as jnp

    def at_point(x: Any, score: Any) -> Any:
        divergence = jnp.trace(jax.jacfwd(field)(x), axis1=-2, axis2=-1)
        return divergence + field(x) @ score

    return jax.vmap(at_point)


def scalar_langevin(potential: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Turn a JAX potential into its image under the second-order operator.

    Parameters
    ----------
    potential : callable
        Maps a point of shape (d,) to a scalar, or to (q,) for q potentials at once. It must be
        twice differentiable: ReLU networks are not, and their images do not average to zero.

    Returns
    -------
    callable
        Maps draws (n, d) and scores (n, d) to (n,), or to (n, q).

    Examples
    --------
    >>> import numpy as np
    >>> control_variate = scalar_langevin(lambda x: (x**2).sum())
    >>> float(control_variate(np.ones((1, 2)), -np.ones((1, 2)))[0])
    0.0
    """
    import jax
    import jax.numpy as jnp

    def at_point(x: Any, score: Any) -> Any:
        laplacian = jnp.trace(jax.hessian(potential)(x), axis1=-2, axis2=-1)
        return laplacian + jax.jacfwd(potential)(x) @ score

    return jax.vmap(at_point)
