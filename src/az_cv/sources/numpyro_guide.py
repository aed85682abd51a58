"""Draws of NumPyro's variational guides, with the gradients of the model they approximate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS
from az_cv.sources.numpyro_mcmc import site_scores

if TYPE_CHECKING:
    from numpyro.infer.autoguide import AutoGuide

CHAINS = 4  # the draws are independent; what reads them expects chains


def guide_draws(
    guide: AutoGuide,
    params: dict[str, Any],
    *model_args: Any,
    num_draws: int = 1000,
    random_seed: int = 0,
    progressbar: bool = False,
    **model_kwargs: Any,
) -> xr.DataTree:
    """Draw from a guide that NumPyro's SVI has fitted to a model.

    Parameters
    ----------
    guide : AutoGuide of NumPyro
        ``AutoNormal``, ``AutoMultivariateNormal``, ``AutoLaplaceApproximation``, ...
    params : dict
        What the run of SVI returned as ``params``.
    *model_args, **model_kwargs
        What the model takes, as in the run.
    num_draws : int
    random_seed : int
    progressbar : bool

    Returns
    -------
    DataTree
        ``posterior`` with the draws of every site, and ``cv_scores``; for
        ``az_cv.summary(..., draws="approximate")``.

    See Also
    --------
    az_cv.sources.laplace_draws : Draws from the Gaussian at the mode.
    az_cv.summary : Takes the draws, with ``draws="approximate"``.

    Examples
    --------
    With a model, its data ``y``, and ``svi = SVI(model, guide, optimizer, Trace_ELBO())``:

    >>> import jax
    >>> import az_cv
    >>> found = svi.run(jax.random.key(0), 500, y)  # doctest: +SKIP
    >>> data = az_cv.sources.guide_draws(guide, found.params, y)  # doctest: +SKIP
    >>> print(az_cv.summary(data, draws="approximate"))  # doctest: +SKIP
    """
    import jax

    if num_draws < CHAINS or num_draws % CHAINS:
        raise ValueError(f"num_draws must be a multiple of {CHAINS}; it is {num_draws}.")
    shape = (CHAINS, num_draws // CHAINS)
    sampled = guide.sample_posterior(jax.random.key(random_seed), params, sample_shape=shape)
    draws = {name: np.asarray(values) for name, values in sampled.items()}
    scores = site_scores(guide.model, model_args, model_kwargs, draws, {}, progressbar=progressbar)
    labels = {dim: np.arange(size) for dim, size in zip(SAMPLE_DIMS, shape)}
    variables = {
        name: ((*SAMPLE_DIMS, *(f"{name}_dim_{k}" for k in range(values.ndim - 2))), values)
        for name, values in draws.items()
    }
    posterior = xr.Dataset(variables, labels, {"inference_library": "numpyro"})
    return xr.DataTree.from_dict({"posterior": posterior, "cv_scores": scores})
