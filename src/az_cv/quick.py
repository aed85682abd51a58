"""`quick`: a summary of a posterior that was never sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from az_cv.sources.laplace import laplace_draws
from az_cv.summary import summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from az_cv.engine.choices import Family, FamilyName
    from az_cv.labelled.integrands import Integrand


def quick(
    model: Any,
    fn: Integrand = None,
    *,
    start: Any = None,
    num_draws: int = 1000,
    var_names: str | Sequence[str] | None = None,
    filter_vars: Literal["like", "regex"] | None = None,
    coords: dict[str, Any] | None = None,
    family: Family | FamilyName = "auto",
    ci_prob: float | None = None,
    ci_kind: Literal["eti", "hdi"] | None = None,
    round_to: int | Literal["none"] | None = None,
    random_seed: int = 0,
    progressbar: bool = False,
    max_time: float | None = None,
) -> pd.DataFrame:
    """Summarise a posterior without MCMC: in seconds, or not at all.

    Finds the mode, draws from the Gaussian there, and corrects the draws with their importance
    weights and Stein control variates. Hierarchies are far from that Gaussian; for them it draws
    from Gaussians along their scale, see :func:`az_cv.sources.laplace_draws`. Where the posterior
    is too far from those, too, nothing is reported; the error recommends MCMC.

    Parameters
    ----------
    model : callable or pymc.Model
        A callable is a JAX log density of unconstrained parameters.
    fn : callable, dict of callables, or None
        As in :func:`az_cv.summary`.
    start : array, or dict of arrays
        One point, for callables, see :func:`az_cv.sources.laplace_draws`.
    num_draws : int
    var_names, filter_vars, coords, ci_prob, ci_kind, round_to, progressbar, max_time
        As in :func:`az_cv.summary`.
    family : family or {"auto", "polynomial", "kernel", "network"}
        As in :func:`az_cv.summary`. One kernel takes less time than the default.
    random_seed : int
        Seed of the draws.

    Returns
    -------
    pandas.DataFrame
        The table of :func:`az_cv.summary`; ``vrf_mean`` is the gain over importance sampling with
        the same draws.

    Raises
    ------
    ValueError
        If there is no mode, or the posterior is too far from the draws.

    See Also
    --------
    az_cv.sources.laplace_draws : The draws, for other functions with ``log_weights="psis"``.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import az_cv
    >>> def log_gamma(x):  # logarithms of gamma variables with shapes 9 and 16
    ...     return (jnp.array([9.0, 16.0]) * x - jnp.exp(x)).sum()
    >>> table = az_cv.quick(log_gamma, start=np.zeros(2), num_draws=200)
    >>> bool(abs(table["mean"].iloc[0] - 2.140641) < 1e-4)  # digamma(9)
    True
    """
    data = laplace_draws(model, start=start, num_draws=num_draws, random_seed=random_seed)
    return summary(
        data,
        fn,
        log_weights="psis",
        var_names=var_names,
        filter_vars=filter_vars,
        coords=coords,
        family=family,
        ci_prob=ci_prob,
        ci_kind=ci_kind,
        round_to=round_to,
        progressbar=progressbar,
        attach=False,
        max_time=max_time,
    )
