"""Scores of PyMC models, from any sampler."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import numpy as np
import rich
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS, Idata, as_idata, get_group
from az_cv.notices import notify
from az_cv.sources.batches import compiled_at_first_use, map_chunks
from az_cv.sources.edges import edge_attrs, find_edges
from az_cv.sources.finite import drop_non_finite
from az_cv.sources.layout import flatten_variables
from az_cv.sources.pymc_gradient import first_that_compiles, model_gradients, python_functions
from az_cv.sources.pymc_graph import (
    batched_graph,
    declared_edges,
    forward_graph,
    is_minibatch,
    log_density_graph,
)
from az_cv.sources.schema import PARAMETER, scores_dataset
from az_cv.sources.stored import has_several_steps, stored_gradient

if TYPE_CHECKING:
    from collections.abc import Callable

    import pymc as pm
    from jaxtyping import Float

logger = logging.getLogger(__name__)


def pymc_scores(
    data: Idata, *, model: pm.Model | None = None, progressbar: bool = True
) -> xr.Dataset:
    """Evaluate log-density gradients of a PyMC model at the posterior draws.

    Costs one gradient evaluation per draw, unless the sampler stored them, and a compilation of
    one to a few seconds. The draws may come from any sampler. Discrete variables are held fixed at
    their draws.

    Parameters
    ----------
    data : DataTree or InferenceData
        Holds ``posterior`` with every free variable of `model`.
    model : pymc.Model, optional
        The model the draws came from, with the same data. Defaults to the one whose ``with`` block
        encloses the call.
    progressbar : bool, default True
        Show a progress bar while evaluating gradients.

    Returns
    -------
    Dataset
        ``unconstrained_draw`` and ``gradient``, see :mod:`az_cv.sources.schema`. The attribute
        ``gradient_backend`` tells how the gradients were obtained (``"jax"``, ``"vectorised"``,
        ``"loop"`` or ``"stored"``), and ``unconstrain_seconds``, ``compile_seconds`` and
        ``evaluate_seconds`` what they cost; the cost is logged, and printed with `progressbar`.

    Warns
    -----
    NonFiniteScoresWarning
        If draws on the boundary of their support had to be left out. The ``draw`` coordinate says
        which are left.

    Raises
    ------
    TypeError
        If there is no model.
    ValueError
        If the posterior does not fit the model, or the model has no continuous variable or uses
        minibatches.

    Notes
    -----
    Gradients are those of the joint log density of data and parameters on PyMC's unconstrained
    scale, Jacobian terms included: what ``model.compile_dlogp()`` computes.
    """
    model = _model_or_context(model)
    if is_minibatch(model):
        raise ValueError(
            "The model draws minibatches of its data, so its log density changes at every call and "
            "has no gradient that belongs to the draws. Rebuild the model with the full data."
        )
    posterior = get_group(as_idata(data), "posterior")
    start = time.perf_counter()
    values = unconstrain(posterior, model)
    cost = {"unconstrain_seconds": time.perf_counter() - start}
    continuous = [variable.name for variable in model.continuous_value_vars]
    if not continuous:
        raise ValueError(
            f"All free variables of the model are discrete: {list(values)}. Control variates need "
            "gradients, and those of discrete variables do not exist. Use arviz.summary, or sum "
            "the variables out of the model, for instance with marginalize of pymc-extras."
        )
    draws, labels = flatten_variables({name: values[name] for name in continuous})
    attrs: dict[str, object] = {"source": "pymc"}
    log_density = None
    # Statistics of NUTS belong to what other steps, if there are any, had before their turn.
    has_one_step = len(continuous) == len(values) and not has_several_steps(data)
    edges = declared_edges(model)

    stored = stored_gradient(data)
    if stored is not None and stored[PARAMETER].values.tolist() == labels:
        # Sampling statistics keep their draws when the posterior was thinned.
        gradient = stored.reindex({dim: posterior[dim] for dim in SAMPLE_DIMS}).values
        attrs |= {"gradient_backend": "stored", "gradients": "sampler"}
    else:
        gradient = np.full(draws.shape, np.nan)
        finite = np.isfinite(draws).all(axis=-1)
        rows = [value[finite] for value in values.values()]
        argnums = [list(values).index(name) for name in continuous]
        if finite.any():
            result = model_gradients(
                log_density_graph(model, [row.shape[1:] for row in rows]),
                rows,
                argnums=argnums,
                progressbar=progressbar,
            )
            arrays = dict(zip(continuous, result.arrays))
            gradient[finite] = flatten_variables(arrays, sample_ndim=1)[0]
            if has_one_step:
                log_density = np.full(draws.shape[:2], np.nan)
                log_density[finite] = result.log_density
            if not edges:
                inside = np.flatnonzero(np.isfinite(result.log_density))
                edges = find_edges(
                    draws[finite][inside],
                    lambda points, at: result.evaluate(_inputs(points, inside[at], rows, argnums)),
                    labels,
                )
            attrs |= {"gradient_backend": result.backend}
            cost |= {
                "compile_seconds": result.compile_seconds,
                "evaluate_seconds": result.evaluate_seconds,
            }
            _tell_cost(int(finite.sum()), result.backend, cost, progressbar)
    attrs |= {**cost, **edge_attrs(edges)}
    coords = {dim: posterior[dim].values for dim in SAMPLE_DIMS}
    return drop_non_finite(
        scores_dataset(
            draws,
            gradient,
            log_density=log_density,
            parameter_names=labels,
            coords=coords,
            attrs=attrs,
        )
    )


def _inputs(
    points: np.ndarray, at: np.ndarray, rows: list[np.ndarray], argnums: list[int]
) -> list[np.ndarray]:
    """Return the inputs of the log density at other points: those of draws `at`, and `points`."""
    inputs, start = [row[at] for row in rows], 0
    for k in argnums:
        size = int(np.prod(rows[k].shape[1:]))
        part = points[:, start : start + size].reshape(len(points), *rows[k].shape[1:])
        inputs[k] = part.astype(rows[k].dtype)
        start += size
    return inputs


def pymc_log_density(
    data: Idata, *, model: pm.Model | None = None
) -> Callable[[Float[np.ndarray, "n d"]], Float[np.ndarray, " n"]]:
    """Return the joint log density of data and unconstrained parameters, every constant included.

    Parameters
    ----------
    data : DataTree or InferenceData
        Holds ``posterior`` with every free variable of `model`, from which shapes are read.
    model : pymc.Model, optional
        Defaults to the one whose ``with`` block encloses the call.

    Returns
    -------
    callable
        Maps points, in the order of :func:`pymc_scores`, to log densities with Jacobian.

    Raises
    ------
    ValueError
        If a prior is improper, a free variable is discrete, or the model draws minibatches.
    """
    model = _model_or_context(model)
    require_evidence(model)
    first = get_group(as_idata(data), "posterior").isel(chain=[0], draw=[0])
    shapes = {name: value.shape[2:] for name, value in unconstrain(first, model).items()}
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    graph = log_density_graph(model, list(shapes.values()), anywhere=True)

    def split(points: np.ndarray) -> list[np.ndarray]:
        blocks = np.split(points, np.cumsum(sizes)[:-1], axis=1)
        return [
            block.reshape(len(points), *shape).astype(value.type.dtype)
            for block, shape, value in zip(blocks, shapes.values(), model.value_vars)
        ]

    evaluate = compiled_at_first_use(lambda values: first_that_compiles(graph, values)[0])
    return lambda points: evaluate(split(points))[0].astype(float)


def require_evidence(model: pm.Model) -> None:
    """Refuse models without an evidence; tell what the density may lack."""
    from pymc.distributions.continuous import FlatRV, HalfFlatRV
    from pymc.distributions.transforms import Ordered

    if is_minibatch(model):
        raise ValueError(
            "The model draws minibatches of its data, so its log density is a random estimate. "
            "Rebuild the model with the full data."
        )
    flat = [v.name for v in model.free_RVs if isinstance(v.owner.op, FlatRV | HalfFlatRV)]
    if flat:
        raise ValueError(
            f"The priors of {flat} are improper: they integrate to infinity, and the evidence is "
            "defined up to an arbitrary factor. Give them proper priors."
        )
    discrete = [v.name for v in model.discrete_value_vars]
    if discrete:
        raise ValueError(
            f"The variables {discrete} are discrete, and the evidence sums over all their values. "
            "Sum over them in the model, for instance with pymc_extras.marginalize or pm.Mixture."
        )
    if model.potentials:
        notify(
            f"The potentials {[p.name for p in model.potentials]} count as they are: the evidence "
            "is right if they are normalised log densities of data, or of parameters."
        )
    ordered = [
        v.name for v in model.free_RVs if isinstance(model.rvs_to_transforms.get(v), Ordered)
    ]
    if ordered:
        notify(
            f"PyMC does not normalise the priors of {ordered}, which are ordered: of k independent "
            "elements with one prior the evidence lacks the factor k!. Add its logarithm."
        )


def unconstrain(posterior: xr.Dataset, model: pm.Model) -> dict[str, np.ndarray]:
    """Map posterior draws to the unconstrained scale of a model.

    Parameters
    ----------
    posterior : Dataset
        Holds every free variable of `model`, with dimensions chain and draw.
    model : pymc.Model

    Returns
    -------
    dict of str to array of shape (chain, draw, ...)
        By name of the value variable, such as ``sigma_log__``, in the order of
        ``model.value_vars``. Discrete variables are returned as they are.
    """
    names = [variable.name for variable in model.free_RVs]
    missing = [name for name in names if name not in posterior]
    if missing:
        raise ValueError(
            f"The posterior lacks {missing}, free variables of the model. "
            f"It has {list(posterior.data_vars)}. Pass the model the draws came from, and sample "
            "without leaving variables out."
        )
    num_chains, num_draws = posterior.sizes["chain"], posterior.sizes["draw"]
    rows = []
    for variable in model.free_RVs:
        draws = posterior[variable.name].transpose(*SAMPLE_DIMS, ...).values
        rows.append(
            draws.reshape(num_chains * num_draws, *draws.shape[2:]).astype(variable.type.dtype)
        )
    graph = batched_graph(forward_graph(model, [row.shape[1:] for row in rows]))
    with python_functions() as compile_graph:
        unconstrained = map_chunks(compile_graph(graph), rows)
    return {
        value.name: array.reshape(num_chains, num_draws, *array.shape[1:])
        for value, array in zip(model.value_vars, unconstrained)
    }


def _tell_cost(num_draws: int, backend: str, cost: dict[str, float], progressbar: bool) -> None:
    """Say what the gradients cost, split into what grows with the draws and what does not."""
    message = (
        f"Gradients of {num_draws} draws ({backend}): compiled in {cost['compile_seconds']:.1f} s, "
        f"evaluated in {cost['evaluate_seconds']:.1f} s; draws unconstrained in "
        f"{cost['unconstrain_seconds']:.1f} s. Compilation does not grow with the draws. "
        "A further call on the same data takes none of this time. Nor does the first one if nutpie "
        "stored the gradients (store_gradient=True)."
    )
    logger.info(message)
    if progressbar:
        rich.get_console().print(message, highlight=False)


def _model_or_context(model: pm.Model | None) -> pm.Model:
    try:
        import pymc as pm
    except ImportError as err:
        raise ImportError("PyMC models need PyMC: pip install 'az-cv[pymc]'") from err

    if model is None:
        try:
            return pm.modelcontext(None)
        except TypeError as err:
            raise TypeError(
                "There is no PyMC model to take gradients from. Call inside `with model:`, "
                "or pass model=..."
            ) from err
    if not isinstance(model, pm.Model):
        raise TypeError(f"model must be a pymc.Model, not {type(model).__name__}.")
    return model
