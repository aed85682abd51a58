"""Scores of PyStan 3 models, through the extension module httpstan compiled for them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS, Idata, as_idata, get_group
from az_cv.sources.stan_draws import assemble_scores

if TYPE_CHECKING:
    import stan.fit
    import stan.model


def pystan_scores(data: Idata | stan.fit.Fit, *, model: stan.model.Model) -> xr.Dataset:
    """Evaluate log-density gradients of a PyStan model at the posterior draws.

    PyStan's own ``grad_log_prob`` makes a request per draw, 20 ms each; this calls the compiled
    model directly.

    Parameters
    ----------
    data : stan.fit.Fit, DataTree or InferenceData
        What ``model.sample`` returned, or its conversion by ArviZ.
    model : stan.model.Model
        What ``stan.build`` returned.

    Returns
    -------
    Dataset
        ``unconstrained_draw`` and ``gradient``, see :mod:`az_cv.sources.schema`. Draws at which the
        model cannot be evaluated are left out of every chain; ``draw`` says which remain.

    Raises
    ------
    ImportError
        If PyStan is not installed.
    ValueError
        If the program declares unit vectors, complex numbers or tuples, or most draws cannot be
        evaluated.

    See Also
    --------
    az_cv.sources.stan_model.stan_scores : Also handles tuples, complex numbers and unit vectors.

    Notes
    -----
    Stan reads the data anew for every draw, so that the cost grows with their size.
    """
    extension = _import_extension(model)
    _refuse_types(model.program_code)
    posterior = get_group(as_idata(data), "posterior")
    draws = {
        # PyStan calls a parameter by its name in the program; what else is in `posterior` is not.
        name: posterior[name].transpose(*SAMPLE_DIMS, ...).values
        for name in model.param_names
        if name in posterior
    }
    points: dict[tuple[int, int], list[float]] = {}
    gradients: dict[tuple[int, int], list[float]] = {}
    failures: dict[tuple[int, int], str] = {}
    shape = (posterior.sizes["chain"], posterior.sizes["draw"])
    stan_data = dict(model.data)
    for index in np.ndindex(*shape):
        try:
            point = {name: values[index] for name, values in draws.items()}
            points[index] = extension.transform_inits(stan_data, point)
            gradients[index] = extension.log_prob_grad(stan_data, points[index], True)
        except (RuntimeError, ValueError) as error:
            failures[index] = str(error)
    size = len(next(iter(gradients.values()), []))
    unconstrained, gradient = np.full((2, *shape, size), np.nan)
    for index, values in gradients.items():
        unconstrained[index], gradient[index] = points[index], values
    return assemble_scores(
        unconstrained,
        gradient,
        failures,
        names=None,
        coords={dim: posterior[dim].values for dim in SAMPLE_DIMS},
        source="PyStan",
    )


def _refuse_types(code: str) -> None:
    """Refuse parameters whose draws do not tell the unconstrained ones, or that PyStan has not."""
    code = re.sub(r"//.*|/\*(.|\n)*?\*/", "", code)
    block = re.search(r"(?<!transformed\s)\bparameters\s*\{([^{}]*)\}", code)
    declared = block[1] if block else ""
    advice = "Pass a bridgestan.StanModel of the same program as model=."
    if re.search(r"\bunit_vector\b", declared):
        raise ValueError(
            "The program declares a unit_vector, whose draws do not tell the unconstrained ones. "
            f"{advice}"
        )
    found = re.search(r"\b(complex\w*|tuple)\b", declared)
    if found:
        raise ValueError(
            f"The program declares a parameter of type {found[1]}, whose parts PyStan does not "
            f"take back. {advice}"
        )


def _import_extension(model: stan.model.Model) -> Any:
    try:
        from httpstan.models import import_services_extension_module
    except ImportError as error:
        raise ImportError("PyStan models need PyStan 3: pip install pystan") from error
    try:
        return import_services_extension_module(model.model_name)
    except KeyError as error:
        raise ValueError(
            f"The compiled model {model.model_name!r} is not in httpstan's cache. Build it again "
            "with stan.build."
        ) from error
