"""Draws of BlackJAX's Pathfinder, with the log density of the approximation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.sources.batches import jax_float64
from az_cv.sources.proposed import as_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr

CHAINS = 4  # the draws are independent; what reads them expects chains


def pathfinder_draws(
    log_density: Callable[[Any], Any],
    start: Any,
    *,
    num_draws: int = 1000,
    random_seed: int = 0,
) -> xr.DataTree:
    """Run BlackJAX's Pathfinder on a log density, and draw from what it found.

    Parameters
    ----------
    log_density : callable
        JAX log density of unconstrained parameters: of a vector, or a dict of arrays.
    start : array, or dict of arrays
        One point.
    num_draws : int
    random_seed : int

    Returns
    -------
    DataTree
        ``posterior``, and ``sample_stats`` with ``log_proposal``; for
        ``az_cv.summary(..., model=log_density, log_weights="psis")``.

    Raises
    ------
    ImportError
        If BlackJAX is not installed.

    See Also
    --------
    az_cv.sources.laplace_draws : Draws from the Gaussian at the mode.
    az_cv.summary : Takes the draws, with ``log_weights="psis"``.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np
    >>> import az_cv
    >>> def log_gamma(x):  # logarithms of gamma variables with shapes 9 and 16
    ...     return (jnp.array([9.0, 16.0]) * x - jnp.exp(x)).sum()
    >>> data = az_cv.sources.pathfinder_draws(log_gamma, np.zeros(2))  # doctest: +SKIP
    >>> print(az_cv.summary(data, model=log_gamma, log_weights="psis"))  # doctest: +SKIP
    """
    try:
        from blackjax.vi import pathfinder
    except ImportError as err:
        raise ImportError("Pathfinder needs BlackJAX: pip install blackjax") from err
    import jax

    if num_draws < CHAINS or num_draws % CHAINS:
        raise ValueError(f"num_draws must be a multiple of {CHAINS}; it is {num_draws}.")
    shape = (CHAINS, num_draws // CHAINS)
    with jax_float64():
        search, sampling = jax.random.split(jax.random.key(random_seed))
        begin = jax.tree.map(lambda leaf: jax.numpy.asarray(leaf, dtype=float), start)
        state, _ = pathfinder.approximate(search, log_density, begin)
        points, log_proposal = pathfinder.sample(sampling, state, num_draws)
    named = points if isinstance(points, dict) else {"x": points}
    variables = {
        str(name): np.asarray(values, dtype=float).reshape(*shape, *values.shape[1:])
        for name, values in named.items()
    }
    density = np.asarray(log_proposal, dtype=float).reshape(shape)
    return as_tree(variables, density, {"inference_library": "blackjax"})
