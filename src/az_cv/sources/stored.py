"""Scores that a sampler, or an earlier call, left in the data.

nutpie stores gradients when asked with ``store_gradient=True``, and the unconstrained draws in one
of three places, depending on its version and on how it was called:

* ``sample_stats["unconstrained_draw"]``, with ``store_unconstrained=True``;
* variables of the group ``unconstrained_posterior`` beside those of ``posterior``;
* variables of ``posterior`` such as ``sigma_log__``.
"""

from __future__ import annotations

import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS, Idata, as_idata, get_group, group_names
from az_cv.sources.finite import drop_non_finite
from az_cv.sources.layout import flatten_variables
from az_cv.sources.schema import DIMS, DRAW, GRADIENT, PARAMETER, scores_dataset

# PyMC and CmdStanPy; nutpie; BlackJAX; NumPyro; PyMC's own name.
LOG_DENSITIES = ("lp", "logp", "logdensity", "log_density", "potential_energy", "model_logp")
# Statistics of PyMC's step methods that are not NUTS: Metropolis and its kin, slices.
OTHER_STEPS = ("accept", "accepted", "nstep_out", "p_jump", "lambda", "scaling")


def stored_scores(data: Idata) -> xr.Dataset | None:
    """Read scores from `data`, if it holds any. Needs no model and evaluates nothing.

    Looks for the group ``cv_scores``, then for what nutpie stores.

    Parameters
    ----------
    data : DataTree or InferenceData

    Returns
    -------
    Dataset or None
        ``unconstrained_draw`` and ``gradient``, see :mod:`az_cv.sources.schema`. None if the
        gradients are not stored, or the unconstrained draws they belong to are not: with stored
        gradients alone, :func:`az_cv.sources.pymc_model.pymc_scores` computes the draws from the
        model and spares the gradients.

    Warns
    -----
    NonFiniteScoresWarning
        If draws without a finite score had to be left out.
    """
    data = as_idata(data)
    if "cv_scores" in group_names(data):
        return get_group(data, "cv_scores")
    gradient = stored_gradient(data)
    if gradient is None:
        return None
    draws = _stored_draws(data, gradient[PARAMETER].values.tolist())
    if draws is None or draws.sizes[PARAMETER] != gradient.sizes[PARAMETER]:
        return None
    draws, gradient = xr.align(draws, gradient, join="inner", exclude=[PARAMETER])
    return drop_non_finite(
        scores_dataset(
            draws.values,
            gradient.values,
            parameter_names=gradient[PARAMETER].values.tolist(),
            coords={dim: gradient[dim].values for dim in SAMPLE_DIMS},
            attrs={"source": "nutpie", "gradients": "sampler"},
        )
    )


def stored_gradient(data: Idata) -> xr.DataArray | None:
    """Return the gradients that nutpie stored, with dims chain, draw, unconstrained_parameter.

    These are derivatives of the log density on the unconstrained scale, Jacobian included. The
    ``transformed_gradient`` beside them is a derivative in nutpie's own coordinates.
    """
    data = as_idata(data)
    if "sample_stats" not in group_names(data):
        return None
    stats = get_group(data, "sample_stats")
    if GRADIENT not in stats or set(stats[GRADIENT].dims) != set(DIMS):
        return None
    return stats[GRADIENT].transpose(*DIMS)


def stored_log_density(data: Idata) -> xr.DataArray | None:
    """Return the log density that the sampler stored at its draws, with dims chain and draw.

    Up to a constant; the sign is that of the library that wrote it, of potential energies either.
    """
    data = as_idata(data)
    if "sample_stats" not in group_names(data):
        return None
    stats = get_group(data, "sample_stats")
    for name in LOG_DENSITIES:
        if name in stats and set(stats[name].dims) == set(SAMPLE_DIMS):
            return stats[name].transpose(*SAMPLE_DIMS)
    return None


def has_several_steps(data: Idata) -> bool:
    """Tell whether PyMC updated some variables after it stored the log density.

    With several step methods, that of NUTS belongs to what the others had before their turn.
    """
    data = as_idata(data)
    if "sample_stats" not in group_names(data):
        return False
    return any(name in get_group(data, "sample_stats") for name in OTHER_STEPS)


def _stored_draws(data: Idata, labels: list[str]) -> xr.DataArray | None:
    """Return the unconstrained draws, in the order of `labels`."""
    stats = get_group(data, "sample_stats")
    if DRAW in stats:
        return stats[DRAW].transpose(*DIMS)
    columns: dict[str, xr.DataArray] = {}
    for group in {"posterior", "unconstrained_posterior"}.intersection(group_names(data)):
        variables = get_group(data, group).transpose(*SAMPLE_DIMS, ...)
        coords = {dim: variables[dim].values for dim in SAMPLE_DIMS}
        for name, values in variables.data_vars.items():
            flat, names = flatten_variables({str(name): values.values})
            if not columns.keys().isdisjoint(names):
                return None  # of `z` and `z_0` in one model, labels do not say which is meant
            for i, label in enumerate(names):
                columns[label] = xr.DataArray(flat[..., i], dims=SAMPLE_DIMS, coords=coords)
    if not columns.keys() >= set(labels):
        return None
    selected = [columns[label] for label in labels]
    return xr.concat(selected, dim=PARAMETER, join="inner").transpose(*DIMS)
