"""PyTensor graphs of a PyMC model: forward transforms and log density, as plain tensors.

Inputs are tensors with the shapes of the draws. Models written with ``pymc.dims`` have inputs of
another type; they are wrapped here, so that everything behind this module sees tensors only.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pymc as pm

    Shape = tuple[int, ...]


class Graph(NamedTuple):
    """Symbolic inputs, and the outputs computed from them."""

    inputs: list[Any]
    outputs: list[Any]


def forward_graph(model: pm.Model, shapes: Sequence[Shape]) -> Graph:
    """Return the graph from every free variable to its unconstrained value, for one draw.

    Bounds that depend on other variables are computed from the values of these.

    Parameters
    ----------
    model : pymc.Model
    shapes : sequence of tuple of int
        Shape of one draw of every variable in ``model.free_RVs``.
    """
    from pymc.pytensorf import replace_vars_in_graphs

    inputs, natural, outputs = [], [], []
    for variable, shape in zip(model.free_RVs, shapes):
        tensor, value = _tensor_for(variable, shape)
        transform = model.rvs_to_transforms.get(variable)
        inputs.append(tensor)
        natural.append(value)
        outputs.append(
            value if transform is None else transform.forward(value, *variable.owner.inputs)
        )
    outputs = replace_vars_in_graphs(outputs, dict(zip(model.free_RVs, natural)))
    return Graph(inputs, _plain(outputs))


def log_density_graph(model: pm.Model, shapes: Sequence[Shape], *, anywhere: bool = False) -> Graph:
    """Return the graph from the unconstrained values to the log density, Jacobian included.

    Parameters
    ----------
    model : pymc.Model
    shapes : sequence of tuple of int
        Shape of one draw of every variable in ``model.value_vars``.
    anywhere : bool
        Give minus infinity where parameters of distributions are impossible, as PyMC does. Draws of
        the posterior do not need it.
    """
    return term_graph(model, shapes, [model.logp()], anywhere=anywhere)


def term_graph(
    model: pm.Model, shapes: Sequence[Shape], terms: Sequence[Any], *, anywhere: bool = False
) -> Graph:
    """Return the graph from the unconstrained values to terms of the log density.

    Parameters
    ----------
    model : pymc.Model
    shapes : sequence of tuple of int
        Shape of one draw of every variable in ``model.value_vars``.
    terms : sequence of tensors
        Terms in the value variables of `model`.
    anywhere : bool
        See :func:`log_density_graph`.
    """
    from pytensor.graph.replace import clone_replace

    pairs = [_tensor_for(value, shape) for value, shape in zip(model.value_vars, shapes)]
    replacements = {value: pair[1] for value, pair in zip(model.value_vars, pairs)}
    return Graph(
        [tensor for tensor, _ in pairs],
        _plain(clone_replace(list(terms), replacements), anywhere=anywhere),
    )


def gradient_graph(graph: Graph, argnums: Sequence[int]) -> Graph:
    """Return the graph of the derivatives of a log density with respect to some of its inputs."""
    import pytensor

    wrt = [graph.inputs[i] for i in argnums]
    gradients = pytensor.grad(graph.outputs[0], wrt, disconnected_inputs="ignore")
    return Graph(graph.inputs, gradients)


def batched_graph(graph: Graph) -> Graph:
    """Return the graph with a leading axis for draws on every input and output."""
    import pytensor.tensor as pt
    from pytensor.graph.replace import vectorize_graph

    batched = [
        pt.tensor(shape=(None, *tensor.type.shape), dtype=tensor.type.dtype)
        for tensor in graph.inputs
    ]
    outputs = vectorize_graph(graph.outputs, dict(zip(graph.inputs, batched)))
    # An output that no input reaches, as the derivative of a flat density, gains no axis by itself.
    num_draws = batched[0].shape[0]
    outputs = [
        pt.broadcast_to(new, (num_draws, *old.shape)) if new.ndim == old.ndim else new
        for old, new in zip(graph.outputs, outputs)
    ]
    return Graph(batched, outputs)


def is_minibatch(model: pm.Model) -> bool:
    """Tell whether the log density of `model` is a random estimate from part of the data."""
    from pymc.data import MinibatchIndexRV, MinibatchOp

    try:
        from pytensor.graph.traversal import ancestors
    except ImportError:
        from pytensor.graph.basic import ancestors

    roots = [*model.basic_RVs, *model.potentials, *model.rvs_to_values.values()]
    return any(
        variable.owner is not None and isinstance(variable.owner.op, MinibatchOp | MinibatchIndexRV)
        for variable in ancestors(roots)
    )


def untransformed_bounded(model: pm.Model) -> list[str]:
    """Return the free variables whose support has an edge that no transform moves to infinity."""
    from pymc.distributions.transforms import _default_transform

    return [
        variable.name
        for variable in model.free_RVs
        if variable.type.dtype.startswith("float")
        and model.rvs_to_transforms.get(variable) is None
        and _default_transform(variable.owner.op, variable) is not None
    ]


def declared_edges(model: pm.Model) -> list[str]:
    """Return a sentence on each variable that ends where its density has not."""
    return [f"{name} has bounds and no transform" for name in untransformed_bounded(model)]


def _tensor_for(variable: Any, shape: Shape) -> tuple[Any, Any]:
    """Return a tensor with the shape of the draws, and what stands for `variable` in a graph."""
    import pytensor.tensor as pt

    expected = variable.type.shape
    fits = len(expected) == len(shape) and all(e in (None, s) for e, s in zip(expected, shape))
    if not fits:
        raise ValueError(
            f"The posterior has shape {shape} per draw for {variable.name!r}, the model has "
            f"{expected} (None: any). Pass the model, with the data, that the draws came from."
        )
    tensor = pt.tensor(variable.name, shape=shape, dtype=variable.type.dtype)
    if not hasattr(variable.type, "dims"):
        return tensor, tensor
    from pytensor.xtensor import as_xtensor

    return tensor, as_xtensor(tensor, dims=variable.type.dims)


def _plain(outputs: Sequence[Any], *, anywhere: bool = False) -> list[Any]:
    """Take out assertions, and lower labelled tensors to plain ones.

    With `anywhere`, what breaks an assertion about parameters has no density.
    """
    import pytensor.tensor as pt
    from pymc.logprob.utils import CheckParameterValue
    from pytensor.graph.rewriting.basic import in2out, node_rewriter
    from pytensor.graph.rewriting.utils import rewrite_graph
    from pytensor.raise_op import CheckAndRaise

    @node_rewriter([CheckAndRaise])
    def remove_check(fgraph: Any, node: Any) -> list[Any]:
        value, *conditions = node.inputs
        is_about_parameters = isinstance(node.op, CheckParameterValue)
        if anywhere and is_about_parameters and node.op.can_be_replaced_by_ninf:
            possible = pt.all([pt.all(condition) for condition in conditions])
            return [pt.switch(possible, value, -np.inf).astype(value.type.dtype)]
        # Draws of the posterior pass the checks of parameters, and JAX cannot run them.
        return [value]

    plain = [out.values if hasattr(out.type, "dims") else out for out in outputs]
    # PyTensor knows the tag only once something has imported its labelled tensors.
    include = ("lower_xtensor",) if "pytensor.xtensor" in sys.modules else ("none",)
    return rewrite_graph(
        plain, include=include, custom_rewrite=in2out(remove_check, name="remove_check")
    )
