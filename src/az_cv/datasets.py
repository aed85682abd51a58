"""Posteriors that ship with the package."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import xarray as xr

from az_cv.sources.schema import scores_dataset

SCHOOLS = (
    "Choate",
    "Deerfield",
    "Phillips Andover",
    "Phillips Exeter",
    "Hotchkiss",
    "Lawrenceville",
    "St. Paul's",
    "Mt. Hermon",
)
# Exact posterior means by quadrature, to the digits shown; a test computes them again.
EIGHT_SCHOOLS_MEANS = {"mu": 4.3968, "tau": 3.5977, "theta[Choate]": 6.2119}


def load_eight_schools() -> xr.DataTree:
    """Load draws of the eight schools model with their scores.

    Four chains of 1,000 NUTS draws from the non-centered model
    ``mu ~ N(0, 5)``, ``tau ~ HalfCauchy(5)``, ``theta = mu + tau theta_tilde``, made by
    ``examples/make_eight_schools.py``.

    Returns
    -------
    DataTree
        Groups ``posterior`` (mu, tau, theta) and ``cv_scores``.

    See Also
    --------
    az_cv.summary : What to try on it.

    Examples
    --------
    >>> from az_cv import load_eight_schools
    >>> load_eight_schools()["posterior"].sizes["school"]
    8
    """
    with files("az_cv.data").joinpath("eight_schools.npz").open("rb") as handle:
        arrays = np.load(handle)
        draws, gradient = arrays["unconstrained_draw"], arrays["gradient"]
    names = ["mu", "tau_log__", *(f"theta_tilde_{i}" for i in range(8))]
    mu, tau = draws[..., 0], np.exp(draws[..., 1])
    posterior = xr.Dataset(
        {
            "mu": (("chain", "draw"), mu),
            "tau": (("chain", "draw"), tau),
            "theta": (
                ("chain", "draw", "school"),
                mu[..., None] + tau[..., None] * draws[..., 2:],
            ),
        },
        coords={
            "chain": np.arange(draws.shape[0]),
            "draw": np.arange(draws.shape[1]),
            "school": list(SCHOOLS),
        },
    )
    scores = scores_dataset(draws, gradient, parameter_names=names)
    return xr.DataTree.from_dict({"posterior": posterior, "cv_scores": scores})
