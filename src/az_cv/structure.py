"""`structure`: which parameters govern others, as far as the scores tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from az_cv.containers.idata import as_idata, get_group, model_of
from az_cv.families.hierarchy import standardised_influence
from az_cv.labelled.validation import validate_scores
from az_cv.sources.dispatch import scores as find_scores
from az_cv.sources.schema import DRAW, GRADIENT, PARAMETER

if TYPE_CHECKING:
    import xarray as xr

SHOWN = 5


@dataclass(frozen=True)
class Structure:
    """What the scores tell about a model.

    Attributes
    ----------
    top : list of str
        Unconstrained parameters that govern many others, such as the logarithm of a group's sd,
        most influential first. Empty where none stands out.
    influence : Series
        A linear fit leaves a part of each score. Here is the share of that part that a parameter
        explains by governing the scale of others, summed over the others, largest first.
    interaction : DataFrame
        In row k and column j: the share of what is not linear in the score of parameter j that its
        product with parameter k explains.
    """

    top: list[str]
    influence: pd.Series
    interaction: pd.DataFrame

    def governed(self, name: str) -> list[str]:
        """Return the parameters that one of them governs: together 90% of its influence."""
        shares = np.maximum(self.interaction.loc[name].to_numpy(dtype=float), 0.0)
        order = np.argsort(-shares)
        enough = int(np.searchsorted(np.cumsum(shares[order]), 0.9 * shares.sum())) + 1
        return [str(self.interaction.columns[k]) for k in order[:enough]]

    def __str__(self) -> str:
        if not self.top:
            return (
                f"No parameter stands out among {len(self.influence)}: none governs the scale of "
                "many others."
            )
        lines = [f"Global: {', '.join(self.top)}."]
        for name in self.top:
            others = self.governed(name)
            listed = ", ".join(others[:SHOWN]) + (", ..." if len(others) > SHOWN else "")
            lines.append(f"{name} governs {len(others)} parameters: {listed}")
        return "\n".join(lines)


def structure(
    data: Any, *, scores: xr.Dataset | None = None, model: Any = None, progressbar: bool = False
) -> Structure:
    """Find the parameters that govern others, from draws and scores alone.

    In a hierarchical model the sd of a group governs the scale of every effect in the group. The
    scores show that: where parameter k governs parameter j, the score of j is not linear in the
    draws, and the product of k and j explains what is left. ``family="auto"`` uses what it finds.

    Parameters
    ----------
    data : InferenceData, DataTree or what ``arviz_base`` converts
    scores : Dataset, optional
        As from :func:`az_cv.scores`. Found in `data`, or computed from `model`, when not given.
    model : optional
        See :func:`az_cv.scores`.
    progressbar : bool

    Returns
    -------
    Structure
        Print it to read what was found; :func:`az_cv.plots.plot_structure` draws it.

    See Also
    --------
    az_cv.HierarchicalKernel : The family that uses what is found.
    az_cv.plots.plot_structure : Draws it.

    Examples
    --------
    >>> import az_cv
    >>> found = az_cv.structure(az_cv.load_eight_schools())
    >>> found.top
    ['tau_log__']
    >>> print(found.influence.head(3).round(1))
    tau_log__        1.8
    theta_tilde_0    0.1
    theta_tilde_6    0.1
    Name: influence, dtype: float64
    """
    idata = as_idata(data)
    if scores is None:
        scores = find_scores(idata, model=model_of(data, model), progressbar=progressbar)
    scores, _ = validate_scores(scores, get_group(idata, "posterior"))
    labels = [str(label) for label in scores[PARAMETER].values]
    x, s = (np.asarray(scores[name], dtype=float) for name in (DRAW, GRADIENT))
    found, moving = standardised_influence(x.reshape(-1, len(labels)), s.reshape(-1, len(labels)))
    names = [labels[k] for k in moving]
    return Structure(
        top=[names[k] for k in found.top],
        influence=pd.Series(found.total, index=names, name="influence").sort_values(
            ascending=False
        ),
        interaction=pd.DataFrame(found.interaction, index=names, columns=names),
    )
