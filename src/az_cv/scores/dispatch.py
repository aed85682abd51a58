"""`scores`: one function that finds the right source for the model it is given."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from az_cv.idata import as_idata
from az_cv.scores.stored import stored_scores

if TYPE_CHECKING:
    import xarray as xr


def scores(data: Any, *, model: Any = None, progressbar: bool = True) -> xr.Dataset:
    """Return unconstrained draws and log-density gradients for the draws in `data`.

    Parameters
    ----------
    data : InferenceData, DataTree or what ``arviz_base`` converts
        Holds the group ``posterior``.
    model : optional
        ``pymc.Model`` (default: the model on the context stack), ``bridgestan.StanModel``,
        ``cmdstanpy.CmdStanMCMC``, ``numpyro.infer.MCMC``, a PyStan model, or a callable: a JAX log
        density, or the gradient of one. Not needed when scores are stored in `data`.
    progressbar : bool
        Show progress of long gradient evaluations.

    Returns
    -------
    Dataset
        ``unconstrained_draw`` and ``gradient``, dims (chain, draw, unconstrained_parameter).

    Examples
    --------
    >>> import az_cv
    >>> az_cv.scores(az_cv.load_eight_schools()).sizes["unconstrained_parameter"]
    10
    """
    data = as_idata(data)
    if model is None:
        stored = stored_scores(data)
        if stored is not None:
            return stored
    if _is_instance(model, "numpyro.infer", "MCMC"):
        from az_cv.scores.numpyro_mcmc import numpyro_scores

        return numpyro_scores(model, data, progressbar=progressbar)
    if _is_instance(model, "bridgestan", "StanModel"):
        from az_cv.scores.stan_model import stan_scores

        return stan_scores(data, model=model)
    if _is_instance(model, "cmdstanpy", "CmdStanMCMC"):
        from az_cv.scores.cmdstan import cmdstan_scores

        return cmdstan_scores(model)
    if _is_instance(model, "stan.model", "Model"):
        from az_cv.scores.pystan_fit import pystan_scores

        return pystan_scores(data, model=model)
    if _is_instance(model, "pymc", "Model") or (model is None and _pymc_model_on_stack()):
        from az_cv.scores.pymc_model import pymc_scores

        return pymc_scores(data, model=model, progressbar=progressbar)
    if callable(model):
        from az_cv.scores.log_density import callable_scores

        return callable_scores(data, model, progressbar=progressbar)
    if model is None:
        raise ValueError(
            "data holds no gradients and there is no model to compute them from. Call inside "
            "`with model:`, pass model= (PyMC, BridgeStan, cmdstanpy fit, NumPyro MCMC or a "
            "callable x -> gradient), or pass scores=."
        )
    raise TypeError(
        f"model of type {type(model).__name__} is not known. Pass a pymc.Model, a "
        "bridgestan.StanModel, a cmdstanpy.CmdStanMCMC, a numpyro.infer.MCMC, a PyStan model or a "
        "callable."
    )


def _is_instance(model: Any, module: str, name: str) -> bool:
    """Test the type without importing a library that the object cannot come from."""
    loaded = sys.modules.get(module)
    kind = getattr(loaded, name, None)
    return isinstance(kind, type) and isinstance(model, kind)


def _pymc_model_on_stack() -> bool:
    if "pymc" not in sys.modules:
        return False
    import pymc

    try:
        pymc.modelcontext(None)
    except TypeError:
        return False
    return True
