"""The result of a fit, and its place in InferenceData."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from az_cv.containers.idata import SAMPLE_DIMS, add_groups
from az_cv.display.cells import formatted
from az_cv.display.footer import text_footer
from az_cv.display.html import estimates_table, result_html
from az_cv.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import xarray as xr

    from az_cv.containers.idata import Idata


DIVISION_SLASH = "\N{DIVISION SLASH}"
LABEL = "az_cv_label"


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
        How training went: member, fold, restart, epoch, loss and held_out_variance, in
        standardised units. ``None`` when nothing was trained.

    See Also
    --------
    az_cv.fit : Returns it.
    az_cv.summary : The same estimates as a table.

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

    def without(self, left_out: Sequence[str]) -> ControlVariateResult:
        """Return the result with a word on what there was no time for."""
        if not left_out:
            return self
        return replace(self, settings={**self.settings, "left_out": ", ".join(left_out)})

    def __repr__(self) -> str:
        table = estimates_table(self.estimates)
        sizes = " x ".join(f"{self.draws.sizes[dim]} {dim}s" for dim in SAMPLE_DIMS)
        lines = [f"ControlVariateResult: {len(table)} quantities, {sizes}"]
        lines.append(formatted(table).to_string(max_rows=12))
        notes = {**self.settings, "warnings": self.warnings}
        return "\n".join([*lines, *text_footer(notes)])

    def _repr_html_(self) -> str:
        return result_html(self.estimates, self.settings, self.warnings)

    def attach(self, data: Idata) -> None:
        """Add the groups ``cv_scores``, ``cv_draws`` and ``cv_summary`` to `data`, in place."""
        attrs = {
            "az_cv_version": __version__,
            **self.settings,
            "warnings": "\n".join(self.warnings),
        }
        groups = {
            "cv_scores": self.scores,
            "cv_draws": storable(self.draws).assign_attrs(attrs),
            "cv_summary": storable(self.estimates).assign_attrs(attrs),
        }
        # Copies: what is done to the data later does not reach the result, nor the other way round.
        add_groups(data, {name: group.copy(deep=True) for name, group in groups.items()})


def storable(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset under names that files allow; attributes keep the others.

    Groups of files are paths, so that ``mu/tau`` would be the variable ``tau`` of a group ``mu``.

    Examples
    --------
    >>> import xarray as xr
    >>> stored = storable(xr.Dataset({"mu/tau": 1.5}))
    >>> list(stored.data_vars), list(as_named(stored).data_vars)
    (['mu∕tau'], ['mu/tau'])
    """
    names = {name: str(name).replace("/", DIVISION_SLASH) for name in dataset.data_vars}
    renamed = dataset.rename({name: new for name, new in names.items() if name != new})
    for name, new in names.items():
        if name != new:
            renamed[new].attrs[LABEL] = name
    return renamed


def as_named(dataset: xr.Dataset) -> xr.Dataset:
    """Return what was made storable under its own names."""
    names = {name: value.attrs.get(LABEL, name) for name, value in dataset.data_vars.items()}
    return dataset.rename({name: new for name, new in names.items() if name != new})
