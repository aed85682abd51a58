"""Draws of Gaussians at a posterior's mode, for models that were never sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from az_cv.containers.idata import is_instance
from az_cv.engine.near_mode import draws_near_mode
from az_cv.sources.batches import jax_float64
from az_cv.sources.proposed import as_tree, scores_at, split

if TYPE_CHECKING:
    from collections.abc import Callable

CHAINS = 4  # the draws are independent; what reads them expects chains


def laplace_draws(
    model: Any, *, start: Any = None, num_draws: int = 1000, random_seed: int = 0
) -> xr.DataTree:
    """Draw from the Gaussian at the mode of a posterior, or from Gaussians along a scale.

    Where less than half of the draws of the Gaussian are effective, as in hierarchies, one
    coordinate is tabulated on a grid, and the others are Gaussian given this one; its draws are
    returned if more of them are effective.

    Parameters
    ----------
    model : callable or pymc.Model
        A callable is a JAX log density of unconstrained parameters.
    start : array, or dict of arrays
        One point, where the search for the mode begins. It also shows the form in which a callable
        takes its argument. PyMC models have their own.
    num_draws : int
    random_seed : int

    Returns
    -------
    DataTree
        ``posterior`` with the draws, on the scale of the model; ``sample_stats`` with
        ``log_proposal``, the log density of their proposal on the unconstrained scale; and
        ``cv_scores`` with the log density of the posterior there and its gradients. Those of a
        hierarchy are in the coordinates of the proposal, in which it is all but standard normal.

    Raises
    ------
    TypeError, ValueError
        If there is no start, or no mode.

    See Also
    --------
    az_cv.quick : Draws and summarises in one call.
    az_cv.sources.pathfinder_draws : Draws of BlackJAX's Pathfinder.

    Examples
    --------
    >>> import numpy as np
    >>> from az_cv.sources import laplace_draws
    >>> def log_density(x):
    ...     return -0.5 * (x**2).sum()
    >>> tree = laplace_draws(log_density, start=np.ones(2), num_draws=20)
    >>> dict(tree["posterior"].sizes)
    {'chain': 4, 'draw': 5, 'x_dim_0': 2}
    """
    if num_draws < CHAINS or num_draws % CHAINS:
        raise ValueError(f"num_draws must be a multiple of {CHAINS}; it is {num_draws}.")
    rng = np.random.default_rng(random_seed)
    if is_instance(model, "pymc", "Model"):
        from az_cv.sources.pymc_laplace import pymc_laplace

        return pymc_laplace(model, rng, CHAINS, num_draws // CHAINS)
    if not callable(model):
        raise TypeError(
            f"model must be a JAX log density or a pymc.Model; it is {type(model).__name__}."
        )
    if start is None:
        raise TypeError(
            "A log density does not tell its parameters: pass start=, an array or a dict of arrays."
        )
    shapes = (
        {str(name): np.shape(value) for name, value in start.items()}
        if isinstance(start, dict)
        else {"x": np.shape(start)}
    )
    parts = start.values() if isinstance(start, dict) else [start]
    flat = np.concatenate([np.ravel(np.asarray(part, dtype=float)) for part in parts])
    density = _vectorised(model, shapes, is_vector=not isinstance(start, dict))
    drawn = draws_near_mode(density, flat, rng, CHAINS, num_draws // CHAINS)
    tree = as_tree(split(drawn.x, shapes), drawn.log_proposal, {"inference_library": "az_cv"})
    tree["cv_scores"] = xr.DataTree(scores_at(drawn, density, shapes, "log_density"))
    return tree


def _vectorised(
    function: Callable, shapes: dict[str, tuple[int, ...]], *, is_vector: bool
) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return log densities and gradients at many points that lie side by side."""
    import jax
    import jax.numpy as jnp

    sizes = np.cumsum([int(np.prod(shape, dtype=int)) for shape in shapes.values()])[:-1]

    def at(x: Any) -> Any:
        if is_vector:
            return function(x.reshape(next(iter(shapes.values()))))
        parts = jnp.split(x, sizes)
        return function(
            {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts)}
        )

    compiled = jax.jit(jax.vmap(jax.value_and_grad(at)))

    def density(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # Every other number of points is compiled anew: let there be few of them.
        padded = np.concatenate([points, points[[-1] * (_power_of_two(len(points)) - len(points))]])
        with jax_float64():
            value, gradient = (np.asarray(part, dtype=float) for part in compiled(padded))
        return value[: len(points)], gradient[: len(points)]

    return density


def _power_of_two(number: int) -> int:
    """Return the smallest power of two that is not smaller."""
    return 1 << (number - 1).bit_length()
