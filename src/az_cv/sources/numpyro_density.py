"""The log density of a NumPyro model with every constant, at any point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.notices import notify
from az_cv.sources.batches import Compiled, compiled_at_first_use, jax_compile, jax_map_chunks
from az_cv.sources.numpyro_mcmc import (
    latent_sites,
    model_and_arguments,
    potential_function,
    sampled_draws,
    site_functions,
    sites_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpyro
    from jaxtyping import Float

    from az_cv.containers.idata import Idata


def numpyro_log_density(
    mcmc: numpyro.infer.MCMC, data: Idata | None = None
) -> Callable[[Float[np.ndarray, "n d"]], Float[np.ndarray, " n"]]:
    """Return the joint log density of a NumPyro model at unconstrained points, with all constants.

    Parameters
    ----------
    mcmc : numpyro.infer.MCMC
    data : DataTree or InferenceData, optional

    Returns
    -------
    callable
        Maps points, in the order of :func:`numpyro_scores`, to log densities with Jacobian.

    Raises
    ------
    ValueError
        If a prior is improper, or discrete sites are among the draws.
    """
    import jax

    model, arguments, keywords = model_and_arguments(mcmc)
    draws, _ = sampled_draws(mcmc, data)
    sites = sites_of(model, arguments, keywords, draws)
    continuous, discrete = latent_sites(sites)
    if fixed := [name for name in discrete if name in draws]:
        raise ValueError(
            f"The sites {fixed} are discrete and were sampled, and the evidence sums over all "
            "their values. Enumerate them: numpyro.sample(..., infer={'enumerate': 'parallel'})."
        )
    _require_proper(sites)
    unconstrain, _ = site_functions(
        model, arguments, keywords, continuous, [], enumerate_discrete=bool(discrete)
    )
    values = jax_map_chunks(unconstrain, [draws[name][0, :1].astype(float) for name in continuous])
    shapes = [value.shape[1:] for value in values]
    sizes = [int(np.prod(shape)) for shape in shapes]
    potential = potential_function(model, arguments, keywords, enumerate_discrete=bool(discrete))

    def compile_for(rows: Sequence[np.ndarray]) -> Compiled:
        # Arrays the model closes over may have single precision, see `_evaluate`.
        for float64 in (True, False):
            try:
                return jax_compile(
                    lambda *row: [-potential(dict(zip(continuous, row)), {})], rows, float64=float64
                )
            except (TypeError, jax.errors.JaxRuntimeError) as err:
                if not float64 or not ("64" in str(err) and "32" in str(err)):
                    raise
        raise RuntimeError("The potential energy was not compiled.")

    evaluate_all = compiled_at_first_use(compile_for)

    def log_density(points: np.ndarray) -> np.ndarray:
        blocks = np.split(points, np.cumsum(sizes)[:-1], axis=1)
        rows = [block.reshape(len(points), *shape) for block, shape in zip(blocks, shapes)]
        return evaluate_all(rows)[0].astype(float)

    return log_density


def _require_proper(sites: dict[str, Any]) -> None:
    """Refuse improper priors; tell of factors, which may be anything."""
    from numpyro.distributions import ImproperUniform, Unit

    kinds: dict[str, Any] = {}
    for name, site in sites.items():
        kind = site.get("fn")
        while hasattr(kind, "base_dist") and not isinstance(kind, ImproperUniform | Unit):
            kind = kind.base_dist
        kinds[name] = kind
    improper = [name for name, kind in kinds.items() if isinstance(kind, ImproperUniform)]
    if improper:
        raise ValueError(
            f"The priors of {improper} are improper: they integrate to infinity, and the evidence "
            "is defined up to an arbitrary factor. Give them proper priors."
        )
    factors = [name for name, kind in kinds.items() if isinstance(kind, Unit)]
    if factors:
        notify(
            f"The factors {factors} count as they are: the evidence is right if they are "
            "normalised log densities of data, or of parameters."
        )
