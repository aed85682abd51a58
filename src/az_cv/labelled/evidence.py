"""The evidence of a model as a result: printed, attached to the data, read back from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr

from az_cv.containers.idata import add_groups, get_group, group_names
from az_cv.containers.unknown_names import UnknownNameError
from az_cv.display.digits import gain_text, with_error
from az_cv.display.html import summary_html
from az_cv.version import __version__

if TYPE_CHECKING:
    from az_cv.containers.idata import Idata

GROUP = "cv_evidence"
NUMBERS = ("log_evidence", "mcse", "plain_log_evidence", "plain_mcse")


@dataclass(frozen=True)
class Evidence:
    """The logarithm of a marginal likelihood with its Monte Carlo standard error.

    Attributes
    ----------
    log_evidence, mcse : float
        Natural logarithm of the probability, or density, of the data under the model.
    plain_log_evidence, plain_mcse : float
        The same without control variates: by plain bridge sampling with a Gaussian proposal, or
        from plain averages at the temperatures of a ladder.
    diagnostics : dict of str to float
        Bridge sampling gives ``pareto_k_posterior``, ``pareto_k_proposal`` and ``overlap``, which
        is between 0 and 1.
    settings : dict of str
        Method, proposal, family, draws.
    warnings : tuple of str

    See Also
    --------
    az_cv.log_evidence : Returns it.
    az_cv.bayes_factor : Compares two.

    Examples
    --------
    >>> from az_cv import Evidence
    >>> Evidence(-31.254, 0.0021, -31.26, 0.021)
    log evidence: -31.2540 ± 0.0021 (gain 100)
    >>> round(Evidence(-31.254, 0.0021, -31.26, 0.021).vrf)
    100
    """

    log_evidence: float
    mcse: float
    plain_log_evidence: float
    plain_mcse: float
    diagnostics: dict[str, float] | None = None
    settings: dict[str, str] | None = None
    warnings: tuple[str, ...] = ()

    @property
    def vrf(self) -> float:
        """Plain variance over the new one."""
        return float((self.plain_mcse / self.mcse) ** 2) if self.mcse > 0 else np.inf

    @property
    def table(self) -> pd.DataFrame:
        """The numbers in one row."""
        return pd.DataFrame(
            {
                "log_evidence": [self.log_evidence],
                "mcse_log_evidence": [self.mcse],
                "vrf_log_evidence": [self.vrf],
                **{name: [value] for name, value in (self.diagnostics or {}).items()},
            },
            index=["model"],
        )

    def __repr__(self) -> str:
        lines = [
            f"log evidence: {with_error(self.log_evidence, self.mcse)} (gain {gain_text(self.vrf)})"
        ]
        if self.diagnostics:
            said = [f"{name} {value:.2f}" for name, value in self.diagnostics.items()]
            lines.append("; ".join(said))
        if self.settings:
            lines.append("; ".join(self.settings.values()))
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])

    def _repr_html_(self) -> str:
        table = self.table
        table.attrs["family"] = "; ".join((self.settings or {}).values())
        table.attrs["warnings"] = list(self.warnings)
        return summary_html(table)

    def attach(self, data: Idata) -> None:
        """Add the group ``cv_evidence`` to `data`, in place."""
        numbers = {name: getattr(self, name) for name in NUMBERS}
        group = xr.Dataset(
            {**numbers, **(self.diagnostics or {})},
            attrs={
                "az_cv_version": __version__,
                **(self.settings or {}),
                "warnings": "\n".join(self.warnings),
            },
        )
        add_groups(data, {GROUP: group})


def stored_evidence(data: Idata) -> Evidence:
    """Return the evidence that was attached to `data`.

    Raises
    ------
    KeyError
        If there is none.
    """
    if GROUP not in group_names(data):
        raise UnknownNameError(
            f"data has no group {GROUP!r}. Call az_cv.log_evidence(data, model=...) first, and "
            "pass what it returns, or the data that it was attached to."
        )
    group = get_group(data, GROUP)
    settings = {str(key): str(value) for key, value in group.attrs.items()}
    settings.pop("az_cv_version", None)
    said = settings.pop("warnings", "")
    value, mcse, plain_value, plain_mcse = (float(group[name]) for name in NUMBERS)
    return Evidence(
        value,
        mcse,
        plain_value,
        plain_mcse,
        diagnostics={
            str(name): float(value)
            for name, value in group.data_vars.items()
            if name not in NUMBERS
        },
        settings=settings,
        warnings=tuple(said.split("\n")) if said else (),
    )
