"""Draws of CmdStan's approximations: Laplace, Pathfinder, variational inference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from az_cv.sources.proposed import as_tree

if TYPE_CHECKING:
    import xarray as xr
    from cmdstanpy import CmdStanLaplace, CmdStanPathfinder, CmdStanVB

# CmdStan's names for the log density of the approximation, on the unconstrained scale.
LOG_PROPOSALS = ("log_q__", "lp_approx__", "log_g__")


def cmdstan_approximation(fit: CmdStanLaplace | CmdStanPathfinder | CmdStanVB) -> xr.DataTree:
    """Read the draws of an approximation that CmdStan made.

    Parameters
    ----------
    fit : CmdStanLaplace, CmdStanPathfinder or CmdStanVB
        From ``laplace_sample``, ``pathfinder`` or ``variational``. Draws with many digits,
        ``sig_figs=16``, are unconstrained without loss.

    Returns
    -------
    DataTree
        ``posterior``, and ``sample_stats`` with ``log_proposal`` where CmdStan stores it; for
        ``az_cv.summary(..., model=..., draws="approximate")`` with a BridgeStan model.

    Raises
    ------
    TypeError
        If `fit` is something else.

    See Also
    --------
    az_cv.sources.load_stan_model : Builds the BridgeStan model that gives the gradients.
    az_cv.summary : Takes the draws, with ``draws="approximate"``.

    Examples
    --------
    >>> import az_cv
    >>> import cmdstanpy  # doctest: +SKIP
    >>> program = cmdstanpy.CmdStanModel(stan_file="model.stan")  # doctest: +SKIP
    >>> fit = program.pathfinder(data="data.json", sig_figs=16)  # doctest: +SKIP
    >>> data = az_cv.sources.cmdstan_approximation(fit)  # doctest: +SKIP
    >>> model = az_cv.sources.load_stan_model("model.stan", "data.json")  # doctest: +SKIP
    >>> print(az_cv.summary(data, model=model, draws="approximate"))  # doctest: +SKIP
    """
    kind = type(fit).__name__
    if kind not in ("CmdStanLaplace", "CmdStanPathfinder", "CmdStanVB"):
        raise TypeError(
            f"fit is a {kind}, not an approximation of CmdStanPy. Fits of MCMC are data "
            "themselves: az_cv.summary(fit)."
        )
    is_variational = kind == "CmdStanVB"
    found = fit.stan_variables(mean=False) if is_variational else fit.stan_variables()
    variables = {name: np.asarray(values, dtype=float)[None] for name, values in found.items()}
    stored = {} if is_variational else fit.method_variables()
    density = next((stored[name] for name in LOG_PROPOSALS if name in stored), None)
    number = next(iter(variables.values())).shape[1]
    # Pathfinder resamples its draws by their weights; the density it had is no longer theirs.
    known = density is not None and not getattr(fit, "is_resampled", False)
    values = np.asarray(density, dtype=float) if known else np.full(number, np.nan)
    tree = as_tree(variables, values[None], {"inference_library": "cmdstanpy"})
    if not known:
        del tree["sample_stats"]
    return tree
