"""Ladders of temperatures: the Dataset, and the PyMC model that samples them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS
from az_cv.sources.layout import flatten_variables
from az_cv.sources.schema import DRAW, PARAMETER

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pymc as pm

TEMPERATURE = "temperature"
PRIOR, LIKELIHOOD, LOG_LIKELIHOOD = "prior_gradient", "likelihood_gradient", "log_likelihood"
VARIABLES = (DRAW, PRIOR, LIKELIHOOD, LOG_LIKELIHOOD)


def ladder_dataset(
    temperatures: Sequence[float],
    unconstrained_draw: np.ndarray,
    prior_gradient: np.ndarray,
    likelihood_gradient: np.ndarray,
    log_likelihood: np.ndarray,
    *,
    parameter_names: Sequence[str] | None = None,
) -> xr.Dataset:
    """Build a ladder of temperatures from arrays.

    Parameters
    ----------
    temperatures : sequence of float
        From 0, the prior, to 1, the posterior.
    unconstrained_draw, prior_gradient, likelihood_gradient : arrays
        Arrays of shape (temperature, chain, draw, d): draws with density prior times likelihood to
        the power of the temperature, and gradients of the log prior, Jacobian included, and of the
        log likelihood.
    log_likelihood : array of shape (temperature, chain, draw)
        With every constant.
    parameter_names : sequence of str, optional

    Returns
    -------
    Dataset
        For :func:`az_cv.thermodynamic_evidence` and :func:`az_cv.smc_evidence`.

    Raises
    ------
    ValueError
        If shapes disagree.

    See Also
    --------
    az_cv.thermodynamic_evidence : Uses it.

    Examples
    --------
    >>> import numpy as np
    >>> from az_cv import ladder_dataset
    >>> x = np.zeros((3, 4, 100, 2))
    >>> dict(ladder_dataset([0, 0.3, 1], x, x, x, x[..., 0]).sizes)["temperature"]
    3
    """
    full = (TEMPERATURE, *SAMPLE_DIMS, PARAMETER)
    draws = np.asarray(unconstrained_draw, dtype=float)
    arrays = dict(
        zip(VARIABLES, (draws, prior_gradient, likelihood_gradient, log_likelihood), strict=True)
    )
    for name, array in arrays.items():
        expected = draws.shape[:3] if name == LOG_LIKELIHOOD else draws.shape
        if draws.ndim != 4 or np.shape(array) != expected or len(temperatures) != draws.shape[0]:
            raise ValueError(
                f"{name} has shape {np.shape(array)}, {DRAW} {draws.shape}, and there are "
                f"{len(temperatures)} temperatures. Gradients and draws must have the shape "
                "(temperature, chain, draw, d), the log likelihood the same without d."
            )
    names = (
        [f"x_{i}" for i in range(draws.shape[3])] if parameter_names is None else parameter_names
    )
    return xr.Dataset(
        {
            name: (full if np.ndim(array) == 4 else full[:3], np.asarray(array, dtype=float))
            for name, array in arrays.items()
        },
        coords={TEMPERATURE: np.asarray(temperatures, dtype=float), PARAMETER: list(names)},
    )


def tempered_model(model: pm.Model) -> tuple[pm.Model, Any]:
    """Return a copy of a model with its likelihood to a power, and the variable with that power."""
    import pymc as pm
    import pytensor
    from pymc.model.fgraph import clone_model

    copy = clone_model(model)
    temperature = pytensor.shared(np.array(1.0), name=TEMPERATURE)
    with copy:
        logs = [pm.logp(v, copy.rvs_to_values[v]).sum() for v in copy.observed_RVs]
        # The model has the likelihood once already.
        pm.Potential("az_cv_tempering", (temperature - 1) * sum(logs))
    return copy, temperature


def split_graph(model: pm.Model, shapes: Sequence[tuple[int, ...]]) -> Any:
    """Return the graph of the log likelihood, and of the gradients of log prior and log likelihood.

    Parameters
    ----------
    model : pymc.Model
    shapes : sequence of tuple of int
        Shape of one draw of every variable in ``model.value_vars``.
    """
    import pytensor

    from az_cv.sources.pymc_graph import Graph, term_graph

    inputs, (prior, likelihood) = term_graph(
        model, shapes, [model.logp(vars=model.free_RVs), model.logp(vars=model.observed_RVs)]
    )
    gradients = [
        pytensor.grad(term, inputs, disconnected_inputs="ignore") for term in (prior, likelihood)
    ]
    return Graph(inputs, [likelihood, *gradients[0], *gradients[1]])


def split_scores(posterior: xr.Dataset, model: pm.Model) -> tuple[list[np.ndarray], list[str]]:
    """Return unconstrained draws, gradients of log prior and log likelihood, and the latter.

    Parameters
    ----------
    posterior : Dataset
        Draws at any temperature.
    model : pymc.Model

    Returns
    -------
    arrays : list of arrays of shape (chain, draw, d), the last one (chain, draw)
        In the order of :func:`ladder_dataset`.
    labels : list of str
    """
    from az_cv.sources.batches import map_chunks
    from az_cv.sources.pymc_gradient import first_that_compiles
    from az_cv.sources.pymc_model import unconstrain

    values = unconstrain(posterior, model)
    shape = tuple(posterior.sizes[dim] for dim in SAMPLE_DIMS)
    rows = [value.reshape(-1, *value.shape[2:]) for value in values.values()]
    compiled = first_that_compiles(split_graph(model, [row.shape[1:] for row in rows]), rows)[0]
    found = map_chunks(compiled.function, rows, chunk_size=compiled.chunk_size)
    logs, gradients = found[0], found[1:]
    count = len(rows)
    draws, labels = flatten_variables(values)
    parts = [
        flatten_variables(dict(zip(values, part)), sample_ndim=1)[0].reshape(draws.shape)
        for part in (gradients[:count], gradients[count:])
    ]
    return [draws, *parts, np.asarray(logs, dtype=float).reshape(shape)], labels
