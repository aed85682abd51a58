"""The one exchange format of scores.

A scores ``Dataset`` holds the draws on the unconstrained scale and the gradient of the log density
there, Jacobian included::

    unconstrained_draw  (chain, draw, unconstrained_parameter)
    gradient            (chain, draw, unconstrained_parameter)
    log_density         (chain, draw), where the source computes it
    log_proposal        (chain, draw), of draws from a proposal whose log density is known

The first two are the names nutpie writes. Every source of scores returns this, and the engine reads
this. The log density need not be normalised; it is compared with the one that the sampler stored.
All are those of the same coordinates, so that both log densities differ by the log weights.

Attributes say where the scores come from: ``source`` and, where the sampler itself computed the
gradients, ``gradients = "sampler"``; ``hard_edges`` names what ends while its density has not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jaxtyping import Float

DRAW = "unconstrained_draw"
GRADIENT = "gradient"
LOG_DENSITY = "log_density"
LOG_PROPOSAL = "log_proposal"
PARAMETER = "unconstrained_parameter"
DIMS = (*SAMPLE_DIMS, PARAMETER)


def scores_dataset(
    unconstrained_draw: Float[np.ndarray, "chain draw d"],
    gradient: Float[np.ndarray, "chain draw d"],
    *,
    log_density: Float[np.ndarray, "chain draw"] | None = None,
    parameter_names: Sequence[str] | None = None,
    coords: Mapping[str, object] | None = None,
    attrs: Mapping[str, object] | None = None,
) -> xr.Dataset:
    """Assemble a scores ``Dataset`` from arrays.

    Parameters
    ----------
    unconstrained_draw, gradient : array of shape (chain, draw, d)
    log_density : array of shape (chain, draw), optional
        Log density of the model, up to a constant. It is compared with what the sampler stored.
    parameter_names : sequence of str, optional
        Labels of the unconstrained parameters. Defaults to ``x_0, x_1, ...``.
    coords : mapping, optional
        ``chain`` and ``draw`` coordinates. Default to 0, 1, ...
    attrs : mapping, optional
        Attributes of the Dataset, such as ``source``.

    Returns
    -------
    Dataset

    See Also
    --------
    az_cv.scores : From models and fits.

    Examples
    --------
    >>> import numpy as np
    >>> from az_cv import scores_dataset
    >>> draws = np.random.default_rng(0).normal(size=(4, 100, 2))
    >>> scores_dataset(draws, -draws).sizes["unconstrained_parameter"]
    2
    """
    for name, values in ((DRAW, unconstrained_draw), (GRADIENT, gradient)):
        if np.ma.is_masked(values):
            raise ValueError(
                f"{name} has {int(np.ma.getmaskarray(values).sum())} masked entries. Leave the "
                "draws they belong to out, in every chain."
            )
    draws, gradients = np.asarray(unconstrained_draw, float), np.asarray(gradient, float)
    if draws.ndim != 3 or draws.shape != gradients.shape:
        raise ValueError(
            "unconstrained_draw and gradient must both have shape (chain, draw, parameter); "
            f"they have {draws.shape} and {gradients.shape}."
        )
    names = (
        [f"x_{i}" for i in range(draws.shape[2])] if parameter_names is None else parameter_names
    )
    labels = dict(coords or {})
    variables: dict[str, tuple] = {DRAW: (DIMS, draws), GRADIENT: (DIMS, gradients)}
    if log_density is not None:
        densities = np.asarray(log_density, float)
        if densities.shape != draws.shape[:2]:
            raise ValueError(
                f"log_density must have shape (chain, draw), here {draws.shape[:2]}; it has "
                f"{densities.shape}."
            )
        variables[LOG_DENSITY] = (SAMPLE_DIMS, densities)
    return xr.Dataset(
        variables,
        coords={
            "chain": labels.get("chain", np.arange(draws.shape[0])),
            "draw": labels.get("draw", np.arange(draws.shape[1])),
            PARAMETER: np.asarray(list(names), dtype=str),
        },
        attrs=dict(attrs or {}),
    )
