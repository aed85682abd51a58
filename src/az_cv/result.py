"""The result of a fit, and its place in InferenceData."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from az_cv.idata import add_groups

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from az_cv.idata import Idata


@dataclass(frozen=True)
class ControlVariateResult:
    """Variance-reduced estimates with everything needed to check them.

    Attributes
    ----------
    estimates : Dataset
        Per integrand, along the dimension ``summary``: mean, sd, mcse_mean, mcse_sd, vrf_mean,
        vrf_sd, plain_mean, plain_mcse_mean.
    draws : Dataset
        ``f - g`` at draws the fit of ``g`` did not see. Only their mean is meaningful.
    scores : Dataset
        The scores that were used.
    settings : dict of str
        Family, solver, folds, and the share of each family in the answer.
    warnings : tuple of str
    history : DataFrame or None
        Of training: member, fold, restart, epoch, loss and held_out_variance, in standardised
        units. ``None`` when nothing was trained.
    """

    estimates: xr.Dataset
    draws: xr.Dataset
    scores: xr.Dataset
    settings: dict[str, str]
    warnings: tuple[str, ...]
    history: pd.DataFrame | None = None

    def attach(self, data: Idata) -> None:
        """Add the groups ``cv_scores``, ``cv_draws`` and ``cv_summary`` to `data`, in place."""
        attrs = {**self.settings, "warnings": "\n".join(self.warnings)}
        add_groups(
            data,
            {
                "cv_scores": self.scores,
                "cv_draws": self.draws.assign_attrs(attrs),
                "cv_summary": self.estimates.assign_attrs(attrs),
            },
        )
