"""Scores of NumPyro models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.containers.idata import SAMPLE_DIMS, Idata, as_idata, get_group
from az_cv.notices import notify
from az_cv.sources.batches import (
    Compiled,
    compiled_at_first_use,
    jax_compile,
    jax_float64,
    jax_map_chunks,
)
from az_cv.sources.finite import drop_non_finite
from az_cv.sources.layout import flatten_variables
from az_cv.sources.schema import scores_dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpyro.infer
    import xarray as xr
    from jaxtyping import Float


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
    model, arguments, keywords = _model_and_arguments(mcmc)
    draws, coords = _draws(mcmc, data)
    continuous, discrete = _latent_sites(_sites(model, arguments, keywords, draws))
    if missing := [name for name in continuous if name not in draws]:
        raise ValueError(
            f"The posterior lacks {missing}, latent sites of the model. It has {list(draws)}."
        )
    fixed = [name for name in discrete if name in draws]
    evaluate = _score_function(
        model, arguments, keywords, continuous, fixed, enumerate_discrete=fixed != discrete
    )
    rows = []
    for name in [*continuous, *fixed]:
        row = draws[name].reshape(-1, *draws[name].shape[2:])
        rows.append(row if name in fixed else row.astype(float))
    shape = draws[continuous[0]].shape[:2]
    results = [
        array.reshape(*shape, *array.shape[1:]) for array in _evaluate(evaluate, rows, progressbar)
    ]
    unconstrained, labels = flatten_variables(dict(zip(continuous, results[: len(continuous)])))
    gradient, _ = flatten_variables(dict(zip(continuous, results[len(continuous) :])))
    return drop_non_finite(
        scores_dataset(
            unconstrained,
            gradient,
            parameter_names=labels,
            coords=coords,
            attrs={"source": "numpyro"},
        )
    )


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

    model, arguments, keywords = _model_and_arguments(mcmc)
    draws, _ = _draws(mcmc, data)
    sites = _sites(model, arguments, keywords, draws)
    continuous, discrete = _latent_sites(sites)
    if fixed := [name for name in discrete if name in draws]:
        raise ValueError(
            f"The sites {fixed} are discrete and were sampled, and the evidence sums over all "
            "their values. Enumerate them: numpyro.sample(..., infer={'enumerate': 'parallel'})."
        )
    _require_proper(sites)
    evaluate = _score_function(
        model, arguments, keywords, continuous, [], enumerate_discrete=bool(discrete)
    )
    first = [draws[name][0, :1].astype(float) for name in continuous]
    values = _evaluate(evaluate, first, progressbar=False)[: len(continuous)]
    shapes = [value.shape[1:] for value in values]
    sizes = [int(np.prod(shape)) for shape in shapes]
    potential = _potential_function(model, arguments, keywords, enumerate_discrete=bool(discrete))

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


def _model_and_arguments(mcmc: numpyro.infer.MCMC) -> tuple[Callable, tuple, dict]:
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


def _draws(
    mcmc: numpyro.infer.MCMC, data: Idata | None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the draws by site, with leading dimensions chain and draw, and their coordinates."""
    if data is None:
        samples = mcmc.get_samples(group_by_chain=True)
        return {name: np.asarray(values) for name, values in samples.items()}, {}
    posterior = get_group(as_idata(data), "posterior").transpose(*SAMPLE_DIMS, ...)
    draws = {str(name): array.values for name, array in posterior.data_vars.items()}
    return draws, {dim: posterior[dim].values for dim in SAMPLE_DIMS}


def _evaluate(function: Callable, rows: list[np.ndarray], progressbar: bool) -> list[np.ndarray]:
    """Evaluate in double precision if the model allows."""
    import jax

    try:
        return jax_map_chunks(function, rows, progressbar=progressbar)
    except (TypeError, jax.errors.JaxRuntimeError) as err:
        # "requires arguments to have the same dtypes, got float64, float32", or XLA's f64 and f32.
        mixed = "64" in str(err) and "32" in str(err)
        if jax.config.read("jax_enable_x64") or not mixed:
            raise
        # Arrays the model closes over cannot be copied, see `numpyro_scores`.
        results = jax_map_chunks(function, rows, progressbar=progressbar, float64=False)
    notify(
        "The gradients have single precision, as the draws. For double precision pass the data as "
        "arguments of the model, not as global arrays, or call numpyro.enable_x64() at the start."
    )
    return results


def _copy_arrays(arguments: Any) -> Any:
    import jax

    return jax.tree.map(
        lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, arguments
    )


def _sites(
    model: Callable, arguments: tuple, keywords: dict, draws: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Return the sites of a model at its first draw: improper priors have no other."""
    from numpyro.handlers import seed, substitute, trace

    first = {name: values[0, 0] for name, values in draws.items()}
    return trace(substitute(seed(model, 0), data=first)).get_trace(*arguments, **keywords)


def _latent_sites(sites: dict[str, Any]) -> tuple[list[str], list[str]]:
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


def _score_function(
    model: Callable,
    arguments: tuple,
    keywords: dict,
    continuous: list[str],
    fixed: list[str],
    *,
    enumerate_discrete: bool,
) -> Callable[..., list[Any]]:
    """Return a function from one constrained draw to unconstrained values and derivatives."""
    import jax
    from numpyro.handlers import condition, seed
    from numpyro.infer.util import unconstrain_fn

    potential = _potential_function(
        model, arguments, keywords, enumerate_discrete=enumerate_discrete
    )

    def evaluate(*values: Any) -> list[Any]:
        draw = dict(zip([*continuous, *fixed], values))
        latent = {name: draw[name] for name in continuous}
        held = {name: draw[name] for name in fixed}
        conditioned = condition(seed(model, 0), held)
        unconstrained = unconstrain_fn(conditioned, arguments, keywords, latent)
        # The potential energy is minus the log density.
        gradient = jax.grad(potential)(unconstrained, held)
        return [
            *(unconstrained[name] for name in continuous),
            *(-gradient[name] for name in continuous),
        ]

    return evaluate


def _potential_function(
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
