"""`bayes_factor` and `compare_evidence`: models of the same data against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.special

from az_cv.containers.idata import as_idata
from az_cv.display.digits import with_error
from az_cv.display.html import summary_html
from az_cv.labelled.evidence import Evidence, stored_evidence


@dataclass(frozen=True)
class BayesFactor:
    """How much more probable the data are under the first model than under the second.

    Attributes
    ----------
    log_bayes_factor, mcse : float
        Natural logarithm, positive in favour of the first model, and its Monte Carlo error.
    first, second : Evidence

    See Also
    --------
    az_cv.bayes_factor : Returns it.

    Examples
    --------
    >>> from az_cv import BayesFactor, Evidence
    >>> first = Evidence(-10.0, 0.02, -10.0, 0.2)
    >>> second = Evidence(-11.2, 0.02, -11.0, 1.0)
    >>> BayesFactor(1.2, 0.03, first, second)
    log Bayes factor: 1.200 ± 0.030
    Bayes factor: 3.320 ± 0.100
    probability of the first model, if both were equally probable before: 0.7685 ± 0.0053
    """

    log_bayes_factor: float
    mcse: float
    first: Evidence
    second: Evidence

    @property
    def bayes_factor(self) -> float:
        """The factor itself, infinite where it is too large for a number."""
        with np.errstate(over="ignore"):
            return float(np.exp(self.log_bayes_factor))

    @property
    def probability(self) -> float:
        """Probability of the first model, if both were equally probable before."""
        return float(scipy.special.expit(self.log_bayes_factor))

    @property
    def table(self) -> pd.DataFrame:
        """The numbers in one row."""
        probability = self.probability
        return pd.DataFrame(
            {
                "log_bayes_factor": [self.log_bayes_factor],
                "mcse_log_bayes_factor": [self.mcse],
                "bayes_factor": [self.bayes_factor],
                "mcse_bayes_factor": [self.bayes_factor * self.mcse],
                "probability": [probability],
                "mcse_probability": [probability * (1 - probability) * self.mcse],
            },
            index=["first / second"],
        )

    def __repr__(self) -> str:
        row = self.table.iloc[0]
        factor = with_error(row["bayes_factor"], row["mcse_bayes_factor"])
        probability = with_error(row["probability"], row["mcse_probability"])
        lines = [
            f"log Bayes factor: {with_error(self.log_bayes_factor, self.mcse)}",
            f"Bayes factor: {factor}",
            "probability of the first model, if both were equally probable before: " + probability,
        ]
        said = dict.fromkeys((*self.first.warnings, *self.second.warnings))
        return "\n".join([*lines, *(f"warning: {text}" for text in said)])

    def _repr_html_(self) -> str:
        table = self.table
        table.attrs["warnings"] = list(dict.fromkeys((*self.first.warnings, *self.second.warnings)))
        return summary_html(table)


def bayes_factor(first: Any, second: Any) -> BayesFactor:
    """Compare two models of the same data.

    Parameters
    ----------
    first, second : Evidence, or InferenceData or DataTree
        As :func:`az_cv.log_evidence` returned them, or data that it was attached to. Both models
        must be of the very same data.

    Returns
    -------
    BayesFactor
        With its Monte Carlo error, in which both evidences are independent.

    See Also
    --------
    compare_evidence : Several models.

    Examples
    --------
    >>> from az_cv import Evidence, bayes_factor
    >>> first = Evidence(-10.0, 0.03, -10.0, 0.3)
    >>> second = Evidence(-12.0, 0.04, -12.0, 0.4)
    >>> found = bayes_factor(first, second)
    >>> print(found)
    log Bayes factor: 2.000 ± 0.050
    Bayes factor: 7.39 ± 0.37
    probability of the first model, if both were equally probable before: 0.8808 ± 0.0052
    """
    one, other = _evidence(first), _evidence(second)
    return BayesFactor(
        log_bayes_factor=one.log_evidence - other.log_evidence,
        mcse=float(np.hypot(one.mcse, other.mcse)),
        first=one,
        second=other,
    )


def compare_evidence(
    models: Mapping[str, Any], *, prior: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """Compare models of the same data, the most probable first.

    Parameters
    ----------
    models : mapping of name to Evidence, InferenceData or DataTree
        As :func:`az_cv.log_evidence` returned them, or data that it was attached to.
    prior : mapping of name to float, optional
        How probable each model was before the data, up to a common factor. Equal by default.

    Returns
    -------
    pandas.DataFrame
        Columns ``log_evidence``; ``log_bayes_factor`` against the model with the largest evidence;
        ``probability`` of the model given the data, if one of them is true; and their errors,
        ``mcse_`` before the name.

    Raises
    ------
    ValueError
        If there are fewer than two models, or the prior lacks one or is not positive.

    See Also
    --------
    az_cv.bayes_factor : Two models.
    az_cv.log_evidence : One model.

    Examples
    --------
    >>> from az_cv import Evidence, compare_evidence
    >>> flat = Evidence(-12.0, 0.004, -12.0, 0.04)
    >>> line = Evidence(-10.0, 0.003, -10.0, 0.03)
    >>> table = compare_evidence({"flat": flat, "line": line})
    >>> columns = ["log_evidence", "mcse_log_evidence", "probability"]
    >>> print(table[columns].round(3).rename_axis(None))
          log_evidence  mcse_log_evidence  probability
    line         -10.0              0.003        0.881
    flat         -12.0              0.004        0.119
    """
    if len(models) < 2:
        raise ValueError(f"There must be two models or more to compare; {list(models)} are given.")
    found = {str(name): _evidence(model) for name, model in models.items()}
    log_prior = np.log(_prior(list(found), prior))
    values = np.array([one.log_evidence for one in found.values()])
    errors = np.array([one.mcse for one in found.values()])
    probability = scipy.special.softmax(values + log_prior)
    # The derivative of the probability of i with respect to the log evidence of j.
    slopes = probability[:, None] * (np.eye(len(found)) - probability)
    best = int(np.argmax(values))
    to_best = np.hypot(errors, errors[best])
    to_best[best] = 0.0
    table = pd.DataFrame(
        {
            "log_evidence": values,
            "mcse_log_evidence": errors,
            "log_bayes_factor": values - values[best],
            "mcse_log_bayes_factor": to_best,
            "probability": probability,
            "mcse_probability": np.sqrt((slopes**2) @ errors**2),
        },
        index=pd.Index(list(found), name="model"),
    )
    return table.sort_values("probability", ascending=False, kind="stable")


def _evidence(model: Any) -> Evidence:
    """Return what was computed, or what is attached."""
    if isinstance(model, Evidence):
        return model
    if isinstance(model, int | float | np.number):
        raise TypeError(
            f"An evidence is needed, with its error; {model!r} is a number. Pass what "
            "az_cv.log_evidence returns."
        )
    return stored_evidence(as_idata(model))


def _prior(names: list[str], prior: Mapping[str, float] | None) -> np.ndarray:
    """Return how probable each model was before, not normalised."""
    if prior is None:
        return np.ones(len(names))
    if set(prior) != set(names):
        raise ValueError(f"prior must name the models {names}; it names {list(prior)}.")
    values = np.array([float(prior[name]) for name in names])
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(f"Each model must have a positive prior; they are {dict(prior)}.")
    return values
