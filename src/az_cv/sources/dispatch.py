"""`scores`: one function that finds the right source for the model it is given."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from az_cv.containers.idata import as_idata, get_group, is_instance, model_of
from az_cv.sources.stored import stored_scores

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import xarray as xr
    from jaxtyping import Float

    from az_cv.containers.idata import Idata

ACCEPTED = (
    "a pymc.Model, a bridgestan.StanModel, a cmdstanpy.CmdStanMCMC, a numpyro.infer.MCMC, a PyStan "
    "model, or a callable: a JAX log density or a function x -> gradient"
)
# Those of them that know every constant of their density.
EVIDENT = (
    "a pymc.Model, a bridgestan.StanModel, a numpyro.infer.MCMC, or a callable: a JAX log density "
    "with every constant"
)


def scores(data: Any, *, model: Any = None, progressbar: bool = True) -> xr.Dataset:
    """Return unconstrained draws and log-density gradients for the draws in `data`.

    Parameters
    ----------
    data : InferenceData, DataTree, CmdStanMCMC, NumPyro's MCMC, or what ``arviz_base`` converts
        Holds the group ``posterior``.
    model : optional
        ``pymc.Model`` (default: the model on the context stack), ``bridgestan.StanModel``,
        ``cmdstanpy.CmdStanMCMC``, ``numpyro.infer.MCMC``, a PyStan model, or a callable: a JAX log
        density, or the gradient of one. Not needed when scores are stored in `data`, nor when
        `data` is a ``CmdStanMCMC`` or NumPyro's ``MCMC``, which know their model.
    progressbar : bool
        Show progress of long gradient evaluations.

    Returns
    -------
    Dataset
        ``unconstrained_draw`` and ``gradient``, dims (chain, draw, unconstrained_parameter).

    See Also
    --------
    az_cv.check_scores : Whether they belong to the draws.
    az_cv.scores_dataset : From arrays.

    Examples
    --------
    >>> import az_cv
    >>> az_cv.scores(az_cv.load_eight_schools()).sizes["unconstrained_parameter"]
    10
    """
    model = model_of(data, model)
    fit_is_data = model is data
    data = as_idata(data)
    if model is None:
        stored = stored_scores(data)
        if stored is not None:
            return stored
    if is_instance(model, "numpyro.infer", "MCMC"):
        from az_cv.sources.numpyro_mcmc import numpyro_scores

        return numpyro_scores(model, data, progressbar=progressbar)
    if is_instance(model, "bridgestan", "StanModel"):
        from az_cv.sources.stan_model import stan_scores

        return stan_scores(data, model=model)
    if is_instance(model, "cmdstanpy", "CmdStanMCMC"):
        from az_cv.sources.cmdstan import cmdstan_scores

        return cmdstan_scores(model, None if fit_is_data else data)
    if is_instance(model, "stan.model", "Model"):
        from az_cv.sources.pystan_fit import pystan_scores

        return pystan_scores(data, model=model)
    if is_instance(model, "pymc", "Model") or (model is None and _pymc_model_on_stack()):
        from az_cv.sources.pymc_model import pymc_scores

        return pymc_scores(data, model=model, progressbar=progressbar)
    if callable(model):
        from az_cv.sources.log_density import callable_scores

        return callable_scores(data, model, progressbar=progressbar)
    if model is None:
        raise ValueError(
            "data holds no gradients and there is no model to compute them from. Call inside "
            f"`with model:`, pass model= ({ACCEPTED}), or pass scores=.{_library_hint(data)}"
        )
    raise TypeError(
        f"model is of type {type(model).__module__}.{type(model).__qualname__}, which has no "
        f"gradients to offer. {_hint(model)}Accepted: {ACCEPTED}."
    )


def log_density_of(
    data: Any, *, model: Any = None
) -> Callable[[Float[np.ndarray, "n d"]], Float[np.ndarray, " n"]]:
    """Return the log density of a model at unconstrained points, every constant included.

    Parameters
    ----------
    data : InferenceData, DataTree, NumPyro's MCMC, or what ``arviz_base`` converts
        Holds the group ``posterior``.
    model : optional
        ``pymc.Model`` (default: the model on the context stack), ``bridgestan.StanModel``,
        ``numpyro.infer.MCMC``, or a callable: a log density.

    Returns
    -------
    callable
        Maps points of shape (n, d), in the order of :func:`scores`, to n log densities.

    Raises
    ------
    TypeError
        If the model drops constants, or there is none.

    Examples
    --------
    >>> import numpy as np
    >>> log_density = log_density_of({"x": np.zeros((2, 5))}, model=lambda x: -x[0])
    >>> log_density(np.array([[3.0]]))
    array([-3.])
    """
    model = model_of(data, model)
    data = as_idata(data)
    if is_instance(model, "numpyro.infer", "MCMC"):
        from az_cv.sources.numpyro_density import numpyro_log_density

        return numpyro_log_density(model, data)
    if is_instance(model, "bridgestan", "StanModel"):
        from az_cv.sources.stan_density import stan_log_density

        return stan_log_density(data, model=model)
    if is_instance(model, "cmdstanpy", "CmdStanMCMC") or is_instance(model, "stan.model", "Model"):
        raise TypeError(
            f"{type(model).__name__} offers log densities without the constants of statements with "
            "`~`, and the evidence would be wrong by an unknown factor. Pass a BridgeStan model, "
            "which keeps them: az_cv.sources.load_stan_model(path, data)."
        )
    if is_instance(model, "pymc", "Model") or (model is None and _pymc_model_on_stack()):
        from az_cv.sources.pymc_model import pymc_log_density

        return pymc_log_density(data, model=model)
    if callable(model):
        from az_cv.sources.callable_density import callable_log_density

        return callable_log_density(data, model)
    raise TypeError(
        f"The evidence needs a model with its log density; model is {type(model).__name__}. "
        f"{_hint(model)}Accepted: {EVIDENT}."
    )


def _hint(model: Any) -> str:
    """Say what to pass instead of what looks like a model but is none."""
    if is_instance(model, "cmdstanpy", "CmdStanModel"):
        return "Pass the fit that its method `sample` returned. "
    if type(model).__module__.startswith("cmdstanpy"):
        return (
            "Of CmdStanPy's fits, only those of MCMC know their gradients; for approximations see "
            "az_cv.sources.cmdstan_approximation. "
        )
    if type(model).__module__.startswith("nutpie"):
        return "Pass the PyMC or BridgeStan model it was compiled from. "
    if isinstance(model, str | os.PathLike):
        return "Build a model from a Stan program with az_cv.sources.load_stan_model(path, data). "
    return ""


def _library_hint(data: Idata) -> str:
    """Say what the library that made the draws has for a model."""
    posterior = get_group(data, "posterior")
    # ArviZ calls PyStan by the name of its module.
    hints = {
        "pystan": " PyStan's fit does not know its model: pass model=, what stan.build returned.",
        "cmdstanpy": " These are draws of CmdStanPy: pass the fit itself, or as model=.",
        "numpyro": " These are draws of NumPyro: pass its MCMC itself, or as model=.",
    }
    hints["stan"] = hints["pystan"]
    return hints.get(str(posterior.attrs.get("inference_library")), "")


def _pymc_model_on_stack() -> bool:
    if "pymc" not in sys.modules:
        return False
    import pymc

    try:
        pymc.modelcontext(None)
    except TypeError:
        return False
    return True
