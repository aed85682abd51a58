"""Draws of Gaussians at the mode of a PyMC model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from az_cv.engine.near_mode import draws_near_mode
from az_cv.sources.proposed import as_tree, scores_at, split
from az_cv.sources.pymc_gradient import first_that_compiles, python_functions
from az_cv.sources.pymc_graph import (
    Graph,
    declared_edges,
    gradient_graph,
    is_minibatch,
    log_density_graph,
    term_graph,
)

if TYPE_CHECKING:
    import pymc as pm

SEARCH = 100  # evaluations of the density that finding a mode takes, about


def pymc_laplace(model: pm.Model, rng: np.random.Generator, chains: int, draws: int) -> xr.DataTree:
    """Draw near the mode, on PyMC's unconstrained scale, and constrain the draws.

    Parameters
    ----------
    model : pymc.Model
        All of its free variables are continuous.
    rng : numpy.random.Generator
    chains, draws : int

    Returns
    -------
    DataTree
        See :func:`az_cv.sources.laplace.laplace_draws`.
    """
    import pytensor

    discrete = [variable.name for variable in model.discrete_value_vars]
    if discrete or is_minibatch(model):
        raise ValueError(
            f"There is no Gaussian for discrete variables ({discrete}) or minibatches. Sample the "
            "model with MCMC."
        )
    # PyTensor keeps where each of thousands of variables was made: a tenth of the time.
    with pytensor.config.change_flags(traceback__limit=0):
        return _near_mode(model, rng, chains, draws)


def _near_mode(model: pm.Model, rng: np.random.Generator, chains: int, draws: int) -> xr.DataTree:
    values = _start(model)
    shapes = {name: value.shape for name, value in values.items()}
    graph = log_density_graph(model, list(shapes.values()))
    slopes = gradient_graph(graph, range(len(shapes)))
    both = Graph(slopes.inputs, [*graph.outputs, *slopes.outputs])
    flat = np.concatenate([np.ravel(value) for value in values.values()]).astype(float)
    # Compiled for a handful of points at once: the search asks for one, differences for many.
    few = [np.repeat(value[None], 4, axis=0) for value in values.values()]
    compiled, _ = first_that_compiles(both, few, points=chains * draws + SEARCH)

    def density(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        parts = split(points, shapes)
        value, *gradients = compiled.at([part.astype(few[0].dtype) for part in parts.values()])
        flattened = [np.reshape(gradient, (len(points), -1)) for gradient in gradients]
        return np.asarray(value, dtype=float), np.concatenate(flattened, axis=1)

    drawn = draws_near_mode(density, flat, rng, chains, draws)
    variables = _constrained(model, split(drawn.x.reshape(chains * draws, -1), shapes))
    coords, dims = _labels(model)
    tree = as_tree(
        {name: value.reshape(chains, draws, *value.shape[1:]) for name, value in variables.items()},
        drawn.log_proposal,
        {"inference_library": "pymc"},
        dims,
        coords,
    )
    edges = declared_edges(model)
    tree["cv_scores"] = xr.DataTree(scores_at(drawn, density, shapes, "pymc", edges))
    return tree


def _start(model: pm.Model) -> dict[str, np.ndarray]:
    """Return ``model.initial_point(random_seed=0)`` without the seconds of compiling it."""
    from pymc.initial_point import make_initial_point_expression
    from pymc.pytensorf import find_rng_nodes, replace_rng_nodes, reseed_rngs

    expressions = make_initial_point_expression(
        free_rvs=model.free_RVs,
        rvs_to_transforms=model.rvs_to_transforms,
        initval_strategies=model.rvs_to_initial_values,
        return_transformed=True,
    )
    with python_functions() as compile_graph:
        function: Any = compile_graph(Graph([], replace_rng_nodes(expressions)))
        reseed_rngs(find_rng_nodes(function.maker.fgraph.outputs), 0)
        values = [np.asarray(value) for value in function()]
    return {variable.name: value for variable, value in zip(model.value_vars, values)}


def _constrained(model: pm.Model, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return free variables and deterministics at unconstrained draws."""
    outputs = [v for v in model.unobserved_value_vars if not str(v.name).endswith("__")]
    found = dict(zip(model.value_vars, values.values()))
    if functions := [output for output in outputs if output not in found]:
        points = [value.astype(variable.dtype) for variable, value in found.items()]
        graph = term_graph(model, [value.shape[1:] for value in points], functions)
        compiled, _ = first_that_compiles(graph, points, points=len(points[0]))
        found |= dict(zip(functions, compiled.at(points)))
    return {str(output.name): found[output] for output in outputs}


def _labels(model: pm.Model) -> tuple[dict[str, object], dict[str, list[str]]]:
    """Return coordinates of the model's dimensions, and the dimensions of its variables."""
    dims = {
        name: list(own)
        for name, own in model.named_vars_to_dims.items()
        if not any(dim is None for dim in own)
    }
    return dict(model.coords), dims
