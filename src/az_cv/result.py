"""The result of a fit, and its place in InferenceData."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import az_cv
from az_cv.idata import SAMPLE_DIMS, add_groups

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
    integrands : Dataset
        ``f`` at the draws.
    scores : Dataset
        The scores that were used.
    settings : dict of str
        Family, solver, folds, and the share of each family in the answer.
    warnings : tuple of str
    history : DataFrame or None
        Of training: member, fold, restart, epoch, loss and held_out_variance, in standardised
        units. ``None`` when nothing was trained.

    Examples
    --------
    >>> import az_cv
    >>> data = az_cv.load_eight_schools().isel(draw=slice(100))
    >>> result = az_cv.fit(data, family="polynomial")
    >>> result.draws["theta"].sizes["school"]
    8
    >>> result.attach(data)
    >>> "cv_summary" in data
    True
    """

    estimates: xr.Dataset
    draws: xr.Dataset
    integrands: xr.Dataset
    scores: xr.Dataset
    settings: dict[str, str]
    warnings: tuple[str, ...]
    history: pd.DataFrame | None = None

    def __repr__(self) -> str:
        from az_cv.html import estimates_table

        table = estimates_table(self.estimates)
        sizes = " x ".join(f"{self.draws.sizes[dim]} {dim}s" for dim in SAMPLE_DIMS)
        lines = [f"ControlVariateResult: {len(table)} quantities, {sizes}"]
        lines += [f"{key:<8}{self.settings[key]}" for key in ("family", "folds")]
        lines.append(table.to_string(max_rows=12, float_format=lambda value: f"{value:.4g}"))
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])

    def _repr_html_(self) -> str:
        from az_cv.html import result_html

        return result_html(self)

    def attach(self, data: Idata) -> None:
        """Add the groups ``cv_scores``, ``cv_draws`` and ``cv_summary`` to `data`, in place."""
        attrs = {
            "az_cv_version": az_cv.__version__,
            **self.settings,
            "warnings": "\n".join(self.warnings),
        }
        add_groups(
            data,
            {
                "cv_scores": self.scores,
                "cv_draws": self.draws.assign_attrs(attrs),
                "cv_summary": self.estimates.assign_attrs(attrs),
            },
        )
