"""Scores of NumPyro models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from az_cv.containers.idata import SAMPLE_DIMS, Idata, as_idata, get_group
from az_cv.notices import notify
from az_cv.sources.batches import (
    jax_compile,
    jax_float64,
    jax_map_chunks,
    map_chunks,
)
from az_cv.sources.edges import edge_attrs, find_edges
from az_cv.sources.finite import drop_non_finite
from az_cv.sources.layout import flatten_variables
from az_cv.sources.schema import scores_dataset

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpyro.infer
    import xarray as xr


def numpyro_scores(
    mcmc: numpyro.infer.MCMC, data: Idata | None = None, *, progressbar: bool = True
) -> xr.Dataset:
    """Evaluate log-density gradients of a NumPyro model at its posterior draws.

    Costs one gradient evaluation per draw, in double precision even if the draws have single
    precision. Discrete sites among the draws are held fixed; those that the sampler enumerated are
    summed over.

    Parameters
    ----------
    mcmc : numpyro.infer.MCMC
        After ``run``; knows the model and the arguments it was run with.
    data : DataTree or InferenceData, optional
        Holds ``posterior`` with the draws to use, such as ``arviz_base.from_numpyro(mcmc)``.
        Defaults to all draws of `mcmc`.
    progressbar : bool, default True
        Show a progress bar while evaluating gradients.

    Returns
    -------
    Dataset
        ``unconstrained_draw`` and ``gradient``, see :mod:`az_cv.sources.schema`.

    Warns
    -----
    NonFiniteScoresWarning
        If draws on the boundary of their support had to be left out.

    Raises
    ------
    ValueError
        If `mcmc` has not run or has no model, if the model subsamples its data, or if `data` lacks
        one of its sites.
    """
    model, arguments, keywords = model_and_arguments(mcmc)
    draws, coords = sampled_draws(mcmc, data)
    return site_scores(model, arguments, keywords, draws, coords, progressbar=progressbar)


def site_scores(
    model: Callable,
    arguments: tuple,
    keywords: dict,
    draws: dict[str, np.ndarray],
    coords: dict[str, np.ndarray],
    *,
    progressbar: bool,
) -> xr.Dataset:
    """Evaluate log-density gradients of a NumPyro model at draws of its sites.

    Parameters
    ----------
    model : callable
    arguments, keywords : tuple and dict
        What the model takes.
    draws : dict of str to array of shape (chain, draw, ...)
        Draws by site.
    coords : dict
        Labels of chain and draw; empty for 0, 1, ...
    progressbar : bool
    """
    continuous, discrete = latent_sites(sites_of(model, arguments, keywords, draws))
    if missing := [name for name in continuous if name not in draws]:
        raise ValueError(
            f"The posterior lacks {missing}, latent sites of the model. It has {list(draws)}."
        )
    fixed = [name for name in discrete if name in draws]
    functions = site_functions(
        model, arguments, keywords, continuous, fixed, enumerate_discrete=fixed != discrete
    )
    rows = []
    for name in [*continuous, *fixed]:
        row = draws[name].reshape(-1, *draws[name].shape[2:])
        rows.append(row if name in fixed else row.astype(float))
    shape = draws[continuous[0]].shape[:2]
    found = _evaluate(functions, rows, len(continuous), progressbar)
    unconstrained, labels = flatten_variables(dict(zip(continuous, found.positions)), sample_ndim=1)
    gradient, _ = flatten_variables(dict(zip(continuous, found.gradients)), sample_ndim=1)
    finite = np.flatnonzero(np.isfinite(unconstrained).all(axis=1) & np.isfinite(found.log_density))
    edges = find_edges(
        unconstrained[finite],
        lambda points, at: found.density_at(points, finite[at]),
        labels,
    )
    return drop_non_finite(
        scores_dataset(
            unconstrained.reshape(*shape, -1),
            gradient.reshape(*shape, -1),
            # Steps that update discrete sites come after the potential energy was stored.
            log_density=None if fixed else found.log_density.reshape(shape),
            parameter_names=labels,
            coords=coords,
            attrs={"source": "numpyro", **edge_attrs(edges)},
        )
    )


def model_and_arguments(mcmc: numpyro.infer.MCMC) -> tuple[Callable, tuple, dict]:
    """Return the model of a run, and copies of what it was run with."""
    model = getattr(mcmc.sampler, "model", None)
    if model is None:
        raise ValueError(
            f"{type(mcmc.sampler).__name__} was built from a potential function, not a model. "
            "Use az_cv.sources.log_density_scores(draws, log_density=...) with the draws on the "
            "scale of that function."
        )
    arguments, keywords = getattr(mcmc, "_args", None), getattr(mcmc, "_kwargs", None)
    if arguments is None or mcmc.last_state is None:
        raise ValueError("mcmc has no draws yet. Call mcmc.run(...) first.")
    # After a run in single precision, JAX takes the NumPy arrays it met for single precision ones,
    # whatever the context, but knows nothing of their copies.
    return model, _copy_arrays(arguments), _copy_arrays(keywords)


def sampled_draws(
    mcmc: numpyro.infer.MCMC, data: Idata | None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the draws by site, with leading dimensions chain and draw, and their coordinates."""
    if data is None:
        samples = mcmc.get_samples(group_by_chain=True)
        return {name: np.asarray(values) for name, values in samples.items()}, {}
    posterior = get_group(as_idata(data), "posterior").transpose(*SAMPLE_DIMS, ...)
    draws = {str(name): array.values for name, array in posterior.data_vars.items()}
    return draws, {dim: posterior[dim].values for dim in SAMPLE_DIMS}


class Evaluated(NamedTuple):
    """Log density and gradients at all draws, by site, and the log density elsewhere."""

    log_density: np.ndarray
    positions: list[np.ndarray]
    gradients: list[np.ndarray]
    density_at: Callable[[np.ndarray, np.ndarray], np.ndarray]


def _evaluate(
    functions: tuple[Callable, Callable],
    rows: list[np.ndarray],
    num_continuous: int,
    progressbar: bool,
) -> Evaluated:
    """Evaluate in double precision if the model allows."""
    import jax

    try:
        return _evaluate_in(True, functions, rows, num_continuous, progressbar)
    except (TypeError, jax.errors.JaxRuntimeError) as err:
        # "requires arguments to have the same dtypes, got float64, float32", or XLA's f64 and f32.
        mixed = "64" in str(err) and "32" in str(err)
        if jax.config.read("jax_enable_x64") or not mixed:
            raise
        # Arrays the model closes over cannot be copied, see `numpyro_scores`.
        found = _evaluate_in(False, functions, rows, num_continuous, progressbar)
    notify(
        "The gradients have single precision, as the draws. For double precision pass the data as "
        "arguments of the model, not as global arrays, or call numpyro.enable_x64() at the start."
    )
    return found


def _evaluate_in(
    float64: bool,
    functions: tuple[Callable, Callable],
    rows: list[np.ndarray],
    num_continuous: int,
    progressbar: bool,
) -> Evaluated:
    unconstrain, score = functions
    positions = jax_map_chunks(unconstrain, rows, float64=float64)
    fixed = rows[num_continuous:]
    compiled = jax_compile(score, [*positions, *fixed], float64=float64)
    log_density, *gradients = map_chunks(
        compiled.function,
        [*positions, *fixed],
        chunk_size=compiled.chunk_size,
        progressbar=progressbar,
    )

    def density_at(points: np.ndarray, at: np.ndarray) -> np.ndarray:
        sizes = [int(np.prod(array.shape[1:])) for array in positions]
        parts = np.split(points, np.cumsum(sizes)[:-1], axis=1)
        sites = [
            part.reshape(len(points), *array.shape[1:]).astype(array.dtype)
            for part, array in zip(parts, positions)
        ]
        return compiled.at([*sites, *(row[at] for row in fixed)])[0]

    return Evaluated(np.asarray(log_density, float), positions, gradients, density_at)


def _copy_arrays(arguments: Any) -> Any:
    import jax

    return jax.tree.map(
        lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, arguments
    )


def sites_of(
    model: Callable, arguments: tuple, keywords: dict, draws: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Return the sites of a model at its first draw: improper priors have no other."""
    from numpyro.handlers import seed, substitute, trace

    first = {name: values[0, 0] for name, values in draws.items()}
    return trace(substitute(seed(model, 0), data=first)).get_trace(*arguments, **keywords)


def latent_sites(sites: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the names of the continuous and of the discrete latent sites of a model."""
    for name, site in sites.items():
        if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
            size, subsample_size = site["args"]
            raise ValueError(
                f"Plate {name!r} subsamples {subsample_size} of {size} rows, so the log density "
                "changes at every call. Rebuild the model with the full data."
            )
    latent = {
        name: site
        for name, site in sites.items()
        if site["type"] == "sample" and not site["is_observed"]
    }
    discrete = [name for name, site in latent.items() if site["fn"].support.is_discrete]
    continuous = [name for name in latent if name not in discrete]
    if not continuous:
        raise ValueError(
            f"The model has no continuous latent site, only {discrete}: there is no gradient."
        )
    return continuous, discrete


def site_functions(
    model: Callable,
    arguments: tuple,
    keywords: dict,
    continuous: list[str],
    fixed: list[str],
    *,
    enumerate_discrete: bool,
) -> tuple[Callable[..., list[Any]], Callable[..., list[Any]]]:
    """Return two functions of one draw, given as continuous and fixed sites.

    The first unconstrains it; the second takes the unconstrained sites to the log density and its
    derivatives.
    """
    import jax
    from numpyro.handlers import condition, seed
    from numpyro.infer.util import unconstrain_fn

    potential = potential_function(
        model, arguments, keywords, enumerate_discrete=enumerate_discrete
    )

    def held(values: tuple) -> dict[str, Any]:
        return dict(zip(fixed, values[len(continuous) :]))

    def unconstrain(*values: Any) -> list[Any]:
        latent = dict(zip(continuous, values))
        conditioned = condition(seed(model, 0), held(values))
        position = unconstrain_fn(conditioned, arguments, keywords, latent)
        return [position[name] for name in continuous]

    def score(*values: Any) -> list[Any]:
        def log_density(position: dict[str, Any]) -> Any:
            # The potential energy is minus the log density.
            return -potential(position, held(values))

        value, gradient = jax.value_and_grad(log_density)(dict(zip(continuous, values)))
        return [value, *(gradient[name] for name in continuous)]

    return unconstrain, score


def potential_function(
    model: Callable, arguments: tuple, keywords: dict, *, enumerate_discrete: bool
) -> Callable[[dict[str, Any], dict[str, Any]], Any]:
    """Return the potential energy at unconstrained values, with some discrete sites held fixed."""
    import jax
    from numpyro.handlers import condition, seed
    from numpyro.infer.util import initialize_model, potential_energy

    if enumerate_discrete:
        # Sums over discrete sites need the preparation that NumPyro's samplers do.
        with jax_float64():
            enumerated = initialize_model(
                jax.random.key(0), model, model_args=arguments, model_kwargs=keywords
            ).potential_fn
        return lambda position, held: enumerated(position)

    def potential(position: dict[str, Any], held: dict[str, Any]) -> Any:
        return potential_energy(condition(seed(model, 0), held), arguments, keywords, position)

    return potential
